/* Each schema becomes a rule. Members are a chain: from each place in their order a rule goes on
 * with one of the next. So the grammar is as long as the schema, times the number of members that
 * have to be counted. */
#include "agents/constraint/schema_grammar.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/constraint/automaton.h"
#include "agents/constraint/string_automaton.h"
#include "base/alloc.h"
#include "base/utf8.h"

struct schema_grammar {
    struct buf *out; /* all rules */
    const json_t *defs;
    json_t *def_rules; /* a definition's name: its rule */
    json_t *texts;     /* an automaton, or "#" and a schema's number: its rule */
    json_t *shapes;    /* a value with its parts as numbers: its number */
    json_t *numbers;   /* a value's address: its number, since it was looked at */
    json_t *waiting;   /* definitions whose rules are not written yet */
    size_t n_rules;
    int any, any_string; /* the rules; -1: not written yet */
    bool is_failed;
    struct error *err;
};

static void grammar_fail(struct schema_grammar *s)
{
    if (!s->is_failed)
        (void)(s->out->is_full ? error_because(s->err, STATUS_INVALID, REASON_INVALID_FIELD, NULL,
                                               "the schema at #: 'schema' is too large: its "
                                               "grammar would have more than %zu bytes",
                                               s->out->limit_bytes)
                               : error_no_memory(s->err, 0, "a grammar"));
    s->is_failed = true;
}

static void rule_put(struct schema_grammar *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void rule_put(struct schema_grammar *s, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    if (!s->is_failed && buf_vprintf(s->out, fmt, args) != STATUS_OK)
        grammar_fail(s);
    va_end(args);
}

static int new_rule(struct schema_grammar *s)
{
    return (int)s->n_rules++;
}

/* A text inside the quotes of the grammar's literal. */
static void put_literal(struct schema_grammar *s, const char *text, size_t len)
{
    size_t n_plain = 0;

    for (size_t i = 0; i <= len; i++) {
        const unsigned char c = i < len ? (unsigned char)text[i] : 0;

        if (i < len && c >= ' ' && c != '"' && c != '\\' && c != 0x7F) {
            n_plain++;
            continue;
        }
        rule_put(s, "%.*s", (int)n_plain, text + i - n_plain);
        n_plain = 0;
        if (i < len)
            rule_put(s, "\\u%04x", c);
    }
}

/* As JSON with so many digits a number, malloc'd; NULL where that is another value, or without
 * memory. */
static char *dump_digits(const json_t *value, size_t n_digits)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(n_digits));
    json_t *read = text != NULL ? json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;

    if (!json_equal(read, value)) {
        free(text);
        text = NULL;
    }
    json_decref(read);
    return text;
}

/* A value as JSON, malloc'd, with as few digits as say it. A whole number has no fraction. */
static char *dump(struct schema_grammar *s, const json_t *value)
{
    const double number = json_real_value(value); /* 0 for all but reals */
    const bool may_have_reals =
        json_is_real(value) || json_is_array(value) || json_is_object(value);
    char *text = NULL;

    if (number != 0 && fabs(number) < 1e15 && floor(number) == number) {
        json_t *whole = json_integer((json_int_t)number);

        text = json_dumps(whole, JSON_ENCODE_ANY);
        json_decref(whole);
    } else {
        for (size_t n = 15; may_have_reals && text == NULL && n < 17; n++)
            text = dump_digits(value, n);
        if (text == NULL)
            text = json_dumps(value, JSON_ENCODE_ANY);
    }
    if (text == NULL)
        grammar_fail(s);
    return text;
}

static int write_schema(struct schema_grammar *s, const json_t *schema);
static int write_any(struct schema_grammar *s);

/* The rule of an automaton, which is written once. */
static int write_automaton(struct schema_grammar *s, const char *text)
{
    json_t *known = json_object_get(s->texts, text);
    int rule;

    if (known != NULL)
        return (int)json_integer_value(known);
    rule = new_rule(s);
    rule_put(s, "r%d ::= Regex(\"%s\")\n", rule, text);
    if (json_object_set_new(s->texts, text, json_integer(rule)) != 0)
        grammar_fail(s);
    return rule;
}

/* Any string behind its first quote. */
static int write_any_string(struct schema_grammar *s)
{
    struct automaton a;
    struct arena arena;
    struct buf text;

    if (s->any_string >= 0)
        return s->any_string;
    arena_init(&arena, 1 << 20);
    buf_init(&text, 1 << 16);
    if (string_any_json(&a, &arena, s->err) != STATUS_OK || automaton_put(&text, &a) != STATUS_OK)
        grammar_fail(s);
    else
        s->any_string = write_automaton(s, text.data);
    buf_deinit(&text);
    arena_deinit(&arena);
    return s->any_string;
}

