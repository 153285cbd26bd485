/* Walks a JSON schema before the engine sees it. The engine leaves out what it cannot enforce; this
 * lets through only what it is known to enforce, rewritten so that every text that it then admits
 * is an instance. The reverse does not hold: members come in their declared order, numbers and
 * enumerated values in one spelling. */
#ifndef AGENTS_CONSTRAINT_GUARD_H
#define AGENTS_CONSTRAINT_GUARD_H

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/status.h"

/* What compilation is never asked for, since nothing cancels it. */
enum {
    GUARD_MAX_BYTES = 128 << 10,
    GUARD_MAX_DEPTH = 64,
    GUARD_MAX_NODES = 4096, /* schemas and enumerated values, together */
    GUARD_MAX_LENGTH = 512, /* of a string whose length has a bound */
    GUARD_MAX_ITEMS = 512,  /* of an array, likewise */
};

/* Appends the schema for the engine to out. A keyword that cannot be enforced is INVALID where
 * strict; else it is left out, and "PATH KEYWORD" is appended to left_out, with ", " between. A
 * schema that is wrong, too large, or that nothing can match is INVALID in any case. Errors name
 * the path (a JSON pointer, "#/properties/a") and the keyword. Any thread. */
enum status guard_schema(struct buf *out, const json_t *schema, bool strict, struct buf *left_out,
                         struct error *err) MUST_CHECK;

#endif
