/* The happy path: port_start binds, registers the methods, requests some calls of each from gRPC,
 * and starts the pollers, which post every event of the completion queue into the mailbox. The loop
 * passes the event to its call (call.c). listener.c accepts the connections and gives them to gRPC:
 * its own listener (1.51) stops for ever, without a message, when accept fails once.
 * Events that complete inside the loop's own calls into gRPC wait in `back` and `ready` until the
 * loop is about to poll, so no handler is called from inside a function that it called; if some are
 * left after an iteration, idle keeps the loop from sleeping.
 *
 * Stop: every call gets its status, those that come yet are refused, and the peers are asked to
 * leave (PORT_ANSWERING, PORT_LEAVING). Only then, or a second later, the server is shut down: gRPC
 * core ends what it still has or gets after that with CANCELLED and no trailers. When it is down
 * and every call is back, the queue is shut down and drained, the pollers post their exit and are
 * joined, the mailbox and the handles are closed, and the last close frees the port. */
#include "server/rpc/port.h"

#include <assert.h>
#include <grpc/grpc.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/address.h"
#include "base/alloc.h"
#include "base/log.h"
#include "base/mailbox.h"
#include "proto/locks.h"
#include "server/net/listener.h"
#include "server/net/open_files.h"
#include "server/net/silents.h"
#include "server/net/tls.h"
#include "server/rpc/call_parts.h"
#include "server/rpc/connections.h"

static const struct limit_kind kind_of_calls = {"gRPC calls in flight", NULL, NULL};

enum port_stage {
    PORT_SERVING,
    PORT_ANSWERING, /* waits until its calls have their status */
    PORT_LEAVING,   /* waits until its peers have left */
    PORT_SHUT,
};

static const uint32_t port_moves[] = {
    [PORT_SERVING] = 1u << PORT_ANSWERING,
    [PORT_ANSWERING] = 1u << PORT_LEAVING | 1u << PORT_SHUT,
    [PORT_LEAVING] = 1u << PORT_SHUT,
    [PORT_SHUT] = 0,
};

/* Of HTTP/2, which the head of a SETTINGS frame follows. */
#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

enum {
    FIRST_BYTES = sizeof(PREFACE) - 1 + 9,
    ROUNDS_MAX = 8, /* of attending, before other work of the loop runs */
    MESSAGE_MAX_BYTES = 4 << 20,
    LOOKAHEAD_BYTES = 1 << 20,
    CALLS_MAX = 1 << 16,
    KEEPALIVE_MS = 60000, /* detects peers whose host is gone, or that never send */
    FAREWELL_MS = 1000,   /* from the stop to the shutdown, at most */
    FAREWELL_LOOK_MS = 5,
    ACKNOWLEDGE_MS = 20000, /* gRPC's own limit for the answer to a ping */
};

struct poller {
    struct port *port;
    struct rpc_op exited;
    uv_thread_t thread;
    bool is_started;
};

struct port {
    struct rpc_queue queue;
    struct mailbox mailbox;
    uv_prepare_t prepare; /* handles events of the loop's own calls */
    uv_idle_t idle;       /* active while prepare has left events */
    uv_timer_t farewell;  /* active from the stop to the shutdown */
    uint64_t farewell_until_ms;
    enum port_stage stage;
    struct rpc_connections connections;
    struct rpc_method *methods; /* [n_methods] */
    size_t n_methods;
    struct poller *pollers; /* [n_pollers] */
    size_t n_pollers, n_pollers_exited;
    grpc_server_credentials *insecure;
    struct tls *tls; /* NULL: none */
    struct tls_port_config tls_port;
    struct silents *silents;     /* NULL once it stops */
    struct listener **listeners; /* [n_listeners] until it stops */
    size_t n_listeners;
    struct rpc_op shutdown;
    unsigned n_handles; /* open handles of the loop */
    void (*stopped)(void *arg);
    void *stopped_arg;
};

static void port_free(struct port *p)
{
    struct link *link;

    while ((link = list_pop(&p->queue.spare)) != NULL)
        rpc_call_free_spare(link);
    grpc_server_credentials_release(p->insecure);
    shared_limit_deinit(&p->queue.calls);
    rpc_connections_deinit(&p->connections);
    free(p->listeners);
    free(p->methods);
    free(p->pollers);
    free(p);
    grpc_shutdown_blocking();
}

