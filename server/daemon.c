/* Start: the loop's handles, the port (so that a taken one is known at once, and health and Models
 * answer while models load), then each model on its own thread. When all are loaded the daemon
 * serves, and says so in one line.
 *
 * Stop: SIGTERM or SIGINT drain: no new conversations and turns, what is in flight goes on, streams
 * that would linger end. When all is quiet, or the time is up, or a second signal comes, the daemon
 * ends: what is left is cancelled; turns go with their steps, then conversations, sessions and
 * parameters, then models with their threads, then the port, then the loop's handles. go_on asks,
 * after each of these, for the next; nothing else decides about it. A start that fails goes the
 * same way. */
#include "server/daemon.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "proto/descriptors.h"
#include "server/services.h"

enum { SESSION_TTL_MS = 10 * 60 * 1000 };
enum { DRAIN_LOOK_MS = 10, READY_MAX_BYTES = 4096, HTTP_BODY_BYTES = 4 << 20 };

static const uint32_t daemon_moves[] = {
    [DAEMON_LOADING] = 1u << DAEMON_SERVING | 1u << DAEMON_ENDING,
    [DAEMON_SERVING] = 1u << DAEMON_DRAINING | 1u << DAEMON_ENDING,
    [DAEMON_DRAINING] = 1u << DAEMON_ENDING,
    [DAEMON_ENDING] = 1u << DAEMON_STOPPED,
    [DAEMON_STOPPED] = 0,
};

static void daemon_move(struct daemon *d, enum daemon_state to)
{
    assert((daemon_moves[d->state] & 1u << to) != 0);
    d->state = to;
    log_debug("daemon", "state=%s", daemon_state_name(d));
}

const char *daemon_state_name(const struct daemon *d)
{
    static const char *const names[] = {
        [DAEMON_LOADING] = "loading", [DAEMON_SERVING] = "serving", [DAEMON_DRAINING] = "draining",
        [DAEMON_ENDING] = "ending",   [DAEMON_STOPPED] = "stopped",
    };

    return names[d->state];
}

struct health *daemon_health(struct daemon *d)
{
    return &d->health;
}

enum status daemon_model(struct model **out, const struct daemon *d, const char *name,
                         struct error *err)
{
    char names[160] = "";
    size_t len = 0;

    if (name[0] == '\0' && d->n_models > 0) {
        *out = d->models[0];
        return STATUS_OK;
    }
    for (size_t i = 0; i < d->n_models; i++) {
        const char *served = d->models[i]->name;

        if (strcmp(served, name) == 0) {
            *out = d->models[i];
            return STATUS_OK;
        }
        if (len + strlen(served) + 3 < sizeof(names))
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", i > 0 ? ", " : "",
                                    served);
    }
    if (repository_find(&d->repository, name) != NULL)
        return error_set(err, STATUS_UNAVAILABLE, "model '%s' is not loaded; there are: %s", name,
                         names);
    return error_set(err, STATUS_NOT_FOUND, "there is no model '%.40s', there are: %s", name,
                     names);
}

void endless_begin(struct endless *l, struct daemon *d, void (*drain)(struct endless *l))
{
    l->drain = drain;
    list_push(&d->endless, &l->link);
    if (d->state > DAEMON_SERVING)
        drain(l);
}

void endless_end(struct endless *l)
{
    list_remove(&l->link);
}

/* --- stopping --- */

static void go_on(struct daemon *d);

static void on_later(uv_idle_t *idle)
{
    struct daemon *d = idle->data;

    (void)uv_idle_stop(idle); /* cannot fail */
    go_on(d);
}

/* go_on, from the loop itself: whoever calls may be deep inside what is to be stopped. */
static void go_on_later(void *arg)
{
    struct daemon *d = arg;

    if (d->state == DAEMON_DRAINING || d->state == DAEMON_ENDING)
        (void)uv_idle_start(&d->later, on_later); /* fails only without a callback */
}

static void end(struct daemon *d)
{
    daemon_move(d, DAEMON_ENDING);
    repository_end(&d->repository);
    health_set_all(&d->health, HEALTH_NOT_SERVING);
    conversations_drain(&d->conversations);
    conversations_cancel_all(&d->conversations);
    sequences_retire(&d->sequences, NULL);
    sessions_drain(&d->sessions);
    sessions_close_all(&d->sessions, NULL);
    http_stop(d->http);
    if (d->port != NULL) {
        port_drain(d->port);
        port_cancel_all(d->port);
    }
    go_on_later(d);
}

