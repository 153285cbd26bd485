#include "client/lib/parts.h"
#include "proto/sampling_fields.h"

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
#define FILL(name, NAME, ...)                      \
    m->has_##name = (s->set & PARLEY_##NAME) != 0; \
    m->name = s->name;
    SAMPLING_FIELDS(FILL)
#undef FILL
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
        .stops = (const char *const *)m->stop,
        .n_stops = m->n_stop,
        .bias_ids = ids,
        .biases = biases,
        .n_biases = m->n_logit_bias,
    };
#define TAKE(name, NAME, ...)                       \
    out->set |= m->has_##name ? PARLEY_##NAME : 0u; \
    out->name = m->name;
    SAMPLING_FIELDS(TAKE)
#undef TAKE
    return STATUS_OK;
}
