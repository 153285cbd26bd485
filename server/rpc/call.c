/* The happy path: a call waits for a peer (rpc_call_request_more). gRPC delivers the peer's
 * request, which is decoded into the call's arena and passed to the method's start. The handler
 * writes and finishes. Operations within one callback are combined: headers go with the first
 * message, the status with the last one. When the status is sent and no operation is in flight, the
 * call is recycled.
 *
 * Every call needs OP_CLOSE, which watches for the peer's disconnect, and would cost a trip through
 * the queue's thread. If the call ends before it is UNWATCHED_MS old, OP_CLOSE goes with the status
 * at no cost; after that age it is started alone. Bidi calls are watched at once.
 *
 * gRPC completes most of our writes inside grpc_call_start_batch: a message that may be held back
 * is done when it is buffered. Such an event would go to the queue's thread and return through the
 * mailbox; gRPC's thread-local cache returns it at once instead (start_ops).
 *
 * If a read begins while the window is short by even a byte, gRPC sends the peer a window update in
 * its own packet, which wakes the peer for nothing; behind a write the update goes with the write.
 * So if a stream's client waits for each answer, the stream is read behind the answer
 * (call_read_behind). If the next message is there already when it is read, the client does not
 * wait, and the stream is read at once.
 *
 * A call that the daemon's end cuts gets a status like any other (rpc_call_cut): grpc_call_cancel
 * would send one without trailers.
 *
 * Failure: if the peer disconnects or cancels, or its deadline passes, OP_CLOSE completes with
 * was_cancelled set, and all other operations complete without ok. The handler is notified once, at
 * OP_CLOSE, and the call is freed when the last operation is back. */
#include "server/rpc/call_parts.h"

#include <assert.h>
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "proto/codec.h"
#include "server/access/pass.h"
#include "server/call/transport.h"
#include "server/rpc/failure.h"

enum {
    MAX_SPARE = 1024,
    /* Bound of a decoded message beyond its bytes on the wire: an empty message in a list is 2
     * bytes there and a struct here. */
    DECODED_MIN_BYTES = 64 << 10,
    DECODED_TIMES = 16,
    /* The clock of a client may cancel a call at its deadline a little before ours would. */
    DEADLINE_SLACK_US = 50000,
    /* After this number of reads in a row that had to wait, the client is taken to wait for
     * answers. */
    WAITS_AFTER = 4,
};

enum call_state {
    CALL_WAITING, /* for a peer */
    CALL_OPEN,
    CALL_WRITING, /* a message is in flight */
    CALL_ENDING,  /* the status is in flight, or sent */
    CALL_CLOSED,  /* the handler was notified; operations may be in flight */
};

static const unsigned may_become[] = {
    [CALL_WAITING] = 1u << CALL_OPEN,
    [CALL_OPEN] = 1u << CALL_WRITING | 1u << CALL_ENDING | 1u << CALL_CLOSED,
    [CALL_WRITING] = 1u << CALL_OPEN | 1u << CALL_CLOSED,
    [CALL_ENDING] = 1u << CALL_CLOSED,
    [CALL_CLOSED] = 0,
};

struct rpc_call {
    struct call base;
    struct link link;      /* queue->live or queue->spare */
    struct link ready;     /* queue->ready */
    struct link unwatched; /* queue->unwatched */
    struct link delayed;   /* queue->delayed: reads behind a write */
    struct rpc_queue *queue;
    struct rpc_method *method;
    grpc_call *core;
    struct rpc_op ops[N_CALL_OPS];
    uint8_t n_under_way;
    enum call_state state;
    bool is_starting;       /* in method's start: writes are sent when it returns */
    bool has_sent_headers;  /* with the first message or the status */
    bool has_close;         /* OP_CLOSE's operation has been started */
    bool is_close_in_last;  /* in one batch with the status */
    bool is_finishing;      /* call_finish was called, by the handler or here */
    bool is_finished_by_us; /* unknown to the handler, whose own end is dropped */
    bool is_cut;            /* of those, by rpc_call_cut */
    bool is_ending;         /* counted in the queue's n_ending */
    bool out_may_wait;
    bool is_write_ready_due; /* on_write_ready must be called */
    bool is_broken;          /* a write failed: OP_CLOSE will give the reason */
    bool is_counted;         /* among its principal's calls in flight */
    bool is_reading;
    bool is_delayed;         /* is_reading, behind the next write */
    uint8_t n_in_turn;       /* counts towards WAITS_AFTER */
    int was_cancelled;       /* of OP_CLOSE */
    grpc_byte_buffer *out;   /* a held-back message, or NULL */
    struct failure *failure; /* NULL: OK */
    grpc_byte_buffer *in;
    struct arena in_arena; /* of one message of a client's stream */
    grpc_metadata_array headers;
    grpc_call_details details; /* path and deadline of calls to unknown methods */
    gpr_timespec deadline;
    const struct access_key *key; /* NULL until the call is admitted */
};

