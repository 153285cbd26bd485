/* Objects: members by their names, and the rest of them by automata of their names. An object with
 * named members gets no others, unless the schema says what they are like: small models would write
 * many. */
#include <stdlib.h>
#include <string.h>

#include "agents/constraint/guard.h"
#include "agents/constraint/guard_parts.h"
#include "agents/constraint/string_automaton.h"
#include "base/alloc.h"

enum {
    SCRATCH_BYTES = 48 << 20,
    MAX_PATTERNS = 16, /* of names */
    MAX_SETS = 64,     /* of patterns that one name may match: each has an automaton */
    MAX_COUNTED = 2 * (GUARD_MAX_ITEMS + 1), /* members times counts */
    MAX_LEAST = 16,
    MAX_NAMES_DEPTH = 8,        /* of alternatives in propertyNames */
    MANY = GUARD_MAX_NODES + 1, /* members: no schema names so many */
    N_PARTINGS = 2, /* ways to tell names apart: by their first character, by their last */
};

struct pattern {
    const char *text;
    json_t *schema;
    struct automaton names; /* that it is found in */
    size_t apart;           /* patterns that are found in none of these, as bits */
};

struct object_walk {
    struct guard *g;
    const json_t *s;
    struct arena arena;
    struct pattern patterns[MAX_PATTERNS]; /* [n_patterns] */
    size_t n_patterns;
    struct string_rules names; /* what propertyNames asks for */
    struct automaton all_names;
    bool has_names;
    const json_t *rest; /* the schema of members without a name or a pattern; NULL: any */
    const char *rest_name;
    json_t *members;    /* as schema_grammar.h has them */
    json_t *required;   /* a member for each of the names */
    const char **known; /* [n_known]: names that were looked at */
    size_t n_known;
    size_t n_distinct; /* of the members that must be there beside those that are required, each
                          has a name of a kind of its own; 0: there is no need */
};

static bool is_trivial(const json_t *schema)
{
    return json_is_true(schema) || (json_is_object(schema) && json_object_size(schema) == 0);
}

static bool because(struct guard *g, const char *keyword, const struct error *why)
{
    char message[ERROR_TEXT_MAX];

    if (why->status != STATUS_UNIMPLEMENTED) {
        *g->err = *why;
        return false;
    }
    (void)snprintf(message, sizeof(message), "cannot be enforced: it %.150s", why->text);
    return guard_leave_out(g, keyword, message);
}

/* --- what is asked of names --- */

static bool open_patterns(struct object_walk *o)
{
    json_t *patterns = json_object_get(o->s, "patternProperties");

    if (patterns != NULL && !json_is_object(patterns))
        return guard_fail(o->g, "patternProperties", "must be an object") != NULL;
    for (void *at = json_object_iter(patterns); at != NULL;
         at = json_object_iter_next(patterns, at)) {
        struct pattern *p = &o->patterns[o->n_patterns];
        struct error why = {0};

        if (o->n_patterns == MAX_PATTERNS)
            return guard_leave_out(o->g, "patternProperties", "has more than 16 patterns");
        p->text = json_object_iter_key(at);
        p->schema = json_object_iter_value(at);
        if (string_pattern(&p->names, p->text, strlen(p->text), &o->g->work, &o->arena, &why) ==
            STATUS_OK)
            o->n_patterns++;
        else if (!because(o->g, "patternProperties", &why))
            return false;
    }
    return true;
}

/* Finds which patterns no name matches both of. */
static bool part_patterns(struct object_walk *o)
{
    for (size_t i = 0; i < o->n_patterns; i++)
        for (size_t k = 0; k < i; k++) {
            struct automaton both;
            struct string_rules r;
            struct error why = {0};

            string_rules_init(&r, &o->g->work, &o->arena);
            if (string_rules_add(&r, &o->patterns[i].names, false, &why) != STATUS_OK ||
                string_rules_add(&r, &o->patterns[k].names, false, &why) != STATUS_OK ||
                string_rules_join(&r, &both, &why) != STATUS_OK)
                return because(o->g, "patternProperties", &why);
            if (both.n_states == 0) {
                o->patterns[i].apart |= (size_t)1 << k;
                o->patterns[k].apart |= (size_t)1 << i;
            }
        }
    return true;
}

