/* The happy path: a call waits for a peer (call_request_more). gRPC brings the peer's request,
 * decoded into the call's arena and handed to the method's start. The handler writes and finishes;
 * what it does within its turn is put together: headers go with the first message, the status with
 * the last one. When the status is out and no operation is under way, the call is recycled.
 *
 * The watch for the peer's going away (OP_CLOSE) ends with every call, and would cost each a trip
 * through the queue's thread. It goes along with the status, for nothing, where the call is over
 * before it is UNWATCHED_MS old; after that it is started by itself. Bidi calls are watched at
 * once.
 *
 * gRPC tells of most of our writes while we are still in grpc_call_start_batch: a message that may
 * be held back is done when it is buffered. Such an event would go to the queue's thread and come
 * back through the mailbox; its thread-local cache gives it to us at once instead (start_ops).
 *
 * A read that begins while the window is short of even a byte has gRPC tell the peer so in a packet
 * of its own, which wakes it for nothing; behind a write the same goes along with the write. So a
 * stream whose client waits for each answer is read behind the answer (call_read_behind). One whose
 * message is there already when it is read does not wait, and is read at once.
 *
 * Failure: a peer that goes away, cancels, or whose deadline passes completes OP_CLOSE with
 * was_cancelled set, and everything else that is under way without ok; the handler is told once, at
 * OP_CLOSE, and what is left is dropped when the last operation is back. */
#include "server/call.h"

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
#include "server/call_parts.h"
#include "server/failure.h"

enum {
    MAX_SPARE = 1024,
    /* What a decoded message may take beyond its bytes on the wire: an empty message in a list is 2
     * bytes there and a struct here. */
    DECODED_MIN_BYTES = 64 << 10,
    DECODED_TIMES = 16,
    /* A client's own clock cancels a call at its deadline a little before ours would. */
    DEADLINE_SLACK_US = 50000,
    /* Messages in a row that were not there yet when they were asked for: the client waits. */
    WAITS_AFTER = 4,
};

enum call_state {
    CALL_WAITING, /* for a peer */
    CALL_OPEN,
    CALL_WRITING, /* a message is under way */
    CALL_ENDING,  /* the status is under way, or out */
    CALL_GONE,    /* the handler has been told; operations may still be under way */
};

static const unsigned may_become[] = {
    [CALL_WAITING] = 1u << CALL_OPEN,
    [CALL_OPEN] = 1u << CALL_WRITING | 1u << CALL_ENDING | 1u << CALL_GONE,
    [CALL_WRITING] = 1u << CALL_OPEN | 1u << CALL_GONE,
    [CALL_ENDING] = 1u << CALL_GONE,
    [CALL_GONE] = 0,
};

struct call {
    struct link link;    /* port->live or port->spare */
    struct link ready;   /* port->ready */
    struct link young;   /* port->young: not watched yet */
    struct link put_off; /* port->put_off: reads behind a write */
    struct port *port;
    struct method *method;
    grpc_call *core;
    struct op ops[N_CALL_OPS];
    uint8_t n_under_way;
    enum call_state state;
    bool is_starting;      /* in method's start: what it does is sent when it returns */
    bool has_sent_headers; /* with the first message or the status */
    bool has_close;        /* OP_CLOSE's operation has been started */
    bool is_close_in_last; /* in one batch with the status */
    bool is_finishing;     /* call_finish was called, or we had to */
    bool is_finished_by_us;
    bool out_may_wait;
    bool is_room_due; /* the handler's room is to be called */
    bool is_broken;   /* a write failed: OP_CLOSE will say why */
    bool is_reading;
    bool is_put_off;         /* is_reading, behind the next write */
    uint8_t n_in_turn;       /* towards WAITS_AFTER */
    int was_cancelled;       /* of OP_CLOSE */
    grpc_byte_buffer *out;   /* a message that is held back, or NULL */
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
    char *peer; /* gRPC's */
};

struct call *call_from_live(struct link *link)
{
    return container_of(link, struct call, link);
}

struct call *call_from_ready(struct link *link)
{
    return container_of(link, struct call, ready);
}

