/* A future is a unary call that keeps its result. Its end, where all callbacks of the channel come,
 * fills the result in, settles it, calls its callbacks, and wakes the threads that wait.
 *
 * Whoever waits first looks whether the futures have settled: then the channel, which may be closed
 * by now, is not touched. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "client/lib/parts.h"
#include "proto/codec.h"

struct future_then {
    struct link link;
    parley_then_fn then;
    void *arg;
};

static struct parley_future *future_of(struct parley_call *call)
{
    return container_of(call, struct parley_future, base);
}

static enum status future_message(struct parley_call *call, const void *data, size_t len,
                                  struct error *err)
{
    struct parley_future *f = future_of(call);
    ProtobufCMessage *m = NULL;
    struct arena arena;
    enum status rc;

    arena_init(&arena, DECODED_MAX_BYTES);
    rc = codec_decode(&m, f->kind->response, data, len, CODEC_ANY_FIELDS, &arena, err);
    if (rc != STATUS_OK)
        (void)error_prefix(err, "the server's answer cannot be parsed");
    else if (f->kind->take != NULL)
        rc = f->kind->take(f, m, err);
    f->has_response = rc == STATUS_OK;
    arena_deinit(&arena);
    return rc;
}

static void future_end(struct parley_call *call, const struct parley_error *err)
{
    struct parley_future *f = future_of(call);
    struct parley_channel *channel = call->channel;
    struct error missing = {0};
    struct list thens;
    struct link *l;

    list_init(&thens);
    f->result.err = *err;
    if (call->n_attempts > 1 && err->status == f->kind->done_before && err->status != PARLEY_OK) {
        f->result.err = (struct parley_error){0};
        f->has_response = true;
    }
    if (err->status == PARLEY_OK && !f->has_response) {
        (void)error_set(&missing, STATUS_INTERNAL, "%s answered without a response",
                        f->kind->method);
        outcome_of_failure(&f->result.err, &missing);
    }
    (void)pthread_mutex_lock(&call->lock);
    atomic_store_explicit(&f->is_settled, true, memory_order_release);
    list_move(&f->thens, &thens);
    (void)pthread_mutex_unlock(&call->lock);
    while ((l = list_pop(&thens)) != NULL) {
        struct future_then *t = container_of(l, struct future_then, link);

        t->then(t->arg, &f->result);
        free(t);
    }
    (void)pthread_mutex_lock(&channel->lock);
    (void)pthread_cond_broadcast(&channel->is_settled);
    (void)pthread_mutex_unlock(&channel->lock);
}

static void future_free(struct parley_call *call)
{
    free(future_of(call)->text);
}

struct parley_future *future_start(struct parley_channel *channel, const struct future_kind *kind,
                                   const ProtobufCMessage *request, uint32_t deadline_ms,
                                   bool is_repeatable)
{
    static const struct call_kind unary = {false, future_message, future_end, future_free};
    const struct call_start how = {.method = kind->method,
                                   .request = request,
                                   .deadline_ms = deadline_ms,
                                   .is_repeatable = is_repeatable};
    struct parley_call *call = parley_call_make(sizeof(struct parley_future), &unary);
    struct parley_future *f;

    if (call == NULL)
        return NULL;
    f = future_of(call);
    f->kind = kind;
    list_init(&f->thens);
    atomic_init(&f->is_settled, false);
    parley_call_start(channel, call, &how);
    return f;
}

static bool future_is_settled(const struct parley_future *f)
{
    return atomic_load_explicit(&f->is_settled, memory_order_acquire);
}

const struct parley_result *parley_future_result(const struct parley_future *f)
{
    return future_is_settled(f) ? &f->result : NULL;
}

bool parley_future_then(struct parley_future *f, parley_then_fn then, void *arg)
{
    struct future_then *t = try_alloc(1, sizeof(*t));
    bool is_late;

    if (t == NULL)
        return false;
    *t = (struct future_then){.then = then, .arg = arg};
    (void)pthread_mutex_lock(&f->base.lock);
    is_late = future_is_settled(f);
    if (!is_late)
        list_push(&f->thens, &t->link);
    (void)pthread_mutex_unlock(&f->base.lock);
    if (is_late) {
        free(t);
        then(arg, &f->result);
    }
    return true;
}

void parley_future_cancel(struct parley_future *f)
{
    parley_call_cancel(&f->base);
}

void parley_future_unref(struct parley_future *f)
{
    parley_call_unref(f == NULL ? NULL : &f->base);
}

/* --- waiting --- */

