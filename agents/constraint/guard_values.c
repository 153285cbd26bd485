/* Strings and numbers: all that is asked of them becomes one automaton, as text. */
#include "agents/constraint/guard.h"
#include "agents/constraint/guard_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/constraint/json_value.h"
#include "agents/constraint/number_automaton.h"
#include "agents/constraint/string_automaton.h"
#include "base/alloc.h"

enum {
    SCRATCH_BYTES = 48 << 20, /* for the automata of one string or number */
    MAX_LEAST = 32,           /* characters that are counted by an automaton */
    FEW_RANGES = 16,          /* a set of more takes many states for each character of a string */
    HEAD_REACH = 32,          /* characters behind a head that its automaton has, too */
    LONG_TAIL = 512,          /* characters; shorter strings have automata that count them all */
    HEAD_SLACK = 16,          /* characters of a head beyond its shortest one */
    NARROW_SLACK = 32,        /* characters of a string beyond its shortest one */
    NARROW_PART = 4,          /* of the work: one part of so many is left for fewer strings */
    MAX_NOT = 256,
    MAX_REPLY = 100000000, /* characters; no context holds as many */
};

/* --- strings --- */

static bool put_automaton(struct guard *g, json_t *out, const char *name, const struct automaton *a)
{
    struct buf text;
    bool is_put;

    buf_init(&text, GUARD_MAX_BYTES);
    is_put = automaton_put(&text, a) == STATUS_OK;
    if (!is_put)
        (void)(text.is_full ? guard_fail(g, "schema", "is too large") : guard_no_memory(g));
    if (is_put)
        is_put = json_object_set_new(out, name, json_stringn(text.data, text.len)) == 0 ||
                 guard_no_memory(g) != NULL;
    buf_deinit(&text);
    return is_put;
}

/* A failure of an automaton, as one of the keyword. True: it may be left out. */
static bool leave_out_because(struct guard *g, const char *keyword, const struct error *why)
{
    char message[ERROR_TEXT_MAX];

    if (why->status != STATUS_UNIMPLEMENTED) {
        *g->err = *why;
        return false;
    }
    (void)snprintf(message, sizeof(message), "cannot be enforced: it %.150s", why->text);
    return guard_leave_out(g, keyword, message);
}

static bool add_pattern(struct guard *g, struct string_rules *r, const json_t *pattern)
{
    struct error why = {0};

    if (!json_is_string(pattern))
        return guard_fail(g, "pattern", "must be a string") != NULL;
    return string_rules_add_pattern(r, json_string_value(pattern), json_string_length(pattern),
                                    &why) == STATUS_OK ||
           leave_out_because(g, "pattern", &why);
}

static bool add_format(struct guard *g, struct string_rules *r, const json_t *format)
{
    const char *name = json_string_value(format);
    const char *regex = name != NULL ? format_regex(name) : NULL;
    struct error why = {0};

    return regex == NULL || string_rules_add_pattern(r, regex, strlen(regex), &why) == STATUS_OK ||
           leave_out_because(g, "format", &why);
}

/* Strings that it must not be. */
static bool add_not(struct guard *g, struct string_rules *r, const json_t *values)
{
    const char *texts[MAX_NOT];
    size_t lens[MAX_NOT], n = 0;
    struct error why = {0};

    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *value = json_array_get(values, i);

        if (!json_is_string(value))
            continue;
        if (n == MAX_NOT)
            return guard_leave_out(g, "not", "has too many values");
        texts[n] = json_string_value(value);
        lens[n++] = json_string_length(value);
    }
    return string_rules_add_texts(r, texts, lens, n, true, &why) == STATUS_OK ||
           leave_out_because(g, "not", &why);
}

/* A length that s names, 1e9 where it is larger; *out stays where s has none. */
static bool read_bound_of_length(struct guard *g, const json_t *s, const char *name, size_t *out)
{
    const json_t *value = json_object_get(s, name);
    const double number = json_number_value(value);

    if (value == NULL)
        return true;
    if (!json_is_number(value) || number < 0 || floor(number) != number)
        return guard_fail(g, name, "must be a whole number of at least 0") != NULL;
    *out = number > 1e9 ? 1000000000 : (size_t)number;
    return true;
}

/* A pattern that strings do not match. */
static bool add_not_pattern(struct guard *g, struct string_rules *r, const json_t *pattern)
{
    struct automaton a;
    struct error why = {0};
    enum status rc;

    if (!json_is_string(pattern))
        return guard_fail(g, "not", "must have a pattern that is a string") != NULL;
    rc = string_pattern(&a, json_string_value(pattern), json_string_length(pattern), r->work,
                        r->arena, &why);
    if (rc == STATUS_OK)
        rc = string_rules_add(r, &a, true, &why);
    return rc == STATUS_OK || leave_out_because(g, "not", &why);
}