static void move(struct call *call, enum call_state to)
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
        list_push(&call->port->ready, &call->ready);
}

static void written(struct call *call, bool ok);

/* Runs a call into gRPC core such that one event that it completes comes to us and not to the
 * queue's thread. */
static void cache_open(struct port *p)
{
    grpc_completion_queue_thread_local_cache_init(p->queue);
}

static void cache_close(struct port *p)
{
    void *tag;
    int ok;

    if (grpc_completion_queue_thread_local_cache_flush(p->queue, &tag, &ok)) {
        struct op *op = tag;

        op_take(op, ok != 0);
        if (op->kind == OP_READ)
            op->call->n_in_turn /= 2; /* it was there already: sent ahead, or we were slow */
        /* A message that is out of the way only changes the call's state: no handler is called. */
        if (op->kind == OP_WRITE && op->call->state == CALL_WRITING) {
            op->call->n_under_way--;
            written(op->call, op->ok);
        } else {
            list_push(&p->back, &op->link);
        }
    }
}

static void start_ops(struct call *call, enum op_kind kind, const grpc_op *ops, size_t n)
{
    grpc_call_error rc;

    call->n_under_way++;
    op_give(&call->ops[kind]);
    cache_open(call->port);
    rc = grpc_call_start_batch(call->core, ops, n, &call->ops[kind], NULL);
    assert(rc == GRPC_CALL_OK);
    cache_close(call->port);
}

static void drop_out(struct call *call)
{
    if (call->out != NULL)
        grpc_byte_buffer_destroy(call->out);
    call->out = NULL;
}

/* Sends what is held back and, if that was all, the status. */
static void flush(struct call *call)
{
    static char nothing[1];
    grpc_op ops[4] = {0}, *op = ops;
    bool is_last = call->is_finishing;
    /* Headers are done only when they are out, and nothing more would send them. */
    bool may_wait = call->out_may_wait && call->has_sent_headers && !is_last;

    assert(call->state == CALL_OPEN && (call->out != NULL || is_last));
    move(call, is_last ? CALL_ENDING : CALL_WRITING);
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
            if (link_is_on(&call->young))
                list_remove(&call->young);
            op->op = GRPC_OP_RECV_CLOSE_ON_SERVER;
            op->data.recv_close_on_server.cancelled = &call->was_cancelled;
            op++;
        }
    }
    start_ops(call, OP_WRITE, ops, (size_t)(op - ops));
    drop_out(call); /* its slices are gRPC's now */
    if (call->is_put_off && !may_wait)
        call_read_now(&call->put_off);
}

static void watch_close(struct call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};

    call->has_close = true;
    op.data.recv_close_on_server.cancelled = &call->was_cancelled;
    start_ops(call, OP_CLOSE, &op, 1);
}

void call_watch_young(struct link *link)
{
    struct call *call = container_of(link, struct call, young);

    watch_close(call);
}

static void written(struct call *call, bool ok)
{
    move(call, CALL_OPEN);
    if (!ok)
        call->is_broken = true;
    if (call->is_finishing && !call->is_starting)
        flush(call);
    else if (call->is_room_due)
        make_ready(call);
}

static struct call *call_make(struct port *p)
{
    struct link *link = list_pop(&p->spare);
    struct call *call;

    if (link != NULL) {
        p->n_spare--;
        return call_from_live(link);
    }
    call = xalloc(sizeof(*call));
    call->port = p;
    for (size_t i = 0; i < N_CALL_OPS; i++)
        call->ops[i] = (struct op){.call = call, .kind = (enum op_kind)i};
    return call;
}

void call_free_spare(struct link *link)
{
    free(call_from_live(link));
}

