/* parley place: models on devices, JSON to JSON. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/options/options.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "compute/verbs/placement.h"
#include "compute/verbs/verbs.h"

enum { MAX_NODES = 10000000 };
static const double CPU_DISTANCE = 10; /* from a CPU to another device, as in Machin */
static const double NUMBER_MIN = 1e-100, NUMBER_MAX = 1e100;

struct place_options {
    uint64_t max_nodes;
};

static const struct option_row place_rows[] = {
    {"max-steps", "N", "the most partial placements to search (10000000)", OPTION_U64,
     offsetof(struct place_options, max_nodes), 0},
    {0},
};

/* The costs' sums, products and quotients of such numbers are numbers. */
static bool is_number(const json_t *value)
{
    const double v = json_number_value(value);

    return json_is_number(value) && (v == 0 || (v >= NUMBER_MIN && v <= NUMBER_MAX));
}

/* A number of an object; absent: usual, or an error where that is negative. */
static enum status item_number(double *out, const json_t *of, const char *where, size_t i,
                               const char *name, double usual, struct error *err)
{
    const json_t *value = json_object_get(of, name);

    *out = value == NULL ? usual : json_number_value(value);
    if (value == NULL && usual < 0)
        return error_set(err, STATUS_INVALID, "%s[%zu] has no %s", where, i, name);
    if (value != NULL && !is_number(value))
        return error_set(err, STATUS_INVALID,
                         "%s[%zu].%s must be 0 or a number from 1e-100 to 1e100", where, i, name);
    return STATUS_OK;
}

/* Whether each of its fields is one of the names, which end with NULL. where: the list that has
 * the object at i; NULL: it is the input itself. */
static enum status check_item_fields(const json_t *object, const char *const *names,
                                     const char *where, size_t i, struct error *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        size_t at = 0;

        while (names[at] != NULL && strcmp(key, names[at]) != 0)
            at++;
        if (names[at] != NULL)
            continue;
        return where == NULL ? error_set(err, STATUS_INVALID, "there is no field \"%.40s\"", key)
                             : error_set(err, STATUS_INVALID, "%s[%zu] has no field \"%.40s\"",
                                         where, i, key);
    }
    return STATUS_OK;
}

static const char *item_name(const json_t *list, size_t i)
{
    return json_string_value(json_object_get(json_array_get(list, i), "name"));
}

/* The index of a name in a list of objects; false: there is none. */
static bool named_index(uint32_t *out, const json_t *list, const char *name)
{
    for (size_t i = 0; name != NULL && i < json_array_size(list); i++)
        if (strcmp(item_name(list, i), name) == 0) {
            *out = (uint32_t)i;
            return true;
        }
    return false;
}

static enum status check_items(const json_t *list, const char *where, size_t max, struct error *err)
{
    uint32_t first;

    if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > max)
        return error_set(err, STATUS_INVALID, "%s is not a list of 1 to %zu objects", where, max);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (item_name(list, i) == NULL)
            return error_set(err, STATUS_INVALID, "%s[%zu] has no name", where, i);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (named_index(&first, list, item_name(list, i)) && first != i)
            return error_set(err, STATUS_INVALID, "%s[%zu] has the name of %s[%u], \"%s\"", where,
                             i, where, first, item_name(list, i));
    return STATUS_OK;
}

static bool is_cpu(const json_t *device)
{
    const char *kind = json_string_value(json_object_get(device, "kind"));

    return kind != NULL && strcmp(kind, "cpu") == 0;
}

static enum status take_devices(struct placement_problem *p, const json_t *list, struct error *err)
{
    static const char *const names[] = {"name", "kind", "bytes", "speed", NULL};

    if (check_items(list, "devices", PLACEMENT_DEVICES_MAX, err) != STATUS_OK)
        return err->status;
    p->n_devices = (uint32_t)json_array_size(list);
    for (size_t i = 0; i < p->n_devices; i++) {
        const json_t *device = json_array_get(list, i);
        const json_t *kind = json_object_get(device, "kind");

        if (kind != NULL && !is_cpu(device) &&
            (!json_is_string(kind) || strcmp(json_string_value(kind), "gpu") != 0))
            return error_set(err, STATUS_INVALID, "devices[%zu].kind must be \"cpu\" or \"gpu\"",
                             i);
        if (check_item_fields(device, names, "devices", i, err) != STATUS_OK ||
            item_number(&p->devices[i].bytes, device, "devices", i, "bytes", -1, err) !=
                STATUS_OK ||
            item_number(&p->devices[i].speed, device, "devices", i, "speed", is_cpu(device) ? 0 : 1,
                        err) != STATUS_OK)
            return err->status;
        for (size_t k = 0; k < i; k++) {
            bool has_cpu = is_cpu(device) || is_cpu(json_array_get(list, k));

            p->distance[i][k] = p->distance[k][i] = has_cpu ? CPU_DISTANCE : 1;
        }
    }
    return STATUS_OK;
}

static enum status take_models(struct placement_problem *p, const json_t *list, struct error *err)
{
    static const char *const names[] = {"name", "bytes", "complexity", NULL};

    if (check_items(list, "models", PLACEMENT_MODELS_MAX, err) != STATUS_OK)
        return err->status;
    p->n_models = (uint32_t)json_array_size(list);
    for (size_t i = 0; i < p->n_models; i++) {
        const json_t *model = json_array_get(list, i);

        if (check_item_fields(model, names, "models", i, err) != STATUS_OK ||
            item_number(&p->models[i].bytes, model, "models", i, "bytes", -1, err) != STATUS_OK ||
            item_number(&p->models[i].complexity, model, "models", i, "complexity",
                        p->models[i].bytes, err) != STATUS_OK)
            return err->status;
    }
    return STATUS_OK;
}

