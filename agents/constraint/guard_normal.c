/* Makes schemas normal, and joins those that hold together. What says "this or that" in other words
 * (oneOf, if, dependentRequired, not) is written as anyOf, where its opposite has a form. */
#include "agents/constraint/guard.h"
#include "agents/constraint/guard_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/constraint/schema_merge.h"

enum {
    MAX_REF_HOPS = 16,
    MAX_MERGED = 1 << 15, /* members of merged schemas, counted each time that they are merged */
    OPPOSITE_WORK = 512,  /* what an opposite costs, in looks at a part of an automaton's state */
};

/* --- types --- */

static const char *const type_names[] = {"null",   "boolean", "integer", "number",
                                         "string", "array",   "object"};

enum { N_TYPES = sizeof(type_names) / sizeof(type_names[0]) };

static unsigned type_of_name(const json_t *name)
{
    for (size_t i = 0; json_is_string(name) && i < N_TYPES; i++)
        if (strcmp(json_string_value(name), type_names[i]) == 0)
            return 1u << i;
    return 0;
}

unsigned guard_types(const json_t *type)
{
    unsigned types = 0;

    if (type == NULL)
        return TYPE_ALL;
    if (!json_is_array(type))
        return type_of_name(type);
    for (size_t i = 0; i < json_array_size(type); i++) {
        unsigned one = type_of_name(json_array_get(type, i));

        if (one == 0)
            return 0;
        types |= one;
    }
    return (types & TYPE_NUMBER) != 0 ? types & ~(unsigned)TYPE_INTEGER : types;
}

json_t *guard_type_name(unsigned type)
{
    unsigned i = 0;

    while (type > 1u << i)
        i++;
    return json_string(type_names[i]);
}

unsigned guard_type_of_value(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_NULL:
        return TYPE_NULL;
    case JSON_TRUE:
    case JSON_FALSE:
        return TYPE_BOOLEAN;
    case JSON_INTEGER:
        return TYPE_INTEGER | TYPE_NUMBER;
    case JSON_REAL:
        return floor(json_real_value(value)) == json_real_value(value) ? TYPE_INTEGER | TYPE_NUMBER
                                                                       : TYPE_NUMBER;
    case JSON_STRING:
        return TYPE_STRING;
    case JSON_ARRAY:
        return TYPE_ARRAY;
    case JSON_OBJECT:
        break;
    }
    return TYPE_OBJECT;
}

/* --- what is written as anyOf --- */

/* Takes list. */
static bool add_alternatives(struct guard *g, json_t *out, json_t *list)
{
    json_t *all = json_object_get(out, "anyOf");

    if (all == NULL) {
        all = json_array();
        if (json_object_set_new(out, "anyOf", all) != 0) {
            json_decref(list);
            return guard_no_memory(g) != NULL;
        }
    }
    return json_array_append_new(all, list) == 0 || guard_no_memory(g) != NULL;
}

/* The alternative with the opposites of those of the others that it does not exclude; NULL: they
 * have none. */
static json_t *alone_of(struct guard *g, const json_t *list, size_t i, bool is_alone)
{
    json_t *one = json_array_get(list, i), *all = json_pack("[O]", one), *out;

    for (size_t k = 0; all != NULL && k < json_array_size(list); k++) {
        json_t *opposite;

        if (k == i || json_is_false(json_array_get(list, k)) ||
            guard_are_disjoint(g, one, json_array_get(list, k), is_alone))
            continue;
        if (g->work < OPPOSITE_WORK) {
            (void)guard_fail(g, "oneOf", "has too many alternatives that may match the same value");
            json_decref(all);
            return NULL;
        }
        g->work -= OPPOSITE_WORK;
        opposite = guard_opposite(guard_follow(g, json_array_get(list, k)));
        if (opposite == NULL || json_array_append_new(all, guard_any_of(opposite)) != 0) {
            json_decref(all);
            all = NULL;
        }
    }
    if (all == NULL || json_array_size(all) > 1)
        return all != NULL ? json_pack("{s:o}", "allOf", all) : NULL;
    out = json_incref(one);
    json_decref(all);
    return out;
}

