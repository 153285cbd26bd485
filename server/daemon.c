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

#include "base/address.h"
#include "base/log.h"
#include "proto/descriptors.h"
#include "server/access/access.h"
#include "server/check.h"
#include "server/cluster/cluster.h"
#include "server/cluster/places.h"
#include "server/conversation/conversations.h"
#include "server/daemon_state.h"
#include "server/journal/journal.h"
#include "server/journal/postgres.h"
#include "server/model/models.h"
#include "server/net/open_files.h"
#include "server/service/log.h"
#include "server/service/plan.h"
#include "server/stop_signal.h"
#include "server/watchdog.h"

enum { DRAIN_LOOK_MS = 10 };

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

/* The host's go_on. Advances from the loop itself: the caller may be inside what is to be stopped.
 */
static void daemon_go_on(void *host)
{
    struct daemon *d = container_of(host, struct daemon, host);

    if (d->server.state == SERVER_DRAINING || d->server.state == SERVER_ENDING)
        (void)uv_idle_start(&d->later, on_later); /* fails only without a callback */
}

static void on_drain_timer(uv_timer_t *timer);

/* The ports do not report their last call, so the daemon looks. */
static void daemon_begin_to_look(struct daemon *d)
{
    (void)uv_timer_start(&d->drain_timer, on_drain_timer, DRAIN_LOOK_MS,
                         DRAIN_LOOK_MS); /* fails only when closing */
    daemon_go_on(&d->host);
}

static void daemon_end(struct daemon *d)
{
    daemon_move(d, SERVER_ENDING);
    notifier_send(&d->notifier, "STOPPING=1\nSTATUS=stopping");
    stop_signal_allow(WATCHED_MS); /* for running steps, until the parts stop */
    ports_end(&d->ports);
    health_set_all(&d->health, HEALTH_NOT_SERVING);
    part_list_end(&d->parts);
    daemon_begin_to_look(d);
}

static void daemon_fail(struct part_host *host, const struct error *why)
{
    struct daemon *d = container_of(host, struct daemon, host);

    if (d->err->status == STATUS_OK)
        *d->err = *why;
    if (d->server.state != SERVER_ENDING)
        daemon_end(d);
}

static void on_journal_stopped(void *arg)
{
    struct daemon *d = arg;

    d->host.journal = NULL;
    daemon_go_on(&d->host);
}

/* Returns whether it has stopped. */
static bool daemon_stop_journal(struct daemon *d)
{
    if (d->host.journal != NULL && !d->is_stopping_journal)
        journal_stop(d->host.journal, on_journal_stopped, d);
    d->is_stopping_journal = true;
    return d->host.journal == NULL;
}

static void daemon_close_handles(struct daemon *d)
{
    ports_close(&d->ports);
    part_list_close(&d->parts);
    loop_watch_close(&d->watch);
    notifier_close(&d->notifier);
    uv_close((uv_handle_t *)&d->drain_timer, NULL);
    uv_close((uv_handle_t *)&d->later, NULL);
    uv_close((uv_handle_t *)&d->hangup, NULL);
    stop_signal_close();
}

/* The order of the stop. */
static void daemon_advance(struct daemon *d)
{
    if (d->server.state == SERVER_DRAINING && d->server.conversations->n_live == 0 &&
        ports_n_awaited(&d->ports) == 0)
        daemon_end(d);
    if (d->server.state != SERVER_ENDING || !ports_have_answered(&d->ports) ||
        !part_list_are_idle(&d->parts) || !part_list_stop(&d->parts) || !ports_stop(&d->ports) ||
        !part_list_are_kept(&d->parts) || !daemon_stop_journal(d))
        return;
    daemon_move(d, SERVER_STOPPED);
    watchdog_set(true); /* until the loop is empty */
    daemon_close_handles(d);
}

static void on_drain_timer(uv_timer_t *timer)
{
    struct daemon *d = timer->data;

    if (d->server.state == SERVER_DRAINING && env_now_us(&d->env) >= d->drain_until_us) {
        log_warn("drain", "turns=%zu cancelled=all", d->server.conversations->n_live);
        daemon_end(d);
    }
    daemon_go_on(&d->host);
}