static void port_poll_queue(void *arg)
{
    struct poller *poller = arg;
    struct port *p = poller->port;
    grpc_event event;

    for (;;) {
        struct rpc_op *op;

        event =
            grpc_completion_queue_next(p->queue.events, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            break;
        op = event.tag;
        rpc_queue_take(&p->queue, op, event.success != 0);
        mailbox_post(&p->mailbox, &op->link);
    }
    mailbox_post(&p->mailbox, &poller->exited.link);
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

static void close_listeners(struct port *p)
{
    silents_close(p->silents);
    p->silents = NULL;
    while (p->n_listeners > 0)
        listener_close(p->listeners[--p->n_listeners]);
}

static void port_close_handles(struct port *p)
{
    mailbox_close(&p->mailbox, on_mailbox_closed);
    uv_close((uv_handle_t *)&p->prepare, on_handle_closed);
    uv_close((uv_handle_t *)&p->idle, on_handle_closed);
    uv_close((uv_handle_t *)&p->queue.tick, on_handle_closed);
    uv_close((uv_handle_t *)&p->farewell, on_handle_closed);
}

static void poller_exited(struct port *p)
{
    p->n_pollers_exited++;
    if (p->n_pollers_exited < p->n_pollers)
        return;
    for (size_t i = 0; i < p->n_pollers; i++)
        (void)uv_thread_join(&p->pollers[i].thread); /* the thread has left its loop: no wait */
    grpc_completion_queue_destroy(p->queue.events);
    port_close_handles(p);
}

static void op_back(struct link *link, void *arg)
{
    struct rpc_op *op = container_of(link, struct rpc_op, link);
    struct port *p = arg;

    if (op->call != NULL) {
        rpc_call_op_back(op);
    } else if (op->kind == OP_SHUTDOWN) {
        p->queue.is_shut_down = true;
        rpc_queue_maybe_stopped(&p->queue);
    } else {
        poller_exited(p);
    }
}

static void on_idle(uv_idle_t *idle)
{
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct port *p = prepare->data;
    struct list now;
    struct link *link;
    bool is_left = true;

    for (size_t round = 0; round < ROUNDS_MAX && is_left; round++) {
        list_init(&now);
        list_move(&p->queue.back, &now);
        while ((link = list_pop(&now)) != NULL)
            op_back(link, p);
        list_move(&p->queue.ready, &now);
        while ((link = list_pop(&now)) != NULL)
            rpc_call_attend(rpc_call_from_ready(link));
        is_left = !list_is_empty(&p->queue.back) || !list_is_empty(&p->queue.ready);
    }
    if (is_left && !uv_is_closing((uv_handle_t *)&p->idle))
        (void)uv_idle_start(&p->idle, on_idle); /* cannot fail with a callback */
    else if (!is_left)
        (void)uv_idle_stop(&p->idle);
}

/* gRPC's own log serves to debug gRPC; we get failures as statuses. */
static void on_grpc_log(gpr_log_func_args *args)
{
    char text[ERROR_TEXT_MAX];

    log_debug("grpc", "text=%s", log_quote(text, sizeof(text), args->message));
}

/* For gRPC, to which INT_MAX milliseconds are for ever. */
static int port_int(uint64_t n)
{
    return n == 0 || n > INT_MAX ? INT_MAX : (int)n;
}

static grpc_server *server_make(const struct port_config *config, size_t max_message_bytes)
{
    struct {
        const char *key;
        int value;
    } const ints[] = {
        {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, port_int(max_message_bytes)},
        {GRPC_ARG_MAX_CONNECTION_IDLE_MS, port_int(config->idle_ms)},
        {GRPC_ARG_MAX_CONNECTION_AGE_MS, port_int(config->age_ms)},
        {GRPC_ARG_ENABLE_CHANNELZ, 0},
        {GRPC_ARG_ENABLE_CENSUS, 0},
        /* Bound of an unread stream's buffer: probing would let it grow to 16 MiB each. */
        {GRPC_ARG_HTTP2_BDP_PROBE, 0},
        {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, LOOKAHEAD_BYTES},
        {GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ACKNOWLEDGE_MS},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
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

static void register_method(struct port *p, const struct call_method *row)
{
    struct rpc_method *m = &p->methods[p->n_methods++];

    m->row = row;
    m->registered = grpc_server_register_method(p->queue.server, row->path, NULL,
                                                call_method_is_client_stream(row)
                                                    ? GRPC_SRM_PAYLOAD_NONE
                                                    : GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER,
                                                0);
    assert(m->registered != NULL); /* NULL for a duplicate path */
}

static bool port_serves(enum port_part part, const struct call_method *row)
{
    bool is_admin = row->access == ACCESS_ADMIN;

    return part == PORT_EVERYTHING || row->access == ACCESS_OPEN ||
           is_admin == (part == PORT_ADMIN);
}

static struct port *port_make(const struct port_config *config)
{
    struct port *p = xalloc(sizeof(*p));
    size_t n_methods = 1; /* one for unknown methods */

    rpc_queue_init(&p->queue, rpc_call_tick);
    p->queue.carried = config->server;
    p->queue.stats = config->stats;
    p->queue.health = config->health;
    p->queue.access = config->access;
    p->queue.admit_passed = config->admit_passed;
    p->queue.admit_arg = config->admit_arg;
    p->queue.env = config->env;
    p->queue.max_message_bytes =
        config->max_message_bytes == 0 ? MESSAGE_MAX_BYTES : config->max_message_bytes;
    p->queue.max_calls = config->max_calls == 0 ? CALLS_MAX : config->max_calls;
    shared_limit_init(&p->queue.calls, &kind_of_calls, p->queue.max_calls);
    p->shutdown.kind = OP_SHUTDOWN;
    p->listeners = xalloc(config->n_listen * sizeof(*p->listeners));
    for (size_t i = 0; i < config->n_services; i++)
        n_methods += config->services[i]->n;
    p->methods = xalloc(n_methods * sizeof(*p->methods));
    p->n_pollers = config->n_threads == 0 ? 1 : config->n_threads;
    p->pollers = xalloc(p->n_pollers * sizeof(*p->pollers));
    (void)locks_unchecked(); /* on failure calls cost more */
    grpc_init();
    gpr_set_log_function(on_grpc_log);
    p->queue.events = grpc_completion_queue_create_for_next(NULL);
    p->queue.server = server_make(config, p->queue.max_message_bytes);
    p->insecure = grpc_insecure_server_credentials_create();
    grpc_server_register_completion_queue(p->queue.server, p->queue.events, NULL);
    for (size_t i = 0; i < config->n_services; i++)
        for (size_t k = 0; k < config->services[i]->n; k++)
            if (port_serves(config->part, &config->services[i]->rows[k]))
                register_method(p, &config->services[i]->rows[k]);
    p->n_methods++; /* without row */
    return p;
}

/* For a server that was never started, and whose queue has no poller. */
static void server_unmake(struct port *p)
{
    const gpr_timespec never = gpr_inf_future(GPR_CLOCK_REALTIME);

    grpc_server_shutdown_and_notify(p->queue.server, p->queue.events, NULL);
    (void)grpc_completion_queue_next(p->queue.events, never, NULL); /* the only event */
    grpc_server_destroy(p->queue.server);
    grpc_completion_queue_shutdown(p->queue.events);
    while (grpc_completion_queue_next(p->queue.events, never, NULL).type != GRPC_QUEUE_SHUTDOWN)
        continue;
    grpc_completion_queue_destroy(p->queue.events);
}

static void port_open_handles(struct port *p, uv_loop_t *loop)
{
    (void)uv_prepare_init(loop, &p->prepare); /* none can fail */
    (void)uv_idle_init(loop, &p->idle);
    rpc_queue_open_tick(&p->queue, loop);
    (void)uv_timer_init(loop, &p->farewell);
    p->prepare.data = p->idle.data = p->queue.tick.data = p->farewell.data = p;
    (void)uv_prepare_start(&p->prepare, on_prepare);
    p->n_handles = 5; /* with the mailbox */
}

/* Fewer threads than wanted are enough. None is a failure; gRPC is then not shut down: its shutdown
 * (1.51) also waits for own threads that could not be started. */
static enum status start_pollers(struct port *p, struct error *err)
{
    size_t n_wanted = p->n_pollers;
    int rc = 0;

    for (p->n_pollers = 0; p->n_pollers < n_wanted; p->n_pollers++) {
        struct poller *poller = &p->pollers[p->n_pollers];

        poller->port = p;
        poller->exited.kind = OP_THREAD_EXITED;
        rc = uv_thread_create(&poller->thread, port_poll_queue, poller);
        if (rc != 0)
            break;
    }
    if (p->n_pollers == 0)
        return error_set(err, STATUS_EXHAUSTED, "cannot start a thread: %s", uv_strerror(rc));
    return STATUS_OK;
}

static void on_spoke(void *arg, int fd)
{
    struct port *p = arg;

    rpc_connections_add(&p->connections, fd);
    grpc_server_add_channel_from_fd(p->queue.server, fd, p->insecure);
}

/* gRPC core would wait for a minute, and then for the answer to a ping. Once the stop has begun
 * there are no silents: a TLS handshake that ends then comes too late. */
static void on_accepted(void *arg, int fd)
{
    struct port *p = arg;

    if (p->silents != NULL)
        silents_add(p->silents, fd);
    else
        (void)close(fd); /* nothing was sent */
}

static bool on_no_room(void *arg)
{
    struct port *p = arg;

    return silents_drop_oldest(p->silents) ||
           (p->tls != NULL && tls_drop_oldest(p->tls, &p->tls_port));
}

static void on_accepted_tls(void *arg, int fd)
{
    struct port *p = arg;

    tls_accept(p->tls, &p->tls_port, fd);
}

static enum status open_listeners(struct port *p, uv_loop_t *loop, const struct port_config *config,
                                  struct error *err)
{
    const size_t max_descriptors =
        config->part == PORT_ADMIN ? open_files_for_admin() : open_files_for_grpc();
    const struct silents_config silents = {.timeout_ms = SILENT_MS,
                                           .n_first = FIRST_BYTES,
                                           .preface = PREFACE,
                                           .spoke = on_spoke,
                                           .arg = p,
                                           .n_dropped = config->n_dropped};
    enum status rc = STATUS_OK;

    p->silents = silents_open(loop, &silents);
    p->tls = config->tls;
    p->tls_port = (struct tls_port_config){TLS_H2, max_descriptors, on_accepted, p};
    for (size_t i = 0; i < config->n_listen && rc == STATUS_OK; i++) {
        bool is_plain = p->tls == NULL || address_unix_path(config->listen[i]) != NULL;
        const struct listener_config listen = {.name = "grpc",
                                               .address = config->listen[i],
                                               .max_descriptors = max_descriptors,
                                               .make_room = on_no_room,
                                               .n_refused = config->n_refused,
                                               .user_timeout_ms = ACKNOWLEDGE_MS,
                                               .peer_addresses = config->peer_addresses,
                                               .inherited = config->inherited,
                                               .accepted = is_plain ? on_accepted : on_accepted_tls,
                                               .arg = p};

        rc = listener_open(&p->listeners[i], loop, &listen, err);
        p->n_listeners += rc == STATUS_OK;
    }
    return rc;
}

enum status port_start(struct port **out, uv_loop_t *loop, const struct port_config *config,
                       struct error *err)
{
    struct port *p = port_make(config);
    enum status rc = open_listeners(p, loop, config, err);

    if (rc == STATUS_OK)
        rc = mailbox_open(&p->mailbox, loop, op_back, p, err);
    if (rc != STATUS_OK) {
        close_listeners(p);
        server_unmake(p);
        port_free(p);
        return rc;
    }
    port_open_handles(p, loop);
    rc = start_pollers(p, err);
    if (rc != STATUS_OK) {
        close_listeners(p);
        grpc_init();           /* keeps port_free from shutting gRPC down */
        port_close_handles(p); /* frees p in the loop's next iterations */
        return rc;
    }
    grpc_server_start(p->queue.server);
    for (size_t i = 0; i < p->n_methods; i++) {
        p->methods[i].n_wanted = CALLS_WAITING_MIN;
        rpc_call_request_more(&p->queue, &p->methods[i]);
    }
    *out = p;
    return STATUS_OK;
}

const char *port_address(const struct port *p, size_t i)
{
    assert(i < p->n_listeners);
    return listener_address(p->listeners[i]);
}

void port_serve(struct port *p)
{
    ASSERT_OWNER(&p->queue.owner);
    for (size_t i = 0; i < p->n_listeners; i++)
        listener_serve(p->listeners[i]);
}

void port_drain(struct port *p)
{
    struct link *link, *next;

    ASSERT_OWNER(&p->queue.owner);
    p->queue.is_draining = true;
    for (size_t i = 0; i < p->n_listeners; i++)
        listener_drain(p->listeners[i]);
    for (link = list_first(&p->queue.live); link != NULL; link = next) {
        next = list_next(&p->queue.live, link);
        rpc_call_drain(rpc_call_from_live(link));
    }
}

size_t port_n_awaited(const struct port *p)
{
    ASSERT_OWNER(&p->queue.owner);
    return p->queue.n_live - p->queue.n_unawaited;
}

void port_check_keys(struct port *p)
{
    ASSERT_OWNER(&p->queue.owner);
    for (struct link *link = list_first(&p->queue.live); link != NULL;
         link = list_next(&p->queue.live, link))
        rpc_call_check_key(rpc_call_from_live(link));
}

void port_end(struct port *p)
{
    struct error err;

    ASSERT_OWNER(&p->queue.owner);
    (void)error_draining(&err);
    p->queue.is_refusing = true;
    for (struct link *link = list_first(&p->queue.live); link != NULL;
         link = list_next(&p->queue.live, link))
        rpc_call_end(rpc_call_from_live(link), &err);
}

size_t port_n_unanswered(const struct port *p)
{
    ASSERT_OWNER(&p->queue.owner);
    return p->queue.n_ending;
}

void port_cut_off(struct port *p)
{
    ASSERT_OWNER(&p->queue.owner);
    for (struct link *link = list_first(&p->queue.live); link != NULL;
         link = list_next(&p->queue.live, link))
        rpc_call_cancel(rpc_call_from_live(link));
}

static void port_move(struct port *p, enum port_stage to)
{
    assert((port_moves[p->stage] & 1u << to) != 0);
    p->stage = to;
}

/* What is left is cut off: peers that did not leave, and calls whose status they do not read. */
static void port_shut(struct port *p)
{
    port_move(p, PORT_SHUT);
    p->queue.is_stopping = true;
    (void)uv_timer_stop(&p->farewell); /* cannot fail */
    rpc_op_give(&p->shutdown);
    grpc_server_shutdown_and_notify(p->queue.server, p->queue.events, &p->shutdown);
    grpc_server_cancel_all_calls(p->queue.server); /* closes all connections */
}

static void on_farewell(uv_timer_t *farewell)
{
    struct port *p = farewell->data;
    bool is_over = uv_now(farewell->loop) >= p->farewell_until_ms;

    if (p->stage == PORT_ANSWERING && p->queue.n_ending == 0)
        port_move(p, PORT_LEAVING);
    if (p->stage == PORT_LEAVING)
        rpc_connections_ask_to_leave(&p->connections);
    if (is_over || (p->stage == PORT_LEAVING && rpc_connections_n_open(&p->connections) == 0))
        port_shut(p);
}

void port_stop(struct port *p, void (*stopped)(void *arg), void *arg)
{
    ASSERT_OWNER(&p->queue.owner);
    p->stopped = stopped;
    p->stopped_arg = arg;
    port_move(p, PORT_ANSWERING);
    close_listeners(p);
    port_end(p);
    p->farewell_until_ms = uv_now(p->farewell.loop) + FAREWELL_MS;
    (void)uv_timer_start(&p->farewell, on_farewell, 0, FAREWELL_LOOK_MS); /* only when closing */
}
