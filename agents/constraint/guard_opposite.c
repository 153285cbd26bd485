/* Schemas of what another schema does not match: each keyword has its own, and what fails one of
 * them fails all. A keyword without an opposite adds nothing, so that fewer values are left. */
#include "agents/constraint/guard_parts.h"

#include <string.h>

#include "agents/constraint/json_value.h"

enum {
    MAX_OPPOSITES = 32, /* alternatives of an opposite */
    MAX_DEPTH = 8,
    MAX_NAMES = 4, /* members of which one is another than a schema allows */
    MAX_APART = 4, /* numbers with ranges between them */
    MOST_BOUND = 1 << 30,
    WORK = 64, /* of each schema, in looks at a part of an automaton's state */
};

struct opposite {
    struct guard *g;
    const struct guard_beside *beside;
    bool is_partial; /* values are missing that the schema does not match */
};

static void opposite_add(struct opposite *o, json_t *out, const json_t *schema, unsigned depth);

json_t *guard_any_of(json_t *list)
{
    json_t *one = json_array_size(list) == 0   ? json_false()
                  : json_array_size(list) == 1 ? json_incref(json_array_get(list, 0))
                                               : json_pack("{s:O}", "anyOf", list);

    json_decref(list);
    return one;
}

/* Takes one; NULL where there was no memory for it. */
static void opposite_put(struct opposite *o, json_t *out, json_t *one)
{
    if (json_array_size(out) >= MAX_OPPOSITES || json_array_append(out, one) != 0)
        o->is_partial = true;
    json_decref(one);
}

/* The opposites of a schema inside of another, as one; NULL: there are none. */
static json_t *opposite_inside(struct opposite *o, const json_t *schema, unsigned depth)
{
    json_t *list = json_array();

    opposite_add(o, list, schema, depth + 1);
    if (json_array_size(list) > 0)
        return guard_any_of(list);
    json_decref(list);
    return NULL;
}

static void opposite_add_type(struct opposite *o, json_t *out, const json_t *type, unsigned depth)
{
    unsigned types = guard_types(type);
    json_t *others = json_array();

    if ((types & TYPE_INTEGER) != 0) { /* numbers that are no integers have no form */
        o->is_partial = o->is_partial || depth > 0 || o->beside->has_fractions;
        types |= TYPE_NUMBER;
    }
    for (unsigned one = 1; types != 0 && one <= TYPE_OBJECT; one <<= 1)
        if ((types & one) == 0 && one != TYPE_INTEGER)
            (void)json_array_append_new(others, guard_type_name(one)); /* then there is less */
    if (json_array_size(others) > 0)
        opposite_put(o, out, json_pack("{s:O}", "type", others));
    json_decref(others);
}

/* --- values --- */

/* Numbers that are none of these. */
static void opposite_add_numbers(struct opposite *o, json_t *out, const json_t *values)
{
    const json_t *apart[MAX_APART];
    size_t n = 0;

    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *value = json_array_get(values, i);
        size_t at = n;

        if (!json_is_number(value))
            continue;
        if (n == MAX_APART) {
            o->is_partial = true;
            return;
        }
        for (; at > 0 && json_number_is_less(value, apart[at - 1]); at--)
            apart[at] = apart[at - 1];
        apart[at] = value;
        n++;
    }
    if (n == 0) {
        opposite_put(o, out, json_pack("{s:s}", "type", "number"));
        return;
    }
    opposite_put(o, out, json_pack("{s:s,s:O}", "type", "number", "exclusiveMaximum", apart[0]));
    for (size_t i = 1; i < n; i++)
        opposite_put(o, out,
                     json_pack("{s:s,s:O,s:O}", "type", "number", "exclusiveMinimum", apart[i - 1],
                               "exclusiveMaximum", apart[i]));
    opposite_put(o, out,
                 json_pack("{s:s,s:O}", "type", "number", "exclusiveMinimum", apart[n - 1]));
}

static bool has_value(const json_t *values, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(values); i++)
        if (json_equal(json_array_get(values, i), value))
            return true;
    return false;
}

/* null, true and false, but for these. */
static void opposite_add_constants(struct opposite *o, json_t *out, const json_t *values)
{
    json_t *const all[] = {json_null(), json_true(), json_false()};
    json_t *left = json_array();

    for (size_t i = 0; i < 3; i++)
        if (!has_value(values, all[i]) && json_array_append(left, all[i]) != 0)
            o->is_partial = true;
    if (json_array_size(left) > 0)
        opposite_put(o, out, json_pack("{s:O}", "enum", left));
    json_decref(left);
}

