/* Checks the keywords of arrays, and normalises them: the items that a prefix names, the rest, how
 * many there may be, and whether they must differ. What the compiler would not enforce is refused
 * or left out by name. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agents/constraint/guard.h"
#include "agents/constraint/guard_parts.h"
#include "agents/constraint/json_value.h"

enum {
    MAX_UNIQUE = 64,
    N_CLASSES = 6,
    CLASSES_PART = 4, /* of the work: one part of so many may go into classes */
};

bool guard_size(struct guard *g, json_t *out, const json_t *s, const char *name, json_int_t most)
{
    const json_t *value = json_object_get(s, name);
    const bool is_least = name[1] == 'i', is_items = strstr(name, "Items") != NULL;
    const char *as = is_items ? (is_least ? "min_items" : "max_items")
                              : (is_least ? "min_members" : "max_members");
    double number = json_number_value(value);

    if (value == NULL)
        return true;
    if (!json_is_number(value) || number < 0 || floor(number) != number)
        return guard_fail(g, name, "must be a whole number of at least 0") != NULL;
    if (number == 0 && is_least)
        return true;
    if (number > (double)most && !is_least && number > 1e6) /* beyond what any reply holds */
        return true;
    if (number > (double)most && is_least && is_items)
        return guard_leave_out(g, name, "is larger than the compiler's limit, 4,096");
    number = fmin(number, (double)most);
    return json_object_set_new(out, as, json_integer((json_int_t)number)) == 0 ||
           guard_no_memory(g) != NULL;
}

static json_int_t size_in(const json_t *out, const char *name, json_int_t otherwise)
{
    const json_t *value = json_object_get(out, name);

    return value != NULL ? json_integer_value(value) : otherwise;
}

/* Appends the schemas of the list until one that nothing matches: then *ret_is_closed. */
static bool walk_prefix(struct guard *g, json_t *walked, const json_t *list, const char *keyword,
                        bool *ret_is_closed)
{
    if (!json_is_array(list))
        return guard_fail(g, keyword, "must be a list of schemas") != NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        char number[24];
        json_t *one;

        (void)snprintf(number, sizeof(number), "%zu", i);
        one = guard_walk_at(g, json_array_get(list, i), keyword, number);
        if (one == NULL)
            return false;
        if (json_is_false(one)) {
            json_decref(one);
            *ret_is_closed = true;
            return true;
        }
        if (json_array_append_new(walked, one) != 0)
            return guard_no_memory(g) != NULL;
    }
    return true;
}

/* What is left of contains, item by item. */
struct containing {
    const json_t *schema;   /* NULL: there is no contains */
    json_int_t least, most; /* items that are still to match; that still may, -1: any number */
};

static struct containing containing_of(const json_t *s)
{
    const json_t *c = json_object_get(s, "contains");

    return (struct containing){json_object_get(c, "schema"),
                               json_integer_value(json_object_get(c, "least")),
                               json_integer_value(json_object_get(c, "most"))};
}

/* The item, walked, under one schema more: that of contains, or its opposite. */
static json_t *walk_item(struct guard *g, const json_t *given, const json_t *schema,
                         bool is_opposite)
{
    json_t *more = is_opposite ? json_pack("{s:O}", "not", schema) : json_incref((json_t *)schema),
           *both = given == NULL ? json_incref(more)
                                 : json_pack("{s:[O,O]}", "allOf", (json_t *)given, more),
           *out = both != NULL
                      ? guard_walk_at(g, both, is_opposite ? "maxContains" : "contains", NULL)
                      : guard_no_memory(g);

    json_decref(more);
    json_decref(both);
    return out;
}

/* The next item, where contains has it match or not: the first items that can match do, as many as
 * have to; where no more may match none does. */
static json_t *walk_next(struct guard *g, struct containing *c, const json_t *given)
{
    json_t *out = NULL;

    if (c->least > 0) {
        out = walk_item(g, given, c->schema, false);
        if (out == NULL || !json_is_false(out)) {
            c->least--;
            c->most -= c->most > 0;
            return out;
        }
        json_decref(out); /* it cannot match */
        if (c->most > 0)  /* as far as grammars go: the opposite has no such values, either */
            return walk_item(g, given, c->schema, true);
    } else if (c->most == 0) {
        return walk_item(g, given, c->schema, true);
    } else {
        c->most -= c->most > 0;
    }
    return given != NULL ? guard_walk_at(g, given, "items", NULL) : json_object();
}