/* A string that is counted in blocks: those that it needs, those behind which it may end, the
 * last. */
static int write_blocks(struct schema_grammar *s, const json_t *blocks)
{
    const size_t n_needed = (size_t)json_integer_value(json_object_get(blocks, "n_needed")),
                 n_open = (size_t)json_integer_value(json_object_get(blocks, "n_open"));
    const char *head = json_string_value(json_object_get(blocks, "head"));
    const int block = write_automaton(s, json_string_value(json_object_get(blocks, "block"))),
              begin = head != NULL ? write_automaton(s, head) : block;
    int at = write_automaton(s, json_string_value(json_object_get(blocks, "last")));

    for (size_t i = n_open; i-- > 0 && !s->is_failed;) {
        const char *name = i == 0 ? "first" : "next";
        const int end = write_automaton(s, json_string_value(json_object_get(blocks, name)));
        const int rule = new_rule(s);

        rule_put(s, "r%d ::= r%d | r%d r%d\n", rule, end, i == 0 ? begin : block, at);
        at = rule;
    }
    for (size_t i = 0; i < n_needed && !s->is_failed; i++) {
        const int rule = new_rule(s);

        rule_put(s, "r%d ::= r%d r%d\n", rule, block, at);
        at = rule;
    }
    return at;
}

static int write_string_rule(struct schema_grammar *s, const json_t *schema)
{
    const char *text = json_string_value(json_object_get(schema, "string"));
    const json_t *blocks = json_object_get(schema, "blocks");

    if (blocks != NULL)
        return write_blocks(s, blocks);
    return text != NULL ? write_automaton(s, text) : write_any_string(s);
}

/* --- arrays --- */

/* One of the values, or of a class of values. */
static void put_unique(struct schema_grammar *s, const char *between, bool has_before,
                       const char *text, int class_rule)
{
    rule_put(s, "%s", between);
    if (text != NULL || has_before)
        rule_put(s, "\"%s", has_before ? ", " : "");
    if (text != NULL)
        put_literal(s, text, strlen(text));
    if (text != NULL || has_before)
        rule_put(s, "\" ");
    if (class_rule >= 0)
        rule_put(s, "r%d ", class_rule);
}

/* Each of n values at most once, or one of each of n classes, with so many at least and at most. A
 * few come in any order: a rule for each set of those that were; many in their own. */
static void write_unique(struct schema_grammar *s, int rule, const json_t *schema)
{
    const json_t *classes = json_object_get(schema, "classes"),
                 *values = classes != NULL ? classes : json_object_get(schema, "values");
    const size_t n = json_array_size(values),
                 least = (size_t)json_integer_value(json_object_get(schema, "min_items"));
    const json_t *bound = json_object_get(schema, "max_items");
    const size_t most = bound != NULL ? (size_t)json_integer_value(bound) : n;
    const bool in_order = classes == NULL && n > 4;
    const size_t n_sets = in_order ? n + 1 : (size_t)1 << n, n_counts = in_order ? n + 1 : 1;
    char *texts[512] = {0};
    int rules[512], first;

    assert(n <= 512);
    for (size_t i = 0; i < n; i++) {
        rules[i] = classes != NULL ? write_schema(s, json_array_get(values, i)) : -1;
        texts[i] = classes == NULL ? dump(s, json_array_get(values, i)) : NULL;
    }
    first = (int)s->n_rules;
    s->n_rules += n_sets * n_counts;
    rule_put(s, "r%d ::= \"[\" r%d\n", rule, first);
    /* what may follow where the values of a set, or some of those before one, were */
    for (size_t set = 0; set < n_sets && !s->is_failed; set++)
        for (size_t count = 0; count < n_counts && (!in_order || count <= set); count++) {
            const size_t n_before = in_order ? count : (size_t)__builtin_popcountll(set);
            const char *between = "";

            rule_put(s, "r%d ::= ", first + (int)(set * n_counts + count));
            if (n_before >= least) {
                rule_put(s, "\"]\"");
                between = " | ";
            }
            for (size_t i = in_order ? set : 0; i < n && n_before < most; i++) {
                if (in_order ? n_before + n - i < least : (set >> i & 1) != 0)
                    continue;
                put_unique(s, between, n_before > 0, texts[i], rules[i]);
                rule_put(s, "r%d",
                         first + (int)(in_order ? (i + 1) * n_counts + count + 1
                                                : set | (size_t)1 << i));
                between = " | ";
            }
            /* in order, some are not reached: too few are left */
            rule_put(s, "%s\n", between[0] == '\0' ? "\"]\"" : "");
        }
    for (size_t i = 0; i < n; i++)
        free(texts[i]);
}