static bool add_patterns(struct guard *g, struct string_rules *r, const json_t *s)
{
    const json_t *patterns = json_object_get(s, "pattern"),
                 *others = json_object_get(s, "-notPattern");

    for (size_t i = 0; i < json_array_size(patterns); i++)
        if (!add_pattern(g, r, json_array_get(patterns, i)))
            return false;
    for (size_t i = 0; i < json_array_size(others); i++)
        if (!add_not_pattern(g, r, json_array_get(others, i)))
            return false;
    return true;
}

/* All rules of s for strings but its patterns. */
static bool add_rules(struct guard *g, struct string_rules *r, const json_t *s)
{
    const json_t *formats = json_object_get(s, "format");

    for (size_t i = 0; i < json_array_size(formats); i++)
        if (!add_format(g, r, json_array_get(formats, i)))
            return false;
    return add_not(g, r, json_object_get(s, "not")) &&
           read_bound_of_length(g, s, "minLength", &r->least) &&
           read_bound_of_length(g, s, "maxLength", &r->most);
}

bool guard_string_rules(struct guard *g, struct string_rules *r, const json_t *s)
{
    return add_rules(g, r, s) && add_patterns(g, r, s);
}

/* Of so many characters of the set, as JSON text: a whole string, or a part of one. */
static bool make_block(struct guard *g, json_t *out, const char *name, const struct char_set *set,
                       size_t least, size_t most, bool is_part)
{
    struct automaton text;
    struct error why = {0};
    struct arena arena;
    enum status rc;
    bool is_put;

    arena_init(&arena, SCRATCH_BYTES);
    rc = string_of_set(&text, set, least, most, is_part, &g->work, &arena, &why);
    if (rc == STATUS_UNIMPLEMENTED)
        (void)guard_fail(g, "maxLength", "cannot be enforced: the strings take too much work");
    else if (rc != STATUS_OK)
        *g->err = why;
    is_put = rc == STATUS_OK && put_automaton(g, out, name, &text);
    arena_deinit(&arena);
    return is_put;
}

/* The same; a block that was made before is taken. */
static bool put_block(struct guard *g, json_t *out, const char *name, const struct char_set *set,
                      size_t least, size_t most, bool is_part)
{
    json_t *known;
    struct buf key;
    enum status rc;
    bool is_put = true;

    buf_init(&key, SIZE_MAX);
    rc = buf_printf(&key, "%zu %zu %d", least, most, is_part);
    for (size_t i = 0; rc == STATUS_OK && i < set->n; i++)
        rc = buf_printf(&key, " %u-%u", set->ranges[i].first, set->ranges[i].last);
    known = rc == STATUS_OK ? json_object_get(g->made, key.data) : NULL;
    if (rc != STATUS_OK)
        is_put = guard_no_memory(g) != NULL;
    else if (known != NULL)
        is_put = json_object_set(out, name, known) == 0 || guard_no_memory(g) != NULL;
    else
        is_put = make_block(g, out, name, set, least, most, is_part) &&
                 (json_object_set(g->made, key.data, json_object_get(out, name)) == 0 ||
                  guard_no_memory(g) != NULL);
    buf_deinit(&key);
    return is_put;
}

/* How strings of one set of characters are counted. */
struct counting {
    size_t min_most; /* longer ones are counted by rules of blocks */
    size_t block;    /* characters of a block */
    size_t reach;    /* of a block and of what it reaches into the next one: a token that goes
                        beyond makes the engine ask its parser, which takes longer */
};

static struct counting counting_of(const struct char_set *set)
{
    return set->n <= FEW_RANGES ? (struct counting){256, 64, 128} : (struct counting){24, 8, 16};
}

/* Strings of one set of characters, of bounded length. From each place but the last ones a string
 * may end within the reach of a block, or has at least a block more. */
