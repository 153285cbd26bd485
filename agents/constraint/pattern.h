/* Bounds on the repetitions of a regular expression or a grammar, before the engine reads it. */
#ifndef AGENTS_CONSTRAINT_PATTERN_H
#define AGENTS_CONSTRAINT_PATTERN_H

#include <stddef.h>

#include "base/status.h"

/* What a regular expression may ask for at most: UNIMPLEMENTED where its repetitions, multiplied
 * where they are nested, or its groups' depth are above the bounds. */
enum status pattern_check_bounds(const char *pattern, size_t len, struct error *err) MUST_CHECK;

#endif
