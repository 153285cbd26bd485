/* Reads GBNF rule by rule, without recursion, and writes each element in the one form that the
 * engine reads in the same sense. The names of rules are noted, and at the end each name that is
 * used must be one that is defined. */
#include "agents/constraint/gbnf.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum {
    LAST_CHARACTER = 0x10FFFF,
    FIRST_SURROGATE = 0xD800,
    LAST_SURROGATE = 0xDFFF,
    MAX_COUNT_DIGITS = 7,
};

struct gbnf_name {
    const char *text; /* [len] */
    size_t len;
    unsigned line;
};

struct gbnf {
    const char *at, *end, *line_start;
    unsigned line;
    struct buf *out;
    struct buf defined, used; /* struct gbnf_name */
    unsigned depth;           /* of open groups */
    /* In each open group, and outside of all: whether the alternative that is being read has an
     * element, and whether the last thing read may be repeated. */
    bool has_element[GBNF_MAX_DEPTH + 1];
    bool may_repeat;
    struct error *err;
};

static enum status gbnf_refuse(struct gbnf *g, const char *what)
{
    return error_because(g->err, STATUS_INVALID, REASON_INVALID_FIELD, NULL,
                         "the grammar's line %u %s", g->line, what);
}

static enum status gbnf_refuse_name(struct gbnf *g, const struct gbnf_name *name, const char *what)
{
    const int len = name->len < 60 ? (int)name->len : 60;

    return error_because(g->err, STATUS_INVALID, REASON_INVALID_FIELD, NULL,
                         "the grammar's line %u %s '%.*s'", name->line, what, len, name->text);
}

static enum status gbnf_put(struct gbnf *g, const char *text, size_t len)
{
    if (buf_append(g->out, text, len) == STATUS_OK)
        return STATUS_OK;
    return g->out->is_full ? gbnf_refuse(g, "makes it too long")
                           : error_no_memory(g->err, len, "a grammar");
}

static enum status gbnf_put_text(struct gbnf *g, const char *text)
{
    return gbnf_put(g, text, strlen(text));
}

/* --- characters --- */

static bool gbnf_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool gbnf_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool gbnf_is_name(char c)
{
    return gbnf_is_letter(c) || gbnf_is_digit(c) || c == '-' || c == '_';
}