static bool normal_one_of(struct guard *g, json_t *out, const json_t *s, const char *name,
                          json_t *list)
{
    const bool is_alone =
        json_object_get(s, "properties") == NULL && json_object_get(s, "$ref") == NULL &&
        json_object_get(s, "allOf") == NULL && json_object_get(s, "patternProperties") == NULL &&
        json_object_get(s, "additionalProperties") == NULL;
    json_t *alternatives;

    if (!json_is_array(list) || json_array_size(list) == 0)
        return guard_fail(g, name, "must be a list of schemas") != NULL;
    if (!guard_count(g, name, json_array_size(list) * json_array_size(list) / 64))
        return false;
    alternatives = json_array();
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *one = alone_of(g, list, i, is_alone);

        if (one != NULL) {
            const bool has_opposite = one != json_array_get(list, i);

            if (json_array_append_new(alternatives, one) != 0 ||
                (has_opposite && json_object_set_new(out, "-opposite", json_true()) != 0)) {
                json_decref(alternatives);
                return guard_no_memory(g) != NULL;
            }
            continue;
        }
        json_decref(alternatives);
        return g->err->status == STATUS_OK &&
               guard_leave_out(g, name,
                               "cannot be enforced because two alternatives may match the same "
                               "value") &&
               add_alternatives(g, out, json_incref(list));
    }
    return add_alternatives(g, out, alternatives);
}

static bool normal_any_of(struct guard *g, json_t *out, const json_t *s, const char *name,
                          json_t *list)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        return guard_fail(g, name, "must be a list of schemas") != NULL;
    return add_alternatives(g, out, json_incref(list));
}

/* The values of a schema that has only those; NULL: it says more. */
static json_t *only_values(const json_t *schema)
{
    return json_object_size(schema) == 1 ? guard_values_of(schema) : NULL;
}

static bool normal_not(struct guard *g, json_t *out, const json_t *s, const char *name,
                       json_t *schema)
{
    json_t *values = only_values(schema), *known = json_object_get(out, "not"), *opposite;

    if (values != NULL) {
        const bool is_set = known != NULL ? json_array_extend(known, values) == 0
                                          : json_object_set_new(out, "not", json_copy(values)) == 0;

        json_decref(values);
        return is_set || guard_no_memory(g) != NULL;
    }
    opposite = guard_opposite(guard_follow(g, schema));
    if (opposite == NULL)
        return guard_leave_out(g, name, "cannot be enforced: its schema has no opposite");
    if (json_object_set_new(out, "-opposite", json_true()) != 0) {
        json_decref(opposite);
        return guard_no_memory(g) != NULL;
    }
    if (json_array_size(opposite) == 0 && json_array_append_new(opposite, json_false()) != 0) {
        json_decref(opposite);
        return guard_no_memory(g) != NULL;
    }
    return add_alternatives(g, out, opposite);
}

static bool normal_if(struct guard *g, json_t *out, const json_t *s, const char *name,
                      json_t *schema)
{
    json_t *then = json_object_get(s, "then"), *otherwise = json_object_get(s, "else"), *opposite,
           *list;

    if (then == NULL && otherwise == NULL)
        return true;
    opposite = guard_opposite(guard_follow(g, schema));
    if (opposite == NULL)
        return guard_leave_out(g, name, "cannot be enforced: its schema has no opposite");
    list = json_array();
    if (json_object_set_new(out, "-opposite", json_true()) != 0 ||
        json_array_append_new(list, then == NULL
                                        ? json_incref(schema)
                                        : json_pack("{s:[O,O]}", "allOf", schema, then)) != 0)
        goto fail;
    for (size_t i = 0; i < json_array_size(opposite); i++) {
        json_t *one = json_array_get(opposite, i);

        if (json_array_append_new(list, otherwise == NULL
                                            ? json_incref(one)
                                            : json_pack("{s:[O,O]}", "allOf", one, otherwise)) != 0)
            goto fail;
    }
    json_decref(opposite);
    return add_alternatives(g, out, list);
fail:
    json_decref(opposite);
    json_decref(list);
    return guard_no_memory(g) != NULL;
}

