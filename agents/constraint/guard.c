/* Walks a schema keyword by keyword, and writes it again with what the engine enforces. A keyword
 * that the engine does not enforce is an error if the schema is strict, and else is left out and
 * listed. */
#include "agents/constraint/guard.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/constraint/pattern.h"
#include "agents/constraint/schema_merge.h"
#include "base/number.h"

enum {
    MAX_PATH = 160, /* bytes of a path in an error */
    MAX_BOUND = 1000000000,
    MAX_REF_HOPS = 16,
    MAX_MERGED = 1 << 15, /* members of merged schemas, counted each time that they are merged */
};

struct guard {
    const json_t *root;
    json_t *refs; /* pointer: the name of its definition */
    json_t *defs; /* the definitions' schemas for the engine */
    struct buf path, *left_out;
    bool strict;
    unsigned depth;
    size_t n_nodes, n_merged;
    struct error *err;
};

/* The engine's schema for "anything". */
static json_t *make_any(void)
{
    return json_object();
}

static void *guard_fail(struct guard *g, const char *keyword, const char *why)
{
    (void)error_because(
        g->err, STATUS_INVALID, REASON_INVALID_FIELD, NULL, "the schema at %.*s: '%.40s' %s",
        g->path.len > MAX_PATH ? MAX_PATH : (int)g->path.len, g->path.data, keyword, why);
    return NULL;
}

static void *guard_no_memory(struct guard *g)
{
    (void)error_no_memory(g->err, GUARD_MAX_BYTES, "a schema");
    return NULL;
}

/* A keyword that cannot be enforced. True where it may be left out. */
static bool guard_leave_out(struct guard *g, const char *keyword, const char *why)
{
    if (g->strict)
        return guard_fail(g, keyword, why) != NULL;
    if (g->left_out->len > 0 && buf_append_text(g->left_out, ", ") != STATUS_OK)
        return true; /* the list is full; the names in it are enough */
    (void)!buf_printf(g->left_out, "%s %s", g->path.data, keyword);
    return true;
}

static size_t path_push(struct guard *g, const char *name)
{
    size_t len = g->path.len;

    /* a full path only makes messages shorter */
    if (buf_append_text(&g->path, "/") == STATUS_OK)
        (void)!buf_append_text(&g->path, name);
    return len;
}

static void path_pop(struct guard *g, size_t len)
{
    g->path.len = len;
    g->path.data[len] = '\0';
}

static json_t *guard_walk(struct guard *g, const json_t *schema);

/* The schema of a member: value, found under the keyword and perhaps a name in it. */
static json_t *walk_at(struct guard *g, const json_t *schema, const char *keyword, const char *name)
{
    size_t outer = path_push(g, keyword), inner = name != NULL ? path_push(g, name) : outer;
    json_t *out = guard_walk(g, schema);

    (void)inner;
    path_pop(g, outer);
    return out;
}

/* --- keywords --- */

enum keyword_use {
    KEYWORD_NUMBER = 1 << 0, /* it applies only to values of this type */
    KEYWORD_STRING = 1 << 1,
    KEYWORD_ARRAY = 1 << 2,
    KEYWORD_OBJECT = 1 << 3,
    KEYWORD_COMBINES = 1 << 4, /* a schema that has it has no other keyword */
    KEYWORD_VALUES = 1 << 5,
    KEYWORD_TYPE = 1 << 6,
    KEYWORD_REFUSED = 1 << 7,
    KEYWORD_TYPED = KEYWORD_NUMBER | KEYWORD_STRING | KEYWORD_ARRAY | KEYWORD_OBJECT,
    KEYWORD_ASSERTS = 0xFF,
};

/* What is not here says nothing about instances, by the specification. Sorted by strcmp. */
static const struct keyword {
    const char *name;
    unsigned use;
} keywords[] = {
    {"$dynamicRef", KEYWORD_REFUSED},
    {"$recursiveRef", KEYWORD_REFUSED},
    {"$ref", KEYWORD_COMBINES},
    {"additionalItems", KEYWORD_ARRAY},
    {"additionalProperties", KEYWORD_OBJECT},
    {"allOf", KEYWORD_COMBINES},
    {"anyOf", KEYWORD_COMBINES},
    {"const", KEYWORD_VALUES},
    {"contains", KEYWORD_ARRAY | KEYWORD_REFUSED},
    {"dependencies", KEYWORD_OBJECT | KEYWORD_REFUSED},
    {"dependentRequired", KEYWORD_OBJECT | KEYWORD_REFUSED},
    {"dependentSchemas", KEYWORD_OBJECT | KEYWORD_REFUSED},
    {"disallow", KEYWORD_REFUSED},
    {"divisibleBy", KEYWORD_NUMBER | KEYWORD_REFUSED},
    {"enum", KEYWORD_VALUES},
    {"exclusiveMaximum", KEYWORD_NUMBER},
    {"exclusiveMinimum", KEYWORD_NUMBER},
    {"extends", KEYWORD_REFUSED},
    {"format", KEYWORD_STRING},
    {"if", KEYWORD_REFUSED},
    {"items", KEYWORD_ARRAY},
    {"maxItems", KEYWORD_ARRAY},
    {"maxLength", KEYWORD_STRING},
    {"maxProperties", KEYWORD_OBJECT},
    {"maximum", KEYWORD_NUMBER},
    {"minItems", KEYWORD_ARRAY},
    {"minLength", KEYWORD_STRING},
    {"minProperties", KEYWORD_OBJECT},
    {"minimum", KEYWORD_NUMBER},
    {"multipleOf", KEYWORD_NUMBER},
    {"not", KEYWORD_REFUSED},
    {"oneOf", KEYWORD_COMBINES},
    {"pattern", KEYWORD_STRING},
    {"patternProperties", KEYWORD_OBJECT},
    {"prefixItems", KEYWORD_ARRAY},
    {"properties", KEYWORD_OBJECT},
    {"propertyNames", KEYWORD_OBJECT},
    {"required", KEYWORD_OBJECT},
    {"type", KEYWORD_TYPE},
    {"unevaluatedItems", KEYWORD_ARRAY},
    {"unevaluatedProperties", KEYWORD_OBJECT},
    {"uniqueItems", KEYWORD_ARRAY},
};