struct rpc_call *rpc_call_from_live(struct link *link)
{
    return container_of(link, struct rpc_call, link);
}

struct rpc_call *rpc_call_from_ready(struct link *link)
{
    return container_of(link, struct rpc_call, ready);
}

static void rpc_call_move(struct rpc_call *call, enum call_state to)
{
    assert(may_become[call->state] & 1u << to);
    log_debug("call", "method=%s from=%d to=%d",
              call->method->row != NULL ? call->method->row->path : "unknown", (int)call->state,
              (int)to);
    call->state = to;
}

static struct rpc_call *rpc_call_of(struct call *base)
{
    return container_of(base, struct rpc_call, base);
}

static void make_ready(struct rpc_call *call)
{
    if (!link_is_on(&call->ready))
        list_push(&call->queue->ready, &call->ready);
}

static void rpc_call_written(struct rpc_call *call, bool ok);

/* Handles an event that completed at once. */
static void cache_close(struct rpc_queue *q)
{
    struct rpc_op *op = rpc_queue_cache_close(q);

    if (op == NULL)
        return;
    if (op->kind == OP_READ)
        op->call->n_in_turn /= 2; /* it was there already: sent ahead, or read late */
    /* A completed write only changes the call's state: no handler is called. */
    if (op->kind == OP_WRITE && op->call->state == CALL_WRITING) {
        op->call->n_under_way--;
        rpc_call_written(op->call, op->ok);
    } else {
        list_push(&q->back, &op->link);
    }
}

static void rpc_call_start_ops(struct rpc_call *call, enum op_kind kind, const grpc_op *ops,
                               size_t n)
{
    grpc_call_error rc;

    call->n_under_way++;
    rpc_op_give(&call->ops[kind]);
    rpc_queue_cache_open(call->queue);
    rc = grpc_call_start_batch(call->core, ops, n, &call->ops[kind], NULL);
    assert(rc == GRPC_CALL_OK);
    cache_close(call->queue);
}

static void read_message(struct rpc_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    op.data.recv_message.recv_message = &call->in;
    rpc_call_start_ops(call, OP_READ, &op, 1);
}

/* Begins a delayed read, if the call still wants it. */
static void read_now(struct rpc_call *call)
{
    if (link_is_on(&call->delayed))
        list_remove(&call->delayed);
    call->is_delayed = false;
    if (call->state != CALL_CLOSED && !call->is_finishing)
        read_message(call);
}

static void drop_out(struct rpc_call *call)
{
    if (call->out != NULL)
        grpc_byte_buffer_destroy(call->out);
    call->out = NULL;
}

