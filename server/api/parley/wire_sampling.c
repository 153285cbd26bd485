#include "server/api/parley/wire_sampling.h"

#include <string.h>

#include "proto/sampling_fields.h"

/* --- from a message --- */

static enum status wire_take_biases(struct sampling *out, const Parley__V1__Sampling *from,
                                    struct arena *arena, struct error *err)
{
    struct logit_bias *biases;

    if (from->n_logit_bias > SAMPLING_MAX_BIASES)
        return error_field(err, "logit_bias", "has %zu tokens, at most %d are allowed",
                           from->n_logit_bias, SAMPLING_MAX_BIASES);
    biases = arena_alloc(arena, from->n_logit_bias, sizeof(biases[0]));
    if (biases == NULL)
        return error_no_memory(err, 0, "the request");
    for (size_t i = 0; i < from->n_logit_bias; i++) {
        biases[i].id = from->logit_bias[i]->key;
        biases[i].bias = from->logit_bias[i]->value;
    }
    out->biases = biases;
    out->n_biases = from->n_logit_bias;
    return logit_biases_sort(biases, from->n_logit_bias, err);
}

static enum status wire_take_stops(struct sampling *out, const Parley__V1__Sampling *from,
                                   struct arena *arena, struct error *err)
{
    struct text *stops;

    if (from->n_stop > SAMPLING_MAX_STOPS)
        return error_field(err, "stop", "has %zu texts, at most %d are allowed", from->n_stop,
                           SAMPLING_MAX_STOPS);
    stops = arena_alloc(arena, from->n_stop, sizeof(stops[0]));
    if (stops == NULL)
        return error_no_memory(err, 0, "the request");
    for (size_t i = 0; i < from->n_stop; i++)
        stops[i] = (struct text){.text = from->stop[i], .len = strlen(from->stop[i])};
    out->stops = stops;
    out->n_stops = from->n_stop;
    return STATUS_OK;
}

enum status wire_sampling(const struct sampling_overrides **out, const Parley__V1__Sampling *from,
                          struct arena *arena, struct error *err)
{
    struct sampling_overrides *p;
    enum status rc;

    if (from == NULL) {
        *out = NULL;
        return STATUS_OK;
    }
    if (from->clear_stop && from->n_stop > 0)
        return error_field(err, "sampling.clear_stop", "cannot be combined with stop");
    if (from->clear_logit_bias && from->n_logit_bias > 0)
        return error_field(err, "sampling.clear_logit_bias", "cannot be combined with logit_bias");
    p = arena_alloc(arena, 1, sizeof(*p));
    if (p == NULL)
        return error_no_memory(err, 0, "the request");
#define TAKE(name, NAME, ...)    \
    p->values.name = from->name; \
    p->given |= from->has_##name ? SAMPLING_##NAME : 0u;
    SAMPLING_FIELDS(TAKE)
#undef TAKE
    p->given |= (from->n_logit_bias > 0 || from->clear_logit_bias ? SAMPLING_BIASES : 0u) |
                (from->n_stop > 0 || from->clear_stop ? SAMPLING_STOPS : 0u);
    rc = wire_take_biases(&p->values, from, arena, err);
    if (rc == STATUS_OK)
        rc = wire_take_stops(&p->values, from, arena, err);
    if (rc == STATUS_OK)
        *out = p;
    return rc;
}

/* --- to a message --- */

static enum status fill_bias_entries(Parley__V1__Sampling *out, const struct sampling *s,
                                     struct arena *arena)
{
    Parley__V1__Sampling__LogitBiasEntry *entries =
        arena_alloc(arena, s->n_biases, sizeof(entries[0]));

    out->logit_bias = arena_alloc(arena, s->n_biases, sizeof(out->logit_bias[0]));
    if (entries == NULL || out->logit_bias == NULL)
        return STATUS_EXHAUSTED;
    out->n_logit_bias = s->n_biases;
    out->has_clear_logit_bias = out->clear_logit_bias = s->n_biases == 0;
    for (size_t i = 0; i < s->n_biases; i++) {
        parley__v1__sampling__logit_bias_entry__init(&entries[i]);
        entries[i].has_key = entries[i].has_value = true;
        entries[i].key = s->biases[i].id;
        entries[i].value = s->biases[i].bias;
        out->logit_bias[i] = &entries[i];
    }
    return STATUS_OK;
}

static enum status fill_stops(Parley__V1__Sampling *out, const struct sampling *s,
                              struct arena *arena)
{
    out->stop = arena_alloc(arena, s->n_stops, sizeof(out->stop[0]));
    if (out->stop == NULL)
        return STATUS_EXHAUSTED;
    out->n_stop = s->n_stops;
    out->has_clear_stop = out->clear_stop = s->n_stops == 0;
    for (size_t i = 0; i < s->n_stops; i++) {
        out->stop[i] = arena_strndup(arena, s->stops[i].text, s->stops[i].len);
        if (out->stop[i] == NULL)
            return STATUS_EXHAUSTED;
    }
    return STATUS_OK;
}

enum status wire_sampling_message(Parley__V1__Sampling **out, const struct sampling *values,
                                  uint32_t given, struct arena *arena)
{
    Parley__V1__Sampling *m = arena_alloc(arena, 1, sizeof(*m));

    if (m == NULL)
        return STATUS_EXHAUSTED;
    parley__v1__sampling__init(m);
#define FILL(name, NAME, ...)                       \
    m->has_##name = (given & SAMPLING_##NAME) != 0; \
    m->name = values->name;
    SAMPLING_FIELDS(FILL)
#undef FILL
    if ((given & SAMPLING_BIASES) != 0 && fill_bias_entries(m, values, arena) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if ((given & SAMPLING_STOPS) != 0 && fill_stops(m, values, arena) != STATUS_OK)
        return STATUS_EXHAUSTED;
    *out = m;
    return STATUS_OK;
}