static bool put_counted(struct guard *g, json_t *out, const struct char_set *set, size_t least,
                        size_t most)
{
    const struct counting by = counting_of(set);
    const size_t n_needed = least / by.block, n_first = least % by.block;
    size_t left = most == SIZE_MAX ? SIZE_MAX : most - n_needed * by.block, n_open = 0;
    json_t *blocks = json_object();
    bool is_put = blocks != NULL || guard_no_memory(g) != NULL;

    for (; left != SIZE_MAX && left > by.reach; left -= by.block)
        n_open++;
    is_put = is_put && put_block(g, blocks, "block", set, by.block, by.block, true) &&
             put_block(g, blocks, "last", set, n_open > 0 ? 0 : n_first, left, false);
    if (is_put && n_open > 0)
        is_put = put_block(g, blocks, "first", set, n_first, by.reach, false) &&
                 put_block(g, blocks, "next", set, 0, by.reach, false);
    if (is_put)
        is_put =
            (json_object_set_new(blocks, "n_needed", json_integer((json_int_t)n_needed)) == 0 &&
             json_object_set_new(blocks, "n_open", json_integer((json_int_t)n_open)) == 0 &&
             json_object_set(out, "blocks", blocks) == 0) ||
            guard_no_memory(g) != NULL;
    json_decref(blocks);
    return is_put;
}

/* True: it is put, as counted characters. r has all rules but the patterns. */
static bool try_counted(struct guard *g, json_t *out, const json_t *s, const struct string_rules *r)
{
    const json_t *patterns = json_object_get(s, "pattern"), *pattern = json_array_get(patterns, 0);
    struct char_range room[CHAR_SET_MAX] = {{0, CHAR_FIRST_SURROGATE - 1},
                                            {CHAR_LAST_SURROGATE + 1, CHAR_LAST}};
    struct char_set set = {room, 2, CHAR_SET_MAX};
    size_t least = 0, most = SIZE_MAX;

    if (r->n_parts > 0 || json_array_size(patterns) > 1 ||
        json_object_get(s, "-notPattern") != NULL)
        return false;
    if (pattern != NULL &&
        (!json_is_string(pattern) ||
         !regex_is_repeated_set(json_string_value(pattern), json_string_length(pattern), &g->work,
                                &set, &least, &most) ||
         set.n == 0))
        return false;
    least = r->least > least ? r->least : least;
    most = r->most < most ? r->most : most;
    if (least > most || most < counting_of(&set).min_most ||
        (most == SIZE_MAX && least <= MAX_LEAST))
        return false;
    return most <= GUARD_MAX_LENGTH || most == SIZE_MAX
               ? least <= GUARD_MAX_LENGTH && put_counted(g, out, &set, least, most)
               : false;
}

static bool put_tail_part(struct guard *g, json_t *blocks, const char *name,
                          const struct string_tail *t, const struct automaton *a, size_t most_head,
                          size_t least, size_t n, bool is_part, struct arena *arena)
{
    struct automaton text;
    struct error why = {0};

    if (string_tail_to_json(&text, t, a, most_head, least, n, is_part, &g->work, arena, &why) !=
        STATUS_OK) {
        if (why.status != STATUS_UNIMPLEMENTED)
            *g->err = why;
        return false;
    }
    return text.n_states > 0 && put_automaton(g, blocks, name, &text);
}

/* Strings that end in characters of one set, behind a head of few: these are counted in blocks. */
static bool put_tail(struct guard *g, json_t *out, const struct string_rules *r,
                     const struct string_tail *t, const struct automaton *a, struct arena *arena)
{
    const struct counting by = counting_of(&t->set);
    const size_t reach = by.reach < HEAD_REACH ? by.reach : HEAD_REACH,
                 needed = r->least > t->shortest ? r->least - t->shortest : 0,
                 block = needed > reach / 2 ? needed : reach / 2,
                 most_head = t->shortest + HEAD_SLACK;
    size_t left = r->most - most_head - block, n_open = 1;
    json_t *blocks;
    bool is_put;

    if (block > reach)
        return false;
    blocks = json_object();
    is_put = blocks != NULL || guard_no_memory(g) != NULL;

    for (; left > by.reach; left -= by.block)
        n_open++;
    is_put = is_put &&
             put_tail_part(g, blocks, "first", t, a, most_head, r->least, reach, false, arena) &&
             put_tail_part(g, blocks, "head", t, a, most_head, r->least, block, true, arena) &&
             put_block(g, blocks, "block", &t->set, by.block, by.block, true) &&
             put_block(g, blocks, "next", &t->set, 0, by.reach, false) &&
             put_block(g, blocks, "last", &t->set, 0, left, false);
    if (is_put)
        is_put = (json_object_set_new(blocks, "n_needed", json_integer(0)) == 0 &&
                  json_object_set_new(blocks, "n_open", json_integer((json_int_t)n_open)) == 0 &&
                  json_object_set(out, "blocks", blocks) == 0) ||
                 guard_no_memory(g) != NULL;
    json_decref(blocks);
    return is_put;
}

