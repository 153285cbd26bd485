#include "base/json_widen.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHARACTERS = 20 /* of an integer that may fit, with its sign */ };

/* How long the number is that begins at text; *ret_is_big: it is an integer that does not fit. */
static size_t widen_number(const char *text, size_t len, bool *ret_is_big)
{
    char copy[MOST_CHARACTERS + 1] = "";
    bool is_integer = true;
    size_t n = 0;

    for (; n < len && text[n] != '\0' && strchr("+-.0123456789Ee", text[n]) != NULL; n++)
        is_integer = is_integer && strchr(".Ee", text[n]) == NULL;
    *ret_is_big = is_integer && n > MOST_CHARACTERS;
    if (is_integer && !*ret_is_big) {
        memcpy(copy, text, n);
        errno = 0;
        (void)strtoll(copy, NULL, 10);
        *ret_is_big = errno == ERANGE;
    }
    return n;
}

enum status json_widen(struct buf *out, const char *text, size_t len)
{
    bool is_in_string = false, is_big;

    for (size_t at = 0, n; at < len; at += n) {
        n = 1;
        is_big = false;
        if (is_in_string) {
            n += text[at] == '\\' && at + 1 < len;
            is_in_string = text[at] != '"';
        } else if (text[at] == '-' || (text[at] >= '0' && text[at] <= '9')) {
            n = widen_number(text + at, len - at, &is_big);
        } else {
            is_in_string = text[at] == '"';
        }
        if (buf_append(out, text + at, n) != STATUS_OK ||
            (is_big && buf_append(out, ".0", 2) != STATUS_OK))
            return STATUS_EXHAUSTED;
    }
    return STATUS_OK;
}
