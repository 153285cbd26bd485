/* The language model as a kind of agent: the table of its functions, its description for other
 * folders, and its tokenizer and template outside of a conversation. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agents/lm/lm.h"
#include "compute/model/arch/arch.h"

enum { LM_MAX_WAITING = 1024, LM_MAX_ITL_US = 200 * 1000 };

static void lm_disk_info(const struct lm *m, struct cache_info *out)
{
    const struct lm_disk *d = &m->cache.disk;
    const uint64_t n_read = atomic_load(&m->n_read_tokens);
    struct kv_disk_usage usage, states = {0};

    out->hit_host_tokens = m->n_host_hits;
    out->hit_disk_tokens = m->n_disk_hits;
    if (!lm_disk_is_open(d))
        return;
    kv_disk_usage(d->store, &usage);
    if (d->states != NULL)
        kv_disk_usage(d->states, &states);
    out->disk_pages = usage.n_slots;
    out->disk_pages_used = usage.n_full;
    out->disk_pages_dropped = usage.n_dropped;
    out->disk_written = usage.n_written;
    out->disk_read = usage.n_read;
    out->disk_evicted = usage.n_evicted;
    out->disk_failed = usage.n_failed + states.n_failed;
    out->disk_broken = usage.n_broken + states.n_broken;
    out->disk_skipped = d->n_unsaved_lost;
    out->disk_unread = usage.n_unread + states.n_unread;
    (void)snprintf(out->disk_unread_why, sizeof(out->disk_unread_why), "%.127s",
                   usage.n_unread > 0 ? usage.unread.text : states.unread.text);
    memcpy(out->missed_tokens, d->n_missed_tokens, sizeof(out->missed_tokens));
    if (n_read > 0)
        out->saved_s =
            (double)m->n_disk_hits * (double)atomic_load(&m->read_us) * 1e-6 / (double)n_read;
}

static void lm_info(const struct agent *a, struct agent_info *out)
{
    const struct lm *m = container_of(a, const struct lm, base);
    struct kv_slot_usage slots = {0};
    struct kv_usage usage;

    kv_pages_usage(m->cache.pages, &usage);
    if (lm_states_are_kept(&m->cache.states))
        kv_slots_usage(m->cache.states.slots, &slots);
    out->architecture = transformer_shape(m->transformer)->arch->name;
    out->backend = m->backend->type->name;
    out->weight_bytes = transformer_weight_bytes(m->transformer);
    out->device_losses = m->n_losses_seen;
    out->device_graphs = m->figures.n_graphs;
    out->defaults = m->defaults;
    out->text = (struct text_info){
        .context = m->limits.context,
        .n_vocab = m->n_vocab,
        .bos = vocab_bos(m->vocab),
        .eos = vocab_eos(m->vocab),
        .adds_bos = vocab_adds_bos(m->vocab),
        .chat_template = m->template_text,
        .chat_template_len = m->template_len,
        .n_embedding = m->rank != NULL ? 0 : transformer_shape(m->transformer)->width,
        .ranks = m->rank != NULL,
        .pooling = m->pooling,
        .is_embedder = m->is_embedder,
        .drafted_tokens = m->n_drafted,
        .accepted_tokens = m->n_accepted,
        .reply_format = &m->format,
    };
    out->cache = (struct cache_info){
        .page_bytes = transformer_page_bytes(m->transformer),
        .pages = usage.n_pages,
        .pages_free = usage.n_free,
        .pages_shared = usage.n_shared,
        .pages_cached = usage.n_cached,
        .copies = usage.n_copies,
        .pages_evicted = usage.n_evicted,
        .evictions = m->cache.n_evictions,
        .recomputes = m->cache.n_recomputes,
        .host_pages = m->cache.host_pages != NULL ? kv_host_pages_n(m->cache.host_pages) : 0,
        .host_pages_used =
            m->cache.host_pages != NULL ? kv_host_pages_n_full(m->cache.host_pages) : 0,
        .offloads = m->cache.n_offloaded,
        .reloads = m->cache.n_reloaded,
        .slot_bytes = transformer_slot_bytes(m->transformer),
        .slots = slots.n_slots,
        .slots_free = slots.n_free,
        .snapshots = m->cache.states.n_snapshots,
        .snapshots_made = m->cache.states.n_made,
        .snapshots_evicted = m->cache.states.n_evicted,
        .snapshots_used = m->cache.states.n_begun,
        .lookup_tokens = m->n_prefix_queries,
        .hit_tokens = m->n_prefix_hits,
    };
    lm_disk_info(m, &out->cache);
    memcpy(out->version, m->version, sizeof(out->version));
    memcpy(out->products, m->figures.products, sizeof(out->products));
}

static void lm_batching(const struct agent *a, struct batcher_config *out)
{
    const struct lm *m = container_of(a, const struct lm, base);

    *out = (struct batcher_config){.policy = BATCH_CONTINUOUS,
                                   .max_rows = m->max_rows,
                                   .max_cost = m->max_tokens,
                                   .max_waiting = LM_MAX_WAITING,
                                   .max_itl_us = LM_MAX_ITL_US};
}

static enum status lm_tokenize(const struct agent *a, const char *text, size_t len, bool is_trusted,
                               struct buf *ids, struct error *err)
{
    const struct lm *m = container_of(a, const struct lm, base);
    const struct text_span span = {len, is_trusted};

    return vocab_encode_spans(m->vocab, text, len, &span, 1, true, ids, err);
}

static enum status lm_detokenize(const struct agent *a, const int32_t *ids, size_t n,
                                 struct buf *text, struct error *err)
{
    const struct lm *m = container_of(a, const struct lm, base);

    return vocab_decode(m->vocab, ids, n, text, err);
}

static enum status render_parts(const struct lm *m, const struct message *messages, size_t n,
                                bool is_replied, struct buf *ids, struct error *err)
{
    const bool has_system = messages[0].role == ROLE_SYSTEM;
    const char *system = has_system ? messages[0].text : chat_template_default_system(m->template);
    enum status rc = chat_template_begin(
        m->template, system, has_system ? messages[0].len : strlen(system), ids, NULL, err);

    for (size_t i = has_system; rc == STATUS_OK && i < n; i++)
        rc = chat_template_message(m->template, &messages[i], ids, NULL, err);
    if (rc == STATUS_OK && is_replied)
        rc = chat_template_reply_start(m->template, ids, NULL, err);
    return rc;
}

static enum status lm_render(const struct agent *a, const struct message *messages, size_t n,
                             struct text tools, struct text variables, bool is_replied,
                             struct buf *ids, struct error *err)
{
    const struct lm *m = container_of(a, const struct lm, base);
    struct chat_input in = {.n_messages = n,
                            .tools = tools,
                            .variables = variables,
                            .wants_reply = is_replied,
                            .now = time(NULL),
                            .date = m->template == NULL ? NULL : chat_template_date(m->template)};
    size_t n_bytes = tools.len + variables.len, ignored;
    struct arena arena;
    enum status rc;

    for (size_t i = 0; i < n; i++)
        n_bytes += messages[i].len + messages[i].more_len;
    rc = prompt_check_size(&m->limits, 0, n_bytes, err);
    if (rc != STATUS_OK)
        return rc;
    arena_init(&arena, SIZE_MAX);
    rc = lm_fit_messages(&in.messages, &in.n_messages, m, messages, &arena, err);
    if (rc == STATUS_OK)
        rc = lm_needs_whole(m, messages, n, tools, variables)
                 ? chat_prompter_render(m->prompter, &in, NULL, 0, &ignored, ids, err)
                 : render_parts(m, in.messages, in.n_messages, is_replied, ids, err);
    arena_deinit(&arena);
    return rc;
}

static bool lm_work_ahead(struct agent *a, bool is_busy)
{
    return transformer_prefault(container_of(a, struct lm, base)->transformer, is_busy);
}

static enum status lm_check_template(const struct agent *a, struct error *err)
{
    const struct lm *m = container_of(a, const struct lm, base);

    return m->prompter == NULL ? STATUS_OK : chat_prompter_check(m->prompter, err);
}

static const struct agent_text lm_text = {
    .tokenize = lm_tokenize,
    .raw_prompt = lm_raw_prompt,
    .detokenize = lm_detokenize,
    .render = lm_render,
    .check_template = lm_check_template,
    .prepare = lm_prepare,
    .unprepare = lm_unprepare,
    .gives_prompt_results = true,
};

const struct agent_type lm_agent = {
    .name = "lm",
    .agent_size = sizeof(struct lm),
    .clone_size = sizeof(struct lm_clone),
    .open = lm_open,
    .close = lm_close,
    .settle = lm_settle,
    .info = lm_info,
    .batching = lm_batching,
    .clone_open = lm_clone_open,
    .clone_close = lm_clone_close,
    .clone_info = lm_clone_info,
    .fork = lm_clone_fork,
    .rewind = lm_clone_rewind,
    .reset = lm_clone_reset,
    .save = lm_clone_save,
    .restore = lm_clone_restore,
    .observe = lm_observe,
    .self_observe = lm_self_observe,
    .drop = lm_drop,
    .trace = lm_trace,
    .recall = lm_recall,
    .cost = lm_cost,
    .min_chunk = lm_min_chunk,
    .reserve = lm_reserve,
    .release = lm_release,
    .batch_act = lm_batch_act,
    .stepped = lm_stepped,
    .work_ahead = lm_work_ahead,
    .woken = lm_woken,
    .text = &lm_text,
};