static int keyword_by_name(const void *key, const void *row)
{
    return strcmp(key, ((const struct keyword *)row)->name);
}

static unsigned keyword_use_of(const char *name)
{
    const struct keyword *k = bsearch(name, keywords, sizeof(keywords) / sizeof(keywords[0]),
                                      sizeof(keywords[0]), keyword_by_name);

    return k != NULL ? k->use : 0;
}

/* The keywords of a schema that assert, as a shallow copy; those that are always refused are left
 * out or fail. */
static json_t *take_asserting(struct guard *g, const json_t *schema)
{
    json_t *out = json_object(),
           *from = (json_t *)schema; /* jansson's iterators do not change it */

    for (void *at = json_object_iter(from); out != NULL && at != NULL;
         at = json_object_iter_next(from, at)) {
        const char *name = json_object_iter_key(at);
        unsigned use = keyword_use_of(name);
        bool is_refused = (use & KEYWORD_REFUSED) != 0 ||
                          (strcmp(name, "$id") == 0 && schema != g->root && g->depth > 1);

        if (is_refused && !guard_leave_out(g, name, "cannot be enforced")) {
            json_decref(out);
            return NULL;
        }
        if (!is_refused && use != 0 &&
            json_object_set(out, name, json_object_iter_value(at)) != 0) {
            json_decref(out);
            return guard_no_memory(g);
        }
    }
    return out != NULL ? out : guard_no_memory(g);
}

/* Only the keyword may stand in s: drops or refuses all others. */
static bool check_alone(struct guard *g, json_t *s, const char *keyword)
{
    void *at = json_object_iter(s);

    while (at != NULL) {
        const char *name = json_object_iter_key(at);
        void *next = json_object_iter_next(s, at);

        if (strcmp(name, keyword) != 0) {
            if (!guard_leave_out(g, name, "cannot be enforced together with the other keyword"))
                return false;
            (void)json_object_del(s, name); /* cannot fail: the member exists */
            next = json_object_iter(s);
        }
        at = next;
    }
    return true;
}

/* --- types --- */

enum value_type {
    TYPE_NULL = 1 << 0,
    TYPE_BOOLEAN = 1 << 1,
    TYPE_INTEGER = 1 << 2,
    TYPE_NUMBER = 1 << 3,
    TYPE_STRING = 1 << 4,
    TYPE_ARRAY = 1 << 5,
    TYPE_OBJECT = 1 << 6,
    TYPE_ALL = TYPE_NULL | TYPE_BOOLEAN | TYPE_NUMBER | TYPE_STRING | TYPE_ARRAY | TYPE_OBJECT,
};

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

/* The types that a schema's "type" names, all without it; 0 where it is wrong. */
static unsigned types_named(const json_t *type)
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

static unsigned type_of_value(const json_t *value)
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

static bool put_types(json_t *out, unsigned types)
{
    json_t *list = json_array();

    for (size_t i = 0; i < N_TYPES; i++)
        if ((types & 1u << i) != 0 &&
            json_array_append_new(list, json_string(type_names[i])) != 0) {
            json_decref(list);
            return false;
        }
    if (json_array_size(list) > 1)
        return json_object_set_new(out, "type", list) == 0;
    if (json_object_set(out, "type", json_array_get(list, 0)) != 0) {
        json_decref(list);
        return false;
    }
    json_decref(list);
    return true;
}

/* --- const and enum --- */

/* Values of the named types; NULL with an error if there are none. */
static json_t *keep_typed(struct guard *g, const json_t *values, unsigned types)
{
    json_t *kept = json_array();

    for (size_t i = 0; kept != NULL && i < json_array_size(values); i++) {
        json_t *value = json_array_get(values, i);

        if ((type_of_value(value) & types) != 0 && json_array_append(kept, value) != 0) {
            json_decref(kept);
            return guard_no_memory(g);
        }
    }
    if (kept == NULL)
        return guard_no_memory(g);
    if (json_array_size(kept) == 0) {
        json_decref(kept);
        return guard_fail(g, "enum", "has no value of the required type");
    }
    return kept;
}

