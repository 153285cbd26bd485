/* Start: the loop's handles, then the port (an address in use fails at once, and health and Models
 * answer while models load), then each model on its own thread. When all are loaded the daemon
 * serves, and logs that in one line.
 *
 * Stop: SIGTERM or SIGINT begin the drain: new conversations and turns are refused, turns in flight
 * go on, and long-lived streams end. When all is idle, at the time-out, or at a second signal, the
 * daemon ends: all that was asked and is asked yet is answered with UNAVAILABLE, turns are
 * cancelled, and steps that are computed elsewhere are aborted. Once the answers are out, turns end
 * with their steps; then conversations, sessions and parameters are closed, then models and their
 * threads, then the port, then the journal, then the loop's handles. After each of these steps
 * daemon_advance begins the next; it alone decides the order. A failed start is stopped in the same
 * way. */
#include "server/daemon.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "agents/plugin/environment.h"
#include "agents/plugin/plugin.h"
#include "base/address.h"
#include "base/buf.h"
#include "base/env.h"
#include "base/log.h"
#include "proto/descriptors.h"
#include "server/access/access.h"
#include "server/act/session.h"
#include "server/act/trainer.h"
#include "server/api/kserve/sequences.h"
#include "server/api/routes.h"
#include "server/api/services.h"
#include "server/call/health.h"
#include "server/check.h"
#include "server/config/config.h"
#include "server/conversation/conversations.h"
#include "server/conversation/keeping.h"
#include "server/conversation/keyed_replies.h"
#include "server/conversation/names.h"
#include "server/conversation/retention.h"
#include "server/environment/vectors.h"
#include "server/http/http.h"
#include "server/journal/journal.h"
#include "server/loop_alarm.h"
#include "server/loop_watch.h"
#include "server/model/attached.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/net/open_files.h"
#include "server/net/peer_addresses.h"
#include "server/net/tls.h"
#include "server/notify.h"
#include "server/params/checkpoint.h"
#include "server/params/params.h"
#include "server/registry/groups.h"
#include "server/reload.h"
#include "server/replay/replays.h"
#include "server/rollout/rollout.h"
#include "server/rpc/port.h"
#include "server/server.h"
#include "server/stop_signal.h"
#include "server/store/stores.h"
#include "server/work/work.h"

enum { MODEL_KV_SHARE = 8 };                       /* of --memory, for the pages of one model */
enum { WATCHED_SECONDS = 10, WATCHED_MS = 10000 }; /* of the stop's steps that take milliseconds */
enum { FAREWELL_US = 1000000 };                    /* for the last answers to be sent and taken */
enum { SESSION_TTL_MS = 10 * 60 * 1000 };
enum { DRAIN_LOOK_MS = 10, RETRY_MS = 100, READY_MAX_BYTES = 4096, HTTP_BODY_BYTES = 4 << 20 };

/* With --listen-admin there are both, else the first. */
enum { DAEMON_PORT, DAEMON_PORT_ADMIN, DAEMON_PORTS };

enum { BINDING_MAX_BYTES = 64 };

struct daemon_port {
    struct daemon *daemon;
    struct port *port; /* NULL: none */
    const struct port **in_server;
    bool is_stopping;
};

struct daemon {
    uv_loop_t loop;
    struct config config;
    struct env env;
    struct server server;
    struct error *err;                     /* daemon_run's: the reason of a failure */
    struct tls *tls;                       /* NULL: none */
    struct peer_addresses *peer_addresses; /* NULL: no bound */
    struct access *access;                 /* NULL: everybody may call */
    struct models models;
    struct attached attached;
    struct vectors vectors;
    struct rollouts rollouts;
    struct groups groups;
    struct stores stores;
    struct replays replays;
    struct work_table work;
    struct conversations conversations;
    struct retention retention;
    struct journal *journal;         /* NULL: none */
    char binding[BINDING_MAX_BYTES]; /* what computes, for the journal */
    struct params_sets params;
    struct sessions sessions;
    struct conversation_names names;
    struct keyed_replies keyed;
    struct sequences sequences;
    struct trainers trainers;
    struct health health;
    struct daemon_port ports[DAEMON_PORTS];
    struct http *http; /* NULL: none */
    struct loop_alarm conversations_alarm, keyed_alarm, sessions_alarm, sequences_alarm,
        attached_alarm, retention_alarm, vectors_alarm, replays_alarm, work_alarm, groups_alarm,
        kept_stores_alarm, kept_replays_alarm;
    struct loop_watch watch;
    uv_timer_t drain_timer;
    uv_idle_t later;    /* has the loop itself call daemon_advance */
    uv_signal_t hangup; /* SIGHUP; the others are stop_signal's */
    uint64_t drain_until_us, farewell_until_us;
    struct reload reload;
    struct notifier notifier;
    bool is_reload_due; /* SIGHUP came while models loaded */
    bool has_answered, is_stopping_models, is_stopping_journal;
};

static const uint32_t daemon_moves[] = {
    [SERVER_LOADING] = 1u << SERVER_SERVING | 1u << SERVER_ENDING,
    [SERVER_SERVING] = 1u << SERVER_DRAINING | 1u << SERVER_ENDING,
    [SERVER_DRAINING] = 1u << SERVER_ENDING,
    [SERVER_ENDING] = 1u << SERVER_STOPPED,
    [SERVER_STOPPED] = 0,
};

static void daemon_move(struct daemon *d, enum server_state to)
{
    assert((daemon_moves[d->server.state] & 1u << to) != 0);
    d->server.state = to;
    log_debug("daemon", "state=%s", server_state_name(d->server.state));
}

/* --- stopping --- */

static void daemon_advance(struct daemon *d);

static void on_later(uv_idle_t *idle)
{
    struct daemon *d = idle->data;

    (void)uv_idle_stop(idle); /* cannot fail */
    daemon_advance(d);
}

