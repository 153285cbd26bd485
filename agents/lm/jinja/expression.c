/* Expressions: Jinja2's precedence, from conditional to postfix. */
#include <string.h>

#include "agents/lm/jinja/parts.h"

enum { EXPRESSION_MAX_DEPTH = 200 };

static struct jinja_node *parse_unary(struct jinja_parser *p, bool has_filters);

static struct jinja_node *node_of_two(struct jinja_parser *p, enum jinja_node_kind kind, int op,
                                      struct jinja_node *a, struct jinja_node *b)
{
    struct jinja_node *n = a == NULL || b == NULL ? NULL : jinja_node_new(p, kind);

    if (n == NULL)
        return NULL;
    n->operator= op;
    n->a = a;
    n->b = b;
    return n;
}

static struct jinja_node *node_of_text(struct jinja_parser *p, const char *data, size_t len)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_CONST);
    struct jinja_text *t = n == NULL ? NULL : arena_alloc(&p->template->arena, 1, sizeof(*t));

    if (t == NULL) {
        (void)error_no_memory(p->err, sizeof(*t), "a chat template");
        return NULL;
    }
    *t = (struct jinja_text){.data = data, .len = len};
    n->value = (struct jinja_value){.kind = JINJA_TEXT, .as.text = t};
    return n;
}

/* Strings beside each other are one. */
static struct jinja_node *parse_strings(struct jinja_parser *p)
{
    size_t len = 0, at = 0;
    const struct jinja_token *end = p->at;
    char *data;

    for (; end->kind == JINJA_T_STRING; end++)
        len += end->len;
    data = arena_alloc(&p->template->arena, len + 1, 1);
    if (data == NULL) {
        (void)error_no_memory(p->err, len, "a chat template");
        return NULL;
    }
    for (; p->at < end; at += p->at->len, p->at++)
        memcpy(data + at, p->at->text, p->at->len);
    return node_of_text(p, data, len);
}

static struct jinja_node *node_of_value(struct jinja_parser *p, struct jinja_value v)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_CONST);

    if (n != NULL)
        n->value = v;
    p->at++;
    return n;
}

static struct jinja_node *parse_name(struct jinja_parser *p)
{
    struct jinja_node *n;

    if (jinja_at_name(p, "true") || jinja_at_name(p, "True"))
        return node_of_value(p, jinja_bool(true));
    if (jinja_at_name(p, "false") || jinja_at_name(p, "False"))
        return node_of_value(p, jinja_bool(false));
    if (jinja_at_name(p, "none") || jinja_at_name(p, "None"))
        return node_of_value(p, jinja_none());
    n = jinja_node_new(p, JINJA_N_NAME);
    if (n == NULL)
        return NULL;
    n->name = jinja_name(p, p->at->text, p->at->len);
    if (n->name == UINT32_MAX) {
        (void)error_no_memory(p->err, p->at->len, "a chat template");
        return NULL;
    }
    p->at++;
    return n;
}

/* Items up to the closing bracket, with a comma between them and perhaps behind. */
static bool parse_items(struct jinja_parser *p, int close, bool is_map, struct jinja_node **link)
{
    bool is_first = true;

    while (!jinja_skip_op(p, close)) {
        if (!is_first && !jinja_expect_op(p, ','))
            return false;
        is_first = false;
        if (jinja_skip_op(p, close))
            return true;
        *link = jinja_parse_expression(p, true);
        if (*link == NULL)
            return false;
        link = &(*link)->next;
        if (!is_map)
            continue;
        if (!jinja_expect_op(p, ':') || (*link = jinja_parse_expression(p, true)) == NULL)
            return false;
        link = &(*link)->next;
    }
    return true;
}

static struct jinja_node *parse_collection(struct jinja_parser *p, enum jinja_node_kind kind,
                                           int close)
{
    struct jinja_node *n = jinja_node_new(p, kind);

    return n != NULL && parse_items(p, close, kind == JINJA_N_DICT, &n->items) ? n : NULL;
}

