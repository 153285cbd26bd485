/* Opens and closes a language model: its vocabulary, template, engine, memory for keys and values,
 * and a step's buffers, fewer of these where memory is short. */
#include "agents/lm/lm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/lm/chat/named_template.h"
#include "agents/lm/sampling/logits.h"
#include "base/alloc.h"
#include "base/cgroup.h"
#include "base/checksum.h"
#include "base/number.h"
#include "compute/backends.h"
#include "compute/encoder/head.h"
#include "compute/gguf/hash.h"
#include "compute/model/read_shape.h"

enum {
    LM_MAX_ROWS = 64,
    LM_MAX_TOKENS = 512,
    LM_LEAST_CONTEXT = 2048, /* tokens that all pages must hold if device memory is scarce */
    LM_LEAST_SLOTS = 4, /* of recurrent state: a row reads one and writes one, a snapshot has one */
    LM_MOST_SLOTS = 1024,
    LM_KNOWN_BYTES = 16 << 20, /* of log-probabilities of prompts, kept for later requests */
};

/* The file's general.sampling.*, else the model card's values, else common values. max_reply: the
 * most tokens of a reply, as text; NULL: there is no bound. */
static void read_defaults(struct lm *m, const char *max_reply)
{
    struct error ignored;
    const char *name = "";
    size_t len = 0;
    double value;
    uint64_t top_k, n;

    sampling_init(&m->defaults);
    if (max_reply != NULL && number_read(&n, max_reply, UINT32_MAX))
        m->defaults.max_tokens = (uint32_t)n;
    m->defaults.temperature = 0.7f;
    m->defaults.top_p = 0.9f;
    if (gguf_get_text(m->gguf, "general.basename", &name, &len, &ignored) == STATUS_OK &&
        len == strlen("smollm2") && memcmp(name, "smollm2", len) == 0)
        m->defaults.temperature = 0.2f; /* huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct */
    if (gguf_get_f64(m->gguf, "general.sampling.temp", &value, &ignored) == STATUS_OK &&
        value >= 0 && value <= 10)
        m->defaults.temperature = (float)value;
    if (gguf_get_f64(m->gguf, "general.sampling.top_p", &value, &ignored) == STATUS_OK &&
        value > 0 && value <= 1)
        m->defaults.top_p = (float)value;
    if (gguf_get_u64(m->gguf, "general.sampling.top_k", &top_k, &ignored) == STATUS_OK &&
        top_k <= UINT32_MAX)
        m->defaults.top_k = (uint32_t)top_k;
}

/* What <architecture>.pooling_type says; POOLING_NONE: nothing, or what is not computed here. */
static enum pooling file_pooling(const struct lm *m)
{
    enum { FILE_MEAN = 1, FILE_LAST = 3 }; /* and 4 of models that rank: rank.c */
    struct error ignored;
    const char *arch;
    char key[80];
    uint64_t type;
    size_t len;

    if (gguf_get_text(m->gguf, "general.architecture", &arch, &len, &ignored) != STATUS_OK)
        return POOLING_NONE;
    (void)snprintf(key, sizeof(key), "%.*s.pooling_type", (int)(len < 48 ? len : 48), arch);
    if (gguf_get_u64(m->gguf, key, &type, &ignored) != STATUS_OK)
        return POOLING_NONE;
    return type == FILE_LAST ? POOLING_LAST : type == FILE_MEAN ? POOLING_MEAN : POOLING_NONE;
}

/* The option's, else the file's, which says it where it was made for embeddings, else the mean. */
static enum pooling choose_pooling(const struct lm *m, enum pooling option)
{
    if (option == POOLING_NONE || option == POOLING_CLS) /* the first token sees no other */
        option = file_pooling(m);
    return option == POOLING_NONE ? POOLING_MEAN : option;
}

/* An eighth of the machine's or the container's memory, at most 4 GiB. Pages take memory only
 * shortly before they are used. */
static size_t default_kv_bytes(void)
{
    const size_t most = (size_t)4 << 30;
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    size_t eighth, limit = cgroup_memory_bytes("");

    if (pages <= 0 || page_bytes <= 0)
        return most / 4;
    eighth = (size_t)pages * (size_t)page_bytes / 8;
    eighth = eighth < limit / 8 ? eighth : limit / 8;
    return eighth < most ? eighth : most;
}

