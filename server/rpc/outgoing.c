/* Happy path: outgoing_begin gives gRPC the headers and, of a call with one message, that and the
 * end of the stream; it asks for the status at once. Each operation is a tag that the thread posts
 * to the loop. The end is told when the status and all other operations are back: gRPC gives the
 * status behind the last message.
 *
 * Failure: a peer that cannot be reached, or that goes away, is a status like any other. A call
 * that is cancelled here forgets its handler, and is freed when its operations are back. */
#include "server/rpc/outgoing.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/mailbox.h"
#include "proto/locks.h"
#include "server/call/error_details.h"
#include "server/rpc/call_parts.h"

enum {
    FILE_MAX_BYTES = 1 << 20,
    MESSAGE_MAX_BYTES = 128 << 20,
    CONNECT_MS = 2000, /* a host that does not answer is given up */
    BACKOFF_MAX_MS = 1000,
};

/* A connection to an address, opened when a call needs it and kept. */
struct outgoing_peer {
    struct link link;
    grpc_channel *channel;
    char address[];
};

struct outgoing_port {
    struct outgoing_config config;
    grpc_completion_queue *queue;
    uv_thread_t thread;
    struct mailbox mailbox;
    struct list peers, calls;
    bool is_stopping;
    struct outgoing_op *exited;
    void (*stopped)(void *arg);
    void *stopped_arg;
};

enum outgoing_kind { OUT_BEGIN, OUT_STATUS, OUT_READ, OUT_SEND, OUT_HALF_CLOSE, N_OUT_KINDS };

/* A tag of the completion queue. The thread sets ok and posts it. */
struct outgoing_op {
    struct link link;
    struct outgoing_call *call; /* NULL: the thread has left its loop */
    enum outgoing_kind kind;
    bool ok;
    /* Given to gRPC and not returned: as of struct rpc_op. */
    atomic_bool is_out;
};

struct outgoing_call {
    struct link link;
    struct outgoing_port *of;
    grpc_call *core;
    struct outgoing_op ops[N_OUT_KINDS];
    size_t n_under_way;
    const struct outgoing_handler *handler; /* NULL: it was cancelled here */
    void *arg;
    grpc_byte_buffer *in;
    grpc_metadata_array headers, trailers;
    grpc_status_code status;
    grpc_slice details;
};

static void outgoing_give(struct outgoing_call *c, enum outgoing_kind kind, const grpc_op *ops,
                          size_t n)
{
    struct outgoing_op *op = &c->ops[kind];
    grpc_call_error rc;

    c->n_under_way++;
    atomic_store_explicit(&op->is_out, true, memory_order_release);
    rc = grpc_call_start_batch(c->core, ops, n, op, NULL);
    assert(rc == GRPC_CALL_OK);
    (void)rc;
}

/* --- the end of a call --- */

/* Our own detail, which a parleyd sends with each failure. False: there is none. */
static bool outgoing_read_detail(const struct outgoing_call *c, struct error *out)
{
    for (size_t i = 0; i < c->trailers.count; i++) {
        const grpc_metadata *m = &c->trailers.metadata[i];

        if (grpc_slice_str_cmp(m->key, "parley-error-bin") == 0)
            return error_details_read(out, GRPC_SLICE_START_PTR(m->value),
                                      GRPC_SLICE_LENGTH(m->value));
    }
    return false;
}

static void outgoing_call_free(struct outgoing_call *c)
{
    list_remove(&c->link);
    if (c->in != NULL)
        grpc_byte_buffer_destroy(c->in);
    grpc_metadata_array_destroy(&c->headers);
    grpc_metadata_array_destroy(&c->trailers);
    grpc_slice_unref(c->details);
    grpc_call_unref(c->core);
    free(c);
}

