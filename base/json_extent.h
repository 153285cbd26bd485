/* How much a JSON text holds, before anything is made of it: a value in memory takes twenty times
 * the bytes of its text, and as long to make as a thousand bytes of a string. */
#ifndef BASE_JSON_EXTENT_H
#define BASE_JSON_EXTENT_H

#include <stdbool.h>
#include <stddef.h>

struct json_extent {
    size_t n_numbers; /* and true, false, null */
    size_t n_others;  /* strings, names of members, lists, objects */
};

/* Counts until one of both is above its limit, and returns whether none is. Text that is no JSON
 * has some extent, too: a reader that stops at its fault makes no more values. Any thread. */
bool json_extent_fits(const char *text, size_t len, const struct json_extent *limit);

#endif