/* For a device with its own memory: half of what the weights leave free. */
static size_t kv_bytes_for(const struct lm *m)
{
    size_t n_free, n_weights = gguf_size_bytes(m->gguf);

    if (!backend_is_device(m->backend))
        return default_kv_bytes();
    n_free = m->backend->type->memory_free(m->backend);
    return (n_free > n_weights ? n_free - n_weights : 0) / 2;
}

static void on_cache_event(void *arg, struct lm_clone_pages *p, enum lm_cache_event what,
                           const char *reason)
{
    struct lm *m = arg;
    struct lm_clone *c = container_of(p, struct lm_clone, pages);

    if (m->base.on_event != NULL)
        m->base.on_event(m->base.on_event_arg, &c->base,
                         what == LM_CACHE_EVICTED ? CLONE_EVICTED : CLONE_RECOMPUTED, reason);
}

/* By default only devices have host pages: they have less memory than the host. */
static size_t host_pages_for(const struct lm *m, const struct agent_config *config,
                             size_t page_bytes)
{
    size_t n_bytes = config->options.kv_host_bytes, n;

    if (config->options.no_prefix_cache || m->cache.n_state_slots > 0 ||
        !transformer_can_offload(m->backend))
        return 0;
    if (n_bytes == KV_HOST_DEFAULT)
        n_bytes = backend_is_device(m->backend) ? default_kv_bytes() : 0;
    n = n_bytes / page_bytes;
    return n < INT32_MAX - m->cache.n_pages ? n : INT32_MAX - m->cache.n_pages;
}

/* Of kv_bytes, at most half is for slots of recurrent state, and at least what one row needs. */
static size_t state_slots_for(const struct transformer_shape *shape, size_t kv_bytes)
{
    const size_t slot_bytes = transformer_state_bytes(shape);
    size_t n = slot_bytes == 0 ? 0 : kv_bytes / 2 / slot_bytes;

    if (slot_bytes == 0)
        return 0;
    if (n < LM_LEAST_SLOTS)
        return LM_LEAST_SLOTS;
    return n < LM_MOST_SLOTS ? n : LM_MOST_SLOTS;
}

/* Opens the model with pages and slots of kv_bytes in all. */
static enum status open_llama(struct lm *m, const struct agent_config *config,
                              const struct transformer_shape *shape, size_t kv_bytes,
                              size_t *ret_n_host_pages, struct error *err)
{
    const size_t size_bytes = transformer_kv_page_bytes(shape, config->options.kv_type);
    /* The system prompt and one more token. */
    const size_t n_opening = m->default_system->n_ids / KV_PAGE_TOKENS + 1;
    const size_t least_pages = n_opening < 2 ? 2 : n_opening;
    const size_t n_slots = state_slots_for(shape, kv_bytes);
    const size_t state_bytes = n_slots * transformer_state_bytes(shape);
    struct transformer_config transformer_config;

    m->cache.n_state_slots = n_slots;
    m->cache.n_pages = kv_bytes < state_bytes ? 0 : (kv_bytes - state_bytes) / size_bytes;
    if (m->cache.n_pages > INT32_MAX)
        m->cache.n_pages = INT32_MAX;
    m->limits.context = shape->context;
    if (config->max_context != 0 && config->max_context < m->limits.context)
        m->limits.context = config->max_context;
    if (m->limits.context > m->cache.n_pages * KV_PAGE_TOKENS)
        m->limits.context = m->cache.n_pages * KV_PAGE_TOKENS; /* a single conversation must fit */
    if (m->cache.n_pages < least_pages)
        return error_set(err, STATUS_INVALID,
                         "%zu bytes are too few for keys and values: --kv-bytes must be at least "
                         "%zu, which are %zu pages of %d tokens and %zu slots of recurrent state",
                         kv_bytes,
                         least_pages * size_bytes +
                             (n_slots > 0 ? LM_LEAST_SLOTS : 0) * transformer_state_bytes(shape),
                         least_pages, KV_PAGE_TOKENS,
                         n_slots > 0 ? (size_t)LM_LEAST_SLOTS : (size_t)0);
    *ret_n_host_pages = host_pages_for(m, config, size_bytes);
    transformer_config = (struct transformer_config){
        .max_tokens = m->max_tokens,
        .max_logits = m->max_logits,
        .max_context = config->max_context,
        .n_kv_pages = m->cache.n_pages,
        .kv_type = config->options.kv_type,
        .n_kv_host_pages = *ret_n_host_pages,
        .n_state_slots = n_slots,
        .max_drafts = m->max_tokens < LM_MOST_STATE_DRAFTS ? m->max_tokens : LM_MOST_STATE_DRAFTS};
    transformer_config.ends = vocab_stop_tokens(m->vocab, &transformer_config.n_ends);
    if (config->weights_of != NULL)
        transformer_config.weights_of =
            container_of(config->weights_of, const struct lm, base)->transformer;
    return transformer_open(&m->transformer, m->backend, m->gguf, &transformer_config, err);
}