static json_t *walk_values(struct guard *g, json_t *s, unsigned types)
{
    const char *keyword = json_object_get(s, "const") != NULL ? "const" : "enum";
    json_t *values = json_object_get(s, keyword), *list, *kept, *out;

    (void)json_object_del(s, "type");
    if (!check_alone(g, s, keyword))
        return NULL;
    if (keyword[0] == 'c')
        list = json_pack("[O]", values);
    else
        list = json_incref(values);
    if (!json_is_array(list)) {
        json_decref(list);
        return guard_fail(g, keyword, "must be a list");
    }
    g->n_nodes += json_array_size(list);
    if (g->n_nodes > GUARD_MAX_NODES) {
        json_decref(list);
        return guard_fail(g, keyword, "has too many values");
    }
    kept = keep_typed(g, list, types);
    json_decref(list);
    if (kept == NULL)
        return NULL;
    out = json_pack("{s:o}", "enum", kept);
    return out != NULL ? out : guard_no_memory(g);
}

/* --- references --- */

static int hex_of(char c)
{
    return c >= '0' && c <= '9'                 ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* Writes the next part of a pointer, without its escapes, to part [MAX_PATH]; NULL if it is wrong
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
        if (len + 1 == MAX_PATH || c == '\0')
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

/* The schema that a pointer into this document means; NULL for anything else. */
static const json_t *resolve(const struct guard *g, const char *pointer)
{
    const json_t *at = g->root;
    char part[MAX_PATH];

    if (*pointer++ != '#')
        return NULL;
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

/* The end of a chain of references; NULL if it has none. */
static const json_t *resolve_chain(const struct guard *g, const char *pointer)
{
    const json_t *target = NULL;

    for (size_t i = 0; pointer != NULL; i++) {
        const json_t *next;

        if (i == MAX_REF_HOPS)
            return NULL;
        target = resolve(g, pointer);
        next = json_object_get(target, "$ref");
        pointer = json_string_value(next);
    }
    return target;
}

/* A reference becomes one to a definition of ours, which is walked where it is met first. */
static json_t *walk_ref(struct guard *g, const json_t *ref)
{
    const char *pointer = json_string_value(ref);
    const json_t *known = pointer != NULL ? json_object_get(g->refs, pointer) : NULL;
    const json_t *target;
    char name[24], uri[40];
    json_t *def;

    if (known == NULL) {
        target = pointer != NULL ? resolve_chain(g, pointer) : NULL;
        if (target == NULL)
            return guard_fail(g, "$ref", "does not name a schema in this document");
        (void)snprintf(name, sizeof(name), "d%zu", json_object_size(g->refs));
        known = json_string(name);
        if (known == NULL || json_object_set_new(g->refs, pointer, (json_t *)known) != 0)
            return guard_no_memory(g);
        def = guard_walk(g, resolve(g, pointer));
        if (def == NULL)
            return NULL;
        if (json_object_set_new(g->defs, name, def) != 0)
            return guard_no_memory(g);
    }
    (void)snprintf(uri, sizeof(uri), "#/$defs/%s", json_string_value(known));
    def = json_pack("{s:s}", "$ref", uri);
    return def != NULL ? def : guard_no_memory(g);
}

/* --- anyOf, oneOf, allOf --- */

static const json_t *follow(const struct guard *g, const json_t *schema)
{
    const char *pointer = json_string_value(json_object_get(schema, "$ref"));

    return pointer != NULL ? resolve_chain(g, pointer) : schema;
}

/* The values that a schema enumerates, as a new list; NULL if it enumerates none. */
static json_t *values_of(const json_t *schema)
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
    json_t *values = values_of(schema);
    unsigned types = types_named(json_object_get(schema, "type"));
    unsigned of_values = 0;

    if (values == NULL)
        return types;
    for (size_t i = 0; i < json_array_size(values); i++)
        of_values |= type_of_value(json_array_get(values, i));
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
    json_t *x = values_of(a), *y = values_of(b);
    bool differ = x != NULL && y != NULL && lists_differ(x, y);

    json_decref(x);
    json_decref(y);
    return differ;
}

/* No instance matches both: their types or values differ, or those of a member that both require.
 */
static bool are_disjoint(const struct guard *g, const json_t *a, const json_t *b)
{
    json_t *members;

    a = follow(g, a);
    b = follow(g, b);
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
            values_differ(follow(g, json_object_iter_value(at)),
                          follow(g, json_object_get(json_object_get(b, "properties"), name))))
            return true;
    }
    return false;
}

static bool all_disjoint(const struct guard *g, const json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = i + 1; k < json_array_size(list); k++)
            if (!are_disjoint(g, json_array_get(list, i), json_array_get(list, k)))
                return false;
    return true;
}

static json_t *walk_alternatives(struct guard *g, const json_t *list, const char *keyword)
{
    json_t *out = json_array(), *holder;

    for (size_t i = 0; out != NULL && i < json_array_size(list); i++) {
        char number[24];
        json_t *one;

        if (json_is_false(json_array_get(list, i)))
            continue;
        (void)snprintf(number, sizeof(number), "%zu", i);
        one = walk_at(g, json_array_get(list, i), keyword, number);
        if (one == NULL || json_array_append_new(out, one) != 0) {
            json_decref(out);
            return one == NULL ? NULL : guard_no_memory(g);
        }
    }
    if (out == NULL)
        return guard_no_memory(g);
    if (json_array_size(out) == 0) {
        json_decref(out);
        return guard_fail(g, keyword, "has no alternative that any value can match");
    }
    holder = json_pack("{s:o}", "anyOf", out);
    return holder != NULL ? holder : guard_no_memory(g);
}

