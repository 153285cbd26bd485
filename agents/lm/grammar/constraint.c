#include "agents/lm/grammar/constraint.h"

#include <string.h>

#include "agents/lm/grammar/guard.h"
#include "agents/lm/grammar/pattern.h"
#include "base/buf.h"
#include "base/utf8.h"

static enum status constraint_keep(const struct constraint **out, enum constraint_form form,
                                   const char *text, size_t len, struct arena *arena,
                                   struct error *err)
{
    struct constraint *c = arena_alloc(arena, 1, sizeof *c);
    const char *copy = c != NULL ? arena_strndup(arena, text, len) : NULL;

    if (copy == NULL)
        return error_no_memory(err, len, "a constraint");
    *c = (struct constraint){form, copy, len};
    *out = c;
    return STATUS_OK;
}

static enum status constraint_wrong(struct error *err, const char *what)
{
    return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, NULL, "%s", what);
}

static enum status constraint_check_text(const char *text, size_t len, struct error *err)
{
    if (len == 0)
        return constraint_wrong(err, "the constraint is empty");
    if (len > CONSTRAINT_MAX_BYTES)
        return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, NULL,
                             "the constraint has %zu bytes, it may have %d", len,
                             CONSTRAINT_MAX_BYTES);
    if (!utf8_is_valid(text, len) || memchr(text, '\0', len) != NULL)
        return constraint_wrong(err, "the constraint is not UTF-8, or has a NUL");
    return STATUS_OK;
}

/* A copy that may stand in a header: names of members may have any character. */
static const char *keep_list(const struct buf *list, struct arena *arena)
{
    char *text = arena_strndup(arena, list->len > 0 ? list->data : "", list->len);

    for (char *c = text; c != NULL && *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    return text;
}

enum status constraint_of_schema(const struct constraint **out, const json_t *schema, bool strict,
                                 const char **ret_left_out, struct arena *arena, struct error *err)
{
    struct buf text, left_out;
    enum status rc;

    buf_init(&text, GUARD_MAX_BYTES + 1);
    buf_init(&left_out, CONSTRAINT_MAX_LEFT_OUT);
    rc = guard_schema(&text, schema, strict, &left_out, err);
    if (rc == STATUS_OK)
        rc = constraint_keep(out, CONSTRAINT_SCHEMA, text.data, text.len, arena, err);
    if (rc == STATUS_OK) {
        *ret_left_out = keep_list(&left_out, arena);
        if (*ret_left_out == NULL)
            rc = error_no_memory(err, left_out.len, "a constraint");
    }
    buf_deinit(&text);
    buf_deinit(&left_out);
    return rc;
}

enum status constraint_of_schema_text(const struct constraint **out, const char *schema, size_t len,
                                      bool strict, const char **ret_left_out, struct arena *arena,
                                      struct error *err)
{
    json_error_t why;
    json_t *read;
    enum status rc;

    if (len > CONSTRAINT_MAX_SCHEMA_BYTES)
        return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, NULL,
                             "the schema has %zu bytes, it may have %d", len,
                             CONSTRAINT_MAX_SCHEMA_BYTES);
    read = json_loadb(schema, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &why);
    if (read == NULL)
        return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, NULL,
                             "the schema is not JSON: line %d, column %d: %.100s", why.line,
                             why.column, why.text);
    rc = constraint_of_schema(out, read, strict, ret_left_out, arena, err);
    json_decref(read);
    return rc;
}

enum status constraint_of_object(const struct constraint **out, struct arena *arena,
                                 struct error *err)
{
    static const char schema[] = "{\"type\":\"object\"}";

    return constraint_keep(out, CONSTRAINT_SCHEMA, schema, sizeof schema - 1, arena, err);
}