/* Sends the held-back message and, if the call is finishing, the status. */
static void rpc_call_flush(struct rpc_call *call)
{
    static char nothing[1];
    grpc_op ops[4] = {0}, *op = ops;
    bool is_last = call->is_finishing;
    /* Headers must be sent to complete, and nothing else would send them. */
    bool may_wait = call->out_may_wait && call->has_sent_headers && !is_last;

    assert(call->state == CALL_OPEN && (call->out != NULL || is_last));
    rpc_call_move(call, is_last ? CALL_ENDING : CALL_WRITING);
    if (!call->has_sent_headers) {
        call->has_sent_headers = true;
        op->op = GRPC_OP_SEND_INITIAL_METADATA;
        op++;
    }
    if (call->out != NULL) {
        op->op = GRPC_OP_SEND_MESSAGE;
        op->flags = may_wait ? GRPC_WRITE_BUFFER_HINT : 0;
        op->data.send_message.send_message = call->out;
        op++;
    }
    if (is_last) {
        struct failure *f = call->failure;
        grpc_slice ok = grpc_slice_from_static_buffer(nothing, 0);

        op->op = GRPC_OP_SEND_STATUS_FROM_SERVER;
        op->data.send_status_from_server.status =
            f == NULL ? GRPC_STATUS_OK : (grpc_status_code)f->status;
        op->data.send_status_from_server.status_details = f == NULL ? &ok : &f->text;
        op->data.send_status_from_server.trailing_metadata_count = f == NULL ? 0 : f->n_trailers;
        op->data.send_status_from_server.trailing_metadata = f == NULL ? NULL : f->trailers;
        op++;
        if (!call->has_close) {
            call->has_close = call->is_close_in_last = true;
            if (link_is_on(&call->unwatched))
                list_remove(&call->unwatched);
            op->op = GRPC_OP_RECV_CLOSE_ON_SERVER;
            op->data.recv_close_on_server.cancelled = &call->was_cancelled;
            op++;
        }
    }
    rpc_call_start_ops(call, OP_WRITE, ops, (size_t)(op - ops));
    drop_out(call); /* gRPC holds its slices now */
    if (call->is_delayed && !may_wait)
        read_now(call);
}

static void watch_close(struct rpc_call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};

    call->has_close = true;
    op.data.recv_close_on_server.cancelled = &call->was_cancelled;
    rpc_call_start_ops(call, OP_CLOSE, &op, 1);
}

static void rpc_call_written(struct rpc_call *call, bool ok)
{
    rpc_call_move(call, CALL_OPEN);
    if (!ok)
        call->is_broken = true;
    if (call->is_finishing && !call->is_starting)
        rpc_call_flush(call);
    else if (call->is_write_ready_due)
        make_ready(call);
}

static struct rpc_call *rpc_call_make(struct rpc_queue *q)
{
    struct link *link = list_pop(&q->spare);
    struct rpc_call *call;

    if (link != NULL) {
        q->n_spare--;
        return rpc_call_from_live(link);
    }
    call = xalloc(sizeof(*call));
    call->queue = q;
    for (size_t i = 0; i < N_CALL_OPS; i++)
        call->ops[i] = (struct rpc_op){.call = call, .kind = (enum op_kind)i};
    return call;
}

void rpc_call_free_spare(struct link *link)
{
    free(rpc_call_from_live(link));
}

/* Frees everything of one RPC; keeps the call's memory for another one. */
static void rpc_call_recycle(struct rpc_call *call)
{
    struct rpc_queue *q = call->queue;

    assert(call->n_under_way == 0);
    if (call->core != NULL)
        grpc_call_unref(call->core);
    if (call->in != NULL)
        grpc_byte_buffer_destroy(call->in);
    grpc_metadata_array_destroy(&call->headers);
    if (call->method->row == NULL)
        grpc_call_details_destroy(&call->details);
    drop_out(call);
    failure_free(call->failure);
    arena_deinit(&call->base.arena);
    arena_deinit(&call->in_arena);
    if (link_is_on(&call->ready))
        list_remove(&call->ready);
    if (link_is_on(&call->unwatched))
        list_remove(&call->unwatched);
    if (link_is_on(&call->delayed))
        list_remove(&call->delayed);
    if (link_is_on(&call->link)) {
        list_remove(&call->link);
        q->n_live--;
        q->stats->n_calls--;
        q->n_ending -= call->is_ending;
    }
    if (call->is_counted)
        shared_limit_give(&q->calls, access_key_principal(call->key)->id, 1);
    if (q->n_spare == MAX_SPARE) {
        free(call);
    } else {
        memset((char *)call + offsetof(struct rpc_call, n_under_way), 0,
               sizeof(*call) - offsetof(struct rpc_call, n_under_way));
        call->core = NULL;
        list_push_front(&q->spare, &call->link);
        q->n_spare++;
    }
    rpc_queue_maybe_stopped(q);
}

