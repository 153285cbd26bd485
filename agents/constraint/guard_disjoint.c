/* Which alternatives of oneOf exclude each other. */
#include "agents/constraint/guard_parts.h"

#include <string.h>

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

            if (json_equal(x, y) || (json_is_number(x) && json_is_number(y)) || json_is_array(x) ||
                json_is_object(x))
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

static bool values_differ(const json_t *a, const json_t *b)
{
    json_t *x = guard_values_of(a), *y = guard_values_of(b);
    bool differ = x != NULL && y != NULL && lists_differ(x, y);

    json_decref(x);
    json_decref(y);
    return differ;
}

/* a requires a name that b does not have. An object with named members gets no others here, where
 * nothing stands beside the alternatives that names some. */
static bool requires_other(const json_t *a, const json_t *b, bool is_alone)
{
    const json_t *required = json_object_get(a, "required"),
                 *members = json_object_get(b, "properties"),
                 *rest = json_object_get(b, "additionalProperties");

    if (!json_is_false(rest) &&
        (!is_alone || rest != NULL || json_object_size(members) == 0 ||
         json_object_get(b, "patternProperties") != NULL || json_object_get(b, "allOf") != NULL ||
         json_object_get(b, "anyOf") != NULL || json_object_get(b, "oneOf") != NULL))
        return false;
    if (json_object_get(b, "patternProperties") != NULL)
        return false;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));

        if (name != NULL && json_object_get(members, name) == NULL && !is_required(b, name))
            return true;
    }
    return false;
}

bool guard_are_disjoint(struct guard *g, const json_t *a, const json_t *b, bool is_alone)
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
    if (values_differ(a, b))
        return true;
    if (types_of(a) != TYPE_OBJECT || types_of(b) != TYPE_OBJECT)
        return false;
    members = json_object_get(a, "properties");
    for (void *at = json_object_iter(members); at != NULL;
         at = json_object_iter_next(members, at)) {
        const char *name = json_object_iter_key(at);

        if (is_required(a, name) && is_required(b, name) &&
            values_differ(guard_follow(g, json_object_iter_value(at)),
                          guard_follow(g, json_object_get(json_object_get(b, "properties"), name))))
            return true;
    }
    return requires_other(a, b, false) || requires_other(b, a, false) ||
           (is_alone && requires_other(a, b, true) && requires_other(b, a, true));
}