/* Advances from the loop itself: the caller may be inside what is to be stopped. */
static void go_on_later(void *arg)
{
    struct daemon *d = arg;

    if (d->server.state == SERVER_DRAINING || d->server.state == SERVER_ENDING)
        (void)uv_idle_start(&d->later, on_later); /* fails only without a callback */
}

/* Calls and requests end first, with one error: else each would have that of what it waits for. */
static void daemon_answer(struct daemon *d)
{
    for (size_t i = 0; i < DAEMON_PORTS; i++)
        if (d->ports[i].port != NULL)
            port_end(d->ports[i].port);
    if (d->http != NULL)
        (void)http_end(d->http); /* daemon_has_answered asks again */
    d->farewell_until_us = env_now_us(&d->env) + FAREWELL_US;
}

static void on_drain_timer(uv_timer_t *timer);

static void daemon_end(struct daemon *d)
{
    daemon_move(d, SERVER_ENDING);
    notifier_send(&d->notifier, "STOPPING=1\nSTATUS=stopping");
    stop_signal_allow(WATCHED_MS); /* for running steps, until daemon_advance lifts it */
    daemon_answer(d);
    models_end(&d->models);
    health_set_all(&d->health, HEALTH_NOT_SERVING);
    conversations_drain(&d->conversations);
    keyed_replies_drain(&d->keyed);
    conversations_cancel_all(&d->conversations);
    sequences_retire(&d->sequences, NULL);
    sessions_drain(&d->sessions);
    sessions_close_all(&d->sessions, NULL);
    for (size_t i = 0; i < d->models.n_loaded; i++)
        model_abort(d->models.loaded[i]);
    attached_end(&d->attached);
    rollouts_end(&d->rollouts);
    vectors_end(&d->vectors);
    work_end(&d->work);
    (void)uv_timer_start(&d->drain_timer, on_drain_timer, DRAIN_LOOK_MS,
                         DRAIN_LOOK_MS); /* fails only when closing */
    go_on_later(d);
}

/* Whether all that was asked has its answer, or those who asked do not take it. */
static bool daemon_has_answered(struct daemon *d)
{
    size_t n_calls = 0;
    bool is_over = env_now_us(&d->env) >= d->farewell_until_us;

    if (d->has_answered)
        return true;
    for (size_t i = 0; i < DAEMON_PORTS; i++)
        n_calls += d->ports[i].port == NULL ? 0 : port_n_unanswered(d->ports[i].port);
    if (!is_over && ((d->http != NULL && !http_end(d->http)) || n_calls > 0))
        return false;
    d->has_answered = true;
    if (d->tls != NULL)
        tls_refuse(d->tls);
    http_stop(d->http);
    for (size_t i = 0; i < DAEMON_PORTS; i++)
        if (d->ports[i].port != NULL)
            port_cut_off(d->ports[i].port);
    return true;
}

static void daemon_fail(struct daemon *d, const struct error *err)
{
    if (d->err->status == STATUS_OK)
        *d->err = *err;
    if (d->server.state != SERVER_ENDING)
        daemon_end(d);
}

/* gRPC core (1.51) waits for ever for an own thread that it could not start. */
static void daemon_watch(bool is_on)
{
    (void)alarm(is_on ? WATCHED_SECONDS : 0);
}

static void on_port_stopped(void *arg)
{
    struct daemon_port *p = arg;

    *p->in_server = p->port = NULL;
    go_on_later(p->daemon);
}

/* Whether all have stopped. */
static bool daemon_stop_ports(struct daemon *d)
{
    bool is_stopped = true;

    for (size_t i = 0; i < DAEMON_PORTS; i++) {
        struct daemon_port *p = &d->ports[i];

        if (p->port == NULL)
            continue;
        is_stopped = false;
        if (!p->is_stopping) {
            stop_signal_allow(0);
            daemon_watch(true);
            port_stop(p->port, on_port_stopped, p);
        }
        p->is_stopping = true;
    }
    return is_stopped;
}

static size_t daemon_n_awaited(const struct daemon *d)
{
    size_t n = d->http == NULL ? 0 : http_n_answering(d->http);

    for (size_t i = 0; i < DAEMON_PORTS; i++)
        n += d->ports[i].port == NULL ? 0 : port_n_awaited(d->ports[i].port);
    return n;
}

static void on_journal_stopped(void *arg)
{
    struct daemon *d = arg;

    d->journal = NULL;
    go_on_later(d);
}

static void daemon_close_handles(struct daemon *d)
{
    http_close(d->http);
    tls_close(d->tls);
    loop_alarm_close(&d->conversations_alarm);
    loop_alarm_close(&d->keyed_alarm);
    loop_alarm_close(&d->sessions_alarm);
    loop_alarm_close(&d->sequences_alarm);
    loop_alarm_close(&d->attached_alarm);
    loop_alarm_close(&d->retention_alarm);
    loop_alarm_close(&d->vectors_alarm);
    loop_alarm_close(&d->replays_alarm);
    loop_alarm_close(&d->work_alarm);
    loop_alarm_close(&d->groups_alarm);
    loop_alarm_close(&d->kept_stores_alarm);
    loop_alarm_close(&d->kept_replays_alarm);
    models_close(&d->models);
    loop_watch_close(&d->watch);
    notifier_close(&d->notifier);
    uv_close((uv_handle_t *)&d->drain_timer, NULL);
    uv_close((uv_handle_t *)&d->later, NULL);
    uv_close((uv_handle_t *)&d->hangup, NULL);
    stop_signal_close();
}

/* No call is left that changes keys and tables. */
static bool daemon_has_kept(struct daemon *d)
{
    const bool has_stores = keeper_is_idle(&d->stores.keeper);

    return keeper_is_idle(&d->replays.keeper) && has_stores;
}

