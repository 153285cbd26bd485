/* The happy path: parley_call_start begins two operations. `read` sends the whole request and takes
 * the headers and the first message, then one message each time until there is none; `finish` takes
 * the status. A unary call's `read` takes the status too. On a bidirectional stream `write` sends
 * the outgoing messages, one at a time. When all have completed the call ends: the kind's end is
 * called, the call leaves its channel.
 *
 * Failure: gRPC completes both in any case, and the status says what failed. A message that the
 * client refuses cancels the call, and the client's reason replaces the status. A repeatable call
 * whose failure may pass does not end: after a pause it begins anew (see repeat.c). */
#include <assert.h>
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "client/lib/parts.h"
#include "proto/codec.h"

struct parley_call *parley_call_make(size_t size_bytes, const struct call_kind *kind)
{
    struct parley_call *call = try_alloc(1, size_bytes);

    if (call == NULL)
        return NULL;
    call->kind = kind;
    call->read.call = call->finish.call = call->write.call = call->pause.call = call;
    list_init(&call->outgoing);
    atomic_init(&call->n_refs, 1);
    atomic_init(&call->is_lost, false);
    (void)pthread_mutex_init(&call->lock, NULL); /* cannot fail on Linux */
    grpc_metadata_array_init(&call->headers);
    grpc_metadata_array_init(&call->trailers);
    call->details = call->request = grpc_empty_slice();
    return call;
}

void parley_call_unref(struct parley_call *call)
{
    /* The last reference frees. Acquire, to see what the others wrote before they released theirs.
     */
    if (call == NULL || atomic_fetch_sub_explicit(&call->n_refs, 1, memory_order_acq_rel) > 1)
        return;
    if (call->kind->free != NULL)
        call->kind->free(call);
    grpc_metadata_array_destroy(&call->headers);
    grpc_metadata_array_destroy(&call->trailers);
    grpc_slice_unref(call->request);
    (void)pthread_mutex_destroy(&call->lock);
    free(call);
}

void parley_call_cancel(struct parley_call *call)
{
    (void)pthread_mutex_lock(&call->lock);
    call->is_cancelled = true;
    if (call->is_paused) /* without operations: the polling thread looks at its pauses at once */
        (void)grpc_call_start_batch(call->core, NULL, 0, NULL, NULL);
    else if (call->core != NULL)
        (void)grpc_call_cancel(call->core, NULL); /* the call's end reports it */
    (void)pthread_mutex_unlock(&call->lock);
}

bool parley_call_is_lost(const struct parley_call *call)
{
    return atomic_load_explicit(&call->is_lost, memory_order_relaxed);
}

static void call_start_ops(grpc_call *core, struct call_op *op, const grpc_op *ops, size_t n)
{
    grpc_call_error rc;

    atomic_store_explicit(&op->is_out, true, memory_order_release);
    rc = grpc_call_start_batch(core, ops, n, op, NULL);
    assert(rc == GRPC_CALL_OK);
}

grpc_slice call_encode(const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(codec_size(message));

    (void)codec_encode(message, GRPC_SLICE_START_PTR(slice));
    return slice;
}

/* The message of an attempt; NULL on a bidirectional stream. */
static grpc_byte_buffer *call_message(struct parley_call *call)
{
    grpc_slice slices[2] = {call->request, grpc_empty_slice()};
    grpc_byte_buffer *out;

    if (call->how.is_bidi)
        return NULL;
    if (call->n_attempts == 1 || call->amend == NULL)
        return grpc_raw_byte_buffer_create(slices, 1);
    slices[1] = call->amend(call);
    out = grpc_raw_byte_buffer_create(slices, 2);
    grpc_slice_unref(slices[1]);
    return out;
}

