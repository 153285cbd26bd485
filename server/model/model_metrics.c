/* The format wants all samples of a name together. So each model is looked at once, and then each
 * name goes through all of them. */
#include "server/model/model_metrics.h"

#include <stdio.h>
#include <string.h>

#include "server/model/model.h"
#include "server/model/models.h"
#include "server/telemetry/metric.h"

enum { LABELS_MAX = 160 };

/* What no counter holds. */
struct model_now {
    size_t n_pending; /* requests that were accepted and run in no step yet */
    bool is_ready;
};

/* A model, as it is when the page is made. */
struct model_view {
    char labels[LABELS_MAX]; /* model="…" */
    const struct model *model;
    struct model_now now;
    struct batcher_stats batching;
    struct agent_info agent;
};

/* A metric, and which of a view's structs has its member. */
struct model_metric {
    struct metric_row row;
    enum { IN_STATISTICS, IN_MODEL, IN_NOW, IN_AGENT } in;
};

/* clang-format off */
#define COUNTED(type, name, help, member) {METRIC(type, name, help, statistics, member), IN_STATISTICS}
#define OF_MODEL(type, name, help, member) {METRIC(type, name, help, model, member), IN_MODEL}
#define NOW(type, name, help, member) {METRIC(type, name, help, model_now, member), IN_NOW}
#define OF_AGENT(type, name, help, member) {METRIC(type, name, help, agent_info, member), IN_AGENT}
/* clang-format on */

/* With the label version. */
static const struct model_metric tritons[] = {
    COUNTED("counter", "nv_inference_request_success", "Requests answered.", success.n),
    COUNTED("counter", "nv_inference_count", "Inferences: a request is one.", success.n),
    COUNTED("counter", "nv_inference_exec_count", "Batches computed: steps.", n_steps),
    COUNTED("counter", "nv_inference_request_duration_us", "Sum over answered requests.",
            success.us),
    COUNTED("counter", "nv_inference_queue_duration_us", "Sum: accepted until the first step.",
            queue.us),
    COUNTED("counter", "nv_inference_compute_input_duration_us", "Sum: observing what was asked.",
            input.us),
    COUNTED("counter", "nv_inference_compute_infer_duration_us", "Sum: first step until the last.",
            infer.us),
    COUNTED("counter", "nv_inference_compute_output_duration_us", "Sum: keeping what was answered.",
            output.us),
    NOW("gauge", "nv_inference_pending_request_count", "Requests accepted that run in no step yet.",
        n_pending),
};