/* Each name: it is not there, or what depends on it holds. */
static bool normal_dependent(struct guard *g, json_t *out, const json_t *s, const char *name,
                             json_t *dependents)
{
    if (!json_is_object(dependents))
        return guard_fail(g, name, "must be an object") != NULL;
    for (void *at = json_object_iter(dependents); at != NULL;
         at = json_object_iter_next(dependents, at)) {
        const char *member = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at), *list, *there;

        if (json_is_array(value)) {
            there = json_copy(value);
            (void)json_array_append_new(there, json_string(member)); /* or checked below */
            there = json_pack("{s:s,s:o}", "type", "object", "required", there);
        } else {
            there = json_pack("{s:[{s:s,s:[s]},O]}", "allOf", "type", "object", "required", member,
                              value);
        }
        list = json_pack("[{s:{s:b}},o]", "properties", member, 0, there);
        if (list == NULL)
            return guard_no_memory(g) != NULL;
        if (!add_alternatives(g, out, list))
            return false;
    }
    return true;
}

/* --- keywords of one form --- */

bool guard_check_unevaluated(struct guard *g, const json_t *s, const char *keyword)
{
    const json_t *rest = json_object_get(s, keyword);

    return strncmp(keyword, "unevaluated", 11) != 0 || rest == NULL || json_is_true(rest) ||
           json_object_get(s, "-opposite") == NULL ||
           guard_leave_out(g, keyword, "cannot be enforced beside not, if or such a oneOf");
}

static bool normal_same(struct guard *g, json_t *out, const json_t *s, const char *name,
                        json_t *value)
{
    return json_object_set(out, name, value) == 0 || guard_no_memory(g) != NULL;
}

static bool normal_list(struct guard *g, json_t *out, const json_t *s, const char *name,
                        json_t *value)
{
    return json_object_set_new(out, name, json_pack("[O]", value)) == 0 ||
           guard_no_memory(g) != NULL;
}

/* All names are strings. */
static bool normal_names(struct guard *g, json_t *out, const json_t *s, const char *name,
                         json_t *value)
{
    size_t n_said = 0;
    bool is_string = true;

    for (void *at = json_object_iter(value); at != NULL; at = json_object_iter_next(value, at)) {
        n_said += !guard_says_nothing(json_object_iter_key(at));
        is_string = is_string && (strcmp(json_object_iter_key(at), "type") != 0 ||
                                  guard_types(json_object_iter_value(at)) == TYPE_STRING);
    }
    if (json_is_true(value) || (json_is_object(value) && is_string &&
                                n_said == (json_object_get(value, "type") != NULL ? 1 : 0)))
        return true;
    return normal_list(g, out, s, name, value);
}

static bool normal_refused(struct guard *g, json_t *out, const json_t *s, const char *name,
                           json_t *value)
{
    return guard_leave_out(g, name, "cannot be enforced");
}

/* With its counts, which say nothing without it. */
static bool normal_contains(struct guard *g, json_t *out, const json_t *s, const char *name,
                            json_t *value)
{
    static const char *const counts[] = {"minContains", "maxContains"};
    double count[] = {1, INFINITY};
    json_t *all;

    if (!json_is_object(value) && !json_is_boolean(value))
        return guard_fail(g, name, "must be a schema") != NULL;
    for (size_t i = 0; i < 2; i++) {
        const json_t *given = json_object_get(s, counts[i]);

        if (given != NULL)
            count[i] = json_number_value(given);
        if (given != NULL &&
            (!json_is_number(given) || count[i] < 0 || floor(count[i]) != count[i]))
            return guard_fail(g, counts[i], "must be a whole number of at least 0") != NULL;
        if (count[i] > GUARD_MAX_CONTAINS && count[i] < INFINITY)
            return guard_leave_out(g, counts[i], "is larger than the compiler's limit");
    }
    if (count[0] == 0 && count[1] == INFINITY)
        return true;
    all = json_pack("{s:O,s:i,s:i}", "schema", value, "least", (int)count[0], "most",
                    count[1] < INFINITY ? (int)count[1] : -1);
    return (all != NULL && json_object_set_new(out, name, all) == 0) || guard_no_memory(g) != NULL;
}

static bool normal_ignored(struct guard *g, json_t *out, const json_t *s, const char *name,
                           json_t *value)
{
    return true;
}