static struct jinja_node *parse_brackets(struct jinja_parser *p)
{
    struct jinja_node *n;

    if (jinja_skip_op(p, ')'))
        return jinja_node_new(p, JINJA_N_TUPLE);
    n = jinja_parse_tuple(p, true);
    return n != NULL && jinja_expect_op(p, ')') ? n : NULL;
}

static struct jinja_node *parse_primary(struct jinja_parser *p)
{
    switch (p->at->kind) {
    case JINJA_T_NAME:
        return parse_name(p);
    case JINJA_T_STRING:
        return parse_strings(p);
    case JINJA_T_INT:
        return node_of_value(p, jinja_int(p->at->number));
    case JINJA_T_FLOAT:
        return node_of_value(p, jinja_float(p->at->real));
    default:
        break;
    }
    if (jinja_skip_op(p, '('))
        return parse_brackets(p);
    if (jinja_skip_op(p, '['))
        return parse_collection(p, JINJA_N_LIST, ']');
    if (jinja_skip_op(p, '{'))
        return parse_collection(p, JINJA_N_DICT, '}');
    (void)jinja_parse_fail(p, "an expression is missing");
    return NULL;
}

static bool parse_argument(struct jinja_parser *p, struct jinja_node **out)
{
    struct jinja_node *n = NULL;
    const bool is_named =
        p->at->kind == JINJA_T_NAME && p->at[1].kind == JINJA_T_OPERATOR && p->at[1].operator== '=';

    if (is_named) {
        n = jinja_node_new(p, JINJA_N_KEYWORD);
        if (n == NULL || (n->word = jinja_word(p, p->at)) == NULL)
            return false;
        p->at += 2;
        *out = n;
        return (n->a = jinja_parse_expression(p, true)) != NULL;
    }
    if (jinja_at_op(p, '*') || jinja_at_op(p, JINJA_OP('*', '*'))) {
        n = jinja_node_new(p, jinja_at_op(p, '*') ? JINJA_N_STAR : JINJA_N_STARS);
        if (n == NULL)
            return false;
        p->at++;
        *out = n;
        return (n->a = jinja_parse_expression(p, true)) != NULL;
    }
    *out = jinja_parse_expression(p, true);
    return *out != NULL;
}

struct jinja_node *jinja_parse_call_args(struct jinja_parser *p, struct jinja_node *call)
{
    struct jinja_node **link = &call->items;

    while (!jinja_skip_op(p, ')')) {
        if (call->items != NULL && !jinja_expect_op(p, ','))
            return NULL;
        if (call->items != NULL && jinja_skip_op(p, ')'))
            break;
        if (!parse_argument(p, link))
            return NULL;
        link = &(*link)->next;
    }
    return call;
}

/* The parts of a slice; each may be missing. */
static bool parse_slice(struct jinja_parser *p, struct jinja_node *n)
{
    struct jinja_node **part[3] = {&n->b, &n->c, &n->d};
    size_t i = 0;

    n->kind = JINJA_N_ITEM;
    while (!jinja_at_op(p, ']')) {
        if (jinja_skip_op(p, ':')) {
            n->kind = JINJA_N_SLICE;
            if (++i == 3)
                return jinja_parse_fail(p, "a slice has at most three parts");
        } else if (*part[i] != NULL || (*part[i] = jinja_parse_expression(p, true)) == NULL) {
            return *part[i] == NULL || jinja_parse_fail(p, "']' is missing");
        }
    }
    p->at++;
    return n->kind == JINJA_N_SLICE || n->b != NULL || jinja_parse_fail(p, "a key is missing");
}

