#include "server/json/sampling.h"

#include <stddef.h>
#include <string.h>

#include "proto/sampling_fields.h"
#include "server/json/fields.h"

struct known {
    const char *name;
    enum status (*take)(struct sampling *s, const struct known *k, const json_t *value,
                        struct arena *arena, struct error *err);
    enum sampling_field field;
    size_t offset; /* in struct sampling */
};

static enum status json_take_stop(struct text *out, const json_t *value, struct arena *arena,
                                  struct error *err)
{
    size_t len = json_string_length(value);

    if (!json_is_string(value))
        return error_field(err, "stop", "must be a text or a list of texts");
    out->text = arena_strndup(arena, json_string_value(value), len);
    out->len = len;
    return out->text != NULL ? STATUS_OK : error_no_memory(err, len, "a stop");
}

static enum status json_take_stops(struct sampling *s, const struct known *k, const json_t *value,
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
        if (json_take_stop(&stops[i], json_is_array(value) ? json_array_get(value, i) : value,
                           arena, err) != STATUS_OK)
            return err->status;
    s->stops = stops;
    s->n_stops = n;
    return STATUS_OK;
}

static enum status json_take_float(struct sampling *s, const struct known *k, const json_t *value,
                                   struct arena *arena, struct error *err)
{
    float number = (float)json_number_value(value);

    if (!json_is_number(value))
        return error_field(err, k->name, "must be a number");
    memcpy((char *)s + k->offset, &number, sizeof(number));
    return STATUS_OK;
}

static enum status json_take_u32(struct sampling *s, const struct known *k, const json_t *value,
                                 struct arena *arena, struct error *err)
{
    const bool is_top_k = k->field == SAMPLING_TOP_K;
    const bool has_none = is_top_k || k->field == SAMPLING_MAX_TOKENS;
    int64_t n = -2;
    uint32_t number;

    if (field_is_whole(value, &n) && has_none && n == -1)
        n = 0; /* elsewhere -1 means all */
    if (n < 0 || n > UINT32_MAX)
        return error_field(err, k->name, "must be a whole number%s",
                           is_top_k   ? ", -1 or 0 for all"
                           : has_none ? ", -1 for no bound"
                                      : " from 0 to 4294967295");
    number = (uint32_t)n;
    memcpy((char *)s + k->offset, &number, sizeof(number));
    return STATUS_OK;
}

/* A negative seed is as good as any. */
static enum status json_take_u64(struct sampling *s, const struct known *k, const json_t *value,
                                 struct arena *arena, struct error *err)
{
    uint64_t number;
    int64_t n;

    if (!field_is_whole(value, &n))
        return error_field(err, k->name, "must be a whole number from -2^63 to 2^63 - 1");
    number = (uint64_t)n;
    memcpy((char *)s + k->offset, &number, sizeof(number));
    return STATUS_OK;
}

static enum status json_take_bool(struct sampling *s, const struct known *k, const json_t *value,
                                  struct arena *arena, struct error *err)
{
    bool is_set = json_is_true(value);

    if (!json_is_boolean(value))
        return error_field(err, k->name, "must be true or false");
    memcpy((char *)s + k->offset, &is_set, sizeof(is_set));
    return STATUS_OK;
}

static const struct known all_known[] = {
#define KNOWN(name, NAME, kind, ...) \
    {#name, json_take_##kind, SAMPLING_##NAME, offsetof(struct sampling, name)},
    SAMPLING_FIELDS(KNOWN)
#undef KNOWN
        {"stop", json_take_stops, SAMPLING_STOPS, 0},
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

enum status sampling_json_set(struct sampling_overrides *p, const char *name, const json_t *value,
                              struct arena *arena, struct error *err)
{
    const struct known *k = json_sampling_find(name);
    enum status rc;

    if (k == NULL || json_is_null(value))
        return STATUS_OK;
    rc = k->take(&p->values, k, value, arena, err);
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