enum status constraint_of_regex(const struct constraint **out, const char *text, size_t len,
                                struct arena *arena, struct error *err)
{
    if (constraint_check_text(text, len, err) != STATUS_OK)
        return err->status;
    if (pattern_check_bounds(text, len, err) != STATUS_OK) {
        (void)error_prefix(err, "the regular expression");
        return err->status = STATUS_INVALID;
    }
    return constraint_keep(out, CONSTRAINT_REGEX, text, len, arena, err);
}

/* Where a literal, a class or a comment that begins at text ends. */
static const char *grammar_skip(const char *text, const char *end)
{
    const char close = *text == '[' ? ']' : *text == '#' ? '\n' : '"';

    for (text++; text < end && *text != close; text++)
        if (*text == '\\' && close != '\n')
            text++;
    return text < end ? text + 1 : end;
}

/* Refuses what the engine reads otherwise than GBNF means: a class of any character, and an
 * alternative that is empty, which must be written as a pair of quotes. */
static enum status grammar_check(const char *text, size_t len, struct error *err)
{
    const char *const end = text + len, *at = text;
    bool is_open = false; /* an alternative has begun and has nothing in it */

    while (at < end) {
        if (*at == '"' || *at == '[' || *at == '#') {
            is_open = is_open && *at == '#';
            at = grammar_skip(at, end);
            continue;
        }
        if (*at == '.')
            return constraint_wrong(err, "the grammar has '.': write the class of characters");
        if (is_open && (*at == '|' || *at == ')'))
            return constraint_wrong(err, "the grammar has an empty alternative: write \"\"");
        if (*at == '=' || *at == '|' || *at == '(')
            is_open = true;
        else if (*at != ' ' && *at != '\t' && *at != '\n' && *at != '\r')
            is_open = false;
        at++;
    }
    return is_open ? constraint_wrong(err, "the grammar has an empty alternative: write \"\"")
                   : STATUS_OK;
}

enum status constraint_of_grammar(const struct constraint **out, const char *text, size_t len,
                                  struct arena *arena, struct error *err)
{
    if (constraint_check_text(text, len, err) != STATUS_OK ||
        grammar_check(text, len, err) != STATUS_OK)
        return err->status;
    if (pattern_check_bounds(text, len, err) != STATUS_OK) {
        (void)error_prefix(err, "the grammar");
        return err->status = STATUS_INVALID;
    }
    return constraint_keep(out, CONSTRAINT_EBNF, text, len, arena, err);
}

/* A literal of the engine's grammar: all but letters and digits by their codes. */
static enum status put_choice(struct buf *b, const struct text *t)
{
    enum status rc = buf_append_text(b, b->len == 0 ? "root ::= \"" : " | \"");

    for (size_t i = 0; rc == STATUS_OK && i < t->len; i++) {
        unsigned char c = (unsigned char)t->text[i];

        if (c >= 0x80 || (c >= ' ' && c < 0x7F && c != '"' && c != '\\'))
            rc = buf_append(b, &t->text[i], 1);
        else
            rc = buf_printf(b, "\\x%02x", c);
    }
    return rc == STATUS_OK ? buf_append_text(b, "\"") : rc;
}

enum status constraint_of_choices(const struct constraint **out, const struct text *texts, size_t n,
                                  struct arena *arena, struct error *err)
{
    struct buf b;
    enum status rc = STATUS_OK;

    if (n == 0 || n > CONSTRAINT_MAX_CHOICES)
        return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, NULL,
                             "there are %zu choices, it may be 1 to %d", n, CONSTRAINT_MAX_CHOICES);
    buf_init(&b, CONSTRAINT_MAX_BYTES);
    for (size_t i = 0; rc == STATUS_OK && i < n; i++) {
        rc = constraint_check_text(texts[i].text, texts[i].len, err);
        if (rc == STATUS_OK && put_choice(&b, &texts[i]) != STATUS_OK)
            rc = constraint_wrong(err, "the choices are too long together");
    }
    if (rc == STATUS_OK)
        rc = constraint_keep(out, CONSTRAINT_EBNF, b.data, b.len, arena, err);
    buf_deinit(&b);
    return rc;
}
