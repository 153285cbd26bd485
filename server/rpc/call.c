/* The happy path: a call waits for a peer (call_request_more). gRPC delivers the peer's request,
 * which is decoded into the call's arena and passed to the method's start. The handler writes and
 * finishes. Operations within one callback are combined: headers go with the first message, the
 * status with the last one. When the status is sent and no operation is in flight, the call is
 * recycled.
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
 * A call that the daemon's end cuts gets a status like any other (call_cut): grpc_call_cancel would
 * send one without trailers.
 *
 * Failure: if the peer disconnects or cancels, or its deadline passes, OP_CLOSE completes with
 * was_cancelled set, and all other operations complete without ok. The handler is notified once, at
 * OP_CLOSE, and the call is freed when the last operation is back. */
#include "server/call/call.h"

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
#include "server/rpc/call_parts.h"
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

struct call {
    struct link link;      /* queue->live or queue->spare */
    struct link ready;     /* queue->ready */
    struct link unwatched; /* queue->unwatched */
    struct link delayed;   /* queue->delayed: reads behind a write */
    struct rpc_queue *queue;
    struct method *method;
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
    bool is_cut;            /* of those, by call_cut */
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
    const struct call_handler *handler;
    void *handler_state;
    grpc_byte_buffer *in;
    struct arena arena;
    struct arena in_arena; /* of one message of a client's stream */
    grpc_metadata_array headers;
    grpc_call_details details; /* path and deadline of calls to unknown methods */
    gpr_timespec deadline;
    uint64_t deadline_us;
    const struct access_key *key; /* NULL until the call is admitted */
};

struct call *call_from_live(struct link *link)
{
    return container_of(link, struct call, link);
}

struct call *call_from_ready(struct link *link)
{
    return container_of(link, struct call, ready);
}

static void call_move(struct call *call, enum call_state to)
{
    assert(may_become[call->state] & 1u << to);
    log_debug("call", "method=%s from=%d to=%d",
              call->method->rpc != NULL ? call->method->rpc->path : "unknown", (int)call->state,
              (int)to);
    call->state = to;
}

static void make_ready(struct call *call)
{
    if (!link_is_on(&call->ready))
        list_push(&call->queue->ready, &call->ready);
}

static void rpc_call_written(struct call *call, bool ok);

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

static void rpc_call_start_ops(struct call *call, enum op_kind kind, const grpc_op *ops, size_t n)
{
    grpc_call_error rc;

    call->n_under_way++;
    rpc_op_give(&call->ops[kind]);
    rpc_queue_cache_open(call->queue);
    rc = grpc_call_start_batch(call->core, ops, n, &call->ops[kind], NULL);
    assert(rc == GRPC_CALL_OK);
    cache_close(call->queue);
}

static void read_message(struct call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    op.data.recv_message.recv_message = &call->in;
    rpc_call_start_ops(call, OP_READ, &op, 1);
}

/* Begins a delayed read, if the call still wants it. */
static void read_now(struct call *call)
{
    if (link_is_on(&call->delayed))
        list_remove(&call->delayed);
    call->is_delayed = false;
    if (call->state != CALL_CLOSED && !call->is_finishing)
        read_message(call);
}

static void drop_out(struct call *call)
{
    if (call->out != NULL)
        grpc_byte_buffer_destroy(call->out);
    call->out = NULL;
}

/* Sends the held-back message and, if the call is finishing, the status. */
static void call_flush(struct call *call)
{
    static char nothing[1];
    grpc_op ops[4] = {0}, *op = ops;
    bool is_last = call->is_finishing;
    /* Headers must be sent to complete, and nothing else would send them. */
    bool may_wait = call->out_may_wait && call->has_sent_headers && !is_last;

    assert(call->state == CALL_OPEN && (call->out != NULL || is_last));
    call_move(call, is_last ? CALL_ENDING : CALL_WRITING);
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

static void watch_close(struct call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};

    call->has_close = true;
    op.data.recv_close_on_server.cancelled = &call->was_cancelled;
    rpc_call_start_ops(call, OP_CLOSE, &op, 1);
}

static void rpc_call_written(struct call *call, bool ok)
{
    call_move(call, CALL_OPEN);
    if (!ok)
        call->is_broken = true;
    if (call->is_finishing && !call->is_starting)
        call_flush(call);
    else if (call->is_write_ready_due)
        make_ready(call);
}

static struct call *call_make(struct rpc_queue *q)
{
    struct link *link = list_pop(&q->spare);
    struct call *call;

