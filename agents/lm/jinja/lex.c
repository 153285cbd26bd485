/* From text to tokens. Line ends become '\n', one at the end is dropped, and white space around
 * tags goes as with trim_blocks and lstrip_blocks. */
#include <stdlib.h>
#include <string.h>

#include "agents/lm/jinja/parts.h"
#include "base/utf8.h"

enum { LEX_MAX_NESTED = 256 };

struct jinja_lexer {
    struct arena *arena;
    char *text;
    size_t len, at;
    uint32_t line;
    bool is_line_start; /* the last token ended in a line end, or there is none */
    struct jinja_token *tokens;
    size_t n, cap;
    struct error *err;
};

static bool lexer_fail(struct jinja_lexer *l, const char *what)
{
    (void)error_set(l->err, STATUS_INVALID, "line %u: %s", l->line, what);
    return false;
}

static struct jinja_token *lexer_push(struct jinja_lexer *l, enum jinja_token_kind kind)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap == 0 ? 256 : 2 * l->cap;
        struct jinja_token *tokens = arena_alloc(l->arena, cap, sizeof(*tokens));

        if (tokens == NULL) {
            (void)error_no_memory(l->err, cap * sizeof(*tokens), "a chat template");
            return NULL;
        }
        if (l->n != 0)
            memcpy(tokens, l->tokens, l->n * sizeof(*tokens));
        l->tokens = tokens;
        l->cap = cap;
    }
    l->tokens[l->n] = (struct jinja_token){.kind = kind, .line = l->line};
    return &l->tokens[l->n++];
}

static bool lexer_is_at(const struct jinja_lexer *l, size_t at, const char *what)
{
    const size_t len = strlen(what);

    return at <= l->len && len <= l->len - at && memcmp(l->text + at, what, len) == 0;
}

static void lexer_move(struct jinja_lexer *l, size_t to)
{
    for (size_t i = l->at; i < to; i++)
        l->line += l->text[i] == '\n';
    if (to != l->at)
        l->is_line_start = l->text[to - 1] == '\n';
    l->at = to;
}

static size_t lexer_after_space(const struct jinja_lexer *l, size_t at)
{
    jinja_strip_left(l->text, &at, l->len, NULL);
    return at;
}

/* Ends a tag: its sign, what closes it, and the white space that goes with it. Returns the place
 * after it, 0 if the tag does not end here. */
static size_t lexer_tag_end(const struct jinja_lexer *l, const char *close, bool is_print)
{
    size_t at = l->at;

    if (lexer_is_at(l, at, "-") && lexer_is_at(l, at + 1, close))
        return lexer_after_space(l, at + 3);
    if (!is_print && lexer_is_at(l, at, "+") && lexer_is_at(l, at + 1, close))
        return at + 3;
    if (!lexer_is_at(l, at, close))
        return 0;
    at += 2;
    return !is_print && lexer_is_at(l, at, "\n") ? at + 1 : at;
}

/* Where text before a tag at to ends: its sign or lstrip_blocks may cut white space. */
static size_t data_end(const struct jinja_lexer *l, size_t from, size_t to)
{
    const bool is_print = l->text[to + 1] == '{';
    size_t start = to, end = to;

    if (lexer_is_at(l, to + 2, "-")) {
        jinja_strip_right(l->text, from, &end, NULL);
        return end;
    }
    if (is_print || lexer_is_at(l, to + 2, "+"))
        return to;
    while (start > from && l->text[start - 1] != '\n')
        start--;
    if (start == from && !l->is_line_start)
        return to;
    jinja_strip_right(l->text, start, &end, NULL);
    return end == start ? start : to;
}

static bool lex_text(struct jinja_lexer *l, size_t from, size_t to)
{
    struct jinja_token *t;

    if (from == to)
        return true;
    t = lexer_push(l, JINJA_T_DATA);
    if (t == NULL)
        return false;
    t->text = l->text + from;
    t->len = to - from;
    return true;
}