/* Only these strings, those of the list. */
static bool add_enumerated(struct object_walk *o, struct string_rules *to, const json_t *list)
{
    const size_t n = json_array_size(list);
    const char **texts = arena_alloc(&o->arena, n + 1, sizeof(*texts));
    size_t *lens = arena_alloc(&o->arena, n + 1, sizeof(*lens)), n_texts = 0;
    struct error why = {0};

    if (texts == NULL || lens == NULL)
        return guard_no_memory(o->g) != NULL;
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(list, i);

        if (json_is_string(value)) {
            texts[n_texts] = json_string_value(value);
            lens[n_texts++] = json_string_length(value);
        }
    }
    return string_rules_add_texts(to, texts, lens, n_texts, false, &why) == STATUS_OK ||
           because(o->g, "propertyNames", &why);
}

/* What a schema with nothing to be joined asks of strings, but for its alternatives. */
static bool add_normal_names(struct object_walk *o, struct string_rules *to, const json_t *s)
{
    const json_t *list = json_object_get(s, "enum");
    const unsigned types = guard_types(json_object_get(s, "type"));
    const size_t least = to->least, most = to->most;

    if (types == 0)
        return guard_fail(o->g, "type", "is not a type or a list of types") != NULL;
    if ((types & TYPE_STRING) == 0)
        return add_enumerated(o, to, NULL);
    if (!guard_string_rules(o->g, to, s))
        return false;
    to->least = least > to->least ? least : to->least;
    to->most = most < to->most ? most : to->most;
    if (o->g->is_trial) { /* the automaton might not reach to the longest names */
        to->least = 0;
        to->most = SIZE_MAX;
    }
    return list == NULL || add_enumerated(o, to, list);
}

static bool add_names(struct object_walk *o, struct string_rules *to, const json_t *schema,
                      unsigned depth);

/* One automaton more of names that are not wanted. */
static enum status names_exclude(struct string_rules *none, const struct string_rules *one,
                                 struct error *why)
{
    struct automaton a;
    enum status rc = STATUS_OK;

    if (none->n_parts == STRING_MAX_PARTS) {
        rc = string_rules_join(none, &a, why);
        none->n_parts = 0;
        if (rc == STATUS_OK)
            rc = string_rules_add(none, &a, false, why);
    }
    if (rc == STATUS_OK)
        rc = string_rules_join(one, &a, why);
    return rc == STATUS_OK ? string_rules_add(none, &a, true, why) : rc;
}

/* Names that match an alternative: they are none of those that match none. */
static bool add_any_of(struct object_walk *o, struct string_rules *to, const json_t *list,
                       unsigned depth)
{
    struct string_rules none, one;
    struct automaton others;
    struct error why = {0};

    string_rules_init(&none, &o->g->work, &o->arena);
    for (size_t i = 0; i < json_array_size(list) && why.status == STATUS_OK; i++) {
        const json_t *schema = json_array_get(list, i);

        string_rules_init(&one, &o->g->work, &o->arena);
        if (!add_names(o, &one, schema, depth + 1)) {
            if (o->g->err->status == STATUS_OK && !o->g->is_trial &&
                json_object_get(schema, GUARD_OPTIONAL) != NULL)
                continue;
            return false;
        }
        if (one.n_parts == 0 && one.least == 0 && one.most == SIZE_MAX)
            return true;                        /* it matches all */
        (void)names_exclude(&none, &one, &why); /* in why */
    }
    if (why.status == STATUS_OK && string_rules_join(&none, &others, &why) == STATUS_OK &&
        others.n_states > 0)
        (void)!string_rules_add(to, &others, true, &why);
    return why.status == STATUS_OK || because(o->g, "propertyNames", &why);
}

