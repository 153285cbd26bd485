/* Schemas of what another schema does not match. */
#include "agents/constraint/guard_parts.h"

#include <string.h>

enum {
    MAX_OPPOSITES = 32, /* alternatives of an opposite */
    MAX_OPPOSITE_DEPTH = 8,
};

/* Adds to out, a list, schemas of which each holds only where schema does not, and one holds there
 * but for rare cases. False: they have no form, or there was no memory. */
static bool add_opposite(json_t *out, const json_t *schema, unsigned depth);

json_t *guard_any_of(json_t *list)
{
    if (json_array_size(list) > 0)
        return json_pack("{s:o}", "anyOf", list);
    json_decref(list);
    return json_false();
}

static bool add_opposite_type(json_t *out, const json_t *type)
{
    const unsigned types = guard_types(type);
    json_t *others;

    if (types == 0 || (types & TYPE_INTEGER) != 0)
        return false; /* numbers that are no integers have no form */
    others = json_array();
    for (unsigned type = 1; type <= TYPE_OBJECT; type <<= 1)
        if ((types & type) == 0 && type != TYPE_INTEGER)
            (void)json_array_append_new(others, guard_type_name(type)); /* or checked below */
    if (json_array_size(others) == 0) {
        json_decref(others);
        return true;
    }
    return json_array_append_new(out, json_pack("{s:o}", "type", others)) == 0;
}

static bool add_opposite_required(json_t *out, const json_t *names)
{
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));

        if (name == NULL || json_array_append_new(out, json_pack("{s:s,s:{s:b}}", "type", "object",
                                                                 "properties", name, 0)) != 0)
            return false;
    }
    return json_is_array(names);
}

static bool add_opposite_properties(json_t *out, json_t *members, unsigned depth)
{
    for (void *at = json_object_iter(members); at != NULL;
         at = json_object_iter_next(members, at)) {
        json_t *others = json_array();
        bool is_made = add_opposite(others, json_object_iter_value(at), depth + 1);

        for (size_t i = 0; is_made && i < json_array_size(others); i++)
            is_made = json_array_append_new(out, json_pack("{s:s,s:[s],s:{s:O}}", "type", "object",
                                                           "required", json_object_iter_key(at),
                                                           "properties", json_object_iter_key(at),
                                                           json_array_get(others, i))) == 0;
        json_decref(others);
        if (!is_made)
            return false;
    }
    return json_is_object(members);
}

static bool add_opposite_all(json_t *out, const json_t *list, unsigned depth)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!add_opposite(out, json_array_get(list, i), depth + 1))
            return false;
    return json_is_array(list);
}

/* Neither this nor that: each opposite of the one with each of the other would be many. */
static bool add_opposite_any(json_t *out, const json_t *list, unsigned depth)
{
    json_t *all = json_array();
    bool is_made = json_is_array(list);

    for (size_t i = 0; is_made && i < json_array_size(list); i++) {
        json_t *one = json_array();

        is_made = add_opposite(one, json_array_get(list, i), depth + 1) &&
                  json_array_append_new(all, guard_any_of(json_incref(one))) == 0;
        json_decref(one);
    }
    is_made = is_made && json_array_append_new(out, json_pack("{s:O}", "allOf", all)) == 0;
    json_decref(all);
    return is_made;
}

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

static bool add_opposite_bound(json_t *out, const struct bound *b, json_t *value)
{
    const double beyond = json_number_value(value) + b->step;

    if (!json_is_number(value)) /* draft 4 has true and false here */
        return json_is_boolean(value);
    if (beyond < 0 && b->step < 0)
        return true; /* nothing is */
    return json_array_append_new(out, json_pack("{s:s,s:o}", "type", b->type, b->opposite,
                                                b->step == 0 ? json_incref(value)
                                                             : json_integer((json_int_t)beyond))) ==
           0;
}

bool guard_says_nothing(const char *keyword)
{
    static const char *const names[] = {"$comment", "default",  "deprecated", "description",
                                        "examples", "readOnly", "title",      "writeOnly"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(keyword, names[i]) == 0)
            return true;
    return false;
}

static bool add_opposite(json_t *out, const json_t *schema, unsigned depth)
{
    json_t *from = (json_t *)schema; /* jansson's iterators do not change it */

    if (depth == MAX_OPPOSITE_DEPTH || json_array_size(out) > MAX_OPPOSITES)
        return false;
    if (json_is_boolean(schema))
        return json_is_true(schema) || json_array_append_new(out, json_object()) == 0;
    if (!json_is_object(schema))
        return false;
    for (void *at = json_object_iter(from); at != NULL; at = json_object_iter_next(from, at)) {
        const char *name = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at);
        const struct bound *bound = bound_named(name);
        bool is_added = guard_says_nothing(name);

        if (strcmp(name, "type") == 0)
            is_added = add_opposite_type(out, value);
        else if (strcmp(name, "const") == 0)
            is_added =
                json_array_append_new(out, json_pack("{s:{s:O}}", "not", "const", value)) == 0;
        else if (strcmp(name, "enum") == 0)
            is_added =
                json_array_append_new(out, json_pack("{s:{s:O}}", "not", "enum", value)) == 0;
        else if (strcmp(name, "required") == 0)
            is_added = add_opposite_required(out, value);
        else if (strcmp(name, "properties") == 0)
            is_added = add_opposite_properties(out, value, depth);
        else if (strcmp(name, "allOf") == 0)
            is_added = add_opposite_all(out, value, depth);
        else if (strcmp(name, "anyOf") == 0)
            is_added = add_opposite_any(out, value, depth);
        else if (strcmp(name, "not") == 0)
            is_added = json_array_append(out, value) == 0;
        else if (bound != NULL)
            is_added = add_opposite_bound(out, bound, value);
        if (!is_added)
            return false;
    }
    return true;
}

json_t *guard_opposite(const json_t *schema)
{
    json_t *out = json_array();

    if (out != NULL && add_opposite(out, schema, 0))
        return out;
    json_decref(out);
    return NULL;
}
