#include "server/api/parley/stored_records.h"

#include <string.h>

#include "server/api/parley/conversation_call.h"
#include "server/conversation/keeping.h"
#include "server/conversation/lookup.h"
#include "server/server.h"

static void on_stored_records(void *arg, struct journal_found *found, const struct error *err)
{
    struct stored_records *s = arg;
    struct error why = *err;

    if (why.status == STATUS_OK && !found->is_found)
        (void)error_because(&why, STATUS_NOT_FOUND, REASON_CONVERSATION_NOT_FOUND, "conversation",
                            "the conversation was closed meanwhile");
    if (why.status == STATUS_OK) {
        (void)lookup_has_read(s->all, &s->id, found); /* its epoch is what counts */
        list_move(&found->events, &s->found.events);
        s->is_read = true;
    }
    s->done(s->arg, &why);
}

enum status stored_records_read(struct stored_records *s, struct call *call, const char *text,
                                void (*done)(void *arg, const struct error *err), void *arg,
                                struct error *err)
{
    struct conversations *all = call_server(call)->conversations;
    struct journal_query q = {.by = JOURNAL_BY_ID, .wants_chain = true};
    struct conversation *c;
    enum status rc = conversation_call_find(&c, call, text, err);

    if (rc != STATUS_OK)
        return rc;
    if (!c->host.is_kept)
        return error_set(err, STATUS_PRECONDITION,
                         "the conversation is not stored, so nothing of it was recorded: run "
                         "parleyd with --data");
    *s = (struct stored_records){.all = all, .id = c->id, .done = done, .arg = arg};
    journal_found_init(&s->found);
    memcpy(q.id, c->id.bytes, sizeof(q.id));
    q.principal = keeping_principal(all, c->principal);
    journal_read(all->keeping.journal, &s->wait, &q, on_stored_records, s);
    return STATUS_OK;
}

void stored_records_close(struct stored_records *s)
{
    journal_leave(&s->wait);
    if (s->is_read)
        journal_found_deinit(&s->found);
    s->is_read = false;
}