static bool lex_data(struct jinja_lexer *l)
{
    size_t to = l->at;

    while (to < l->len && !lexer_is_at(l, to, "{{") && !lexer_is_at(l, to, "{%") &&
           !lexer_is_at(l, to, "{#"))
        to++;
    if (!lex_text(l, l->at, to == l->len ? to : data_end(l, l->at, to)))
        return false;
    lexer_move(l, to);
    return true;
}

static bool lex_comment(struct jinja_lexer *l)
{
    size_t at = l->at + 2, after;

    if (lexer_is_at(l, at, "-") || lexer_is_at(l, at, "+"))
        at++;
    for (; at < l->len; at++) {
        const size_t before = l->at;

        l->at = at;
        after = lexer_tag_end(l, "#}", false);
        l->at = before;
        if (after != 0) {
            lexer_move(l, after);
            return true;
        }
    }
    return lexer_fail(l, "a comment has no end");
}

static bool lexer_digits(struct jinja_lexer *l, size_t least, size_t most, int base, uint32_t *ret)
{
    char digits[9] = "";
    size_t n = 0;
    char *end;

    while (n < most && l->at + n < l->len && n < sizeof(digits) - 1) {
        digits[n] = l->text[l->at + n];
        n++;
    }
    *ret = digits[0] == '+' || digits[0] == '-' ? 0 : (uint32_t)strtoul(digits, &end, base);
    if (digits[0] == '+' || digits[0] == '-' || (size_t)(end - digits) < least || end == digits ||
        digits[0] == ' ' || (base == 16 && (digits[1] == 'x' || digits[1] == 'X')))
        return false;
    l->at += (size_t)(end - digits);
    return true;
}

/* The character of an escape after its backslash, as in Python's strings. *ret_len is what was
 * written to out, which has 5 bytes. */
static bool lex_escape(struct jinja_lexer *l, char *out, size_t *ret_len)
{
    static const char letters[] = "abfnrtv\\'\"", meanings[] = "\a\b\f\n\r\t\v\\'\"";
    const char c = l->text[l->at++];
    const char *letter = memchr(letters, c, sizeof(letters) - 1);
    uint32_t number;
    bool is_good = true;

    *ret_len = 1;
    if (letter != NULL) {
        out[0] = meanings[letter - letters];
        return true;
    }
    if (c == '\n') {
        *ret_len = 0;
        return true;
    }
    if (c >= '0' && c <= '7') {
        l->at--;
        is_good = lexer_digits(l, 1, 3, 8, &number);
    } else if (c == 'x') {
        is_good = lexer_digits(l, 2, 2, 16, &number);
    } else if (c == 'u') {
        is_good = lexer_digits(l, 4, 4, 16, &number);
    } else if (c == 'U') {
        is_good = lexer_digits(l, 8, 8, 16, &number);
    } else {
        out[0] = '\\';
        out[1] = c;
        *ret_len = 2;
        return c != 'N' || lexer_fail(l, "\\N escapes are not supported");
    }
    if (!is_good || number > 0x10FFFF)
        return lexer_fail(l, "an escape sequence is wrong");
    *ret_len = utf8_encode(number, out);
    return true;
}

static bool lex_string(struct jinja_lexer *l)
{
    const char quote = l->text[l->at];
    struct jinja_token *t = lexer_push(l, JINJA_T_STRING);
    const size_t start = l->at + 1;
    size_t end = start, len = 0, n;
    char *out;

    while (end < l->len && l->text[end] != quote)
        end += l->text[end] == '\\' ? 2 : 1;
    if (t == NULL || end >= l->len)
        return t != NULL && lexer_fail(l, "a string has no end");
    out = arena_alloc(l->arena, end - start + 1, 1); /* no escape is shorter than its character */
    if (out == NULL)
        return error_no_memory(l->err, end - start, "a chat template") == STATUS_OK;
    for (size_t i = start; i < end; i++)
        l->line += l->text[i] == '\n';
    for (l->at = start; l->at < end;) {
        if (l->text[l->at] != '\\') {
            out[len++] = l->text[l->at++];
            continue;
        }
        l->at++;
        if (!lex_escape(l, out + len, &n))
            return false;
        len += n;
    }
    l->at = end + 1;
    t->text = out;
    t->len = len;
    return true;
}

