/* Makes schemas normal, and joins those that hold together. What says "this or that" in other words
 * (oneOf, if, dependentRequired, not) is written as anyOf, where its opposite has a form. */
#include "agents/constraint/guard.h"
#include "agents/constraint/guard_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/constraint/json_value.h"
#include "agents/constraint/schema_merge.h"

enum {
    MAX_REF_HOPS = 16,
    MAX_NAMES_DEPTH = 4,
    MAX_WAYS = 64,       /* in which an alternative of oneOf may be none of the others */
    OPPOSITE_WORK = 512, /* what an opposite costs, in looks at a part of an automaton's state */
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

/* The names of the members that the schema has, or those that it joins, as far as work is due. */
static void collect_names(struct guard *g, json_t *names, const json_t *schema, unsigned depth)
{
    const json_t *all;
    size_t n;

    schema = guard_follow(g, schema);
    all = json_object_get(schema, "allOf");
    n = json_object_size(json_object_get(schema, "properties")) + 1;
    if (g->work < n)
        return;
    g->work -= n;
    (void)json_object_update(names, json_object_get(schema, "properties")); /* or there are fewer */
    for (size_t i = 0; depth < MAX_NAMES_DEPTH && i < json_array_size(all); i++)
        collect_names(g, names, json_array_get(all, i), depth + 1);
}

static bool has_fractions(const json_t *schema)
{
    json_t *values = guard_values_of(schema);
    bool has = values == NULL && (guard_types(json_object_get(schema, "type")) & TYPE_NUMBER) != 0;

    for (size_t i = 0; !has && i < json_array_size(values); i++)
        has = guard_type_of_value(json_array_get(values, i)) == TYPE_NUMBER;
    json_decref(values);
    return has;
}

/* What is beside an opposite: s, and a schema in it, if there is one. */
static struct guard_beside beside(struct guard *g, const json_t *s, const json_t *schema)
{
    const json_t *end = guard_follow(g, schema);
    struct guard_beside out = {json_object(),
                               json_is_false(json_object_get(end, "additionalProperties")) &&
                                   json_object_get(end, "patternProperties") == NULL,
                               has_fractions(end != NULL ? end : s)};

    collect_names(g, out.names, s, 0);
    collect_names(g, out.names, end, 0);
    return out;
}

/* Whether what stands in the list, each with the only opposite that it has, is this. */
static bool has_same(const json_t *list, const json_t *opposite)
{
    for (size_t i = 1; i < json_array_size(list); i++) {
        const json_t *any = json_object_get(json_array_get(list, i), "anyOf");

        if (json_array_size(any) == 1 && json_equal(json_array_get(any, 0), opposite))
            return true;
    }
    return false;
}

/* Of the opposites those that the schema does not exclude, at most so many. */
static json_t *opposites_beside(struct guard *g, const json_t *opposites, const json_t *schema,
                                size_t most)
{
    json_t *left = json_array();

    for (size_t i = 0; i < json_array_size(opposites) && json_array_size(left) < most; i++) {
        json_t *one = json_array_get(opposites, i);

        if (!guard_are_disjoint(g, schema, one, 0))
            (void)json_array_append(left, one); /* or there are fewer */
    }
    return left;
}

/* Copies of the schemas, of which each that cannot be joined may be left out. */
static json_t *optional_ones(const json_t *list)
{
    json_t *out = json_array();

    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *one = json_copy(json_array_get(list, i));

        if (json_object_set_new(one, GUARD_OPTIONAL, json_true()) == 0)
            (void)json_array_append(out, one); /* or there are fewer */
        json_decref(one);
    }
    return out;
}

/* Nothing but a type stands beside the keyword. */
static bool stands_alone(const json_t *schema, const char *keyword)
{
    json_t *from = (json_t *)schema; /* jansson's iterators do not change it */
    size_t n = 0;

    for (void *at = json_object_iter(from); at != NULL; at = json_object_iter_next(from, at)) {
        const char *name = json_object_iter_key(at);

        n += guard_is_keyword(schema, name) && strcmp(name, keyword) != 0 &&
             strcmp(name, "type") != 0;
    }
    return n == 0;
}