static int gbnf_hex(char c)
{
    if (gbnf_is_digit(c))
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static enum status gbnf_take_code(struct gbnf *g, unsigned n_digits, uint32_t *out)
{
    uint32_t code = 0;

    for (unsigned i = 0; i < n_digits; i++, g->at++) {
        const int digit = g->at < g->end ? gbnf_hex(*g->at) : -1;

        if (digit < 0 || code > LAST_CHARACTER)
            return gbnf_refuse(g, "has an escape without its two (\\x), four (\\u) or eight (\\U) "
                                  "hexadecimal digits");
        code = code << 4 | (uint32_t)digit;
    }
    if (code > LAST_CHARACTER || (code >= FIRST_SURROGATE && code <= LAST_SURROGATE))
        return gbnf_refuse(g, "has an escape that is no character");
    *out = code;
    return STATUS_OK;
}

/* Behind a backslash. Beside llama.cpp's escapes, C's and those of punctuation count. */
static enum status gbnf_take_escape(struct gbnf *g, uint32_t *out)
{
    static const char named[] = "t\tr\rn\na\ab\bf\fv\ve\033";
    const char c = g->at < g->end ? *g->at : '\0';
    const char *found = c == '\0' ? NULL : strchr(named, c);

    g->at++;
    if (c == 'x' || c == 'u' || c == 'U')
        return gbnf_take_code(g, c == 'x' ? 2 : c == 'u' ? 4 : 8, out);
    if (found != NULL && (found - named) % 2 == 0) {
        *out = (unsigned char)found[1];
        return STATUS_OK;
    }
    if (c <= ' ' || c > '~' || gbnf_is_letter(c) || gbnf_is_digit(c))
        return gbnf_refuse(g, "has an escape that is none of \\t \\r \\n \\\\ \\\" \\[ \\] \\xHH "
                              "\\uHHHH \\UHHHHHHHH");
    *out = (unsigned char)c;
    return STATUS_OK;
}

static void gbnf_count_line(struct gbnf *g)
{
    if (*g->at == '\n' || (*g->at == '\r' && (g->at + 1 == g->end || g->at[1] != '\n'))) {
        g->line++;
        g->line_start = g->at + 1;
    }
}

/* One character of a literal or a class; there is one. */
static enum status gbnf_take_character(struct gbnf *g, uint32_t *out)
{
    if (*g->at == '\\') {
        g->at++;
        return gbnf_take_escape(g, out);
    }
    gbnf_count_line(g);
    g->at += utf8_next(g->at, (size_t)(g->end - g->at), out);
    return STATUS_OK;
}

/* Letters and digits as they are, all else by its code. */
static enum status gbnf_put_character(struct gbnf *g, uint32_t c)
{
    char text[16];
    int n;

    if (c < 0x80 && (gbnf_is_letter((char)c) || gbnf_is_digit((char)c)))
        n = snprintf(text, sizeof(text), "%c", (char)c);
    else
        n = snprintf(text, sizeof(text), c > 0xFFFF ? "\\U%08x" : "\\u%04x", (unsigned)c);
    return gbnf_put(g, text, (size_t)n);
}

static enum status gbnf_put_range(struct gbnf *g, uint32_t first, uint32_t last)
{
    if (first < FIRST_SURROGATE && last > LAST_SURROGATE)
        return gbnf_put_range(g, first, FIRST_SURROGATE - 1) != STATUS_OK
                   ? g->err->status
                   : gbnf_put_range(g, LAST_SURROGATE + 1, last);
    if (gbnf_put_character(g, first) != STATUS_OK)
        return g->err->status;
    return first == last                        ? STATUS_OK
           : gbnf_put_text(g, "-") != STATUS_OK ? g->err->status
                                                : gbnf_put_character(g, last);
}

/* --- elements --- */

static enum status gbnf_take_literal(struct gbnf *g)
{
    enum status rc = gbnf_put_text(g, " \"");
    uint32_t c;

    for (g->at++; rc == STATUS_OK && g->at < g->end && *g->at != '"';) {
        rc = gbnf_take_character(g, &c);
        if (rc == STATUS_OK)
            rc = gbnf_put_character(g, c);
    }
    if (rc != STATUS_OK)
        return rc;
    if (g->at == g->end)
        return gbnf_refuse(g, "ends in a literal without its closing quote");
    g->at++;
    return gbnf_put_text(g, "\"");
}

/* A range where '-' stands between two characters; else *ret_last is first. */
static enum status gbnf_take_range_end(struct gbnf *g, uint32_t first, uint32_t *ret_last)
{
    *ret_last = first;
    if (g->end - g->at < 2 || g->at[0] != '-' || g->at[1] == ']')
        return STATUS_OK;
    g->at++;
    if (gbnf_take_character(g, ret_last) != STATUS_OK)
        return g->err->status;
    return *ret_last < first ? gbnf_refuse(g, "has a range whose end is before its beginning")
                             : STATUS_OK;
}

static enum status gbnf_take_class(struct gbnf *g)
{
    uint32_t first, last;
    bool is_empty = true;
    enum status rc = gbnf_put_text(g, " [");

    g->at++;
    if (rc == STATUS_OK && g->at < g->end && *g->at == '^') {
        g->at++;
        rc = gbnf_put_text(g, "^");
    }
    for (; rc == STATUS_OK && g->at < g->end && *g->at != ']'; is_empty = false) {
        rc = gbnf_take_character(g, &first);
        if (rc == STATUS_OK)
            rc = gbnf_take_range_end(g, first, &last);
        if (rc == STATUS_OK)
            rc = gbnf_put_range(g, first, last);
    }
    if (rc != STATUS_OK)
        return rc;
    if (g->at == g->end)
        return gbnf_refuse(g, "ends in a class without its closing bracket");
    if (is_empty)
        return gbnf_refuse(g, "has a class of no characters");
    g->at++;
    return gbnf_put_text(g, "]");
}

static enum status gbnf_note_name(struct gbnf *g, struct buf *to, struct gbnf_name *out)
{
    *out = (struct gbnf_name){.text = g->at, .line = g->line};
    while (g->at < g->end && gbnf_is_name(*g->at))
        g->at++;
    out->len = (size_t)(g->at - out->text);
    return buf_append(to, out, sizeof(*out)) == STATUS_OK
               ? STATUS_OK
               : error_no_memory(g->err, sizeof(*out), "a grammar");
}

static bool gbnf_is_root(const struct gbnf_name *name)
{
    return name->len == 4 && memcmp(name->text, "root", 4) == 0;
}

/* With a prefix, since some names mean something to the engine. */
static enum status gbnf_put_name(struct gbnf *g, const struct gbnf_name *name)
{
    if (!gbnf_is_root(name) && gbnf_put_text(g, "g-") != STATUS_OK)
        return g->err->status;
    return gbnf_put(g, name->text, name->len);
}

static void gbnf_skip_space(struct gbnf *g)
{
    for (; g->at < g->end; g->at++) {
        if (*g->at == '#')
            while (g->at + 1 < g->end && g->at[1] != '\n' && g->at[1] != '\r')
                g->at++;
        else if (*g->at != ' ' && *g->at != '\t' && *g->at != '\n' && *g->at != '\r')
            return;
        else
            gbnf_count_line(g);
    }
}

/* False: there is no number, or one of too many digits. */
static bool gbnf_take_count(struct gbnf *g, unsigned long *out)
{
    const char *from;
    ptrdiff_t n_digits;

    gbnf_skip_space(g);
    from = g->at;
    for (*out = 0; g->at < g->end && gbnf_is_digit(*g->at); g->at++)
        if (g->at - from < MAX_COUNT_DIGITS)
            *out = 10 * *out + (unsigned long)(*g->at - '0');
    n_digits = g->at - from;
    gbnf_skip_space(g);
    return n_digits > 0 && n_digits <= MAX_COUNT_DIGITS;
}

/* {n} {n,} {n,m} {,m} */
static enum status gbnf_take_counts(struct gbnf *g)
{
    unsigned long least = 0, most = 0;
    bool has_least, has_most = false, is_range;
    char text[32];

    g->at++;
    has_least = gbnf_take_count(g, &least);
    is_range = g->at < g->end && *g->at == ',';
    if (is_range) {
        g->at++;
        has_most = gbnf_take_count(g, &most);
    }
    if (g->at == g->end || *g->at != '}' || (!has_least && !has_most))
        return gbnf_refuse(g, "has a repetition that is none of {2} {2,} {2,3} {,3}");
    if (has_most && most < least)
        return gbnf_refuse(g, "has a repetition whose end is below its beginning");
    g->at++;
    if (is_range && !has_most && least <= 1) /* the engine knows these better than {1,} */
        return gbnf_put_text(g, least == 0 ? "*" : "+");
    if (has_most)
        (void)snprintf(text, sizeof(text), "{%lu,%lu}", least, most);
    else
        (void)snprintf(text, sizeof(text), is_range ? "{%lu,}" : "{%lu}", least);
    return gbnf_put_text(g, text);
}

static enum status gbnf_take_repetition(struct gbnf *g)
{
    const char sign = *g->at;

    if (!g->may_repeat)
        return gbnf_refuse(g, "has a repetition of nothing");
    g->may_repeat = false;
    if (sign == '{')
        return gbnf_take_counts(g);
    g->at++;
    return gbnf_put(g, &sign, 1);
}

/* An alternative ends. */
static enum status gbnf_end_alternative(struct gbnf *g)
{
    const bool is_empty = !g->has_element[g->depth];

    g->has_element[g->depth] = g->may_repeat = false;
    return is_empty ? gbnf_put_text(g, " \"\"") : STATUS_OK;
}

static enum status gbnf_take_group(struct gbnf *g)
{
    if (g->depth == GBNF_MAX_DEPTH)
        return gbnf_refuse(g, "nests groups too deeply");
    g->at++;
    g->has_element[++g->depth] = g->may_repeat = false;
    return gbnf_put_text(g, " (");
}

static enum status gbnf_end_group(struct gbnf *g)
{
    if (g->depth == 0)
        return gbnf_refuse(g, "closes a group that is not open");
    if (gbnf_end_alternative(g) != STATUS_OK)
        return g->err->status;
    g->at++;
    g->depth--;
    g->has_element[g->depth] = g->may_repeat = true;
    return gbnf_put_text(g, ")");
}

/* <name> or <[number]>, perhaps behind '!'. */
static enum status gbnf_refuse_token(struct gbnf *g)
{
    struct gbnf_name token = {.text = g->at, .line = g->line};
    const char *c = g->at;

    while (c < g->end && *c != '>' && *c != '\n')
        c++;
    token.len = (size_t)(c - g->at) + (c < g->end && *c == '>');
    return gbnf_refuse_name(g, &token, "names a token; write its text, as a literal, instead of");
}

static enum status gbnf_take_other(struct gbnf *g)
{
    if (*g->at == '<' || *g->at == '!')
        return gbnf_refuse_token(g);
    if (*g->at == '/' || *g->at == '~' || *g->at == ':' || *g->at == '%' || *g->at == '\'')
        return gbnf_refuse(g, "is no GBNF: write rules as name ::= \"text\" | [a-z]+ other-name, "
                              "not Lark's or another notation");
    return gbnf_refuse(g, "has a character that begins no element");
}

static enum status gbnf_take_element(struct gbnf *g)
{
    struct gbnf_name name;
    enum status rc;

    if (*g->at == '"')
        rc = gbnf_take_literal(g);
    else if (*g->at == '[')
        rc = gbnf_take_class(g);
    else if (*g->at == '.') {
        g->at++;
        rc = gbnf_put_text(g, " [");
        if (rc == STATUS_OK)
            rc = gbnf_put_range(g, 0, LAST_CHARACTER);
        if (rc == STATUS_OK)
            rc = gbnf_put_text(g, "]");
    } else if (gbnf_is_name(*g->at)) {
        rc = gbnf_note_name(g, &g->used, &name);
        if (rc == STATUS_OK)
            rc = gbnf_put_text(g, " ");
        if (rc == STATUS_OK)
            rc = gbnf_put_name(g, &name);
    } else {
        rc = gbnf_take_other(g);
    }
    g->has_element[g->depth] = g->may_repeat = true;
    return rc;
}

/* --- rules --- */

/* A name and ::= are next, in a line of their own. */
static bool gbnf_at_rule(const struct gbnf *g)
{
    const char *c = g->at;

    for (const char *before = g->line_start; before < g->at; before++)
        if (*before != ' ' && *before != '\t')
            return false;
    while (c < g->end && gbnf_is_name(*c))
        c++;
    if (c == g->at)
        return false;
    while (c < g->end && (*c == ' ' || *c == '\t'))
        c++;
    return g->end - c >= 3 && memcmp(c, "::=", 3) == 0;
}

/* What stands where a rule should begin may be Lark: "start: …", "%import …", "?name: …". */
static enum status gbnf_refuse_begin(struct gbnf *g)
{
    const char *c = g->at;

    while (c < g->end && (gbnf_is_name(*c) || *c == '?' || *c == '!' || *c == '.' || *c == ' '))
        c++;
    if (*g->at == '%' || (c < g->end && *c == ':' && (g->end - c < 2 || c[1] != ':')))
        return gbnf_refuse(g, "is Lark, which is not taken: write the grammar in GBNF, with rules "
                              "as name ::= \"text\" | [a-z]+ other-name and the rule root");
    return gbnf_refuse(g, "does not begin with a rule's name and ::=");
}

static enum status gbnf_take_rule(struct gbnf *g)
{
    struct gbnf_name name;
    enum status rc;

    if (!gbnf_at_rule(g))
        return gbnf_refuse_begin(g);
    rc = gbnf_note_name(g, &g->defined, &name);
    if (rc == STATUS_OK)
        rc = gbnf_put_name(g, &name);
    g->at = (const char *)memchr(g->at, '=', (size_t)(g->end - g->at)) + 1;
    if (rc == STATUS_OK)
        rc = gbnf_put_text(g, " ::=");
    g->has_element[0] = g->may_repeat = false;
    for (gbnf_skip_space(g);
         rc == STATUS_OK && g->at < g->end && (g->depth > 0 || !gbnf_at_rule(g));
         gbnf_skip_space(g)) {
        if (*g->at == '(') {
            rc = gbnf_take_group(g);
        } else if (*g->at == ')') {
            rc = gbnf_end_group(g);
        } else if (*g->at == '|') {
            g->at++;
            rc = gbnf_end_alternative(g);
            if (rc == STATUS_OK)
                rc = gbnf_put_text(g, " |");
        } else if (strchr("*+?{", *g->at) != NULL) {
            rc = gbnf_take_repetition(g);
        } else {
            rc = gbnf_take_element(g);
        }
    }
    if (rc == STATUS_OK && g->depth > 0)
        return gbnf_refuse(g, "ends in a group without its closing parenthesis");
    if (rc == STATUS_OK)
        rc = gbnf_end_alternative(g);
    return rc == STATUS_OK ? gbnf_put_text(g, "\n") : rc;
}

/* --- names --- */

static int gbnf_compare_names(const void *a, const void *b)
{
    const struct gbnf_name *x = a, *y = b;
    const int by_text = memcmp(x->text, y->text, x->len < y->len ? x->len : y->len);

    return by_text != 0 ? by_text : (x->len > y->len) - (x->len < y->len);
}

/* All that are used are defined, each once, and root is one of them. */
static enum status gbnf_check_names(struct gbnf *g)
{
    struct gbnf_name *defined = (struct gbnf_name *)(void *)g->defined.data;
    const struct gbnf_name *used = (const struct gbnf_name *)(const void *)g->used.data;
    const struct gbnf_name root = {"root", 4, 0};
    const size_t n = g->defined.len / sizeof(*defined), n_used = g->used.len / sizeof(*used);

    if (n > 0)
        qsort(defined, n, sizeof(*defined), gbnf_compare_names);
    for (size_t i = 1; i < n; i++)
        if (gbnf_compare_names(&defined[i - 1], &defined[i]) == 0)
            return gbnf_refuse_name(
                g, defined[i].line > defined[i - 1].line ? &defined[i] : &defined[i - 1],
                "defines again the rule");
    if (n == 0 || bsearch(&root, defined, n, sizeof(*defined), gbnf_compare_names) == NULL)
        return error_because(g->err, STATUS_INVALID, REASON_INVALID_FIELD, NULL,
                             "the grammar has no rule root, with which it would begin");
    for (size_t i = 0; i < n_used; i++)
        if (bsearch(&used[i], defined, n, sizeof(*defined), gbnf_compare_names) == NULL)
            return gbnf_refuse_name(g, &used[i], "uses a rule that is not defined:");
    return STATUS_OK;
}

enum status gbnf_read(struct buf *out, const char *text, size_t len, struct error *err)
{
    struct gbnf g = {
        .at = text, .end = text + len, .line_start = text, .line = 1, .out = out, .err = err};
    enum status rc = STATUS_OK;

    buf_init(&g.defined, SIZE_MAX);
    buf_init(&g.used, SIZE_MAX);
    gbnf_skip_space(&g);
    while (rc == STATUS_OK && g.at < g.end)
        rc = gbnf_take_rule(&g);
    if (rc == STATUS_OK)
        rc = gbnf_check_names(&g);
    buf_deinit(&g.defined);
    buf_deinit(&g.used);
    return rc;
}
