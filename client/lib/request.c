/* The blocking calls: a call, and a wait for its end. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/lib/parts.h"
#include "proto/codec.h"

/* A server that accepts calls but never answers must not block the caller for ever. None of these
 * calls waits for a model. */
enum { REQUEST_DEADLINE_MS = 60000 };

struct unary_request {
    struct parley_call base;
    request_message_fn message;
    void *arg;
    struct waiter *waiter;
};

void waiter_init(struct waiter *w)
{
    *w = (struct waiter){0};
    (void)pthread_mutex_init(&w->lock, NULL); /* neither can fail on Linux */
    (void)pthread_cond_init(&w->is_over_now, NULL);
}

void waiter_tell(struct waiter *w, const struct parley_error *err)
{
    (void)pthread_mutex_lock(&w->lock);
    w->err = *err;
    w->is_over = true;
    (void)pthread_cond_signal(&w->is_over_now); /* with the lock held: w may be freed right after */
    (void)pthread_mutex_unlock(&w->lock);
}

enum parley_status waiter_wait(struct waiter *w, struct parley_error *ret_err)
{
    enum parley_status status;

    (void)pthread_mutex_lock(&w->lock);
    while (!w->is_over)
        (void)pthread_cond_wait(&w->is_over_now, &w->lock);
    status = w->err.status;
    if (ret_err != NULL)
        *ret_err = w->err;
    (void)pthread_mutex_unlock(&w->lock);
    (void)pthread_cond_destroy(&w->is_over_now);
    (void)pthread_mutex_destroy(&w->lock);
    return status;
}

static enum status on_message(struct parley_call *call, const void *data, size_t len,
                              struct error *err)
{
    struct unary_request *r = (struct unary_request *)call;

    return r->message(r->arg, data, len, err);
}

static void on_end(struct parley_call *call, const struct parley_error *err)
{
    waiter_tell(((struct unary_request *)call)->waiter, err);
}

static enum parley_status request_fail(struct parley_error *ret_err, const struct error *err)
{
    if (ret_err != NULL)
        outcome_of_failure(ret_err, err);
    return (enum parley_status)err->status;
}

enum parley_status request_wait(struct parley_channel *channel, const struct call_start *how,
                                bool is_stream, request_message_fn message, void *arg,
                                struct parley_error *ret_err)
{
    static const struct call_kind unary = {false, on_message, on_end};
    static const struct call_kind stream = {true, on_message, on_end};
    struct parley_call *call =
        parley_call_make(sizeof(struct unary_request), is_stream ? &stream : &unary);
    struct unary_request *r = (struct unary_request *)call;
    struct waiter waiter;
    struct error err = {0};

    assert(!pthread_equal(channel->thread, pthread_self()));
    if (r == NULL) {
        (void)error_no_memory(&err, sizeof(*r), "a call");
        return request_fail(ret_err, &err);
    }
    waiter_init(&waiter);
    r->message = message;
    r->arg = arg;
    r->waiter = &waiter;
    parley_call_start(channel, call, how);
    parley_call_unref(call);
    return waiter_wait(&waiter, ret_err);
}

/* --- a stream of messages --- */

struct message_sink {
    parley_message_fn message;
    void *arg;
};

static enum status sink_message(void *arg, const void *data, size_t len, struct error *err)
{
    const struct message_sink *sink = arg;
    struct parley_error failure = {0};
    enum parley_status rc = sink->message(sink->arg, data, len, &failure);

    return rc == PARLEY_OK ? STATUS_OK : error_set(err, (enum status)rc, "%s", failure.text);
}

enum parley_status parley_server_stream(struct parley_channel *channel, const char *method,
                                        const void *request, size_t request_len,
                                        parley_message_fn message, void *arg,
                                        struct parley_error *err)
{
    const struct call_start how = {.method = method, .bytes = request, .len = request_len};
    struct message_sink sink = {message, arg};

    return request_wait(channel, &how, true, sink_message, &sink, err);
}

/* --- messages in and out --- */

struct decoded {
    const ProtobufCMessageDescriptor *type;
    struct arena arena;
    ProtobufCMessage *message;
};

static enum status keep_message(void *arg, const void *data, size_t len, struct error *err)
{
    struct decoded *d = arg;

    return codec_decode(&d->message, d->type, data, len, CODEC_ANY_FIELDS, &d->arena, err) ==
                   STATUS_OK
               ? STATUS_OK
               : error_prefix(err, "the server's answer is not understood");
}

/* Calls method; *out is inside d, which decoded_deinit frees in any case. */
static enum parley_status request_ask(struct parley_channel *channel, const char *method,
                                      const ProtobufCMessage *request,
                                      const ProtobufCMessageDescriptor *type, struct decoded *d,
                                      struct parley_error *ret_err)
{
    const struct call_start how = {
        .method = method, .request = request, .deadline_ms = REQUEST_DEADLINE_MS};
    enum parley_status rc;
    struct error err = {0};

    d->type = type;
    d->message = NULL;
    arena_init(&d->arena, DECODED_MAX_BYTES);
    rc = request_wait(channel, &how, false, keep_message, d, ret_err);
    if (rc == PARLEY_OK && d->message == NULL) {
        (void)error_set(&err, STATUS_INTERNAL, "%s answered without a response", method);
        rc = request_fail(ret_err, &err);
    }
    return rc;
}

/* The request's texts are only read. */
static char *request_text_of(const char *text)
{
    return text == NULL ? (char *)(uintptr_t) "" : (char *)(uintptr_t)text;
}