static json_t *walk_combined(struct guard *g, json_t *s, const char *keyword)
{
    const json_t *list = json_object_get(s, keyword);

    if (!check_alone(g, s, keyword))
        return NULL;
    if (keyword[0] == '$')
        return walk_ref(g, list);
    if (!json_is_array(list) || json_array_size(list) == 0)
        return guard_fail(g, keyword, "must be a list of schemas");
    if (strcmp(keyword, "allOf") == 0) {
        if (json_array_size(list) == 1)
            return walk_at(g, json_array_get(list, 0), keyword, "0");
        return guard_leave_out(g, keyword, "cannot be enforced with several schemas") ? make_any()
                                                                                      : NULL;
    }
    if (strcmp(keyword, "oneOf") == 0 && json_array_size(list) > 1 && !all_disjoint(g, list) &&
        !guard_leave_out(g, keyword,
                         "cannot be enforced because two alternatives may match the same value"))
        return NULL;
    return walk_alternatives(g, list, keyword);
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

static json_t *guard_fold(struct guard *g, const json_t *schema, unsigned hops);

/* Joins to s what the schema asks for, which stands in the list under the keyword. */
static bool fold_into(struct guard *g, json_t *s, const json_t *schema, const char *keyword,
                      size_t i, unsigned hops)
{
    size_t outer = path_push(g, keyword);
    char number[24];
    json_t *part;
    bool is_merged;

    (void)snprintf(number, sizeof(number), "%zu", i);
    (void)path_push(g, number);
    part = guard_fold(g, schema, hops);
    path_pop(g, outer);
    is_merged = part != NULL && guard_merge(g, s, part);
    json_decref(part);
    return is_merged;
}

static bool fold_ref(struct guard *g, json_t *s, const json_t *ref, unsigned hops)
{
    const char *pointer = json_string_value(ref);
    json_t *part = pointer == NULL ? NULL : guard_fold(g, resolve(g, pointer), hops);
    bool is_merged = part != NULL && guard_merge(g, s, part);

    json_decref(part);
    return is_merged;
}

/* The schema with what its $ref and allOf ask for, as one without them; NULL: there is no such one,
 * or with an error in g it may not be. */
static json_t *guard_fold(struct guard *g, const json_t *schema, unsigned hops)
{
    json_t *s, *ref, *all;
    bool is_folded = true;

    if (++g->n_nodes > GUARD_MAX_NODES)
        return guard_fail(g, "schemas", "are too many");
    if (json_is_true(schema))
        return make_any();
    if (!json_is_object(schema) || hops > MAX_REF_HOPS)
        return NULL;
    s = take_asserting(g, schema);
    if (s == NULL)
        return NULL;
    ref = json_incref(json_object_get(s, "$ref"));
    all = json_incref(json_object_get(s, "allOf"));
    (void)json_object_del(s, "$ref"); /* the members may be missing */
    (void)json_object_del(s, "allOf");
    if (ref != NULL)
        is_folded = fold_ref(g, s, ref, hops + 1);
    is_folded = is_folded && (all == NULL || json_array_size(all) > 0);
    for (size_t i = 0; is_folded && i < json_array_size(all); i++)
        is_folded = fold_into(g, s, json_array_get(all, i), "allOf", i, hops + 1);
    json_decref(ref);
    json_decref(all);
    if (is_folded)
        return s;
    json_decref(s);
    return NULL;
}

/* The schema with its anyOf or oneOf outermost: each alternative with what stands beside it. NULL
 * as above. */
static json_t *guard_spread(struct guard *g, const json_t *s, const char *keyword)
{
    const json_t *list = json_object_get(s, keyword);
    json_t *rest = json_copy((json_t *)s), *out = json_array(); /* jansson does not change s */
    bool is_spread = rest != NULL && out != NULL && json_object_del(rest, keyword) == 0;

    for (size_t i = 0; is_spread && i < json_array_size(list); i++) {
        json_t *one;

        if (json_is_false(json_array_get(list, i)))
            continue;
        one = json_copy(rest);
        is_spread = one != NULL && fold_into(g, one, json_array_get(list, i), keyword, i, 0);
        is_spread = is_spread && json_array_append(out, one) == 0;
        json_decref(one);
    }
    json_decref(rest);
    if (is_spread && json_array_size(out) > 0)
        return json_pack("{s:o}", keyword, out);
    json_decref(out);
    return NULL;
}

/* One schema in place of s, which says the same, where several keywords combine schemas or stand
 * beside one that does. NULL as above. */
static json_t *guard_join(struct guard *g, const json_t *s)
{
    const json_t *all = json_object_get(s, "allOf");
    const size_t size = json_object_size(s);

    if ((all != NULL && (size > 1 || json_array_size(all) > 1)) ||
        (json_object_get(s, "$ref") != NULL && size > 1))
        return guard_fold(g, s, 0);
    if (json_object_get(s, "anyOf") != NULL && size > 1)
        return guard_spread(g, s, "anyOf");
    if (json_object_get(s, "oneOf") != NULL && size > 1)
        return guard_spread(g, s, "oneOf");
    return NULL;
}

/* --- numbers --- */

/* Bounds are decimals of six places. */
static bool is_plain_bound(double value)
{
    return fabs(value) <= MAX_BOUND && round(value * 1e6) / 1e6 == value &&
           (value == 0 || fabs(value) >= 1e-4);
}

/* Integers take whole bounds: moved inwards. */
static json_t *whole_bound(const char *name, double value)
{
    bool is_upper = strstr(name, "aximum") != NULL;
    double whole = is_upper ? floor(value) : ceil(value);

    if (strncmp(name, "exclusive", 9) == 0 && whole != value) /* x > 1.5 is x > 1 */
        whole = is_upper ? ceil(value) : floor(value);
    return json_integer((json_int_t)whole);
}

static bool walk_bound(struct guard *g, json_t *out, const char *name, const json_t *value,
                       unsigned types)
{
    double number = json_number_value(value);
    json_t *bound;

    if (!json_is_number(value))
        return guard_fail(g, name, "must be a number") != NULL;
    if (!is_plain_bound(number))
        return guard_leave_out(g, name, "is too large or has too many digits to be enforced");
    bound = (types & TYPE_NUMBER) == 0 || floor(number) == number ? whole_bound(name, number)
                                                                  : json_real(number);
    if (json_object_set_new(out, name, bound) != 0)
        return guard_no_memory(g) != NULL;
    return true;
}

static bool walk_multiple(struct guard *g, json_t *out, const json_t *s, unsigned types)
{
    const json_t *value = json_object_get(s, "multipleOf");
    double number = json_number_value(value);
    bool has_bounds = json_object_get(s, "minimum") != NULL ||
                      json_object_get(s, "maximum") != NULL ||
                      json_object_get(s, "exclusiveMinimum") != NULL ||
                      json_object_get(s, "exclusiveMaximum") != NULL;

    if (value == NULL)
        return true;
    if (!json_is_number(value) || number <= 0)
        return guard_fail(g, "multipleOf", "must be a number above 0") != NULL;
    if ((types & TYPE_NUMBER) == 0 && (number == 1 || fmod(1, number) == 0))
        return true;
    if ((types & TYPE_NUMBER) != 0 || floor(number) != number || number > 100 || has_bounds)
        return guard_leave_out(g, "multipleOf",
                               "is enforced only for integers without bounds, and up to 100");
    return json_object_set_new(out, "multipleOf", json_integer((json_int_t)number)) == 0 ||
           guard_no_memory(g) != NULL;
}

static bool walk_number(struct guard *g, json_t *out, const json_t *s, unsigned types)
{
    static const char *const names[] = {"minimum", "maximum", "exclusiveMinimum",
                                        "exclusiveMaximum"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const json_t *value = json_object_get(s, names[i]);

        if (value != NULL && !walk_bound(g, out, names[i], value, types))
            return false;
    }
    return walk_multiple(g, out, s, types);
}

/* --- strings and sizes --- */

/* A size of at most most, written to out. Zero as the least is nothing; so is no bound. */
static bool walk_size(struct guard *g, json_t *out, const json_t *s, const char *name,
                      json_int_t most)
{
    const json_t *value = json_object_get(s, name);
    double number = json_number_value(value);

    if (value == NULL)
        return true;
    if (!json_is_number(value) || number < 0 || floor(number) != number)
        return guard_fail(g, name, "must be a whole number of at least 0") != NULL;
    if (number == 0 && name[1] == 'i')
        return true;
    if (number > (double)most)
        return guard_leave_out(g, name, "is larger than the compiler's limit");
    return json_object_set_new(out, name, json_integer((json_int_t)number)) == 0 ||
           guard_no_memory(g) != NULL;
}

/* Formats that the engine enforces, and then those of the specification that it does not; others
 * say nothing. */
static const char *const formats[] = {
    "date",          "date-time",
    "duration",      "email",
    "hostname",      "ipv4",
    "ipv6",          "json-pointer",
    "time",          "uri",
    "uri-reference", "uri-template",
    "uuid",          "relative-json-pointer",
    "idn-email",     "idn-hostname",
    "iri",           "iri-reference",
    "regex",
};

enum { N_ENFORCED_FORMATS = 14, N_FORMATS = sizeof(formats) / sizeof(formats[0]) };

static size_t find_format(const json_t *name)
{
    size_t i = 0;

    while (i < N_FORMATS &&
           (!json_is_string(name) || strcmp(formats[i], json_string_value(name)) != 0))
        i++;
    return i;
}

static bool walk_pattern(struct guard *g, json_t *out, const json_t *pattern)
{
    struct buf text;
    struct error why = {0};
    char message[ERROR_TEXT_MAX];
    enum status rc;

    if (!json_is_string(pattern))
        return guard_fail(g, "pattern", "must be a string") != NULL;
    buf_init(&text, GUARD_MAX_BYTES);
    rc = pattern_to_json_text(&text, json_string_value(pattern), json_string_length(pattern), &why);
    if (rc == STATUS_OK)
        rc = json_object_set_new(out, "pattern", json_stringn(text.data, text.len)) == 0
                 ? STATUS_OK
                 : STATUS_EXHAUSTED;
    buf_deinit(&text);
    if (rc == STATUS_OK)
        return true;
    if (rc == STATUS_EXHAUSTED)
        return guard_no_memory(g) != NULL;
    (void)snprintf(message, sizeof(message), "cannot be enforced: it has %.150s", why.text);
    return guard_leave_out(g, "pattern", message);
}

/* One of pattern, format and lengths: the engine joins none of them. */
static bool walk_string(struct guard *g, json_t *out, const json_t *s)
{
    static const char *const sizes[] = {"minLength", "maxLength"};
    const json_t *format = json_object_get(s, "format"), *pattern = json_object_get(s, "pattern");
    const size_t i_format = find_format(format);
    bool has_format = i_format < N_ENFORCED_FORMATS;

    if (!has_format && i_format < N_FORMATS &&
        !guard_leave_out(g, "format", "has a value that cannot be enforced"))
        return false;
    if (pattern != NULL && !walk_pattern(g, out, pattern))
        return false;
    pattern = json_object_get(out, "pattern");
    if (has_format && pattern != NULL)
        has_format = !guard_leave_out(g, "format", "cannot be enforced together with a pattern");
    if (g->err->status != STATUS_OK)
        return false;
    if (has_format && json_object_set(out, "format", (json_t *)format) != 0)
        return guard_no_memory(g) != NULL;
    for (size_t i = 0; i < 2; i++) {
        struct json_t *given = json_object_get(s, sizes[i]);

        if (given != NULL && (has_format || pattern != NULL) &&
            !(json_number_value(given) == 0 && i == 0)) {
            if (!guard_leave_out(g, sizes[i],
                                 "cannot be enforced together with a pattern or a format"))
                return false;
        } else if (!walk_size(g, out, s, sizes[i], GUARD_MAX_LENGTH)) {
            return false;
        }
    }
    return true;
}

/* --- arrays --- */

static bool put_walked(struct guard *g, json_t *out, const char *name, const json_t *schema,
                       const char *keyword)
{
    json_t *one;

    if (json_is_boolean(schema))
        return json_object_set(out, name, (json_t *)schema) == 0 || guard_no_memory(g) != NULL;
    one = walk_at(g, schema, keyword, NULL);
    if (one == NULL)
        return false;
    return json_object_set_new(out, name, one) == 0 || guard_no_memory(g) != NULL;
}

/* A false in the list ends the array before it. */
static bool walk_prefix(struct guard *g, json_t *out, const json_t *list, const char *keyword,
                        bool *ret_is_closed)
{
    json_t *walked = json_array();

    if (!json_is_array(list)) {
        json_decref(walked);
        return guard_fail(g, keyword, "must be a list of schemas") != NULL;
    }
    for (size_t i = 0; i < json_array_size(list) && !*ret_is_closed; i++) {
        char number[24];
        json_t *one;

        *ret_is_closed = json_is_false(json_array_get(list, i));
        if (*ret_is_closed)
            break;
        (void)snprintf(number, sizeof(number), "%zu", i);
        one = walk_at(g, json_array_get(list, i), keyword, number);
        if (one == NULL || json_array_append_new(walked, one) != 0) {
            json_decref(walked);
            return one != NULL && guard_no_memory(g) != NULL;
        }
    }
    if (json_array_size(walked) > 0)
        return json_object_set_new(out, "prefixItems", walked) == 0 || guard_no_memory(g) != NULL;
    json_decref(walked);
    return true;
}

/* The engine cannot end an array within its prefix. So the count decides how much of it stays. */
static bool walk_array(struct guard *g, json_t *out, const json_t *s)
{
    const json_t *items = json_object_get(s, "items"), *prefix = json_object_get(s, "prefixItems");
    const char *rest_name = "items";
    bool is_closed = false;
    size_t n_prefix;

    if (json_is_true(json_object_get(s, "uniqueItems")) &&
        !guard_leave_out(g, "uniqueItems", "cannot be enforced"))
        return false;
    if (json_is_array(items) && prefix == NULL) { /* the meaning in drafts before 2020 */
        prefix = items;
        rest_name = "additionalItems";
        items = json_object_get(s, rest_name);
        if (!walk_prefix(g, out, prefix, "items", &is_closed))
            return false;
    } else if (prefix != NULL && !walk_prefix(g, out, prefix, "prefixItems", &is_closed)) {
        return false;
    }
    if (items == NULL) {
        rest_name = "unevaluatedItems";
        items = json_object_get(s, rest_name);
    }
    if (is_closed) {
        if (json_object_set_new(out, "items", json_false()) != 0)
            return guard_no_memory(g) != NULL;
    } else if (items != NULL && !put_walked(g, out, "items", items, rest_name)) {
        return false;
    }
    if (!walk_size(g, out, s, "minItems", GUARD_MAX_ITEMS) ||
        !walk_size(g, out, s, "maxItems", GUARD_MAX_ITEMS))
        return false;
    n_prefix = json_array_size(json_object_get(out, "prefixItems"));
    if (json_object_get(out, "maxItems") != NULL)
        while (n_prefix > (size_t)json_integer_value(json_object_get(out, "maxItems"))) {
            (void)json_array_remove(json_object_get(out, "prefixItems"), --n_prefix);
            if (n_prefix == 0)
                (void)json_object_del(out, "prefixItems");
        }
    return true;
}

/* --- objects --- */

static bool is_trivial(const json_t *schema)
{
    return json_is_true(schema) || (json_is_object(schema) && json_object_size(schema) == 0);
}

/* The schema of members that are not named: what additionalProperties says, or what
 * unevaluatedProperties does where nothing else stands. */
static bool walk_rest(struct guard *g, json_t *out, const json_t *s)
{
    const char *name = "additionalProperties";
    const json_t *rest = json_object_get(s, name);

    if (rest == NULL) {
        name = "unevaluatedProperties";
        rest = json_object_get(s, name);
    }
    return rest == NULL || is_trivial(rest) ||
           put_walked(g, out, "additionalProperties", rest, name);
}

static bool is_plain_name(const char *name)
{
    for (; *name != '\0'; name++)
        if ((unsigned char)*name < 0x20 || *name == '"' || *name == '\\' || *name == 0x7F)
            return false;
    return true;
}

/* The engine takes a name as it stands in the text: with JSON's escapes, malloc'd. NULL: it has no
 * such form, or there is no memory. */
static char *name_in_text(const char *name)
{
    json_t *value;
    char *text;
    size_t len;

    if (is_plain_name(name))
        return strdup(name);
    value = strchr(name, 0x7F) == NULL ? json_string(name) : NULL;
    text = value == NULL ? NULL : json_dumps(value, JSON_ENCODE_ANY);
    json_decref(value);
    if (text == NULL)
        return NULL;
    len = strlen(text);
    memmove(text, text + 1, len - 2); /* without its quotes */
    text[len - 2] = '\0';
    return text;
}

static bool walk_properties(struct guard *g, json_t *out, const json_t *s)
{
    json_t *from = json_object_get(s, "properties"), *to = json_object();

    if (from != NULL && !json_is_object(from)) {
        json_decref(to);
        return guard_fail(g, "properties", "must be an object") != NULL;
    }
    for (void *at = json_object_iter(from); at != NULL; at = json_object_iter_next(from, at)) {
        const char *name = json_object_iter_key(at);
        char *in_text = name_in_text(name);
        json_t *one = NULL;

        if (json_is_false(json_object_iter_value(at)) || in_text == NULL) {
            free(in_text);
            if (!guard_leave_out(g, name, "is false or has a name with a DEL character")) {
                json_decref(to);
                return false;
            }
            continue;
        }
        one = walk_at(g, json_object_iter_value(at), "properties", name);
        if (one == NULL || json_object_set_new(to, in_text, one) != 0) {
            free(in_text);
            json_decref(to);
            return one != NULL && guard_no_memory(g) != NULL;
        }
        free(in_text);
    }
    return json_object_set_new(out, "properties", to) == 0 || guard_no_memory(g) != NULL;
}

/* A required member that is not named becomes one that is. */
static bool require(struct guard *g, json_t *out, json_t *names, const json_t *required)
{
    const char *name = json_string_value(required);
    json_t *members = json_object_get(out, "properties"),
           *rest = json_object_get(out, "additionalProperties");
    char *in_text;
    bool is_put;

    if (name == NULL || strlen(name) != json_string_length(required))
        return guard_fail(g, "required", "must be a list of names") != NULL;
    in_text = name_in_text(name);
    if (in_text == NULL)
        return guard_leave_out(g, "required", "has a name with a DEL character");
    if (json_object_get(members, in_text) == NULL && json_is_false(rest)) {
        free(in_text);
        return guard_fail(g, "required", "names a property that the schema does not allow") != NULL;
    }
    is_put =
        json_object_get(members, in_text) != NULL ||
        json_object_set_new(members, in_text, rest != NULL ? json_copy(rest) : make_any()) == 0;
    is_put = is_put && json_array_append_new(names, json_string(in_text)) == 0;
    free(in_text);
    return is_put || guard_no_memory(g) != NULL;
}

static bool walk_required(struct guard *g, json_t *out, const json_t *s)
{
    const json_t *required = json_object_get(s, "required");
    json_t *names;

    if (required == NULL)
        return true;
    if (!json_is_array(required))
        return guard_fail(g, "required", "must be a list") != NULL;
    if (json_array_size(required) > GUARD_MAX_NODES)
        return guard_fail(g, "required", "has too many names") != NULL;
    names = json_array();
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!require(g, out, names, json_array_get(required, i))) {
            json_decref(names);
            return false;
        }
    return json_object_set_new(out, "required", names) == 0 || guard_no_memory(g) != NULL;
}

