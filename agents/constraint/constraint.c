/* Writes a constraint in the engine's form: of a schema, a regular expression, a grammar, choices
 * or calls of tools. A text is checked first, so that whatever is wrong is refused before the
 * engine reads it. */
#include "agents/constraint/constraint.h"

#include <string.h>

#include "agents/constraint/gbnf.h"
#include "agents/constraint/guard.h"
#include "agents/constraint/pattern.h"
#include "base/buf.h"
#include "base/json_extent.h"
#include "base/json_widen.h"
#include "base/json_writer.h"
#include "base/utf8.h"

static enum status constraint_keep(const struct constraint **out, enum constraint_form form,
                                   const char *text, size_t len, struct arena *arena,
                                   struct error *err)
{
    struct constraint *c = arena_alloc(arena, 1, sizeof(*c));
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
                             "the constraint has %zu bytes, it may have at most %d", len,
                             CONSTRAINT_MAX_BYTES);
    if (!utf8_is_valid(text, len) || memchr(text, '\0', len) != NULL)
        return constraint_wrong(err, "the constraint is not UTF-8 or has a NUL byte");
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
    size_t work = GUARD_MAX_WORK;
    enum status rc;

    buf_init(&text, GUARD_MAX_BYTES + 1);
    buf_init(&left_out, CONSTRAINT_MAX_LEFT_OUT);
    rc = guard_schema(&text, schema, strict, &left_out, &work, err);
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
    static const struct json_extent limit = {CONSTRAINT_MAX_SCHEMA_VALUES,
                                             CONSTRAINT_MAX_SCHEMA_VALUES};
    static const size_t flags = JSON_DECODE_ANY | JSON_REJECT_DUPLICATES;
    json_error_t why;
    json_t *read;
    enum status rc;

    if (len > CONSTRAINT_MAX_SCHEMA_BYTES)
        return error_because(err, STATUS_INVALID, REASON_INVALID_FIELD, NULL,
                             "the schema has %zu bytes, it may have at most %d", len,
                             CONSTRAINT_MAX_SCHEMA_BYTES);
    if (!json_extent_fits(schema, len, &limit))
        return constraint_wrong(err, "the schema has too many values");
    read = json_loadb(schema, len, flags, &why);
    if (read == NULL && json_error_code(&why) == json_error_numeric_overflow) {
        struct buf wide; /* an integer beyond 64 bits is a bound like any other */

        buf_init(&wide, SIZE_MAX);
        if (json_widen(&wide, schema, len) == STATUS_OK)
            read = json_loadb(wide.data, wide.len, flags, &why);
        buf_deinit(&wide);
    }
    if (read == NULL && why.text[0] == '\0') /* jansson says nothing of memory that is short */
        return error_no_memory(err, len, "a schema");
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
    json_t *schema = json_pack("{s:s}", "type", "object");
    const char *left_out;
    enum status rc;

    if (schema == NULL)
        return error_no_memory(err, 0, "a schema");
    rc = constraint_of_schema(out, schema, true, &left_out, arena, err);
    json_decref(schema);
    return rc;
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

enum status constraint_of_grammar(const struct constraint **out, const char *text, size_t len,
                                  struct arena *arena, struct error *err)
{
    struct buf read;
    enum status rc;

    if (constraint_check_text(text, len, err) != STATUS_OK)
        return err->status;
    buf_init(&read, CONSTRAINT_MAX_GRAMMAR_BYTES);
    rc = gbnf_read(&read, text, len, err);
    if (rc == STATUS_OK && pattern_check_bounds(read.data, read.len, err) != STATUS_OK) {
        (void)error_prefix(err, "the grammar");
        rc = err->status = STATUS_INVALID;
    }
    if (rc == STATUS_OK)
        rc = constraint_keep(out, CONSTRAINT_EBNF, read.data, read.len, arena, err);
    buf_deinit(&read);
    return rc;
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
            rc = buf_printf(b, "\\u%04x", c);
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
                             "there are %zu choices, there must be 1 to %d", n,
                             CONSTRAINT_MAX_CHOICES);
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

/* --- calls --- */

