/* The happy path: port_start binds, registers the methods, asks gRPC for some calls of each, and
 * starts the pollers, which post every event of the completion queue into the mailbox.
 * The loop hands it to the call (call.c). What the loop's own calls into gRPC bring about on the
 * spot waits in `back` and `ready` until the loop is about to poll, so that no handler is ever
 * called from inside a function that it called; a round that leaves more keeps the loop from
 * sleeping (idle).
 *
 * Stop: calls are cancelled and the server shut down; when it is, and every call has come back, the
 * queue is shut down and drained, the pollers post themselves and are joined, the mailbox and the
 * handles are closed, and the last close frees the port. */
#include "server/port.h"

#include <assert.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <limits.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/log.h"
#include "proto/locks.h"
#include "server/call_parts.h"

enum {
    ROUNDS_MAX = 8, /* of attending, before the loop's other work has its turn */
    MESSAGE_MAX_BYTES = 4 << 20,
    LOOKAHEAD_BYTES = 1 << 20,
    CALLS_MAX = 1 << 16,
};

static void port_free(struct port *p)
{
    struct link *link;

    while ((link = list_pop(&p->spare)) != NULL)
        call_free_spare(link);
    for (size_t i = 0; i < p->n_addresses; i++)
        free(p->addresses[i]);
    free(p->addresses);
    free(p->methods);
    free(p->pollers);
    free(p);
    grpc_shutdown_blocking();
}

static void poll_queue(void *arg)
{
    struct poller *poller = arg;
    struct port *p = poller->port;
    grpc_event event;

    for (;;) {
        struct op *op;

        event = grpc_completion_queue_next(p->queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            break;
        op = event.tag;
        op_take(op, event.success != 0);
        mailbox_post(&p->mailbox, &op->link);
    }
    mailbox_post(&p->mailbox, &poller->gone.link);
}

static void handle_closed(struct port *p)
{
    void (*stopped)(void *) = p->stopped;
    void *arg = p->stopped_arg;

    if (--p->n_handles > 0)
        return;
    port_free(p);
    if (stopped != NULL)
        stopped(arg);
}

static void on_mailbox_closed(void *arg)
{
    handle_closed(arg);
}

static void on_handle_closed(uv_handle_t *handle)
{
    handle_closed(handle->data);
}

static void close_queue(struct port *p)
{
    grpc_completion_queue_destroy(p->queue);
    for (size_t i = 0; i < p->n_addresses; i++)
        listen_remove(p->addresses[i]);
}

static void close_handles(struct port *p)
{
    mailbox_close(&p->mailbox, on_mailbox_closed);
    uv_close((uv_handle_t *)&p->prepare, on_handle_closed);
    uv_close((uv_handle_t *)&p->idle, on_handle_closed);
    uv_close((uv_handle_t *)&p->tick, on_handle_closed);
}

static void poller_gone(struct port *p)
{
    p->n_pollers_gone++;
    if (p->n_pollers_gone < p->n_pollers)
        return;
    for (size_t i = 0; i < p->n_pollers; i++)
        (void)uv_thread_join(&p->pollers[i].thread); /* it has left its loop: no wait */
    close_queue(p);
    close_handles(p);
}

void port_maybe_stopped(struct port *p)
{
    if (!p->is_shut_down || p->server == NULL || p->n_requested > 0 || p->n_live > 0)
        return;
    grpc_server_destroy(p->server);
    p->server = NULL;
    grpc_completion_queue_shutdown(p->queue);
}

static void op_back(struct link *link, void *arg)
{
    struct op *op = container_of(link, struct op, link);
    struct port *p = arg;

    if (op->call != NULL) {
        call_op_back(op);
    } else if (op->kind == OP_SHUTDOWN) {
        p->is_shut_down = true;
        port_maybe_stopped(p);
    } else {
        poller_gone(p);
    }
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle; /* there only to keep the loop from sleeping */
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct port *p = prepare->data;
    struct list now;
    struct link *link;
    bool is_left = true;

    for (size_t round = 0; round < ROUNDS_MAX && is_left; round++) {
        list_init(&now);
        list_move(&p->back, &now);
        while ((link = list_pop(&now)) != NULL)
            op_back(link, p);
        list_move(&p->ready, &now);
        while ((link = list_pop(&now)) != NULL)
            call_attend(call_from_ready(link));
        is_left = !list_is_empty(&p->back) || !list_is_empty(&p->ready);
    }
    if (is_left && !uv_is_closing((uv_handle_t *)&p->idle))
        (void)uv_idle_start(&p->idle, on_idle); /* cannot fail with a callback */
    else if (!is_left)
        (void)uv_idle_stop(&p->idle);
}

static void on_tick(uv_timer_t *tick)
{
    struct port *p = tick->data;
    struct link *link;

    while ((link = list_pop(&p->older)) != NULL)
        call_watch_young(link);
    while ((link = list_pop(&p->put_off_older)) != NULL)
        call_read_now(link);
    list_move(&p->young, &p->older);
    list_move(&p->put_off, &p->put_off_older);
    if (list_is_empty(&p->older) && list_is_empty(&p->put_off_older))
        (void)uv_timer_stop(tick); /* cannot fail */
}

static void await_tick(struct port *p, struct list *list, struct link *link)
{
    list_push(list, link);
    if (!uv_is_active((uv_handle_t *)&p->tick))
        (void)uv_timer_start(&p->tick, on_tick, UNWATCHED_MS, UNWATCHED_MS); /* nor can this */
}

void port_add_young(struct port *p, struct link *young)
{
    await_tick(p, &p->young, young);
}

void port_put_off(struct port *p, struct link *put_off)
{
    await_tick(p, &p->put_off, put_off);
}

/* gRPC's own lines are for who debugs gRPC; what matters comes to us as statuses. */
static void on_grpc_log(gpr_log_func_args *args)
{
    char text[ERROR_TEXT_MAX];

    log_debug("grpc", "text=%s", log_quote(text, sizeof(text), args->message));
}

static grpc_server *server_make(size_t max_message_bytes)
{
    const int max_bytes = max_message_bytes > INT_MAX ? INT_MAX : (int)max_message_bytes;
    struct {
        const char *key;
        int value;
    } const ints[] = {
        {GRPC_ARG_ALLOW_REUSEPORT, 0}, /* a taken port is an error */
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, max_bytes},
        {GRPC_ARG_ENABLE_CHANNELZ, 0},
        {GRPC_ARG_ENABLE_CENSUS, 0},
        /* What a stream that is not read may bring: probing would let it grow to 16 MiB each. */
        {GRPC_ARG_HTTP2_BDP_PROBE, 0},
        {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, LOOKAHEAD_BYTES},
        {GRPC_ARG_KEEPALIVE_TIME_MS, 60000}, /* a peer whose host is gone */
        {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000},
    };
    grpc_arg args[sizeof(ints) / sizeof(ints[0])];
    grpc_channel_args all = {sizeof(args) / sizeof(args[0]), args};

    for (size_t i = 0; i < all.num_args; i++) {
        args[i].type = GRPC_ARG_INTEGER;
        args[i].key = (char *)(uintptr_t)ints[i].key; /* gRPC only reads it */
        args[i].value.integer = ints[i].value;
    }
    return grpc_server_create(&all, NULL);
}