/* So many items more, behind others if has_before, and the end. */
static void put_items(struct schema_grammar *s, int item, size_t least, const json_t *most,
                      size_t n_before)
{
    const size_t n_least = least > n_before ? least - n_before : 0,
                 n_most = most != NULL ? (size_t)json_integer_value(most) - n_before : SIZE_MAX;

    if (n_most == 0) {
        rule_put(s, "\"]\"");
    } else if (n_before > 0) {
        rule_put(s, "(\", \" r%d)", item);
        if (n_most == SIZE_MAX)
            rule_put(s, "{%zu,} \"]\"", n_least);
        else
            rule_put(s, "{%zu,%zu} \"]\"", n_least, n_most);
    } else {
        rule_put(s, "%sr%d (\", \" r%d)", n_least == 0 ? "\"]\" | " : "", item, item);
        if (n_most == SIZE_MAX)
            rule_put(s, "{%zu,} \"]\"", n_least > 0 ? n_least - 1 : 0);
        else
            rule_put(s, "{%zu,%zu} \"]\"", n_least > 0 ? n_least - 1 : 0, n_most - 1);
    }
}

static void write_array(struct schema_grammar *s, int rule, const json_t *schema)
{
    const json_t *prefix = json_object_get(schema, "prefix"),
                 *items = json_object_get(schema, "items"),
                 *most = json_object_get(schema, "max_items");
    const size_t n = json_array_size(prefix),
                 least = (size_t)json_integer_value(json_object_get(schema, "min_items"));
    int item = -1, at = rule + 1; /* reserved: what follows the bracket */

    if (json_object_get(schema, "values") != NULL || json_object_get(schema, "classes") != NULL) {
        write_unique(s, rule, schema);
        return;
    }
    if (!json_is_false(items))
        item = items != NULL ? write_schema(s, items) : write_any(s);
    rule_put(s, "r%d ::= \"[\" r%d\n", rule, at);
    for (size_t i = 0; i <= n && !s->is_failed; i++) {
        const bool is_last = i == n;
        const int one = is_last ? -1 : write_schema(s, json_array_get(prefix, i));
        const int next = is_last ? -1 : new_rule(s);

        if (!is_last) {
            rule_put(s, "r%d ::= %s\"%s\" r%d r%d\n", at, i >= least ? "\"]\" | " : "",
                     i > 0 ? ", " : "", one, next);
            at = next;
        } else {
            rule_put(s, "r%d ::= ", at);
            if (item < 0)
                rule_put(s, "\"]\"");
            else
                put_items(s, item, least, most, n);
            rule_put(s, "\n");
        }
    }
}

/* --- objects --- */

/* Names of members that may come next, as a tree of their characters: a rule for each node, so that
 * a reply is in few rules at a time however many names there are. A node is never changed: one name
 * more makes new nodes on its way alone. */
struct name_edge {
    const char *text; /* [len], whole characters, as JSON text; the last of a name has its quote */
    size_t len;
    const struct name_node *node; /* NULL: the name has ended */
    int value, behind;            /* then: the rules of its value, and of what follows that */
    int tail; /* the rule of all behind the first character, which copies of a node share; 0: none
                 yet */
};

/* Many edges are in groups, each a rule: a copy with another edge has the other groups in common.
 * Of many members, copies have the tails of edges in common, too. */
enum { NODE_GROUP = 6, MANY_MEMBERS = 64 };

struct name_node {
    int rule;
    size_t n;
    int *groups;              /* [(n + NODE_GROUP - 1) / NODE_GROUP]: their rules; 0: none yet */
    struct name_edge edges[]; /* [n] */
};

struct member_chain {
    const json_t *members, *rest;
    int **kind_keys; /* [n_rest][n_kinds]; -1: none */
    size_t n_kinds;  /* of so many members up to the least number each has a name of its kind */
    char **names;    /* [n]: as JSON text, behind the first quote */
    int *values, *keys, *rest_values; /* the rules [n], [n_rest], [n_rest] */
    size_t n, n_rest, least, most;
    size_t n_counts;  /* how many members were written is told apart up to n_counts - 1 */
    size_t *required; /* [n + 1]: how many are required from each on */
    const struct name_node **roots; /* [n_counts]: the names from a member on; NULL: none */
    int first, rest_rule;           /* of the rules behind members; of the rest's names */
    struct arena arena;             /* of nodes */
};

