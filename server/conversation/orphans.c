#include "server/conversation/orphans.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "server/conversation/conversation.h"
#include "server/conversation/lookup.h"

struct orphan {
    struct link link; /* of the conversations' orphans */
    struct lookup lookup;
    uint8_t id[JOURNAL_ID_BYTES];
};

static void orphan_free(struct orphan *o)
{
    list_remove(&o->link);
    free(o);
}

static void on_orphan(struct lookup *l, const struct error *err)
{
    struct orphan *o = container_of(l, struct orphan, lookup);
    struct conversation *c = l->is_found ? conversations_get(l->all, &l->id) : NULL;
    struct error why = *err;
    char id[CONVERSATION_ID_CHARS];

    conversation_id_format(&l->id, id);
    if (why.status == STATUS_OK && c != NULL && c->unended.request != NULL &&
        conversation_run_unended(c, &why) == STATUS_OK)
        log_info("goes_on", "conversation=%s turn=%u what=\"its parleyd has ended\"", id,
                 c->host.n_turns + 1);
    if (why.status != STATUS_OK)
        log_warn("goes_on", "conversation=%s error=\"%s\"", id, why.text);
    orphan_free(o);
}

void orphans_take(void *conversations, const struct journal_orphan *orphan)
{
    struct conversations *all = conversations;
    struct conversation_id id;
    char text[CONVERSATION_ID_CHARS];
    uint32_t principal;
    struct orphan *o;

    if (all->is_draining || all->keeping.find_principal == NULL ||
        !all->keeping.find_principal(all->keeping.self, orphan->principal, &principal))
        return;
    for (struct link *at = list_first(&all->orphans); at != NULL; at = list_next(&all->orphans, at))
        if (memcmp(container_of(at, struct orphan, link)->id, orphan->id, sizeof(o->id)) == 0)
            return;
    o = xalloc(sizeof(*o));
    memcpy(o->id, orphan->id, sizeof(o->id));
    memcpy(id.bytes, orphan->id, sizeof(id.bytes));
    conversation_id_format(&id, text);
    list_push(&all->orphans, &o->link);
    if (!lookup_begin(&o->lookup, all, JOURNAL_BY_ID, LOOKUP_FREE, principal, text, on_orphan))
        orphan_free(o); /* it is in memory */
}

void orphans_leave(struct conversations *all)
{
    struct link *at;

    while ((at = list_first(&all->orphans)) != NULL) {
        struct orphan *o = container_of(at, struct orphan, link);

        lookup_leave(&o->lookup);
        orphan_free(o);
    }
}
