#include "server/api/parley/conversation_call.h"

#include <string.h>

#include "base/list.h"
#include "server/api/parley/passed_call.h"
#include "server/cluster/cluster.h"
#include "server/conversation/named_lookup.h"
#include "server/server.h"

/* --- wanting a conversation --- */

struct conversation_want {
    struct named_lookup named;
    struct lookup opened;
    struct call *call;
    const char *text;
    bool is_opened; /* text is the id of the request that opened the conversation */
    void (*then)(struct call *call);
};

static void want_look_up(struct conversation_want *w, enum lookup_how how);

/* The daemon that had the conversation has ended. */
static void want_here(struct call *call, void *arg)
{
    want_look_up(arg, LOOKUP_HERE);
}

static void want_is_over(struct conversation_want *w, const struct journal_peer *owner,
                         const struct error *err)
{
    call_clear_handler(w->call);
    if (err->status == STATUS_OK)
        w->then(w->call);
    else if (err->status != STATUS_UNAVAILABLE || owner->id[0] == '\0')
        call_finish(w->call, err);
    else if (!passed_call_begin(w->call, owner, false, want_here, w))
        want_look_up(w, LOOKUP_HERE);
}

static void on_want(struct named_lookup *l, const struct error *err)
{
    want_is_over(container_of(l, struct conversation_want, named), &l->lookup.owner, err);
}

static void on_want_opened(struct lookup *l, const struct error *err)
{
    want_is_over(container_of(l, struct conversation_want, opened), &l->owner, err);
}

static void want_on_close(struct call *call, void *state, enum status why)
{
    struct conversation_want *w = state;

    named_lookup_leave(&w->named);
    lookup_leave(&w->opened);
}

static void want_look_up(struct conversation_want *w, enum lookup_how how)
{
    static const struct call_handler handler = {.on_close = want_on_close};
    struct server *server = call_server(w->call);
    const uint32_t principal = call_principal(w->call)->id;
    bool is_waiting;

    if (w->is_opened)
        is_waiting = lookup_begin(&w->opened, server->conversations, JOURNAL_BY_REQUEST, how,
                                  principal, w->text, on_want_opened);
    else
        is_waiting = named_lookup_begin(&w->named, server->names, how, principal, w->text, on_want);
    if (is_waiting)
        call_set_handler(w->call, &handler, w);
    else
        w->then(w->call);
}

static void want_begin(struct call *call, const char *text, bool is_opened,
                       void (*then)(struct call *call))
{
    struct server *server = call_server(call);
    struct conversation_want *w;
    struct error err;

    if (server->conversations->keeping.journal == NULL || text[0] == '\0') {
        then(call); /* the journal has nothing that text stands for */
        return;
    }
    w = arena_alloc(call_arena(call), 1, sizeof(*w));
    if (w == NULL) {
        (void)error_no_memory(&err, sizeof(*w), "a call");
        call_finish(call, &err);
        return;
    }
    w->call = call;
    w->text = text;
    w->is_opened = is_opened;
    w->then = then;
    want_look_up(w, cluster_can_pass_on(server->cluster) && !call_is_passed_on(call)
                        ? LOOKUP_ANYWHERE
                        : LOOKUP_HERE);
}

void conversation_call_want(struct call *call, const char *text, void (*then)(struct call *call))
{
    want_begin(call, text, false, then);
}

void conversation_call_want_opened(struct call *call, const char *request_id,
                                   void (*then)(struct call *call))
{
    want_begin(call, request_id, true, then);
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