struct tags_writer {
    struct buf json;
    size_t work; /* what may still be done, for all tools together */
    struct json_writer w;
};

/* The schema's grammar. */
static enum status tags_put_schema(struct tags_writer *t, const json_t *schema, bool strict,
                                   struct buf *left_out, struct error *err)
{
    struct buf text;
    enum status rc;

    buf_init(&text, GUARD_MAX_BYTES + 1);
    rc = guard_schema(&text, schema, strict, left_out, &t->work, err);
    if (rc == STATUS_OK) {
        json_begin_object(&t->w, "content");
        json_write_text(&t->w, "type", "grammar");
        json_write_text(&t->w, "grammar", text.data);
        json_end_object(&t->w);
    }
    buf_deinit(&text);
    return rc;
}

static enum status tags_put_call(struct tags_writer *t, const struct call_constraint *call,
                                 const struct calls_form *form, struct buf *left_out,
                                 struct error *err)
{
    struct json_writer *w = &t->w;
    enum status rc = STATUS_OK;

    json_begin_object(w, NULL);
    json_write_text(w, "type", "tag");
    json_write_format(w, "begin", "%s%s%s", form->before, call->name, form->between);
    if (call->parameters == NULL) {
        json_begin_object(w, "content");
        json_write_text(w, "type", "const_string");
        json_write_text(w, "value", "{}");
        json_end_object(w);
    } else {
        rc = tags_put_schema(t, call->parameters, call->strict, left_out, err);
    }
    json_write_text(w, "end", form->after);
    json_end_object(w);
    return rc == STATUS_OK ? rc : error_prefix(err, "the arguments of '%.64s'", call->name);
}

static enum status tags_put_calls(struct tags_writer *t, const struct call_constraint *calls,
                                  size_t n, const struct calls_form *form, struct buf *left_out,
                                  struct error *err)
{
    struct json_writer *w = &t->w;
    enum status rc = STATUS_OK;

    json_begin_object(w, NULL);
    json_write_text(w, "type", "structural_tag");
    json_begin_object(w, "format");
    if (form->trigger != NULL) {
        json_write_text(w, "type", "triggered_tags");
        json_begin_array(w, "triggers");
        json_write_text(w, NULL, form->trigger);
        json_end_array(w);
    } else {
        json_write_text(w, "type", "tags_with_separator");
        json_write_text(w, "separator", "\n");
    }
    json_begin_array(w, "tags");
    for (size_t i = 0; rc == STATUS_OK && i < n; i++)
        rc = tags_put_call(t, &calls[i], form, left_out, err);
    json_end_array(w);
    json_write_bool(w, "at_least_one", form->trigger == NULL);
    json_write_bool(w, "stop_after_first", form->is_single);
    json_end_object(w);
    json_end_object(w);
    return rc;
}

enum status constraint_of_calls(const struct constraint **out, const struct call_constraint *calls,
                                size_t n, const struct calls_form *form, const char **ret_left_out,
                                struct arena *arena, struct error *err)
{
    struct tags_writer t;
    struct buf left_out;
    enum status rc;

    t.work = GUARD_MAX_WORK;
    buf_init(&t.json, CONSTRAINT_MAX_TAGS_BYTES);
    buf_init(&left_out, CONSTRAINT_MAX_LEFT_OUT);
    t.w = json_writer_begin(&t.json);
    rc = tags_put_calls(&t, calls, n, form, &left_out, err);
    if (rc == STATUS_OK && json_writer_end(&t.w) != STATUS_OK)
        rc = t.json.is_full ? constraint_wrong(err, "the tools are too long together")
                            : error_no_memory(err, t.json.len, "a constraint");
    if (rc == STATUS_OK)
        rc = constraint_keep(out, CONSTRAINT_TAGS, t.json.data, t.json.len, arena, err);
    if (rc == STATUS_OK) {
        *ret_left_out = keep_list(&left_out, arena);
        if (*ret_left_out == NULL)
            rc = error_no_memory(err, left_out.len, "a constraint");
    }
    buf_deinit(&t.json);
    buf_deinit(&left_out);
    return rc;
}