static void opposite_add_values(struct opposite *o, json_t *out, const json_t *values)
{
    json_t *texts = json_array();
    unsigned types = 0;

    for (size_t i = 0; i < json_array_size(values); i++) {
        json_t *value = json_array_get(values, i);

        types |= guard_type_of_value(value);
        if (json_is_string(value) && json_array_append(texts, value) != 0)
            types |= TYPE_ALL;
    }
    if ((types & ~(unsigned)(TYPE_NULL | TYPE_STRING)) == 0) {
        opposite_put(o, out, json_pack("{s:{s:O}}", "not", "enum", values));
    } else {
        if (json_array_size(texts) == 0)
            opposite_put(o, out, json_pack("{s:s}", "type", "string"));
        else
            opposite_put(o, out,
                         json_pack("{s:s,s:{s:O}}", "type", "string", "not", "enum", texts));
        opposite_add_constants(o, out, values);
        opposite_add_numbers(o, out, values);
        for (unsigned type = TYPE_ARRAY; type <= TYPE_OBJECT; type <<= 1)
            if ((types & type) == 0)
                opposite_put(o, out, json_pack("{s:o}", "type", guard_type_name(type)));
            else
                o->is_partial = true;
    }
    json_decref(texts);
}

static void opposite_add_const(struct opposite *o, json_t *out, const json_t *value)
{
    json_t *values = json_pack("[O]", value);

    if (values != NULL)
        opposite_add_values(o, out, values);
    o->is_partial = o->is_partial || values == NULL;
    json_decref(values);
}

/* --- strings and numbers --- */

/* Bounds, each with the bound of what is beyond it. */
static const struct bound {
    const char *name, *type, *opposite;
    int step; /* from the one bound to the other */
} bounds[] = {
    {"exclusiveMaximum", "number", "minimum", 0},
    {"exclusiveMinimum", "number", "maximum", 0},
    {"maxItems", "array", "minItems", 1},
    {"maxLength", "string", "minLength", 1},
    {"maxProperties", "object", "minProperties", 1},
    {"maximum", "number", "exclusiveMinimum", 0},
    {"minItems", "array", "maxItems", -1},
    {"minLength", "string", "maxLength", -1},
    {"minProperties", "object", "maxProperties", -1},
    {"minimum", "number", "exclusiveMaximum", 0},
};

static const struct bound *bound_named(const char *name)
{
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        if (strcmp(name, bounds[i].name) == 0)
            return &bounds[i];
    return NULL;
}

static void opposite_add_bound(struct opposite *o, json_t *out, const struct bound *b,
                               json_t *value)
{
    const double beyond = json_number_value(value) + b->step;

    if (!json_is_number(value)) /* draft 4 has true and false here */
        o->is_partial = o->is_partial || !json_is_boolean(value);
    else if (b->step == 0)
        opposite_put(o, out, json_pack("{s:s,s:O}", "type", b->type, b->opposite, value));
    else if (beyond >= 0 && beyond <= MOST_BOUND)
        opposite_put(o, out,
                     json_pack("{s:s,s:I}", "type", b->type, b->opposite, (json_int_t)beyond));
    else /* nothing is beyond the least of 0, nor in a reply beyond a most so large */
        o->is_partial = o->is_partial || (beyond < 0) == (b->step > 0);
}

static void opposite_add_pattern(struct opposite *o, json_t *out, json_t *pattern)
{
    opposite_put(o, out,
                 json_pack("{s:s,s:{s:s,s:O}}", "type", "string", "not", "type", "string",
                           "pattern", pattern));
}

/* --- arrays and objects --- */

static void opposite_add_items(struct opposite *o, json_t *out, const json_t *schema,
                               const json_t *items, unsigned depth)
{
    json_t *one;

    if (json_is_array(items) || json_object_get(schema, "prefixItems") != NULL) {
        o->is_partial = true;
        return;
    }
    one = opposite_inside(o, items, depth);
    if (one != NULL)
        opposite_put(o, out, json_pack("{s:s,s:o}", "type", "array", "contains", one));
}

static void opposite_add_required(struct opposite *o, json_t *out, const json_t *names)
{
    o->is_partial = o->is_partial || !json_is_array(names);
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));

        opposite_put(o, out,
                     name == NULL
                         ? NULL
                         : json_pack("{s:s,s:{s:b}}", "type", "object", "properties", name, 0));
    }
}

/* Takes what a member is instead of what it should be; NULL: it cannot be anything else. */
static void opposite_put_member(struct opposite *o, json_t *out, const char *name, json_t *one)
{
    if (one != NULL)
        opposite_put(o, out,
                     json_pack("{s:s,s:[s],s:{s:o}}", "type", "object", "required", name,
                               "properties", name, one));
}

static void opposite_add_properties(struct opposite *o, json_t *out, json_t *members,
                                    unsigned depth)
{
    o->is_partial = o->is_partial || !json_is_object(members);
    for (void *at = json_object_iter(members); at != NULL; at = json_object_iter_next(members, at))
        opposite_put_member(o, out, json_object_iter_key(at),
                            opposite_inside(o, json_object_iter_value(at), depth));
}

