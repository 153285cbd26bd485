/* What a reply must match, in every spelling: OpenAI's response_format and text.format, vLLM's
 * structured_outputs and guided_*, llama-server's grammar and json_schema. A request has one. */
#include <string.h>

#include "agents/constraint/constraint.h"
#include "server/api/request.h"
#include "server/json/fields.h"

struct constraint_reader {
    const struct constraint *constraint; /* NULL: none yet */
    const char *left_out, *field;        /* the field that gave it */
    struct arena *arena;
};

static enum status reader_named(enum status rc, const char *field, struct error *err)
{
    return rc == STATUS_OK || rc == STATUS_EXHAUSTED ? rc : error_name_field(err, field);
}

static enum status reader_check_first(struct constraint_reader *r, const char *field,
                                      struct error *err)
{
    if (r->constraint != NULL)
        return error_field(err, field, "cannot be combined with %s", r->field);
    r->field = field;
    return STATUS_OK;
}

/* --- one field's value --- */

/* A schema as JSON, or as a text that holds it. */
static enum status reader_schema(struct constraint_reader *r, const char *field,
                                 const json_t *schema, bool strict, struct error *err)
{
    enum status rc = reader_check_first(r, field, err);

    if (rc != STATUS_OK)
        return rc;
    if (json_is_string(schema))
        rc = constraint_of_schema_text(&r->constraint, json_string_value(schema),
                                       json_string_length(schema), strict, &r->left_out, r->arena,
                                       err);
    else
        rc = constraint_of_schema(&r->constraint, schema, strict, &r->left_out, r->arena, err);
    return reader_named(rc, field, err);
}

static enum status reader_object(struct constraint_reader *r, const char *field, struct error *err)
{
    enum status rc = reader_check_first(r, field, err);

    return rc == STATUS_OK ? constraint_of_object(&r->constraint, r->arena, err) : rc;
}

static enum status reader_text(struct constraint_reader *r, const char *field, const json_t *value,
                               bool is_regex, struct error *err)
{
    enum status rc = reader_check_first(r, field, err);

    if (rc != STATUS_OK)
        return rc;
    if (!json_is_string(value))
        return field_wrong(err, field, "a string", value);
    rc = (is_regex ? constraint_of_regex : constraint_of_grammar)(
        &r->constraint, json_string_value(value), json_string_length(value), r->arena, err);
    return reader_named(rc, field, err);
}

static enum status reader_choice(struct constraint_reader *r, const char *field,
                                 const json_t *value, struct error *err)
{
    const size_t n = json_array_size(value);
    struct text *texts = arena_alloc(r->arena, n + 1, sizeof(*texts));
    enum status rc = reader_check_first(r, field, err);

    if (rc != STATUS_OK)
        return rc;
    if (!json_is_array(value))
        return field_wrong(err, field, "a list of strings", value);
    if (texts == NULL)
        return error_no_memory(err, n * sizeof(*texts), "choices");
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(value, i);

        if (!json_is_string(one))
            return field_wrong(err, field, "a list of strings", one);
        texts[i] = (struct text){json_string_value(one), json_string_length(one)};
    }
    return reader_named(constraint_of_choices(&r->constraint, texts, n, r->arena, err), field, err);
}

/* --- formats --- */

/* The holder of schema and strict: in chat a member of the format, in Responses the format. */
static enum status reader_json_schema(struct constraint_reader *r, const char *field,
                                      const json_t *holder, struct error *err)
{
    const json_t *schema = json_object_get(holder, "schema");
    bool strict = false;

    if (schema == NULL)
        return error_field(err, field, "has no schema");
    if (field_bool(&strict, holder, "strict", err) != STATUS_OK)
        return err->status;
    return reader_schema(r, field, schema, strict, err);
}