/* Bounds on the number of members: the engine counts a member that is repeated twice. */
static bool walk_member_counts(struct guard *g, json_t *out, const json_t *s)
{
    const json_t *least = json_object_get(s, "minProperties");
    size_t n_required = json_array_size(json_object_get(out, "required"));

    if (least != NULL && (!json_is_number(least) || json_number_value(least) < 0))
        return guard_fail(g, "minProperties", "must be a whole number of at least 0") != NULL;
    if (least != NULL && json_number_value(least) > (double)n_required &&
        !guard_leave_out(g, "minProperties",
                         "is enforced only up to the number of required properties"))
        return false;
    return walk_size(g, out, s, "maxProperties", GUARD_MAX_ITEMS);
}

/* An object with named members gets no others: the engine would let one of the same name, written
 * with an escape, have any value. */
static bool close_object(struct guard *g, json_t *out)
{
    if (json_object_size(json_object_get(out, "properties")) == 0)
        return true;
    return json_object_set_new(out, "additionalProperties", json_false()) == 0 ||
           guard_no_memory(g) != NULL;
}

static bool walk_object(struct guard *g, json_t *out, const json_t *s)
{
    static const char *const refused[] = {"patternProperties", "propertyNames"};

    for (size_t i = 0; i < 2; i++) {
        const json_t *value = json_object_get(s, refused[i]);

        if (value != NULL && !is_trivial(value) &&
            !guard_leave_out(g, refused[i], "cannot be enforced"))
            return false;
    }
    return walk_rest(g, out, s) && walk_properties(g, out, s) && walk_required(g, out, s) &&
           walk_member_counts(g, out, s) && close_object(g, out);
}