/* What is beside contains. */
static bool check_containing(struct guard *g, const json_t *s, const struct containing *c,
                             const json_t *list, const char *list_name, bool *ret_is_never)
{
    const json_t *rest = json_object_get(s, "unevaluatedItems");

    if (list != NULL && !json_is_array(list))
        return guard_fail(g, list_name, "must be a list of schemas") != NULL;
    if (c->most >= 0 && c->least > c->most) {
        json_decref(guard_never(g, "minContains", "is more than maxContains"));
        *ret_is_never = true;
    }
    return rest == NULL || json_is_true(rest) ||
           guard_leave_out(g, "unevaluatedItems", "cannot be enforced together with contains");
}

/* The items up to those that are all alike, which are written to out, as a prefix. */
static bool walk_containing(struct guard *g, json_t *out, json_t *prefix, const json_t *list,
                            const json_t *items, struct containing c, bool *ret_is_closed,
                            bool *ret_is_never)
{
    const size_t n = json_array_size(list);
    json_int_t n_needed = 0;
    json_t *one;

    for (size_t i = 0; (i < n || c.least > 0 || c.most > 0) && !*ret_is_closed; i++) {
        const json_int_t before = c.least;

        one = walk_next(g, &c, i < n ? json_array_get(list, i) : items);
        if (one == NULL)
            return false;
        if (c.least < before)
            n_needed = (json_int_t)i + 1;
        else if (i >= n && c.least > 0)
            *ret_is_closed = true; /* nor can a later one match */
        if (json_is_false(one)) {
            json_decref(one);
            *ret_is_closed = true;
        } else if (json_array_append_new(prefix, one) != 0) {
            return guard_no_memory(g) != NULL;
        }
    }
    if (c.least > 0) {
        json_decref(guard_never(g, "contains", "has a schema that too few items can match"));
        *ret_is_never = true;
        return true;
    }
    if (!*ret_is_closed && (c.most == 0 || items != NULL)) {
        one = walk_next(g, &c, items);
        *ret_is_closed = json_is_false(one);
        if (one == NULL)
            return false;
        if (json_object_set_new(out, "items", one) != 0)
            return guard_no_memory(g) != NULL;
    }
    return size_in(out, "min_items", 0) >= n_needed ||
           json_object_set_new(out, "min_items", json_integer(n_needed)) == 0 ||
           guard_no_memory(g) != NULL;
}

/* Adds a value if it is not there. */
static bool add_value(json_t *values, json_t *value)
{
    for (size_t i = 0; i < json_array_size(values); i++)
        if (json_value_is_same(json_array_get(values, i), value))
            return true;
    return json_array_append(values, value) == 0;
}

/* Whether the schema asks for nothing but types and one list of values. */
static bool has_only_values(const json_t *schema)
{
    json_t *from = (json_t *)schema; /* jansson's iterators do not change it */
    size_t n_lists = 0;

    for (void *at = json_object_iter(from); at != NULL; at = json_object_iter_next(from, at)) {
        const char *name = json_object_iter_key(at);

        if (strcmp(name, "enum") == 0 || strcmp(name, "const") == 0)
            n_lists++;
        else if (strcmp(name, "type") != 0 && guard_is_keyword(schema, name))
            return false;
    }
    return n_lists == 1;
}

/* The values that items may have, each once; NULL: they are not just enumerated. */
static json_t *values_of_items(struct guard *g, const json_t *items)
{
    const json_t *end = guard_follow_alone(g, items);
    json_t *values = has_only_values(end) ? guard_values_of(end) : NULL,
           *out = json_array_size(values) <= MAX_UNIQUE ? json_array() : NULL;
    const unsigned types = guard_types(json_object_get(end, "type"));
    bool is_made = values != NULL && out != NULL;

    for (size_t i = 0; is_made && i < json_array_size(values); i++) {
        json_t *value = json_array_get(values, i);

        is_made = (guard_type_of_value(value) & types) == 0 || add_value(out, value);
    }
    json_decref(values);
    if (is_made)
        return out;
    json_decref(out);
    return NULL;
}

/* The types of a walked schema, as far as it says them at once. */
static unsigned types_of_walked(struct guard *g, const json_t *walked)
{
    const char *name = json_string_value(json_object_get(walked, "$ref"));

    if (name != NULL)
        walked = json_object_get(g->defs, name);
    return (unsigned)json_integer_value(json_object_get(walked, "types"));
}