/* What the schema asks of names. False without an error: it has no such form. */
static bool add_names(struct object_walk *o, struct string_rules *to, const json_t *schema,
                      unsigned depth)
{
    json_t *normal = NULL, *s = NULL;
    bool is_added = false;

    if (json_is_true(schema))
        return true;
    if (json_is_false(schema))
        return add_enumerated(o, to, NULL);
    if (!json_is_object(schema))
        return guard_fail(o->g, "propertyNames", "must be a schema") != NULL;
    if (depth < MAX_NAMES_DEPTH)
        normal = guard_normal(o->g, schema);
    if (normal != NULL)
        s = guard_fold(o->g, normal, 0);
    if (s != NULL) {
        const json_t *lists = json_object_get(s, "anyOf");

        is_added = add_normal_names(o, to, s);
        for (size_t i = 0; is_added && i < json_array_size(lists); i++) {
            const json_t *list = json_array_get(lists, i);

            is_added = json_array_size(list) == 1
                           ? add_names(o, to, json_array_get(list, 0), depth + 1)
                           : add_any_of(o, to, list, depth);
        }
    }
    json_decref(normal);
    json_decref(s);
    return is_added;
}

static bool open_names(struct object_walk *o)
{
    const json_t *list = json_object_get(o->s, "propertyNames");
    struct error why = {0};

    string_rules_init(&o->names, &o->g->work, &o->arena);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const size_t outer = guard_path_push(o->g, "propertyNames");
        const bool is_added = add_names(o, &o->names, json_array_get(list, i), 0);

        guard_path_pop(o->g, outer);
        if (!is_added && (o->g->err->status != STATUS_OK ||
                          !guard_leave_out(o->g, "propertyNames",
                                           "has schemas that cannot be enforced together")))
            return false;
    }
    o->has_names = o->names.n_parts > 0 || o->names.least > 0 || o->names.most < SIZE_MAX;
    if (o->has_names && string_rules_join(&o->names, &o->all_names, &why) != STATUS_OK) {
        o->has_names = false;
        return because(o->g, "propertyNames", &why);
    }
    return true;
}

/* --- members with names --- */

/* What is asked of a member where no pattern is found in its name. */
static bool add_unpatterned(const struct object_walk *o, json_t *all, const char *name)
{
    const json_t *pairs = json_object_get(o->s, "-patterned");
    bool is_added = true;

    for (size_t i = 0; is_added && i < json_array_size(pairs); i++) {
        const json_t *pair = json_array_get(pairs, i);

        if (strcmp(json_string_value(json_array_get(pair, 0)), name) == 0)
            is_added = json_array_append(all, json_array_get(pair, 1)) == 0;
    }
    return is_added;
}

/* The schema of a member that has this name: the given one with those of the patterns that are
 * found in the name; a new reference. */
static json_t *schema_of(struct object_walk *o, const char *name, const json_t *given)
{
    json_t *all = json_array(), *out;
    bool is_made = all != NULL;

    for (size_t i = 0; is_made && i < o->n_patterns; i++)
        if (automaton_matches(&o->patterns[i].names, name, strlen(name)))
            is_made = json_array_append(all, o->patterns[i].schema) == 0;
    if (is_made && json_array_size(all) == 0) {
        is_made = add_unpatterned(o, all, name);
        if (given == NULL)
            given = o->rest;
    }
    if (is_made && given != NULL)
        is_made = json_array_insert(all, 0, (json_t *)given) == 0;
    if (!is_made) {
        json_decref(all);
        return guard_no_memory(o->g);
    }
    if (json_array_size(all) == 0)
        out = json_true();
    else if (json_array_size(all) == 1)
        out = json_incref(json_array_get(all, 0));
    else
        out = json_pack("{s:O}", "allOf", all);
    json_decref(all);
    return out != NULL ? out : guard_no_memory(o->g);
}

static bool object_requires(const struct object_walk *o, const char *name)
{
    return json_object_get(o->required, name) != NULL;
}

