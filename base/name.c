#include "base/name.h"

#include <string.h>
#include <strings.h>

static bool name_has_byte(char c, const char *marks)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr(marks, c) != NULL);
}

size_t name_span(const char *text, size_t len, const char *marks)
{
    size_t n = 0;

    while (n < len && name_has_byte(text[n], marks))
        n++;
    return n;
}

bool name_is_valid(const char *text, size_t len, size_t max_bytes, const char *marks)
{
    return len > 0 && len <= max_bytes && name_span(text, len, marks) == len;
}

static bool is_word_byte(char c)
{
    return name_has_byte(c, "_") || (unsigned char)c >= 0x80;
}

bool name_is_in(const char *text, const char *name)
{
    const size_t len = strlen(name);

    for (const char *at = text; *at != '\0'; at++)
        if ((at == text || !is_word_byte(at[-1])) && strncasecmp(at, name, len) == 0 &&
            !is_word_byte(at[len]))
            return true;
    return false;
}
