#include "client/lib/parts.h"

static enum status fill_biases(Parley__V1__Sampling *m, const struct parley_sampling *s,
                               struct arena *arena, struct error *err)
{
    Parley__V1__Sampling__LogitBiasEntry *entries, **list;

    entries = arena_alloc(arena, s->n_biases, sizeof(*entries));
    list = arena_alloc(arena, s->n_biases, sizeof(*list));
    if (entries == NULL || list == NULL)
        return error_no_memory(err, s->n_biases * sizeof(*entries), "the logit biases");
    for (size_t i = 0; i < s->n_biases; i++) {
        parley__v1__sampling__logit_bias_entry__init(&entries[i]);
        entries[i].has_key = entries[i].has_value = 1;
        entries[i].key = s->bias_ids[i];
        entries[i].value = s->biases[i];
        list[i] = &entries[i];
    }
    m->logit_bias = list;
    m->n_logit_bias = s->n_biases;
    return STATUS_OK;
}

enum status sampling_fill(Parley__V1__Sampling *m, const struct parley_sampling *s,
                          struct arena *arena, struct error *err)
{
    m->has_temperature = (s->set & PARLEY_TEMPERATURE) != 0;
    m->temperature = s->temperature;
    m->has_top_k = (s->set & PARLEY_TOP_K) != 0;
    m->top_k = s->top_k;
    m->has_top_p = (s->set & PARLEY_TOP_P) != 0;
    m->top_p = s->top_p;
    m->has_min_p = (s->set & PARLEY_MIN_P) != 0;
    m->min_p = s->min_p;
    m->has_repetition_penalty = (s->set & PARLEY_REPETITION_PENALTY) != 0;
    m->repetition_penalty = s->repetition_penalty;
    m->has_presence_penalty = (s->set & PARLEY_PRESENCE_PENALTY) != 0;
    m->presence_penalty = s->presence_penalty;
    m->has_frequency_penalty = (s->set & PARLEY_FREQUENCY_PENALTY) != 0;
    m->frequency_penalty = s->frequency_penalty;
    m->has_seed = (s->set & PARLEY_SEED) != 0;
    m->seed = s->seed;
    m->has_max_tokens = (s->set & PARLEY_MAX_TOKENS) != 0;
    m->max_tokens = s->max_tokens;
    m->has_min_tokens = (s->set & PARLEY_MIN_TOKENS) != 0;
    m->min_tokens = s->min_tokens;
    m->has_ignore_eos = (s->set & PARLEY_IGNORE_EOS) != 0;
    m->ignore_eos = s->ignore_eos;
    m->stop = (char **)(uintptr_t)s->stops; /* only read */
    m->n_stop = s->n_stops;
    return s->n_biases > 0 ? fill_biases(m, s, arena, err) : STATUS_OK;
}

enum status sampling_take(struct parley_sampling *out, const Parley__V1__Sampling *m,
                          struct arena *arena, struct error *err)
{
    int32_t *ids;
    float *biases;

    *out = (struct parley_sampling){0};
    if (m == NULL)
        return STATUS_OK;
    ids = arena_alloc(arena, m->n_logit_bias, sizeof(*ids));
    biases = arena_alloc(arena, m->n_logit_bias, sizeof(*biases));
    if (ids == NULL || biases == NULL)
        return error_no_memory(err, m->n_logit_bias * sizeof(*ids), "the logit biases");
    for (size_t i = 0; i < m->n_logit_bias; i++) {
        ids[i] = m->logit_bias[i]->key;
        biases[i] = m->logit_bias[i]->value;
    }
    *out = (struct parley_sampling){
        .set = (m->has_temperature ? PARLEY_TEMPERATURE : 0u) | (m->has_top_k ? PARLEY_TOP_K : 0u) |
               (m->has_top_p ? PARLEY_TOP_P : 0u) | (m->has_min_p ? PARLEY_MIN_P : 0u) |
               (m->has_repetition_penalty ? PARLEY_REPETITION_PENALTY : 0u) |
               (m->has_presence_penalty ? PARLEY_PRESENCE_PENALTY : 0u) |
               (m->has_frequency_penalty ? PARLEY_FREQUENCY_PENALTY : 0u) |
               (m->has_seed ? PARLEY_SEED : 0u) | (m->has_max_tokens ? PARLEY_MAX_TOKENS : 0u) |
               (m->has_min_tokens ? PARLEY_MIN_TOKENS : 0u) |
               (m->has_ignore_eos ? PARLEY_IGNORE_EOS : 0u),
        .temperature = m->temperature,
        .top_p = m->top_p,
        .min_p = m->min_p,
        .repetition_penalty = m->repetition_penalty,
        .presence_penalty = m->presence_penalty,
        .frequency_penalty = m->frequency_penalty,
        .top_k = m->top_k,
        .max_tokens = m->max_tokens,
        .min_tokens = m->min_tokens,
        .seed = m->seed,
        .ignore_eos = m->ignore_eos,
        .stops = (const char *const *)m->stop,
        .n_stops = m->n_stop,
        .bias_ids = ids,
        .biases = biases,
        .n_biases = m->n_logit_bias,
    };
    return STATUS_OK;
}