/* True: it is put, as a head and counted characters. r has all rules. */
static bool try_tail(struct guard *g, json_t *out, const struct string_rules *r)
{
    struct string_rules plain = *r;
    struct string_tail t;
    struct automaton a;
    struct error why = {0};

    plain.least = 0;
    plain.most = SIZE_MAX;
    if (r->most == SIZE_MAX || r->most < LONG_TAIL || r->n_parts == 0 || r->least > MAX_LEAST ||
        string_rules_join(&plain, &a, &why) != STATUS_OK ||
        !string_tail_find(&t, &a, HEAD_SLACK, r->arena))
        return false; /* a failure comes again */
    return r->most >= counting_of(&t.set).min_most + t.shortest + HEAD_SLACK &&
           put_tail(g, out, r, &t, &a, r->arena);
}

/* Lengths that are no bound on any reply go; of those beyond the limit the least cannot be counted,
 * and the most is the limit. */
static bool check_lengths(struct guard *g, struct string_rules *r)
{
    if (r->most >= MAX_REPLY)
        r->most = SIZE_MAX;
    else if (r->most > GUARD_MAX_LENGTH)
        r->most = GUARD_MAX_LENGTH;
    if (r->least <= GUARD_MAX_LENGTH)
        return true;
    r->least = 0;
    return guard_leave_out(g, "minLength", "is larger than the compiler's limit, 65,536");
}

/* The automaton of the rules; where it is too large, that of fewer of them. *ret_is_left: no rule
 * is left. */
static bool join_rules(struct guard *g, struct string_rules *r, struct automaton *out,
                       bool *ret_is_left)
{
    struct error why = {0};
    const bool has_size = r->least > 0 || r->most < SIZE_MAX;
    enum status rc = string_rules_join(r, out, &why);

    if (rc == STATUS_OK)
        return true;
    if (!leave_out_because(g,
                           r->most < SIZE_MAX ? "maxLength"
                           : has_size         ? "minLength"
                                              : "pattern",
                           &why))
        return false;
    r->least = 0;
    r->most = SIZE_MAX;
    if (has_size && r->n_parts > 0)
        return join_rules(g, r, out, ret_is_left);
    *ret_is_left = true;
    return true;
}

static bool values_put_string(struct guard *g, json_t *out, const struct automaton *a,
                              struct arena *arena)
{
    struct error why = {0};
    struct automaton text;

    if (string_to_json(&text, a, &g->work, arena, &why) != STATUS_OK)
        return leave_out_because(g, "pattern", &why);
    return put_automaton(g, out, "string", &text);
}

/* Fewer strings, with fewer states: the patterns match them whole, and they have few characters
 * more than the shortest. rules has none of the patterns. */
static bool try_narrow(struct guard *g, json_t *out, const json_t *s,
                       const struct string_rules *rules, struct error *why)
{
    const json_t *patterns = json_object_get(s, "pattern");
    struct string_rules r = *rules;
    struct automaton a, text;
    size_t shortest, longest;

    for (size_t i = 0; i < json_array_size(patterns); i++) {
        const json_t *one = json_array_get(patterns, i);

        if (!json_is_string(one) ||
            string_rules_add_whole(&r, json_string_value(one), json_string_length(one), why) !=
                STATUS_OK)
            return false;
    }
    r.least = 0;
    r.most = SIZE_MAX;
    if (json_object_get(s, "-notPattern") != NULL || string_rules_join(&r, &a, why) != STATUS_OK ||
        a.n_states == 0 || automaton_lengths(&a, &shortest, &longest, why) != STATUS_OK)
        return false;
    r.least = rules->least;
    shortest = shortest > r.least ? shortest : r.least;
    r.most = rules->most < shortest + NARROW_SLACK ? rules->most : shortest + NARROW_SLACK;
    return string_rules_join(&r, &a, why) == STATUS_OK && a.n_states > 0 &&
           string_to_json(&text, &a, &g->work, rules->arena, why) == STATUS_OK &&
           put_automaton(g, out, "string", &text);
}

/* What the patterns, and the rules beside them, become. */
static bool walk_patterns(struct guard *g, json_t *out, const json_t *s, struct string_rules *r,
                          bool *ret_is_never)
{
    struct automaton a;
    bool is_left = false;

    if (!add_patterns(g, r, s))
        return false;
    is_left = r->n_parts == 0 && r->least == 0 && r->most == SIZE_MAX;
    if (!is_left && !g->is_trial && try_tail(g, out, r))
        return true;
    if (g->err->status != STATUS_OK || (!is_left && !join_rules(g, r, &a, &is_left)))
        return false;
    if (!is_left && a.n_states == 0) {
        json_decref(
            guard_never(g, "pattern", "and what stands beside it are satisfied by no string"));
        *ret_is_never = true;
    }
    return is_left || a.n_states == 0 || g->is_trial || values_put_string(g, out, &a, r->arena);
}