    if (link != NULL) {
        q->n_spare--;
        return call_from_live(link);
    }
    call = xalloc(sizeof(*call));
    call->queue = q;
    for (size_t i = 0; i < N_CALL_OPS; i++)
        call->ops[i] = (struct rpc_op){.call = call, .kind = (enum op_kind)i};
    return call;
}

void call_free_spare(struct link *link)
{
    free(call_from_live(link));
}

/* Frees everything of one RPC; keeps the call's memory for another one. */
static void call_recycle(struct call *call)
{
    struct rpc_queue *q = call->queue;

    assert(call->n_under_way == 0);
    if (call->core != NULL)
        grpc_call_unref(call->core);
    if (call->in != NULL)
        grpc_byte_buffer_destroy(call->in);
    grpc_metadata_array_destroy(&call->headers);
    if (call->method->rpc == NULL)
        grpc_call_details_destroy(&call->details);
    drop_out(call);
    failure_free(call->failure);
    arena_deinit(&call->arena);
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
        q->n_ending -= call->is_ending;
    }
    if (call->is_counted)
        shared_limit_give(&q->calls, access_key_principal(call->key)->id, 1);
    if (q->n_spare == MAX_SPARE) {
        free(call);
    } else {
        memset((char *)call + offsetof(struct call, n_under_way), 0,
               sizeof(*call) - offsetof(struct call, n_under_way));
        call->core = NULL;
        list_push_front(&q->spare, &call->link);
        q->n_spare++;
    }
    rpc_queue_maybe_stopped(q);
}

static void request(struct rpc_queue *q, struct method *method)
{
    struct call *call = call_make(q);
    grpc_call_error rc;

    call->method = method;
    call->state = CALL_WAITING;
    call->n_under_way = 1;
    grpc_metadata_array_init(&call->headers);
    q->n_requested++;
    method->n_waiting++;
    rpc_op_give(&call->ops[OP_REQUEST]);
    rpc_queue_cache_open(q);
    if (method->rpc == NULL) {
        grpc_call_details_init(&call->details);
        rc = grpc_server_request_call(q->server, &call->core, &call->details, &call->headers,
                                      q->events, q->events, &call->ops[OP_REQUEST]);
    } else {
        rc = grpc_server_request_registered_call(
            q->server, method->registered, &call->core, &call->deadline, &call->headers,
            rpc_is_client_stream(method->rpc) ? NULL : &call->in, q->events, q->events,
            &call->ops[OP_REQUEST]);
    }
    assert(rc == GRPC_CALL_OK);
    cache_close(q);
}

void call_request_more(struct rpc_queue *q, struct method *method)
{
    while (method->n_waiting < method->n_wanted)
        request(q, method);
}

/* A peer took one of the method's calls. */
static void request_again(struct rpc_queue *q, struct method *method)
{
    if (method->n_waiting == 0 && method->n_wanted < CALLS_WAITING_MAX)
        method->n_wanted *= 2;
    call_request_more(q, method);
}

/* Decodes call->in and frees it. */
static enum status rpc_call_decode(ProtobufCMessage **out, struct call *call, struct arena *arena,
                                   struct error *err)
{
    const grpc_slice_buffer *slices = &call->in->data.raw.slice_buffer;
    const struct rpc *rpc = call->method->rpc;
    grpc_byte_buffer_reader reader;
    grpc_slice whole;
    enum status rc;