static void fail(struct daemon *d, const struct error *err)
{
    if (d->err.status == STATUS_OK)
        d->err = *err;
    if (d->state != DAEMON_ENDING)
        end(d);
}

void daemon_model_stopped(struct daemon *d)
{
    d->n_models_running--;
    go_on_later(d);
}

static void on_model_stopped(void *arg)
{
    daemon_model_stopped(arg);
}

static void on_port_stopped(void *arg)
{
    struct daemon *d = arg;

    d->port = NULL;
    go_on_later(d);
}

/* Calls in flight, but for those that watch health, which end with the port. */
static size_t count_calls(const struct daemon *d)
{
    struct port_stats stats;
    size_t n_watching = 0;

    port_stats(d->port, &stats);
    for (struct link *l = list_first(&d->health.watchers); l != NULL;
         l = list_next(&d->health.watchers, l))
        n_watching++;
    return stats.n_calls - n_watching;
}

static void close_handles(struct daemon *d)
{
    uv_close((uv_handle_t *)&d->expiry_timer, NULL);
    uv_close((uv_handle_t *)&d->sessions_timer, NULL);
    uv_close((uv_handle_t *)&d->sequences_timer, NULL);
    uv_close((uv_handle_t *)&d->repository.timer, NULL);
    uv_close((uv_handle_t *)&d->drain_timer, NULL);
    uv_close((uv_handle_t *)&d->later, NULL);
    for (size_t i = 0; i < N_SIGNALS; i++)
        uv_close((uv_handle_t *)&d->signals[i], NULL);
}

static void go_on(struct daemon *d)
{
    if (d->state == DAEMON_DRAINING && d->conversations.n_live == 0 && count_calls(d) == 0 &&
        (d->http == NULL || http_n_answering(d->http) == 0))
        end(d);
    if (d->state != DAEMON_ENDING)
        return;
    if (d->n_loading > 0 || d->conversations.n_live > 0 || d->sessions.n_asking > 0 ||
        !trainers_are_idle(&d->trainers))
        return; /* a load or a step that runs is waited for */
    conversations_close_all(&d->conversations, NULL, "the server stops");
    assert(d->conversations.n_closing == 0);
    params_sets_stop(&d->params);
    if (d->params.n > 0)
        return;
    if (!d->is_stopping_models) {
        d->is_stopping_models = true;
        for (size_t i = 0; i < d->n_models; i++)
            model_stop(d->models[i], on_model_stopped, d);
    }
    if (d->n_models_running > 0)
        return;
    if (d->port != NULL) {
        if (!d->is_stopping_port)
            port_stop(d->port, on_port_stopped, d);
        d->is_stopping_port = true;
        return;
    }
    daemon_move(d, DAEMON_STOPPED);
    close_handles(d);
}

/* The port tells nobody that its last call has gone, so this looks. */
static void on_drain_timer(uv_timer_t *timer)
{
    struct daemon *d = timer->data;

    if (d->state == DAEMON_DRAINING && env_now_us(&d->env) >= d->drain_until_us) {
        log_warn("drain", "turns=%zu cancelled=all", d->conversations.n_live);
        end(d);
    }
    go_on_later(d);
}

static void drain(struct daemon *d)
{
    struct link *l, *next;

    daemon_move(d, DAEMON_DRAINING);
    log_info("draining", "turns=%zu", d->conversations.n_live);
    health_set_all(&d->health, HEALTH_NOT_SERVING);
    conversations_drain(&d->conversations);
    sessions_drain(&d->sessions);
    if (d->http != NULL)
        http_drain(d->http);
    for (l = list_first(&d->endless); l != NULL; l = next) {
        struct endless *e = container_of(l, struct endless, link);

        next = list_next(&d->endless, l);
        e->drain(e);
    }
    d->drain_until_us = env_now_us(&d->env) + d->config.drain_timeout_ms * 1000;
    (void)uv_timer_start(&d->drain_timer, on_drain_timer, DRAIN_LOOK_MS,
                         DRAIN_LOOK_MS); /* fails only when closing */
    go_on_later(d);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;

    log_info("signal", "name=%s", number == SIGTERM ? "SIGTERM" : "SIGINT");
    if (d->state == DAEMON_SERVING)
        drain(d);
    else if (d->state < DAEMON_ENDING)
        end(d);
}