static bool has_reference(const json_t *at, unsigned depth)
{
    json_t *from = (json_t *)at; /* jansson's iterators do not change it */
    bool has = json_object_get(at, "$ref") != NULL || depth > GUARD_MAX_DEPTH;

    for (size_t i = 0; !has && i < json_array_size(at); i++)
        has = has_reference(json_array_get(at, i), depth + 1);
    for (void *it = json_object_iter(from); !has && it != NULL;
         it = json_object_iter_next(from, it))
        has = has_reference(json_object_iter_value(it), depth + 1);
    return has;
}

/* References inside would be against another base. */
static bool normal_id(struct guard *g, json_t *out, const json_t *s, const char *name,
                      json_t *value)
{
    if (s == g->root || !json_is_string(value) || !has_reference(s, 0))
        return true;
    return guard_leave_out(g, name, "cannot be enforced where references are inside");
}

/* Draft 4 has a truth value beside the bound. */
static bool normal_exclusive(struct guard *g, json_t *out, const json_t *s, const char *name,
                             const char *plain, json_t *value)
{
    json_t *bound = json_object_get(s, plain);

    if (!json_is_boolean(value))
        return normal_same(g, out, s, name, value);
    return json_is_false(value) || bound == NULL || normal_same(g, out, s, name, bound);
}

static bool normal_exclusive_minimum(struct guard *g, json_t *out, const json_t *s,
                                     const char *name, json_t *value)
{
    return normal_exclusive(g, out, s, name, "minimum", value);
}

static bool normal_exclusive_maximum(struct guard *g, json_t *out, const json_t *s,
                                     const char *name, json_t *value)
{
    return normal_exclusive(g, out, s, name, "maximum", value);
}

static bool normal_const(struct guard *g, json_t *out, const json_t *s, const char *name,
                         json_t *value)
{
    return json_object_get(s, "enum") != NULL || normal_list(g, out, s, "enum", value);
}

static bool normal_enum(struct guard *g, json_t *out, const json_t *s, const char *name,
                        json_t *value)
{
    const json_t *one = json_object_get(s, "const");

    if (!json_is_array(value))
        return guard_fail(g, name, "must be a list") != NULL;
    if (!guard_count(g, name, json_array_size(value)))
        return false;
    if (one == NULL)
        return normal_same(g, out, s, name, value);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (json_equal(json_array_get(value, i), one))
            return normal_list(g, out, s, name, (json_t *)one);
    return json_object_set_new(out, name, json_array()) == 0 || guard_no_memory(g) != NULL;
}

/* What each keyword becomes. What is not here says nothing about instances,
 * by the specification. Sorted by strcmp. */
static const struct keyword {
    const char *name;
    bool (*take)(struct guard *g, json_t *out, const json_t *s, const char *name, json_t *value);
} keywords[] = {
    {"$dynamicRef", normal_refused},
    {"$id", normal_id},
    {"$recursiveRef", normal_refused},
    {"$ref", normal_same},
    {"additionalItems", normal_same},
    {"additionalProperties", normal_same},
    {"allOf", normal_same},
    {"anyOf", normal_any_of},
    {"const", normal_const},
    {"contains", normal_contains},
    {"dependencies", normal_dependent},
    {"dependentRequired", normal_dependent},
    {"dependentSchemas", normal_dependent},
    {"disallow", normal_refused},
    {"divisibleBy", normal_refused},
    {"else", normal_ignored}, /* with if */
    {"enum", normal_enum},
    {"exclusiveMaximum", normal_exclusive_maximum},
    {"exclusiveMinimum", normal_exclusive_minimum},
    {"extends", normal_refused},
    {"format", normal_list},
    {"if", normal_if},
    {"items", normal_same},
    {"maxItems", normal_same},
    {"maxLength", normal_same},
    {"maxProperties", normal_same},
    {"maximum", normal_same},
    {"minItems", normal_same},
    {"minLength", normal_same},
    {"minProperties", normal_same},
    {"minimum", normal_same},
    {"multipleOf", normal_list},
    {"not", normal_not},
    {"oneOf", normal_one_of},
    {"pattern", normal_list},
    {"patternProperties", normal_same},
    {"prefixItems", normal_same},
    {"properties", normal_same},
    {"propertyNames", normal_names},
    {"required", normal_same},
    {"then", normal_ignored}, /* with if */
    {"type", normal_same},
    {"unevaluatedItems", normal_same},
    {"unevaluatedProperties", normal_same},
    {"uniqueItems", normal_same},
};