static void outgoing_close_queue(struct outgoing_port *o)
{
    struct link *at;

    if (!o->is_stopping || !list_is_empty(&o->calls))
        return;
    while ((at = list_pop(&o->peers)) != NULL) {
        struct outgoing_peer *p = container_of(at, struct outgoing_peer, link);

        grpc_channel_destroy(p->channel);
        free(p);
    }
    grpc_completion_queue_shutdown(o->queue);
}

static void outgoing_call_end(struct outgoing_call *c)
{
    const struct outgoing_handler *handler = c->handler;
    struct outgoing_port *o = c->of;
    const bool is_unsent = !c->ops[OUT_BEGIN].ok;
    struct error err = {0};
    void *arg = c->arg;

    if (c->status != GRPC_STATUS_OK && !outgoing_read_detail(c, &err))
        (void)error_set(&err,
                        c->status <= GRPC_STATUS_UNAUTHENTICATED ? (enum status)c->status
                                                                 : STATUS_UNKNOWN,
                        "%.*s", (int)GRPC_SLICE_LENGTH(c->details),
                        (const char *)GRPC_SLICE_START_PTR(c->details));
    outgoing_call_free(c);
    if (handler != NULL)
        handler->end(arg, &err, is_unsent);
    outgoing_close_queue(o);
}

/* --- what comes back --- */

static void outgoing_message_back(struct outgoing_call *c)
{
    struct call_bytes *bytes;

    if (c->in == NULL || c->handler == NULL)
        return; /* NULL: no more come, and the status follows */
    bytes = call_bytes_make(c->in);
    if (bytes == NULL) {
        (void)grpc_call_cancel_with_status(c->core, GRPC_STATUS_RESOURCE_EXHAUSTED,
                                           "out of memory for a message of another parleyd", NULL);
        return;
    }
    c->in = NULL; /* given away */
    c->handler->message(c->arg, bytes);
}

static void outgoing_exited(struct outgoing_port *o);

static void outgoing_deliver(struct link *item, void *arg)
{
    struct outgoing_op *op = container_of(item, struct outgoing_op, link);
    struct outgoing_call *c = op->call;

    if (c == NULL) {
        outgoing_exited(arg);
        return;
    }
    /* The call lives until all is back, whatever the handler does meanwhile. */
    if (op->kind == OUT_READ)
        outgoing_message_back(c);
    else if (op->kind == OUT_SEND && op->ok && c->handler != NULL && c->handler->sent != NULL)
        c->handler->sent(c->arg);
    if (--c->n_under_way == 0)
        outgoing_call_end(c);
}

