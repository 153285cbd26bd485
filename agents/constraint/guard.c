/* Walks a schema and writes the grammar of its instances. Each schema is made normal, joined with
 * what holds beside it, and then taken type by type. A keyword that cannot be enforced is an error
 * if the schema is strict, and else is left out and listed. */
#include "agents/constraint/guard.h"

#include <stdio.h>

#include "agents/constraint/automaton.h"
#include "agents/constraint/guard_parts.h"
#include "agents/constraint/schema_grammar.h"

enum { MAX_TRIAL_DEPTH = 6 };

static json_t *walk_normal(struct guard *g, const json_t *s);
static json_t *guard_walk(struct guard *g, const json_t *schema);

/* A reference becomes one to a definition of ours, which is walked where it is met first. */
static json_t *walk_ref(struct guard *g, const json_t *ref)
{
    const char *pointer = json_string_value(ref);
    const json_t *known = pointer != NULL ? json_object_get(g->refs, pointer) : NULL;
    json_t *def;
    char name[24];

    if (known == NULL) {
        if (pointer == NULL || guard_resolve(g, pointer) == NULL)
            return guard_fail(g, "$ref", "does not name a schema in this document");
        if (guard_resolve_chain(g, pointer) == NULL)
            return guard_fail(g, "$ref", "leads to other references that do not end in a schema");
        (void)snprintf(name, sizeof(name), "d%zu", json_object_size(g->refs));
        known = json_string(name);
        if (known == NULL || json_object_set_new(g->refs, pointer, (json_t *)known) != 0)
            return guard_no_memory(g);
        def = guard_walk(g, guard_resolve(g, pointer));
        if (def == NULL)
            return NULL;
        if (json_object_set_new(g->defs, name, def) != 0)
            return guard_no_memory(g);
    }
    if (json_is_false(json_object_get(g->defs, json_string_value(known))))
        return json_false();
    def = json_pack("{s:O}", "$ref", known);
    return def != NULL ? def : guard_no_memory(g);
}

/* Adds what one alternative became, which it takes, to the list. */
static bool add_alternative(struct guard *g, json_t *out, json_t *one)
{
    if (one == NULL)
        return false;
    if (json_is_false(one)) {
        json_decref(one);
        return true;
    }
    return json_array_append_new(out, one) == 0 || guard_no_memory(g) != NULL;
}

/* One schema of those in the list, joined with what stands beside them; NULL without an error: they
 * cannot be joined. */
static json_t *walk_alternative(struct guard *g, const json_t *rest, const json_t *schema, size_t i)
{
    size_t outer = guard_path_push(g, "anyOf");
    char number[24];
    json_t *joined, *out = NULL;

    (void)snprintf(number, sizeof(number), "%zu", i);
    (void)guard_path_push(g, number);
    if (json_object_size(rest) == 0) {
        out = guard_walk(g, schema);
    } else {
        joined = json_copy((json_t *)rest); /* jansson does not change it */
        if (joined == NULL)
            (void)guard_no_memory(g);
        else if (guard_join(g, joined, schema, 0))
            out = walk_normal(g, joined);
        json_decref(joined);
    }
    guard_path_pop(g, outer);
    return out;
}

/* The first list of anyOf, whose alternatives have all that stands beside it. */
static json_t *walk_any_of(struct guard *g, const json_t *s)
{
    json_t *lists = json_object_get(s, "anyOf"), *list = json_array_get(lists, 0),
           *rest = json_copy((json_t *)s), *out = json_array(), *others, *holder;
    bool is_walked = rest != NULL && out != NULL && json_object_del(rest, "anyOf") == 0;

    if (is_walked && json_array_size(lists) > 1) {
        others = json_copy(lists);
        is_walked = others != NULL && json_array_remove(others, 0) == 0 &&
                    json_object_set_new(rest, "anyOf", others) == 0;
    }
    if (!is_walked)
        (void)guard_no_memory(g);
    for (size_t i = 0; is_walked && i < json_array_size(list); i++) {
        const json_t *schema = json_array_get(list, i);
        json_t *one = walk_alternative(g, rest, schema, i);
        const bool may_miss = one == NULL && g->err->status == STATUS_OK &&
                              json_object_get(schema, GUARD_OPTIONAL) != NULL;

        is_walked = may_miss || add_alternative(g, out, one);
    }
    if (!is_walked && g->err->status == STATUS_OK) { /* one cannot be joined */
        json_decref(out);
        out = NULL;
        if (guard_leave_out(g, "anyOf", "cannot be enforced together with the other keywords"))
            out = walk_normal(g, rest);
        json_decref(rest);
        return out;
    }
    json_decref(rest);
    if (is_walked && json_array_size(out) > 1) {
        holder = json_pack("{s:o}", "anyOf", out);
        return holder != NULL ? holder : guard_no_memory(g);
    }
    holder = !is_walked ? NULL
             : json_array_size(out) == 1
                 ? json_incref(json_array_get(out, 0))
                 : guard_never(g, "anyOf", "has no alternative that any value can match");
    json_decref(out);
    return holder;
}

/* What each type becomes, written to out; the types that are left. */
static bool walk_types(struct guard *g, json_t *out, const json_t *s, unsigned *types)
{
    static const struct {
        unsigned types;
        bool (*walk)(struct guard *g, json_t *out, const json_t *s, bool *ret_is_never);
    } walks[] = {
        {TYPE_STRING, guard_string}, {TYPE_ARRAY, guard_array}, {TYPE_OBJECT, guard_object}};

    for (size_t i = 0; i < sizeof(walks) / sizeof(walks[0]); i++) {
        bool is_never = false;

        if ((*types & walks[i].types) == 0)
            continue;
        if (!walks[i].walk(g, out, s, &is_never))
            return false;
        if (is_never)
            *types &= ~walks[i].types;
    }
    if ((*types & (TYPE_INTEGER | TYPE_NUMBER)) != 0) {
        bool is_never = false;

        if (!guard_number(g, out, s, (*types & TYPE_NUMBER) == 0, &is_never))
            return false;
        if (is_never)
            *types &= ~(unsigned)(TYPE_INTEGER | TYPE_NUMBER);
    }
    return true;
}