static void request(struct rpc_queue *q, struct rpc_method *method)
{
    struct rpc_call *call = rpc_call_make(q);
    grpc_call_error rc;

    call->method = method;
    call->state = CALL_WAITING;
    call->n_under_way = 1;
    grpc_metadata_array_init(&call->headers);
    q->n_requested++;
    method->n_waiting++;
    rpc_op_give(&call->ops[OP_REQUEST]);
    rpc_queue_cache_open(q);
    if (method->row == NULL) {
        grpc_call_details_init(&call->details);
        rc = grpc_server_request_call(q->server, &call->core, &call->details, &call->headers,
                                      q->events, q->events, &call->ops[OP_REQUEST]);
    } else {
        rc = grpc_server_request_registered_call(
            q->server, method->registered, &call->core, &call->deadline, &call->headers,
            call_method_is_client_stream(method->row) ? NULL : &call->in, q->events, q->events,
            &call->ops[OP_REQUEST]);
    }
    assert(rc == GRPC_CALL_OK);
    cache_close(q);
}

void rpc_call_request_more(struct rpc_queue *q, struct rpc_method *method)
{
    while (method->n_waiting < method->n_wanted)
        request(q, method);
}

/* A peer took one of the method's calls. */
static void request_again(struct rpc_queue *q, struct rpc_method *method)
{
    if (method->n_waiting == 0 && method->n_wanted < CALLS_WAITING_MAX)
        method->n_wanted *= 2;
    rpc_call_request_more(q, method);
}

/* Decodes call->in and frees it. */
static enum status rpc_call_decode(ProtobufCMessage **out, struct rpc_call *call,
                                   struct arena *arena, struct error *err)
{
    const grpc_slice_buffer *slices = &call->in->data.raw.slice_buffer;
    const struct call_method *row = call->method->row;
    grpc_byte_buffer_reader reader;
    grpc_slice whole;
    enum status rc;

    if (slices->count == 1) { /* the common case: no copy */
        rc = codec_decode(out, row->request, GRPC_SLICE_START_PTR(slices->slices[0]),
                          GRPC_SLICE_LENGTH(slices->slices[0]), CALL_MAX_FIELDS, arena, err);
    } else if (grpc_byte_buffer_reader_init(&reader, call->in)) {
        whole = grpc_byte_buffer_reader_readall(&reader);
        grpc_byte_buffer_reader_destroy(&reader);
        rc = codec_decode(out, row->request, GRPC_SLICE_START_PTR(whole), GRPC_SLICE_LENGTH(whole),
                          CALL_MAX_FIELDS, arena, err);
        grpc_slice_unref(whole);
    } else {
        rc = error_set(err, STATUS_INTERNAL, "cannot read the request's bytes");
    }
    grpc_byte_buffer_destroy(call->in);
    call->in = NULL;
    return rc;
}

/* The value of a header, [*ret_len]; NULL if absent. */
static const char *rpc_call_find_header(const struct rpc_call *call, const char *key,
                                        size_t *ret_len)
{
    for (size_t i = 0; i < call->headers.count; i++) {
        const grpc_metadata *header = &call->headers.metadata[i];

        if (grpc_slice_str_cmp(header->key, key) == 0) {
            *ret_len = GRPC_SLICE_LENGTH(header->value);
            return (const char *)GRPC_SLICE_START_PTR(header->value);
        }
    }
    return NULL;
}

static enum status rpc_call_authenticate(struct rpc_call *call, struct error *err)
{
    const struct rpc_queue *q = call->queue;
    struct access_proof proof = {0};
    const char *pass = NULL;
    size_t len;

    if (q->admit_passed != NULL)
        pass = rpc_call_find_header(call, PASS_HEADER, &len);
    if (pass != NULL) {
        if (q->admit_passed(q->admit_arg, pass, len, call->method->row->access, &call->key, err) !=
            STATUS_OK)
            return err->status;
        call->base.principal = access_key_principal(call->key);
        call->base.is_passed_on = true;
        return STATUS_OK;
    }
    if (q->access != NULL) {
        proof.authorization = rpc_call_find_header(call, "authorization", &proof.authorization_len);
        proof.api_key = rpc_call_find_header(call, "x-api-key", &proof.api_key_len);
    }
    if (access_admit(&call->key, q->access, call->method->row->access, &proof, err) != STATUS_OK)
        return err->status;
    call->base.principal = access_key_principal(call->key);
    return STATUS_OK;
}

/* With keys, no principal has more than half of the calls in flight. */
static enum status rpc_call_count(struct rpc_call *call, struct error *err)
{
    struct rpc_queue *q = call->queue;