static void outgoing_poll(void *arg)
{
    struct outgoing_port *o = arg;
    grpc_event event;

    for (;;) {
        struct outgoing_op *op;

        event = grpc_completion_queue_next(o->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            break;
        op = event.tag;
        (void)atomic_load_explicit(&op->is_out, memory_order_acquire);
        op->ok = event.success != 0;
        mailbox_post(&o->mailbox, &op->link);
    }
    mailbox_post(&o->mailbox, &o->exited->link);
}

/* --- connections --- */

/* The text of a PEM file; NULL: it cannot be read. */
static char *outgoing_read_file(const char *path)
{
    FILE *f = path == NULL ? NULL : fopen(path, "re");
    char *text;
    size_t n;

    if (f == NULL)
        return NULL;
    text = xalloc(FILE_MAX_BYTES + 1);
    n = fread(text, 1, FILE_MAX_BYTES, f);
    text[n] = '\0';
    (void)fclose(f);
    return text;
}

/* A file that cannot be read makes credentials that no peer accepts, and so the call fails. */
static grpc_channel_credentials *outgoing_credentials(const struct outgoing_config *config)
{
    grpc_channel_credentials *out;
    char *ca, *certificate, *key;

    if (config->certificate == NULL)
        return grpc_insecure_credentials_create();
    ca = outgoing_read_file(config->ca);
    certificate = outgoing_read_file(config->certificate);
    key = outgoing_read_file(config->private_key);
    out = grpc_ssl_credentials_create(
        ca,
        certificate == NULL || key == NULL ? NULL : &(grpc_ssl_pem_key_cert_pair){key, certificate},
        NULL, NULL);
    free(ca);
    free(certificate);
    if (key != NULL)
        explicit_bzero(key, strlen(key));
    free(key);
    return out;
}

static struct outgoing_peer *outgoing_connect(struct outgoing_port *o, const char *address)
{
    static const struct {
        const char *key;
        int value;
    } ints[] = {
        {GRPC_ARG_ENABLE_HTTP_PROXY, 0},
        {GRPC_ARG_ENABLE_RETRIES, 0},
        {GRPC_ARG_ENABLE_CHANNELZ, 0},
        {GRPC_ARG_ENABLE_CENSUS, 0},
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, MESSAGE_MAX_BYTES},
        {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100},
        {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_MS},
        {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, BACKOFF_MAX_MS},
    };
    grpc_arg args[sizeof(ints) / sizeof(ints[0])];
    const grpc_channel_args all = {sizeof(args) / sizeof(args[0]), args};
    grpc_channel_credentials *credentials;
    struct outgoing_peer *p;

    for (struct link *at = list_first(&o->peers); at != NULL; at = list_next(&o->peers, at)) {
        p = container_of(at, struct outgoing_peer, link);
        if (strcmp(p->address, address) == 0)
            return p;
    }
    for (size_t i = 0; i < all.num_args; i++) {
        args[i].type = GRPC_ARG_INTEGER;
        args[i].key = (char *)(uintptr_t)ints[i].key; /* gRPC only reads it */
        args[i].value.integer = ints[i].value;
    }
    p = xalloc(sizeof(*p) + strlen(address) + 1);
    memcpy(p->address, address, strlen(address) + 1);
    credentials = outgoing_credentials(&o->config);
    p->channel = grpc_channel_create(address, credentials, &all);
    grpc_channel_credentials_release(credentials);
    list_push(&o->peers, &p->link);
    return p;
}

/* --- calls --- */

static gpr_timespec outgoing_deadline(const struct outgoing_start *start)
{
    const uint64_t left_us =
        start->deadline_us > start->now_us ? start->deadline_us - start->now_us : 0;

    if (start->deadline_us == 0)
        return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_micros((int64_t)left_us, GPR_TIMESPAN));
}

struct outgoing_call *outgoing_begin(struct outgoing_port *o, const struct outgoing_start *start,
                                     const struct outgoing_handler *handler, void *arg)
{
    const struct outgoing_peer *p = outgoing_connect(o, start->address);
    struct outgoing_call *c = xalloc(sizeof(*c));
    grpc_slice method = grpc_slice_from_copied_string(start->method);
    grpc_metadata header = {.key = grpc_slice_from_copied_string(start->header),
                            .value = grpc_slice_from_copied_string(start->value)};
    grpc_byte_buffer *message = NULL;
    grpc_op ops[3] = {0}, *op = ops,
            back[2] = {{.op = GRPC_OP_RECV_INITIAL_METADATA},
                       {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};

    assert(!o->is_stopping);
    c->of = o;
    c->handler = handler;
    c->arg = arg;
    c->details = grpc_empty_slice();
    grpc_metadata_array_init(&c->headers);
    grpc_metadata_array_init(&c->trailers);
    for (size_t i = 0; i < N_OUT_KINDS; i++) {
        c->ops[i].call = c;
        c->ops[i].kind = (enum outgoing_kind)i;
    }
    c->core = grpc_channel_create_call(p->channel, NULL, GRPC_PROPAGATE_DEFAULTS, o->queue, method,
                                       NULL, outgoing_deadline(start), NULL);
    list_push(&o->calls, &c->link);
    op->op = GRPC_OP_SEND_INITIAL_METADATA;
    op->data.send_initial_metadata.count = 1;
    op->data.send_initial_metadata.metadata = &header;
    op++;
    if (start->pieces != NULL) {
        message = call_pieces_join(start->pieces, start->n_pieces);
        op->op = GRPC_OP_SEND_MESSAGE;
        op->data.send_message.send_message = message;
        op++;
        op->op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
        op++;
    }
    back[0].data.recv_initial_metadata.recv_initial_metadata = &c->headers;
    back[1].data.recv_status_on_client.trailing_metadata = &c->trailers;
    back[1].data.recv_status_on_client.status = &c->status;
    back[1].data.recv_status_on_client.status_details = &c->details;
    outgoing_give(c, OUT_BEGIN, ops, (size_t)(op - ops));
    outgoing_give(c, OUT_STATUS, back, 2);
    if (message != NULL)
        grpc_byte_buffer_destroy(message); /* gRPC holds its slices now */
    grpc_slice_unref(header.key);
    grpc_slice_unref(header.value);
    grpc_slice_unref(method);
    return c;
}

void outgoing_send(struct outgoing_call *c, const struct call_piece *pieces, size_t n_pieces)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    grpc_byte_buffer *message = call_pieces_join(pieces, n_pieces);

    op.data.send_message.send_message = message;
    outgoing_give(c, OUT_SEND, &op, 1);
    grpc_byte_buffer_destroy(message);
}