/* given: NULL where only required names the member. */
static bool add_member(struct object_walk *o, const char *name, const json_t *given,
                       bool is_member_required, bool *ret_is_never)
{
    json_t *schema = schema_of(o, name, given), *walked;

    if (schema == NULL)
        return false;
    o->known[o->n_known++] = name;
    if (o->has_names && !automaton_matches(&o->all_names, name, strlen(name)))
        walked = guard_never(o->g, "propertyNames", "does not allow a name that is required");
    else if (given == NULL && json_is_false(schema))
        walked = guard_never(o->g, "required", "names a property that the schema does not allow");
    else
        walked = guard_walk_at(o->g, schema, "properties", name);
    json_decref(schema);
    if (walked == NULL)
        return false;
    if (json_is_false(walked)) {
        json_decref(walked);
        *ret_is_never = *ret_is_never || is_member_required;
        return true;
    }
    return json_array_append_new(o->members,
                                 json_pack("[s,o,b]", name, walked, is_member_required)) == 0 ||
           guard_no_memory(o->g) != NULL;
}

static bool check_required(struct guard *g, const json_t *required)
{
    if (required != NULL && !json_is_array(required))
        return guard_fail(g, "required", "must be a list") != NULL;
    if (!guard_count(g, "required", json_array_size(required)))
        return false;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const json_t *name = json_array_get(required, i);

        if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name))
            return guard_fail(g, "required", "must be a list of names") != NULL;
    }
    return true;
}

static bool walk_members(struct object_walk *o, bool *ret_is_never)
{
    json_t *from = json_object_get(o->s, "properties");
    const json_t *required = json_object_get(o->s, "required");

    if (from != NULL && !json_is_object(from))
        return guard_fail(o->g, "properties", "must be an object") != NULL;
    if (!check_required(o->g, required))
        return false;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (json_object_set_new(o->required, json_string_value(json_array_get(required, i)),
                                json_true()) != 0)
            return guard_no_memory(o->g) != NULL;
    o->known = arena_alloc(&o->arena, json_object_size(from) + json_array_size(required) + 1,
                           sizeof(*o->known));
    if (o->known == NULL)
        return guard_no_memory(o->g) != NULL;
    for (void *at = json_object_iter(from); at != NULL; at = json_object_iter_next(from, at)) {
        const bool is_required = object_requires(o, json_object_iter_key(at));

        if ((is_required || !o->g->is_trial) &&
            !add_member(o, json_object_iter_key(at), json_object_iter_value(at), is_required,
                        ret_is_never))
            return false;
    }
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));

        /* once, where it is not among the properties */
        if (json_object_get(from, name) == NULL &&
            json_is_true(json_object_get(o->required, name)) &&
            (!add_member(o, name, NULL, true, ret_is_never) ||
             json_object_set_new(o->required, name, json_null()) != 0))
            return false;
    }
    return true;
}

/* --- the rest --- */

static void class_put(char *at, size_t kind, size_t n_kinds, bool is_upper)
{
    const size_t first = 26 * kind / n_kinds, last = 26 * (kind + 1) / n_kinds - 1;

    (void)snprintf(at, 4, "%c-%c", (int)((is_upper ? 'A' : 'a') + first),
                   (int)((is_upper ? 'A' : 'a') + last));
}

/* Adds to out, a list, what is left of the names in one of the kinds, by their first or last
 * character: an automaton, or false. The last kind has all characters that no other has. */