    if (q->access == NULL || call->method->row->access == ACCESS_OPEN)
        return STATUS_OK;
    if (shared_limit_take(&q->calls, access_key_principal(call->key)->id, 1, err) != STATUS_OK) {
        err->retry_after_ms = 100;
        return err->status;
    }
    call->is_counted = true;
    return STATUS_OK;
}

static enum status rpc_call_admit(struct rpc_call *call, struct error *err)
{
    const struct call_method *row = call->method->row;
    struct rpc_queue *q = call->queue;
    ProtobufCMessage *request;
    enum status rc;

    if (q->is_refusing)
        return error_draining(err);
    if (q->n_live > q->max_calls) {
        (void)error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                            "%zu calls are in flight already", q->max_calls);
        err->retry_after_ms = 100;
        return err->status;
    }
    if (row == NULL) {
        char path[120];

        (void)snprintf(path, sizeof(path), "%.*s", (int)GRPC_SLICE_LENGTH(call->details.method),
                       (const char *)GRPC_SLICE_START_PTR(call->details.method));
        return error_because(err, STATUS_UNIMPLEMENTED, REASON_METHOD_NOT_FOUND, NULL,
                             "there is no method %s", path);
    }
    if (rpc_call_authenticate(call, err) != STATUS_OK || rpc_call_count(call, err) != STATUS_OK)
        return err->status;
    if (call_method_is_client_stream(row))
        return STATUS_OK;
    if (call->in == NULL)
        return error_set(err, STATUS_INVALID, "the call has no request message");
    rc = rpc_call_decode(&request, call, &call->base.arena, err);
    if (rc == STATUS_OK)
        call->base.request = request;
    return rc;
}

static size_t arena_limit(const struct rpc_queue *q)
{
    return DECODED_MIN_BYTES + DECODED_TIMES * q->max_message_bytes;
}

static const struct call_transport rpc_transport;

static void requested(struct rpc_call *call, bool ok)
{
    struct rpc_queue *q = call->queue;
    struct error err = {0};
    gpr_timespec left;

    q->n_requested--;
    call->method->n_waiting--;
    if (!ok) {
        rpc_call_recycle(call); /* the server shuts down without a peer */
        return;
    }
    if (!q->is_stopping)
        request_again(q, call->method);
    list_push(&q->live, &call->link);
    q->n_live++;
    q->stats->n_calls++;
    q->stats->n_started++;
    rpc_call_move(call, CALL_OPEN);
    call->base = (struct call){.transport = &rpc_transport,
                               .method = call->method->row,
                               .owner = &q->owner,
                               .server = q->carried,
                               .health = q->health,
                               .n_unawaited = &q->n_unawaited};
    arena_init(&call->base.arena, arena_limit(q));
    if (call->method->row == NULL)
        call->deadline = call->details.deadline;
    if (gpr_time_cmp(call->deadline, gpr_inf_future(call->deadline.clock_type)) != 0) {
        left = gpr_time_sub(call->deadline, gpr_now(call->deadline.clock_type));
        call->base.deadline_us = env_now_us(q->env);
        if (gpr_time_cmp(left, gpr_time_0(GPR_TIMESPAN)) > 0)
            call->base.deadline_us +=
                (uint64_t)left.tv_sec * 1000000 + (uint64_t)left.tv_nsec / 1000;
    }
    call->is_starting = true;
    if (rpc_call_admit(call, &err) != STATUS_OK)
        call_finish(&call->base, &err);
    else
        call->base.method->start(&call->base);
    if (q->is_draining)
        rpc_call_drain(call);
    call->is_starting = false;
    if (call->state == CALL_OPEN && (call->out != NULL || call->is_finishing))
        rpc_call_flush(call);
    if (call->has_close)
        return;
    if (call->method->row != NULL && call_method_is_client_stream(call->method->row))
        watch_close(call);
    else
        rpc_queue_await_tick(q, &q->unwatched, &call->unwatched);
}

static void maybe_recycle(struct rpc_call *call)
{
    if (call->state == CALL_CLOSED && call->n_under_way == 0)
        rpc_call_recycle(call);
}

