#include "server/api/parley/conversation_call.h"

#include <string.h>

#include "base/list.h"
#include "server/conversation/lookup.h"
#include "server/server.h"

/* --- wanting a conversation --- */

struct conversation_want {
    struct lookup lookup;
    struct call *call;
    void (*then)(struct call *call);
};

static void on_want(struct lookup *l, const struct error *err)
{
    struct conversation_want *w = container_of(l, struct conversation_want, lookup);

    call_clear_handler(w->call);
    if (err->status == STATUS_OK)
        w->then(w->call);
    else
        call_finish(w->call, err);
}

static void want_on_close(struct call *call, void *state, enum status why)
{
    struct conversation_want *w = state;

    lookup_leave(&w->lookup);
}

void conversation_call_want(struct call *call, enum journal_by by, const char *text,
                            void (*then)(struct call *call))
{
    static const struct call_handler handler = {.on_close = want_on_close};
    struct conversations *all = call_server(call)->conversations;
    struct conversation_want *w;
    struct error err;

    if (all->keeping.journal == NULL || text[0] == '\0') {
        then(call);
        return;
    }
    w = arena_alloc(call_arena(call), 1, sizeof(*w));
    if (w == NULL) {
        (void)error_no_memory(&err, sizeof(*w), "a call");
        call_finish(call, &err);
        return;
    }
    *w = (struct conversation_want){.call = call, .then = then};
    if (lookup_begin(&w->lookup, all, by, call_principal(call)->id, text, on_want))
        call_set_handler(call, &handler, w);
    else
        then(call);
}

/* --- replying --- */

struct conversation_reply {
    struct journal_wait wait;
    struct call *call;
    const ProtobufCMessageDescriptor *type;
    size_t size_bytes;
    uint8_t bytes[]; /* the response, encoded */
};

static void on_reply_settled(void *arg, const struct error *err)
{
    struct conversation_reply *r = arg;
    ProtobufCMessage *response;
    struct error why = *err;

    if (err->status != STATUS_OK) {
        call_finish(r->call, err);
        return;
    }
    response = protobuf_c_message_unpack(r->type, NULL, r->size_bytes, r->bytes);
    if (response == NULL) {
        (void)error_no_memory(&why, r->size_bytes, "a response");
        call_finish(r->call, &why);
        return;
    }
    call_reply(r->call, response);
    protobuf_c_message_free_unpacked(response, NULL);
}

static void reply_on_close(struct call *call, void *state, enum status why)
{
    struct conversation_reply *r = state;

    journal_leave(&r->wait);
}

void conversation_call_answer(struct call *call, enum status rc, const struct error *err,
                              const ProtobufCMessage *response)
{
    static const struct call_handler handler = {.on_close = reply_on_close};
    struct journal *journal = call_server(call)->conversations->keeping.journal;
    struct conversation_reply *r;
    struct error why;
    size_t size_bytes;

    if (rc != STATUS_OK || journal == NULL) {
        call_answer(call, rc, err, response);
        return;
    }
    size_bytes = protobuf_c_message_get_packed_size(response);
    r = arena_alloc(call_arena(call), 1, sizeof(*r) + size_bytes);
    if (r == NULL) {
        (void)error_no_memory(&why, size_bytes, "a response");
        call_finish(call, &why);
        return;
    }
    r->call = call;
    r->type = response->descriptor;
    r->size_bytes = protobuf_c_message_pack(response, r->bytes);
    journal_settle(journal, &r->wait, on_reply_settled, r);
    call_set_handler(call, &handler, r);
}