static void request_copy(char *out, size_t size, const char *text)
{
    size_t len = strnlen(text, size - 1);

    memcpy(out, text, len);
    out[len] = '\0';
}

enum parley_status parley_conversation_open(struct parley_channel *channel,
                                            const struct parley_open *what,
                                            struct parley_opened *out, struct parley_error *ret_err)
{
    Parley__V1__ConversationsOpenRequest request = PARLEY__V1__CONVERSATIONS_OPEN_REQUEST__INIT;
    Parley__V1__Sampling sampling = PARLEY__V1__SAMPLING__INIT;
    Parley__V1__ConversationLimits limits = PARLEY__V1__CONVERSATION_LIMITS__INIT;
    const Parley__V1__ConversationsOpenResponse *response;
    struct error err = {0};
    struct arena arena;
    struct decoded d;
    enum parley_status rc;

    arena_init(&arena, DECODED_MAX_BYTES);
    request.model = request_text_of(what->model);
    request.system = request_text_of(what->system);
    request.ttl_ms = what->ttl_ms;
    request.request_id = request_text_of(what->request_id);
    limits.priority = what->priority;
    request.limits = what->priority != 0 ? &limits : NULL;
    if (what->sampling != NULL) {
        if (sampling_fill(&sampling, what->sampling, &arena, &err) != STATUS_OK) {
            arena_deinit(&arena);
            return request_fail(ret_err, &err);
        }
        request.sampling = &sampling;
    }
    rc = request_ask(channel, "/parley.v1.Conversations/Open", &request.base,
                     &parley__v1__conversations_open_response__descriptor, &d, ret_err);
    arena_deinit(&arena);
    if (rc == PARLEY_OK) {
        response = (const Parley__V1__ConversationsOpenResponse *)d.message;
        request_copy(out->conversation, sizeof(out->conversation), response->conversation);
        request_copy(out->model, sizeof(out->model), response->model);
        request_copy(out->version, sizeof(out->version), response->version);
    }
    arena_deinit(&d.arena);
    return rc;
}

enum parley_status parley_fork(struct parley_channel *channel, const char *conversation,
                               uint32_t at_turn, char out[33], struct parley_error *err)
{
    Parley__V1__ConversationsForkRequest request = PARLEY__V1__CONVERSATIONS_FORK_REQUEST__INIT;
    struct decoded d;
    enum parley_status rc;

    request.conversation = request_text_of(conversation);
    if (at_turn != PARLEY_ALL_TURNS) {
        request.at_case = PARLEY__V1__CONVERSATIONS_FORK_REQUEST__AT_AT_TURN;
        request.at_turn = at_turn;
    }
    rc = request_ask(channel, "/parley.v1.Conversations/Fork", &request.base,
                     &parley__v1__conversations_fork_response__descriptor, &d, err);
    if (rc == PARLEY_OK)
        request_copy(out, 33,
                     ((const Parley__V1__ConversationsForkResponse *)d.message)->conversation);
    arena_deinit(&d.arena);
    return rc;
}

enum parley_status parley_rewind(struct parley_channel *channel, const char *conversation,
                                 uint32_t to_turn, uint32_t *ret_turns, struct parley_error *err)
{
    Parley__V1__ConversationsRewindRequest request = PARLEY__V1__CONVERSATIONS_REWIND_REQUEST__INIT;
    struct decoded d;
    enum parley_status rc;

    request.conversation = request_text_of(conversation);
    request.to_case = PARLEY__V1__CONVERSATIONS_REWIND_REQUEST__TO_TO_TURN;
    request.to_turn = to_turn;
    rc = request_ask(channel, "/parley.v1.Conversations/Rewind", &request.base,
                     &parley__v1__conversations_rewind_response__descriptor, &d, err);
    if (rc == PARLEY_OK && ret_turns != NULL)
        *ret_turns = ((const Parley__V1__ConversationsRewindResponse *)d.message)->turns;
    arena_deinit(&d.arena);
    return rc;
}

enum parley_status parley_cancel(struct parley_channel *channel, const char *conversation,
                                 uint32_t *ret_cancelled, struct parley_error *err)
{
    return parley_cancel_turn(channel, conversation, 0, ret_cancelled, err);
}

enum parley_status parley_cancel_turn(struct parley_channel *channel, const char *conversation,
                                      uint32_t turn, uint32_t *ret_cancelled,
                                      struct parley_error *err)
{
    Parley__V1__ConversationsCancelRequest request = PARLEY__V1__CONVERSATIONS_CANCEL_REQUEST__INIT;
    struct decoded d;
    enum parley_status rc;

    request.conversation = request_text_of(conversation);
    request.turn = turn;
    rc = request_ask(channel, "/parley.v1.Conversations/Cancel", &request.base,
                     &parley__v1__conversations_cancel_response__descriptor, &d, err);
    if (rc == PARLEY_OK && ret_cancelled != NULL)
        *ret_cancelled = ((const Parley__V1__ConversationsCancelResponse *)d.message)->cancelled;
    arena_deinit(&d.arena);
    return rc;
}

enum parley_status parley_close(struct parley_channel *channel, const char *conversation,
                                struct parley_error *err)
{
    Parley__V1__ConversationsCloseRequest request = PARLEY__V1__CONVERSATIONS_CLOSE_REQUEST__INIT;
    struct decoded d;
    enum parley_status rc;

    request.conversation = request_text_of(conversation);
    rc = request_ask(channel, "/parley.v1.Conversations/Close", &request.base,
                     &parley__v1__conversations_close_response__descriptor, &d, err);
    arena_deinit(&d.arena);
    return rc;
}
