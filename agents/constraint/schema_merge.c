/* Joins two schemas keyword by keyword: types and values are intersected, and of two bounds the
 * tighter one stays. Two keywords that have no joined form are not merged. */
#include "agents/constraint/schema_merge.h"

#include <string.h>

#include "agents/constraint/json_value.h"

enum {
    MAX_COMPARED = 1 << 16, /* pairs of values */
    MAX_NAMES = 128,        /* the required names of both schemas; they are compared one by one */
};

/* Compares nothing that is large. */
static bool are_same(const json_t *a, const json_t *b)
{
    if (a == b)
        return true;
    if (json_is_object(a) && json_is_object(b) && json_object_size(a) == 1 &&
        json_object_size(b) == 1)
        return json_is_string(json_object_get(a, "$ref")) &&
               json_equal(json_object_get(a, "$ref"), json_object_get(b, "$ref"));
    return !json_is_object(a) && !json_is_array(a) && json_equal(a, b);
}

static bool has_any(const json_t *schema, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_object_get(schema, names[i]) != NULL)
            return true;
    return false;
}

static bool is_anything(const json_t *schema)
{
    return json_is_true(schema) || (json_is_object(schema) && json_object_size(schema) == 0);
}

/* --- keywords that depend on others --- */

/* Not where a keyword of one would be about what the other names. */
static bool may_merge(const json_t *a, const json_t *b)
{
    static const char *const places[] = {"items", "prefixItems", "additionalItems"};
    static const char *const lists[] = {"prefixItems", "additionalItems"};
    const char *const rest = "additionalProperties", *const patterns = "patternProperties";
    const bool has_places = has_any(a, places, 3) && has_any(b, places, 3);

    if (json_object_get(b, "unevaluatedProperties") != NULL ||
        json_object_get(b, "unevaluatedItems") != NULL)
        return false;
    if ((json_object_get(a, rest) != NULL && json_object_get(b, patterns) != NULL) ||
        (json_object_get(b, rest) != NULL && json_object_get(a, patterns) != NULL))
        return false;
    if (json_object_get(a, "unevaluatedProperties") != NULL &&
        json_object_get(b, "additionalProperties") != NULL)
        return false;
    return !has_places || (!has_any(a, lists, 2) && !has_any(b, lists, 2) &&
                           !json_is_array(json_object_get(a, "items")) &&
                           !json_is_array(json_object_get(b, "items")));
}

/* --- a keyword of both --- */

static bool names_type(const json_t *types, const char *name)
{
    if (json_is_string(types))
        return strcmp(json_string_value(types), name) == 0;
    for (size_t i = 0; i < json_array_size(types); i++)
        if (names_type(json_array_get(types, i), name))
            return true;
    return false;
}

/* The types that both name; NULL: none. */
static json_t *both_types(const json_t *a, const json_t *b)
{
    static const char *const names[] = {"null", "boolean", "string", "array", "object", "number"};
    json_t *both = json_array();
    bool is_number = names_type(a, "number") && names_type(b, "number");

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names_type(a, names[i]) && names_type(b, names[i]))
            (void)!json_array_append_new(
                both,
                json_string(names[i])); /* a missing alternative only makes the schema stricter */
    if (!is_number && (names_type(a, "integer") || names_type(a, "number")) &&
        (names_type(b, "integer") || names_type(b, "number")))
        (void)!json_array_append_new(both, json_string("integer"));
    if (json_array_size(both) > 0)
        return both;
    json_decref(both);
    return NULL;
}

static json_t *both_schemas(json_t *a, json_t *b)
{
    if (are_same(a, b) || is_anything(b) || json_is_false(a))
        return json_incref(a);
    if (is_anything(a) || json_is_false(b))
        return json_incref(b);
    return json_pack("{s:[O,O]}", "allOf", a, b);
}

/* Sets the member as both have it, as a name or as any other. One that the other's rest forbids is
 * left out: the rest of both forbids it then. Where the other has patterns, the list of names gets
 * it with the rest that holds for it unless a pattern is found in it. */
static bool member_set(json_t *to, json_t *patterned, const char *name, const json_t *a,
                       const json_t *b)
{
    json_t *mine = json_object_get(json_object_get(a, "properties"), name),
           *theirs = json_object_get(json_object_get(b, "properties"), name),
           *one = mine != NULL ? mine : theirs;
    const json_t *other = mine == NULL ? a : b;
    json_t *rest = json_object_get(other, "additionalProperties");

    if (mine != NULL && theirs != NULL)
        return json_object_set_new(to, name, both_schemas(mine, theirs)) == 0;
    if (rest == NULL)
        return json_object_set(to, name, one) == 0;
    if (json_object_size(json_object_get(other, "patternProperties")) > 0)
        return json_object_set(to, name, one) == 0 &&
               json_array_append_new(patterned, json_pack("[s,O]", name, rest)) == 0;
    return json_is_false(rest) ||
           json_object_set_new(
               to, name, mine != NULL ? both_schemas(one, rest) : both_schemas(rest, one)) == 0;
}

/* The properties of both; NULL: one's are no object. */
static json_t *both_members(json_t *patterned, const json_t *a, const json_t *b)
{
    json_t *both = json_object(),
           *lists[] = {json_object_get(a, "properties"), json_object_get(b, "properties")};

    for (size_t i = 0; both != NULL && i < 2; i++) {
        bool is_set = lists[i] == NULL || json_is_object(lists[i]);

        for (void *at = json_object_iter(lists[i]); is_set && at != NULL;
             at = json_object_iter_next(lists[i], at))
            is_set = member_set(both, patterned, json_object_iter_key(at), a, b);
        if (!is_set) {
            json_decref(both);
            return NULL;
        }
    }
    return both;
}