static struct jinja_node *parse_attribute(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_ATTRIBUTE);

    if (n == NULL)
        return NULL;
    n->a = of;
    if (p->at->kind == JINJA_T_INT) { /* x.0 */
        n->kind = JINJA_N_ITEM;
        n->b = node_of_value(p, jinja_int(p->at->number));
        return n->b == NULL ? NULL : n;
    }
    if (p->at->kind != JINJA_T_NAME) {
        (void)jinja_parse_fail(p, "a name is missing after the dot");
        return NULL;
    }
    n->word = jinja_word(p, p->at++);
    return n->word == NULL ? NULL : n;
}

static struct jinja_node *parse_call(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_CALL);

    if (n == NULL)
        return NULL;
    n->a = of;
    return jinja_parse_call_args(p, n);
}

static struct jinja_node *parse_postfix(struct jinja_parser *p, struct jinja_node *n)
{
    while (n != NULL) {
        if (jinja_skip_op(p, '.')) {
            n = parse_attribute(p, n);
        } else if (jinja_skip_op(p, '[')) {
            struct jinja_node *item = jinja_node_new(p, JINJA_N_ITEM);

            if (item == NULL || !parse_slice(p, item))
                return NULL;
            item->a = n;
            n = item;
        } else if (jinja_skip_op(p, '(')) {
            n = parse_call(p, n);
        } else {
            break;
        }
    }
    return n;
}

static struct jinja_node *parse_one_filter(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_FILTER);

    if (n == NULL)
        return NULL;
    n->a = of;
    if (p->at->kind != JINJA_T_NAME) {
        (void)jinja_parse_fail(p, "the filter's name is missing");
        return NULL;
    }
    n->word = jinja_word(p, p->at++);
    if (n->word == NULL)
        return NULL;
    return jinja_skip_op(p, '(') ? jinja_parse_call_args(p, n) : n;
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *of)
{
    while (of != NULL && jinja_skip_op(p, '|'))
        of = parse_one_filter(p, of);
    return of;
}

/* Whether the next token begins the only argument of a test without brackets. */
static bool has_test_argument(const struct jinja_parser *p)
{
    switch (p->at->kind) {
    case JINJA_T_NAME:
        return !jinja_at_name(p, "else") && !jinja_at_name(p, "or") && !jinja_at_name(p, "and") &&
               !jinja_at_name(p, "is") && !jinja_at_name(p, "if") && !jinja_at_name(p, "in") &&
               !jinja_at_name(p, "not");
    case JINJA_T_STRING:
    case JINJA_T_INT:
    case JINJA_T_FLOAT:
        return true;
    default:
        return jinja_at_op(p, '[') || jinja_at_op(p, '{');
    }
}

static struct jinja_node *parse_test(struct jinja_parser *p, struct jinja_node *of)
{
    const bool is_not = jinja_skip_name(p, "not");
    struct jinja_node *n = jinja_node_new(p, JINJA_N_TEST);

    if (n == NULL)
        return NULL;
    n->a = of;
    if (p->at->kind != JINJA_T_NAME) {
        (void)jinja_parse_fail(p, "the test's name is missing");
        return NULL;
    }
    n->word = jinja_word(p, p->at++);
    if (n->word == NULL)
        return NULL;
    if (jinja_skip_op(p, '(')) {
        if (jinja_parse_call_args(p, n) == NULL)
            return NULL;
    } else if (has_test_argument(p)) {
        n->items = parse_postfix(p, parse_primary(p));
        if (n->items == NULL)
            return NULL;
    }
    return is_not ? node_of_two(p, JINJA_N_NOT, 0, n, n) : n;
}