    if (slices->count == 1) { /* the common case: no copy */
        rc = codec_decode(out, rpc->request, GRPC_SLICE_START_PTR(slices->slices[0]),
                          GRPC_SLICE_LENGTH(slices->slices[0]), CALL_MAX_FIELDS, arena, err);
    } else if (grpc_byte_buffer_reader_init(&reader, call->in)) {
        whole = grpc_byte_buffer_reader_readall(&reader);
        grpc_byte_buffer_reader_destroy(&reader);
        rc = codec_decode(out, rpc->request, GRPC_SLICE_START_PTR(whole), GRPC_SLICE_LENGTH(whole),
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
static const char *call_find_header(const struct call *call, const char *key, size_t *ret_len)
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

static enum status call_authenticate(struct call *call, struct error *err)
{
    struct access_proof proof = {0};

    if (call->queue->access != NULL) {
        proof.authorization = call_find_header(call, "authorization", &proof.authorization_len);
        proof.api_key = call_find_header(call, "x-api-key", &proof.api_key_len);
    }
    return access_admit(&call->key, call->queue->access, call->method->rpc->access, &proof, err);
}

/* With keys, no principal has more than half of the calls in flight. */
static enum status call_count(struct call *call, struct error *err)
{
    struct rpc_queue *q = call->queue;

    if (q->access == NULL || call->method->rpc->access == ACCESS_OPEN)
        return STATUS_OK;
    if (shared_limit_take(&q->calls, access_key_principal(call->key)->id, 1, err) != STATUS_OK) {
        err->retry_after_ms = 100;
        return err->status;
    }
    call->is_counted = true;
    return STATUS_OK;
}

static enum status call_admit(struct call *call, ProtobufCMessage **ret_request, struct error *err)
{
    const struct rpc *rpc = call->method->rpc;
    struct rpc_queue *q = call->queue;

    if (q->is_refusing)
        return error_draining(err);
    if (q->n_live > q->max_calls) {
        (void)error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                            "%zu calls are in flight already", q->max_calls);
        err->retry_after_ms = 100;
        return err->status;
    }
    if (rpc == NULL) {
        char path[120];

        (void)snprintf(path, sizeof(path), "%.*s", (int)GRPC_SLICE_LENGTH(call->details.method),
                       (const char *)GRPC_SLICE_START_PTR(call->details.method));
        return error_because(err, STATUS_UNIMPLEMENTED, REASON_METHOD_NOT_FOUND, NULL,
                             "there is no method %s", path);
    }
    if (call_authenticate(call, err) != STATUS_OK || call_count(call, err) != STATUS_OK)
        return err->status;
    if (rpc_is_client_stream(rpc))
        return STATUS_OK;
    if (call->in == NULL)
        return error_set(err, STATUS_INVALID, "the call has no request message");
    return rpc_call_decode(ret_request, call, &call->arena, err);
}

static size_t arena_limit(const struct rpc_queue *q)
{
    return DECODED_MIN_BYTES + DECODED_TIMES * q->max_message_bytes;
}

static void requested(struct call *call, bool ok)
{
    struct rpc_queue *q = call->queue;
    ProtobufCMessage *request = NULL;
    struct error err = {0};
    gpr_timespec left;

    q->n_requested--;
    call->method->n_waiting--;
    if (!ok) {
        call_recycle(call); /* the server shuts down without a peer */
        return;
    }
    if (!q->is_stopping)
        request_again(q, call->method);
    list_push(&q->live, &call->link);
    q->n_live++;
    q->n_started++;
    call_move(call, CALL_OPEN);
    arena_init(&call->arena, arena_limit(q));
    if (call->method->rpc == NULL)
        call->deadline = call->details.deadline;
    if (gpr_time_cmp(call->deadline, gpr_inf_future(call->deadline.clock_type)) != 0) {
        left = gpr_time_sub(call->deadline, gpr_now(call->deadline.clock_type));
        call->deadline_us = env_now_us(q->env);
        if (gpr_time_cmp(left, gpr_time_0(GPR_TIMESPAN)) > 0)
            call->deadline_us += (uint64_t)left.tv_sec * 1000000 + (uint64_t)left.tv_nsec / 1000;
    }
    call->is_starting = true;
    if (call_admit(call, &request, &err) != STATUS_OK)
        call_finish(call, &err);
    else
        call->method->rpc->start(call, request, q->carried);
    if (q->is_draining)
        call_drain(call);
    call->is_starting = false;
    if (call->state == CALL_OPEN && (call->out != NULL || call->is_finishing))
        call_flush(call);
    if (call->has_close)
        return;
    if (call->method->rpc != NULL && rpc_is_client_stream(call->method->rpc))
        watch_close(call);
    else
        rpc_queue_await_tick(q, &q->unwatched, &call->unwatched);
}

static void maybe_recycle(struct call *call)
{
    if (call->state == CALL_CLOSED && call->n_under_way == 0)
        call_recycle(call);
}

static void call_closed(struct call *call)
{
    enum status why = STATUS_OK;

    if (call->was_cancelled || call->is_cut) {
        uint64_t now_us = env_now_us(call->queue->env);
        bool is_late = call->deadline_us > 0 && now_us + DEADLINE_SLACK_US >= call->deadline_us;

        why = is_late ? STATUS_DEADLINE : STATUS_CANCELLED;
    }
    if (call->was_cancelled && call->failure == NULL)
        call->queue->n_failed++;
    call_move(call, CALL_CLOSED);
    if (call->handler != NULL) {
        call->queue->n_unawaited -= call->handler->is_unawaited;
        call->handler->on_close(call, call->handler_state, why);
    }
    call->handler = NULL;
}

static void bytes_read(struct call *call)
{
    struct call_bytes *bytes = NULL;
    struct error err;

    if (call->in != NULL) {
        bytes = call_bytes_make(call->in);
        if (bytes == NULL) {
            (void)error_no_memory(&err, call->in->data.raw.slice_buffer.length, "a message");
            call_finish(call, &err);
            call->is_finished_by_us = true;
            return;
        }
        call->in = NULL; /* the handler owns it */
    }
    call->handler->bytes(call, call->handler_state, bytes);
}

static void message_read(struct call *call)
{
    ProtobufCMessage *message = NULL;
    struct error err = {0};

    call->is_reading = false;
    if (call->state == CALL_CLOSED || call->is_finishing)
        return;
    if (call->handler != NULL && call->handler->bytes != NULL) {
        bytes_read(call);
        return;
    }
    arena_init(&call->in_arena, arena_limit(call->queue));
    if (call->in != NULL && rpc_call_decode(&message, call, &call->in_arena, &err) != STATUS_OK) {
        call_finish(call, &err);
        call->is_finished_by_us = true;
    } else if (call->handler != NULL && call->handler->message != NULL) {
        call->handler->message(call, call->handler_state, message, &call->in_arena);
    }
    arena_deinit(&call->in_arena);
}

void call_op_back(struct rpc_op *op)
{
    struct call *call = op->call;

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
            call_closed(call);
        break;
    case OP_CLOSE:
        call_closed(call);
        break;
    default:
        assert(false);
    }
    maybe_recycle(call);
}

void call_attend(struct call *call)
{
    if (call->state != CALL_OPEN)
        return;
    if (call->out != NULL)
        call_flush(call);
    if (call->is_write_ready_due && call_is_write_ready(call)) {
        call->is_write_ready_due = false;
        if (call->handler != NULL && call->handler->on_write_ready != NULL)
            call->handler->on_write_ready(call, call->handler_state);
    }
}

void call_drain(struct call *call)
{
    if (call->handler != NULL && call->handler->drain != NULL && !call->is_finishing)
        call->handler->drain(call, call->handler_state);
}

void call_cut(struct call *call, const struct error *err)
{
    if (call->state == CALL_CLOSED || call->is_finishing)
        return;
    call_finish(call, err);
    call->is_finished_by_us = call->is_cut = true;
}

void call_end(struct call *call, const struct error *err)
{
    call->queue->n_ending += !call->is_ending;
    call->is_ending = true;
    call_cut(call, err);
}

void call_cancel(struct call *call)
{
    (void)grpc_call_cancel_with_status(call->core, GRPC_STATUS_UNAVAILABLE,
                                       "the server is shutting down", NULL);
}

void call_check_key(struct call *call)
{
    struct error err;

    if (call->key == NULL || !access_key_is_revoked(call->queue->access, call->key))
        return;
    (void)error_because(&err, STATUS_UNAUTHENTICATED, REASON_KEY_INVALID, NULL,
                        "the key is not valid any more");
    if (call->state == CALL_WRITING) /* its peer may never read what is in flight */
        (void)grpc_call_cancel_with_status(call->core, GRPC_STATUS_UNAUTHENTICATED, err.text, NULL);
    else
        call_cut(call, &err);
}

struct arena *call_arena(struct call *call)
{
    return &call->arena;
}

uint64_t call_deadline_us(const struct call *call)
{
    return call->deadline_us;
}

const char *call_header(struct call *call, const char *key)
{
    size_t len;
    const char *value = call_find_header(call, key, &len);

    return value == NULL ? NULL : arena_strndup(&call->arena, value, len);
}

const struct principal *call_principal(const struct call *call)
{
    return access_key_principal(call->key);
}

struct server *call_server(const struct call *call)
{
    return call->queue->carried;
}

struct health *call_health(const struct call *call)
{
    return call->queue->health;
}

void *call_state(struct call *call, size_t size_bytes)
{
    void *state = try_alloc(1, size_bytes);
    struct error err;

    if (state == NULL) {
        (void)error_no_memory(&err, size_bytes, "a call");
        call_finish(call, &err);
    }
    return state;
}

void call_set_handler(struct call *call, const struct call_handler *handler, void *state)
{
    ASSERT_OWNER(&call->queue->owner);
    assert(handler->on_close != NULL && call->state != CALL_CLOSED);
    assert(call->handler == NULL);
    call->handler = handler;
    call->handler_state = state;
    call->queue->n_unawaited += handler->is_unawaited;
}

void call_clear_handler(struct call *call)
{
    ASSERT_OWNER(&call->queue->owner);
    assert(call->handler != NULL);
    call->queue->n_unawaited -= call->handler->is_unawaited;
    call->handler = NULL;
    call->handler_state = NULL;
}

bool call_is_write_ready(const struct call *call)
{
    return call->state == CALL_OPEN && call->out == NULL && !call->is_finishing && !call->is_broken;
}

static void hold(struct call *call, const ProtobufCMessage *message)
{
    grpc_slice slice = grpc_slice_malloc(codec_size(message));

    (void)codec_encode(message, GRPC_SLICE_START_PTR(slice));
    call->out = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
}

/* Schedules the held-back message. */
static void write_held(struct call *call, bool more)
{
    call->out_may_wait = more;
    call->is_write_ready_due = true;
    if (more)
        call_flush(call);
    else
        make_ready(call); /* a status that follows in this iteration goes with it */
}

void call_write(struct call *call, const ProtobufCMessage *message, bool more)
{
    ASSERT_OWNER(&call->queue->owner);
    assert(call_is_write_ready(call));
    hold(call, message);
    write_held(call, more);
}

void call_write_pieces(struct call *call, const struct call_piece *pieces, size_t n_pieces,
                       bool more)
{
    ASSERT_OWNER(&call->queue->owner);
    assert(call_is_write_ready(call));
    call->out = call_pieces_join(pieces, n_pieces);
    write_held(call, more);
}

void call_notify(struct call *call)
{
    ASSERT_OWNER(&call->queue->owner);
    call->is_write_ready_due = true;
    if (call->state == CALL_OPEN)
        make_ready(call);
}

static void begin_read(struct call *call)
{
    ASSERT_OWNER(&call->queue->owner);
    assert(rpc_is_client_stream(call->method->rpc) && !call->is_reading &&
           call->state != CALL_CLOSED);
    call->is_reading = true;
}

void call_read(struct call *call)
{
    begin_read(call);
    call->n_in_turn = 0;
    read_message(call);
}

void call_read_behind(struct call *call)
{
    begin_read(call);
    if (call->n_in_turn < WAITS_AFTER) {
        call->n_in_turn++;
        read_message(call);
        return;
    }
    call->is_delayed = true;
    rpc_queue_await_tick(call->queue, &call->queue->delayed, &call->delayed);
}

void call_tick(struct rpc_queue *q)
{
    struct link *link;

    while ((link = list_pop(&q->unwatched_old)) != NULL)
        watch_close(container_of(link, struct call, unwatched));
    while ((link = list_pop(&q->delayed_old)) != NULL)
        read_now(container_of(link, struct call, delayed));
}

/* Only what is refused before anything was done: else the time is not a refusal's. */
static void call_count_refusal(struct call *call)
{
    struct rpc_queue *q = call->queue;
    uint64_t came_us = call->ops[OP_REQUEST].came_us, now_us, took_us;

    if (came_us == 0 || !call->is_starting)
        return;
    now_us = env_now_us(q->env);
    took_us = now_us > came_us ? now_us - came_us : 0;
    q->n_refused++;
    q->refused_us += took_us;
    q->n_refused_in_1ms += took_us <= 1000;
    q->n_refused_in_10ms += took_us <= 10000;
}

void call_finish(struct call *call, const struct error *err)
{
    ASSERT_OWNER(&call->queue->owner);
    assert(call->state != CALL_CLOSED);
    if (call->is_finished_by_us)
        return;
    assert(!call->is_finishing);
    call->is_finishing = true;
    if (err != NULL && err->status != STATUS_OK) {
        call->failure = failure_make(err);
        call->queue->n_failed++;
        if (err->status == STATUS_EXHAUSTED)
            call_count_refusal(call);
    }
    if (call->state == CALL_OPEN && !call->is_starting)
        call_flush(call);
}

void call_finish_with(struct call *call, const ProtobufCMessage *last)
{
    ASSERT_OWNER(&call->queue->owner);
    if (call->is_finished_by_us)
        return;
    assert(call_is_write_ready(call));
    hold(call, last);
    call_finish(call, NULL);
}

void call_reply(struct call *call, const ProtobufCMessage *response)
{
    call_finish_with(call, response);
}
