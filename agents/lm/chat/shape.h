/* Compares chat templates in Jinja by meaning, independent of layout. */
#ifndef AGENTS_LM_CHAT_SHAPE_H
#define AGENTS_LM_CHAT_SHAPE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Marks in a shape. They may stand for text: in a string, or between tags. */
#define SHAPE_CAPTURE "\x02" /* any text inside one string; it is captured. At most one. */
#define SHAPE_ANY "\x03"     /* anything */

/* Appends the template in its canonical layout, which is never longer: no comments, no white space
 * that renders to nothing (as with trim_blocks and lstrip_blocks, which is how chat templates are
 * rendered), strings with their escapes resolved as Python's and one sort of quote, 'a' + 'b' as
 * 'ab', a['b'] as a.b. STATUS_INVALID if tags or strings are not closed, if there are escapes that
 * Python refuses, or control characters that no template has (except marks, if is_shape). */
enum status shape_canonical(struct buf *out, const char *text, size_t len,
                            bool is_shape) MUST_CHECK;

/* Whether a canonical template has the canonical shape. If so, and if the shape captures, *ret_at
 * and *ret_len are the captured text. */
bool shape_matches(const char *text, size_t len, const char *shape, size_t shape_len,
                   const char **ret_at, size_t *ret_len);

#endif