/* --- the walk --- */

static bool walk_typed(struct guard *g, json_t *out, const json_t *s, unsigned types)
{
    if ((types & (TYPE_INTEGER | TYPE_NUMBER)) != 0 && !walk_number(g, out, s, types))
        return false;
    if ((types & TYPE_STRING) != 0 && !walk_string(g, out, s))
        return false;
    if ((types & TYPE_ARRAY) != 0 && !walk_array(g, out, s))
        return false;
    if ((types & TYPE_OBJECT) != 0 && !walk_object(g, out, s))
        return false;
    return put_types(out, types) || guard_no_memory(g) != NULL;
}

static unsigned uses_in(json_t *s)
{
    unsigned uses = 0;

    for (void *at = json_object_iter(s); at != NULL; at = json_object_iter_next(s, at))
        uses |= keyword_use_of(json_object_iter_key(at));
    return uses;
}

/* s has the keywords that assert. */
static json_t *walk_plain(struct guard *g, json_t *s)
{
    static const char *const combining[] = {"$ref", "allOf", "anyOf", "oneOf"};
    const unsigned uses = uses_in(s);
    const unsigned types = types_named(json_object_get(s, "type"));
    json_t *out;

    if (types == 0)
        return guard_fail(g, "type", "is not a type or a list of types");
    if ((uses & KEYWORD_VALUES) != 0)
        return walk_values(g, s, types);
    /* If there are keywords about types, the combination is left out. */
    for (size_t i = 0; i < 4; i++)
        if (json_object_get(s, combining[i]) != NULL) {
            if (json_object_size(s) == 1 || i == 0 || (uses & (KEYWORD_TYPED | KEYWORD_TYPE)) == 0)
                return walk_combined(g, s, combining[i]);
            if (!guard_leave_out(g, combining[i],
                                 "cannot be enforced together with other keywords"))
                return NULL;
            (void)json_object_del(s, combining[i]);
        }
    out = json_object();
    if ((uses & (KEYWORD_TYPED | KEYWORD_TYPE)) == 0)
        return out != NULL ? out : guard_no_memory(g);
    if (out != NULL && !walk_typed(g, out, s, types)) {
        json_decref(out);
        return NULL;
    }
    return out != NULL ? out : guard_no_memory(g);
}

