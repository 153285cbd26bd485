/* parley.v1.Conversations, Records. The conversation's records are read from the journal at once,
 * and written one by one. */
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/stored_records.h"
#include "server/api/parley/wire.h"
#include "server/api/parley/wire_record.h"
#include "server/server.h"

#define RECORD_MESSAGE_MAX_BYTES ((size_t)1 << 30)

struct records_call {
    struct call *call;
    struct stored_records stored;
    struct link *at; /* the next record; NULL: all are written */
};

static void records_write_ready(struct call *call, void *state)
{
    struct records_call *r = state;
    Parley__V1__ConversationRecord *message;
    struct arena arena;
    struct error err;

    if (!r->stored.is_read)
        return;
    if (r->at == NULL) {
        call_finish(call, NULL);
        return;
    }
    arena_init(&arena, RECORD_MESSAGE_MAX_BYTES);
    if (wire_record(&message, container_of(r->at, const struct journal_event, link),
                    call_principal(call)->name, &arena, &err) == STATUS_OK) {
        r->at = list_next(&r->stored.found.events, r->at);
        call_write(call, &message->base, true);
    } else {
        call_finish(call, &err);
    }
    arena_deinit(&arena);
}

static void records_on_close(struct call *call, void *state, enum status why)
{
    struct records_call *r = state;

    stored_records_close(&r->stored);
}

static void on_records(void *arg, const struct error *err)
{
    struct records_call *r = arg;

    if (err->status != STATUS_OK) {
        call_finish(r->call, err);
        return;
    }
    r->at = list_first(&r->stored.found.events);
    call_notify(r->call);
}

static void list_records(struct call *call, const Parley__V1__ConversationsRecordsRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = records_write_ready,
                                                .on_close = records_on_close};
    struct records_call *r = arena_alloc(call_arena(call), 1, sizeof(*r));
    struct error err;

    if (r == NULL) {
        (void)error_no_memory(&err, sizeof(*r), "a call");
        call_finish(call, &err);
        return;
    }
    *r = (struct records_call){.call = call};
    if (stored_records_read(&r->stored, call, request->conversation, on_records, r, &err) !=
        STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    call_set_handler(call, &handler, r);
}

#define CONVERSATIONS_RECORDS_METHODS(METHOD)                                                \
    METHOD(FOUND_SERVER_STREAM, KEY, "Conversations/Records", conversations_records_request, \
           conversation_record, list_records)

PARLEY_TABLE(conversations_records_methods, CONVERSATIONS_RECORDS_METHODS)