/* Begins an attempt. */
static void call_begin(struct parley_call *call)
{
    struct parley_channel *channel = call->channel;
    const struct call_start *how = &call->how;
    grpc_op finish = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    /* A bidirectional stream leaves out the operations after the third. The last is finish, only
     * for unary calls: one event instead of two. */
    grpc_op read[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
    };
    const bool is_unary = !how->is_bidi && !call->kind->is_stream;
    grpc_slice method = grpc_slice_from_copied_string(how->method);
    grpc_byte_buffer *request;
    grpc_call *core;

    call->n_attempts++;
    request = call_message(call);
    call->n_out = is_unary ? 1 : 2;
    core = grpc_channel_create_call(channel->core, NULL, GRPC_PROPAGATE_DEFAULTS, channel->queue,
                                    method, NULL, call->deadline, NULL);
    grpc_slice_unref(method);
    (void)pthread_mutex_lock(&call->lock);
    call->core = core;
    if (call->is_cancelled) /* between two attempts */
        (void)grpc_call_cancel(core, NULL);
    (void)pthread_mutex_unlock(&call->lock);

    finish.data.recv_status_on_client.status = &call->status;
    finish.data.recv_status_on_client.status_details = &call->details;
    finish.data.recv_status_on_client.trailing_metadata = &call->trailers;
    read[0].flags = how->waits_for_server ? GRPC_INITIAL_METADATA_WAIT_FOR_READY : 0;
    read[0].data.send_initial_metadata.count = channel->n_keys;
    read[0].data.send_initial_metadata.metadata = &channel->key;
    read[1].data.recv_initial_metadata.recv_initial_metadata = &call->headers;
    read[2].data.recv_message.recv_message = &call->in;
    read[3].data.send_message.send_message = request;
    read[5] = finish;
    if (!is_unary) /* the call still ends only once read has completed */
        call_start_ops(core, &call->finish, &finish, 1);
    call_start_ops(core, &call->read, read, is_unary ? 6 : how->is_bidi ? 3 : 5);
    if (request != NULL)
        grpc_byte_buffer_destroy(request); /* gRPC owns its slices now */
}

void parley_call_start(struct parley_channel *channel, struct parley_call *call,
                       const struct call_start *how)
{
    const gpr_timespec now = gpr_now(GPR_CLOCK_MONOTONIC);

    call->channel = channel;
    call->how = *how;
    call->deadline = how->deadline_ms == 0
                         ? gpr_inf_future(GPR_CLOCK_MONOTONIC)
                         : gpr_time_add(now, gpr_time_from_millis(how->deadline_ms, GPR_TIMESPAN));
    if (!how->is_bidi)
        call->request = how->request != NULL ? call_encode(how->request)
                                             : grpc_slice_from_copied_buffer(how->bytes, how->len);
    (void)atomic_fetch_add_explicit(&call->n_refs, 1, memory_order_relaxed); /* we hold one */
    (void)pthread_mutex_lock(&channel->lock);
    list_push(&channel->live, &call->link);
    (void)pthread_mutex_unlock(&channel->lock);
    call_begin(call);
    if (!how->is_repeatable) { /* the caller's reference keeps the call */
        grpc_slice_unref(call->request);
        call->request = grpc_empty_slice();
    }
}

static void read_next(struct parley_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    op.data.recv_message.recv_message = &call->in;
    (void)pthread_mutex_lock(&call->lock);
    call->n_out++;
    (void)pthread_mutex_unlock(&call->lock);
    call_start_ops(call->core, &call->read, &op, 1);
}

/* --- a stream both ways --- */

struct outgoing {
    struct link link;
    grpc_slice slice;
};

static void drop_outgoing(struct parley_call *call)
{
    struct link *l;

    while ((l = list_pop(&call->outgoing)) != NULL) {
        struct outgoing *o = container_of(l, struct outgoing, link);

        grpc_slice_unref(o->slice);
        free(o);
    }
}

/* With the lock: sends the next outgoing message, or half-closes. */
static void write_next(struct parley_call *call)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    grpc_byte_buffer *message = NULL;
    struct link *l;

    if (call->is_writing || call->is_over || call->is_half_closed)
        return;
    l = list_pop(&call->outgoing);
    if (l != NULL) {
        struct outgoing *o = container_of(l, struct outgoing, link);

        message = grpc_raw_byte_buffer_create(&o->slice, 1);
        op.data.send_message.send_message = message;
        grpc_slice_unref(o->slice);
        free(o);
    } else if (call->wants_half_close) {
        call->is_half_closed = true;
        op.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    } else {
        return;
    }
    call->is_writing = true;
    call->n_out++;
    call_start_ops(call->core, &call->write, &op, 1);
    if (message != NULL)
        grpc_byte_buffer_destroy(message); /* gRPC owns its slices now */
}

