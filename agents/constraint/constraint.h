/* What the text of a reply must match, checked and in the engine's own form. Made from a request's
 * fields before its turn begins, so that whatever is wrong is refused at once. */
#ifndef AGENTS_CONSTRAINT_CONSTRAINT_H
#define AGENTS_CONSTRAINT_CONSTRAINT_H

#include <jansson.h>

#include "agents/message.h"
#include "base/arena.h"

enum {
    CONSTRAINT_MAX_BYTES = 128 << 10,       /* of a regular expression, a grammar, all choices */
    CONSTRAINT_MAX_GRAMMAR_BYTES = 1 << 20, /* of a grammar as the engine reads it */
    CONSTRAINT_MAX_TAGS_BYTES = 4 << 20,    /* of all tools' calls in the engine's form */
    CONSTRAINT_MAX_SCHEMA_BYTES = 1 << 20,  /* of a schema before it is read */
    CONSTRAINT_MAX_SCHEMA_VALUES = 1 << 16, /* in it; and as many names, lists and objects */
    CONSTRAINT_MAX_CHOICES = 1024,
    CONSTRAINT_MAX_LEFT_OUT = 4096, /* bytes of the list of keywords that are left out */
};

/* All write a constraint in the arena. INVALID says what is wrong or cannot be enforced;
 * *ret_left_out lists keywords that are left out of a schema that is not strict, "" if none are. */
enum status constraint_of_schema(const struct constraint **out, const json_t *schema, bool strict,
                                 const char **ret_left_out, struct arena *arena,
                                 struct error *err) MUST_CHECK;
enum status constraint_of_schema_text(const struct constraint **out, const char *schema, size_t len,
                                      bool strict, const char **ret_left_out, struct arena *arena,
                                      struct error *err) MUST_CHECK;
/* Any JSON object. */
enum status constraint_of_object(const struct constraint **out, struct arena *arena,
                                 struct error *err) MUST_CHECK;
enum status constraint_of_regex(const struct constraint **out, const char *text, size_t len,
                                struct arena *arena, struct error *err) MUST_CHECK;
/* GBNF, as llama-server reads it, with the rule root. */
enum status constraint_of_grammar(const struct constraint **out, const char *text, size_t len,
                                  struct arena *arena, struct error *err) MUST_CHECK;
/* One of these texts [n]. */
enum status constraint_of_choices(const struct constraint **out, const struct text *texts, size_t n,
                                  struct arena *arena, struct error *err) MUST_CHECK;

/* One tool's call, as the model must write it. */
struct call_constraint {
    const char *name;
    const json_t *parameters; /* a schema of an object; NULL: there are no arguments */
    bool strict;              /* its keywords that cannot be enforced are refused */
};

/* How calls are written: before, the name, between, the arguments, after. */
struct calls_form {
    const char *before, *between, *after;
    const char *trigger; /* with which before begins, and free text has calls behind it; NULL: the
                            text is calls alone, at least one */
    bool is_single;      /* at most one */
};

enum status constraint_of_calls(const struct constraint **out, const struct call_constraint *calls,
                                size_t n, const struct calls_form *form, const char **ret_left_out,
                                struct arena *arena, struct error *err) MUST_CHECK;

#endif