static void daemon_advance(struct daemon *d)
{
    if (d->server.state == SERVER_DRAINING && d->conversations.n_live == 0 &&
        daemon_n_awaited(d) == 0)
        daemon_end(d);
    if (d->server.state != SERVER_ENDING || !daemon_has_answered(d))
        return;
    if (d->models.n_loading > 0 || d->conversations.n_live > 0 || d->sessions.n_asking > 0 ||
        !trainers_are_idle(&d->trainers) || !rollouts_are_idle(&d->rollouts))
        return; /* wait for running loads and steps */
    retention_stop(&d->retention);
    conversations_close_all(&d->conversations, NULL, "the server is shutting down");
    assert(d->conversations.n_closing == 0);
    if (!d->is_stopping_models)
        stop_signal_allow(0); /* what is kept is written whole */
    if (!params_sets_are_kept(&d->params))
        return;
    params_sets_stop(&d->params);
    if (d->params.limit.held > 0)
        return;
    if (!d->is_stopping_models) {
        d->is_stopping_models = true;
        stop_signal_allow(WATCHED_MS);
        models_stop(&d->models);
    }
    if (d->models.n_running > 0)
        return;
    if (!daemon_stop_ports(d))
        return;
    daemon_watch(false); /* what is written next takes as long as it takes */
    if (!daemon_has_kept(d))
        return;
    if (d->journal != NULL) {
        if (!d->is_stopping_journal)
            journal_stop(d->journal, on_journal_stopped, d);
        d->is_stopping_journal = true;
        return;
    }
    daemon_move(d, SERVER_STOPPED);
    daemon_watch(true); /* until the loop is empty */
    daemon_close_handles(d);
}

/* The port does not report its last call, so this polls. */
static void on_drain_timer(uv_timer_t *timer)
{
    struct daemon *d = timer->data;

    if (d->server.state == SERVER_DRAINING && env_now_us(&d->env) >= d->drain_until_us) {
        log_warn("drain", "turns=%zu cancelled=all", d->conversations.n_live);
        daemon_end(d);
    }
    go_on_later(d);
}

static void daemon_drain(struct daemon *d)
{
    daemon_move(d, SERVER_DRAINING);
    log_info("draining", "turns=%zu", d->conversations.n_live);
    notifier_send(&d->notifier, "STOPPING=1\nSTATUS=draining %zu turns", d->conversations.n_live);
    health_set_all(&d->health, HEALTH_NOT_SERVING);
    conversations_drain(&d->conversations);
    keyed_replies_drain(&d->keyed);
    sessions_drain(&d->sessions);
    if (d->http != NULL)
        http_drain(d->http);
    for (size_t i = 0; i < DAEMON_PORTS; i++)
        if (d->ports[i].port != NULL)
            port_drain(d->ports[i].port);
    d->drain_until_us = env_now_us(&d->env) + d->config.drain_timeout_ms * 1000;
    (void)uv_timer_start(&d->drain_timer, on_drain_timer, DRAIN_LOOK_MS,
                         DRAIN_LOOK_MS); /* fails only when closing */
    go_on_later(d);
}

/* --- SIGHUP --- */

static size_t daemon_wanted_models(const struct config *to, struct models_wanted *out)
{
    for (size_t i = 0; i < to->n_models; i++)
        out[i] = (struct models_wanted){to->models[i].name, to->models[i].path};
    return to->n_models;
}

static enum status check_new_models(void *self, const struct config *to, struct error *err)
{
    const struct daemon *d = self;
    struct models_wanted wanted[CONFIG_MAX_MODELS];
    size_t n = daemon_wanted_models(to, wanted);

    if (config_check_files(to, err) != STATUS_OK)
        return err->status;
    if (models_check(&d->models, wanted, n, err) != STATUS_OK)
        return config_blame(to, "models", err);
    return STATUS_OK;
}

static void apply_models(void *self, const struct config *to)
{
    struct daemon *d = self;
    struct models_wanted wanted[CONFIG_MAX_MODELS];

    d->models.config.drain_timeout_ms = d->config.drain_timeout_ms = to->drain_timeout_ms;
    stop_signal_set_patience(to->drain_timeout_ms + WATCHED_MS);
    models_configure(&d->models, wanted, daemon_wanted_models(to, wanted));
}

/* Those that live and turns that run keep what they began with. */
static void apply_limits(void *self, const struct config *to)
{
    struct daemon *d = self;

    conversations_configure(&d->conversations, to->max_conversations, to->ttl_ms,
                            to->linger_ms * 1000);
    d->conversations.config.unload_us = to->unload_idle_ms * 1000;
    d->keyed.config.linger_us = to->linger_ms * 1000;
    retention_configure(&d->retention, to->retain_age_ms, to->retain_bytes);
    d->params.keeping.checkpoint_rounds = to->checkpoint_rounds;
    sessions_configure(&d->sessions, to->max_sessions);
}

static void apply_http(void *self, const struct config *to)
{
    struct daemon *d = self;

    if (d->http != NULL)
        http_configure(d->http, to->http_timeout_ms, to->http_origins, to->n_http_origins);
}

static void apply_log(void *self, const struct config *to)
{
    (void)self;
    log_set_level(to->log_level);
}

static enum status check_keys(void *self, const struct config *to, struct error *err)
{
    struct daemon *d = self;

    (void)to;
    return d->access == NULL ? STATUS_OK : access_prepare(d->access, err);
}

/* Revoked keys start nothing more, and what they have started ends. */
static void apply_keys(void *self, const struct config *to)
{
    struct daemon *d = self;

    (void)to;
    if (d->access == NULL)
        return;
    access_commit(d->access);
    models_reweigh(&d->models);
    for (size_t i = 0; i < DAEMON_PORTS; i++)
        if (d->ports[i].port != NULL)
            port_check_keys(d->ports[i].port);
    if (d->http != NULL)
        http_check_keys(d->http);
}

static void drop_keys(void *self)
{
    struct daemon *d = self;

    if (d->access != NULL)
        access_discard(d->access);
}