static bool add_kind(struct object_walk *o, json_t *out, const struct string_rules *names,
                     size_t kind, bool is_by_last, struct error *why)
{
    const bool is_rest = kind + 1 == o->n_distinct;
    struct string_rules r = *names;
    char pattern[8 * MAX_LEAST + 8] = "";
    struct automaton kept, text;
    size_t len = 0;
    enum status rc;
    struct buf key;

    len += (size_t)snprintf(pattern, sizeof(pattern), "%s[%s", is_by_last ? "" : "^",
                            is_rest ? "^" : "");
    for (size_t i = is_rest ? 0 : kind; i < (is_rest ? o->n_distinct - 1 : kind + 1); i++) {
        class_put(pattern + len, i, o->n_distinct, false);
        class_put(pattern + len + 3, i, o->n_distinct, true);
        len += 6;
    }
    (void)snprintf(pattern + len, sizeof(pattern) - len, "]%s", is_by_last ? "$" : "");
    buf_init(&key, GUARD_MAX_BYTES);
    rc = string_rules_add_pattern(&r, pattern, strlen(pattern), why);
    if (rc == STATUS_OK)
        rc = string_rules_join(&r, &kept, why);
    if (rc == STATUS_OK && kept.n_states > 0)
        rc = string_to_json(&text, &kept, &o->g->work, &o->arena, why);
    if (rc == STATUS_OK && kept.n_states > 0)
        rc = automaton_put(&key, &text);
    if (rc == STATUS_OK &&
        json_array_append_new(out, kept.n_states > 0 ? json_string(key.data) : json_false()) != 0)
        rc = error_no_memory(why, 0, "a schema");
    buf_deinit(&key);
    return rc == STATUS_OK;
}

/* The names in kinds, for each way to part them; NULL with the error in why. */
static json_t *kinds_of(struct object_walk *o, const struct string_rules *names, struct error *why)
{
    json_t *ways = json_array();

    for (size_t way = 0; way < N_PARTINGS; way++) {
        json_t *kinds = json_array();

        if (kinds == NULL || json_array_append_new(ways, kinds) != 0) {
            (void)error_no_memory(why, 0, "a schema");
            break;
        }
        for (size_t i = 0; i < o->n_distinct && why->status == STATUS_OK; i++)
            if (!add_kind(o, kinds, names, i, way > 0, why))
                break;
    }
    if (why->status == STATUS_OK)
        return ways;
    json_decref(ways);
    return NULL;
}

/* The names that are found in the patterns of the set and in no others, and are not known. */
static bool add_rest(struct object_walk *o, json_t *rest, size_t set, const json_t *given)
{
    struct string_rules r;
    struct automaton names, text;
    struct error why = {0};
    size_t *lens = arena_alloc(&o->arena, o->n_known + 1, sizeof(*lens));
    enum status rc = STATUS_OK;
    json_t *all = json_array(), *kinds = NULL, *value, *one;
    struct buf key;
    bool is_added = false;

    string_rules_init(&r, &o->g->work, &o->arena);
    buf_init(&key, GUARD_MAX_BYTES);
    if (lens == NULL || all == NULL) {
        json_decref(all);
        return guard_no_memory(o->g) != NULL;
    }
    for (size_t i = 0; i < o->n_known; i++)
        lens[i] = strlen(o->known[i]);
    if (o->n_known > 0)
        rc = string_rules_add_texts(&r, o->known, lens, o->n_known, true, &why);
    if (rc == STATUS_OK && o->has_names)
        rc = string_rules_add(&r, &o->all_names, false, &why);
    for (size_t i = 0; rc == STATUS_OK && i < o->n_patterns; i++) {
        const bool is_in = (set >> i & 1) != 0;

        if (is_in || (o->patterns[i].apart & set) == 0)
            rc = string_rules_add(&r, &o->patterns[i].names, !is_in, &why);
        if (is_in && rc == STATUS_OK && json_array_append(all, o->patterns[i].schema) != 0)
            rc = error_no_memory(&why, 0, "a schema");
    }
    if (rc == STATUS_OK && given != NULL && json_array_append(all, (json_t *)given) != 0)
        rc = error_no_memory(&why, 0, "a schema");
    if (rc == STATUS_OK && r.n_parts > 0)
        rc = string_rules_join(&r, &names, &why);
    if (rc == STATUS_OK && r.n_parts > 0 && names.n_states > 0)
        rc = string_to_json(&text, &names, &o->g->work, &o->arena, &why);
    if (rc == STATUS_OK && r.n_parts > 0 && names.n_states > 0)
        rc = automaton_put(&key, &text);
    if (rc == STATUS_OK && o->n_distinct > 0) {
        kinds = kinds_of(o, &r, &why);
        rc = why.status;
    }
    if (rc != STATUS_OK) {
        is_added =
            because(o->g, o->n_patterns > 0 ? "patternProperties" : "additionalProperties", &why);
    } else if (r.n_parts > 0 && names.n_states == 0) {
        is_added = true; /* there are no such names */
    } else {
        one = json_array_size(all) == 0   ? json_true()
              : json_array_size(all) == 1 ? json_incref(json_array_get(all, 0))
                                          : json_pack("{s:O}", "allOf", all);
        value = guard_walk_at(o->g, one, set != 0 ? "patternProperties" : o->rest_name, NULL);
        json_decref(one);
        is_added = value != NULL;
        if (json_is_false(value))
            json_decref(value);
        else if (value != NULL)
            is_added =
                json_array_append_new(
                    rest, json_pack("[o,o,O*]", key.len > 0 ? json_string(key.data) : json_null(),
                                    value, kinds)) == 0 ||
                guard_no_memory(o->g) != NULL;
    }
    buf_deinit(&key);
    json_decref(all);
    json_decref(kinds);
    return is_added;
}