/* Filters, tests and calls behind an expression. */
static struct jinja_node *parse_filters_and_tests(struct jinja_parser *p, struct jinja_node *n)
{
    while (n != NULL) {
        if (jinja_skip_op(p, '|'))
            n = parse_one_filter(p, n);
        else if (jinja_skip_name(p, "is"))
            n = parse_test(p, n);
        else if (jinja_skip_op(p, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static struct jinja_node *parse_signed(struct jinja_parser *p, bool has_filters)
{
    struct jinja_node *n;

    if (jinja_at_op(p, '-') || jinja_at_op(p, '+')) {
        const enum jinja_node_kind kind = jinja_at_op(p, '-') ? JINJA_N_NEGATIVE : JINJA_N_POSITIVE;

        p->at++;
        n = parse_unary(p, false);
        n = node_of_two(p, kind, 0, n, n);
    } else {
        n = parse_primary(p);
    }
    n = parse_postfix(p, n);
    return has_filters ? parse_filters_and_tests(p, n) : n;
}

static struct jinja_node *parse_unary(struct jinja_parser *p, bool has_filters)
{
    struct jinja_node *n;

    if (p->depth >= EXPRESSION_MAX_DEPTH) {
        (void)jinja_parse_fail(p, "the template is nested too deeply");
        return NULL;
    }
    p->depth++;
    n = parse_signed(p, has_filters);
    p->depth--;
    return n;
}

/* Binary operators by level, the loosest first; each is left-associative. */
static const int levels[][5] = {
    {'+', '-'},
    {'~'},
    {'*', '/', JINJA_OP('/', '/'), '%'},
    {JINJA_OP('*', '*')},
};

static struct jinja_node *parse_level(struct jinja_parser *p, size_t level)
{
    struct jinja_node *n;

    if (level == sizeof(levels) / sizeof(levels[0]))
        return parse_unary(p, true);
    n = parse_level(p, level + 1);
    for (size_t i = 0; n != NULL && levels[level][i] != 0;) {
        if (jinja_skip_op(p, levels[level][i])) {
            n = node_of_two(p, JINJA_N_BINARY, levels[level][i], n, parse_level(p, level + 1));
            i = 0;
        } else {
            i++;
        }
    }
    return n;
}

static int comparison(struct jinja_parser *p)
{
    static const int ops[] = {
        JINJA_OP('=', '='), JINJA_OP('!', '='), JINJA_OP('<', '='), JINJA_OP('>', '='), '<', '>'};

    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        if (jinja_skip_op(p, ops[i]))
            return ops[i];
    if (jinja_skip_name(p, "in"))
        return JINJA_OP_IN;
    if (jinja_at_name(p, "not") && p->at[1].kind == JINJA_T_NAME && p->at[1].len == 2 &&
        memcmp(p->at[1].text, "in", 2) == 0) {
        p->at += 2;
        return JINJA_OP_NOT_IN;
    }
    return 0;
}

static struct jinja_node *parse_compare(struct jinja_parser *p)
{
    struct jinja_node *first = parse_level(p, 0), *n = NULL, **link = NULL;
    int op;

    while (first != NULL && (op = comparison(p)) != 0) {
        struct jinja_node *one = jinja_node_new(p, JINJA_N_KEYWORD);

        if (n == NULL) {
            n = jinja_node_new(p, JINJA_N_COMPARE);
            link = n == NULL ? NULL : &n->items;
        }
        if (n == NULL || one == NULL || (one->a = parse_level(p, 0)) == NULL)
            return NULL;
        n->a = first;
        one->operator= op;
        *link = one;
        link = &one->next;
    }
    return n == NULL ? first : n;
}

static struct jinja_node *parse_not(struct jinja_parser *p)
{
    struct jinja_node *n;

    if (!jinja_skip_name(p, "not"))
        return parse_compare(p);
    if (p->depth >= EXPRESSION_MAX_DEPTH) {
        (void)jinja_parse_fail(p, "the template is nested too deeply");
        return NULL;
    }
    p->depth++;
    n = parse_not(p);
    p->depth--;
    return node_of_two(p, JINJA_N_NOT, 0, n, n);
}

static struct jinja_node *parse_and(struct jinja_parser *p)
{
    struct jinja_node *n = parse_not(p);

    while (n != NULL && jinja_skip_name(p, "and"))
        n = node_of_two(p, JINJA_N_AND, 0, n, parse_not(p));
    return n;
}

static struct jinja_node *parse_or(struct jinja_parser *p)
{
    struct jinja_node *n = parse_and(p);

    while (n != NULL && jinja_skip_name(p, "or"))
        n = node_of_two(p, JINJA_N_OR, 0, n, parse_and(p));
    return n;
}

static struct jinja_node *parse_conditional(struct jinja_parser *p)
{
    struct jinja_node *n = parse_or(p);

    while (n != NULL && jinja_skip_name(p, "if")) {
        struct jinja_node *choice = node_of_two(p, JINJA_N_IF_ELSE, 0, n, parse_or(p));

        if (choice == NULL ||
            (jinja_skip_name(p, "else") && (choice->c = jinja_parse_expression(p, true)) == NULL))
            return NULL;
        n = choice;
    }
    return n;
}

struct jinja_node *jinja_parse_expression(struct jinja_parser *p, bool may_be_conditional)
{
    struct jinja_node *n;

    if (p->depth >= EXPRESSION_MAX_DEPTH) {
        (void)jinja_parse_fail(p, "the template is nested too deeply");
        return NULL;
    }
    p->depth++;
    n = may_be_conditional ? parse_conditional(p) : parse_or(p);
    p->depth--;
    return n;
}

static bool is_tuple_end(const struct jinja_parser *p)
{
    return p->at->kind == JINJA_T_PRINT_END || p->at->kind == JINJA_T_BLOCK_END ||
           jinja_at_op(p, ')') || jinja_at_op(p, '=') || jinja_at_name(p, "in");
}

/* a, b: a tuple without brackets; a alone is itself. */
static struct jinja_node *tuple_of(struct jinja_parser *p, struct jinja_node *first,
                                   struct jinja_node *(*item)(struct jinja_parser *, bool),
                                   bool arg)
{
    struct jinja_node *n, **link;

    if (first == NULL || !jinja_at_op(p, ','))
        return first;
    n = jinja_node_new(p, JINJA_N_TUPLE);
    if (n == NULL)
        return NULL;
    n->items = first;
    link = &first->next;
    while (jinja_skip_op(p, ',') && !is_tuple_end(p)) {
        *link = item(p, arg);
        if (*link == NULL)
            return NULL;
        link = &(*link)->next;
    }
    return n;
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool may_be_conditional)
{
    return tuple_of(p, jinja_parse_expression(p, may_be_conditional), jinja_parse_expression,
                    may_be_conditional);
}

static struct jinja_node *target_item(struct jinja_parser *p, bool may_be_attribute)
{
    struct jinja_node *n;

    if (jinja_skip_op(p, '(')) {
        n = jinja_parse_target(p, false);
        return n != NULL && jinja_expect_op(p, ')') ? n : NULL;
    }
    if (p->at->kind != JINJA_T_NAME) {
        (void)jinja_parse_fail(p, "a name is missing");
        return NULL;
    }
    n = parse_name(p);
    if (n != NULL && may_be_attribute && jinja_skip_op(p, '.'))
        n = parse_attribute(p, n);
    if (n != NULL && n->kind != JINJA_N_NAME && n->kind != JINJA_N_ATTRIBUTE) {
        (void)jinja_parse_fail(p, "the left side of an assignment must be a name or an attribute");
        return NULL;
    }
    return n;
}

struct jinja_node *jinja_parse_target(struct jinja_parser *p, bool may_be_attribute)
{
    struct jinja_node *n;

    if (p->depth >= EXPRESSION_MAX_DEPTH) {
        (void)jinja_parse_fail(p, "the template is nested too deeply");
        return NULL;
    }
    p->depth++;
    n = tuple_of(p, target_item(p, may_be_attribute), target_item, false);
    p->depth--;
    return n;
}
