/* assert, not Check's: this runs on other threads and in other processes too. */
#include "tests/unit/server/rpc/rig.h"

#include <assert.h>
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "google/rpc/status.pb-c.h"

struct job {
    struct link link;
    void (*act)(struct rig *r, void *arg);
    void *arg;
    uv_sem_t is_done;
};

static void on_job(struct link *link, void *arg)
{
    struct job *job = container_of(link, struct job, link);

    job->act(arg, job->arg);
    uv_sem_post(&job->is_done);
}

static void run(void *arg)
{
    static const char *const any[] = {"127.0.0.1:0"};
    struct rig *r = arg;
    struct error err;

    assert(uv_loop_init(&r->loop) == 0);
    assert(mailbox_open(&r->mailbox, &r->loop, on_job, r, &err) == STATUS_OK);
    if (r->config.listen == NULL) {
        r->config.listen = any;
        r->config.n_listen = 1;
    }
    r->config.env = &env_real;
    r->stats = (struct call_stats){0};
    r->config.stats = &r->stats;
    r->rc = port_start(&r->port, &r->loop, &r->config, &r->err);
    if (r->rc == STATUS_OK)
        (void)snprintf(r->address, sizeof(r->address), "%s", port_address(r->port, 0));
    uv_sem_post(&r->is_up);
    assert(uv_run(&r->loop, UV_RUN_DEFAULT) == 0);
    assert(uv_loop_close(&r->loop) == 0);
}

void rig_start(struct rig *r, const struct port_config *config)
{
    *r = (struct rig){.config = *config};
    assert(uv_sem_init(&r->is_up, 0) == 0);
    assert(uv_thread_create(&r->thread, run, r) == 0);
    uv_sem_wait(&r->is_up);
}

void rig_on_loop(struct rig *r, void (*act)(struct rig *r, void *arg), void *arg)
{
    struct job job = {.act = act, .arg = arg};

    assert(uv_sem_init(&job.is_done, 0) == 0);
    mailbox_post(&r->mailbox, &job.link);
    uv_sem_wait(&job.is_done);
    uv_sem_destroy(&job.is_done);
}

static void on_stopped(void *arg)
{
    struct rig *r = arg;

    mailbox_close(&r->mailbox, NULL);
}

static void stop(struct rig *r, void *arg)
{
    if (r->port != NULL)
        port_stop(r->port, on_stopped, r);
}

static void close_mailbox(struct rig *r, void *arg)
{
    mailbox_close(&r->mailbox, NULL);
}

void rig_begin_stop(struct rig *r)
{
    rig_on_loop(r, r->port != NULL ? stop : close_mailbox, NULL);
}

void rig_join(struct rig *r)
{
    assert(uv_thread_join(&r->thread) == 0);
    uv_sem_destroy(&r->is_up);
}

void rig_stop(struct rig *r)
{
    rig_begin_stop(r);
    rig_join(r);
}

static void get_stats(struct rig *r, void *arg)
{
    *(struct call_stats *)arg = r->stats;
}

struct call_stats rig_stats(struct rig *r)
{
    struct call_stats stats = {0};

    rig_on_loop(r, get_stats, &stats);
    return stats;
}

void dial_open(struct dial *d, const char *address)
{
    grpc_channel_credentials *insecure;
    /* Each test has its own connection, HTTP/2's initial window size, and deadlines that only the
     * server enforces. */
    grpc_arg arg[] = {
        {.type = GRPC_ARG_INTEGER, .key = (char[]){GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL}},
        {.type = GRPC_ARG_INTEGER, .key = (char[]){GRPC_ARG_HTTP2_BDP_PROBE}},
        {.type = GRPC_ARG_INTEGER, .key = (char[]){GRPC_ARG_ENABLE_DEADLINE_CHECKS}},
    };
    const grpc_channel_args args = {3, arg};

    arg[0].value.integer = 1;
    grpc_init();
    insecure = grpc_insecure_credentials_create();
    d->channel = grpc_channel_create(address, insecure, &args);
    grpc_channel_credentials_release(insecure);
    d->queue = grpc_completion_queue_create_for_pluck(NULL);
}

void dial_wait_while_ready(struct dial *d)
{
    const gpr_timespec never = gpr_inf_future(GPR_CLOCK_REALTIME);

    while (grpc_channel_check_connectivity_state(d->channel, 0) == GRPC_CHANNEL_READY) {
        grpc_channel_watch_connectivity_state(d->channel, GRPC_CHANNEL_READY, never, d->queue, d);
        assert(grpc_completion_queue_pluck(d->queue, d, never, NULL).type == GRPC_OP_COMPLETE);
    }
}

void dial_close(struct dial *d)
{
    grpc_channel_destroy(d->channel);
    grpc_completion_queue_shutdown(d->queue);
    grpc_completion_queue_destroy(d->queue);
    grpc_shutdown_blocking();
}

static void batch(struct dial *d, struct dialled *c, const grpc_op *ops, size_t n)
{
    grpc_event event;

    assert(grpc_call_start_batch(c->call, ops, n, c, NULL) == GRPC_CALL_OK);
    event = grpc_completion_queue_pluck(d->queue, c, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    assert(event.type == GRPC_OP_COMPLETE);
}

void dial_send(struct dial *d, struct dialled *c, const void *bytes, size_t len)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    grpc_slice slice = grpc_slice_from_copied_buffer(bytes, len);

    op.data.send_message.send_message = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    batch(d, c, &op, 1);
    grpc_byte_buffer_destroy(op.data.send_message.send_message);
}

void dial_send_text(struct dial *d, struct dialled *c, const char *text)
{
    Parley__V1__Message m = PARLEY__V1__MESSAGE__INIT;
    uint8_t *bytes;

    m.text = xstrdup(text);
    bytes = xalloc(parley__v1__message__get_packed_size(&m));
    dial_send(d, c, bytes, parley__v1__message__pack(&m, bytes));
    free(bytes);
    free(m.text);
}