static void say_keys(void *self, struct buf *names, struct buf *more)
{
    const struct daemon *d = self;
    struct access_changes changes;

    if (d->access == NULL)
        return;
    changes = access_changed(d->access);
    if (changes.n_added == 0 && changes.n_revoked == 0 && changes.n_altered == 0)
        return;
    reload_add_name(names, "keys");
    (void)!buf_printf(more, " keys_added=%zu keys_revoked=%zu keys_altered=%zu", changes.n_added,
                      changes.n_revoked, changes.n_altered); /* it has room */
}

static enum status check_tls(void *self, const struct config *to, struct error *err)
{
    struct daemon *d = self;

    (void)to;
    return d->tls == NULL ? STATUS_OK : tls_prepare(d->tls, err);
}

static void apply_tls(void *self, const struct config *to)
{
    struct daemon *d = self;

    (void)to;
    if (d->tls != NULL)
        tls_commit(d->tls);
}

static void drop_tls(void *self)
{
    struct daemon *d = self;

    if (d->tls != NULL)
        tls_discard(d->tls);
}

static void say_tls(void *self, struct buf *names, struct buf *more)
{
    const struct daemon *d = self;
    const unsigned changes = d->tls == NULL ? 0 : tls_changes(d->tls);

    if ((changes & TLS_CHANGED_CERTIFICATE) != 0) {
        reload_add_name(names, "tls_cert");
        (void)!buf_printf(more, " certificate_until=%s", tls_valid_until(d->tls)); /* likewise */
    }
    if ((changes & TLS_CHANGED_KEY) != 0)
        reload_add_name(names, "tls_key");
    if ((changes & TLS_CHANGED_CLIENT_CA) != 0)
        reload_add_name(names, "tls_client_ca");
}

static const struct reload_part daemon_parts[] = {
    {.name = "tls", .check = check_tls, .apply = apply_tls, .drop = drop_tls, .say = say_tls},
    {.name = "keys", .check = check_keys, .apply = apply_keys, .drop = drop_keys, .say = say_keys},
    {.name = "log", .apply = apply_log},
    {.name = "limits", .apply = apply_limits},
    {.name = "http", .apply = apply_http},
    {.name = "models", .check = check_new_models, .apply = apply_models},
};

static void daemon_reload(struct daemon *d)
{
    char text[2 * ERROR_TEXT_MAX];
    struct error err;

    if (d->server.state == SERVER_LOADING) {
        d->is_reload_due = true;
        return;
    }
    d->is_reload_due = false;
    if (d->server.state != SERVER_SERVING)
        return;
    notifier_send(&d->notifier, "RELOADING=1\nMONOTONIC_USEC=%llu",
                  (unsigned long long)env_now_us(&d->env));
    if (reload_run(&d->reload, &err) == STATUS_OK) {
        notifier_send(&d->notifier, "READY=1\nSTATUS=serves the configuration as read again");
        d->server.n_reloads_done++;
        return;
    }
    notifier_send(&d->notifier, "READY=1\nSTATUS=keeps the old configuration: %s", err.text);
    d->server.n_reloads_failed++;
    log_error("reload", "kept=all error=%s", log_quote(text, sizeof(text), err.text));
}

static void on_hangup(uv_signal_t *handle, int number)
{
    (void)number;
    log_info("signal", "name=SIGHUP");
    daemon_reload(handle->data);
}

static void on_stop(void *arg, int number, unsigned n)
{
    struct daemon *d = arg;

    log_info("signal", "name=%s", number == SIGTERM ? "SIGTERM" : "SIGINT");
    if (d->server.state == SERVER_SERVING)
        daemon_drain(d);
    if (d->server.state < SERVER_ENDING && (n > 1 || d->server.state == SERVER_LOADING))
        daemon_end(d);
}

/* --- starting --- */

static void on_clone_event(void *arg, struct clone *c, enum clone_event what, const char *reason)
{
    (void)arg;
    conversations_clone_event(c, what == CLONE_EVICTED ? WATCH_EVICTED : WATCH_RECOMPUTED, reason);
}

/* Writes the one line that tells other programs that the daemon serves, and its first address. */
static void say_ready(const struct daemon *d)
{
    enum status rc;
    struct buf line;

    buf_init(&line, READY_MAX_BYTES);
    rc = buf_printf(&line, "ready grpc=%s", port_address(d->ports[DAEMON_PORT].port, 0));
    if (rc == STATUS_OK && d->ports[DAEMON_PORT_ADMIN].port != NULL)
        rc = buf_printf(&line, " grpc_admin=%s", port_address(d->ports[DAEMON_PORT_ADMIN].port, 0));
    if (rc == STATUS_OK && d->http != NULL && http_address(d->http) != NULL)
        rc = buf_printf(&line, " http=%s", http_address(d->http));
    if (rc == STATUS_OK && d->http != NULL && http_admin_address(d->http) != NULL)
        rc = buf_printf(&line, " http_admin=%s", http_admin_address(d->http));
    for (size_t i = 0; i < d->models.n_loaded && rc == STATUS_OK; i++)
        rc = buf_printf(&line, "%s%s", i == 0 ? " models=" : ",", d->models.loaded[i]->name);
    if (rc == STATUS_OK)
        rc = buf_printf(&line, " in=%llu\n",
                        (unsigned long long)((env_now_us(&d->env) - d->server.start_us) / 1000));
    if (rc == STATUS_OK)
        (void)!write(STDERR_FILENO, line.data, line.len); /* a failure cannot be reported */
    buf_deinit(&line);
}

/* While nothing can be stored, balancers that ask for the service send its calls elsewhere. */
static void on_journal_changed(void *arg)
{
    struct daemon *d = arg;

    if (d->server.state == SERVER_SERVING)
        health_set(&d->health, "parley.v1.Conversations",
                   journal_trouble(d->journal) == NULL ? HEALTH_SERVING : HEALTH_NOT_SERVING);
}

