/* The page is made anew for each request. Whoever counts something has its metrics beside it; what
 * is left for this file are the daemon's own, and the order of the page. */
#include "server/api/metrics.h"

#include <sys/resource.h>

#include "base/env.h"
#include "server/access/access.h"
#include "server/access/quota.h"
#include "server/act/session.h"
#include "server/api/kserve/sequences.h"
#include "server/cluster/cluster.h"
#include "server/compile/compiler.h"
#include "server/conversation/conversations.h"
#include "server/journal/journal.h"
#include "server/loop_watch.h"
#include "server/model/budget.h"
#include "server/model/model_metrics.h"
#include "server/model/models.h"
#include "server/registry/groups.h"
#include "server/room/rooms.h"
#include "server/server.h"
#include "server/service/service.h"
#include "server/telemetry/metric.h"
#include "server/work/work.h"

static void write_calls(const struct server *server, struct buf *out)
{
    static const struct metric_row rows[] = {
        METRIC("gauge", "parley_calls", "Calls of gRPC and Connect in flight.", server,
               calls.n_calls),
        METRIC("counter", "parley_connections_refused_total",
               "Connections that were closed at once: too many for the limit of open files, or of "
               "one address.",
               server, n_connections_refused),
        METRIC("counter", "parley_connections_silent_total",
               "Connections that were closed because their peer said nothing.", server,
               n_connections_dropped),
        METRIC("counter", "parley_calls_total", "Calls of gRPC and Connect, the refused ones too.",
               server, calls.n_started),
        METRIC("counter", "parley_calls_failed_total",
               "Calls of gRPC and Connect that ended with an error or were left.", server,
               calls.n_failed),
    };
    const struct call_stats *calls = &server->calls;

    METRIC_ROWS(out, rows, server);
    metric_head(out, "parley_refusal_seconds", "histogram",
                "gRPC calls that were refused as one too many, from their arrival on; with keys.");
    metric_labelled(out, "parley_refusal_seconds_bucket", (double)calls->n_refused_in_1ms,
                    "le=\"0.001\"");
    metric_labelled(out, "parley_refusal_seconds_bucket", (double)calls->n_refused_in_10ms,
                    "le=\"0.01\"");
    metric_labelled(out, "parley_refusal_seconds_bucket", (double)calls->n_refused, "le=\"+Inf\"");
    metric_sample(out, "parley_refusal_seconds_sum", (double)calls->refused_us / 1e6);
    metric_sample(out, "parley_refusal_seconds_count", (double)calls->n_refused);
}

static void write_reloads(const struct server *server, struct buf *out)
{
    metric_head(out, "parley_reloads_total", "counter",
                "Times that SIGHUP had the configuration read.");
    metric_labelled(out, "parley_reloads_total", (double)server->n_reloads_done, "result=\"done\"");
    metric_labelled(out, "parley_reloads_total", (double)server->n_reloads_failed,
                    "result=\"failed\"");
}

/* Whose quota it was is not told. */
static void write_quotas(const struct access *access, struct buf *out)
{
    if (access == NULL)
        return;
    metric_head(out, "parley_quota_refusals_total", "counter",
                "Requests refused by a principal's quota.");
    for (unsigned kind = 0; kind < N_QUOTA_KINDS; kind++)
        metric_labelled(out, "parley_quota_refusals_total", (double)access_n_refused(access, kind),
                        "limit=\"%s\"", quota_kind_name((enum quota_kind)kind));
}

static double seconds_of(const struct timeval *t)
{
    return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

static void write_process(struct buf *out)
{
    struct rusage used = {0};
    size_t rss_bytes = 0;

    (void)getrusage(RUSAGE_SELF, &used);      /* cannot fail with these arguments */
    (void)uv_resident_set_memory(&rss_bytes); /* stays 0 where it is unknown */
    metric_one(out, "process_resident_memory_bytes", "gauge", "Resident memory.",
               (double)rss_bytes);
    metric_one(out, "process_cpu_seconds_total", "counter", "User and system time.",
               seconds_of(&used.ru_utime) + seconds_of(&used.ru_stime));
}

void metrics_render(struct server *server, struct buf *out)
{
    const struct conversations *conversations = server->conversations;
    const struct models *models = server->models;

    model_metrics(models, out);
    metric_head(out, "parley_build_info", "gauge", "The version that runs.");
    metric_labelled(out, "parley_build_info", 1, "version=\"" PARLEY_VERSION "\"");
    metric_one(out, "parley_uptime_seconds", "gauge", "Since the start.",
               (double)(env_now_us(server->env) - server->start_us) / 1e6);
    write_calls(server, out);
    metric_one(out, "parley_conversations_opened_total", "counter",
               "Conversations opened or forked.", (double)conversations->n_opened);
    metric_one(out, "parley_sessions", "gauge", "Runs of environments that live.",
               (double)server->sessions->limit.held);
    metric_one(out, "parley_sequences", "gauge", "Sequences of KServe's clients that live.",
               (double)server->sequences->limit.held);
    work_metrics(server->work, out);
    compiler_metrics(&models->compiler, out);
    if (server->watch != NULL)
        metric_one(out, "parley_loop_longest_seconds", "gauge",
                   "The most processor time that the loop took between two looks for events.",
                   (double)server->watch->longest_us / 1e6);
    groups_metrics(server->groups, out);
    rooms_metrics(server->rooms, out);
    if (server->service->config.plan != NULL)
        service_metrics(server->service, out);
    journal_metrics(conversations->keeping.journal, out);
    cluster_metrics(server->cluster, out);
    metric_one(out, "parley_live_turns", "gauge", "Turns in flight or queued.",
               (double)conversations->n_live);
    write_reloads(server, out);
    metric_one(out, "parley_memory_limit_bytes", "gauge", "--memory; 0: no bound.",
               (double)models->config.memory_bytes);
    metric_one(out, "parley_memory_used_bytes", "gauge",
               "Weights and KV pages of all loaded models.", (double)budget_used(models));
    metric_one(out, "parley_models_evicted_total", "counter",
               "Models unloaded to make room for another.", (double)models->n_evicted);
    write_quotas(server->access, out);
    write_process(out);
}
