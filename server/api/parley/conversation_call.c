#include "server/api/parley/conversation_call.h"

#include <string.h>

#include "base/list.h"
#include "server/conversation/named_lookup.h"
#include "server/server.h"

/* --- wanting a conversation --- */

struct conversation_want {
    struct named_lookup named;
    struct lookup opened;
    struct call *call;
    void (*then)(struct call *call);
};

static void want_is_over(struct conversation_want *w, const struct error *err)
{
    call_clear_handler(w->call);
    if (err->status == STATUS_OK)
        w->then(w->call);
    else
        call_finish(w->call, err);
}

static void on_want(struct named_lookup *l, const struct error *err)
{
    want_is_over(container_of(l, struct conversation_want, named), err);
}

static void on_want_opened(struct lookup *l, const struct error *err)
{
    want_is_over(container_of(l, struct conversation_want, opened), err);
}

static void want_on_close(struct call *call, void *state, enum status why)
{
    struct conversation_want *w = state;

    named_lookup_leave(&w->named);
    lookup_leave(&w->opened);
}

/* NULL: the call has ended, without memory. */
static struct conversation_want *want_begin(struct call *call, void (*then)(struct call *call))
{
    struct conversation_want *w = arena_alloc(call_arena(call), 1, sizeof(*w));
    struct error err;

    if (w == NULL) {
        (void)error_no_memory(&err, sizeof(*w), "a call");
        call_finish(call, &err);
        return NULL;
    }
    w->call = call;
    w->then = then;
    return w;
}

static void want_go_on(struct conversation_want *w, bool is_waiting)
{
    static const struct call_handler handler = {.on_close = want_on_close};

    if (is_waiting)
        call_set_handler(w->call, &handler, w);
    else
        w->then(w->call);
}

/* Whether the journal may have what text stands for. */
static bool may_be_stored(const struct call *call, const char *text)
{
    return call_server(call)->conversations->keeping.journal != NULL && text[0] != '\0';
}

void conversation_call_want(struct call *call, const char *text, void (*then)(struct call *call))
{
    struct conversation_want *w;

    if (!may_be_stored(call, text)) {
        then(call);
        return;
    }
    w = want_begin(call, then);
    if (w != NULL)
        want_go_on(w, named_lookup_begin(&w->named, call_server(call)->names,
                                         call_principal(call)->id, text, on_want));
}

void conversation_call_want_opened(struct call *call, const char *request_id,
                                   void (*then)(struct call *call))
{
    struct conversation_want *w;

    if (!may_be_stored(call, request_id)) {
        then(call);
        return;
    }
    w = want_begin(call, then);
    if (w != NULL)
        want_go_on(w, lookup_begin(&w->opened, call_server(call)->conversations, JOURNAL_BY_REQUEST,
                                   call_principal(call)->id, request_id, on_want_opened));
}

enum status conversation_call_find(struct conversation **out, const struct call *call,
                                   const char *text, struct error *err)
{
    if (text[0] == '\0')
        return error_field(err, "conversation", "is empty");
    return conversation_names_get(out, call_server(call)->names, call_principal(call)->id, text,
                                  err);
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