/* The same with a part of the work that is left; where a rule cannot be enforced so, fewer
 * strings. */
static bool make_of_patterns(struct guard *g, json_t *out, const json_t *s, struct string_rules *r,
                             bool *ret_is_never)
{
    const size_t kept = g->is_trial ? 0 : g->work / NARROW_PART, n_left_out = g->left_out->len;
    const struct string_rules rules = *r;
    struct error why = {0};
    bool is_walked;

    g->work -= kept;
    is_walked = walk_patterns(g, out, s, r, ret_is_never);
    g->work += kept;
    if (g->is_trial ||
        (is_walked ? g->left_out->len == n_left_out : g->err->status != STATUS_INVALID))
        return is_walked;
    if (!try_narrow(g, out, s, &rules, &why)) {
        if (why.status != STATUS_OK && why.status != STATUS_UNIMPLEMENTED)
            *g->err = why;
        return is_walked && g->err->status == STATUS_OK;
    }
    *g->err = (struct error){0};
    /* Those are of the rules without the ones that were left out, if any were. */
    (void)json_object_del(out, "blocks");
    guard_take_back(g, n_left_out);
    return true;
}

static bool make_string(struct guard *g, json_t *out, const json_t *s, bool *ret_is_never)
{
    struct string_rules r;
    struct arena arena;
    const bool has_pattern =
        json_object_get(s, "pattern") != NULL || json_object_get(s, "-notPattern") != NULL;
    bool is_walked;

    arena_init(&arena, SCRATCH_BYTES);
    string_rules_init(&r, &g->work, &arena);
    is_walked = add_rules(g, &r, s) && check_lengths(g, &r);
    if (is_walked && r.least > r.most) {
        json_decref(guard_never(g, "minLength", "is larger than maxLength"));
        *ret_is_never = true;
    } else if (is_walked && (r.n_parts > 0 || has_pattern || r.least > 0 || r.most < SIZE_MAX) &&
               (g->is_trial ? r.n_parts > 0 || has_pattern : !try_counted(g, out, s, &r))) {
        is_walked = g->err->status == STATUS_OK && make_of_patterns(g, out, s, &r, ret_is_never);
    }
    arena_deinit(&arena);
    return is_walked;
}

/* What s asks of strings, or of numbers, as a text; "" for nothing. NULL: there is no memory. */
static char *rules_text(struct guard *g, const json_t *s, const char *const *names)
{
    json_t *rules = json_object();
    bool is_there = rules != NULL;
    char *text = NULL;

    for (; is_there && *names != NULL; names++)
        if (json_object_get(s, *names) != NULL)
            is_there = json_object_set(rules, *names, json_object_get(s, *names)) == 0;
    if (is_there)
        text = json_object_size(rules) > 0 ? json_dumps(rules, JSON_COMPACT) : try_strndup("", 0);
    json_decref(rules);
    if (text == NULL)
        (void)guard_no_memory(g);
    return text;
}

/* What is asked in many places is made once, by make, and kept under the kind and the rules. What
 * is left out is listed in each place. */
static bool put_made(struct guard *g, json_t *out, const json_t *s, const char *kind,
                     const char *rules,
                     bool (*make)(struct guard *, json_t *, const json_t *, bool *),
                     bool *ret_is_never)
{
    const size_t n_left_out = g->left_out->len;
    json_t *made = json_object_get(g->made, rules), *known = json_object_get(made, kind);
    bool is_put;

    if (known != NULL)
        return json_object_update(out, known) == 0 || guard_no_memory(g) != NULL;
    known = json_object();
    is_put = known != NULL && make(g, known, s, ret_is_never);
    if (is_put && json_object_update(out, known) == 0 && !*ret_is_never &&
        g->left_out->len == n_left_out) {
        if (made == NULL)
            is_put = json_object_set_new(g->made, rules, json_object()) == 0;
        made = json_object_get(g->made, rules);
        is_put = is_put && json_object_set(made, kind, known) == 0;
    }
    json_decref(known);
    return is_put || (g->err->status == STATUS_OK && guard_no_memory(g) != NULL);
}

bool guard_string(struct guard *g, json_t *out, const json_t *s, bool *ret_is_never)
{
    static const char *const names[] = {"pattern",   "-notPattern", "format", "not",
                                        "minLength", "maxLength",   NULL};
    char *rules = rules_text(g, s, names);
    bool is_walked = rules != NULL && (rules[0] == '\0' || put_made(g, out, s, "string", rules,
                                                                    make_string, ret_is_never));

    free(rules);
    return is_walked;
}