/* Everything of one RPC goes; the memory of the call itself is kept for another one. */
static void recycle(struct call *call)
{
    struct port *p = call->port;

    assert(call->n_under_way == 0);
    if (call->core != NULL)
        grpc_call_unref(call->core);
    if (call->in != NULL)
        grpc_byte_buffer_destroy(call->in);
    grpc_metadata_array_destroy(&call->headers);
    if (call->method->rpc == NULL)
        grpc_call_details_destroy(&call->details);
    if (call->peer != NULL)
        gpr_free(call->peer);
    drop_out(call);
    failure_free(call->failure);
    arena_deinit(&call->arena);
    arena_deinit(&call->in_arena);
    if (link_is_on(&call->ready))
        list_remove(&call->ready);
    if (link_is_on(&call->young))
        list_remove(&call->young);
    if (link_is_on(&call->put_off))
        list_remove(&call->put_off);
    if (link_is_on(&call->link)) {
        list_remove(&call->link);
        p->n_live--;
    }
    if (p->n_spare == MAX_SPARE) {
        free(call);
    } else {
        memset((char *)call + offsetof(struct call, n_under_way), 0,
               sizeof(*call) - offsetof(struct call, n_under_way));
        call->core = NULL;
        list_push_front(&p->spare, &call->link);
        p->n_spare++;
    }
    port_maybe_stopped(p);
}

static void request(struct port *p, struct method *method)
{
    struct call *call = call_make(p);
    grpc_call_error rc;

    call->method = method;
    call->state = CALL_WAITING;
    call->n_under_way = 1;
    grpc_metadata_array_init(&call->headers);
    p->n_requested++;
    method->n_waiting++;
    op_give(&call->ops[OP_REQUEST]);
    cache_open(p);
    if (method->rpc == NULL) {
        grpc_call_details_init(&call->details);
        rc = grpc_server_request_call(p->server, &call->core, &call->details, &call->headers,
                                      p->queue, p->queue, &call->ops[OP_REQUEST]);
    } else {
        rc = grpc_server_request_registered_call(
            p->server, method->registered, &call->core, &call->deadline, &call->headers,
            rpc_is_fed(method->rpc) ? NULL : &call->in, p->queue, p->queue, &call->ops[OP_REQUEST]);
    }
    assert(rc == GRPC_CALL_OK);
    cache_close(p);
}

void call_request_more(struct port *p, struct method *method)
{
    while (method->n_waiting < method->n_wanted)
        request(p, method);
}

/* One of them was taken. */
static void request_again(struct port *p, struct method *method)
{
    if (method->n_waiting == 0 && method->n_wanted < CALLS_WAITING_MAX)
        method->n_wanted *= 2;
    call_request_more(p, method);
}

/* Decodes call->in and lets it go. */
static enum status decode(ProtobufCMessage **out, struct call *call, struct arena *arena,
                          struct error *err)
{
    const grpc_slice_buffer *slices = &call->in->data.raw.slice_buffer;
    const struct rpc *rpc = call->method->rpc;
    grpc_byte_buffer_reader reader;
    grpc_slice whole;
    enum status rc;

    if (slices->count == 1) { /* most are: no copy */
        rc = codec_decode(out, rpc->request, GRPC_SLICE_START_PTR(slices->slices[0]),
                          GRPC_SLICE_LENGTH(slices->slices[0]), arena, err);
    } else if (grpc_byte_buffer_reader_init(&reader, call->in)) {
        whole = grpc_byte_buffer_reader_readall(&reader);
        grpc_byte_buffer_reader_destroy(&reader);
        rc = codec_decode(out, rpc->request, GRPC_SLICE_START_PTR(whole), GRPC_SLICE_LENGTH(whole),
                          arena, err);
        grpc_slice_unref(whole);
    } else {
        rc = error_set(err, STATUS_INTERNAL, "cannot read the request's bytes");
    }
    grpc_byte_buffer_destroy(call->in);
    call->in = NULL;
    return rc;
}

static enum status admit(struct call *call, ProtobufCMessage **ret_request, struct error *err)
{
    const struct rpc *rpc = call->method->rpc;
    struct port *p = call->port;

