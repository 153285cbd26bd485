#include "server/json/sampling.h"

#include <stddef.h>
#include <string.h>

enum kind { KIND_FLOAT, KIND_U32, KIND_TOP_K, KIND_SEED, KIND_BOOL, KIND_STOPS };

static const struct known {
    const char *name;
    enum kind kind;
    enum sampling_field field;
    size_t offset; /* in struct sampling */
} all_known[] = {
    {"temperature", KIND_FLOAT, SAMPLING_TEMPERATURE, offsetof(struct sampling, temperature)},
    {"top_k", KIND_TOP_K, SAMPLING_TOP_K, offsetof(struct sampling, top_k)},
    {"top_p", KIND_FLOAT, SAMPLING_TOP_P, offsetof(struct sampling, top_p)},
    {"min_p", KIND_FLOAT, SAMPLING_MIN_P, offsetof(struct sampling, min_p)},
    {"repetition_penalty", KIND_FLOAT, SAMPLING_REPETITION,
     offsetof(struct sampling, repetition_penalty)},
    {"presence_penalty", KIND_FLOAT, SAMPLING_PRESENCE,
     offsetof(struct sampling, presence_penalty)},
    {"frequency_penalty", KIND_FLOAT, SAMPLING_FREQUENCY,
     offsetof(struct sampling, frequency_penalty)},
    {"seed", KIND_SEED, SAMPLING_SEED, offsetof(struct sampling, seed)},
    {"max_tokens", KIND_U32, SAMPLING_MAX_TOKENS, offsetof(struct sampling, max_tokens)},
    {"min_tokens", KIND_U32, SAMPLING_MIN_TOKENS, offsetof(struct sampling, min_tokens)},
    {"stop", KIND_STOPS, SAMPLING_STOPS, 0},
    {"ignore_eos", KIND_BOOL, SAMPLING_IGNORE_EOS, offsetof(struct sampling, ignore_eos)},
};

static const struct known *json_sampling_find(const char *name)
{
    for (size_t i = 0; i < sizeof(all_known) / sizeof(all_known[0]); i++)
        if (strcmp(all_known[i].name, name) == 0)
            return &all_known[i];
    return NULL;
}

bool sampling_json_knows(const char *name)
{
    return json_sampling_find(name) != NULL;
}

static enum status take_stop(struct text *out, const json_t *value, struct arena *arena,
                             struct error *err)
{
    size_t len = json_string_length(value);

    if (!json_is_string(value))
        return error_field(err, "stop", "must be a text or a list of texts");
    out->text = arena_strndup(arena, json_string_value(value), len);
    out->len = len;
    return out->text != NULL ? STATUS_OK : error_no_memory(err, len, "a stop");
}

static enum status json_sampling_take_stops(struct sampling *s, const json_t *value,
                                            struct arena *arena, struct error *err)
{
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    struct text *stops;

    if (n > SAMPLING_MAX_STOPS)
        return error_field(err, "stop", "has %zu texts, at most %d are allowed", n,
                           SAMPLING_MAX_STOPS);
    stops = arena_alloc(arena, n, sizeof(stops[0]));
    if (stops == NULL)
        return error_no_memory(err, n * sizeof(stops[0]), "stops");
    for (size_t i = 0; i < n; i++)
        if (take_stop(&stops[i], json_is_array(value) ? json_array_get(value, i) : value, arena,
                      err) != STATUS_OK)
            return err->status;
    s->stops = stops;
    s->n_stops = n;
    return STATUS_OK;
}

static enum status json_sampling_take(struct sampling *s, const struct known *k,
                                      const json_t *value, struct arena *arena, struct error *err)
{
    char *at = (char *)s + k->offset;
    json_int_t n = json_integer_value(value);
    float number = (float)json_number_value(value);

    switch (k->kind) {
    case KIND_FLOAT:
        if (!json_is_number(value))
            return error_field(err, k->name, "must be a number");
        memcpy(at, &number, sizeof(number));
        return STATUS_OK;
    case KIND_U32:
        if (!json_is_integer(value) || n < 0 || n > UINT32_MAX)
            return error_field(err, k->name, "must be a whole number from 0 to 4294967295");
        *(uint32_t *)(void *)at = (uint32_t)n;
        return STATUS_OK;
    case KIND_TOP_K: /* elsewhere -1 means all */
        if (!json_is_integer(value) || n < -1 || n > UINT32_MAX)
            return error_field(err, k->name, "must be a whole number, -1 or 0 for all");
        s->top_k = n < 0 ? 0 : (uint32_t)n;
        return STATUS_OK;
    case KIND_SEED:
        if (!json_is_integer(value))
            return error_field(err, k->name, "must be a whole number");
        s->seed = (uint64_t)n;
        return STATUS_OK;
    case KIND_BOOL:
        if (!json_is_boolean(value))
            return error_field(err, k->name, "must be true or false");
        *(bool *)at = json_is_true(value);
        return STATUS_OK;
    case KIND_STOPS:
        return json_sampling_take_stops(s, value, arena, err);
    }
    return STATUS_OK;
}

enum status sampling_json_set(struct sampling_overrides *p, const char *name, const json_t *value,
                              struct arena *arena, struct error *err)
{
    const struct known *k = json_sampling_find(name);
    enum status rc;

    if (k == NULL || json_is_null(value))
        return STATUS_OK;
    rc = json_sampling_take(&p->values, k, value, arena, err);
    if (rc == STATUS_OK)
        p->given |= (uint32_t)k->field;
    return rc;
}

enum status sampling_json_set_all(struct sampling_overrides *p, const json_t *object,
                                  struct arena *arena, struct error *err)
{
    json_t *o = (json_t *)object; /* jansson's iterators change nothing */
    enum status rc = STATUS_OK;

    /* Most bodies have fewer fields than the table. */
    for (void *at = json_object_iter(o); at != NULL && rc == STATUS_OK;
         at = json_object_iter_next(o, at))
        rc = sampling_json_set(p, json_object_iter_key(at), json_object_iter_value(at), arena, err);
    return rc;
}