/* --- numbers --- */

static bool read_bound(struct guard *g, struct number_rules *r, struct number_bound *b,
                       const json_t *s, const char *name)
{
    const json_t *value = json_object_get(s, name);
    const bool is_exclusive = name[0] == 'e', is_upper = strstr(name, "aximum") != NULL;
    struct decimal d;
    double size;

    if (value == NULL)
        return true;
    if (!json_is_number(value))
        return guard_fail(g, name, "must be a number") != NULL;
    size = json_number_value(value);
    r->is_plain = true;
    if (json_is_real(value) && fabs(size) >= 0x1p63) { /* an integer may have been rounded to it */
        static const struct decimal most = {.digits = "9223372036854775807", .n_digits = 19};

        if ((size > 0) != is_upper)
            return guard_leave_out(g, name, "is too large to be enforced");
        d = most;
        d.is_negative = size < 0;
        number_bound_tighten(b, &d, false, is_upper);
        return true;
    }
    if (!decimal_of_number(&d, value))
        return guard_leave_out(g, name, "has too many digits to be enforced");
    number_bound_tighten(b, &d, is_exclusive, is_upper);
    return true;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

/* A multiple of this, too. */
static bool add_multiple(struct guard *g, struct number_rules *r, const json_t *value)
{
    struct decimal d;
    uint64_t divisor = 0;
    const double number = json_number_value(value);

    if (!json_is_number(value) || number <= 0)
        return guard_fail(g, "multipleOf", "must be a number above 0") != NULL;
    if (r->is_integer && number <= 1 && fmod(1, number) == 0)
        return true;
    if (!decimal_of_number(&d, value) || d.n_digits > 12)
        return guard_leave_out(g, "multipleOf", "has too many digits to be enforced");
    for (size_t i = 0; i < d.n_digits; i++)
        divisor = divisor * 10 + (uint64_t)(d.digits[i] - '0');
    if (r->is_integer) /* of which integer it is a multiple */
        for (size_t i = 0; i < d.n_places; i++)
            divisor /= divisor % 10 == 0 ? 10 : divisor % 5 == 0 ? 5 : divisor % 2 == 0 ? 2 : 1;
    else if (r->divisor != 0 && (d.n_places > 0 || r->divisor_places > 0))
        return guard_leave_out(g, "multipleOf", "cannot be enforced beside another fraction");
    if ((r->divisor != 0 &&
         __builtin_mul_overflow(r->divisor / gcd(r->divisor, divisor), divisor, &divisor)) ||
        divisor > NUMBER_MAX_DIVISOR)
        return guard_leave_out(g, "multipleOf", "is too large to be enforced");
    r->divisor = divisor;
    r->divisor_places = r->is_integer ? 0 : d.n_places;
    return true;
}

static bool read_number_rules(struct guard *g, struct number_rules *r, const json_t *s)
{
    const json_t *multiples = json_object_get(s, "multipleOf");

    for (size_t i = 0; i < json_array_size(multiples); i++)
        if (!add_multiple(g, r, json_array_get(multiples, i)))
            return false;
    return read_bound(g, r, &r->least, s, "minimum") &&
           read_bound(g, r, &r->least, s, "exclusiveMinimum") &&
           read_bound(g, r, &r->most, s, "maximum") &&
           read_bound(g, r, &r->most, s, "exclusiveMaximum");
}

static bool join_number_rules(struct guard *g, struct automaton *out, const json_t *s,
                              bool is_integer, struct arena *arena)
{
    struct number_rules r = {.is_integer = is_integer};
    struct error why = {0};

    if (!read_number_rules(g, &r, s))
        return false;
    if (number_to_json(out, &r, &g->work, arena, &why) == STATUS_OK)
        return true;
    if (!leave_out_because(g, r.divisor != 0 ? "multipleOf" : "minimum", &why))
        return false;
    r = (struct number_rules){.is_integer = is_integer};
    return number_to_json(out, &r, &g->work, arena, g->err) == STATUS_OK;
}

static bool make_number_or_integer(struct guard *g, json_t *out, const json_t *s, bool is_integer,
                                   bool *ret_is_never)
{
    struct automaton a;
    struct arena arena;
    bool is_walked;

    arena_init(&arena, SCRATCH_BYTES);
    is_walked = join_number_rules(g, &a, s, is_integer, &arena);
    if (is_walked && a.n_states == 0) {
        json_decref(
            guard_never(g, "minimum", "and what stands beside it are satisfied by no number"));
        *ret_is_never = true;
    } else if (is_walked) {
        is_walked = put_automaton(g, out, "number", &a);
    }
    arena_deinit(&arena);
    return is_walked;
}

static bool make_number(struct guard *g, json_t *out, const json_t *s, bool *ret_is_never)
{
    return make_number_or_integer(g, out, s, false, ret_is_never);
}

static bool make_integer(struct guard *g, json_t *out, const json_t *s, bool *ret_is_never)
{
    return make_number_or_integer(g, out, s, true, ret_is_never);
}

static bool put_written_number(struct guard *g, json_t *out, const json_t *s, bool is_integer,
                               bool *ret_is_never)
{
    static const char *const names[] = {"minimum",          "maximum",    "exclusiveMinimum",
                                        "exclusiveMaximum", "multipleOf", NULL};
    char *rules = rules_text(g, s, names);
    bool is_walked =
        rules != NULL && put_made(g, out, s, is_integer ? "integer" : "number", rules,
                                  is_integer ? make_integer : make_number, ret_is_never);

    free(rules);
    return is_walked;
}

/* Whether the bounds exclude each other. */
static bool has_no_number(const json_t *s)
{
    static const char *const names[] = {"minimum", "exclusiveMinimum", "maximum",
                                        "exclusiveMaximum"};
    const json_t *values[4];

    for (size_t i = 0; i < 4; i++)
        values[i] = json_object_get(s, names[i]);
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 2; k < 4; k++)
            if (json_is_number(values[i]) && json_is_number(values[k]) &&
                (json_number_is_less(values[k], values[i]) ||
                 (i + k > 2 && json_value_is_same(values[i], values[k]))))
                return true;
    return false;
}