/* Halves the number of pages until the device has room for them, unless the user set it, and as
 * long as all pages hold LM_LEAST_CONTEXT tokens. */
static enum status open_with_fewer(struct lm *m, const struct agent_config *config,
                                   const struct transformer_shape *shape, size_t kv_bytes,
                                   size_t *ret_n_host_pages, struct error *err)
{
    const size_t least_pages = LM_LEAST_CONTEXT / KV_PAGE_TOKENS;
    struct error ignored;
    enum status rc;

    for (;; kv_bytes /= 2) {
        rc = open_llama(m, config, shape, kv_bytes, ret_n_host_pages, err);
        if (rc != STATUS_EXHAUSTED || !backend_is_device(m->backend))
            return rc;
        if (config->options.kv_bytes != 0 || m->cache.n_pages / 2 < least_pages)
            return error_prefix(err, "the model with %zu KV pages of %zu bytes (--kv-bytes)",
                                m->cache.n_pages,
                                transformer_kv_page_bytes(shape, config->options.kv_type));
        if (m->backend->type->sync(m->backend, &ignored) == STATUS_INTERNAL) {
            *err = ignored;
            return STATUS_INTERNAL;
        }
    }
}

static enum status open_engine(struct lm *m, const struct agent_config *config, struct error *err)
{
    struct transformer_shape shape;
    size_t kv_bytes, n_host_pages = 0;
    enum status rc;

    rc = transformer_read_shape(&shape, m->gguf, err);
    if (rc != STATUS_OK)
        return rc;
    m->backend_config = (struct backend_config){.n_threads = config->options.n_threads,
                                                .fast_math = config->options.fast_math};
    rc = config->backend_type != NULL
             ? backend_open_type(&m->backend, config->backend_type, &m->backend_config, err)
             : backend_open(&m->backend, config->options.backend, &m->backend_config, err);
    if (rc != STATUS_OK)
        return rc;
    kv_bytes = config->options.kv_bytes != 0 ? config->options.kv_bytes : kv_bytes_for(m);
    m->n_vocab = shape.n_vocab;
    if (vocab_n_tokens(m->vocab) > m->n_vocab)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: %zu tokens in the vocabulary, but only %zu rows in token_embd.weight",
                         gguf_path(m->gguf), vocab_n_tokens(m->vocab), m->n_vocab);
    rc = open_with_fewer(m, config, &shape, kv_bytes, &n_host_pages, err);
    if (rc != STATUS_OK)
        return rc;
    return lm_cache_open(&m->cache, !config->options.no_prefix_cache, n_host_pages, config->env,
                         err);
}

/* Of an option's values [n], "[MODEL=]VALUE", the one for this model: the one that names it, else
 * one for all. */
static const char *value_for(const struct agent_config *config, const char *const *values, size_t n)
{
    const size_t len = config->name == NULL ? 0 : strlen(config->name);
    const char *for_all = NULL;

    for (size_t i = 0; i < n; i++) {
        const char *text = values[i], *equals = strchr(text, '=');

        if (equals == NULL)
            for_all = text;
        else if ((size_t)(equals - text) == len && memcmp(text, config->name, len) == 0)
            return equals + 1;
    }
    return for_all;
}

static enum status read_template(struct lm *m, const struct agent_config *config, struct error *err)
{
    const char *named =
        value_for(config, config->options.chat_templates, config->options.n_chat_templates);
    enum status rc;

