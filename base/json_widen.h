/* Integers that no 64 bits with a sign hold, as the nearest numbers that a reader of JSON with such
 * integers takes. */
#ifndef BASE_JSON_WIDEN_H
#define BASE_JSON_WIDEN_H

#include <stddef.h>

#include "base/buf.h"
#include "base/status.h"

/* Appends the JSON text with ".0" behind each integer below -2^63 or above 2^63 - 1. EXHAUSTED: out
 * has no room or no memory for it. Any thread. */
enum status json_widen(struct buf *out, const char *text, size_t len) MUST_CHECK;

#endif