static void note_ready(struct daemon *d, struct model *m)
{
    char text[2 * BACKEND_PRODUCTS_MAX];

    m->agent->on_event = on_clone_event;
    log_info("loaded", "model=%s kind=%s backend=%s version=%.12s context=%zu%s%s", m->name,
             m->info.kind, m->info.backend[0] == '\0' ? "none" : m->info.backend, m->info.version,
             m->info.context, m->info.products[0] == '\0' ? "" : " products=",
             m->info.products[0] == '\0' ? "" : log_quote(text, sizeof(text), m->info.products));
    if (d->server.state > SERVER_SERVING)
        return;
    health_set(&d->health, m->name, m->is_vacant ? HEALTH_NOT_SERVING : HEALTH_SERVING);
    if (d->server.state == SERVER_LOADING && d->models.n_loading == 0) {
        daemon_move(d, SERVER_SERVING);
        if (d->http != NULL)
            http_serve(d->http);
        health_set_all(&d->health, HEALTH_SERVING);
        on_journal_changed(d);
        say_ready(d);
        notifier_send(&d->notifier, "READY=1\nSTATUS=serves %zu models on %s", d->models.n_loaded,
                      port_address(d->ports[DAEMON_PORT].port, 0));
        if (d->is_reload_due)
            daemon_reload(d);
    }
}

static void on_model_change(void *arg, struct model *m)
{
    struct daemon *d = arg;

    if (m->state == MODEL_READY)
        note_ready(d, m);
    else if (m->state != MODEL_FAILED)
        health_set(&d->health, m->name, HEALTH_NOT_SERVING);
    else if (d->server.state == SERVER_LOADING)
        daemon_fail(d, &m->err);
}

/* A supervisor starts the daemon anew: this process cannot use its device again. */
static void on_model_lost(void *arg, const struct model *m, const struct error *why)
{
    struct error err = *why;

    (void)error_prefix(&err, "model '%s'", m->name);
    daemon_fail(arg, &err);
}

static enum status check_serving(void *arg, struct error *err)
{
    const struct daemon *d = arg;

    if (d->server.state == SERVER_SERVING)
        return STATUS_OK;
    if (d->server.state != SERVER_LOADING)
        return error_draining(err);
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_SERVER_LOADING, NULL,
                        "the server is loading");
    err->retry_after_ms = RETRY_MS;
    return err->status;
}

static unsigned weight_of_principal(void *arg, uint32_t principal)
{
    const struct daemon *d = arg;

    return d->access == NULL ? 1 : access_weight(d->access, principal);
}

static struct access_quota *quota_of_principal(void *arg, uint32_t principal)
{
    const struct daemon *d = arg;

    return access_quota_of(d->access, principal);
}

static void init_models(struct daemon *d)
{
    struct models_config config = {
        .loop = &d->loop,
        .env = &d->env,
        .model_dir = d->config.model_dir,
        .drain_timeout_ms = d->config.drain_timeout_ms,
        .memory_bytes = d->config.memory_bytes,
        .model =
            {
                .options = d->config.options,
                .env = &d->env,
                .weight_of = weight_of_principal,
                .weight_arg = d,
                .on_lost = on_model_lost,
                .lost_arg = d,
            },
        .check_serving = check_serving,
        .on_change = on_model_change,
        .on_idle = go_on_later,
        .arg = d,
    };

    if (config.memory_bytes != 0 && config.model.options.kv_bytes == 0)
        config.model.options.kv_bytes = config.memory_bytes / MODEL_KV_SHARE;
    models_init(&d->models, &config);
}

static void on_vacancy(void *arg, struct model *m)
{
    struct daemon *d = arg;

    health_set(&d->health, m->name, m->is_vacant ? HEALTH_NOT_SERVING : HEALTH_SERVING);
}

/* Where no keys say who may attach, and the operator does not: whoever is on this machine. */
static bool may_attach(const struct config *c)
{
    if (c->attach != ATTACH_AUTO || c->keys != NULL)
        return c->attach != ATTACH_OFF;
    for (size_t i = 0; i < c->n_listen; i++)
        if (!address_is_local(c->listen[i]))
            return false;
    return true;
}

static void init_attached(struct daemon *d)
{
    const struct attached_config config = {
        .models = &d->models,
        .env = &d->env,
        .silence_us = d->config.attach_timeout_ms * 1000,
        .is_allowed = may_attach(&d->config),
        .alarm = &d->attached_alarm.alarm,
        .on_change = on_vacancy,
        .arg = d,
    };

    attached_init(&d->attached, &config);
}

static void init_vectors(struct daemon *d)
{
    const struct vectors_config config = {
        .env = &d->env,
        .silence_us = d->config.attach_timeout_ms * 1000,
        .is_allowed = true, /* whoever may not attach does not get so far */
        .alarm = &d->vectors_alarm.alarm,
    };

    vectors_init(&d->vectors, &config);
    rollouts_init(&d->rollouts);
    d->rollouts.on_idle = go_on_later;
    d->rollouts.idle_arg = d;
}

/* An object may have an environment, an agent, or both. */
static enum status start_plugin(struct daemon *d, const struct config_model *m, struct error *err)
{
    struct plugin_environment *kind;
    bool has_agent;

    if (plugin_environment_open(&kind, &has_agent, m->path, err) != STATUS_OK)
        return err->status;
    if (kind != NULL && vectors_add_plugged(&d->vectors, kind, err) != STATUS_OK)
        return error_prefix(err, "plug-in %.120s", m->path);
    return has_agent ? models_start(&d->models, m->name, m->path, &plugin_agent, err) : STATUS_OK;
}

static unsigned work_weight(void *self, uint32_t principal)
{
    const struct daemon *d = self;

    return d->access == NULL ? 1 : access_weight(d->access, principal);
}

