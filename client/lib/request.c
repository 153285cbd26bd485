/* The blocking calls: a call, and a wait for its end. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "client/lib/parts.h"

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

static bool waiter_is_over(struct waiter *w)
{
    bool is_over;

    (void)pthread_mutex_lock(&w->lock);
    is_over = w->is_over;
    (void)pthread_mutex_unlock(&w->lock);
    return is_over;
}

enum parley_status waiter_wait(struct waiter *w, struct parley_channel *channel,
                               struct parley_error *ret_err)
{
    enum parley_status status;

    while (channel->fd >= 0 && !waiter_is_over(w))
        channel_dispatch_next(channel, -1);
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
    static const struct call_kind unary = {false, on_message, on_end, NULL};
    static const struct call_kind stream = {true, on_message, on_end, NULL};
    struct parley_call *call =
        parley_call_make(sizeof(struct unary_request), is_stream ? &stream : &unary);
    struct unary_request *r = (struct unary_request *)call;
    struct waiter waiter;
    struct error err = {0};

    assert(channel_may_wait(channel));
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
    return waiter_wait(&waiter, channel, ret_err);
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
