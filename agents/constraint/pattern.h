/* A schema's pattern as a regular expression over the JSON text between the quotes of a string,
 * which is what the engine matches: no quote, backslash or control character comes raw. */
#ifndef AGENTS_CONSTRAINT_PATTERN_H
#define AGENTS_CONSTRAINT_PATTERN_H

#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

/* Appends to out; every string that the result matches is one that pattern is found in, not always
 * the reverse. UNIMPLEMENTED names what cannot be matched so: look-around, back references,
 * classes by property, anchors inside, too many repetitions. */
enum status pattern_to_json_text(struct buf *out, const char *pattern, size_t len,
                                 struct error *err) MUST_CHECK;

/* What a regular expression may ask for at most: UNIMPLEMENTED where its repetitions, multiplied
 * where they are nested, or its groups' depth are above the bounds. */
enum status pattern_check_bounds(const char *pattern, size_t len, struct error *err) MUST_CHECK;

#endif