/* --- starting --- */

static void arm(struct daemon *d, uv_timer_t *timer, uv_timer_cb then, uint64_t at_us)
{
    uint64_t now_us = env_now_us(&d->env);

    if (at_us == 0)
        (void)uv_timer_stop(timer); /* cannot fail */
    else
        (void)uv_timer_start(timer, then, at_us > now_us ? (at_us - now_us + 999) / 1000 : 0,
                             0); /* fails only when closing */
}

static void on_expiry_timer(uv_timer_t *timer)
{
    struct daemon *d = timer->data;

    conversations_tick(&d->conversations);
}

static void arm_expiry(void *self, uint64_t at_us)
{
    struct daemon *d = self;

    arm(d, &d->expiry_timer, on_expiry_timer, at_us);
}

static void on_sessions_timer(uv_timer_t *timer)
{
    struct daemon *d = timer->data;

    sessions_tick(&d->sessions);
}

static void arm_sessions(void *self, uint64_t at_us)
{
    struct daemon *d = self;

    arm(d, &d->sessions_timer, on_sessions_timer, at_us);
}

static void on_sequences_timer(uv_timer_t *timer)
{
    struct daemon *d = timer->data;

    sequences_tick(&d->sequences);
}

static void arm_sequences(void *self, uint64_t at_us)
{
    struct daemon *d = self;

    arm(d, &d->sequences_timer, on_sequences_timer, at_us);
}

static void on_clone_event(void *arg, struct clone *c, enum clone_event what, const char *reason)
{
    struct daemon *d = arg;

    conversations_clone_event(&d->conversations, c,
                              what == CLONE_EVICTED ? WATCH_EVICTED : WATCH_RECOMPUTED, reason);
}

/* The one line by which others know that it serves, and where: at its first address. */
static void say_ready(const struct daemon *d)
{
    enum status rc;
    struct buf line;

    buf_init(&line, READY_MAX_BYTES);
    rc = buf_printf(&line, "ready grpc=%s", port_address(d->port, 0));
    if (rc == STATUS_OK && d->http != NULL)
        rc = buf_printf(&line, " http=%s", http_address(d->http));
    for (size_t i = 0; i < d->n_models && rc == STATUS_OK; i++)
        rc = buf_printf(&line, "%s%s", i == 0 ? " models=" : ",", d->models[i]->name);
    if (rc == STATUS_OK)
        rc = buf_printf(&line, " in=%llu\n",
                        (unsigned long long)((env_now_us(&d->env) - d->start_us) / 1000));
    if (rc == STATUS_OK)
        (void)!write(STDERR_FILENO, line.data, line.len); /* nobody to tell if it fails */
    buf_deinit(&line);
}

static void on_model_loaded(struct model *m, void *arg)
{
    struct daemon *d = arg;
    char text[2 * BACKEND_PRODUCTS_MAX];

    d->n_loading--;
    if (m->state == MODEL_FAILED) {
        if (d->state == DAEMON_LOADING)
            fail(d, &m->err);
        else if (d->state < DAEMON_ENDING)
            repository_loaded(&d->repository, m);
        go_on_later(d);
        return;
    }
    m->agent->on_event = on_clone_event;
    m->agent->on_event_arg = d;
    log_info("loaded", "model=%s kind=%s backend=%s version=%.12s context=%zu%s%s", m->name,
             m->info.kind, m->info.backend[0] == '\0' ? "none" : m->info.backend, m->info.version,
             m->info.context, m->info.products[0] == '\0' ? "" : " products=",
             m->info.products[0] == '\0' ? "" : log_quote(text, sizeof(text), m->info.products));
    if (d->state < DAEMON_ENDING)
        repository_loaded(&d->repository, m);
    if (d->state == DAEMON_SERVING)
        health_set(&d->health, m->name, HEALTH_SERVING);
    if (d->state == DAEMON_LOADING) {
        health_set(&d->health, m->name, HEALTH_SERVING);
        if (d->n_loading == 0) {
            daemon_move(d, DAEMON_SERVING);
            health_set_all(&d->health, HEALTH_SERVING);
            say_ready(d);
        }
    }
    go_on_later(d);
}

