/* A grammar in GBNF, as llama-server reads it, rewritten as the engine's grammar: the two differ in
 * empty alternatives, '.', escapes, names and repetitions without a lower bound. */
#ifndef AGENTS_CONSTRAINT_GBNF_H
#define AGENTS_CONSTRAINT_GBNF_H

#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

enum { GBNF_MAX_DEPTH = 32 }; /* of groups */

/* Appends the grammar, of about the same length, to out. text is UTF-8 without NUL bytes. INVALID
 * says in which line what is wrong; Lark is recognised, and the error says what to write instead.
 * Where out is full, INVALID too. */
enum status gbnf_read(struct buf *out, const char *text, size_t len, struct error *err) MUST_CHECK;

#endif