static void daemon_drain(struct daemon *d)
{
    const size_t n_turns = d->server.conversations->n_live;

    daemon_move(d, SERVER_DRAINING);
    log_info("draining", "turns=%zu", n_turns);
    notifier_send(&d->notifier, "STOPPING=1\nSTATUS=draining %zu turns", n_turns);
    health_set_all(&d->health, HEALTH_NOT_SERVING);
    part_list_drain(&d->parts);
    ports_drain(&d->ports);
    d->drain_until_us = env_now_us(&d->env) + d->config.drain_timeout_ms * 1000;
    daemon_begin_to_look(d);
}

static void on_hangup(uv_signal_t *handle, int number)
{
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

/* While nothing can be stored, balancers that ask for the service send its calls elsewhere. */
static void on_journal_changed(void *arg)
{
    struct daemon *d = arg;

    if (d->server.state == SERVER_SERVING)
        health_set(&d->health, "parley.v1.Conversations",
                   journal_trouble(d->host.journal) == NULL ? HEALTH_SERVING : HEALTH_NOT_SERVING);
}

/* Where others reach this daemon: as was said, with the port that was bound; or at the first
 * address, unless only this machine can know it or it is any address. */
static void daemon_join_cluster(struct daemon *d)
{
    const char *said = d->config.cluster_address, *bound = ports_address(&d->ports);
    char host[ADDRESS_HOST_MAX + 1], port[ADDRESS_PORT_CHARS], address[JOURNAL_ADDRESS_CHARS] = "";
    struct error ignored;

    if (!journal_is_shared(d->host.journal))
        return;
    if (said == NULL && address_unix_path(bound) == NULL && strncmp(bound, "0.0.0.0:", 8) != 0 &&
        strncmp(bound, "[::]:", 5) != 0)
        said = bound;
    if (said == NULL)
        log_warn("cluster", "passed_on=no what=\"other daemons cannot pass calls on to this one: "
                            "give --cluster-address HOST:PORT, or off\"");
    else if (strcmp(said, "off") != 0)
        (void)snprintf(address, sizeof(address), "%s", said);
    if (strlen(address) > 2 && strcmp(address + strlen(address) - 2, ":0") == 0 &&
        address_split(host, port, bound, &ignored) == STATUS_OK)
        (void)snprintf(address + strlen(address) - 1, sizeof(address) - strlen(address) + 1, "%s",
                       port);
    cluster_join(d->server.cluster, address);
    places_join(d->server.places, d->host.journal);
}

/* The host's loaded. */
static void daemon_serve(struct part_host *host)
{
    struct daemon *d = container_of(host, struct daemon, host);

    daemon_move(d, SERVER_SERVING);
    ports_serve(&d->ports);
    health_set_all(&d->health, HEALTH_SERVING);
    on_journal_changed(d);
    ports_say_ready(&d->ports);
    daemon_join_cluster(d);
    notifier_send(&d->notifier, "READY=1\nSTATUS=serves %zu models on %s",
                  d->server.models->n_loaded, ports_address(&d->ports));
    if (d->is_reload_due)
        daemon_reload(d);
}

static uint64_t daemon_unix_s(void)
{
    return (uint64_t)time(NULL);
}

static enum status daemon_open_access(struct daemon *d, struct error *err)
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

/* Reads the plan before the parts are made, and says what of ParlAI's keys means nothing. */
static enum status daemon_open_plan(struct daemon *d, struct error *err)
{
    if (d->config.service == NULL)
        return STATUS_OK;
    if (service_plan_open(&d->service_plan, d->config.service, err) != STATUS_OK ||
        service_log_open(&d->host.service_log, d->service_plan, err) != STATUS_OK)
        return error_prefix(err, "--service");
    d->host.service_plan = d->service_plan;
    for (size_t i = 0; i < d->service_plan->n_ignored; i++)
        log_warn("service", "key=%s means=nothing_here", d->service_plan->ignored[i]);
    return STATUS_OK;
}

static enum status daemon_check_service(struct daemon *d, struct error *err)
{
    return d->service_plan == NULL ? STATUS_OK
                                   : check_service(d->service_plan, &d->config, d->access, err);
}

static void daemon_close_plan(struct daemon *d)
{
    service_log_close(d->host.service_log);
    service_plan_close(d->service_plan);
}

enum { LEASE_MIN_MS = 100 };

static enum status daemon_open_journal(struct daemon *d, struct error *err)
{
    const char *data = d->config.data;
    const bool is_shared = data != NULL && postgres_is_url(data);
    const struct journal_config config = {.dir = data,
                                          .type = is_shared ? &journal_postgres : NULL,
                                          .lease_ms = (uint32_t)d->config.lease_ms,
                                          .changed = on_journal_changed,
                                          .changed_arg = d};
    char shown[POSTGRES_SHOWN_MAX];

    if (data == NULL)
        return STATUS_OK;
    if (is_shared && d->config.retain_bytes != 0)
        return error_set(err, STATUS_INVALID,
                         "--retain-size: PostgreSQL does not tell how much its tables really hold: "
                         "bound them by --retain-age");
    if (is_shared && d->config.lease_ms < LEASE_MIN_MS)
        return error_set(err, STATUS_INVALID, "--lease: at least %dms", LEASE_MIN_MS);
    if (journal_open(&d->host.journal, &d->loop, &config, err) != STATUS_OK)
        return error_prefix(err, "--data");
    part_list_keep(&d->parts, &d->host);
    log_info("keeps", "data=%s", is_shared ? postgres_shown(data, shown) : data);
    return STATUS_OK;
}

static void daemon_init_health(struct daemon *d)
{
    health_init(&d->health);
    health_set(&d->health, "", HEALTH_NOT_SERVING);
    for (size_t i = 0; i < descriptor_n_services; i++)
        health_set(&d->health, descriptor_services[i], HEALTH_NOT_SERVING);
}

/* None of these allocates. */
static void daemon_open_handles(struct daemon *d)
{
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

static void daemon_init(struct daemon *d, const struct config *config, struct error *err)
{
    *d = (struct daemon){.config = *config, .env = env_real, .err = err};
    d->server =
        (struct server){.env = &d->env, .start_us = env_now_us(&d->env), .watch = &d->watch};
    d->host = (struct part_host){.loop = &d->loop,
                                 .env = &d->env,
                                 .config = &d->config,
                                 .server = &d->server,
                                 .health = &d->health,
                                 .go_on = daemon_go_on,
                                 .loaded = daemon_serve,
                                 .fail = daemon_fail};
    d->ports.host = &d->host;
    daemon_init_reload(d, config);
}

enum status daemon_run(const struct config *config, struct error *err)
{
    struct daemon d;
    int left;

    *err = (struct error){0};
    daemon_init(&d, config, err);
    stop_signal_set_patience(config->drain_timeout_ms + WATCHED_MS);
    if (check_open_files(err) != STATUS_OK || daemon_open_plan(&d, err) != STATUS_OK) {
        daemon_close_plan(&d);
        return err->status;
    }
    log_info("open_files", "limit=%zu grpc=%zu http=%zu admin=%zu files=%zu", open_files_max(),
             open_files_for_grpc(), open_files_for_http(), open_files_for_admin(),
             open_files_max() - open_files_for_admin());
    if (uv_loop_init(&d.loop) != 0) {
        daemon_close_plan(&d);
        return error_set(err, STATUS_EXHAUSTED, "no descriptors are left for the loop");
    }
    if (stop_signal_open(&d.loop, on_stop, &d, err) != STATUS_OK) {
        (void)uv_loop_close(&d.loop); /* nothing is open */
        daemon_close_plan(&d);
        return err->status;
    }
    daemon_init_health(&d);
    daemon_open_handles(&d);
    part_list_init(&d.parts, &d.host);
    if (daemon_open_access(&d, err) != STATUS_OK || daemon_check_service(&d, err) != STATUS_OK ||
        daemon_open_journal(&d, err) != STATUS_OK ||
        ports_open(&d.ports, d.access, err) != STATUS_OK ||
        part_load_models(&d.host, err) != STATUS_OK)
        daemon_fail(&d.host, err);
    (void)uv_run(&d.loop, UV_RUN_DEFAULT); /* returns when the loop is empty */
    assert(d.server.state == SERVER_STOPPED);
    ports_deinit(&d.ports);
    part_list_deinit(&d.parts);
    daemon_close_plan(&d);
    access_close(d.access); /* what they own is gone */
    health_deinit(&d.health);
    reload_deinit(&d.reload);
    left = uv_loop_close(&d.loop);
    watchdog_set(false);
    assert(left == 0);
    (void)left;
    return err->status;
}