void dial_half_close(struct dial *d, struct dialled *c)
{
    const grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};

    batch(d, c, &op, 1);
}

void dial_start(struct dial *d, struct dialled *c, const char *path, const char *text,
                uint32_t deadline_ms)
{
    const gpr_timespec never = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    const gpr_timespec later =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(deadline_ms, GPR_TIMESPAN));
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    grpc_metadata header = {.key = grpc_slice_from_static_string("x-test"),
                            .value = grpc_slice_from_static_string("a header")};
    grpc_slice method = grpc_slice_from_copied_string(path);

    memset(c, 0, sizeof(*c));
    grpc_metadata_array_init(&c->trailers);
    grpc_metadata_array_init(&c->headers);
    c->call = grpc_channel_create_call(d->channel, NULL, GRPC_PROPAGATE_DEFAULTS, d->queue, method,
                                       NULL, deadline_ms == 0 ? never : later, NULL);
    grpc_slice_unref(method);
    op.data.send_initial_metadata.count = 1;
    op.data.send_initial_metadata.metadata = &header;
    batch(d, c, &op, 1);
    if (text != NULL) {
        dial_send_text(d, c, text);
        dial_half_close(d, c);
    }
}

bool dial_read(struct dial *d, struct dialled *c)
{
    grpc_byte_buffer *bytes = NULL;
    grpc_byte_buffer_reader reader;
    Parley__V1__Message *m;
    grpc_slice all;
    grpc_op op[2] = {{.op = GRPC_OP_RECV_MESSAGE}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};

    op[0].data.recv_message.recv_message = &bytes;
    op[1].data.recv_initial_metadata.recv_initial_metadata = &c->headers;
    batch(d, c, op, c->has_headers ? 1 : 2);
    c->has_headers = true;
    if (bytes == NULL)
        return false;
    assert(grpc_byte_buffer_reader_init(&reader, bytes));
    all = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(bytes);
    c->last_len =
        GRPC_SLICE_LENGTH(all) < sizeof(c->last) ? GRPC_SLICE_LENGTH(all) : sizeof(c->last);
    memcpy(c->last, GRPC_SLICE_START_PTR(all), c->last_len);
    m = parley__v1__message__unpack(NULL, GRPC_SLICE_LENGTH(all), GRPC_SLICE_START_PTR(all));
    grpc_slice_unref(all);
    (void)snprintf(c->reply, sizeof(c->reply), "%s", m == NULL ? "" : m->text);
    parley__v1__message__free_unpacked(m, NULL);
    c->n_messages++;
    return true;
}

static void read_status_details(struct dialled *c, const grpc_slice *v)
{
    Google__Rpc__Status *status =
        google__rpc__status__unpack(NULL, GRPC_SLICE_LENGTH(*v), GRPC_SLICE_START_PTR(*v));

    assert(status != NULL && status->code == (int)c->status);
    assert(strcmp(status->message, c->words) == 0);
    c->n_details = status->n_details;
    google__rpc__status__free_unpacked(status, NULL);
}

static void read_trailer(struct dialled *c, const grpc_metadata *md)
{
    const grpc_slice *v = &md->value;
    Parley__V1__ErrorDetail *detail;

    if (grpc_slice_str_cmp(md->key, "retry-after-ms") == 0)
        (void)snprintf(c->retry_header, sizeof(c->retry_header), "%.*s", (int)GRPC_SLICE_LENGTH(*v),
                       (const char *)GRPC_SLICE_START_PTR(*v));
    if (grpc_slice_str_cmp(md->key, "grpc-status-details-bin") == 0)
        read_status_details(c, v);
    if (grpc_slice_str_cmp(md->key, "parley-error-bin") != 0)
        return;
    detail =
        parley__v1__error_detail__unpack(NULL, GRPC_SLICE_LENGTH(*v), GRPC_SLICE_START_PTR(*v));
    assert(detail != NULL);
    assert(strcmp(detail->message, c->words) == 0);
    c->code = detail->code;
    c->retry_ms = detail->retry_after_ms;
    (void)snprintf(c->field, sizeof(c->field), "%s", detail->field);
    (void)snprintf(c->reason, sizeof(c->reason), "%s", detail->reason);
    parley__v1__error_detail__free_unpacked(detail, NULL);
}

void dial_end(struct dial *d, struct dialled *c)
{
    grpc_op op[2] = {{.op = GRPC_OP_RECV_STATUS_ON_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};

    op[0].data.recv_status_on_client.trailing_metadata = &c->trailers;
    op[0].data.recv_status_on_client.status = &c->status;
    op[0].data.recv_status_on_client.status_details = &c->text;
    op[1].data.recv_initial_metadata.recv_initial_metadata = &c->headers;
    batch(d, c, op, c->has_headers ? 1 : 2); /* gRPC reports no status before the headers */
    (void)snprintf(c->words, sizeof(c->words), "%.*s", (int)GRPC_SLICE_LENGTH(c->text),
                   (const char *)GRPC_SLICE_START_PTR(c->text));
    for (size_t i = 0; i < c->trailers.count; i++)
        read_trailer(c, &c->trailers.metadata[i]);
    grpc_slice_unref(c->text);
    grpc_metadata_array_destroy(&c->trailers);
    grpc_metadata_array_destroy(&c->headers);
    grpc_call_unref(c->call);
}

void dial_unary(struct dial *d, struct dialled *c, const char *path, const char *text,
                uint32_t deadline_ms)
{
    dial_start(d, c, path, text, deadline_ms);
    while (dial_read(d, c))
        continue;
    dial_end(d, c);
}