bool parley_call_send(struct parley_call *call, const ProtobufCMessage *message)
{
    struct outgoing *o = try_alloc(1, sizeof(*o));
    bool is_taken;

    if (o == NULL)
        return false;
    o->slice = call_encode(message);
    (void)pthread_mutex_lock(&call->lock);
    is_taken = !call->is_over && !call->wants_half_close;
    if (is_taken) {
        list_push(&call->outgoing, &o->link);
        write_next(call);
    }
    (void)pthread_mutex_unlock(&call->lock);
    if (!is_taken) {
        grpc_slice_unref(o->slice);
        free(o);
    }
    return is_taken;
}

void parley_call_half_close(struct parley_call *call)
{
    (void)pthread_mutex_lock(&call->lock);
    call->wants_half_close = true;
    write_next(call);
    (void)pthread_mutex_unlock(&call->lock);
}

/* With the lock. */
static void call_written(struct parley_call *call, bool ok)
{
    call->is_writing = false;
    if (!ok) {
        call->is_over = true;
        drop_outgoing(call);
    }
    write_next(call);
}

/* Passes the message to the kind. False: read no further message. */
static bool take_message(struct parley_call *call)
{
    const grpc_slice_buffer *slices = &call->in->data.raw.slice_buffer;
    grpc_byte_buffer_reader reader;
    grpc_slice whole = grpc_empty_slice();
    enum status rc;

    if (slices->count == 1) { /* the usual case: no copy */
        whole = grpc_slice_ref(slices->slices[0]);
    } else if (grpc_byte_buffer_reader_init(&reader, call->in)) {
        whole = grpc_byte_buffer_reader_readall(&reader);
        grpc_byte_buffer_reader_destroy(&reader);
    }
    grpc_byte_buffer_destroy(call->in);
    call->in = NULL;
    channel_is_reached(call->channel);
    rc = call->kind->message(call, GRPC_SLICE_START_PTR(whole), GRPC_SLICE_LENGTH(whole),
                             &call->failure);
    grpc_slice_unref(whole);
    if (rc != STATUS_OK)
        parley_call_cancel(call);
    return rc == STATUS_OK && call->kind->is_stream;
}

static void call_end(struct parley_call *call, const struct parley_error *err)
{
    struct parley_channel *channel = call->channel;

    call->kind->end(call, err);
    (void)pthread_mutex_lock(&call->lock);
    if (call->core != NULL)
        grpc_call_unref(call->core);
    call->core = NULL;
    (void)pthread_mutex_unlock(&call->lock);
    (void)pthread_mutex_lock(&channel->lock);
    list_remove(&call->link);
    if (list_is_empty(&channel->live))
        (void)pthread_cond_signal(&channel->is_empty);
    (void)pthread_mutex_unlock(&channel->lock);
    parley_call_unref(call);
}

/* An attempt has ended: so does the call, unless there is another one. */
static void call_attempt_end(struct parley_call *call)
{
    struct parley_error err = {0};

    if (call->failure.status != STATUS_OK)
        outcome_of_failure(&err, &call->failure);
    else
        outcome_of_call(&err, call);
    grpc_slice_unref(call->details);
    call->details = grpc_empty_slice();
    if (!call->how.is_repeatable || err.status == PARLEY_OK || !call_repeats(call, &err))
        call_end(call, &err);
}

static void call_pause_over(struct parley_call *call)
{
    const struct parley_error err = {.status = PARLEY_CANCELLED, .text = "cancelled"};

    if (call_pause_ended(call))
        call_begin(call);
    else
        call_end(call, &err);
}

void parley_call_op_back(struct call_op *op, bool ok)
{
    struct parley_call *call;
    bool is_last;

    assert(atomic_load_explicit(&op->is_out, memory_order_acquire));
    atomic_store_explicit(&op->is_out, false, memory_order_relaxed);
    call = op->call;
    if (op == &call->pause) {
        call_pause_over(call);
        return;
    }
    if (op == &call->read && call->in != NULL && take_message(call))
        read_next(call);
    (void)pthread_mutex_lock(&call->lock);
    call->n_out--;
    if (op == &call->write)
        call_written(call, ok);
    else if (op == &call->finish)
        call->is_over = true;
    is_last = call->n_out == 0;
    if (is_last) {
        call->is_over = true;
        drop_outgoing(call);
    }
    (void)pthread_mutex_unlock(&call->lock);
    if (is_last)
        call_attempt_end(call);
}