static struct port *port_make(const struct port_config *config)
{
    struct port *p = xalloc(sizeof(*p));

    home_init(&p->home);
    p->daemon = config->daemon;
    p->env = config->env;
    p->max_message_bytes =
        config->max_message_bytes == 0 ? MESSAGE_MAX_BYTES : config->max_message_bytes;
    p->max_calls = config->max_calls == 0 ? CALLS_MAX : config->max_calls;
    list_init(&p->live);
    list_init(&p->spare);
    list_init(&p->back);
    list_init(&p->ready);
    list_init(&p->young);
    list_init(&p->older);
    list_init(&p->put_off);
    list_init(&p->put_off_older);
    p->shutdown.kind = OP_SHUTDOWN;
    p->addresses = xalloc(config->n_listen * sizeof(char *));
    p->n_methods = config->n_rpcs + 1;
    p->methods = xalloc(p->n_methods * sizeof(*p->methods));
    p->n_pollers = config->n_threads == 0 ? 1 : config->n_threads;
    p->pollers = xalloc(p->n_pollers * sizeof(*p->pollers));
    (void)locks_unchecked(); /* without it calls cost more */
    grpc_init();
    gpr_set_log_function(on_grpc_log);
    p->queue = grpc_completion_queue_create_for_next(NULL);
    p->server = server_make(p->max_message_bytes);
    grpc_server_register_completion_queue(p->server, p->queue, NULL);
    for (size_t i = 0; i < config->n_rpcs; i++) {
        struct method *m = &p->methods[i];

        m->rpc = &config->rpcs[i];
        m->registered = grpc_server_register_method(
            p->server, m->rpc->path, NULL,
            rpc_is_fed(m->rpc) ? GRPC_SRM_PAYLOAD_NONE : GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER,
            0);
        assert(m->registered != NULL); /* NULL for a path that is there twice */
    }
    return p;
}