bool guard_number(struct guard *g, json_t *out, const json_t *s, bool is_integer,
                  bool *ret_is_never)
{
    if (g->is_trial) { /* the automaton has numbers of some digits alone */
        *ret_is_never = has_no_number(s);
        return true;
    }
    return put_written_number(g, out, s, is_integer, ret_is_never);
}

bool guard_any_number(struct guard *g)
{
    json_t *none = json_object();
    bool is_never = false;
    bool is_made = none != NULL && guard_number(g, none, none, false, &is_never);

    is_made = is_made && json_object_set(g->defs, "-number", json_object_get(none, "number")) == 0;
    json_decref(none);
    return is_made || guard_no_memory(g) != NULL;
}

/* --- enumerated values --- */

struct values {
    struct guard *g;
    const json_t *s;
    struct arena arena;
    struct automaton strings;
    struct number_rules numbers;
    bool has_strings, has_numbers; /* rules for them */
};

static bool has_one(const json_t *s, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (json_object_get(s, names[i]) != NULL)
            return true;
    return false;
}

static bool values_open(struct values *v)
{
    static const char *const of_strings[] = {"pattern", "-notPattern", "format", "minLength",
                                             "maxLength"};
    static const char *const of_numbers[] = {"minimum", "maximum", "exclusiveMinimum",
                                             "exclusiveMaximum", "multipleOf"};
    static const char *const of_others[] = {"additionalItems",
                                            "additionalProperties",
                                            "contains",
                                            "items",
                                            "maxItems",
                                            "maxProperties",
                                            "minItems",
                                            "minProperties",
                                            "patternProperties",
                                            "prefixItems",
                                            "properties",
                                            "propertyNames",
                                            "required",
                                            "unevaluatedItems",
                                            "unevaluatedProperties",
                                            "uniqueItems"};
    const json_t *values = json_object_get(v->s, "enum");
    struct string_rules r;
    unsigned types = 0;

    for (size_t i = 0; i < json_array_size(values); i++)
        types |= guard_type_of_value(json_array_get(values, i));
    string_rules_init(&r, &v->g->work, &v->arena);
    v->has_strings = (types & TYPE_STRING) != 0 && has_one(v->s, of_strings, 5);
    v->has_numbers = (types & TYPE_NUMBER) != 0 && !v->g->is_trial &&
                     has_one(v->s, of_numbers, 5); /* a decimal has not all places */
    for (size_t i = 0;
         (types & (TYPE_OBJECT | TYPE_ARRAY)) != 0 && i < sizeof(of_others) / sizeof(of_others[0]);
         i++)
        if (json_object_get(v->s, of_others[i]) != NULL &&
            !guard_leave_out(v->g, of_others[i], "cannot be enforced together with enum or const"))
            return false;
    if (v->has_strings) {
        bool is_left = false;

        if (!guard_string_rules(v->g, &r, v->s))
            return false;
        if (v->g->is_trial) { /* the automaton might not reach to the longest texts */
            r.least = 0;
            r.most = SIZE_MAX;
        }
        is_left = r.n_parts == 0 && r.least == 0 && r.most == SIZE_MAX;
        if (!is_left && !join_rules(v->g, &r, &v->strings, &is_left))
            return false;
        v->has_strings = !is_left;
    }
    return !v->has_numbers || read_number_rules(v->g, &v->numbers, v->s);
}