    if (p->is_draining)
        return error_set(err, STATUS_UNAVAILABLE, "the server is shutting down");
    if (p->n_live > p->max_calls) {
        (void)error_set(err, STATUS_EXHAUSTED, "%zu calls are in flight already", p->max_calls);
        err->retry_after_ms = 100;
        return err->status;
    }
    if (rpc == NULL) {
        char path[120];

        (void)snprintf(path, sizeof(path), "%.*s", (int)GRPC_SLICE_LENGTH(call->details.method),
                       (const char *)GRPC_SLICE_START_PTR(call->details.method));
        return error_set(err, STATUS_UNIMPLEMENTED, "there is no method %s", path);
    }
    if (rpc_is_fed(rpc))
        return STATUS_OK;
    if (call->in == NULL)
        return error_set(err, STATUS_INVALID, "the call came without its request");
    return decode(ret_request, call, &call->arena, err);
}

static size_t arena_limit(const struct port *p)
{
    return DECODED_MIN_BYTES + DECODED_TIMES * p->max_message_bytes;
}

static void requested(struct call *call, bool ok)
{
    struct port *p = call->port;
    ProtobufCMessage *request = NULL;
    struct error err = {0};
    gpr_timespec left;

    p->n_requested--;
    call->method->n_waiting--;
    if (!ok) {
        recycle(call); /* the server shuts down: no peer came */
        return;
    }
    if (!p->is_stopping)
        request_again(p, call->method);
    list_push(&p->live, &call->link);
    p->n_live++;
    p->n_started++;
    move(call, CALL_OPEN);
    arena_init(&call->arena, arena_limit(p));
    if (call->method->rpc == NULL)
        call->deadline = call->details.deadline;
    if (gpr_time_cmp(call->deadline, gpr_inf_future(call->deadline.clock_type)) != 0) {
        left = gpr_time_sub(call->deadline, gpr_now(call->deadline.clock_type));
        call->deadline_us = env_now_us(p->env);
        if (gpr_time_cmp(left, gpr_time_0(GPR_TIMESPAN)) > 0)
            call->deadline_us += (uint64_t)left.tv_sec * 1000000 + (uint64_t)left.tv_nsec / 1000;
    }
    call->is_starting = true;
    if (admit(call, &request, &err) != STATUS_OK)
        call_finish(call, &err);
    else
        call->method->rpc->start(call, request, p->daemon);
    call->is_starting = false;
    if (call->state == CALL_OPEN && (call->out != NULL || call->is_finishing))
        flush(call);
    if (call->has_close)
        return;
    if (call->method->rpc != NULL && rpc_is_fed(call->method->rpc))
        watch_close(call);
    else
        port_add_young(p, &call->young);
}

static void maybe_recycle(struct call *call)
{
    if (call->state == CALL_GONE && call->n_under_way == 0)
        recycle(call);
}

static void closed(struct call *call)
{
    enum status why = STATUS_OK;

    if (call->was_cancelled) {
        uint64_t now_us = env_now_us(call->port->env);
        bool is_late = call->deadline_us > 0 && now_us + DEADLINE_SLACK_US >= call->deadline_us;

        why = is_late ? STATUS_DEADLINE : STATUS_CANCELLED;
    }
    if (call->was_cancelled && call->failure == NULL)
        call->port->n_failed++;
    move(call, CALL_GONE);
    if (call->handler != NULL)
        call->handler->gone(call, call->handler_state, why);
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
        call->in = NULL; /* given away */
    }
    call->handler->bytes(call, call->handler_state, bytes);
}

static void message_read(struct call *call)
{
    ProtobufCMessage *message = NULL;
    struct error err = {0};

    call->is_reading = false;
    if (call->state == CALL_GONE || call->is_finishing)
        return;
    if (call->handler != NULL && call->handler->bytes != NULL) {
        bytes_read(call);
        return;
    }
    arena_init(&call->in_arena, arena_limit(call->port));
    if (call->in != NULL && decode(&message, call, &call->in_arena, &err) != STATUS_OK) {
        call_finish(call, &err);
        call->is_finished_by_us = true;
    } else if (call->handler != NULL && call->handler->message != NULL) {
        call->handler->message(call, call->handler_state, message, &call->in_arena);
    }
    arena_deinit(&call->in_arena);
}