static bool chain_is_required(const struct member_chain *c, size_t i)
{
    return json_is_true(json_array_get(json_array_get(c->members, i), 2));
}

/* The rule of what follows a member where those from i on may come. */
static int chain_end(const struct member_chain *c, size_t i, size_t count)
{
    return c->first + (int)(i * c->n_counts + count);
}

/* Where at least n_more members have to follow, from i on, there is a way to an end. */
static bool chain_is_open(const struct member_chain *c, size_t i, size_t count, size_t n_more)
{
    const size_t n_left = c->n_rest > 0 ? SIZE_MAX / 2 : c->n - i;

    n_more = c->required[i] > n_more ? c->required[i] : n_more;
    return n_more <= n_left && count + n_left >= c->least &&
           (c->most == SIZE_MAX || count + n_more <= c->most);
}

static size_t chain_count(const struct member_chain *c, size_t count)
{
    return count + 1 < c->n_counts ? count + 1 : count;
}

static size_t n_groups(size_t n_edges)
{
    return (n_edges + NODE_GROUP - 1) / NODE_GROUP;
}

/* A node with room for n edges, of which those of old are there. */
static struct name_node *node_copy(struct schema_grammar *s, struct member_chain *c,
                                   const struct name_node *old, size_t n)
{
    struct name_node *node = arena_alloc(&c->arena, 1, sizeof(*node) + n * sizeof(node->edges[0]));

    if (node != NULL)
        node->groups = arena_alloc(&c->arena, n_groups(n), sizeof(*node->groups));
    if (node == NULL || node->groups == NULL) {
        grammar_fail(s);
        return NULL;
    }
    node->rule = new_rule(s);
    node->n = n;
    if (old != NULL) {
        memcpy(node->edges, old->edges, old->n * sizeof(old->edges[0]));
        memcpy(node->groups, old->groups, n_groups(old->n) * sizeof(*old->groups));
    }
    return node;
}

/* How many bytes both begin with, in whole characters. */
static size_t common_len(const struct name_edge *a, const struct name_edge *b)
{
    size_t n = 0;

    while (n < a->len && n < b->len && a->text[n] == b->text[n])
        n++;
    while (n > 0 && n < a->len && ((unsigned char)a->text[n] & 0xC0) == 0x80)
        n--;
    return n;
}

/* What stands behind an edge's text. */
static void put_behind(struct schema_grammar *s, const struct name_edge *e)
{
    if (e->node != NULL)
        rule_put(s, "\" r%d", e->node->rule);
    else
        rule_put(s, ": \" r%d r%d", e->value, e->behind);
}

static size_t first_len(const struct name_edge *e) /* of its first character */
{
    uint32_t code;

    return utf8_next(e->text, e->len, &code);
}

static void put_edges(struct schema_grammar *s, const struct name_node *node, int rule, size_t from,
                      size_t to)
{
    rule_put(s, "r%d ::= ", rule);
    for (size_t i = from; i < to && i < node->n; i++) {
        const struct name_edge *e = &node->edges[i];

        rule_put(s, "%s\"", i > from ? " | " : "");
        if (e->tail == 0) {
            put_literal(s, e->text, e->len);
            put_behind(s, e);
        } else {
            put_literal(s, e->text, first_len(e));
            rule_put(s, "\" r%d", e->tail);
        }
    }
    rule_put(s, "\n");
}

static void put_node(struct schema_grammar *s, const struct member_chain *c, struct name_node *node)
{
    for (size_t i = 0; c->n > MANY_MEMBERS && i < node->n; i++) {
        struct name_edge *e = &node->edges[i];
        const size_t len = first_len(e);

        if (e->tail != 0 || len == e->len)
            continue;
        e->tail = new_rule(s);
        rule_put(s, "r%d ::= \"", e->tail);
        put_literal(s, e->text + len, e->len - len);
        put_behind(s, e);
        rule_put(s, "\n");
    }
    if (node->n <= NODE_GROUP) {
        put_edges(s, node, node->rule, 0, node->n);
        return;
    }
    for (size_t i = 0; i < n_groups(node->n); i++)
        if (node->groups[i] == 0) {
            node->groups[i] = new_rule(s);
            put_edges(s, node, node->groups[i], i * NODE_GROUP, (i + 1) * NODE_GROUP);
        }
    rule_put(s, "r%d ::= ", node->rule);
    for (size_t i = 0; i < n_groups(node->n); i++)
        rule_put(s, "%sr%d", i > 0 ? " | " : "", node->groups[i]);
    rule_put(s, "\n");
}

