/* Chat templates in Jinja, compared by what they mean and not by how they are laid out. */
#ifndef AGENTS_LM_JINJA_H
#define AGENTS_LM_JINJA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Marks in a shape. They may stand where text stands: in a string, or between tags. */
#define JINJA_CAPTURE "\x02" /* any text inside one string; it is captured. At most one. */
#define JINJA_ANY "\x03"     /* anything */

/* Appends the template in its canonical layout, which is no longer than it: no comments, no white
 * space that renders to nothing (as with trim_blocks and lstrip_blocks, which is how chat templates
 * are rendered), strings with their escapes resolved and one sort of quote, 'a' + 'b' as 'ab',
 * a['b'] as a.b. STATUS_INVALID if tags or strings are not closed, or there are control characters
 * that no template has (marks aside, if is_shape). */
enum status jinja_canonical(struct buf *out, const char *text, size_t len,
                            bool is_shape) MUST_CHECK;

/* Whether a canonical template has the canonical shape; where it has, what was captured is in
 * *ret_at and *ret_len, if the shape captures. */
bool jinja_matches(const char *text, size_t len, const char *shape, size_t shape_len,
                   const char **ret_at, size_t *ret_len);

#endif