/* Are members allowed that have no name here, and no pattern? */
static bool is_open(const struct object_walk *o)
{
    const double least = json_number_value(json_object_get(o->s, "minProperties"));

    if (json_is_false(o->rest))
        return false;
    if (o->rest != NULL && !is_trivial(o->rest))
        return true;
    return (o->n_known == 0 && o->n_patterns == 0) ||
           (o->n_patterns == 0 && least > (double)json_array_size(o->members));
}

static size_t count_required(const struct object_walk *o)
{
    size_t n = 0;

    for (size_t i = 0; i < json_array_size(o->members); i++)
        n += json_is_true(json_array_get(json_array_get(o->members, i), 2));
    return n;
}

/* No two patterns of the set are apart. */
static bool set_has_names(const struct object_walk *o, size_t set)
{
    for (size_t i = 0; i < o->n_patterns; i++)
        if ((set >> i & 1) != 0 && (o->patterns[i].apart & set) != 0)
            return false;
    return true;
}

static bool walk_rest(struct object_walk *o, json_t *rest)
{
    const double least = json_number_value(json_object_get(o->s, "minProperties"));

    /* a name that is not one of ours could come twice */
    if (least <= MAX_LEAST && least > 1 + (double)count_required(o))
        o->n_distinct = (size_t)least - count_required(o);

    for (size_t set = 1, n = 0; set < (size_t)1 << o->n_patterns; set++) {
        if (!set_has_names(o, set))
            continue;
        if (n++ == MAX_SETS) {
            if (!guard_leave_out(o->g, "patternProperties",
                                 "has too many patterns that one name may match"))
                return false;
            break;
        }
        if (!add_rest(o, rest, set, NULL))
            return false;
    }
    return !is_open(o) || add_rest(o, rest, 0, o->rest);
}

/* --- how many --- */

/* Whether each kind of names, parted in this way, has some. */
static bool kinds_are_there(const struct object_walk *o, const json_t *rest, size_t way)
{
    for (size_t kind = 0; kind < o->n_distinct; kind++) {
        bool is_there = false;

        for (size_t i = 0; i < json_array_size(rest); i++) {
            const json_t *kinds = json_array_get(json_array_get(json_array_get(rest, i), 2), way);

            is_there = is_there || json_is_string(json_array_get(kinds, kind));
        }
        if (!is_there)
            return false;
    }
    return true;
}

/* Each of the rest keeps the kinds of one way, if there is a way: else false, and none. */
static bool choose_kinds(const struct object_walk *o, json_t *rest)
{
    size_t way = 0;

    while (way < N_PARTINGS && !kinds_are_there(o, rest, way))
        way++;
    for (size_t i = 0; i < json_array_size(rest); i++) {
        json_t *one = json_array_get(rest, i),
               *kinds = json_incref(json_array_get(json_array_get(one, 2), way));

        (void)json_array_remove(one, 2);
        if (kinds != NULL)
            (void)json_array_append_new(one, kinds); /* where one was taken away */
    }
    return way < N_PARTINGS;
}