/* The tree with one name more. */
static const struct name_node *node_add(struct schema_grammar *s, struct member_chain *c,
                                        const struct name_node *old, struct name_edge name)
{
    const size_t n = old != NULL ? old->n : 0;
    struct name_node *node, *below;
    size_t at = 0, len = 0;

    while (at < n && (len = common_len(&old->edges[at], &name)) == 0)
        at++;
    node = node_copy(s, c, old, at == n ? n + 1 : n);
    if (node == NULL)
        return NULL;
    node->groups[at / NODE_GROUP] = 0;
    if (at == n) {
        node->edges[n] = name;
    } else {
        struct name_edge *e = &node->edges[at], rest = name;

        rest.text += len;
        rest.len -= len;
        e->tail = 0;
        if (e->node != NULL && len == e->len) {
            e->node = node_add(s, c, e->node, rest);
        } else {
            below = node_copy(s, c, NULL, 2);
            if (below == NULL)
                return NULL;
            below->edges[0] = *e;
            below->edges[0].text += len;
            below->edges[0].len -= len;
            below->edges[0].tail = 0;
            below->edges[1] = rest;
            e->len = len;
            e->node = below;
            put_node(s, c, below);
        }
        if (e->node == NULL)
            return NULL;
    }
    put_node(s, c, node);
    return node;
}

/* The names from member i on, where those from the next one on are known. */
static void chain_add_name(struct schema_grammar *s, struct member_chain *c, size_t i, size_t count)
{
    const size_t next = chain_count(c, count);
    const struct name_node *root = NULL;

    if (!chain_is_required(c, i) && chain_is_open(c, i + 1, count, 1))
        root = c->roots[count];
    if (chain_is_open(c, i, count, 1) && chain_is_open(c, i + 1, next, 0))
        root = node_add(s, c, root,
                        (struct name_edge){.text = c->names[i],
                                           .len = strlen(c->names[i]),
                                           .value = c->values[i],
                                           .behind = chain_end(c, i + 1, next)});
    c->roots[count] = root;
}

/* A name of those from i on, behind the text before and a quote. */
static void put_names(struct schema_grammar *s, const struct member_chain *c, size_t i,
                      size_t count, bool is_first, const char *before)
{
    const bool is_rest = c->n_rest > 0 && c->required[i] == 0;

    if (c->roots[count] != NULL)
        rule_put(s, "%s\"%s\\\"\" r%d", is_first ? "" : " | ", before, c->roots[count]->rule);
    if (is_rest)
        rule_put(s, "%s\"%s\\\"\" r%d", is_first && c->roots[count] == NULL ? "" : " | ", before,
                 c->rest_rule + (int)count);
}

/* What follows a member where those from i on may come. */
static void write_chain_end(struct schema_grammar *s, const struct member_chain *c, size_t i,
                            size_t count)
{
    const bool may_end = c->required[i] == 0 && count >= c->least;

    if (!chain_is_open(c, i, count, 0))
        return;
    rule_put(s, "r%d ::= %s", chain_end(c, i, count), may_end ? "\"}\"" : "");
    if (chain_is_open(c, i, count, 1))
        put_names(s, c, i, count, !may_end, ", ");
    rule_put(s, "\n");
}

/* The names of the rest. */
static void write_rest(struct schema_grammar *s, const struct member_chain *c, size_t count)
{
    const char *between = "";

    if (c->n_rest == 0 || !chain_is_open(c, c->n, count, 1))
        return;
    rule_put(s, "r%d ::= ", c->rest_rule + (int)count);
    for (size_t k = 0; k < c->n_rest; k++) {
        const int key = count < c->least && count >= c->least - c->n_kinds
                            ? c->kind_keys[k][count - (c->least - c->n_kinds)]
                            : c->keys[k];

        if (key < 0)
            continue;
        rule_put(s, "%sr%d \": \" r%d r%d", between, key, c->rest_values[k],
                 chain_end(c, c->n, chain_count(c, count)));
        between = " | ";
    }
    rule_put(s, "\n");
}