static enum status reader_format(struct constraint_reader *r, const char *name,
                                 const json_t *format, struct error *err)
{
    const json_t *inner = NULL;
    const char *type = "text";

    if (format == NULL)
        return STATUS_OK;
    if (!json_is_object(format))
        return field_wrong(err, name, "an object", format);
    if (field_text(&type, format, "type", err) != STATUS_OK ||
        field_object(&inner, format, "json_schema", err) != STATUS_OK)
        return err->status;
    if (strcmp(type, "text") == 0)
        return STATUS_OK;
    if (strcmp(type, "json_schema") == 0)
        return reader_json_schema(r, name, inner != NULL ? inner : format, err);
    if (strcmp(type, "json_object") != 0)
        return error_field(err, name,
                           "is of type '%.40s', it must be text, json_object or json_schema", type);
    if (json_object_get(format, "schema") != NULL)
        return reader_json_schema(r, name, format, err);
    return reader_object(r, name, err);
}

/* --- members of a body, or of structured_outputs --- */

enum spelling { SPELLS_SCHEMA, SPELLS_REGEX, SPELLS_CHOICE, SPELLS_GRAMMAR, SPELLS_OBJECT };

struct spelled {
    const char *name, *path; /* in its holder, and in the body */
    enum spelling as;
};

/* An empty string or list is given: it is an error. */
static bool is_given_value(const json_t *value)
{
    return value != NULL && !json_is_null(value) && !json_is_false(value);
}

static enum status reader_member(struct constraint_reader *r, const struct spelled *s,
                                 const json_t *value, struct error *err)
{
    switch (s->as) {
    case SPELLS_SCHEMA:
        return reader_schema(r, s->path, value, false, err);
    case SPELLS_REGEX:
        return reader_text(r, s->path, value, true, err);
    case SPELLS_CHOICE:
        return reader_choice(r, s->path, value, err);
    case SPELLS_GRAMMAR:
        return reader_text(r, s->path, value, false, err);
    case SPELLS_OBJECT:
        break;
    }
    return json_is_true(value) ? reader_object(r, s->path, err)
                               : field_wrong(err, s->path, "true or false", value);
}

static enum status reader_members(struct constraint_reader *r, const json_t *holder,
                                  const struct spelled *names, size_t n, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < n; i++) {
        const json_t *value = json_object_get(holder, names[i].name);

        if (is_given_value(value))
            rc = reader_member(r, &names[i], value, err);
    }
    return rc;
}

enum status request_constraint(struct request *out, const json_t *body, const json_t *format,
                               const char *format_name, struct arena *arena, struct error *err)
{
    static const struct spelled in_body[] = {
        {"grammar", "grammar", SPELLS_GRAMMAR},
        {"guided_choice", "guided_choice", SPELLS_CHOICE},
        {"guided_grammar", "guided_grammar", SPELLS_GRAMMAR},
        {"guided_json", "guided_json", SPELLS_SCHEMA},
        {"guided_regex", "guided_regex", SPELLS_REGEX},
        {"json_schema", "json_schema", SPELLS_SCHEMA},
    };
    static const struct spelled in_outputs[] = {
        {"choice", "structured_outputs.choice", SPELLS_CHOICE},
        {"grammar", "structured_outputs.grammar", SPELLS_GRAMMAR},
        {"json", "structured_outputs.json", SPELLS_SCHEMA},
        {"json_object", "structured_outputs.json_object", SPELLS_OBJECT},
        {"regex", "structured_outputs.regex", SPELLS_REGEX},
    };
    struct constraint_reader r = {.left_out = "", .arena = arena};
    const json_t *outputs = NULL;

    if (field_object(&outputs, body, "structured_outputs", err) != STATUS_OK ||
        reader_format(&r, format_name, format, err) != STATUS_OK ||
        reader_members(&r, body, in_body, sizeof(in_body) / sizeof(in_body[0]), err) != STATUS_OK ||
        reader_members(&r, outputs, in_outputs, sizeof(in_outputs) / sizeof(in_outputs[0]), err) !=
            STATUS_OK)
        return err->status;
    if (outputs != NULL && json_object_get(outputs, "structural_tag") != NULL)
        return error_field(err, "structured_outputs", "has a structural_tag, which is not taken");
    if (r.constraint == NULL)
        return STATUS_OK;
    if (request_leave_out(out, r.left_out, arena, err) != STATUS_OK)
        return err->status;
    out->overrides.given |= SAMPLING_CONSTRAINT;
    out->overrides.values.constraint = r.constraint;
    return STATUS_OK;
}