static bool is_name_start(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

static bool lexer_is_digit(const struct jinja_lexer *l, size_t at)
{
    return at < l->len && l->text[at] >= '0' && l->text[at] <= '9';
}

/* Copies a number without its underscores, from l->at up to end. */
static bool put_number_token(struct jinja_lexer *l, size_t end, bool is_real)
{
    char digits[64];
    size_t n = 0;
    struct jinja_token *t = lexer_push(l, is_real ? JINJA_T_FLOAT : JINJA_T_INT);

    if (t == NULL)
        return false;
    for (size_t i = l->at; i < end; i++)
        if (l->text[i] != '_' && n < sizeof(digits) - 1)
            digits[n++] = l->text[i];
    digits[n] = '\0';
    if (n == sizeof(digits) - 1 || (!is_real && n > 18))
        return lexer_fail(l, "a number is too long");
    t->number = is_real ? 0 : strtoll(digits, NULL, 10);
    t->real = strtod(digits, NULL);
    l->at = end;
    return true;
}

static size_t digits_end(const struct jinja_lexer *l, size_t at)
{
    while (lexer_is_digit(l, at) || (lexer_is_at(l, at, "_") && lexer_is_digit(l, at + 1)))
        at++;
    return at;
}

static bool lex_number(struct jinja_lexer *l)
{
    size_t end = digits_end(l, l->at), exponent;
    bool is_real = false;

    if (lexer_is_at(l, end, ".") && lexer_is_digit(l, end + 1)) {
        is_real = true;
        end = digits_end(l, end + 1);
    }
    exponent = end + 1;
    if (lexer_is_at(l, end, "e") || lexer_is_at(l, end, "E")) {
        if (lexer_is_at(l, exponent, "+") || lexer_is_at(l, exponent, "-"))
            exponent++;
        if (lexer_is_digit(l, exponent)) {
            is_real = true;
            end = digits_end(l, exponent);
        }
    }
    return put_number_token(l, end, is_real);
}

static bool lex_name(struct jinja_lexer *l)
{
    const size_t start = l->at;
    struct jinja_token *t = lexer_push(l, JINJA_T_NAME);

    if (t == NULL)
        return false;
    while (l->at < l->len && (is_name_start(l->text[l->at]) || lexer_is_digit(l, l->at)))
        l->at++;
    t->text = l->text + start;
    t->len = l->at - start;
    return true;
}

static bool lex_operator(struct jinja_lexer *l)
{
    static const char *const doubles[] = {"**", "//", "==", "!=", ">=", "<="};
    struct jinja_token *t = lexer_push(l, JINJA_T_OPERATOR);

    if (t == NULL)
        return false;
    for (size_t i = 0; i < sizeof(doubles) / sizeof(doubles[0]); i++)
        if (lexer_is_at(l, l->at, doubles[i])) {
            t->operator= JINJA_OP(doubles[i][0], doubles[i][1]);
            l->at += 2;
            return true;
        }
    if (strchr("+-*/%~[](){}><=.:|,;", l->text[l->at]) == NULL || l->text[l->at] == '\0')
        return lexer_fail(l, "unexpected character");
    t->operator=(unsigned char) l->text[l->at++];
    return true;
}

static bool lex_one(struct jinja_lexer *l)
{
    const char c = l->text[l->at];

    if (c == '\'' || c == '"')
        return lex_string(l);
    if (lexer_is_digit(l, l->at))
        return lex_number(l);
    return is_name_start(c) ? lex_name(l) : lex_operator(l);
}

/* Keeps the brackets that are open; false if one is closed that is not. */
static bool follow_brackets(struct jinja_lexer *l, char *open, size_t *n)
{
    const struct jinja_token *t = &l->tokens[l->n - 1];
    const char c = t->kind == JINJA_T_OPERATOR ? (char)t->operator: ' ';

    if (c == '(' || c == '[' || c == '{') {
        if (*n == LEX_MAX_NESTED)
            return lexer_fail(l, "brackets are nested too deeply");
        open[(*n)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (*n == 0 || open[--*n] != c)
            return lexer_fail(l, "a closing bracket has no opening bracket");
    }
    return true;
}

static bool lex_tag(struct jinja_lexer *l)
{
    const bool is_print = l->text[l->at + 1] == '{';
    char open[LEX_MAX_NESTED];
    size_t n_open = 0, end;

    if (lexer_push(l, is_print ? JINJA_T_PRINT : JINJA_T_BLOCK) == NULL)
        return false;
    lexer_move(l, l->at + 2);
    if (lexer_is_at(l, l->at, "-") || (lexer_is_at(l, l->at, "+") && !is_print))
        lexer_move(l, l->at + 1);
    for (;;) {
        lexer_move(l, lexer_after_space(l, l->at));
        if (l->at == l->len)
            return lexer_fail(l, "a tag has no end");
        end = n_open != 0 ? 0 : lexer_tag_end(l, is_print ? "}}" : "%}", is_print);
        if (end != 0) {
            if (lexer_push(l, is_print ? JINJA_T_PRINT_END : JINJA_T_BLOCK_END) == NULL)
                return false;
            lexer_move(l, end);
            return true;
        }
        if (!lex_one(l) || !follow_brackets(l, open, &n_open))
            return false;
    }
}

/* Between raw and endraw all is text. */
static bool lex_raw(struct jinja_lexer *l)
{
    for (size_t at = l->at; at < l->len; at++) {
        size_t word = at + 2;

        if (!lexer_is_at(l, at, "{%"))
            continue;
        if (lexer_is_at(l, word, "-") || lexer_is_at(l, word, "+"))
            word++;
        word = lexer_after_space(l, word);
        if (!lexer_is_at(l, word, "endraw"))
            continue;
        if (!lex_text(l, l->at, data_end(l, l->at, at)))
            return false;
        lexer_move(l, at);
        return lex_tag(l);
    }
    return lexer_fail(l, "raw has no end");
}

static bool is_raw_tag(const struct jinja_lexer *l)
{
    return l->n >= 3 && l->tokens[l->n - 1].kind == JINJA_T_BLOCK_END &&
           l->tokens[l->n - 3].kind == JINJA_T_BLOCK && l->tokens[l->n - 2].len == 3 &&
           l->tokens[l->n - 2].kind == JINJA_T_NAME &&
           memcmp(l->tokens[l->n - 2].text, "raw", 3) == 0;
}

static bool lex_all(struct jinja_lexer *l)
{
    while (l->at < l->len) {
        if (!lex_data(l))
            return false;
        if (l->at == l->len)
            break;
        if (l->text[l->at + 1] == '#') {
            if (!lex_comment(l))
                return false;
            continue;
        }
        if (!lex_tag(l))
            return false;
        if (!is_raw_tag(l))
            continue;
        l->n -= 3;
        if (!lex_raw(l))
            return false;
        l->n -= 3; /* the endraw tag */
    }
    return lexer_push(l, JINJA_T_END) != NULL;
}

/* "\r\n" and '\r' become '\n', and one line end at the end goes. */
static size_t lex_normalise(char *out, const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\r' && i + 1 < len && text[i + 1] == '\n')
            continue;
        out[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    return n != 0 && out[n - 1] == '\n' ? n - 1 : n;
}

enum status jinja_lex(struct arena *arena, const char *text, size_t len, struct jinja_token **out,
                      struct error *err)
{
    struct jinja_lexer l = {.arena = arena, .line = 1, .is_line_start = true, .err = err};

    l.text = arena_alloc(arena, len + 1, 1);
    if (l.text == NULL)
        return error_no_memory(err, len, "a chat template");
    l.len = lex_normalise(l.text, text, len);
    if (!lex_all(&l))
        return err->status;
    *out = l.tokens;
    return STATUS_OK;
}