static void write_chain(struct schema_grammar *s, struct member_chain *c, int rule)
{
    const bool may_be_empty = c->least == 0 && c->required[0] == 0;

    c->first = (int)s->n_rules;
    s->n_rules += (c->n + 1) * c->n_counts;
    c->rest_rule = (int)s->n_rules;
    s->n_rules += c->n_counts;
    for (size_t count = 0; count < c->n_counts; count++)
        write_rest(s, c, count);
    for (size_t i = c->n + 1; i-- > 0 && !s->is_failed;)
        for (size_t count = 0; count < c->n_counts && !s->is_failed; count++) {
            if (i < c->n)
                chain_add_name(s, c, i, count);
            write_chain_end(s, c, i, count);
        }
    rule_put(s, "r%d ::= %s", rule, may_be_empty ? "\"{}\"" : "");
    if (chain_is_open(c, 0, 0, 1))
        put_names(s, c, 0, 0, !may_be_empty, "{");
    rule_put(s, "\n");
}

/* Room for what is known of an object of n members and n_rest others. */
static bool chain_open(struct schema_grammar *s, struct member_chain *c)
{
    c->values = arena_alloc(&c->arena, c->n + 2 * c->n_rest + 1, sizeof(*c->values));
    c->required = arena_alloc(&c->arena, c->n + 1, sizeof(*c->required));
    c->names = arena_alloc(&c->arena, c->n + 1, sizeof(*c->names));
    c->roots = arena_alloc(&c->arena, c->n_counts, sizeof(*c->roots));
    c->kind_keys = arena_alloc(&c->arena, c->n_rest + 1, sizeof(*c->kind_keys));
    if (c->kind_keys == NULL || c->values == NULL || c->required == NULL || c->names == NULL ||
        c->roots == NULL) {
        grammar_fail(s);
        return false;
    }
    c->keys = c->values + c->n;
    c->rest_values = c->keys + c->n_rest;
    for (size_t i = c->n; i-- > 0;)
        c->required[i] = c->required[i + 1] + chain_is_required(c, i);
    for (size_t i = 0; i < c->n; i++) {
        char *name = dump(s, json_array_get(json_array_get(c->members, i), 0));

        c->names[i] = name != NULL ? arena_strndup(&c->arena, name + 1, strlen(name) - 1) : NULL;
        free(name);
        if (c->names[i] == NULL) {
            grammar_fail(s);
            return false;
        }
    }
    return true;
}

/* The keys of the i-th of the rest where members have names of different kinds. */
static void chain_write_kinds(struct schema_grammar *s, struct member_chain *c, size_t i,
                              const json_t *kinds)
{
    const size_t n = json_array_size(kinds);

    if (n == 0 || n > c->least)
        return;
    c->n_kinds = n;
    c->kind_keys[i] = arena_alloc(&c->arena, n, sizeof(*c->kind_keys[i]));
    if (c->kind_keys[i] == NULL) {
        grammar_fail(s);
        return;
    }
    for (size_t k = 0; k < n; k++) {
        const char *key = json_string_value(json_array_get(kinds, k));

        c->kind_keys[i][k] = key != NULL ? write_automaton(s, key) : -1;
    }
}

static void write_object(struct schema_grammar *s, int rule, const json_t *schema)
{
    const json_t *most = json_object_get(schema, "max_members");
    struct member_chain c = {.members = json_object_get(schema, "members"),
                             .rest = json_object_get(schema, "rest")};

    arena_init(&c.arena, 64 << 20);
    c.n = json_array_size(c.members);
    c.n_rest = json_array_size(c.rest);
    c.least = (size_t)json_integer_value(json_object_get(schema, "min_members"));
    c.most = most != NULL ? (size_t)json_integer_value(most) : SIZE_MAX;
    c.n_counts = 1 + (c.most != SIZE_MAX ? c.most : c.least);
    if (!chain_open(s, &c)) {
        arena_deinit(&c.arena);
        return;
    }
    for (size_t i = 0; i < c.n && !s->is_failed; i++)
        c.values[i] = write_schema(s, json_array_get(json_array_get(c.members, i), 1));
    for (size_t i = 0; i < c.n_rest && !s->is_failed; i++) {
        const json_t *one = json_array_get(c.rest, i), *key = json_array_get(one, 0);

        c.keys[i] =
            json_is_string(key) ? write_automaton(s, json_string_value(key)) : write_any_string(s);
        c.rest_values[i] = write_schema(s, json_array_get(one, 1));
        chain_write_kinds(s, &c, i, json_array_get(one, 2));
    }
    if (!s->is_failed)
        write_chain(s, &c, rule);
    arena_deinit(&c.arena);
}