static size_t futures_first_settled(struct parley_future *const *futures, size_t n)
{
    size_t i = 0;

    while (i < n && !future_is_settled(futures[i]))
        i++;
    return i;
}

static size_t futures_first_pending(struct parley_future *const *futures, size_t n)
{
    size_t i = 0;

    while (i < n && future_is_settled(futures[i]))
        i++;
    return i;
}

/* False: the time is over. Returns early as well. */
static bool channel_await(struct parley_channel *channel, uint64_t end_ms)
{
    const struct timespec end = {.tv_sec = (time_t)(end_ms / 1000),
                                 .tv_nsec = (long)(end_ms % 1000) * 1000000};
    const uint64_t now_ms = clock_ms();

    if (end_ms != UINT64_MAX && now_ms >= end_ms)
        return false;
    if (channel->fd >= 0) {
        const uint64_t left_ms = end_ms == UINT64_MAX ? INT32_MAX : end_ms - now_ms;

        channel_dispatch_next(channel, left_ms < INT32_MAX ? (int)left_ms : INT32_MAX);
    } else if (end_ms == UINT64_MAX) {
        (void)pthread_cond_wait(&channel->is_settled, &channel->lock);
    } else {
        (void)pthread_cond_timedwait(&channel->is_settled, &channel->lock, &end);
    }
    return true;
}

/* Waits until pending gives n, or something else if is_any. */
static void futures_wait(struct parley_future *const *futures, size_t n, uint32_t timeout_ms,
                         bool is_any)
{
    const uint64_t end_ms = timeout_ms == PARLEY_FOREVER ? UINT64_MAX : clock_ms() + timeout_ms;
    /* Read once: others settle meanwhile. */
    const size_t pending = futures_first_pending(futures, n);
    struct parley_channel *channel;
    bool has_time = true;

    if (pending == n || (is_any && futures_first_settled(futures, n) < n))
        return;
    channel = futures[pending]->base.channel;
    assert(channel_may_wait(channel));
    if (channel->fd < 0)
        (void)pthread_mutex_lock(&channel->lock);
    while (has_time && (is_any ? futures_first_settled(futures, n) == n
                               : futures_first_pending(futures, n) < n))
        has_time = channel_await(channel, end_ms);
    if (channel->fd < 0)
        (void)pthread_mutex_unlock(&channel->lock);
}

bool parley_wait_all(struct parley_future *const *futures, size_t n, uint32_t timeout_ms)
{
    futures_wait(futures, n, timeout_ms, false);
    return futures_first_pending(futures, n) == n;
}

size_t parley_wait_any(struct parley_future *const *futures, size_t n, uint32_t timeout_ms)
{
    futures_wait(futures, n, timeout_ms, true);
    return futures_first_settled(futures, n);
}

enum parley_status future_finish(struct parley_future *f, struct parley_result *ret_result,
                                 struct parley_error *ret_err)
{
    struct parley_error short_of;
    struct error err = {0};
    enum parley_status rc;

    if (f == NULL) {
        (void)error_no_memory(&err, sizeof(*f), "a call");
        outcome_of_failure(ret_err != NULL ? ret_err : &short_of, &err);
        return (enum parley_status)err.status;
    }
    (void)parley_wait_all(&f, 1, PARLEY_FOREVER);
    rc = f->result.err.status;
    if (ret_err != NULL)
        *ret_err = f->result.err;
    if (rc == PARLEY_OK && ret_result != NULL) {
        *ret_result = f->result;
        ret_result->text = NULL; /* owned by the future */
        ret_result->len = 0;
    }
    parley_future_unref(f);
    return rc;
}