enum status daemon_start_model(struct model **out, struct daemon *d, const char *name,
                               const char *path, struct error *err)
{
    struct model_config config = {
        .name = name,
        .path = path,
        .backend = d->config.backend,
        .fast_math = d->config.fast_math,
        .n_threads = d->config.n_threads,
        .kv_bytes = d->config.kv_bytes,
        .kv_host_bytes = d->config.kv_host_bytes,
        .kv_type = d->config.kv_type,
        .no_prefix_cache = d->config.no_prefix_cache,
        .speculate = d->config.speculate,
        .max_waiting = d->config.max_queue,
        .max_itl_us = d->config.max_itl_us,
        .env = &d->env,
    };
    enum status rc;

    rc = model_start(out, &d->loop, &config, on_model_loaded, d, err);
    if (rc != STATUS_OK)
        return rc;
    d->n_models_running++;
    d->n_loading++;
    return STATUS_OK;
}

static enum status start_models(struct daemon *d, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < d->config.n_models && rc == STATUS_OK; i++)
        rc = repository_start(&d->repository, d->config.models[i].name, d->config.models[i].path,
                              err);
    if (rc == STATUS_OK)
        rc = repository_start(&d->repository, "echo", NULL, err);
    return rc == STATUS_OK ? repository_scan(&d->repository, err) : rc;
}

static enum status start_port(struct daemon *d, struct error *err)
{
    struct port_config config = {
        .listen = d->config.listen,
        .n_listen = d->config.n_listen,
        .max_message_bytes = d->config.max_message_bytes,
        .daemon = d,
        .env = &d->env,
    };
    enum status rc;

    config.rpcs = services_rpcs(&config.n_rpcs);
    rc = port_start(&d->port, &d->loop, &config, err);
    if (rc != STATUS_OK)
        return error_prefix(err, "--listen");
    for (size_t i = 0; i < config.n_listen; i++)
        log_info("listening", "grpc=%s", port_address(d->port, i));
    return STATUS_OK;
}

static enum status start_http(struct daemon *d, struct error *err)
{
    const struct http_config config = {
        .listen = d->config.http,
        .max_body_bytes =
            d->config.max_message_bytes == 0 ? HTTP_BODY_BYTES : d->config.max_message_bytes,
        .timeout_ms = d->config.http_timeout_ms,
        .daemon = d,
    };

    if (config.listen == NULL)
        return STATUS_OK;
    if (http_start(&d->http, &d->loop, &config, err) != STATUS_OK) {
        (void)error_prefix(err, "--http %.80s", config.listen);
        if (d->config.is_http_given)
            return err->status;
        /* Nobody asked for it: it is not what the daemon would fail for. */
        log_warn("http", "off error=\"%s\"", err->text);
        return STATUS_OK;
    }
    log_info("listening", "http=%s", http_address(d->http));
    return STATUS_OK;
}

static enum status start_conversations(struct daemon *d, struct error *err)
{
    struct conversations_config config = {
        .max_conversations = d->config.max_conversations,
        .ttl_ms = d->config.ttl_ms,
        .env = &d->env,
        .arm = arm_expiry,
        .arm_self = d,
    };
    struct timespec now;
    enum status rc;

    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail with this clock */
    config.unix_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    rc = conversations_init(&d->conversations, &config, err);
    d->conversations.quiet = go_on_later;
    d->conversations.quiet_arg = d;
    return rc;
}

static enum status start_sessions(struct daemon *d, struct error *err)
{
    uint64_t ttl_ms = d->config.session_ttl_ms != 0 ? d->config.session_ttl_ms : SESSION_TTL_MS;
    const struct sessions_config config = {
        .max_sessions = d->config.max_sessions,
        .ttl_ms = ttl_ms + d->config.sequence_idle_ms, /* a sequence is closed first */
        .env = &d->env,
        .arm = arm_sessions,
        .arm_self = d,
        .quiet = go_on_later,
        .quiet_arg = d,
    };

    return sessions_init(&d->sessions, &config, err);
}