static void init_work(struct daemon *d)
{
    const struct work_config config = {
        .env = &d->env,
        .silence_us = d->config.attach_timeout_ms * 1000,
        .may_attach = may_attach(&d->config),
        .max_bytes = d->config.work_bytes,
        .weight = work_weight,
        .weight_self = d,
        .alarm = &d->work_alarm.alarm,
    };

    work_init(&d->work, &config);
}

static enum status start_models(struct daemon *d, struct error *err)
{
    enum status rc = STATUS_OK;

    models_add_user(&d->models, &d->conversations.user);
    models_add_user(&d->models, &d->sessions.user);
    models_add_user(&d->models, &d->sequences.user);
    models_add_user(&d->models, &d->trainers.user);
    models_add_user(&d->models, &d->attached.user);
    for (size_t i = 0; i < d->config.n_models && rc == STATUS_OK; i++)
        rc =
            models_start(&d->models, d->config.models[i].name, d->config.models[i].path, NULL, err);
    for (size_t i = 0; i < d->config.n_plugins && rc == STATUS_OK; i++)
        rc = start_plugin(d, &d->config.plugins[i], err);
    if (rc == STATUS_OK)
        rc = models_start(&d->models, "echo", NULL, NULL, err);
    return rc == STATUS_OK ? models_scan(&d->models, err) : rc;
}

static uint64_t daemon_unix_s(void)
{
    return (uint64_t)time(NULL);
}

static enum status start_access(struct daemon *d, struct error *err)
{
    const struct access_config config = {
        .path = d->config.keys, .env = &d->env, .unix_s = daemon_unix_s};

    if (config.path == NULL)
        return STATUS_OK;
    if (access_open(&d->access, &config, err) != STATUS_OK)
        return error_prefix(err, "--keys");
    d->server.access = d->access;
    return STATUS_OK;
}

static const char *daemon_principal_name(void *self, uint32_t principal)
{
    const struct daemon *d = self;

    return d->access == NULL ? "" : access_name(d->access, principal);
}

static const struct principal *daemon_find_principal(void *self, const char *name)
{
    const struct daemon *d = self;

    return access_principal(d->access, name);
}

static void start_keeper(struct daemon *d, struct keeper *keeper, struct alarm *alarm)
{
    const struct keeping keeping = {
        .journal = d->journal,
        .interval_us = d->config.checkpoint_ms * 1000,
        .find_owner = daemon_find_principal,
        .find_self = d,
        .alarm = alarm,
        .on_idle = go_on_later,
        .idle_self = d,
    };

    keeper_start(keeper, &keeping);
}

static enum status start_journal(struct daemon *d, struct error *err)
{
    const struct agent_options *options = &d->config.options;
    const struct journal_config config = {
        .dir = d->config.data, .changed = on_journal_changed, .changed_arg = d};
    struct keeping_config keeping = {
        .models = &d->models,
        .binding = d->binding,
        .is_inexact = options->fast_math,
        .principal_name = daemon_principal_name,
        .self = d,
    };
    struct params_keeping params = {
        .checkpoint_rounds = d->config.checkpoint_rounds,
        .read_config = services_read_params,
        .find_owner = daemon_find_principal,
        .self = d,
    };

    if (config.dir == NULL)
        return STATUS_OK;
    (void)snprintf(d->binding, sizeof(d->binding), "engine=%d backend=%.8s kv=%d",
                   AGENT_ENGINE_REVISION, options->backend == NULL ? "cpu" : options->backend,
                   (int)options->kv_type); /* it fits */
    if (journal_open(&d->journal, &d->loop, &config, err) != STATUS_OK)
        return error_prefix(err, "--data");
    keeping.journal = params.journal = d->journal;
    conversations_keep(&d->conversations, &keeping);
    params_keep(&d->params, &params);
    start_keeper(d, &d->stores.keeper, &d->kept_stores_alarm.alarm);
    start_keeper(d, &d->replays.keeper, &d->kept_replays_alarm.alarm);
    retention_configure(&d->retention, d->config.retain_age_ms, d->config.retain_bytes);
    log_info("keeps", "data=%s", config.dir);
    return STATUS_OK;
}

static enum status start_tls(struct daemon *d, struct error *err)
{
    const struct config *c = &d->config;
    const struct tls_config config = {c->tls_cert, c->tls_key, c->tls_client_ca};

    if (c->tls_cert == NULL && c->tls_key == NULL && c->tls_client_ca == NULL)
        return STATUS_OK;
    if (tls_open(&d->tls, &d->loop, &config, err) == STATUS_OK)
        return STATUS_OK;
    return error_prefix(err, "TLS");
}

static void start_peers(struct daemon *d)
{
    if (d->config.max_peer_connections != 0)
        d->peer_addresses = peer_addresses_open(d->config.max_peer_connections, &d->env);
}

static enum status daemon_start_port(struct daemon *d, const char *flag, struct daemon_port *p,
                                     enum port_part part, const char *const *listen,
                                     size_t n_listen, struct error *err)
{
    struct port_config config = {
        .part = part,
        .listen = listen,
        .n_listen = n_listen,
        .idle_ms = d->config.connection_idle_ms,
        .age_ms = d->config.connection_age_ms,
        .max_message_bytes = d->config.max_message_bytes,
        .server = &d->server,
        .health = &d->health,
        .tls = d->tls,
        .peer_addresses = d->peer_addresses,
        .n_refused = &d->server.n_connections_refused,
        .n_dropped = &d->server.n_connections_dropped,
        .access = d->access,
        .env = &d->env,
    };
    enum status rc;

    config.services = services_tables(&config.n_services);
    (void)error_set(err, STATUS_EXHAUSTED, "gRPC does not start: it has no memory or no threads");
    daemon_watch(true);
    rc = port_start(&p->port, &d->loop, &config, err);
    daemon_watch(false);
    if (rc != STATUS_OK)
        return error_prefix(err, "%s", flag);
    p->daemon = d;
    *p->in_server = p->port;
    for (size_t i = 0; i < config.n_listen; i++)
        log_info("listening", "%s=%s", part == PORT_ADMIN ? "grpc_admin" : "grpc",
                 port_address(p->port, i));
    *err = (struct error){0};
    return STATUS_OK;
}