static json_t *walk_asserting(struct guard *g, json_t *s)
{
    json_t *joined = guard_join(g, s), *out;

    if (joined == NULL)
        return g->err->status == STATUS_OK ? walk_plain(g, s) : NULL;
    out = guard_walk(g, joined);
    json_decref(joined);
    return out;
}

static json_t *guard_walk(struct guard *g, const json_t *schema)
{
    json_t *asserting, *out = NULL;

    if (++g->n_nodes > GUARD_MAX_NODES)
        return guard_fail(g, "schemas", "are too many");
    if (json_is_true(schema))
        return make_any();
    if (json_is_false(schema))
        return guard_fail(g, "false", "is a schema that no value matches");
    if (!json_is_object(schema))
        return guard_fail(g, "schema", "must be an object, true or false");
    if (g->depth == GUARD_MAX_DEPTH)
        return guard_fail(g, "schemas", "are nested too deeply");
    g->depth++;
    asserting = take_asserting(g, schema);
    if (asserting != NULL)
        out = walk_asserting(g, asserting);
    json_decref(asserting);
    g->depth--;
    return out;
}

static enum status guard_dump(struct guard *g, json_t *top, struct buf *out)
{
    char *text = NULL;
    enum status rc = STATUS_OK;

    if (json_object_size(g->defs) == 0 || json_object_set(top, "$defs", g->defs) == 0)
        text = json_dumps(top, JSON_COMPACT);
    if (text == NULL)
        (void)guard_no_memory(g);
    else if (strlen(text) > GUARD_MAX_BYTES)
        (void)guard_fail(g, "schema", "is too large");
    else if (buf_append_text(out, text) != STATUS_OK)
        (void)guard_no_memory(g);
    else
        g->err->status = STATUS_OK;
    rc = g->err->status;
    free(text);
    return rc;
}

enum status guard_schema(struct buf *out, const json_t *schema, bool strict, struct buf *left_out,
                         struct error *err)
{
    struct guard g = {.root = schema, .left_out = left_out, .strict = strict, .err = err};
    json_t *top;

    *err = (struct error){0};
    g.refs = json_object();
    g.defs = json_object();
    buf_init(&g.path, 64 << 10);
    if (g.refs == NULL || g.defs == NULL || buf_append_text(&g.path, "#") != STATUS_OK)
        top = guard_no_memory(&g);
    else
        top = guard_walk(&g, schema);
    if (top != NULL)
        (void)guard_dump(&g, top, out);
    json_decref(top);
    json_decref(g.refs);
    json_decref(g.defs);
    buf_deinit(&g.path);
    return err->status;
}