static json_t *walk_typed(struct guard *g, const json_t *s)
{
    const json_t *not = json_object_get(s, "not");
    unsigned types = guard_types(json_object_get(s, "type"));
    json_t *out;

    if (types == 0)
        return guard_fail(g, "type", "is not a type or a list of types");
    if (json_object_get(s, "enum") != NULL)
        return guard_enum(g, s, types);
    if (json_object_size(s) == 0) {
        out = json_object();
        return out != NULL ? out : guard_no_memory(g);
    }
    for (size_t i = 0; i < json_array_size(not ); i++) { /* strings: see guard_string */
        const json_t *value = json_array_get(not, i);
        const unsigned type = guard_type_of_value(value);

        if (type == TYPE_NULL)
            types &= ~(unsigned)TYPE_NULL;
        else if ((type & types) != 0 && type != TYPE_STRING &&
                 !guard_leave_out(g, "not", "cannot be enforced for values but null and strings"))
            return NULL;
    }
    out = json_object();
    if (out == NULL)
        return guard_no_memory(g);
    if (!walk_types(g, out, s, &types)) {
        json_decref(out);
        return NULL;
    }
    if (types == 0) {
        json_decref(out);
        return json_false(); /* the type has said why */
    }
    if (json_object_set_new(out, "types", json_integer(types)) == 0)
        return out;
    json_decref(out);
    return guard_no_memory(g);
}

/* What cannot be joined is left out, or fails. */
static json_t *walk_unjoined(struct guard *g, const json_t *s)
{
    const char *name = json_object_get(s, "allOf") != NULL ? "allOf" : "$ref";
    json_t *rest, *out;

    if (g->err->status != STATUS_OK ||
        !guard_leave_out(g, name, "cannot be enforced together with the other keywords"))
        return NULL;
    rest = json_copy((json_t *)s); /* jansson does not change it */
    if (rest == NULL)
        return guard_no_memory(g);
    (void)json_object_del(rest, "allOf"); /* the members may be missing */
    (void)json_object_del(rest, "$ref");
    out = walk_normal(g, rest);
    json_decref(rest);
    return out;
}

static json_t *walk_joined(struct guard *g, const json_t *s)
{
    const json_t *all = json_object_get(s, "allOf"), *ref = json_object_get(s, "$ref");
    json_t *joined, *out;

    if (ref != NULL && json_object_size(s) == 1)
        return walk_ref(g, ref);
    if (json_array_size(all) == 1 && json_object_size(s) == 1)
        return guard_walk_at(g, json_array_get(all, 0), "allOf", "0");
    if (all != NULL || ref != NULL) {
        joined = guard_fold(g, s, 0);
        out = joined != NULL ? walk_normal(g, joined) : walk_unjoined(g, s);
        json_decref(joined);
        return out;
    }
    return json_object_get(s, "anyOf") != NULL ? walk_any_of(g, s) : walk_typed(g, s);
}

static json_t *walk_normal(struct guard *g, const json_t *s)
{
    json_t *out;

    if (!guard_count(g, "schemas", 1))
        return NULL;
    if (g->depth == GUARD_MAX_DEPTH)
        return guard_fail(g, "schemas", "are nested too deeply");
    g->depth++;
    out = walk_joined(g, s);
    g->depth--;
    return out;
}

static json_t *guard_walk(struct guard *g, const json_t *schema)
{
    json_t *normal, *out = NULL;

    if (json_is_true(schema) || (g->is_trial && g->depth > MAX_TRIAL_DEPTH))
        return json_object();
    if (json_is_false(schema))
        return guard_never(g, "false", "is a schema that no value matches");
    if (!json_is_object(schema))
        return guard_fail(g, "schema", "must be an object, true or false");
    normal = guard_normal(g, schema);
    if (normal != NULL)
        out = walk_normal(g, normal);
    json_decref(normal);
    return out;
}

enum status guard_schema(struct buf *out, const json_t *schema, bool strict, struct buf *left_out,
                         size_t *work, struct error *err)
{
    struct guard g = {.root = schema,
                      .walk = guard_walk,
                      .left_out = left_out,
                      .strict = strict,
                      .work = *work,
                      .err = err};
    json_t *top = NULL;

    *err = (struct error){0};
    g.refs = json_object();
    g.defs = json_object();
    g.names = json_object();
    g.made = json_object();
    buf_init(&g.path, 64 << 10);
    if (g.refs == NULL || g.defs == NULL || g.names == NULL || g.made == NULL ||
        buf_append_text(&g.path, "#") != STATUS_OK)
        (void)guard_no_memory(&g);
    else if (guard_find_names(&g) && guard_any_number(&g))
        top = guard_walk(&g, schema);
    if (json_is_false(top))
        (void)error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, NULL, "%s", g.never);
    else if (top != NULL)
        (void)!schema_grammar_write(out, top, g.defs, err); /* in err */
    json_decref(top);
    json_decref(g.refs);
    json_decref(g.defs);
    json_decref(g.names);
    json_decref(g.made);
    buf_deinit(&g.path);
    *work = g.work;
    return err->status;
}