/* The schema's values in parts that have none in common, as schemas; what has no value is left out.
 * NULL with an error in g. */
static json_t *walk_classes(struct guard *g, const json_t *items, bool is_string)
{
    static const char *const of_strings[] = {"^[A-Ea-e][^]*$", "^[F-Lf-l][^]*$",
                                             "^[M-Rm-r][^]*$", "^[S-Zs-z][^]*$",
                                             "^[0-9][^]*$",    "^(?![A-Za-z0-9])[^]*$"};
    static const double bounds[] = {0, 10, 100, 1000, 1e6};
    json_t *classes = json_array();

    for (size_t i = 0; classes != NULL && i < N_CLASSES; i++) {
        json_t *part = is_string ? json_pack("{s:s}", "pattern", of_strings[i]) : json_object();
        json_t *both, *one;

        if (!is_string && i > 0)
            (void)json_object_set_new(part, "minimum", json_real(bounds[i - 1])); /* seen below */
        if (!is_string && i + 1 < N_CLASSES)
            (void)json_object_set_new(part, "exclusiveMaximum", json_real(bounds[i]));
        both = json_pack("{s:[O,o]}", "allOf", items, part);
        one = both != NULL ? guard_walk_at(g, both, "items", NULL) : guard_no_memory(g);
        json_decref(both);
        if (one == NULL || (!json_is_false(one) && json_array_append(classes, one) != 0)) {
            json_decref(classes);
            classes = NULL;
        }
        json_decref(one);
    }
    return classes != NULL || g->err->status != STATUS_OK ? classes : guard_no_memory(g);
}

/* The same with a part of the work that is left: NULL without an error where that is too little, or
 * a part cannot be enforced. */
static json_t *walk_cheap_classes(struct guard *g, const json_t *items, bool is_string)
{
    const size_t kept = g->work - g->work / CLASSES_PART;
    json_t *classes;

    g->work -= kept;
    classes = walk_classes(g, items, is_string);
    g->work += kept;
    if (classes == NULL && g->err->status == STATUS_INVALID)
        *g->err = (struct error){0};
    return classes;
}

/* Items of any number of values: at most one of each part of them, or one. */
static bool walk_few(struct guard *g, json_t *out, const json_t *items)
{
    const unsigned types = types_of_walked(g, json_object_get(out, "items"));
    const bool is_string = types == TYPE_STRING,
               is_number = types == TYPE_NUMBER || types == TYPE_INTEGER;
    const json_int_t least = size_in(out, "min_items", 0);
    json_t *classes = is_string || is_number ? walk_cheap_classes(g, items, is_string) : NULL;
    size_t n = classes != NULL ? json_array_size(classes) : 1;

    if (g->err->status != STATUS_OK)
        return false;
    if (least > (json_int_t)n) {
        json_decref(classes);
        return guard_leave_out(g, "uniqueItems",
                               "can be enforced only for few items: 'minItems' "
                               "asks for more");
    }
    if (size_in(out, "max_items", N_CLASSES) >= (json_int_t)n)
        (void)json_object_del(out, "max_items"); /* it may be missing */
    if (classes != NULL ? json_object_set_new(out, "classes", classes) != 0
                        : json_object_set_new(out, "max_items", json_integer(1)) != 0)
        return guard_no_memory(g) != NULL;
    return true;
}

/* No item twice: where all are of a few values, or there is only one. A strict schema of other
 * items has few of them. */
static bool walk_unique(struct guard *g, json_t *out, const json_t *items)
{
    json_t *values;

    if (size_in(out, "max_items", 2) <= 1)
        return true;
    values = json_object_get(out, "prefix") == NULL ? values_of_items(g, items) : NULL;
    if (values == NULL && g->strict && json_object_get(out, "prefix") == NULL)
        return walk_few(g, out, items);
    if (values == NULL)
        return guard_leave_out(g, "uniqueItems",
                               "can be enforced only where items are enumerated values");
    if (json_object_set_new(out, "values", values) != 0)
        return guard_no_memory(g) != NULL;
    if (size_in(out, "max_items", MAX_UNIQUE) > (json_int_t)json_array_size(values))
        (void)json_object_del(out, "max_items"); /* it may be missing */
    return true;
}

