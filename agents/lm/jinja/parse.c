/* Statements: from tokens to the tree of a template. */
#include <stdlib.h>
#include <string.h>

#include "agents/lm/jinja/jinja.h"
#include "agents/lm/jinja/parts.h"
#include "base/alloc.h"

enum {
    PARSE_MAX_DEPTH = 200,
    PARSE_MAX_BYTES = 256 << 20, /* of the tree and the tokens */
};

static bool expect_block_end(struct jinja_parser *p)
{
    if (p->at->kind != JINJA_T_BLOCK_END)
        return jinja_parse_fail(p, "the tag should end here");
    p->at++;
    return true;
}

/* Statements up to a block that begins with one of the names in ends ("endfor else"), whose block
 * begin is consumed; ends NULL: to the end. */
static bool parse_body(struct jinja_parser *p, const char *ends, struct jinja_node **out);

static bool is_end(const struct jinja_parser *p, const char *ends)
{
    const struct jinja_token *t = p->at + 1;
    const char *found;

    if (p->at->kind != JINJA_T_BLOCK || t->kind != JINJA_T_NAME || ends == NULL)
        return false;
    for (found = ends; *found != '\0';) {
        const size_t len = strcspn(found, " ");

        if (len == t->len && memcmp(found, t->text, len) == 0)
            return true;
        found += len + (found[len] == ' ');
    }
    return false;
}

/* A body and its end tag's last word. */
static bool parse_block(struct jinja_parser *p, const char *end, struct jinja_node **out)
{
    if (!parse_body(p, end, out))
        return false;
    p->at++; /* the name of the end tag */
    if (p->at->kind == JINJA_T_NAME)
        p->at++; /* the macro's name after endmacro */
    return expect_block_end(p);
}

static struct jinja_node *parse_for(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_FOR);
    bool is_good;

    if (n == NULL || (n->a = jinja_parse_target(p, false)) == NULL)
        return NULL;
    if (!jinja_skip_name(p, "in")) {
        (void)jinja_parse_fail(p, "'in' is missing");
        return NULL;
    }
    if ((n->b = jinja_parse_tuple(p, false)) == NULL)
        return NULL;
    if (jinja_skip_name(p, "if") && (n->c = jinja_parse_expression(p, true)) == NULL)
        return NULL;
    if (jinja_skip_name(p, "recursive"))
        n->kind = JINJA_N_FOR_RECURSIVE;
    p->loop_depth++;
    is_good = expect_block_end(p) && parse_body(p, "endfor else", &n->body);
    p->loop_depth--;
    if (!is_good)
        return NULL;
    if (jinja_skip_name(p, "else"))
        return expect_block_end(p) && parse_block(p, "endfor", &n->other) ? n : NULL;
    p->at++;
    return expect_block_end(p) ? n : NULL;
}

static struct jinja_node *parse_if(struct jinja_parser *p)
{
    struct jinja_node *first = NULL, **link = &first;

    for (;;) {
        struct jinja_node *n = jinja_node_new(p, JINJA_N_IF);

        if (n == NULL || (n->a = jinja_parse_tuple(p, true)) == NULL || !expect_block_end(p) ||
            !parse_body(p, "elif else endif", &n->body))
            return NULL;
        *link = n;
        link = &n->other;
        if (jinja_skip_name(p, "elif"))
            continue;
        if (jinja_skip_name(p, "else"))
            return expect_block_end(p) && parse_block(p, "endif", link) ? first : NULL;
        p->at++;
        return expect_block_end(p) ? first : NULL;
    }
}

static struct jinja_node *parse_set(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_SET), *body;

    if (n == NULL || (n->a = jinja_parse_target(p, true)) == NULL)
        return NULL;
    if (jinja_skip_op(p, '='))
        return (n->b = jinja_parse_tuple(p, true)) != NULL && expect_block_end(p) ? n : NULL;
    n->kind = JINJA_N_SET_BLOCK;
    body = jinja_node_new(p, JINJA_N_BODY);
    if (body == NULL || (n->b = jinja_parse_filters(p, body)) == NULL || !expect_block_end(p))
        return NULL;
    return parse_block(p, "endset", &n->body) ? n : NULL;
}