void outgoing_half_close(struct outgoing_call *c)
{
    const grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};

    outgoing_give(c, OUT_HALF_CLOSE, &op, 1);
}

void outgoing_read(struct outgoing_call *c)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    op.data.recv_message.recv_message = &c->in;
    outgoing_give(c, OUT_READ, &op, 1);
}

void outgoing_cancel(struct outgoing_call *c)
{
    c->handler = NULL;
    (void)grpc_call_cancel(c->core, NULL);
}

/* --- life --- */

static void on_outgoing_closed(void *arg)
{
    struct outgoing_port *o = arg;
    void (*stopped)(void *) = o->stopped;
    void *stopped_arg = o->stopped_arg;

    grpc_shutdown_blocking();
    free(o->exited);
    free(o);
    if (stopped != NULL)
        stopped(stopped_arg);
}

static void outgoing_exited(struct outgoing_port *o)
{
    (void)uv_thread_join(&o->thread); /* it has left its loop: no wait */
    grpc_completion_queue_destroy(o->queue);
    mailbox_close(&o->mailbox, on_outgoing_closed);
}

enum status outgoing_start(struct outgoing_port **out, uv_loop_t *loop,
                           const struct outgoing_config *config, struct error *err)
{
    struct outgoing_port *o = xalloc(sizeof(*o));

    o->config = *config;
    list_init(&o->peers);
    list_init(&o->calls);
    if (mailbox_open(&o->mailbox, loop, outgoing_deliver, o, err) != STATUS_OK) {
        free(o);
        return err->status;
    }
    o->exited = xalloc(sizeof(*o->exited));
    (void)locks_unchecked(); /* a failure only makes calls slower */
    grpc_init();
    o->queue = grpc_completion_queue_create_for_next(NULL);
    if (uv_thread_create(&o->thread, outgoing_poll, o) != 0) {
        grpc_completion_queue_shutdown(o->queue);
        grpc_completion_queue_destroy(o->queue);
        mailbox_close(&o->mailbox, on_outgoing_closed);
        return error_set(err, STATUS_EXHAUSTED, "no threads are left for calls of other daemons");
    }
    *out = o;
    return STATUS_OK;
}

void outgoing_stop(struct outgoing_port *o, void (*stopped)(void *arg), void *arg)
{
    o->is_stopping = true;
    o->stopped = stopped;
    o->stopped_arg = arg;
    for (struct link *at = list_first(&o->calls); at != NULL; at = list_next(&o->calls, at))
        outgoing_cancel(container_of(at, struct outgoing_call, link));
    outgoing_close_queue(o);
}
