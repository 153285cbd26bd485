/* Another attempt of a call whose failure may pass: whether there is one, and when. The pause
 * before it is an operation like others: the polling thread gives it back when its time is over. */
#include <assert.h>

#include "base/clock.h"
#include "client/lib/parts.h"
#include "client/lib/reach.h"

enum {
    FIRST_PAUSE_MS = 50, /* doubles with each attempt that brings nothing */
    MAX_PAUSE_MS = 1000,
};

void call_is_back(struct parley_call *call)
{
    atomic_store_explicit(&call->is_lost, false, memory_order_relaxed);
}

void call_got_on(struct parley_call *call)
{
    call_is_back(call);
    call->give_up_ms = 0;
    call->pause_ms = 0;
}

/* A failure that is over by itself, some time. */
static bool error_may_pass(const struct parley_error *err)
{
    return err->status == PARLEY_UNAVAILABLE ||
           (err->status == PARLEY_RESOURCE_EXHAUSTED && err->retry_after_ms > 0);
}

void channel_is_reached(struct parley_channel *channel)
{
    if (!atomic_load_explicit(&channel->is_reached, memory_order_relaxed))
        atomic_store_explicit(&channel->is_reached, true, memory_order_relaxed);
}

/* The time until the call's deadline; without one, for ever. */
static uint64_t call_left_ms(const struct parley_call *call)
{
    int64_t left_ms;

    if (call->how.deadline_ms == 0)
        return UINT64_MAX;
    left_ms = gpr_time_to_millis(gpr_time_sub(call->deadline, gpr_now(GPR_CLOCK_MONOTONIC)));
    return left_ms > 1 ? (uint64_t)left_ms : 1;
}

/* How long to wait for another attempt; 0: there is none. */
static uint32_t call_next_pause(struct parley_call *call, const struct parley_error *err)
{
    const uint32_t patience_ms =
        atomic_load_explicit(&call->channel->patience_ms, memory_order_relaxed);
    const uint64_t now_ms = clock_ms();
    uint64_t pause_ms = call->pause_ms == 0 ? FIRST_PAUSE_MS : call->pause_ms;

    if (!error_may_pass(err))
        return 0;
    if (err->reason[0] != '\0' && !reach_is_cause(err)) /* parleyd's own words */
        channel_is_reached(call->channel);
    if (!atomic_load_explicit(&call->channel->is_reached, memory_order_relaxed))
        return 0;
    if (call->give_up_ms == 0)
        call->give_up_ms = now_ms + patience_ms;
    if (now_ms >= call->give_up_ms)
        return 0;
    call->pause_ms = pause_ms < MAX_PAUSE_MS / 2 ? 2 * (uint32_t)pause_ms : MAX_PAUSE_MS;
    if (err->retry_after_ms > 0)
        pause_ms = err->retry_after_ms;
    if (pause_ms > call->give_up_ms - now_ms)
        pause_ms = call->give_up_ms - now_ms;
    return (uint32_t)(pause_ms < call_left_ms(call) ? pause_ms : call_left_ms(call));
}

bool call_repeats(struct parley_call *call, struct parley_error *err)
{
    const uint32_t pause_ms = call_next_pause(call, err);
    grpc_call_error rc;
    bool is_wanted;

    if (pause_ms == 0)
        return false;
    grpc_metadata_array_destroy(&call->headers);
    grpc_metadata_array_destroy(&call->trailers);
    grpc_metadata_array_init(&call->headers);
    grpc_metadata_array_init(&call->trailers);
    call->status = GRPC_STATUS_OK;
    call->due_ms = clock_ms() + pause_ms;
    (void)pthread_mutex_lock(&call->lock);
    call->is_over = false;
    is_wanted = !call->is_cancelled;
    call->is_paused = is_wanted;
    atomic_store_explicit(&call->is_lost, is_wanted, memory_order_relaxed);
    if (is_wanted) { /* a batch without operations: the queue gives its tag to the polling thread */
        atomic_store_explicit(&call->pause.is_out, true, memory_order_release);
        rc = grpc_call_start_batch(call->core, NULL, 0, &call->pause, NULL);
        assert(rc == GRPC_CALL_OK);
    }
    (void)pthread_mutex_unlock(&call->lock);
    if (!is_wanted)
        *err = (struct parley_error){.status = PARLEY_CANCELLED, .text = "cancelled"};
    return is_wanted;
}

bool call_pause_ended(struct parley_call *call)
{
    bool is_wanted;

    (void)pthread_mutex_lock(&call->lock);
    grpc_call_unref(call->core);
    call->core = NULL;
    call->is_paused = false;
    is_wanted = !call->is_cancelled;
    (void)pthread_mutex_unlock(&call->lock);
    return is_wanted;
}

/* --- the polling thread's list --- */

bool call_op_is_pause(const struct call_op *op)
{
    /* Pairs with the start of the operation, perhaps on another thread: see struct call_op. */
    assert(atomic_load_explicit(&op->is_out, memory_order_acquire));
    return op == &op->call->pause;
}

static bool call_pause_is_over(struct parley_call *call, uint64_t now_ms)
{
    bool is_over;

    (void)pthread_mutex_lock(&call->lock);
    is_over = call->is_cancelled || now_ms >= call->due_ms;
    (void)pthread_mutex_unlock(&call->lock);
    return is_over;
}

struct call_op *pauses_take_over(struct list *pauses)
{
    const uint64_t now_ms = clock_ms();

    for (struct link *l = list_first(pauses); l != NULL; l = list_next(pauses, l)) {
        struct call_op *op = container_of(l, struct call_op, link);

        if (call_pause_is_over(op->call, now_ms)) {
            list_remove(l);
            return op;
        }
    }
    return NULL;
}

gpr_timespec pauses_next_end(struct list *pauses)
{
    const uint64_t now_ms = clock_ms();
    uint64_t left_ms = UINT64_MAX;

    if (list_is_empty(pauses))
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    for (struct link *l = list_first(pauses); l != NULL; l = list_next(pauses, l)) {
        const uint64_t due_ms = container_of(l, struct call_op, link)->call->due_ms;
        const uint64_t one_ms = due_ms > now_ms ? due_ms - now_ms : 0;

        if (one_ms < left_ms)
            left_ms = one_ms;
    }
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_millis((int64_t)left_ms, GPR_TIMESPAN));
}

void parley_channel_set_patience(struct parley_channel *channel, uint32_t patience_ms)
{
    atomic_store_explicit(&channel->patience_ms, patience_ms, memory_order_relaxed);
}