/* No item twice, beside contains: a strict schema gets one item. */
static bool walk_one(struct guard *g, json_t *out)
{
    if (size_in(out, "max_items", 2) <= 1)
        return true;
    if (!g->strict || size_in(out, "min_items", 0) > 1)
        return guard_leave_out(g, "uniqueItems", "cannot be enforced together with contains");
    return json_object_set_new(out, "max_items", json_integer(1)) == 0 ||
           guard_no_memory(g) != NULL;
}

/* Bounds that its items cannot have, and the items beyond. */
static bool close_array(struct guard *g, json_t *out, json_t *prefix, bool is_closed,
                        bool *ret_is_never)
{
    const json_int_t least = size_in(out, "min_items", 0);
    json_int_t most = size_in(out, "max_items", -1);
    size_t n = json_array_size(json_object_get(out, "values"));

    if (is_closed && (most < 0 || most > (json_int_t)json_array_size(prefix))) {
        most = (json_int_t)json_array_size(prefix);
        if (json_object_set_new(out, "items", json_false()) != 0)
            return guard_no_memory(g) != NULL;
    }
    while (most >= 0 && (json_int_t)json_array_size(prefix) > most)
        (void)json_array_remove(prefix, json_array_size(prefix) - 1);
    if (most >= 0 && (json_int_t)json_array_size(prefix) == most &&
        json_object_set_new(out, "items", json_false()) != 0)
        return guard_no_memory(g) != NULL;
    if ((most >= 0 && least > most) || (n > 0 && least > (json_int_t)n)) {
        json_decref(guard_never(g, "minItems", "asks for more items than there may be"));
        *ret_is_never = true;
    }
    if (most >= 0 && json_object_set_new(out, "max_items", json_integer(most)) != 0)
        return guard_no_memory(g) != NULL;
    return true;
}

bool guard_array(struct guard *g, json_t *out, const json_t *s, bool *ret_is_never)
{
    const json_t *items = json_object_get(s, "items"), *list = json_object_get(s, "prefixItems");
    const char *rest_name = "items", *list_name = "prefixItems";
    const struct containing c = containing_of(s);
    json_t *prefix, *rest;
    bool is_closed = false, is_walked;

    if (g->is_trial && json_number_value(json_object_get(s, "minItems")) <= 0)
        return true;                            /* none is an array */
    if (json_is_array(items) && list == NULL) { /* the meaning in drafts before 2020 */
        list = items;
        list_name = "items";
        rest_name = "additionalItems";
        items = json_object_get(s, rest_name);
    }
    if (items == NULL) {
        rest_name = "unevaluatedItems";
        items = json_object_get(s, rest_name);
        if (!guard_check_unevaluated(g, s, rest_name))
            return false;
    }
    prefix = json_array();
    is_walked = prefix != NULL || guard_no_memory(g) != NULL;
    if (is_walked && json_object_set_new(out, "prefix", prefix) != 0)
        return guard_no_memory(g) != NULL;
    is_walked = is_walked && guard_size(g, out, s, "minItems", GUARD_MAX_ITEMS) &&
                guard_size(g, out, s, "maxItems", GUARD_MAX_ITEMS);
    if (is_walked && c.schema != NULL)
        is_walked = check_containing(g, s, &c, list, list_name, ret_is_never) &&
                    (*ret_is_never ||
                     walk_containing(g, out, prefix, list, items, c, &is_closed, ret_is_never));
    else if (is_walked && list != NULL)
        is_walked = walk_prefix(g, prefix, list, list_name, &is_closed);
    if (is_walked && c.schema == NULL && items != NULL && !is_closed) {
        rest = guard_walk_at(g, items, rest_name, NULL);
        is_closed = json_is_false(rest);
        is_walked = rest != NULL &&
                    (json_object_set_new(out, "items", rest) == 0 || guard_no_memory(g) != NULL);
    }
    if (is_walked && json_array_size(prefix) == 0)
        (void)json_object_del(out, "prefix");
    if (is_walked && json_is_true(json_object_get(s, "uniqueItems")) &&
        (!is_closed || json_array_size(prefix) > 1))
        is_walked = c.schema == NULL ? walk_unique(g, out, items) : walk_one(g, out);
    return is_walked &&
           close_array(g, out, json_object_get(out, "prefix"), is_closed, ret_is_never);
}
