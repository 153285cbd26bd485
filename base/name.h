/* Names that people give to what a server has: principals, models, conversations, tools, plug-ins,
 * workers. All are letters and digits of ASCII, whatever the locale, and a few marks, which each
 * kind of name has its own of. Any thread. */
#ifndef BASE_NAME_H
#define BASE_NAME_H

#include <stdbool.h>
#include <stddef.h>

/* The marks of most kinds of names. */
#define NAME_MARKS "._-"

/* How many bytes of text, of len at most, are letters, digits and marks before the first other. */
size_t name_span(const char *text, size_t len, const char *marks);
/* Whether text, of len bytes, is a name: 1 to max_bytes letters, digits and marks. */
bool name_is_valid(const char *text, size_t len, size_t max_bytes, const char *marks);
/* Whether text has the name as a word of its own: no letter, digit or _ of ASCII and no other
 * character beyond ASCII is beside it. The case of ASCII's letters does not count. */
bool name_is_in(const char *text, const char *name);

#endif