static bool values_allow(const struct values *v, const json_t *value, unsigned types)
{
    const json_t *not = json_object_get(v->s, "not");

    if ((guard_type_of_value(value) & types) == 0)
        return false;
    for (size_t i = 0; i < json_array_size(not ); i++)
        if (json_value_is_same(json_array_get(not, i), value))
            return false;
    if (json_is_string(value) && v->has_strings)
        return automaton_matches(&v->strings, json_string_value(value), json_string_length(value));
    if (json_is_number(value) && v->has_numbers) {
        struct decimal d;

        return decimal_of_number(&d, value) && number_rules_allow(&v->numbers, &d);
    }
    return true;
}

/* The strings as one automaton, if it is not too large. */
static bool values_put_strings(struct values *v, json_t *out, json_t *strings)
{
    const size_t n = json_array_size(strings);
    const char **texts = arena_alloc(&v->arena, n + 1, sizeof(*texts));
    size_t *lens = arena_alloc(&v->arena, n + 1, sizeof(*lens));
    struct error why = {0};
    struct string_rules r;
    struct automaton text;
    json_t *one;

    if (texts == NULL || lens == NULL)
        return guard_no_memory(v->g) != NULL;
    for (size_t i = 0; i < n; i++) {
        texts[i] = json_string_value(json_array_get(strings, i));
        lens[i] = json_string_length(json_array_get(strings, i));
    }
    string_rules_init(&r, &v->g->work, &v->arena);
    if (n == 0)
        return true;
    if (string_rules_add_texts(&r, texts, lens, n, false, &why) != STATUS_OK ||
        string_to_json(&text, &r.parts[0].automaton, &v->g->work, &v->arena, &why) != STATUS_OK) {
        if (why.status != STATUS_UNIMPLEMENTED) {
            *v->g->err = why;
            return false;
        }
        return json_array_append_new(out, json_pack("{s:O}", "enum", strings)) == 0 ||
               guard_no_memory(v->g) != NULL;
    }
    one = json_pack("{s:i}", "types", TYPE_STRING);
    if (one == NULL || json_array_append_new(out, one) != 0)
        return guard_no_memory(v->g) != NULL;
    return put_automaton(v->g, one, "string", &text);
}

static bool values_put(struct values *v, json_t *out, unsigned types)
{
    const json_t *values = json_object_get(v->s, "enum");
    json_t *strings = json_array(), *others = json_array();
    bool is_put = strings != NULL && others != NULL;

    for (size_t i = 0; is_put && i < json_array_size(values); i++) {
        json_t *value = json_array_get(values, i);

        if (values_allow(v, value, types))
            is_put = json_array_append(json_is_string(value) ? strings : others, value) == 0;
    }
    if (is_put && v->g->is_trial && json_array_size(strings) + json_array_size(others) > 0)
        is_put = json_array_append_new(out, json_object()) == 0;
    else if (is_put && json_array_size(others) > 0)
        is_put = json_array_append_new(out, json_pack("{s:O}", "enum", others)) == 0;
    if (!is_put)
        (void)guard_no_memory(v->g);
    is_put = is_put && (v->g->is_trial || values_put_strings(v, out, strings));
    json_decref(strings);
    json_decref(others);
    return is_put;
}

json_t *guard_enum(struct guard *g, const json_t *s, unsigned types)
{
    struct values v = {.g = g, .s = s};
    json_t *list = json_array(), *out = NULL;

    arena_init(&v.arena, SCRATCH_BYTES);
    if (list == NULL)
        (void)guard_no_memory(g);
    else if (values_open(&v) && values_put(&v, list, types))
        out = json_array_size(list) == 0
                  ? guard_never(g, "enum", "has no value that the other keywords allow")
              : json_array_size(list) == 1 ? json_incref(json_array_get(list, 0))
                                           : json_pack("{s:O}", "anyOf", list);
    if (out == NULL && g->err->status == STATUS_OK)
        (void)guard_no_memory(g);
    json_decref(list);
    arena_deinit(&v.arena);
    return out;
}