    if (named != NULL) {
        rc = named_template_read(&m->named_template, named, err);
        if (rc != STATUS_OK)
            return error_prefix(err, "--chat-template");
        m->template_text = m->named_template.data;
        m->template_len = m->named_template.len;
        return STATUS_OK;
    }
    rc =
        gguf_get_text(m->gguf, "tokenizer.chat_template", &m->template_text, &m->template_len, err);
    return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
}

static enum status open_template(struct lm *m, const struct agent_config *config, struct error *err)
{
    enum status rc = read_template(m, config, err);
    bool is_whole = false; /* the prompt was rendered completely, or there is none */

    if (rc == STATUS_OK) {
        rc =
            chat_template_open_text(&m->template, m->template_text, m->template_len, m->vocab, err);
        is_whole = rc == STATUS_UNIMPLEMENTED;
    }
    if (rc == STATUS_OK || is_whole)
        rc = chat_prompter_open(&m->prompter, m->template_text, m->template_len, m->vocab, err);
    if (rc == STATUS_OK && !is_whole && !chat_prompter_uses(m->prompter, "tools")) {
        chat_prompter_close(m->prompter);
        m->prompter = NULL;
    }
    if (rc == STATUS_OK)
        rc = lm_format_open(m, m->template_text, m->template_len, err);
    if (rc != STATUS_OK && strstr(err->text, gguf_path(m->gguf)) == NULL)
        rc = error_prefix(err, "%s: its chat template", gguf_path(m->gguf));
    return rc;
}

/* The file's hash; with a named template, or a prompt that a folder's label chose, the hash of
 * both, for prompts are others then. */
static enum status read_version(struct lm *m, struct model_hasher *hasher, struct error *err)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t hash[SHA256_BYTES];
    struct sha256 *s;

    if (model_hasher_take(hasher, m->version, err) != STATUS_OK)
        return err->status;
    memcpy(m->file_version, m->version, sizeof(m->file_version));
    if (m->named_template.len == 0 && !m->is_label_prompt)
        return STATUS_OK;
    if (sha256_open(&s, err) != STATUS_OK)
        return err->status;
    sha256_add(s, m->version, strlen(m->version));
    sha256_add(s, m->named_template.data, m->named_template.len);
    if (m->is_label_prompt)
        sha256_add(s, m->rank_text, m->rank_text_len);
    sha256_take(s, hash);
    sha256_close(s);
    for (size_t i = 0; i < SHA256_BYTES; i++) {
        m->version[2 * i] = digits[hash[i] >> 4];
        m->version[2 * i + 1] = digits[hash[i] & 15];
    }
    return STATUS_OK;
}

/* Opens the default system prompt, before the engine, which checks that its pages can hold it. */
static enum status open_system(struct lm *m, const struct agent_config *config, struct error *err)
{
    enum status rc;

    m->limits.context = SIZE_MAX; /* unknown until the engine is open */
    lm_systems_init(&m->systems, m->template, &m->limits);
    rc = lm_system_ref(&m->default_system, &m->systems, NULL, 0, err);
    if (rc != STATUS_OK)
        return error_prefix(err, "%s: the system prompt of its chat template", config->path);
    return STATUS_OK;
}

static enum status find_longest(struct lm *m, struct error *err)
{
    m->limits.longest_bytes = 1;
    for (size_t i = 0; i < vocab_n_tokens(m->vocab); i++) {
        const char *bytes;
        size_t len;
        enum status rc = vocab_bytes(m->vocab, (int32_t)i, true, &bytes, &len, err);

        if (rc != STATUS_OK)
            return rc;
        if (len > m->limits.longest_bytes)
            m->limits.longest_bytes = len;
    }
    return STATUS_OK;
}

static enum status open_step_memory(struct lm *m, struct error *err)
{
    m->rows = try_alloc(m->max_rows, sizeof(*m->rows));
    m->logits = try_alloc(m->max_logits, m->n_vocab * sizeof(*m->logits));
    m->hidden =
        try_alloc(m->max_tokens, transformer_shape(m->transformer)->width * sizeof(*m->hidden));
    if (transformer_can_draw(m->transformer)) {
        m->draws = try_alloc(m->max_logits, sizeof(*m->draws));
        m->drawn = try_alloc(m->max_logits, sizeof(*m->drawn));
    }
    if (m->rows == NULL || m->logits == NULL || m->hidden == NULL ||
        (transformer_can_draw(m->transformer) && (m->draws == NULL || m->drawn == NULL)))
        return error_no_memory(err, m->max_logits * m->n_vocab * sizeof(*m->logits),
                               "the logits of a step");
    return STATUS_OK;
}