/* Adds to all, the schemas that an alternative is joined with, that another one does not match;
 * each time it multiplies the ways to satisfy them all. False: that has no form. Some of its values
 * may be lost, but not all that it has. */
static bool exclude_other(struct guard *g, json_t *all, const json_t *other, const json_t *s,
                          size_t *n_ways)
{
    const struct guard_beside by = beside(g, s, json_array_get(all, 0));
    const json_t *end = stands_alone(other, "$ref") ? guard_follow(g, other) : other;
    bool is_done = false, is_partial;
    json_t *given = guard_opposite(g, end, &by, &is_partial), *left,
           *opposites = given != NULL ? optional_ones(given) : NULL;

    json_decref(given);
    json_decref(by.names);
    for (size_t i = 0; !is_done && i < json_array_size(opposites); i++)
        is_done = has_same(all, json_array_get(opposites, i));
    if (opposites != NULL && !is_done) {
        left = opposites_beside(g, opposites, json_array_get(all, 0), MAX_WAYS / *n_ways);
        is_done = json_array_size(left) > 0 || (!is_partial && left != NULL);
        *n_ways *= json_array_size(left) > 0 ? json_array_size(left) : 1;
        left = json_array_size(left) > 0 ? json_pack("{s:o}", "anyOf", left) : guard_any_of(left);
        is_done = json_array_append_new(all, left) == 0 && is_done;
    }
    json_decref(opposites);
    return is_done;
}

/* The alternative with the opposites of those of the others that it does not exclude; NULL: they
 * have none. alone: as for guard_are_disjoint; opposites may name members, too. */
static json_t *alone_of(struct guard *g, const json_t *list, size_t i, const json_t *s,
                        unsigned alone)
{
    json_t *one = json_array_get(list, i), *all = json_pack("[O]", one), *out = NULL;
    size_t n_ways = 1;
    bool is_made = all != NULL;

    for (size_t k = 0; is_made && k < json_array_size(list); k++) {
        const json_t *other = json_array_get(list, k);

        if (k == i || json_is_false(other) || guard_are_disjoint(g, one, other, alone))
            continue;
        if (g->work < OPPOSITE_WORK) {
            (void)guard_fail(g, "oneOf", "has too many alternatives that may match the same value");
            is_made = false;
        } else {
            g->work -= OPPOSITE_WORK;
            is_made = exclude_other(g, all, other, s, &n_ways);
        }
    }
    if (is_made && alone != 0 && json_array_size(all) > 1)
        out = alone_of(g, list, i, s, 0);
    else if (is_made)
        out = json_array_size(all) > 1 ? json_pack("{s:O}", "allOf", all) : json_incref(one);
    json_decref(all);
    return out;
}