static enum status start_ports(struct daemon *d, struct error *err)
{
    const char *const *admin = &d->config.listen_admin;
    bool is_apart = *admin != NULL;
    enum status rc;

    d->ports[DAEMON_PORT].in_server = &d->server.port;
    d->ports[DAEMON_PORT_ADMIN].in_server = &d->server.admin_port;
    rc = daemon_start_port(d, "--listen", &d->ports[DAEMON_PORT],
                           is_apart ? PORT_WITHOUT_ADMIN : PORT_EVERYTHING, d->config.listen,
                           d->config.n_listen, err);
    if (rc != STATUS_OK || !is_apart)
        return rc;
    return daemon_start_port(d, "--listen-admin", &d->ports[DAEMON_PORT_ADMIN], PORT_ADMIN, admin,
                             1, err);
}

static enum status start_http(struct daemon *d, struct error *err)
{
    struct http_config config = {
        .listen = d->config.http,
        .admin = d->config.http_admin,
        .routes = routes_all,
        .max_body_bytes =
            d->config.max_message_bytes == 0 ? HTTP_BODY_BYTES : d->config.max_message_bytes,
        .timeout_ms = d->config.http_timeout_ms,
        .origins = {.allowed = d->config.http_origins, .n_allowed = d->config.n_http_origins},
        .tls = d->tls,
        .peer_addresses = d->peer_addresses,
        .n_refused = &d->server.n_connections_refused,
        .n_dropped = &d->server.n_connections_dropped,
        .access = d->access,
        .server = &d->server,
        .env = &d->env,
    };
    struct error why;
    enum status rc;

    if (config.listen == NULL && config.admin == NULL)
        return STATUS_OK;
    rc = http_start(&d->http, &d->loop, &config, &why);
    if (rc != STATUS_OK && config.listen != NULL && !d->config.is_http_given) {
        /* The address is the default, not configured: its failure is no error. */
        log_warn("http", "off error=\"%s\"", why.text);
        config.listen = NULL;
        if (config.admin == NULL)
            return STATUS_OK;
        rc = http_start(&d->http, &d->loop, &config, &why);
    }
    if (rc != STATUS_OK) {
        *err = why;
        return rc;
    }
    if (config.listen != NULL)
        log_info("listening", "http=%s", http_address(d->http));
    if (config.admin != NULL)
        log_info("listening", "http_admin=%s", http_admin_address(d->http));
    return STATUS_OK;
}

static void start_conversations(struct daemon *d)
{
    struct conversations_config config = {
        .max_conversations = d->config.max_conversations,
        .ttl_ms = d->config.ttl_ms,
        .linger_us = d->config.linger_ms * 1000,
        .unload_us = d->config.unload_idle_ms * 1000,
        .env = &d->env,
        .quota_of = quota_of_principal,
        .quota_arg = d,
        .alarm = &d->conversations_alarm.alarm,
    };
    const struct keyed_replies_config keyed = {
        .linger_us = d->config.linger_ms * 1000,
        .conversations = &d->conversations,
        .env = &d->env,
        .alarm = &d->keyed_alarm.alarm,
    };
    const struct retention_config retention = {.alarm = &d->retention_alarm.alarm};
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now); /* cannot fail with this clock */
    config.unix_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    conversations_init(&d->conversations, &config);
    d->conversations.on_idle = go_on_later;
    d->conversations.idle_arg = d;
    retention_init(&d->retention, &d->conversations, &retention);
    conversation_names_init(&d->names, &d->conversations, &d->env);
    keyed_replies_init(&d->keyed, &keyed);
}

static void start_sessions(struct daemon *d)
{
    uint64_t ttl_ms = d->config.session_ttl_ms != 0 ? d->config.session_ttl_ms : SESSION_TTL_MS;
    const struct sessions_config config = {
        .max_sessions = d->config.max_sessions,
        .ttl_ms = ttl_ms + d->config.sequence_idle_ms, /* sequences expire before sessions */
        .env = &d->env,
        .alarm = &d->sessions_alarm.alarm,
        .quota_of = quota_of_principal,
        .quota_arg = d,
        .on_idle = go_on_later,
        .idle_arg = d,
    };

    sessions_init(&d->sessions, &config);
}

static enum status start_sequences(struct daemon *d, struct error *err)
{
    const struct sequences_config config = {
        .idle_ms = d->config.sequence_idle_ms,
        .env = &d->env,
        .conversations = &d->conversations,
        .sessions = &d->sessions,
        .alarm = &d->sequences_alarm.alarm,
    };

    return sequences_init(&d->sequences, &config, err);
}

