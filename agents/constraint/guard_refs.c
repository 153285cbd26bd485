/* Finds what references name: schemas in this document, by a JSON pointer, an $anchor or an $id.
 * All names are found at first; chains of references are followed as far as nothing turns in a
 * circle. */
#include <string.h>

#include "agents/constraint/guard_parts.h"
#include "base/number.h"

enum { MAX_PART = 1024, MAX_REF_HOPS = 16, MAX_NAMES = 4096, MAX_NAME_DEPTH = 64 };

static int hex_of(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* Writes the next part of a pointer, without its escapes, to part [MAX_PART]; NULL if it is wrong
 * or too long, else what is behind it. */
static const char *take_part(const char *at, char *part)
{
    size_t len = 0;

    while (*at != '\0' && *at != '/') {
        char c = *at++;

        if (c == '%') {
            int high = hex_of(at[0]), low = high < 0 ? -1 : hex_of(at[1]);

            if (low < 0)
                return NULL;
            c = (char)(high << 4 | low);
            at += 2;
        }
        if (c == '~') {
            if (*at != '0' && *at != '1')
                return NULL;
            c = *at++ == '0' ? '~' : '/';
        }
        if (len + 1 == MAX_PART || c == '\0')
            return NULL;
        part[len++] = c;
    }
    part[len] = '\0';
    return at;
}

static const json_t *member_of(const json_t *holder, const char *part)
{
    uint64_t i;

    if (json_is_object(holder))
        return json_object_get(holder, part);
    return number_read(&i, part, SIZE_MAX) ? json_array_get(holder, i) : NULL;
}

static const json_t *follow_pointer(const json_t *at, const char *pointer)
{
    char part[MAX_PART];

    while (at != NULL && *pointer != '\0') {
        if (*pointer != '/')
            return NULL;
        pointer = take_part(pointer + 1, part);
        if (pointer == NULL)
            return NULL;
        at = member_of(at, part);
    }
    return at;
}

static bool is_pointer(const char *fragment)
{
    return fragment[0] == '\0' || fragment[0] == '/';
}

const json_t *guard_resolve(struct guard *g, const char *reference)
{
    const char *fragment = strchr(reference, '#');
    const json_t *named = json_object_get(g->names, reference), *base;
    char uri[MAX_PART];
    size_t len;

    if (named != NULL)
        return named;
    if (reference[0] == '#')
        return is_pointer(reference + 1) ? follow_pointer(g->root, reference + 1) : NULL;
    if (fragment == NULL || (len = (size_t)(fragment - reference)) >= sizeof(uri))
        return NULL;
    memcpy(uri, reference, len);
    uri[len] = '\0';
    base = json_object_get(g->names, uri);
    return base != NULL ? follow_pointer(base, fragment + 1) : NULL;
}

const json_t *guard_resolve_chain(struct guard *g, const char *reference)
{
    const json_t *target = NULL;

    for (size_t i = 0; reference != NULL; i++) {
        if (i == MAX_REF_HOPS)
            return NULL;
        target = guard_resolve(g, reference);
        reference = json_string_value(json_object_get(target, "$ref"));
    }
    return target;
}

const json_t *guard_follow(struct guard *g, const json_t *schema)
{
    const char *pointer = json_string_value(json_object_get(schema, "$ref"));

    return pointer != NULL ? guard_resolve_chain(g, pointer) : schema;
}

/* Whether nothing is asked beside the reference. */
static bool is_reference_alone(const json_t *schema)
{
    json_t *from = (json_t *)schema; /* jansson's iterators do not change it */

    for (void *at = json_object_iter(from); at != NULL; at = json_object_iter_next(from, at)) {
        const char *name = json_object_iter_key(at);

        if (strcmp(name, "$ref") != 0 && guard_is_keyword(schema, name))
            return false;
    }
    return true;
}

const json_t *guard_follow_alone(struct guard *g, const json_t *schema)
{
    const char *reference;

    for (size_t i = 0; (reference = json_string_value(json_object_get(schema, "$ref"))) != NULL;
         i++) {
        if (i == MAX_REF_HOPS || !is_reference_alone(schema))
            return NULL;
        schema = guard_resolve(g, reference);
    }
    return schema;
}

static bool names_add(struct guard *g, const char *name, const json_t *schema)
{
    if (json_object_size(g->names) >= MAX_NAMES)
        return guard_fail(g, "$id", "stands in too many schemas") != NULL;
    return json_object_set(g->names, name, (json_t *)schema) == 0 || guard_no_memory(g) != NULL;
}

static bool stands_in(const char *const *names, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Whether schemas stand under a keyword; by names of their own: *ret_has_names. */
static bool keyword_has_schemas(const char *keyword, bool *ret_has_names)
{
    static const char *const named[] = {
        "$defs",     "definitions", "dependencies", "dependentSchemas", "patternProperties",
        "properties"};
    static const char *const others[] = {"additionalItems",
                                         "additionalProperties",
                                         "allOf",
                                         "anyOf",
                                         "contains",
                                         "else",
                                         "if",
                                         "items",
                                         "not",
                                         "oneOf",
                                         "prefixItems",
                                         "propertyNames",
                                         "then",
                                         "unevaluatedItems",
                                         "unevaluatedProperties"};

    *ret_has_names = stands_in(named, sizeof(named) / sizeof(named[0]), keyword);
    return *ret_has_names || stands_in(others, sizeof(others) / sizeof(others[0]), keyword);
}

/* Only names as they are written are found: no reference is resolved against another. What stands
 * under a keyword that is unknown is no schema. */
static bool find_names_in(struct guard *g, const json_t *at, bool has_names, unsigned depth)
{
    json_t *from = (json_t *)at; /* jansson's iterators do not change it */
    static const char *const anchors[] = {"$anchor", "$dynamicAnchor"};
    const char *id = has_names ? NULL : json_string_value(json_object_get(at, "$id"));
    char name[MAX_PART];

    if (depth == MAX_NAME_DEPTH)
        return true; /* the walk refuses it */
    if (id != NULL && id[0] == '#' && is_pointer(id + 1))
        id = NULL; /* what references call so is found by the pointer */
    if (id != NULL && at != g->root && id[0] != '#') { /* what is named inside has another base */
        g->has_resources = true;
        return strlen(id) >= sizeof(name) || names_add(g, id, at);
    }
    if (id != NULL && strlen(id) < sizeof(name) && !names_add(g, id, at))
        return false;
    for (size_t i = 0; !has_names && i < 2; i++) {
        const char *anchor = json_string_value(json_object_get(at, anchors[i]));

        if (anchor == NULL || is_pointer(anchor) || strlen(anchor) + 1 >= sizeof(name))
            continue;
        (void)snprintf(name, sizeof(name), "#%s", anchor);
        if (!names_add(g, name, at))
            return false;
    }
    for (size_t i = 0; i < json_array_size(at); i++)
        if (!find_names_in(g, json_array_get(at, i), false, depth + 1))
            return false;
    for (void *it = json_object_iter(from); it != NULL; it = json_object_iter_next(from, it)) {
        bool inner_has_names = false;

        if ((has_names || keyword_has_schemas(json_object_iter_key(it), &inner_has_names)) &&
            !find_names_in(g, json_object_iter_value(it), inner_has_names, depth + 1))
            return false;
    }
    return true;
}

bool guard_find_names(struct guard *g)
{
    return find_names_in(g, g->root, false, 0);
}
