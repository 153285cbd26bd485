#include "base/name.h"

#include <string.h>

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
