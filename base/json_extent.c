#include "base/json_extent.h"

#include <string.h>

/* Behind a string that begins at text, which is its first quote. */
static const char *skip_string(const char *text, const char *end)
{
    const char *quote = text;

    for (text++; text < end; text++) {
        const char *slash;

        if (quote < text) /* else it is still ahead: one search for all that is escaped before it */
            quote = memchr(text, '"', (size_t)(end - text));
        if (quote == NULL)
            return end;
        slash = memchr(text, '\\', (size_t)(quote - text));
        if (slash == NULL)
            return quote + 1;
        text = slash + 1; /* what it escapes */
    }
    return end;
}

/* Of numbers and words, which end where one of these stands, or anything that is no part of them.
 */
static bool is_plain(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' ||
           c == 'E';
}

bool json_extent_fits(const char *text, size_t len, const struct json_extent *limit)
{
    const char *const end = text + len;
    struct json_extent n = {0};

    while (text < end && n.n_numbers <= limit->n_numbers && n.n_others <= limit->n_others) {
        if (*text == '"') {
            n.n_others++;
            text = skip_string(text, end);
        } else if (is_plain(*text)) {
            n.n_numbers++;
            do
                text++;
            while (text < end && is_plain(*text));
        } else {
            n.n_others += *text == '[' || *text == '{';
            text++;
        }
    }
    return n.n_numbers <= limit->n_numbers && n.n_others <= limit->n_others;
}