/* --- all --- */

static int write_any(struct schema_grammar *s)
{
    const int string = write_any_string(s);
    json_t *number;

    if (s->any >= 0)
        return s->any;
    s->any = new_rule(s);
    number = json_object_get(s->defs, "-number");
    rule_put(
        s,
        "r%d ::= \"\\\"\" r%d | r%d | \"true\" | \"false\" | \"null\" | \"{\" o%d | \"[\" a%d\n"
        "o%d ::= \"}\" | \"\\\"\" m%d\nm%d ::= r%d \": \" r%d n%d\n"
        "n%d ::= \"}\" | \", \\\"\" m%d\na%d ::= \"]\" | r%d b%d\nb%d ::= \"]\" | \", \" r%d b%d\n",
        s->any, string, write_automaton(s, json_string_value(number)), s->any, s->any, s->any,
        s->any, s->any, string, s->any, s->any, s->any, s->any, s->any, s->any, s->any, s->any,
        s->any, s->any);
    return s->any;
}

static void write_types(struct schema_grammar *s, int rule, const json_t *schema)
{
    const unsigned types = (unsigned)json_integer_value(json_object_get(schema, "types"));
    const char *between = "";
    int string = -1, number = -1, array = -1, object = -1;

    if ((types & TYPE_STRING) != 0)
        string = write_string_rule(s, schema);
    if ((types & (TYPE_NUMBER | TYPE_INTEGER)) != 0)
        number = write_automaton(s, json_string_value(json_object_get(schema, "number")));
    if ((types & TYPE_ARRAY) != 0) {
        array = new_rule(s);
        (void)new_rule(s); /* what follows its bracket */
        write_array(s, array, schema);
    }
    if ((types & TYPE_OBJECT) != 0) {
        object = new_rule(s);
        write_object(s, object, schema);
    }
    rule_put(s, "r%d ::= ", rule);
    if (object >= 0) {
        rule_put(s, "r%d", object);
        between = " | ";
    }
    if (array >= 0) {
        rule_put(s, "%sr%d", between, array);
        between = " | ";
    }
    if (string >= 0) {
        rule_put(s, "%s\"\\\"\" r%d", between, string);
        between = " | ";
    }
    if (number >= 0) {
        rule_put(s, "%sr%d", between, number);
        between = " | ";
    }
    if ((types & TYPE_BOOLEAN) != 0) {
        rule_put(s, "%s\"true\" | \"false\"", between);
        between = " | ";
    }
    if ((types & TYPE_NULL) != 0)
        rule_put(s, "%s\"null\"", between);
    rule_put(s, "\n");
}

static int write_ref(struct schema_grammar *s, const json_t *ref)
{
    const char *name = json_string_value(ref);
    json_t *known = json_object_get(s->def_rules, name);
    int rule;

    if (known != NULL)
        return (int)json_integer_value(known);
    rule = new_rule(s);
    if (json_object_set_new(s->def_rules, name, json_integer(rule)) != 0 ||
        json_array_append(s->waiting, (json_t *)ref) != 0)
        grammar_fail(s);
    return rule;
}

static void write_into(struct schema_grammar *s, int rule, const json_t *schema);

static json_int_t value_number(struct schema_grammar *s, const json_t *value);

/* What a value is, with its parts as numbers. False: there is no memory. */
static bool put_shape(struct schema_grammar *s, struct buf *out, const json_t *value)
{
    const char *name;
    json_t *part;
    size_t i;
    enum status rc = STATUS_OK;
    char *text;

    if (json_is_object(value)) {
        rc = buf_append_text(out, "{");
        json_object_foreach((json_t *)value, name, part) /* jansson does not change it */
            if (rc == STATUS_OK) rc = buf_printf(out, "%zu:%s%" JSON_INTEGER_FORMAT ",",
                                                 strlen(name), name, value_number(s, part));
    } else if (json_is_array(value)) {
        rc = buf_append_text(out, "[");
        json_array_foreach(value, i, part) if (rc == STATUS_OK) rc =
            buf_printf(out, "%" JSON_INTEGER_FORMAT ",", value_number(s, part));
    } else {
        text = json_dumps(value, JSON_ENCODE_ANY);
        rc = text != NULL ? buf_append_text(out, text) : STATUS_EXHAUSTED;
        free(text);
    }
    return rc == STATUS_OK;
}

