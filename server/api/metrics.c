/* The format wants all samples of a name together, so the models are read once, and then each name
 * iterates over all of them. */
#include "server/api/metrics.h"

#include <string.h>
#include <sys/resource.h>

#include "base/env.h"
#include "server/access/access.h"
#include "server/access/quota.h"
#include "server/act/session.h"
#include "server/api/kserve/sequences.h"
#include "server/compile/compiler.h"
#include "server/conversation/conversations.h"
#include "server/journal/journal.h"
#include "server/loop_watch.h"
#include "server/model/budget.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/registry/groups.h"
#include "server/rpc/port.h"
#include "server/server.h"
#include "server/work/work.h"

enum { LABEL_MAX = 160 };

/* A snapshot of a model. */
struct metrics_view {
    char labels[LABEL_MAX]; /* model="…" */
    const struct model *model;
    const struct statistics *statistics;
    struct batcher_stats batching;
    struct agent_info info;
};

struct metrics_page {
    struct buf *out;
    struct server *server;
    const struct metrics_view *views; /* [n_views] */
    size_t n_views;
};

/* A line that does not fit in a full page is left out: (void). */
#define SAY(page, ...) ((void)!buf_printf((page)->out, __VA_ARGS__))

static void head(const struct metrics_page *p, const char *name, const char *type, const char *help)
{
    SAY(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* --- metrics with one value for each model --- */

static double success(const struct metrics_view *v)
{
    return (double)v->statistics->success.n;
}

static double steps(const struct metrics_view *v)
{
    return (double)v->statistics->n_steps;
}

static double request_us(const struct metrics_view *v)
{
    return (double)v->statistics->success.us;
}

static double queue_us(const struct metrics_view *v)
{
    return (double)v->statistics->queue.us;
}

static double input_us(const struct metrics_view *v)
{
    return (double)v->statistics->input.us;
}

static double infer_us(const struct metrics_view *v)
{
    return (double)v->statistics->infer.us;
}

static double output_us(const struct metrics_view *v)
{
    return (double)v->statistics->output.us;
}

static double pending(const struct metrics_view *v)
{
    size_t n_open = v->statistics->n_open;

    return n_open > v->batching.n_running ? (double)(n_open - v->batching.n_running) : 0;
}

static double ready(const struct metrics_view *v)
{
    return v->model->state == MODEL_READY;
}

static double conversations(const struct metrics_view *v)
{
    return (double)v->model->n_conversations;
}

static double cancelled(const struct metrics_view *v)
{
    return (double)v->statistics->failed[STATUS_CANCELLED];
}

static double prompt_tokens(const struct metrics_view *v)
{
    return (double)v->statistics->n_prompt;
}

static double cached_tokens(const struct metrics_view *v)
{
    return (double)v->statistics->n_cached;
}

static double said_tokens(const struct metrics_view *v)
{
    return (double)v->statistics->n_said;
}

static double rows(const struct metrics_view *v)
{
    return (double)v->statistics->n_rows;
}

static double kv_pages(const struct metrics_view *v)
{
    return (double)v->info.kv_pages;
}

static double kv_free(const struct metrics_view *v)
{
    return (double)v->info.kv_pages_free;
}

static double kv_shared(const struct metrics_view *v)
{
    return (double)v->info.kv_pages_shared;
}

static double kv_cached(const struct metrics_view *v)
{
    return (double)v->info.kv_pages_cached;
}

static double kv_page_bytes(const struct metrics_view *v)
{
    return (double)v->info.kv_page_bytes;
}

static double device_pages(const struct metrics_view *v)
{
    return (double)v->info.kv_host_pages;
}

static double device_pages_used(const struct metrics_view *v)
{
    return (double)v->info.kv_host_pages_used;
}

static double device_spills(const struct metrics_view *v)
{
    return (double)v->info.kv_offloads;
}

static double device_fills(const struct metrics_view *v)
{
    return (double)v->info.kv_reloads;
}

static double device_losses(const struct metrics_view *v)
{
    return (double)v->info.device_losses;
}

static double device_graphs(const struct metrics_view *v)
{
    return (double)v->info.device_graphs;
}

static double kv_copies(const struct metrics_view *v)
{
    return (double)v->info.kv_copies;
}

static double recomputes(const struct metrics_view *v)
{
    return (double)v->info.kv_recomputes;
}

static double prefix_lookups(const struct metrics_view *v)
{
    return (double)v->info.prefix_lookup_tokens;
}

static double prefix_hits(const struct metrics_view *v)
{
    return (double)v->info.prefix_hit_tokens;
}

static double drafted(const struct metrics_view *v)
{
    return (double)v->info.drafted_tokens;
}

static double accepted(const struct metrics_view *v)
{
    return (double)v->info.accepted_tokens;
}

static double weight_bytes(const struct metrics_view *v)
{
    return (double)v->info.weight_bytes;
}

struct figure {
    const char *name, *type, *help;
    double (*of)(const struct metrics_view *v);
    bool is_tritons; /* with the label version */
};

static const struct figure figures[] = {
    {"nv_inference_request_success", "counter", "Requests answered.", success, true},
    {"nv_inference_count", "counter", "Inferences: a request is one.", success, true},
    {"nv_inference_exec_count", "counter", "Batches computed: steps.", steps, true},
    {"nv_inference_request_duration_us", "counter", "Sum over answered requests.", request_us,
     true},
    {"nv_inference_queue_duration_us", "counter", "Sum: accepted until the first step.", queue_us,
     true},
    {"nv_inference_compute_input_duration_us", "counter", "Sum: observing what was asked.",
     input_us, true},
    {"nv_inference_compute_infer_duration_us", "counter", "Sum: first step until the last.",
     infer_us, true},
    {"nv_inference_compute_output_duration_us", "counter", "Sum: keeping what was answered.",
     output_us, true},
    {"nv_inference_pending_request_count", "gauge", "Requests accepted that run in no step yet.",
     pending, true},
    {"parley_model_ready", "gauge", "Whether the model serves.", ready, false},
    {"parley_model_weight_bytes", "gauge", "Memory of the weights.", weight_bytes, false},
    {"parley_conversations", "gauge", "Conversations that live.", conversations, false},
    {"parley_cancelled_turns_total", "counter", "Turns and steps that ended cancelled.", cancelled,
     false},
    {"parley_prompt_tokens_total", "counter", "Tokens of prompts answered.", prompt_tokens, false},
    {"parley_cached_prompt_tokens_total", "counter", "Of those, not computed again.", cached_tokens,
     false},
    {"parley_generated_tokens_total", "counter", "Tokens of replies.", said_tokens, false},
    {"parley_rows_total", "counter", "Rows of all steps.", rows, false},
    {"parley_kv_pages", "gauge", "Pages of the KV cache.", kv_pages, false},
    {"parley_kv_pages_free", "gauge", "Pages that are not in use.", kv_free, false},
    {"parley_kv_pages_shared", "gauge", "Pages held more than once.", kv_shared, false},
    {"parley_kv_pages_cached", "gauge", "Pages found by who begins alike.", kv_cached, false},
    {"parley_kv_page_bytes", "gauge", "Size of a page.", kv_page_bytes, false},
    {"parley_kv_page_copies_total", "counter", "Pages copied on write.", kv_copies, false},
    {"parley_recomputes_total", "counter", "Conversations computed again after they lost pages.",
     recomputes, false},
    {"parley_device_host_pages", "gauge", "Pages of the host's memory behind a device's.",
     device_pages, false},
    {"parley_device_host_pages_used", "gauge", "Of those, full.", device_pages_used, false},
    {"parley_device_spills_total", "counter", "Pages that moved there.", device_spills, false},
    {"parley_device_fills_total", "counter", "Pages that came back.", device_fills, false},
    {"parley_device_losses_total", "counter", "Times a device failed and was opened anew.",
     device_losses, false},
    {"parley_device_graphs", "gauge", "Kinds of steps that a device launches as one.",
     device_graphs, false},
    {"parley_prefix_lookup_tokens_total", "counter", "Tokens of prompts looked for in the cache.",
     prefix_lookups, false},
    {"parley_prefix_hit_tokens_total", "counter", "Of those, found.", prefix_hits, false},
    {"parley_drafted_tokens_total", "counter", "Guesses computed.", drafted, false},
    {"parley_accepted_tokens_total", "counter", "Guesses that were right.", accepted, false},
};

static void say_figure(const struct metrics_page *p, const struct figure *f)
{
    head(p, f->name, f->type, f->help);
    for (size_t i = 0; i < p->n_views; i++)
        SAY(p, "%s{%s%s} %.17g\n", f->name, p->views[i].labels,
            f->is_tritons ? ",version=\"1\"" : "", f->of(&p->views[i]));
}

/* --- metrics by reason --- */

enum nv_reason { NV_REJECTED, NV_CANCELED, NV_BACKEND, NV_OTHER, N_NV_REASONS };

static enum nv_reason nv_reason(enum status why)
{
    switch (why) {
    case STATUS_EXHAUSTED:
    case STATUS_UNAVAILABLE:
    case STATUS_DEADLINE:
        return NV_REJECTED;
    case STATUS_CANCELLED:
        return NV_CANCELED;
    case STATUS_INTERNAL:
    case STATUS_UNKNOWN:
    case STATUS_DATA_LOSS:
        return NV_BACKEND;
    default:
        return NV_OTHER;
    }
}

static void say_failures(const struct metrics_page *p)
{
    static const char *const names[N_NV_REASONS] = {"REJECTED", "CANCELED", "BACKEND", "OTHER"};

    head(p, "nv_inference_request_failure", "counter", "Requests that were not answered.");
    for (size_t i = 0; i < p->n_views; i++) {
        const struct statistics *s = p->views[i].statistics;
        uint64_t n[N_NV_REASONS] = {0};

        for (size_t status = 0; status < N_STATUSES; status++)
            n[nv_reason((enum status)status)] += s->refused[status] + s->failed[status];
        for (size_t r = 0; r < N_NV_REASONS; r++)
            SAY(p, "nv_inference_request_failure{%s,version=\"1\",reason=\"%s\"} %llu\n",
                p->views[i].labels, names[r], (unsigned long long)n[r]);
    }
}

/* Labels are gRPC's status names in lower case: the common ones, and those that have occurred. */
static void say_rejects(const struct metrics_page *p)
{
    static const enum status common[] = {STATUS_INVALID, STATUS_EXHAUSTED, STATUS_UNAVAILABLE};

    head(p, "parley_rejects_total", "counter", "Requests refused before they began.");
    for (size_t i = 0; i < p->n_views; i++) {
        const struct statistics *s = p->views[i].statistics;

        for (size_t status = 1; status < N_STATUSES; status++) {
            char reason[32] = "";
            bool is_said = s->refused[status] > 0;

            for (size_t k = 0; k < sizeof(common) / sizeof(common[0]); k++)
                is_said |= common[k] == (enum status)status;
            if (!is_said)
                continue;
            for (size_t k = 0; k + 1 < sizeof(reason); k++) {
                char c = status_name((enum status)status)[k];

                if (c == '\0')
                    break;
                reason[k] = (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
            }
            SAY(p, "parley_rejects_total{%s,reason=\"%s\"} %llu\n", p->views[i].labels, reason,
                (unsigned long long)s->refused[status]);
        }
    }
}

static void say_evictions(const struct metrics_page *p)
{
    head(p, "parley_evictions_total", "counter",
         "What lost its place in the KV cache: idle conversations, cached pages, running rows.");
    for (size_t i = 0; i < p->n_views; i++) {
        const struct metrics_view *v = &p->views[i];
        const struct {
            const char *reason;
            uint64_t n;
        } lost[] = {{"idle", v->info.kv_evictions - v->batching.n_preempted},
                    {"cached", v->info.kv_pages_evicted},
                    {"preempted", v->batching.n_preempted}};

        for (size_t k = 0; k < sizeof(lost) / sizeof(lost[0]); k++)
            SAY(p, "parley_evictions_total{%s,reason=\"%s\"} %llu\n", v->labels, lost[k].reason,
                (unsigned long long)lost[k].n);
    }
}

static void say_asks(const struct metrics_page *p)
{
    head(p, "parley_asks", "gauge", "Asks of the batcher, by what they do.");
    for (size_t i = 0; i < p->n_views; i++) {
        const struct metrics_view *v = &p->views[i];

        SAY(p, "parley_asks{%s,state=\"waiting\"} %zu\n", v->labels,
            v->batching.n_waiting + v->batching.n_flow_queued);
        SAY(p, "parley_asks{%s,state=\"running\"} %zu\n", v->labels, v->batching.n_running);
    }
}

/* --- histograms --- */

struct spread {
    const char *name, *help;
    size_t offset; /* in struct statistics */
    const struct histogram_scale *scale;
};

#define OF(member) offsetof(struct statistics, member)
static const struct spread spreads[] = {
    {"parley_ttft_seconds", "Accepted until the first token.", OF(ttft), &histogram_times},
    {"parley_inter_token_seconds", "From one token of a reply to the next.", OF(inter_token),
     &histogram_times},
    {"parley_queue_seconds", "Accepted until the first step.", OF(queue_times), &histogram_times},
    {"parley_prefill_seconds", "First step until the first token.", OF(prefill), &histogram_times},
    {"parley_decode_seconds", "First token until the last.", OF(decode), &histogram_times},
    {"parley_step_rows", "Rows of a step.", OF(step_rows), &histogram_rows},
    {"parley_step_tokens", "Tokens of a step; rows where the model has no tokens.", OF(step_cost),
     &histogram_tokens},
};

static void say_spread(const struct metrics_page *p, const struct spread *s)
{
    head(p, s->name, "histogram", s->help);
    for (size_t i = 0; i < p->n_views; i++) {
        const struct metrics_view *v = &p->views[i];
        const struct histogram *h = (const void *)((const char *)v->statistics + s->offset);
        uint64_t n = 0;

        for (size_t k = 0; k < s->scale->n_bounds; k++) {
            n += h->counts[k];
            SAY(p, "%s_bucket{%s,le=\"%.10g\"} %llu\n", s->name, v->labels,
                (double)s->scale->bounds[k] / s->scale->unit, (unsigned long long)n);
        }
        SAY(p, "%s_bucket{%s,le=\"+Inf\"} %llu\n", s->name, v->labels, (unsigned long long)h->n);
        SAY(p, "%s_sum{%s} %.17g\n", s->name, v->labels, (double)h->sum / s->scale->unit);
        SAY(p, "%s_count{%s} %llu\n", s->name, v->labels, (unsigned long long)h->n);
    }
}

/* --- metrics of the daemon --- */

static void say_one(const struct metrics_page *p, const char *name, const char *type,
                    const char *help, double value)
{
    head(p, name, type, help);
    SAY(p, "%s %.17g\n", name, value);
}

static double seconds_of(const struct timeval *t)
{
    return (double)t->tv_sec + (double)t->tv_usec / 1e6;
}

static void say_process(const struct metrics_page *p)
{
    struct rusage used = {0};
    size_t rss_bytes = 0;

    (void)getrusage(RUSAGE_SELF, &used);      /* cannot fail with these arguments */
    (void)uv_resident_set_memory(&rss_bytes); /* stays 0 where it is unknown */
    say_one(p, "process_resident_memory_bytes", "gauge", "Resident memory.", (double)rss_bytes);
    say_one(p, "process_cpu_seconds_total", "counter", "User and system time.",
            seconds_of(&used.ru_utime) + seconds_of(&used.ru_stime));
}

/* Whose quota it was is not told. */
static void say_quotas(const struct metrics_page *p)
{
    if (p->server->access == NULL)
        return;
    head(p, "parley_quota_refusals_total", "counter", "Requests refused by a principal's quota.");
    for (unsigned kind = 0; kind < N_QUOTA_KINDS; kind++)
        SAY(p, "parley_quota_refusals_total{limit=\"%s\"} %llu\n",
            quota_kind_name((enum quota_kind)kind),
            (unsigned long long)access_n_refused(p->server->access, kind));
}

static void say_compiler(const struct metrics_page *p, const struct compiler *c)
{
    const struct compiler_figures f = compiler_count(c);
    const struct {
        const char *result;
        uint64_t n;
    } rows[] = {{"done", f.n_done},
                {"refused", f.n_refused},
                {"over_budget", f.n_over_budget},
                {"failed", f.n_failed},
                {"cancelled", f.n_cancelled}};

    say_one(p, "parley_compile_processes", "gauge", "Processes that compile constraints.",
            (double)f.n_processes);
    say_one(p, "parley_compile_running", "gauge", "Constraints that are being compiled.",
            (double)f.n_running);
    say_one(p, "parley_compile_queued", "gauge", "Constraints that wait to be compiled.",
            (double)f.n_waiting);
    head(p, "parley_compile_total", "counter", "Constraints, by how their compilation ended.");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        SAY(p, "parley_compile_total{result=\"%s\"} %llu\n", rows[i].result,
            (unsigned long long)rows[i].n);
}

static void say_work(const struct metrics_page *p, const struct work_table *w)
{
    say_one(p, "parley_work_workers", "gauge", "Workers attached that compute functions.",
            (double)w->workers_limit.held);
    say_one(p, "parley_work_tasks", "gauge", "Tasks whose results were not fetched or forgotten.",
            (double)w->tasks_limit.held);
    say_one(p, "parley_work_queued", "gauge", "Of those, the ones that wait for a worker.",
            (double)work_n_queued(w));
    say_one(p, "parley_work_bytes", "gauge", "Payloads and results; --work-bytes is the ceiling.",
            (double)w->bytes_limit.held);
    say_one(p, "parley_work_tasks_total", "counter", "Tasks submitted.", (double)w->n_submitted);
    say_one(p, "parley_work_failed_total", "counter", "Tasks that ended with a failure.",
            (double)w->n_failed);
    say_one(p, "parley_work_lost_total", "counter", "Times that a task was lost with its worker.",
            (double)w->n_lost);
    say_one(p, "parley_work_retried_total", "counter", "Of those, the ones run again.",
            (double)w->n_retried);
}

static void say_groups(const struct metrics_page *p, const struct groups *g)
{
    say_one(p, "parley_registry_groups", "gauge", "Groups of processes.", (double)g->by_name.n);
    say_one(p, "parley_registry_members", "gauge", "Members of all groups.", (double)g->by_lease.n);
    say_one(p, "parley_registry_waiting", "gauge", "Members that wait at barriers.",
            (double)g->n_waiting);
    say_one(p, "parley_registry_bytes", "gauge", "Values of all groups; 64 MiB is the ceiling.",
            (double)g->value_bytes.held);
    say_one(p, "parley_registry_lost_total", "counter",
            "Members whose connection broke before they left.", (double)g->n_lost);
}

/* j NULL: there is none, and nothing is said. */
static void say_journal(const struct metrics_page *p, const struct journal *j)
{
    struct journal_figures f;

    if (j == NULL)
        return;
    journal_read_figures(j, &f);
    say_one(p, "parley_journal_waiting_bytes", "gauge",
            "Records that are not durable yet; from 64 MiB on turns are refused.",
            (double)f.waiting_bytes);
    say_one(p, "parley_journal_records_total", "counter", "Records that are durable.",
            (double)f.n_records);
    say_one(p, "parley_journal_transactions_total", "counter",
            "Transactions, the failed ones too: records that came together share one.",
            (double)f.n_transactions);
    say_one(p, "parley_journal_failed_total", "counter", "Transactions that failed.",
            (double)f.n_failed);
    say_one(p, "parley_journal_refused_total", "counter",
            "Records that were not stored: turns and changes that were refused.",
            (double)f.n_refused);
    say_one(p, "parley_journal_failing", "gauge",
            "1 while nothing can be stored: turns are refused, what is stored is read.",
            journal_trouble(j) == NULL ? 0 : 1);
}

static void say_daemon(const struct metrics_page *p)
{
    const struct server *server = p->server;
    struct port_stats port = {0};

    head(p, "parley_build_info", "gauge", "The version that runs.");
    SAY(p, "parley_build_info{version=\"" PARLEY_VERSION "\"} 1\n");
    say_one(p, "parley_uptime_seconds", "gauge", "Since the start.",
            (double)(env_now_us(server->env) - server->start_us) / 1e6);
    port_add_stats(server->port, &port);
    port_add_stats(server->admin_port, &port);
    say_one(p, "parley_calls", "gauge", "gRPC calls in flight.", (double)port.n_calls);
    say_one(p, "parley_connections_refused_total", "counter",
            "Connections that were closed at once: too many for the limit of open files, or of one "
            "address.",
            (double)p->server->n_connections_refused);
    say_one(p, "parley_connections_silent_total", "counter",
            "Connections that were closed because their peer said nothing.",
            (double)p->server->n_connections_dropped);
    say_one(p, "parley_calls_total", "counter", "gRPC calls, the refused ones too.",
            (double)port.n_started);
    say_one(p, "parley_calls_failed_total", "counter",
            "gRPC calls that ended with an error or were left.", (double)port.n_failed);
    head(p, "parley_refusal_seconds", "histogram",
         "gRPC calls that were refused as one too many, from their arrival on; with keys.");
    SAY(p, "parley_refusal_seconds_bucket{le=\"0.001\"} %llu\n",
        (unsigned long long)port.n_refused_in_1ms);
    SAY(p, "parley_refusal_seconds_bucket{le=\"0.01\"} %llu\n",
        (unsigned long long)port.n_refused_in_10ms);
    SAY(p, "parley_refusal_seconds_bucket{le=\"+Inf\"} %llu\n", (unsigned long long)port.n_refused);
    SAY(p, "parley_refusal_seconds_sum %.17g\nparley_refusal_seconds_count %llu\n",
        (double)port.refused_us / 1e6, (unsigned long long)port.n_refused);
    say_one(p, "parley_conversations_opened_total", "counter", "Conversations opened or forked.",
            (double)server->conversations->n_opened);
    say_one(p, "parley_sessions", "gauge", "Runs of environments that live.",
            (double)server->sessions->limit.held);
    say_one(p, "parley_sequences", "gauge", "Sequences of KServe's clients that live.",
            (double)server->sequences->limit.held);
    say_work(p, server->work);
    say_compiler(p, &server->models->compiler);
    if (server->watch != NULL)
        say_one(p, "parley_loop_longest_seconds", "gauge",
                "The most processor time that the loop took between two looks for events.",
                (double)server->watch->longest_us / 1e6);
    say_groups(p, server->groups);
    say_journal(p, server->conversations->keeping.journal);
    say_one(p, "parley_live_turns", "gauge", "Turns in flight or queued.",
            (double)server->conversations->n_live);
    head(p, "parley_reloads_total", "counter", "Times that SIGHUP had the configuration read.");
    SAY(p, "parley_reloads_total{result=\"done\"} %llu\n",
        (unsigned long long)server->n_reloads_done);
    SAY(p, "parley_reloads_total{result=\"failed\"} %llu\n",
        (unsigned long long)server->n_reloads_failed);
    say_one(p, "parley_memory_limit_bytes", "gauge", "--memory; 0: no bound.",
            (double)server->models->config.memory_bytes);
    say_one(p, "parley_memory_used_bytes", "gauge", "Weights and KV pages of all loaded models.",
            (double)budget_used(server->models));
    say_one(p, "parley_models_evicted_total", "counter",
            "Models unloaded to make room for another.", (double)server->models->n_evicted);
}

/* A label's value, escaped as the format wants it. */
static void metrics_label_of(char out[LABEL_MAX], const char *name)
{
    size_t len = (size_t)snprintf(out, LABEL_MAX, "model=\"");

    for (; *name != '\0' && len + 4 < LABEL_MAX; name++) {
        if (*name == '"' || *name == '\\')
            out[len++] = '\\';
        out[len++] = *name;
    }
    memcpy(out + len, "\"", 2);
}

static void metrics_view_look(struct metrics_view *v, const struct model *m)
{
    *v = (struct metrics_view){.model = m, .statistics = &m->statistics};
    metrics_label_of(v->labels, m->name);
    if (m->batcher != NULL)
        batcher_stats(m->batcher, &v->batching);
    if (m->state == MODEL_READY)
        m->agent->type->info(m->agent, &v->info);
}

void metrics_render(struct server *server, struct buf *out)
{
    struct metrics_view views[MODELS_MAX_LOADED];
    const struct metrics_page page = {
        .out = out, .server = server, .views = views, .n_views = server->models->n_loaded};

    for (size_t i = 0; i < server->models->n_loaded; i++)
        metrics_view_look(&views[i], server->models->loaded[i]);
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
        say_figure(&page, &figures[i]);
    say_failures(&page);
    say_rejects(&page);
    say_evictions(&page);
    say_asks(&page);
    for (size_t i = 0; i < sizeof(spreads) / sizeof(spreads[0]); i++)
        say_spread(&page, &spreads[i]);
    say_daemon(&page);
    say_quotas(&page);
    say_process(&page);
}