void call_op_back(struct op *op)
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
            written(call, op->ok);
        else if (call->is_close_in_last)
            closed(call);
        break;
    case OP_CLOSE:
        closed(call);
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
        flush(call);
    if (call->is_room_due && call_has_room(call)) {
        call->is_room_due = false;
        if (call->handler != NULL && call->handler->room != NULL)
            call->handler->room(call, call->handler_state);
    }
}

void call_cancel(struct call *call)
{
    (void)grpc_call_cancel_with_status(call->core, GRPC_STATUS_UNAVAILABLE,
                                       "the server is shutting down", NULL);
}

struct arena *call_arena(struct call *call)
{
    return &call->arena;
}

uint64_t call_deadline_us(const struct call *call)
{
    return call->deadline_us;
}

const char *call_peer(struct call *call)
{
    if (call->peer == NULL)
        call->peer = grpc_call_get_peer(call->core);
    return call->peer;
}

const char *call_header(struct call *call, const char *key)
{
    for (size_t i = 0; i < call->headers.count; i++) {
        const grpc_slice *value = &call->headers.metadata[i].value;

        if (grpc_slice_str_cmp(call->headers.metadata[i].key, key) == 0)
            return arena_strndup(&call->arena, (const char *)GRPC_SLICE_START_PTR(*value),
                                 GRPC_SLICE_LENGTH(*value));
    }
    return NULL;
}

struct daemon *call_daemon(const struct call *call)
{
    return call->port->daemon;
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
    ASSERT_HOME(&call->port->home);
    assert(handler->gone != NULL && call->state != CALL_GONE);
    call->handler = handler;
    call->handler_state = state;
}

bool call_has_room(const struct call *call)
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

/* What is held is to be written. */
static void write_held(struct call *call, bool more)
{
    call->out_may_wait = more;
    call->is_room_due = true;
    if (more)
        flush(call);
    else
        make_ready(call); /* a status that follows within this round goes with it */
}

void call_write(struct call *call, const ProtobufCMessage *message, bool more)
{
    ASSERT_HOME(&call->port->home);
    assert(call_has_room(call));
    hold(call, message);
    write_held(call, more);
}

void call_write_pieces(struct call *call, const struct call_piece *pieces, size_t n_pieces,
                       bool more)
{
    ASSERT_HOME(&call->port->home);
    assert(call_has_room(call));
    call->out = call_pieces_join(pieces, n_pieces);
    write_held(call, more);
}

void call_wake(struct call *call)
{
    ASSERT_HOME(&call->port->home);
    call->is_room_due = true;
    if (call->state == CALL_OPEN)
        make_ready(call);
}

static void read_message(struct call *call)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    op.data.recv_message.recv_message = &call->in;
    start_ops(call, OP_READ, &op, 1);
}

static void begin_read(struct call *call)
{
    ASSERT_HOME(&call->port->home);
    assert(rpc_is_fed(call->method->rpc) && !call->is_reading && call->state != CALL_GONE);
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
    call->is_put_off = true;
    port_put_off(call->port, &call->put_off);
}

void call_read_now(struct link *put_off)
{
    struct call *call = container_of(put_off, struct call, put_off);

    if (link_is_on(put_off))
        list_remove(put_off);
    call->is_put_off = false;
    if (call->state != CALL_GONE && !call->is_finishing)
        read_message(call);
}

void call_finish(struct call *call, const struct error *err)
{
    ASSERT_HOME(&call->port->home);
    assert(call->state != CALL_GONE);
    if (call->is_finished_by_us) /* a damaged message ended it: the handler could not know */
        return;
    assert(!call->is_finishing);
    call->is_finishing = true;
    if (err != NULL && err->status != STATUS_OK) {
        call->failure = failure_make(err);
        call->port->n_failed++;
    }
    if (call->state == CALL_OPEN && !call->is_starting)
        flush(call);
}

void call_finish_with(struct call *call, const ProtobufCMessage *last)
{
    ASSERT_HOME(&call->port->home);
    assert(call_has_room(call));
    hold(call, last);
    call_finish(call, NULL);
}

void call_reply(struct call *call, const ProtobufCMessage *response)
{
    call_finish_with(call, response);
}