static bool normal_one_of(struct guard *g, json_t *out, const json_t *s, const char *name,
                          json_t *list)
{
    const unsigned alone =
        !g->is_joined && stands_alone(s, name) ? guard_types(json_object_get(s, "type")) : 0;
    json_t *alternatives;

    if (!json_is_array(list) || json_array_size(list) == 0)
        return guard_fail(g, name, "must be a list of schemas") != NULL;
    if (g->is_trial) /* which leaves more */
        return add_alternatives(g, out, json_incref(list));
    if (!guard_count(g, name, json_array_size(list) * json_array_size(list) / 64))
        return false;
    alternatives = json_array();
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *one = alone_of(g, list, i, s, alone);

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

/* What a schema beside s does not match. */
static json_t *opposite_here(struct guard *g, const json_t *s, const json_t *schema)
{
    const struct guard_beside by = beside(g, s, NULL);
    bool is_partial;
    json_t *opposite = guard_opposite(g, schema, &by, &is_partial);

    json_decref(by.names);
    return opposite;
}

/* The pattern of a schema that says no more than that, of strings; NULL: it is another. */
static json_t *only_pattern(const json_t *schema)
{
    const json_t *type = json_object_get(schema, "type");

    return json_object_size(schema) == 2 && json_is_string(type) && guard_types(type) == TYPE_STRING
               ? json_object_get(schema, "pattern")
               : NULL;
}

static bool add_to_list(struct guard *g, json_t *out, const char *name, json_t *value)
{
    json_t *list = json_object_get(out, name);
    const bool is_added = list != NULL
                              ? json_array_append(list, value) == 0
                              : json_object_set_new(out, name, json_pack("[O]", value)) == 0;

    return is_added || guard_no_memory(g) != NULL;
}

static bool normal_not(struct guard *g, json_t *out, const json_t *s, const char *name,
                       json_t *schema)
{
    json_t *values = only_values(schema), *pattern = only_pattern(schema),
           *known = json_object_get(out, "not"), *opposite;

    if (pattern != NULL)
        return add_to_list(g, out, "-notPattern", pattern);
    if (values != NULL) {
        const bool is_set = known != NULL ? json_array_extend(known, values) == 0
                                          : json_object_set_new(out, "not", json_copy(values)) == 0;

        json_decref(values);
        return is_set || guard_no_memory(g) != NULL;
    }
    if (g->is_trial) /* which leaves more */
        return true;
    opposite = opposite_here(g, s, schema);
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
    opposite = opposite_here(g, s, schema);
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
        n_said += guard_is_keyword(value, json_object_iter_key(at));
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

/* Where all references have one base there is one schema that it may mean. */
static bool normal_dynamic(struct guard *g, json_t *out, const json_t *s, const char *name,
                           json_t *value)
{
    if (g->has_resources || json_object_get(s, "$ref") != NULL ||
        json_object_get(out, "$ref") != NULL)
        return guard_leave_out(g, name, "cannot be enforced beside other references or an $id");
    return normal_same(g, out, s, "$ref", value);
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
            return guard_leave_out(g, counts[i], "is larger than the compiler's limit, 64");
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

/* References inside would be against another base, unless it is a fragment, as drafts before 2019
 * have anchors. */
static bool normal_id(struct guard *g, json_t *out, const json_t *s, const char *name,
                      json_t *value)
{
    if (s == g->root || !json_is_string(value) || json_string_value(value)[0] == '#' ||
        !has_reference(s, 0))
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

/* Whether a number in the value may be an integer that was rounded: see base/json_widen.h. */
static bool has_rounded(json_t *value)
{
    bool has = json_is_real(value) && fabs(json_real_value(value)) >= 0x1p63;

    for (size_t i = 0; !has && i < json_array_size(value); i++)
        has = has_rounded(json_array_get(value, i));
    for (void *at = json_object_iter(value); !has && at != NULL;
         at = json_object_iter_next(value, at))
        has = has_rounded(json_object_iter_value(at));
    return has;
}

static bool normal_const(struct guard *g, json_t *out, const json_t *s, const char *name,
                         json_t *value)
{
    if (has_rounded(value))
        return guard_leave_out(g, name, "has a number beyond 64 bits, which may be rounded");
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
    if (has_rounded(value))
        return guard_leave_out(g, name, "has a number beyond 64 bits, which may be rounded");
    if (one == NULL)
        return normal_same(g, out, s, name, value);
    for (size_t i = 0; i < json_array_size(value); i++)
        if (json_value_is_same(json_array_get(value, i), one))
            return normal_list(g, out, s, name, (json_t *)one);
    return json_object_set_new(out, name, json_array()) == 0 || guard_no_memory(g) != NULL;
}

/* What each keyword becomes. What is not here says nothing about instances,
 * by the specification. Sorted by strcmp. */
static const struct keyword {
    const char *name;
    bool (*take)(struct guard *g, json_t *out, const json_t *s, const char *name, json_t *value);
    bool is_narrowed; /* what is enforced may allow fewer values than the keyword */
} keywords[] = {
    {"$dynamicRef", normal_dynamic, false},
    {"$id", normal_id, false},
    {"$recursiveRef", normal_dynamic, false},
    {"$ref", normal_same, false},
    {"additionalItems", normal_same, false},
    {"additionalProperties", normal_same, false},
    {"allOf", normal_same, false},
    {"anyOf", normal_any_of, false},
    {"const", normal_const, false},
    {"contains", normal_contains, true},
    {"dependencies", normal_dependent, true},
    {"dependentRequired", normal_dependent, true},
    {"dependentSchemas", normal_dependent, true},
    {"disallow", normal_refused, false},
    {"divisibleBy", normal_refused, false},
    {"else", normal_ignored, false}, /* with if */
    {"enum", normal_enum, false},
    {"exclusiveMaximum", normal_exclusive_maximum, false},
    {"exclusiveMinimum", normal_exclusive_minimum, false},
    {"extends", normal_refused, false},
    {"format", normal_list, true},
    {"if", normal_if, true},
    {"items", normal_same, false},
    {"maxItems", normal_same, false},
    {"maxLength", normal_same, false},
    {"maxProperties", normal_same, true},
    {"maximum", normal_same, false},
    {"minItems", normal_same, false},
    {"minLength", normal_same, false},
    {"minProperties", normal_same, true},
    {"minimum", normal_same, false},
    {"multipleOf", normal_list, true},
    {"not", normal_not, false},
    {"oneOf", normal_one_of, false},
    {"pattern", normal_list, false},
    {"patternProperties", normal_same, false},
    {"prefixItems", normal_same, false},
    {"properties", normal_same, false},
    {"propertyNames", normal_names, false},
    {"required", normal_same, false},
    {"then", normal_ignored, false}, /* with if */
    {"type", normal_same, false},
    {"unevaluatedItems", normal_same, true},
    {"unevaluatedProperties", normal_same, true},
    {"uniqueItems", normal_same, true},
};

static int keyword_by_name(const void *key, const void *row)
{
    return strcmp(key, ((const struct keyword *)row)->name);
}

static const struct keyword *keyword_named(const char *name)
{
    return bsearch(name, keywords, sizeof(keywords) / sizeof(keywords[0]), sizeof(keywords[0]),
                   keyword_by_name);
}

bool guard_is_keyword(const json_t *schema, const char *name)
{
    const bool has_if = json_object_get(schema, "if") != NULL,
               has_more = json_object_get(schema, "then") != NULL ||
                          json_object_get(schema, "else") != NULL;

    if (strcmp(name, "if") == 0 || strcmp(name, "then") == 0 || strcmp(name, "else") == 0)
        return has_if && has_more;
    return strcmp(name, "$id") != 0 && keyword_named(name) != NULL;
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
        const struct keyword *k = keyword_named(name);

        is_taken = k == NULL || (g->is_trial && k->is_narrowed) ||
                   k->take(g, out, schema, name, json_object_iter_value(at));
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
    if (g->n_merged > GUARD_MAX_MERGED ||
        !guard_compares(g, json_array_size(json_object_get(s, "enum")),
                        json_array_size(json_object_get(part, "enum"))))
        return guard_fail(g, "schemas", "that are combined with others are too many") != NULL;
    return schema_merge(s, part);
}

bool guard_join(struct guard *g, json_t *s, const json_t *schema, unsigned hops)
{
    json_t *normal, *part;
    bool is_merged, is_joined;

    if (json_is_true(schema))
        return true;
    if (!guard_count(g, "schemas", 1))
        return false;
    if (json_is_false(schema)) { /* of no type: no value matches */
        return json_object_set_new(s, "enum", json_array()) == 0 || guard_no_memory(g) != NULL;
    }
    if (!json_is_object(schema) || hops > MAX_REF_HOPS)
        return false;
    is_joined = g->is_joined;
    g->is_joined = true;
    normal = guard_normal(g, schema);
    g->is_joined = is_joined;
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