/* (a, b=1), or nothing. */
static bool parse_parameters(struct jinja_parser *p, struct jinja_node *n)
{
    struct jinja_node **link = &n->items;

    while (!jinja_at_op(p, ')')) {
        struct jinja_node *one = jinja_node_new(p, JINJA_N_KEYWORD);

        if (one == NULL || (n->items != NULL && !jinja_expect_op(p, ',')))
            return false;
        if (p->at->kind != JINJA_T_NAME)
            return jinja_parse_fail(p, "a parameter's name is missing");
        one->name = jinja_name(p, p->at->text, p->at->len);
        one->word = jinja_word(p, p->at);
        if (one->name == UINT32_MAX || one->word == NULL)
            return error_no_memory(p->err, p->at->len, "a chat template") == STATUS_OK;
        p->at++;
        if (jinja_skip_op(p, '=') && (one->a = jinja_parse_expression(p, true)) == NULL)
            return false;
        *link = one;
        link = &one->next;
    }
    p->at++;
    return true;
}

static struct jinja_node *parse_macro(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_MACRO);

    if (n == NULL || p->at->kind != JINJA_T_NAME) {
        if (n != NULL)
            (void)jinja_parse_fail(p, "the macro's name is missing");
        return NULL;
    }
    n->name = jinja_name(p, p->at->text, p->at->len);
    n->word = jinja_word(p, p->at);
    p->at++;
    if (n->name == UINT32_MAX || n->word == NULL || !jinja_expect_op(p, '(') ||
        !parse_parameters(p, n) || !expect_block_end(p))
        return NULL;
    return parse_block(p, "endmacro", &n->body) ? n : NULL;
}

static struct jinja_node *parse_call_block(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_CALL_BLOCK);

    if (n == NULL || (jinja_skip_op(p, '(') && !parse_parameters(p, n)) ||
        (n->a = jinja_parse_expression(p, true)) == NULL)
        return NULL;
    n->word = "caller";
    if (n->a->kind != JINJA_N_CALL) {
        (void)jinja_parse_fail(p, "the block should call a macro");
        return NULL;
    }
    return expect_block_end(p) && parse_block(p, "endcall", &n->body) ? n : NULL;
}

static struct jinja_node *parse_filter_block(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_FILTER_BLOCK);
    struct jinja_node *filter = n == NULL ? NULL : jinja_node_new(p, JINJA_N_FILTER);

    if (filter == NULL || (filter->a = jinja_node_new(p, JINJA_N_BODY)) == NULL)
        return NULL;
    if (p->at->kind != JINJA_T_NAME) {
        (void)jinja_parse_fail(p, "the filter's name is missing");
        return NULL;
    }
    filter->word = jinja_word(p, p->at++);
    if (filter->word == NULL || (jinja_skip_op(p, '(') && !jinja_parse_call_args(p, filter)) ||
        (n->a = jinja_parse_filters(p, filter)) == NULL || !expect_block_end(p))
        return NULL;
    return parse_block(p, "endfilter", &n->body) ? n : NULL;
}

static struct jinja_node *parse_with(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_SCOPE), **link;

    if (n == NULL)
        return NULL;
    link = &n->items;
    while (p->at->kind != JINJA_T_BLOCK_END) {
        struct jinja_node *one = jinja_node_new(p, JINJA_N_SET);

        if (one == NULL || (n->items != NULL && !jinja_expect_op(p, ',')) ||
            (one->a = jinja_parse_target(p, false)) == NULL || !jinja_expect_op(p, '=') ||
            (one->b = jinja_parse_expression(p, true)) == NULL)
            return NULL;
        *link = one;
        link = &one->next;
    }
    p->at++;
    return parse_block(p, "endwith", &n->body) ? n : NULL;
}

/* Training uses it to find the model's own text; it prints what is inside. */
static struct jinja_node *parse_generation(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_SCOPE);

    if (n == NULL || !expect_block_end(p))
        return NULL;
    return parse_block(p, "endgeneration", &n->body) ? n : NULL;
}

static struct jinja_node *parse_loop_control(struct jinja_parser *p, enum jinja_node_kind kind)
{
    struct jinja_node *n = jinja_node_new(p, kind);

    if (n != NULL && p->loop_depth == 0) {
        (void)jinja_parse_fail(p, "break and continue must be inside a loop");
        return NULL;
    }
    return n != NULL && expect_block_end(p) ? n : NULL;
}