static const struct model_metric ours[] = {
    NOW("gauge", "parley_model_ready", "Whether the model serves.", is_ready),
    OF_AGENT("gauge", "parley_model_weight_bytes", "Memory of the weights.", weight_bytes),
    OF_MODEL("gauge", "parley_conversations", "Conversations that live.", n_conversations),
    COUNTED("counter", "parley_cancelled_turns_total", "Turns and steps that ended cancelled.",
            failed[STATUS_CANCELLED]),
    COUNTED("counter", "parley_prompt_tokens_total", "Tokens of prompts answered.", n_prompt),
    COUNTED("counter", "parley_cached_prompt_tokens_total", "Of those, not computed again.",
            n_cached),
    COUNTED("counter", "parley_generated_tokens_total", "Tokens of replies.", n_said),
    COUNTED("counter", "parley_rows_total", "Rows of all steps.", n_rows),
    OF_AGENT("gauge", "parley_kv_pages", "Pages of the KV cache.", cache.pages),
    OF_AGENT("gauge", "parley_kv_pages_free", "Pages that are not in use.", cache.pages_free),
    OF_AGENT("gauge", "parley_kv_pages_shared", "Pages held more than once.", cache.pages_shared),
    OF_AGENT("gauge", "parley_kv_pages_cached", "Pages found by who begins alike.",
             cache.pages_cached),
    OF_AGENT("gauge", "parley_kv_page_bytes", "Size of a page.", cache.page_bytes),
    OF_AGENT("counter", "parley_kv_page_copies_total", "Pages copied on write.", cache.copies),
    OF_AGENT("gauge", "parley_state_slots", "Slots of recurrent state.", cache.slots),
    OF_AGENT("gauge", "parley_state_slots_free", "Slots that nobody holds.", cache.slots_free),
    OF_AGENT("gauge", "parley_state_slot_bytes", "Size of a slot.", cache.slot_bytes),
    OF_AGENT("gauge", "parley_state_snapshots", "Slots that belong to cached pages.",
             cache.snapshots),
    OF_AGENT("counter", "parley_state_snapshots_made_total", "Snapshots of recurrent state.",
             cache.snapshots_made),
    OF_AGENT("counter", "parley_state_snapshots_used_total",
             "Times that a conversation began from one, or went back to it.", cache.snapshots_used),
    OF_AGENT("counter", "parley_state_snapshots_evicted_total",
             "Snapshots whose slots steps needed.", cache.snapshots_evicted),
    OF_AGENT("counter", "parley_recomputes_total",
             "Conversations computed again after they lost pages.", cache.recomputes),
    OF_AGENT("gauge", "parley_device_host_pages", "Pages of the host's memory behind a device's.",
             cache.host_pages),
    OF_AGENT("gauge", "parley_device_host_pages_used", "Of those, full.", cache.host_pages_used),
    OF_AGENT("counter", "parley_device_spills_total", "Pages that moved there.", cache.offloads),
    OF_AGENT("counter", "parley_device_fills_total", "Pages that came back.", cache.reloads),
    OF_AGENT("counter", "parley_device_losses_total", "Times a device failed and was opened anew.",
             device_losses),
    OF_AGENT("gauge", "parley_device_graphs", "Kinds of steps that a device launches as one.",
             device_graphs),
    OF_AGENT("counter", "parley_prefix_lookup_tokens_total",
             "Tokens of prompts looked for in the cache.", cache.lookup_tokens),
    OF_AGENT("counter", "parley_prefix_hit_tokens_total", "Of those, found.", cache.hit_tokens),
    OF_AGENT("counter", "parley_prefix_hit_host_tokens_total", "Of those found, on host pages.",
             cache.hit_host_tokens),
    OF_AGENT("counter", "parley_prefix_hit_disk_tokens_total", "Of those found, on disk.",
             cache.hit_disk_tokens),
    OF_AGENT("gauge", "parley_kv_disk_pages", "KV pages that fit on disk.", cache.disk_pages),
    OF_AGENT("gauge", "parley_kv_disk_pages_used", "Of those, full.", cache.disk_pages_used),
    OF_AGENT("gauge", "parley_kv_disk_pages_dropped",
             "Pages of another model or revision, removed at the start.", cache.disk_pages_dropped),
    OF_AGENT("counter", "parley_kv_disk_written_pages_total", "Pages written to disk.",
             cache.disk_written),
    OF_AGENT("counter", "parley_kv_disk_read_pages_total", "Pages read from disk.",
             cache.disk_read),
    OF_AGENT("counter", "parley_kv_disk_evicted_pages_total",
             "Pages on disk that made room for others.", cache.disk_evicted),
    OF_AGENT("counter", "parley_kv_disk_skipped_pages_total",
             "Pages that left memory before they were written.", cache.disk_skipped),
    OF_AGENT("counter", "parley_kv_disk_failed_writes_total", "Writes to disk that failed.",
             cache.disk_failed),
    OF_AGENT("counter", "parley_kv_disk_broken_pages_total",
             "Pages that were not as they were written, and were computed again.",
             cache.disk_broken),
    OF_AGENT("counter", "parley_drafted_tokens_total", "Guesses computed.", text.drafted_tokens),
    OF_AGENT("counter", "parley_accepted_tokens_total", "Guesses that were right.",
             text.accepted_tokens),
};

static const void *model_view_in(const struct model_view *v, unsigned in)
{
    switch (in) {
    case IN_STATISTICS:
        return &v->model->statistics;
    case IN_MODEL:
        return v->model;
    case IN_NOW:
        return &v->now;
    default:
        return &v->agent;
    }
}