static void rpc_call_closed(struct rpc_call *call)
{
    enum status why = STATUS_OK;

    if (call->was_cancelled || call->is_cut) {
        uint64_t now_us = env_now_us(call->queue->env);
        bool is_late =
            call->base.deadline_us > 0 && now_us + DEADLINE_SLACK_US >= call->base.deadline_us;

        why = is_late ? STATUS_DEADLINE : STATUS_CANCELLED;
    }
    if (call->was_cancelled && call->failure == NULL)
        call->queue->stats->n_failed++;
    rpc_call_move(call, CALL_CLOSED);
    call_tell_close(&call->base, why);
}

static void bytes_read(struct rpc_call *call)
{
    struct call_bytes *bytes = NULL;
    struct error err;

    if (call->in != NULL) {
        bytes = call_bytes_make(call->in);
        if (bytes == NULL) {
            (void)error_no_memory(&err, call->in->data.raw.slice_buffer.length, "a message");
            call_finish(&call->base, &err);
            call->is_finished_by_us = true;
            return;
        }
        call->in = NULL; /* the handler owns it */
    }
    call->base.handler->bytes(&call->base, call->base.handler_state, bytes);
}

static void message_read(struct rpc_call *call)
{
    ProtobufCMessage *message = NULL;
    struct error err = {0};

    call->is_reading = false;
    if (call->state == CALL_CLOSED || call->is_finishing)
        return;
    if (call->base.handler != NULL && call->base.handler->bytes != NULL) {
        bytes_read(call);
        return;
    }
    arena_init(&call->in_arena, arena_limit(call->queue));
    if (call->in != NULL && rpc_call_decode(&message, call, &call->in_arena, &err) != STATUS_OK) {
        call_finish(&call->base, &err);
        call->is_finished_by_us = true;
    } else if (call->base.handler != NULL && call->base.handler->message != NULL) {
        call->base.handler->message(&call->base, call->base.handler_state, message,
                                    &call->in_arena);
    }
    arena_deinit(&call->in_arena);
}

void rpc_call_op_back(struct rpc_op *op)
{
    struct rpc_call *call = op->call;

    call->n_under_way--;
    switch (op->kind) {
    case OP_REQUEST:
        requested(call, op->ok);
        return;
    case OP_READ:
        message_read(call);
        break;
    case OP_WRITE:
        if (call->state == CALL_WRITING)
            rpc_call_written(call, op->ok);
        else if (call->is_close_in_last)
            rpc_call_closed(call);
        break;
    case OP_CLOSE:
        rpc_call_closed(call);
        break;
    default:
        assert(false);
    }
    maybe_recycle(call);
}

static bool rpc_call_is_write_ready(const struct call *base)
{
    const struct rpc_call *call = container_of(base, const struct rpc_call, base);

    return call->state == CALL_OPEN && call->out == NULL && !call->is_finishing && !call->is_broken;
}

void rpc_call_attend(struct rpc_call *call)
{
    if (call->state != CALL_OPEN)
        return;
    if (call->out != NULL)
        rpc_call_flush(call);
    if (call->is_write_ready_due && rpc_call_is_write_ready(&call->base)) {
        call->is_write_ready_due = false;
        call_tell_write_ready(&call->base);
    }
}

void rpc_call_drain(struct rpc_call *call)
{
    if (!call->is_finishing)
        call_tell_drain(&call->base);
}

void rpc_call_cut(struct rpc_call *call, const struct error *err)
{
    if (call->state == CALL_CLOSED || call->is_finishing)
        return;
    call_finish(&call->base, err);
    call->is_finished_by_us = call->is_cut = true;
}

void rpc_call_end(struct rpc_call *call, const struct error *err)
{
    call->queue->n_ending += !call->is_ending;
    call->is_ending = true;
    rpc_call_cut(call, err);
}

void rpc_call_cancel(struct rpc_call *call)
{
    (void)grpc_call_cancel_with_status(call->core, GRPC_STATUS_UNAVAILABLE,
                                       "the server is shutting down", NULL);
}

void rpc_call_check_key(struct rpc_call *call)
{
    struct error err;

    if (call->key == NULL || !access_key_is_revoked(call->queue->access, call->key))
        return;
    (void)error_because(&err, STATUS_UNAUTHENTICATED, REASON_KEY_INVALID, NULL,
                        "the key is not valid any more");
    if (call->state == CALL_WRITING) /* its peer may never read what is in flight */
        (void)grpc_call_cancel_with_status(call->core, GRPC_STATUS_UNAUTHENTICATED, err.text, NULL);
    else
        rpc_call_cut(call, &err);
}