static enum status start_sequences(struct daemon *d, struct error *err)
{
    const struct sequences_config config = {
        .idle_ms = d->config.sequence_idle_ms,
        .env = &d->env,
        .conversations = &d->conversations,
        .sessions = &d->sessions,
        .arm = arm_sequences,
        .arm_self = d,
    };

    return sequences_init(&d->sequences, &config, err);
}

static void start_params(struct daemon *d)
{
    size_t memory_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    size_t max_bytes = d->config.params_bytes != 0 ? d->config.params_bytes : memory_bytes / 2;

    params_sets_init(&d->params, &d->loop, &d->env, max_bytes);
    d->params.quiet = go_on_later;
    d->params.quiet_arg = d;
}

static void open_handles(struct daemon *d)
{
    static const int numbers[N_SIGNALS] = {SIGTERM, SIGINT};

    /* None of these takes anything that could be missing. */
    (void)uv_timer_init(&d->loop, &d->expiry_timer);
    (void)uv_timer_init(&d->loop, &d->sessions_timer);
    (void)uv_timer_init(&d->loop, &d->sequences_timer);
    (void)uv_timer_init(&d->loop, &d->repository.timer);
    d->repository.timer.data = &d->repository;
    (void)uv_timer_init(&d->loop, &d->drain_timer);
    (void)uv_idle_init(&d->loop, &d->later);
    d->expiry_timer.data = d->sessions_timer.data = d->sequences_timer.data = d;
    d->drain_timer.data = d->later.data = d;
    for (size_t i = 0; i < N_SIGNALS; i++) {
        (void)uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        (void)uv_signal_start(&d->signals[i], on_signal, numbers[i]);
    }
}

enum status daemon_run(const struct config *config, struct error *err)
{
    struct daemon d = {.config = *config, .env = env_real};
    struct error why = {0};
    int left;

    d.start_us = env_now_us(&d.env);
    list_init(&d.endless);
    repository_init(&d.repository, &d);
    trainers_init(&d.trainers, &d.sessions);
    d.trainers.quiet = go_on_later;
    d.trainers.quiet_arg = &d;
    if (uv_loop_init(&d.loop) != 0)
        return error_set(err, STATUS_EXHAUSTED, "no descriptors are left for the loop");
    health_init(&d.health);
    health_set(&d.health, "", HEALTH_NOT_SERVING);
    for (size_t i = 0; i < descriptor_n_services; i++)
        health_set(&d.health, descriptor_services[i], HEALTH_NOT_SERVING);
    open_handles(&d);
    start_params(&d);
    if (start_conversations(&d, &why) != STATUS_OK || start_sessions(&d, &why) != STATUS_OK ||
        start_sequences(&d, &why) != STATUS_OK || start_port(&d, &why) != STATUS_OK ||
        start_http(&d, &why) != STATUS_OK || start_models(&d, &why) != STATUS_OK)
        fail(&d, &why);
    (void)uv_run(&d.loop, UV_RUN_DEFAULT); /* nothing is left when it returns */
    assert(d.state == DAEMON_STOPPED);
    http_free(d.http);
    conversations_deinit(&d.conversations);
    repository_deinit(&d.repository);
    sequences_deinit(&d.sequences);
    sessions_deinit(&d.sessions);
    health_deinit(&d.health);
    left = uv_loop_close(&d.loop);
    assert(left == 0);
    (void)left;
    if (d.err.status != STATUS_OK)
        *err = d.err;
    return d.err.status;
}

enum status daemon_check(const struct config *config, struct error *err)
{
    for (size_t i = 0; i < config->n_models; i++) {
        const struct agent_config open = {.name = config->models[i].name,
                                          .path = config->models[i].path,
                                          .backend = config->backend,
                                          .fast_math = config->fast_math,
                                          .n_threads = config->n_threads,
                                          .kv_bytes = config->kv_bytes,
                                          .kv_host_bytes = config->kv_host_bytes,
                                          .kv_type = config->kv_type,
                                          .env = &env_real};
        struct agent *a;

        if (agent_open(&a, NULL, &open, err) != STATUS_OK)
            return error_prefix(err, "model '%s'", config->models[i].name);
        agent_unref(a);
    }
    return STATUS_OK;
}