/* The number of a value of the schema: equal values have the same one. Each is looked at once. */
static json_int_t value_number(struct schema_grammar *s, const json_t *value)
{
    char address[24];
    const json_t *known;
    json_int_t number = 0;
    struct buf shape;

    (void)snprintf(address, sizeof(address), "%p", (const void *)value);
    known = json_object_get(s->numbers, address);
    if (known != NULL)
        return json_integer_value(known);
    buf_init(&shape, SIZE_MAX);
    if (put_shape(s, &shape, value)) {
        known = json_object_get(s->shapes, shape.data);
        number =
            known != NULL ? json_integer_value(known) : (json_int_t)json_object_size(s->shapes);
        if ((known == NULL &&
             json_object_set_new(s->shapes, shape.data, json_integer(number)) != 0) ||
            json_object_set_new(s->numbers, address, json_integer(number)) != 0)
            grammar_fail(s);
    } else {
        grammar_fail(s);
    }
    buf_deinit(&shape);
    return number;
}

/* The rule of a schema, which is written; the same as before for one that was. */
static int write_schema(struct schema_grammar *s, const json_t *schema)
{
    json_t *known;
    char number[24];
    int rule;

    if (json_object_size(schema) == 0)
        return write_any(s);
    if (json_object_get(schema, "$ref") != NULL)
        return write_ref(s, json_object_get(schema, "$ref"));
    (void)snprintf(number, sizeof(number), "#%" JSON_INTEGER_FORMAT, value_number(s, schema));
    known = json_object_get(s->texts, number);
    if (known != NULL)
        return (int)json_integer_value(known);
    rule = new_rule(s);
    write_into(s, rule, schema);
    if (json_object_set_new(s->texts, number, json_integer(rule)) != 0)
        grammar_fail(s);
    return rule;
}

static void write_any_of(struct schema_grammar *s, int rule, const json_t *list)
{
    const size_t n = json_array_size(list);
    int *rules = try_alloc(n + 1, sizeof(*rules));

    if (rules == NULL) {
        grammar_fail(s);
        return;
    }
    for (size_t i = 0; i < n; i++)
        rules[i] = write_schema(s, json_array_get(list, i));
    rule_put(s, "r%d ::= ", rule);
    for (size_t i = 0; i < n; i++)
        rule_put(s, "%sr%d", i > 0 ? " | " : "", rules[i]);
    rule_put(s, "\n");
    free(rules);
}

static void write_into(struct schema_grammar *s, int rule, const json_t *schema)
{
    const json_t *values = json_object_get(schema, "enum"),
                 *list = json_object_get(schema, "anyOf");

    if (list != NULL) {
        write_any_of(s, rule, list);
    } else if (values != NULL) {
        rule_put(s, "r%d ::= ", rule);
        for (size_t i = 0; i < json_array_size(values); i++) {
            char *text = dump(s, json_array_get(values, i));

            rule_put(s, "%s\"", i > 0 ? " | " : "");
            put_literal(s, text, text != NULL ? strlen(text) : 0);
            rule_put(s, "\"");
            free(text);
        }
        rule_put(s, "\n");
    } else if (json_object_get(schema, "types") != NULL) {
        write_types(s, rule, schema);
    } else {
        rule_put(s, "r%d ::= r%d\n", rule, write_schema(s, schema));
    }
}

enum status schema_grammar_write(struct buf *out, const json_t *top, const json_t *defs,
                                 struct error *err)
{
    struct schema_grammar s = {.out = out, .defs = defs, .any = -1, .any_string = -1, .err = err};
    int first;

    s.def_rules = json_object();
    s.texts = json_object();
    s.shapes = json_object();
    s.numbers = json_object();
    s.waiting = json_array();
    if (s.def_rules == NULL || s.texts == NULL || s.shapes == NULL || s.numbers == NULL ||
        s.waiting == NULL)
        grammar_fail(&s);
    first = new_rule(&s);
    rule_put(&s, "root ::= r%d\n", first);
    write_into(&s, first, top);
    for (size_t i = 0; i < json_array_size(s.waiting) && !s.is_failed; i++) {
        const json_t *name = json_array_get(s.waiting, i);

        write_into(&s,
                   (int)json_integer_value(json_object_get(s.def_rules, json_string_value(name))),
                   json_object_get(defs, json_string_value(name)));
    }
    json_decref(s.def_rules);
    json_decref(s.texts);
    json_decref(s.shapes);
    json_decref(s.numbers);
    json_decref(s.waiting);
    return s.is_failed ? err->status : STATUS_OK;
}