/* --- what a handler does with its call --- */

static const char *rpc_call_header(struct call *base, const char *key)
{
    size_t len;
    const char *value = rpc_call_find_header(rpc_call_of(base), key, &len);

    return value == NULL ? NULL : arena_strndup(&base->arena, value, len);
}

static void hold(struct rpc_call *call, const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(codec_size(message));

    (void)codec_encode(message, GRPC_SLICE_START_PTR(slice));
    call->out = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
}

/* Schedules the held-back message. */
static void write_held(struct rpc_call *call, bool more)
{
    call->out_may_wait = more;
    call->is_write_ready_due = true;
    if (more)
        rpc_call_flush(call);
    else
        make_ready(call); /* a status that follows in this iteration goes with it */
}

static void rpc_call_write(struct call *base, const ProtobufCMessage *message, bool more)
{
    struct rpc_call *call = rpc_call_of(base);

    hold(call, message);
    write_held(call, more);
}

static void rpc_call_write_pieces(struct call *base, const struct call_piece *pieces,
                                  size_t n_pieces, bool more)
{
    struct rpc_call *call = rpc_call_of(base);

    call->out = call_pieces_join(pieces, n_pieces);
    write_held(call, more);
}

static void rpc_call_notify(struct call *base)
{
    struct rpc_call *call = rpc_call_of(base);

    call->is_write_ready_due = true;
    if (call->state == CALL_OPEN)
        make_ready(call);
}

static void rpc_call_read(struct call *base, bool behind)
{
    struct rpc_call *call = rpc_call_of(base);

    assert(!call->is_reading && call->state != CALL_CLOSED);
    call->is_reading = true;
    if (!behind)
        call->n_in_turn = 0;
    if (!behind || call->n_in_turn < WAITS_AFTER) {
        call->n_in_turn += behind;
        read_message(call);
        return;
    }
    call->is_delayed = true;
    rpc_queue_await_tick(call->queue, &call->queue->delayed, &call->delayed);
}

void rpc_call_tick(struct rpc_queue *q)
{
    struct link *link;

    while ((link = list_pop(&q->unwatched_old)) != NULL)
        watch_close(container_of(link, struct rpc_call, unwatched));
    while ((link = list_pop(&q->delayed_old)) != NULL)
        read_now(container_of(link, struct rpc_call, delayed));
}

/* Only what is refused before anything was done: else the time is not a refusal's. */
static void rpc_call_count_refusal(struct rpc_call *call)
{
    struct rpc_queue *q = call->queue;
    uint64_t came_us = call->ops[OP_REQUEST].came_us, now_us, took_us;

    if (came_us == 0 || !call->is_starting)
        return;
    now_us = env_now_us(q->env);
    took_us = now_us > came_us ? now_us - came_us : 0;
    q->stats->n_refused++;
    q->stats->refused_us += took_us;
    q->stats->n_refused_in_1ms += took_us <= 1000;
    q->stats->n_refused_in_10ms += took_us <= 10000;
}

static void rpc_call_finish(struct call *base, const struct error *err,
                            const ProtobufCMessage *last)
{
    struct rpc_call *call = rpc_call_of(base);

    assert(call->state != CALL_CLOSED);
    if (call->is_finished_by_us)
        return;
    assert(!call->is_finishing);
    if (last != NULL) {
        assert(call_is_write_ready(base));
        hold(call, last);
    }
    call->is_finishing = true;
    if (err != NULL && err->status != STATUS_OK) {
        call->failure = failure_make(err);
        call->queue->stats->n_failed++;
        if (err->status == STATUS_EXHAUSTED)
            rpc_call_count_refusal(call);
    }
    if (call->state == CALL_OPEN && !call->is_starting)
        rpc_call_flush(call);
}

static const struct call_transport rpc_transport = {
    .header = rpc_call_header,
    .is_write_ready = rpc_call_is_write_ready,
    .write = rpc_call_write,
    .write_pieces = rpc_call_write_pieces,
    .notify = rpc_call_notify,
    .read = rpc_call_read,
    .finish = rpc_call_finish,
};