/* A member that has no name in the schema. */
static void opposite_add_rest(struct opposite *o, json_t *out, const json_t *schema,
                              const json_t *rest, unsigned depth)
{
    const json_t *members = json_object_get(schema, "properties");
    size_t n = 0;

    if (json_is_true(rest) || (json_is_object(rest) && json_object_size(rest) == 0))
        return;
    if (json_object_get(schema, "patternProperties") != NULL || depth > 0) {
        o->is_partial = true; /* the names are those of the outer schema */
        return;
    }
    for (void *at = json_object_iter(o->beside->names); at != NULL;
         at = json_object_iter_next(o->beside->names, at)) {
        if (json_object_get(members, json_object_iter_key(at)) != NULL)
            continue;
        if (n++ == MAX_NAMES)
            break;
        opposite_put_member(o, out, json_object_iter_key(at), opposite_inside(o, rest, depth));
    }
    o->is_partial = o->is_partial || n > MAX_NAMES || !o->beside->are_all;
}

/* --- schemas of schemas --- */

static void opposite_add_all(struct opposite *o, json_t *out, const json_t *list, unsigned depth)
{
    o->is_partial = o->is_partial || !json_is_array(list);
    for (size_t i = 0; i < json_array_size(list); i++)
        opposite_add(o, out, json_array_get(list, i), depth + 1);
}

/* Neither this nor that: each opposite of the one with each of the other would be many. */
static void opposite_add_any(struct opposite *o, json_t *out, const json_t *list, unsigned depth)
{
    json_t *all = json_array();
    bool is_made = json_array_size(list) > 0;

    o->is_partial = o->is_partial || !is_made;
    for (size_t i = 0; is_made && i < json_array_size(list); i++) {
        json_t *one = opposite_inside(o, json_array_get(list, i), depth);

        is_made = one != NULL && json_array_append(all, one) == 0;
        json_decref(one);
    }
    if (is_made)
        opposite_put(o, out, json_pack("{s:O}", "allOf", all));
    json_decref(all);
}

static void opposite_add_keyword(struct opposite *o, json_t *out, const json_t *schema,
                                 const char *name, json_t *value, unsigned depth)
{
    const struct bound *bound = bound_named(name);

    if (strcmp(name, "type") == 0)
        opposite_add_type(o, out, value, depth);
    else if (strcmp(name, "const") == 0)
        opposite_add_const(o, out, value);
    else if (strcmp(name, "enum") == 0)
        opposite_add_values(o, out, value);
    else if (strcmp(name, "pattern") == 0)
        opposite_add_pattern(o, out, value);
    else if (strcmp(name, "items") == 0)
        opposite_add_items(o, out, schema, value, depth);
    else if (strcmp(name, "required") == 0)
        opposite_add_required(o, out, value);
    else if (strcmp(name, "properties") == 0)
        opposite_add_properties(o, out, value, depth);
    else if (strcmp(name, "additionalProperties") == 0)
        opposite_add_rest(o, out, schema, value, depth);
    else if (strcmp(name, "allOf") == 0)
        opposite_add_all(o, out, value, depth);
    else if (strcmp(name, "anyOf") == 0 || strcmp(name, "oneOf") == 0)
        opposite_add_any(o, out, value, depth);
    else if (strcmp(name, "not") == 0)
        opposite_put(o, out, json_incref(value));
    else if (strcmp(name, "$ref") == 0 && json_is_string(value))
        opposite_add(o, out, guard_resolve(o->g, json_string_value(value)), depth + 1);
    else if (bound != NULL)
        opposite_add_bound(o, out, bound, value);
    else
        o->is_partial = true;
    /* two of oneOf may match, and then it does not */
    o->is_partial = o->is_partial || strcmp(name, "oneOf") == 0;
}

/* Adds the schema's opposites to out, a list. */
static void opposite_add(struct opposite *o, json_t *out, const json_t *schema, unsigned depth)
{
    json_t *from = (json_t *)schema; /* jansson's iterators do not change it */

    if (json_is_boolean(schema)) {
        if (json_is_false(schema))
            opposite_put(o, out, json_object());
        return;
    }
    if (!json_is_object(schema) || depth == MAX_DEPTH || o->g->work < WORK) {
        o->is_partial = true;
        return;
    }
    o->g->work -= WORK;
    for (void *at = json_object_iter(from); at != NULL; at = json_object_iter_next(from, at))
        if (guard_is_keyword(schema, json_object_iter_key(at)))
            opposite_add_keyword(o, out, schema, json_object_iter_key(at),
                                 json_object_iter_value(at), depth);
}

json_t *guard_opposite(struct guard *g, const json_t *schema, const struct guard_beside *beside,
                       bool *ret_is_partial)
{
    struct opposite o = {.g = g, .beside = beside};
    json_t *out = json_array();

    opposite_add(&o, out, schema, 0);
    *ret_is_partial = o.is_partial;
    if (json_array_size(out) > 0 || !o.is_partial)
        return out;
    json_decref(out);
    return NULL;
}
