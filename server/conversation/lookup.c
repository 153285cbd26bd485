#include "server/conversation/lookup.h"

#include <string.h>

#include "server/conversation/keeping.h"
#include "server/conversation/recall.h"
#include "server/conversation/retention.h"

/* A lookup over a later connection raises the epoch by one. */
struct conversation *lookup_has_read(struct conversations *all, const struct conversation_id *id,
                                     const struct journal_found *found)
{
    struct conversation *c = conversations_get(all, id);

    if (c == NULL || c->owner_epoch == found->owner_epoch)
        return c;
    if (c->owner_epoch + 1 == found->owner_epoch) {
        c->owner_epoch = found->owner_epoch;
        return c;
    }
    conversation_unload(c);
    return NULL;
}

static void on_lookup(void *arg, struct journal_found *found, const struct error *err)
{
    struct lookup *l = arg;
    struct error why = *err;
    struct conversation *c = NULL;

    memcpy(l->id.bytes, found->id, sizeof(l->id.bytes));
    l->owner = found->owner;
    if (why.status == STATUS_OK)
        l->owner.id[0] = '\0';
    if (why.status == STATUS_OK && found->is_found && !retention_is_closing(l->all, &l->id)) {
        c = lookup_has_read(l->all, &l->id, found);
        if (c == NULL && /* else another lookup was sooner */
            conversation_recall(&c, l->all, l->principal, found, &why) == STATUS_OK &&
            conversation_expire(c))
            c = NULL;
        l->is_found = why.status == STATUS_OK && c != NULL;
    }
    l->done(l, &why);
}

bool lookup_begin(struct lookup *l, struct conversations *all, enum journal_by by,
                  enum lookup_how how, uint32_t principal, const char *text, lookup_done_fn done)
{
    struct journal_query q = {.by = by,
                              .text = text,
                              .wants_owner = how == LOOKUP_ANYWHERE,
                              .is_sweep = how == LOOKUP_FREE};
    struct conversation_id id;

    *l = (struct lookup){.all = all, .principal = principal, .done = done};
    keeping_check_lease(all);
    if (all->keeping.journal == NULL)
        return false;
    if (by == JOURNAL_BY_ID) {
        if (!conversation_id_parse(&id, text) || conversations_get(all, &id) != NULL)
            return false;
        memcpy(q.id, id.bytes, sizeof(q.id));
        q.text = NULL;
    }
    q.principal = keeping_principal(all, principal);
    journal_read(all->keeping.journal, &l->wait, &q, on_lookup, l);
    return true;
}

void lookup_leave(struct lookup *l)
{
    journal_leave(&l->wait);
}
