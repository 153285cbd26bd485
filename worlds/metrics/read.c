#include <jansson.h>
#include <string.h>

#include "worlds/metrics/metrics.h"

/* Reads one JSON number, or an array of n, above 1. */
static bool metric_numbers(double out[], size_t n, const json_t *value)
{
    if (n == 1) {
        out[0] = json_number_value(value);
        return json_is_number(value);
    }
    if (!json_is_array(value) || json_array_size(value) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!json_is_number(json_array_get(value, i)))
            return false;
        out[i] = json_number_value(json_array_get(value, i));
    }
    return true;
}

static bool metric_read_kind(struct metric *out, const char *kind, const json_t *value)
{
    double x[3] = {0};

    if (strcmp(kind, "sum") == 0 && metric_numbers(x, 1, value))
        *out = metric_sum(x[0]);
    else if (strcmp(kind, "fixed") == 0 && metric_numbers(x, 1, value))
        *out = metric_fixed(x[0]);
    else if (strcmp(kind, "ppl") == 0 && metric_numbers(x, 2, value))
        *out = metric_ppl(x[0], x[1]);
    else if (strcmp(kind, "timer") == 0 && metric_numbers(x, 3, value) && x[1] <= x[2])
        *out = metric_timer(x[0], x[1], x[2]);
    else
        return false;
    return true;
}

static bool metric_read(struct metric *out, json_t *value)
{
    double x[2];
    void *first = json_object_iter(value);

    if (metric_numbers(x, 1, value))
        *out = metric_average(x[0], 1);
    else if (metric_numbers(x, 2, value))
        *out = metric_average(x[0], x[1]);
    else
        return json_object_size(value) == 1 &&
               metric_read_kind(out, json_object_iter_key(first), json_object_iter_value(first));
    return true;
}

static enum status metric_list_take(struct metric_list *out, json_t *object, struct arena *arena,
                                    struct error *err)
{
    const size_t n = json_object_size(object);
    struct named_metric *items = arena_alloc(arena, n + 1, sizeof(*items));
    const char *name;
    json_t *value;
    size_t i = 0;

    if (items == NULL)
        return error_no_memory(err, (n + 1) * sizeof(*items), "metrics");
    json_object_foreach(object, name, value)
    {
        const size_t len = strlen(name);

        items[i].name = (struct text){arena_strndup(arena, name, len), len};
        if (items[i].name.text == NULL)
            return error_no_memory(err, len, "a metric");
        if (!metric_read(&items[i++].metric, value))
            return error_set(err, STATUS_INVALID,
                             "metric '%.60s' must be a number, [sum, n], or an object of one of "
                             "sum, fixed, ppl [nats, tokens] and timer [x, from, to]",
                             name);
    }
    *out = (struct metric_list){.items = items, .n = n};
    return STATUS_OK;
}

enum status metric_list_read(struct metric_list *out, struct text json, struct arena *arena,
                             struct error *err)
{
    json_error_t why;
    json_t *object = json_loadb(json.len > 0 ? json.text : "", json.len, 0, &why);
    enum status rc;

    if (json_is_object(object))
        rc = metric_list_take(out, object, arena, err);
    else
        rc = error_set(err, STATUS_INVALID, "metrics must be a JSON object%s%.100s",
                       object == NULL ? ": " : "", object == NULL ? why.text : "");
    json_decref(object);
    return rc;
}