/* [{"between": [A, B], NAME: number}, …], into a symmetric matrix of so many columns: in place of
 * what is there, or added. */
static enum status take_pairs(double *matrix, size_t n_columns, bool is_added, const json_t *list,
                              const json_t *of, const char *where, const char *name,
                              struct error *err)
{
    const char *const names[] = {"between", name, NULL};

    if (list != NULL && !json_is_array(list))
        return error_set(err, STATUS_INVALID, "%s is not a list", where);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *pair = json_object_get(json_array_get(list, i), "between");
        uint32_t a, b;
        double value;

        if (json_array_size(pair) != 2 ||
            !named_index(&a, of, json_string_value(json_array_get(pair, 0))) ||
            !named_index(&b, of, json_string_value(json_array_get(pair, 1))) || a == b)
            return error_set(err, STATUS_INVALID, "%s[%zu].between does not name two of them",
                             where, i);
        if (check_item_fields(json_array_get(list, i), names, where, i, err) != STATUS_OK ||
            item_number(&value, json_array_get(list, i), where, i, name, -1, err) != STATUS_OK)
            return err->status;
        value += is_added ? matrix[a * n_columns + b] : 0;
        matrix[a * n_columns + b] = matrix[b * n_columns + a] = value;
    }
    return STATUS_OK;
}

static enum status weight_of(double *out, const json_t *in, const char *name, double usual,
                             struct error *err)
{
    const json_t *value = json_object_get(in, name);

    *out = value == NULL ? usual : json_number_value(value);
    if (value != NULL && !is_number(value))
        return error_set(err, STATUS_INVALID, "%s must be 0 or a number from 1e-100 to 1e100",
                         name);
    return STATUS_OK;
}

static enum status take_problem(struct placement_problem *p, const json_t *in, struct error *err)
{
    static const char *const names[] = {
        "models", "devices", "connections", "distances", "connection_weight", "load_weight", NULL};
    const json_t *models = json_object_get(in, "models"), *devices = json_object_get(in, "devices");

    if (!json_is_object(in))
        return error_set(err, STATUS_INVALID, "the input is not a JSON object");
    if (check_item_fields(in, names, NULL, 0, err) != STATUS_OK ||
        take_models(p, models, err) != STATUS_OK || take_devices(p, devices, err) != STATUS_OK ||
        take_pairs(&p->traffic[0][0], PLACEMENT_MODELS_MAX, true,
                   json_object_get(in, "connections"), models, "connections", "weight",
                   err) != STATUS_OK ||
        take_pairs(&p->distance[0][0], PLACEMENT_DEVICES_MAX, false,
                   json_object_get(in, "distances"), devices, "distances", "distance",
                   err) != STATUS_OK ||
        weight_of(&p->connection_weight, in, "connection_weight", 2, err) != STATUS_OK ||
        weight_of(&p->load_weight, in, "load_weight", 4, err) != STATUS_OK)
        return err->status;
    return STATUS_OK;
}

static json_t *placement_json(const struct placement *found, const struct placement_problem *p,
                              const json_t *in)
{
    const json_t *models = json_object_get(in, "models"), *devices = json_object_get(in, "devices");
    json_t *where = json_object(), *used = json_array();

    for (size_t i = 0; i < p->n_models; i++)
        (void)json_object_set_new(where, item_name(models, i),
                                  json_string(item_name(devices, found->device[i])));
    for (size_t d = 0; d < p->n_devices; d++) {
        double bytes = 0, complexity = 0;

        for (size_t i = 0; i < p->n_models; i++)
            if (found->device[i] == d) {
                bytes += p->models[i].bytes;
                complexity += p->models[i].complexity;
            }
        (void)json_array_append_new(
            used, json_pack("{s:s,s:f,s:f,s:f}", "name", item_name(devices, d), "bytes", bytes,
                            "free", p->devices[d].bytes - bytes, "complexity", complexity));
    }
    return json_pack("{s:o,s:o,s:f,s:f,s:f,s:b}", "placement", where, "devices", used, "cost",
                     found->cost, "connection_cost", found->connection_cost, "load_cost",
                     found->load_cost, "exact", found->is_exact);
}

static enum status read_problem(json_t **out, const char *path, struct error *err)
{
    FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    json_error_t at;

    if (file == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    *out = json_loadf(file, JSON_REJECT_DUPLICATES, &at);
    if (file != stdin)
        (void)fclose(file); /* it was only read */
    if (*out == NULL)
        return error_set(err, STATUS_INVALID,
                         "%s, line %d: not the JSON of a problem ('man parley' has its form): %s",
                         file == stdin ? "standard input" : path, at.line, at.text);
    return STATUS_OK;
}

enum exit_code place_run(const struct verb *verb, int argc, char **argv)
{
    struct place_options o = {.max_nodes = MAX_NODES};
    const struct option_group groups[] = {{place_rows, &o, NULL}};
    struct placement_problem *problem = NULL;
    struct placement found;
    json_t *in = NULL;
    enum exit_code code;
    struct error err;
    const char *path;
    int first;

    if (!options_read(verb, groups, 1, argc, argv, 0, 1, &first, &code))
        return code;
    path = first < argc ? argv[first] : "-";
    code = EXIT_FAILED;
    if (read_problem(&in, path, &err) != STATUS_OK)
        goto done;
    problem = xalloc(sizeof(*problem));
    if (take_problem(problem, in, &err) != STATUS_OK ||
        placement_find(&found, problem, o.max_nodes, &err) != STATUS_OK)
        goto done;
    (void)out_json(placement_json(&found, problem, in)); /* main reports a failure of stdout */
    code = EXIT_DONE;
done:
    if (code != EXIT_DONE)
        console_error("%s", err.text);
    free(problem);
    json_decref(in);
    return code;
}