static size_t memory_bytes(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

static void start_stores(struct daemon *d)
{
    size_t max_bytes = d->config.store_bytes;

    stores_init(&d->stores, &d->env, max_bytes != 0 ? max_bytes : memory_bytes() / 4);
}

static void start_replays(struct daemon *d)
{
    size_t max_bytes = d->config.replay_bytes;
    const struct replays_config config = {
        .env = &d->env,
        .max_bytes = max_bytes != 0 ? max_bytes : memory_bytes() / 2,
        .alarm = &d->replays_alarm.alarm,
    };

    replays_init(&d->replays, &config);
}

static void start_params(struct daemon *d)
{
    size_t max_bytes = d->config.params_bytes != 0 ? d->config.params_bytes : memory_bytes() / 2;

    params_sets_init(&d->params, &d->loop, &d->env, max_bytes);
    d->params.quota_of = quota_of_principal;
    d->params.quota_arg = d;
    d->params.on_idle = go_on_later;
    d->params.idle_arg = d;
}

static void daemon_open_handles(struct daemon *d)
{
    /* None of these allocates. */
    loop_alarm_open(&d->conversations_alarm, &d->loop, &d->env, conversations_tick,
                    &d->conversations);
    loop_alarm_open(&d->keyed_alarm, &d->loop, &d->env, keyed_replies_tick, &d->keyed);
    loop_alarm_open(&d->sessions_alarm, &d->loop, &d->env, sessions_tick, &d->sessions);
    loop_alarm_open(&d->sequences_alarm, &d->loop, &d->env, sequences_tick, &d->sequences);
    loop_alarm_open(&d->retention_alarm, &d->loop, &d->env, retention_tick, &d->retention);
    loop_alarm_open(&d->attached_alarm, &d->loop, &d->env, attached_tick, &d->attached);
    loop_alarm_open(&d->vectors_alarm, &d->loop, &d->env, vectors_tick, &d->vectors);
    loop_alarm_open(&d->replays_alarm, &d->loop, &d->env, replays_tick, &d->replays);
    loop_alarm_open(&d->kept_stores_alarm, &d->loop, &d->env, keeper_tick, &d->stores.keeper);
    loop_alarm_open(&d->kept_replays_alarm, &d->loop, &d->env, keeper_tick, &d->replays.keeper);
    loop_alarm_open(&d->work_alarm, &d->loop, &d->env, work_tick, &d->work);
    loop_alarm_open(&d->groups_alarm, &d->loop, &d->env, groups_tick, &d->groups);
    models_open(&d->models);
    loop_watch_open(&d->watch, &d->loop);
    notifier_open(&d->notifier, &d->loop, getenv("NOTIFY_SOCKET"), getenv("WATCHDOG_USEC"),
                  getenv("WATCHDOG_PID"));
    (void)uv_timer_init(&d->loop, &d->drain_timer);
    (void)uv_idle_init(&d->loop, &d->later);
    d->drain_timer.data = d->later.data = d;
    (void)uv_signal_init(&d->loop, &d->hangup);
    d->hangup.data = d;
    (void)uv_signal_start(&d->hangup, on_hangup, SIGHUP);
}

enum status daemon_run(const struct config *config, struct error *err)
{
    struct daemon d = {.config = *config, .env = env_real, .err = err};
    int left;

    *err = (struct error){0};
    d.server = (struct server){
        .env = &d.env,
        .start_us = env_now_us(&d.env),
        .models = &d.models,
        .attached = &d.attached,
        .conversations = &d.conversations,
        .names = &d.names,
        .keyed = &d.keyed,
        .sessions = &d.sessions,
        .sequences = &d.sequences,
        .trainers = &d.trainers,
        .params = &d.params,
        .vectors = &d.vectors,
        .rollouts = &d.rollouts,
        .groups = &d.groups,
        .stores = &d.stores,
        .replays = &d.replays,
        .work = &d.work,
        .watch = &d.watch,
    };
    init_models(&d);
    init_attached(&d);
    init_vectors(&d);
    init_work(&d);
    stop_signal_set_patience(config->drain_timeout_ms + WATCHED_MS);
    reload_init(&d.reload, config, daemon_parts, sizeof(daemon_parts) / sizeof(daemon_parts[0]),
                &d);
    trainers_init(&d.trainers, &d.sessions, &d.loop);
    d.trainers.on_idle = go_on_later;
    d.trainers.idle_arg = &d;
    if (check_open_files(err) != STATUS_OK)
        return err->status;
    log_info("open_files", "limit=%zu grpc=%zu http=%zu admin=%zu files=%zu", open_files_max(),
             open_files_for_grpc(), open_files_for_http(), open_files_for_admin(),
             open_files_max() - open_files_for_admin());
    if (uv_loop_init(&d.loop) != 0)
        return error_set(err, STATUS_EXHAUSTED, "no descriptors are left for the loop");
    if (stop_signal_open(&d.loop, on_stop, &d, err) != STATUS_OK) {
        (void)uv_loop_close(&d.loop); /* nothing is open */
        return err->status;
    }
    health_init(&d.health);
    health_set(&d.health, "", HEALTH_NOT_SERVING);
    for (size_t i = 0; i < descriptor_n_services; i++)
        health_set(&d.health, descriptor_services[i], HEALTH_NOT_SERVING);
    daemon_open_handles(&d);
    start_params(&d);
    groups_init(&d.groups, &d.env, &d.groups_alarm.alarm);
    start_stores(&d);
    start_replays(&d);
    start_conversations(&d);
    start_sessions(&d);
    start_peers(&d);
    if (start_access(&d, err) != STATUS_OK || start_journal(&d, err) != STATUS_OK ||
        start_tls(&d, err) != STATUS_OK || start_sequences(&d, err) != STATUS_OK ||
        start_ports(&d, err) != STATUS_OK || start_http(&d, err) != STATUS_OK ||
        start_models(&d, err) != STATUS_OK)
        daemon_fail(&d, err);
    (void)uv_run(&d.loop, UV_RUN_DEFAULT); /* returns when the loop is empty */
    assert(d.server.state == SERVER_STOPPED);
    http_free(d.http);
    peer_addresses_close(d.peer_addresses);
    keyed_replies_deinit(&d.keyed);
    conversation_names_deinit(&d.names);
    conversations_deinit(&d.conversations);
    models_deinit(&d.models);
    sequences_deinit(&d.sequences);
    sessions_deinit(&d.sessions);
    vectors_deinit(&d.vectors);
    groups_deinit(&d.groups);
    stores_deinit(&d.stores);
    replays_deinit(&d.replays);
    work_deinit(&d.work);
    params_sets_deinit(&d.params);
    attached_deinit(&d.attached);
    access_close(d.access); /* what they own is gone */
    health_deinit(&d.health);
    reload_deinit(&d.reload);
    left = uv_loop_close(&d.loop);
    daemon_watch(false);
    assert(left == 0);
    (void)left;
    return err->status;
}
