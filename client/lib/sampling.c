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
