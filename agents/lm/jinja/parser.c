/* A parser's place in the tokens of a template, and what it makes: nodes, names and words of the
 * template's arena. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agents/lm/jinja/parts.h"

bool jinja_parse_fail(struct jinja_parser *p, const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)error_set(p->err, STATUS_INVALID, "line %u: %s", p->at->line, text);
    return false;
}

struct jinja_node *jinja_node_new(struct jinja_parser *p, enum jinja_node_kind kind)
{
    struct jinja_node *n = arena_alloc(&p->template->arena, 1, sizeof(*n));

    if (n == NULL) {
        (void)error_no_memory(p->err, sizeof(*n), "a chat template");
        return NULL;
    }
    n->kind = kind;
    n->line = p->at->line;
    return n;
}

uint32_t jinja_name(struct jinja_parser *p, const char *text, size_t len)
{
    struct jinja *t = p->template;
    const char **names;

    for (uint32_t i = 0; i < t->n_names; i++)
        if (strlen(t->names[i]) == len && memcmp(t->names[i], text, len) == 0)
            return i;
    if (t->n_names == t->cap_names) {
        const uint32_t cap = t->cap_names == 0 ? 32 : 2 * t->cap_names;

        names = arena_alloc(&t->arena, cap, sizeof(*names));
        if (names == NULL)
            return UINT32_MAX;
        if (t->n_names != 0)
            memcpy(names, t->names, t->n_names * sizeof(*names));
        t->names = names;
        t->cap_names = cap;
    }
    t->names[t->n_names] = arena_strndup(&t->arena, text, len);
    return t->names[t->n_names] == NULL ? UINT32_MAX : t->n_names++;
}

const char *jinja_word(struct jinja_parser *p, const struct jinja_token *t)
{
    const char *word = arena_strndup(&p->template->arena, t->text, t->len);

    if (word == NULL)
        (void)error_no_memory(p->err, t->len, "a chat template");
    return word;
}

bool jinja_at_op(const struct jinja_parser *p, int op)
{
    return p->at->kind == JINJA_T_OPERATOR && p->at->operator== op;
}

bool jinja_at_name(const struct jinja_parser *p, const char *name)
{
    return p->at->kind == JINJA_T_NAME && p->at->len == strlen(name) &&
           memcmp(p->at->text, name, p->at->len) == 0;
}

bool jinja_skip_op(struct jinja_parser *p, int op)
{
    const bool is_there = jinja_at_op(p, op);

    p->at += is_there;
    return is_there;
}

bool jinja_skip_name(struct jinja_parser *p, const char *name)
{
    const bool is_there = jinja_at_name(p, name);

    p->at += is_there;
    return is_there;
}

bool jinja_expect_op(struct jinja_parser *p, int op)
{
    const char text[3] = {(char)(op & 0xFF), (char)(op >> 8), '\0'};

    return jinja_skip_op(p, op) || jinja_parse_fail(p, "'%s' is missing", text);
}