/* more: what follows the model among the labels. */
static void model_metrics_write(const struct model_metric *metrics, size_t n_metrics,
                                const char *more, struct buf *out, const struct model_view *views,
                                size_t n_views)
{
    for (size_t i = 0; i < n_metrics; i++) {
        const struct metric_row *row = &metrics[i].row;

        metric_head(out, row->name, row->type, row->help);
        for (size_t k = 0; k < n_views; k++) {
            const void *in = model_view_in(&views[k], metrics[i].in);

            metric_labelled(out, row->name, metric_value(row, in), "%s%s", views[k].labels, more);
        }
    }
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

static void write_failures(struct buf *out, const struct model_view *views, size_t n_views)
{
    static const char *const names[N_NV_REASONS] = {"REJECTED", "CANCELED", "BACKEND", "OTHER"};
    const char *name = "nv_inference_request_failure";

    metric_head(out, name, "counter", "Requests that were not answered.");
    for (size_t i = 0; i < n_views; i++) {
        const struct statistics *s = &views[i].model->statistics;
        uint64_t n[N_NV_REASONS] = {0};

        for (size_t status = 0; status < N_STATUSES; status++)
            n[nv_reason((enum status)status)] += s->refused[status] + s->failed[status];
        for (size_t r = 0; r < N_NV_REASONS; r++)
            metric_labelled(out, name, (double)n[r], "%s,version=\"1\",reason=\"%s\"",
                            views[i].labels, names[r]);
    }
}

/* Labels are gRPC's status names in lower case: the common ones, and those that have occurred. */
static void write_rejects(struct buf *out, const struct model_view *views, size_t n_views)
{
    static const enum status common[] = {STATUS_INVALID, STATUS_EXHAUSTED, STATUS_UNAVAILABLE};
    const char *name = "parley_rejects_total";

    metric_head(out, name, "counter", "Requests refused before they began.");
    for (size_t i = 0; i < n_views; i++) {
        const struct statistics *s = &views[i].model->statistics;

        for (size_t status = 1; status < N_STATUSES; status++) {
            const char *upper = status_name((enum status)status);
            char reason[32] = "";
            bool is_said = s->refused[status] > 0;

            for (size_t k = 0; k < sizeof(common) / sizeof(common[0]); k++)
                is_said |= common[k] == (enum status)status;
            if (!is_said)
                continue;
            for (size_t k = 0; k + 1 < sizeof(reason) && upper[k] != '\0'; k++)
                reason[k] =
                    (char)(upper[k] >= 'A' && upper[k] <= 'Z' ? upper[k] - 'A' + 'a' : upper[k]);
            metric_labelled(out, name, (double)s->refused[status], "%s,reason=\"%s\"",
                            views[i].labels, reason);
        }
    }
}

static void write_evictions(struct buf *out, const struct model_view *views, size_t n_views)
{
    const char *name = "parley_evictions_total";

    metric_head(
        out, name, "counter",
        "What lost its place in the KV cache: idle conversations, cached pages, running rows.");
    for (size_t i = 0; i < n_views; i++) {
        const struct model_view *v = &views[i];
        uint64_t n_preempted = v->batching.n_preempted;

        metric_labelled(out, name, (double)(v->agent.cache.evictions - n_preempted),
                        "%s,reason=\"idle\"", v->labels);
        metric_labelled(out, name, (double)v->agent.cache.pages_evicted, "%s,reason=\"cached\"",
                        v->labels);
        metric_labelled(out, name, (double)n_preempted, "%s,reason=\"preempted\"", v->labels);
    }
}

/* Of models with pages on disk. */
static void write_misses(struct buf *out, const struct model_view *views, size_t n_views)
{
    static const char *const reasons[N_KV_MISSES] = {
        [KV_MISS_NEVER] = "never_computed",
        [KV_MISS_EVICTED] = "evicted",
        [KV_MISS_OWNER] = "other_salt",
        [KV_MISS_REVISION] = "other_revision",
    };
    const char *name = "parley_prefix_missed_tokens_total";

    metric_head(out, name, "counter",
                "Tokens of prompts in whole pages that neither memory nor --kv-disk had.");
    for (size_t i = 0; i < n_views; i++)
        for (size_t k = 0; k < N_KV_MISSES; k++)
            metric_labelled(out, name, (double)views[i].agent.cache.missed_tokens[k],
                            "%s,reason=\"%s\"", views[i].labels, reasons[k]);
}

static void write_saved(struct buf *out, const struct model_view *views, size_t n_views)
{
    const char *name = "parley_kv_disk_saved_seconds_total";

    metric_head(out, name, "counter", "What computing the tokens found on disk would have taken.");
    for (size_t i = 0; i < n_views; i++)
        metric_labelled(out, name, views[i].agent.cache.saved_s, "%s", views[i].labels);
}

static void write_asks(struct buf *out, const struct model_view *views, size_t n_views)
{
    const char *name = "parley_asks";

    metric_head(out, name, "gauge", "Asks of the batcher, by what they do.");
    for (size_t i = 0; i < n_views; i++) {
        const struct batcher_stats *b = &views[i].batching;

        metric_labelled(out, name, (double)(b->n_waiting + b->n_flow_queued),
                        "%s,state=\"waiting\"", views[i].labels);
        metric_labelled(out, name, (double)b->n_running, "%s,state=\"running\"", views[i].labels);
    }
}

/* --- histograms --- */

struct model_histogram {
    const char *name, *help;
    size_t offset; /* in struct statistics */
    const struct histogram_scale *scale;
};

#define OF(member) offsetof(struct statistics, member)
static const struct model_histogram histograms[] = {
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

static void model_histogram_write(const struct model_histogram *h, struct buf *out,
                                  const struct model_view *views, size_t n_views)
{
    metric_head(out, h->name, "histogram", h->help);
    for (size_t i = 0; i < n_views; i++) {
        const char *statistics = (const char *)&views[i].model->statistics;

        metric_histogram(out, h->name, views[i].labels, (const void *)(statistics + h->offset),
                         h->scale);
    }
}

/* A label's value, escaped as the format wants it. */
static void model_view_label(char out[LABELS_MAX], const char *name)
{
    size_t len = (size_t)snprintf(out, LABELS_MAX, "model=\"");

    for (; *name != '\0' && len + 4 < LABELS_MAX; name++) {
        if (*name == '"' || *name == '\\')
            out[len++] = '\\';
        out[len++] = *name;
    }
    memcpy(out + len, "\"", 2);
}

static void model_view_look(struct model_view *v, const struct model *m)
{
    size_t n_open = m->statistics.n_open;

    *v = (struct model_view){.model = m, .now.is_ready = m->state == MODEL_READY};
    model_view_label(v->labels, m->name);
    if (m->batcher != NULL)
        batcher_stats(m->batcher, &v->batching);
    if (m->state == MODEL_READY)
        agent_describe(m->agent, &v->agent);
    if (n_open > v->batching.n_running)
        v->now.n_pending = n_open - v->batching.n_running;
}

void model_metrics(const struct models *models, struct buf *out)
{
    struct model_view views[MODELS_MAX_LOADED];
    const size_t n = models->n_loaded;

    for (size_t i = 0; i < n; i++)
        model_view_look(&views[i], models->loaded[i]);
    model_metrics_write(tritons, sizeof(tritons) / sizeof(tritons[0]), ",version=\"1\"", out, views,
                        n);
    model_metrics_write(ours, sizeof(ours) / sizeof(ours[0]), "", out, views, n);
    write_failures(out, views, n);
    write_rejects(out, views, n);
    write_evictions(out, views, n);
    write_misses(out, views, n);
    write_saved(out, views, n);
    write_asks(out, views, n);
    for (size_t i = 0; i < sizeof(histograms) / sizeof(histograms[0]); i++)
        model_histogram_write(&histograms[i], out, views, n);
}
