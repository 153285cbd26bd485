/* Which alternatives of oneOf exclude each other. */
#include "agents/constraint/guard_parts.h"

#include <math.h>
#include <string.h>

#include "agents/constraint/guard.h"
#include "agents/constraint/json_value.h"

enum {
    TRIAL_NODES = 512,   /* schemas and values in one */
    TRIAL_MERGED = 2048, /* see GUARD_MAX_MERGED */
    TRIAL_WORK = 1 << 15,
    TRIAL_COSTS = 128, /* whatever it does */
    NODE_COSTS = 64,
};

json_t *guard_values_of(const json_t *schema)
{
    json_t *values = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");

    if (one != NULL)
        return json_pack("[O]", one);
    return json_is_array(values) ? json_incref(values) : NULL;
}

static bool lists_differ(const json_t *a, const json_t *b)
{
    for (size_t i = 0; i < json_array_size(a); i++)
        for (size_t k = 0; k < json_array_size(b); k++) {
            const json_t *x = json_array_get(a, i), *y = json_array_get(b, k);

            if (json_value_is_same(x, y))
                return false;
        }
    return true;
}

static unsigned types_of(const json_t *schema)
{
    json_t *values = guard_values_of(schema);
    unsigned types = guard_types(json_object_get(schema, "type"));
    unsigned of_values = 0;

    if (values == NULL)
        return types;
    for (size_t i = 0; i < json_array_size(values); i++)
        of_values |= guard_type_of_value(json_array_get(values, i));
    json_decref(values);
    return of_values;
}

static bool is_required(const json_t *schema, const char *name)
{
    const json_t *required = json_object_get(schema, "required");

    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *text = json_string_value(json_array_get(required, i));

        if (text != NULL && strcmp(text, name) == 0)
            return true;
    }
    return false;
}

static bool values_differ(struct guard *g, const json_t *a, const json_t *b)
{
    json_t *x = guard_values_of(a), *y = guard_values_of(b);
    bool differ = x != NULL && y != NULL &&
                  guard_compares(g, json_array_size(x), json_array_size(y)) && lists_differ(x, y);

    json_decref(x);
    json_decref(y);
    return differ;
}

/* Whether objects of the schema are written with its own members alone, where nothing stands beside
 * it that names others. */
static bool is_closed(const json_t *schema)
{
    static const char *const known[] = {"maxProperties", "properties", "propertyNames", "required",
                                        "type"};
    json_t *from = (json_t *)schema; /* jansson's iterators do not change it */

    for (void *at = json_object_iter(from); at != NULL; at = json_object_iter_next(from, at)) {
        const char *name = json_object_iter_key(at);
        size_t i = 0;

        while (i < sizeof(known) / sizeof(known[0]) && strcmp(known[i], name) != 0)
            i++;
        if (i == sizeof(known) / sizeof(known[0]) && guard_is_keyword(schema, name))
            return false;
    }
    return json_object_size(json_object_get(schema, "properties")) > 0;
}

/* a requires a name that b, closed, does not have. */
static bool requires_other(const json_t *a, const json_t *b)
{
    const json_t *required = json_object_get(a, "required"),
                 *members = json_object_get(b, "properties");

    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));

        if (name != NULL && json_object_get(members, name) == NULL && !is_required(b, name))
            return true;
    }
    return false;
}

/* Those that values of the types may be of. */
static unsigned widened(unsigned types)
{
    return (types & TYPE_INTEGER) != 0 ? types | TYPE_NUMBER : types;
}

/* Each requires what the other does not have; beside them values are of these types. */
static bool require_others(struct guard *g, const json_t *a, const json_t *b, unsigned types)
{
    a = guard_follow_alone(g, a);
    b = guard_follow_alone(g, b);
    types = widened(types) & widened(types_of(a)) & widened(types_of(b));
    return types == TYPE_OBJECT && is_closed(a) && is_closed(b) && requires_other(a, b) &&
           requires_other(b, a);
}