/* Of a server that was never started, and whose queue nobody polls. */
static void server_unmake(struct port *p)
{
    const gpr_timespec never = gpr_inf_future(GPR_CLOCK_REALTIME);

    grpc_server_shutdown_and_notify(p->server, p->queue, NULL);
    (void)grpc_completion_queue_next(p->queue, never, NULL); /* the one event there is */
    grpc_server_destroy(p->server);
    grpc_completion_queue_shutdown(p->queue);
    while (grpc_completion_queue_next(p->queue, never, NULL).type != GRPC_QUEUE_SHUTDOWN)
        continue;
}

static void open_handles(struct port *p, uv_loop_t *loop)
{
    (void)uv_prepare_init(loop, &p->prepare); /* none can fail */
    (void)uv_idle_init(loop, &p->idle);
    (void)uv_timer_init(loop, &p->tick);
    p->prepare.data = p->idle.data = p->tick.data = p;
    (void)uv_prepare_start(&p->prepare, on_prepare);
    p->n_handles = 4; /* with the mailbox */
}

/* Fewer than wanted will do; none is a failure. */
static enum status start_pollers(struct port *p, struct error *err)
{
    size_t n_wanted = p->n_pollers;
    int rc = 0;

    for (p->n_pollers = 0; p->n_pollers < n_wanted; p->n_pollers++) {
        struct poller *poller = &p->pollers[p->n_pollers];

        poller->port = p;
        poller->gone.kind = OP_THREAD_GONE;
        rc = uv_thread_create(&poller->thread, poll_queue, poller);
        if (rc != 0)
            break;
    }
    if (p->n_pollers == 0)
        return error_set(err, STATUS_EXHAUSTED, "cannot start a thread: %s", uv_strerror(rc));
    return STATUS_OK;
}

enum status port_start(struct port **out, uv_loop_t *loop, const struct port_config *config,
                       struct error *err)
{
    struct port *p = port_make(config);
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < config->n_listen && rc == STATUS_OK; i++) {
        rc = listen_add(&p->addresses[i], p->server, config->listen[i], err);
        p->n_addresses += rc == STATUS_OK;
    }
    if (rc == STATUS_OK)
        rc = mailbox_open(&p->mailbox, loop, op_back, p, err);
    if (rc != STATUS_OK) {
        server_unmake(p);
        close_queue(p);
        port_free(p);
        return rc;
    }
    open_handles(p, loop);
    rc = start_pollers(p, err);
    if (rc != STATUS_OK) {
        server_unmake(p);
        close_queue(p);
        close_handles(p); /* frees p in the loop's coming rounds */
        return rc;
    }
    grpc_server_start(p->server);
    for (size_t i = 0; i < p->n_methods; i++) {
        p->methods[i].n_wanted = CALLS_WAITING_MIN;
        call_request_more(p, &p->methods[i]);
    }
    *out = p;
    return STATUS_OK;
}

const char *port_address(const struct port *p, size_t i)
{
    assert(i < p->n_addresses);
    return p->addresses[i];
}

void port_stats(const struct port *p, struct port_stats *out)
{
    ASSERT_HOME(&p->home);
    *out = (struct port_stats){p->n_live, p->n_started, p->n_failed};
}

void port_drain(struct port *p)
{
    ASSERT_HOME(&p->home);
    p->is_draining = true;
}

void port_cancel_all(struct port *p)
{
    ASSERT_HOME(&p->home);
    for (struct link *link = list_first(&p->live); link != NULL; link = list_next(&p->live, link))
        call_cancel(call_from_live(link));
}

void port_stop(struct port *p, void (*stopped)(void *arg), void *arg)
{
    ASSERT_HOME(&p->home);
    assert(!p->is_stopping);
    p->is_draining = p->is_stopping = true;
    p->stopped = stopped;
    p->stopped_arg = arg;
    port_cancel_all(p);
    op_give(&p->shutdown);
    grpc_server_shutdown_and_notify(p->server, p->queue, &p->shutdown);
}