static json_t *both_names(const json_t *a, const json_t *b)
{
    json_t *both;

    if (json_array_size(a) + json_array_size(b) > MAX_NAMES)
        return NULL;
    both = json_copy((json_t *)a); /* jansson does not change a */
    for (size_t i = 0; both != NULL && i < json_array_size(b); i++) {
        json_t *name = json_array_get(b, i);
        size_t k = 0;

        while (k < json_array_size(a) && !json_equal(json_array_get(a, k), name))
            k++;
        if (k == json_array_size(a) && json_array_append(both, name) != 0) {
            json_decref(both);
            return NULL;
        }
    }
    return both;
}

static json_t *tighter(json_t *a, json_t *b, bool is_upper)
{
    if (!json_is_number(a) || !json_is_number(b))
        return NULL;
    return json_incref(json_number_is_less(a, b) == is_upper ? a : b);
}

/* The values that both lists have. */
static json_t *both_enums(const json_t *a, const json_t *b)
{
    json_t *both = json_array();

    if (json_array_size(a) * json_array_size(b) > MAX_COMPARED)
        goto fail;
    for (size_t i = 0; both != NULL && i < json_array_size(a); i++)
        for (size_t k = 0; k < json_array_size(b); k++)
            if (json_value_is_same(json_array_get(a, i), json_array_get(b, k))) {
                if (json_array_append(both, json_array_get(a, i)) != 0)
                    goto fail;
                break;
            }
    return both;
fail:
    json_decref(both);
    return NULL;
}

static json_t *both_lists(json_t *a, json_t *b)
{
    json_t *both = json_copy(a);

    if (both != NULL && json_array_extend(both, b) == 0)
        return both;
    json_decref(both);
    return NULL;
}

/* Of two objects of schemas: a name that both have gets both. */
static json_t *both_maps(json_t *a, json_t *b)
{
    json_t *both = json_copy(a);
    bool is_set = both != NULL;

    for (void *at = json_object_iter(b); is_set && at != NULL; at = json_object_iter_next(b, at)) {
        const char *name = json_object_iter_key(at);
        json_t *mine = json_object_get(a, name), *theirs = json_object_iter_value(at);

        is_set =
            json_object_set_new(
                both, name, mine == NULL ? json_incref(theirs) : both_schemas(mine, theirs)) == 0;
    }
    if (is_set)
        return both;
    json_decref(both);
    return NULL;
}

/* NULL: they cannot be one. */
static json_t *both_values(const char *name, json_t *a, json_t *b)
{
    static const char *const least[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                        "minProperties"};
    static const char *const most[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                       "maxProperties"};
    static const char *const lists[] = {"-notPattern", "-patterned", "anyOf",         "format",
                                        "multipleOf",  "not",        "propertyNames", "pattern"};

    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        if (strcmp(name, lists[i]) == 0)
            return both_lists(a, b);
    if (are_same(a, b))
        return json_incref(a);
    for (size_t i = 0; i < sizeof(least) / sizeof(least[0]); i++) {
        if (strcmp(name, least[i]) == 0)
            return tighter(a, b, false);
        if (strcmp(name, most[i]) == 0)
            return tighter(a, b, true);
    }
    if (strcmp(name, "type") == 0)
        return both_types(a, b);
    if (strcmp(name, "enum") == 0)
        return both_enums(a, b);
    if (strcmp(name, "patternProperties") == 0 && json_is_object(a) && json_is_object(b))
        return both_maps(a, b);
    if (strcmp(name, "items") == 0 || strcmp(name, "additionalProperties") == 0)
        return both_schemas(a, b);
    if (strcmp(name, "required") == 0 && json_is_array(a) && json_is_array(b))
        return both_names(a, b);
    if (strcmp(name, "uniqueItems") == 0 && json_is_boolean(a) && json_is_boolean(b))
        return json_true();
    return NULL;
}

static bool may_be_type(const json_t *type)
{
    return json_is_string(type) || json_is_array(type);
}

static bool types_are_known(const json_t *a, const json_t *b)
{
    return may_be_type(a) && may_be_type(b);
}

bool schema_merge(json_t *schema, const json_t *part)
{
    json_t *from = (json_t *)part, /* jansson's iterators do not change it */
        *patterned = json_array(), *members = NULL, *known;
    const bool has_members = json_object_get(schema, "properties") != NULL ||
                             json_object_get(part, "properties") != NULL;
    bool is_merged = patterned != NULL && may_merge(schema, part);

    if (is_merged)
        members = both_members(patterned, schema, part);
    is_merged = members != NULL;
    for (void *at = json_object_iter(from); is_merged && at != NULL;
         at = json_object_iter_next(from, at)) {
        const char *name = json_object_iter_key(at);
        json_t *mine = json_object_get(schema, name), *theirs = json_object_iter_value(at), *both;

        if (strcmp(name, "properties") == 0)
            continue;
        both = mine == NULL ? json_incref(theirs) : both_values(name, mine, theirs);
        if (both == NULL && strcmp(name, "type") == 0 && types_are_known(mine, theirs)) {
            name = "enum"; /* of no type */
            both = json_array();
        }
        is_merged = both != NULL && json_object_set_new(schema, name, both) == 0;
    }
    if (is_merged && has_members)
        is_merged = json_object_set(schema, "properties", members) == 0;
    known = json_object_get(schema, "-patterned");
    if (is_merged && json_array_size(patterned) > 0)
        is_merged = json_array_extend(patterned, known) == 0 || known == NULL;
    if (is_merged && json_array_size(patterned) > 0)
        is_merged = json_object_set(schema, "-patterned", patterned) == 0;
    json_decref(members);
    json_decref(patterned);
    return is_merged;
}