static bool walk_counts(struct object_walk *o, json_t *out, json_t *rest, bool *ret_is_never)
{
    const size_t n = json_array_size(o->members);
    const bool is_rest = json_array_size(rest) > 0;
    const size_t n_required = count_required(o);
    size_t least, most;

    if (!guard_size(o->g, out, o->s, "minProperties", MANY) ||
        !guard_size(o->g, out, o->s, "maxProperties", MANY))
        return false;
    least = (size_t)json_integer_value(json_object_get(out, "min_members"));
    most = json_object_get(out, "max_members") != NULL
               ? (size_t)json_integer_value(json_object_get(out, "max_members"))
               : SIZE_MAX;
    if (least <= n_required) {
        (void)json_object_del(out, "min_members"); /* it may be missing */
        least = 0;
    }
    if (!is_rest && most >= n) {
        (void)json_object_del(out, "max_members");
        most = SIZE_MAX;
    }
    if (n_required > most || (!is_rest && least > n) || least > most) {
        json_decref(guard_never(o->g, least > most || least > n ? "minProperties" : "maxProperties",
                                "cannot be satisfied by the properties that there may be"));
        *ret_is_never = true;
        return true;
    }
    if (o->n_distinct > 0 && !choose_kinds(o, rest) && is_rest) {
        (void)json_object_del(out, "min_members");
        return guard_leave_out(o->g, "minProperties",
                               "is enforced only up to 1 where all names begin and end alike");
    }
    if (least > MAX_LEAST) {
        (void)json_object_del(out, "min_members");
        return guard_leave_out(o->g, "minProperties", "is larger than the compiler's limit, 16");
    }
    if (most != SIZE_MAX && most > GUARD_MAX_ITEMS) {
        most = GUARD_MAX_ITEMS;
        if (json_object_set_new(out, "max_members", json_integer(GUARD_MAX_ITEMS)) != 0)
            return guard_no_memory(o->g) != NULL;
    }
    if (most != SIZE_MAX && (n + 1) * (most + 1) > MAX_COUNTED) {
        (void)json_object_del(out, "max_members");
        return guard_leave_out(o->g, "maxProperties", "is too large to be counted");
    }
    return true;
}

bool guard_object(struct guard *g, json_t *out, const json_t *s, bool *ret_is_never)
{
    struct object_walk *o = try_alloc(1, sizeof(*o));
    json_t *rest = json_array();
    bool is_walked;

    if (o == NULL || rest == NULL) {
        free(o);
        json_decref(rest);
        return guard_no_memory(g) != NULL;
    }
    *o = (struct object_walk){.g = g, .s = s, .members = json_array(), .required = json_object()};
    arena_init(&o->arena, SCRATCH_BYTES);
    o->rest_name = "additionalProperties";
    o->rest = json_object_get(s, o->rest_name);
    if (o->rest == NULL) {
        o->rest_name = "unevaluatedProperties";
        o->rest = json_object_get(s, o->rest_name);
    }
    is_walked = (o->members != NULL && o->required != NULL) || guard_no_memory(g) != NULL;
    is_walked =
        is_walked && guard_check_unevaluated(g, s, o->rest_name) && open_patterns(o) &&
        open_names(o) && walk_members(o, ret_is_never) &&
        (*ret_is_never || g->is_trial ||
         (part_patterns(o) && walk_rest(o, rest) && walk_counts(o, out, rest, ret_is_never)));
    if (is_walked && (json_object_set(out, "members", o->members) != 0 ||
                      json_object_set(out, "rest", rest) != 0))
        is_walked = guard_no_memory(g) != NULL;
    json_decref(o->members);
    json_decref(o->required);
    json_decref(rest);
    arena_deinit(&o->arena);
    free(o);
    return is_walked;
}