static int keyword_by_name(const void *key, const void *row)
{
    return strcmp(key, ((const struct keyword *)row)->name);
}

/* --- a normal schema --- */

json_t *guard_normal(struct guard *g, const json_t *schema)
{
    json_t *out = json_object(),
           *from = (json_t *)schema; /* jansson's iterators do not change it */
    bool is_taken = out != NULL || guard_no_memory(g) != NULL;

    for (void *at = json_object_iter(from); is_taken && at != NULL;
         at = json_object_iter_next(from, at)) {
        const char *name = json_object_iter_key(at);
        const struct keyword *k = bsearch(name, keywords, sizeof(keywords) / sizeof(keywords[0]),
                                          sizeof(keywords[0]), keyword_by_name);

        is_taken = k == NULL || k->take(g, out, schema, name, json_object_iter_value(at));
    }
    if (is_taken)
        return out;
    json_decref(out);
    return NULL;
}

/* --- what stands together in one schema --- */

static bool guard_merge(struct guard *g, json_t *s, const json_t *part)
{
    const json_t *both[] = {s, part};

    for (size_t i = 0; i < 2; i++)
        g->n_merged += json_object_size(both[i]) +
                       json_object_size(json_object_get(both[i], "properties")) +
                       json_array_size(json_object_get(both[i], "required"));
    if (g->n_merged > MAX_MERGED)
        return guard_fail(g, "schemas", "that are combined with others are too many") != NULL;
    return schema_merge(s, part);
}

bool guard_join(struct guard *g, json_t *s, const json_t *schema, unsigned hops)
{
    json_t *normal, *part;
    bool is_merged;

    if (json_is_true(schema))
        return true;
    if (!guard_count(g, "schemas", 1))
        return false;
    if (json_is_false(schema)) { /* of no type: no value matches */
        return json_object_set_new(s, "enum", json_array()) == 0 || guard_no_memory(g) != NULL;
    }
    if (!json_is_object(schema) || hops > MAX_REF_HOPS)
        return false;
    normal = guard_normal(g, schema);
    part = normal != NULL ? guard_fold(g, normal, hops) : NULL;
    is_merged = part != NULL && guard_merge(g, s, part);
    json_decref(normal);
    json_decref(part);
    return is_merged;
}

/* Joins what stands in a list under a keyword. */
static bool join_at(struct guard *g, json_t *s, const json_t *schema, const char *keyword, size_t i,
                    unsigned hops)
{
    size_t outer = guard_path_push(g, keyword);
    char number[24];
    bool is_joined;

    (void)snprintf(number, sizeof(number), "%zu", i);
    (void)guard_path_push(g, number);
    is_joined = guard_join(g, s, schema, hops);
    guard_path_pop(g, outer);
    return is_joined;
}

json_t *guard_fold(struct guard *g, const json_t *normal, unsigned hops)
{
    json_t *s = json_copy((json_t *)normal); /* jansson does not change it */
    json_t *ref = json_incref(json_object_get(normal, "$ref")),
           *all = json_incref(json_object_get(normal, "allOf"));
    const char *pointer = json_string_value(ref);
    bool is_folded = s != NULL || guard_no_memory(g) != NULL;

    if (is_folded) {
        (void)json_object_del(s, "$ref"); /* the members may be missing */
        (void)json_object_del(s, "allOf");
    }
    if (is_folded && ref != NULL) {
        const json_t *target = pointer != NULL ? guard_resolve(g, pointer) : NULL;

        is_folded = target != NULL
                        ? guard_join(g, s, target, hops + 1)
                        : guard_fail(g, "$ref", "does not name a schema in this document") != NULL;
    }
    if (is_folded && all != NULL && json_array_size(all) == 0)
        is_folded = guard_fail(g, "allOf", "must be a list of schemas") != NULL;
    for (size_t i = 0; is_folded && i < json_array_size(all); i++)
        is_folded = join_at(g, s, json_array_get(all, i), "allOf", i, hops + 1);
    json_decref(ref);
    json_decref(all);
    if (is_folded)
        return s;
    json_decref(s);
    return NULL;
}