/* Their types or values differ, or those of a member that both require. */
static bool differ_plainly(struct guard *g, const json_t *a, const json_t *b)
{
    json_t *members;

    a = guard_follow(g, a);
    b = guard_follow(g, b);
    if (!json_is_object(a) || !json_is_object(b))
        return false;
    if ((types_of(a) & types_of(b)) == 0) {
        unsigned both = types_of(a) | types_of(b);

        return (both & TYPE_INTEGER) == 0 || (both & TYPE_NUMBER) == 0;
    }
    if (values_differ(g, a, b))
        return true;
    if (types_of(a) != TYPE_OBJECT || types_of(b) != TYPE_OBJECT)
        return false;
    members = json_object_get(a, "properties");
    for (void *at = json_object_iter(members); at != NULL;
         at = json_object_iter_next(members, at)) {
        const char *name = json_object_iter_key(at);

        if (is_required(a, name) && is_required(b, name) &&
            values_differ(g, guard_follow(g, json_object_iter_value(at)),
                          guard_follow(g, json_object_get(json_object_get(b, "properties"), name))))
            return true;
    }
    return false;
}

/* Objects of which no member has to be there: {} is both. */
static bool are_free(struct guard *g, const json_t *a, const json_t *b)
{
    static const char *const names[] = {"$ref",  "allOf",    "anyOf", "not",
                                        "oneOf", "required", "const", "enum"};
    const json_t *both[] = {guard_follow(g, a), guard_follow(g, b)};

    for (size_t i = 0; i < 2; i++) {
        if (guard_types(json_object_get(both[i], "type")) != TYPE_OBJECT)
            return false;
        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
            if (json_object_get(both[i], names[k]) != NULL)
                return false;
    }
    return true;
}

/* Both are walked as one schema, which leaves out what cannot be enforced or whose grammar has
 * fewer values than it allows: if even then none is left there is none. */
static bool is_never(struct guard *g, const json_t *a, const json_t *b)
{
    struct buf left_out;
    struct error err = {0};
    struct guard t = {
        .root = g->root,
        .walk = g->walk,
        .names = g->names,
        .has_resources = g->has_resources,
        .refs = json_object(),
        .defs = json_object(),
        .made = json_object(),
        .left_out = &left_out,
        .is_trial = true,
        .n_nodes = GUARD_MAX_NODES - TRIAL_NODES,
        .n_merged = GUARD_MAX_MERGED - TRIAL_MERGED,
        .work = g->work < TRIAL_WORK ? g->work : TRIAL_WORK,
        .err = &err,
    };
    const size_t work = t.work, n_nodes = t.n_nodes;
    size_t spent = TRIAL_COSTS;
    json_t *both = json_pack("{s:[O,O]}", "allOf", a, b), *walked = NULL;
    bool is_never;

    if (g->work < TRIAL_COSTS) {
        json_decref(both);
        both = NULL;
    }
    buf_init(&t.path, 64 << 10);
    buf_init(&left_out, 0);
    if (both != NULL && t.refs != NULL && t.defs != NULL && t.made != NULL &&
        buf_append_text(&t.path, "#") == STATUS_OK) {
        walked = t.walk(&t, both);
        spent += work - t.work + (t.n_nodes - n_nodes) * NODE_COSTS;
        g->work -= spent < g->work ? spent : g->work;
    }
    is_never = json_is_false(walked) && err.status == STATUS_OK;
    json_decref(walked);
    json_decref(both);
    json_decref(t.refs);
    json_decref(t.defs);
    json_decref(t.made);
    buf_deinit(&t.path);
    buf_deinit(&left_out);
    return is_never;
}

bool guard_are_disjoint(struct guard *g, const json_t *a, const json_t *b, unsigned alone)
{
    return differ_plainly(g, a, b) || require_others(g, a, b, alone) ||
           (!are_free(g, a, b) && is_never(g, a, b));
}