void lm_settle(struct agent *a)
{
    lm_disk_flush(&container_of(a, struct lm, base)->cache.disk);
}

void lm_close(struct agent *a)
{
    struct lm *m = container_of(a, struct lm, base);

    lm_system_unref(&m->systems, m->default_system);
    lm_systems_deinit(&m->systems);
    lm_cache_close(&m->cache);
    free(m->rows);
    free(m->logits);
    free(m->hidden);
    free(m->draws);
    free(m->drawn);
    transformer_close(m->transformer);
    backend_close(m->backend);
    chat_template_close(m->template);
    buf_deinit(&m->named_template);
    buf_deinit(&m->rank_prompt);
    lm_reasoning_close(m);
    grammars_close(m->grammars);
    known_logprobs_close(m->known);
    chat_prompter_close(m->prompter);
    vocab_close(m->vocab);
    head_close(m->rank);
    gguf_close(m->gguf);
}

enum status lm_open(struct agent *a, const struct agent_config *config, struct error *err)
{
    struct lm *m = container_of(a, struct lm, base);
    struct model_hasher *hasher = NULL;
    enum status rc;

    lm_cache_init(&m->cache, on_cache_event, m);
    buf_init(&m->named_template, SIZE_MAX);
    buf_init(&m->rank_prompt, SIZE_MAX);
    if (config->path == NULL)
        return error_set(err, STATUS_INVALID, "a language model needs a file");
    m->speculate = config->options.speculate;
    m->kernels = logit_kernels_choose();
    m->max_rows = config->max_step_rows != 0 ? config->max_step_rows : LM_MAX_ROWS;
    m->max_tokens = config->max_step_tokens != 0 ? config->max_step_tokens : LM_MAX_TOKENS;
    if (m->max_tokens < m->max_rows)
        m->max_tokens = m->max_rows;
    m->max_logits = m->max_rows + DRAFT_MAX;
    if (m->max_logits < config->max_step_logits)
        m->max_logits = config->max_step_logits;

    rc = gguf_open(&m->gguf, config->path, err);
    if (rc == STATUS_OK)
        hasher = model_hasher_open(m->gguf);
    if (rc == STATUS_OK)
        rc = vocab_open(&m->vocab, m->gguf, err);
    if (rc == STATUS_OK)
        rc = open_template(m, config, err);
    if (rc == STATUS_OK)
        rc = find_longest(m, err);
    if (rc == STATUS_OK)
        rc = open_system(m, config, err);
    if (rc == STATUS_OK)
        rc = open_engine(m, config, err);
    if (rc == STATUS_OK)
        rc = grammars_open(&m->grammars, m->vocab, m->n_vocab, config->background, config->compiler,
                           err);
    if (rc == STATUS_OK && !config->options.no_prefix_cache)
        rc = known_logprobs_open(&m->known, LM_KNOWN_BYTES, config->env, err);
    if (rc == STATUS_OK)
        rc = lm_rank_open(m, err);
    if (rc == STATUS_OK)
        rc = open_step_memory(m, err);
    if (rc == STATUS_OK)
        rc = read_version(m, hasher, err);
    if (rc == STATUS_OK)
        rc = gguf_check_unchanged(m->gguf, err);
    if (rc == STATUS_OK && m->default_system->n_ids > m->limits.context)
        rc = error_set(err, STATUS_RANGE,
                       "%s: the system prompt of its chat template has %zu tokens, but the context "
                       "holds only %zu",
                       config->path, m->default_system->n_ids, m->limits.context);
    if (rc == STATUS_OK) {
        read_defaults(
            m, value_for(config, config->options.max_replies, config->options.n_max_replies));
        m->pooling = choose_pooling(m, config->options.pooling);
        m->is_embedder = file_pooling(m) != POOLING_NONE;
    }
    if (rc == STATUS_OK)
        rc = lm_open_disk(m, config, err);
    if (rc == STATUS_OK)
        lm_read_statistics(m);
    model_hasher_close(hasher);
    return rc; /* agent_open calls lm_close on failure */
}