static struct jinja_node *parse_statement(struct jinja_parser *p)
{
    if (jinja_skip_name(p, "for"))
        return parse_for(p);
    if (jinja_skip_name(p, "if"))
        return parse_if(p);
    if (jinja_skip_name(p, "set"))
        return parse_set(p);
    if (jinja_skip_name(p, "macro"))
        return parse_macro(p);
    if (jinja_skip_name(p, "call"))
        return parse_call_block(p);
    if (jinja_skip_name(p, "filter"))
        return parse_filter_block(p);
    if (jinja_skip_name(p, "with"))
        return parse_with(p);
    if (jinja_skip_name(p, "generation"))
        return parse_generation(p);
    if (jinja_skip_name(p, "break"))
        return parse_loop_control(p, JINJA_N_BREAK);
    if (jinja_skip_name(p, "continue"))
        return parse_loop_control(p, JINJA_N_CONTINUE);
    (void)jinja_parse_fail(p, "unknown tag '%.*s'", p->at->len < 40 ? (int)p->at->len : 40,
                           p->at->text == NULL ? "" : p->at->text);
    return NULL;
}

static struct jinja_node *parse_print(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_PRINT);

    if (n == NULL || (n->a = jinja_parse_tuple(p, true)) == NULL)
        return NULL;
    if (p->at->kind != JINJA_T_PRINT_END) {
        (void)jinja_parse_fail(p, "the expression should end here");
        return NULL;
    }
    p->at++;
    return n;
}

static struct jinja_node *parse_data(struct jinja_parser *p)
{
    struct jinja_node *n = jinja_node_new(p, JINJA_N_DATA);
    struct jinja_text *t = n == NULL ? NULL : arena_alloc(&p->template->arena, 1, sizeof(*t));

    if (t == NULL) {
        (void)error_no_memory(p->err, sizeof(*t), "a chat template");
        return NULL;
    }
    *t = (struct jinja_text){.data = p->at->text, .len = p->at->len};
    n->value = (struct jinja_value){.kind = JINJA_TEXT, .as.text = t};
    p->at++;
    return n;
}

static bool parse_body(struct jinja_parser *p, const char *ends, struct jinja_node **out)
{
    if (p->depth == PARSE_MAX_DEPTH)
        return jinja_parse_fail(p, "the template is nested too deeply");
    p->depth++;
    while (p->at->kind != JINJA_T_END && !is_end(p, ends)) {
        struct jinja_node *n;

        if (p->at->kind == JINJA_T_DATA) {
            n = parse_data(p);
        } else if (p->at->kind == JINJA_T_PRINT) {
            p->at++;
            n = parse_print(p);
        } else {
            p->at++;
            n = parse_statement(p);
        }
        if (n == NULL)
            return false;
        *out = n;
        out = &n->next;
    }
    p->depth--;
    if (ends == NULL)
        return true;
    if (p->at->kind == JINJA_T_END)
        return jinja_parse_fail(p, "the template ends, '%s' is missing", ends);
    p->at++; /* the start of the end tag */
    return true;
}

enum status jinja_open(struct jinja **out, const char *text, size_t len, struct error *err)
{
    struct jinja *t;
    struct jinja_token *tokens;
    struct jinja_parser p = {.err = err};
    enum status rc;

    if (len > JINJA_MAX_SOURCE_BYTES)
        return error_set(err, STATUS_INVALID, "the template has %zu bytes, it may have at most %d",
                         len, JINJA_MAX_SOURCE_BYTES);
    t = try_alloc(1, sizeof(*t));
    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a chat template");
    arena_init(&t->arena, PARSE_MAX_BYTES);
    rc = jinja_lex(&t->arena, text, len, &tokens, err);
    if (rc == STATUS_OK) {
        p.template = t;
        p.at = tokens;
        if (!parse_body(&p, NULL, &t->body))
            rc = err->status;
    }
    if (rc == STATUS_OK) {
        *out = t;
        t = NULL; /* given away */
    }
    jinja_close(t);
    return rc;
}

void jinja_close(struct jinja *t)
{
    if (t == NULL)
        return;
    arena_deinit(&t->arena);
    free(t);
}
