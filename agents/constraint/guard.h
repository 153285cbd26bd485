/* Compiles a JSON schema to a grammar for the engine. Every text of the grammar is an instance; a
 * keyword for which that cannot be had is refused. The reverse does not hold: members come in their
 * declared order, numbers and enumerated values in one spelling. */
#ifndef AGENTS_CONSTRAINT_GUARD_H
#define AGENTS_CONSTRAINT_GUARD_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"

/* What a schema may ask for at most: so its grammar's size, and what it takes to write it, are
 * bounded. */
enum {
    GUARD_MAX_BYTES = 1 << 20, /* of the grammar */
    GUARD_MAX_DEPTH = 64,
    GUARD_MAX_NODES = 1 << 14,  /* schemas and enumerated values, together */
    GUARD_MAX_MERGED = 1 << 15, /* members of merged schemas, each time that they are merged */
    GUARD_MAX_LENGTH = 1 << 16, /* of a string whose length has a bound */
    GUARD_MAX_ITEMS = 1 << 12,  /* of an array, likewise */
    GUARD_MAX_CONTAINS = 64,    /* items that have to match contains, or may */
    GUARD_MAX_WORK = 3 << 19,   /* looks at a part of an automaton's state; some 0.1 s */
};

/* Appends the grammar to out; its rules begin with "root". A keyword that cannot be enforced is
 * INVALID where strict; else it is left out, and "PATH KEYWORD" is appended to left_out, with ", "
 * between. A schema that is wrong, too large, or that nothing can match is INVALID in any case.
 * *work is what may be done, less afterwards: schemas of one request share it. Errors name the path
 * (a JSON pointer, "#/properties/a") and the keyword. Any thread. */
enum status guard_schema(struct buf *out, const json_t *schema, bool strict, struct buf *left_out,
                         size_t *work, struct error *err) MUST_CHECK;

#endif
