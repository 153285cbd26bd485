/* Happy path: the journal gives the parts of the key; the conversation of each is looked up, one
 * after the other; then the reply is made of their turns, those that had not ended are run again,
 * and the owner's call finds it by its key.
 *
 * Failures: a conversation that is not there any more leaves the key free; one that cannot be read
 * now, or that has left memory while another one was read, fails the lookup, since the key may not
 * be given to another reply. */
#include "server/conversation/keyed_lookup.h"

#include <stdlib.h>
#include <string.h>

#include "server/conversation/body.h"
#include "server/conversation/keeping.h"

#define KEYED_LOOKUP_MAX_BYTES ((size_t)1 << 20)

static void keyed_lookup_free_parts(struct keyed_lookup *l)
{
    struct link *at;

    while ((at = list_pop(&l->parts)) != NULL)
        free(container_of(at, struct journal_event, link));
}

static void keyed_lookup_end(struct keyed_lookup *l, const struct error *err)
{
    struct keyed_reply *reply = NULL;
    struct error why = *err;

    if (why.status == STATUS_OK && !list_is_empty(&l->parts) &&
        keyed_replies_lack(l->all, l->principal, l->key)) /* else another lookup was sooner */
        (void)!keyed_reply_restore(&reply, l->all, l->principal, l->key, &l->parts, l->is_gone,
                                   &why); /* it is in why */
    keyed_lookup_free_parts(l);
    l->done(l, &why); /* l may be freed */
    if (reply != NULL)
        keyed_reply_leave(reply);
}

static void on_keyed_conversation(struct lookup *lookup, const struct error *err);

/* Whether a conversation is waited for; if not, all are there, or err says why not. */
static bool keyed_lookup_advance(struct keyed_lookup *l, struct error *err)
{
    char id[CONVERSATION_ID_CHARS];
    struct conversation_id which;
    bool is_waiting = false;
    struct body_key key;
    struct arena arena;

    *err = (struct error){0};
    arena_init(&arena, KEYED_LOOKUP_MAX_BYTES);
    while (l->at != NULL && !is_waiting && err->status == STATUS_OK) {
        const struct journal_event *part = container_of(l->at, struct journal_event, link);

        l->at = list_next(&l->parts, l->at);
        if (body_read_key(&key, part->body, part->size_bytes, &arena, err) != STATUS_OK)
            break;
        memcpy(which.bytes, key.conversation, sizeof(which.bytes));
        conversation_id_format(&which, id);
        is_waiting = lookup_begin(&l->lookup, l->all->config.conversations, JOURNAL_BY_ID, l->how,
                                  l->principal, id, on_keyed_conversation);
    }
    arena_deinit(&arena);
    return is_waiting;
}

static void on_keyed_conversation(struct lookup *lookup, const struct error *err)
{
    struct keyed_lookup *l = container_of(lookup, struct keyed_lookup, lookup);
    struct error why = *err;

    l->is_gone = l->is_gone || !lookup->is_found;
    if (why.status != STATUS_OK || !keyed_lookup_advance(l, &why))
        keyed_lookup_end(l, &why);
}

static void on_key(void *arg, struct journal_found *found, const struct error *err)
{
    struct keyed_lookup *l = arg;
    struct error why = *err;

    list_move(&found->events, &l->parts);
    l->at = list_first(&l->parts);
    if (why.status != STATUS_OK || !keyed_lookup_advance(l, &why))
        keyed_lookup_end(l, &why);
}

bool keyed_lookup_begin(struct keyed_lookup *l, struct keyed_replies *all, enum lookup_how how,
                        uint32_t principal, const char *key, keyed_lookup_done_fn done)
{
    const struct conversations *conversations = all->config.conversations;
    struct journal_query q = {.by = JOURNAL_BY_KEY, .text = key};

    *l = (struct keyed_lookup){
        .all = all, .principal = principal, .key = key, .done = done, .how = how};
    list_init(&l->parts);
    keeping_check_lease(all->config.conversations);
    if (conversations->keeping.journal == NULL || !keyed_replies_lack(all, principal, key))
        return false;
    q.principal = keeping_principal(conversations, principal);
    journal_read(conversations->keeping.journal, &l->wait, &q, on_key, l);
    return true;
}

void keyed_lookup_leave(struct keyed_lookup *l)
{
    journal_leave(&l->wait);
    lookup_leave(&l->lookup);
    keyed_lookup_free_parts(l);
}
