#include <string.h>

#include "base/arena.h"
#include "server/api/parley/wire_parts.h"

char *wire_copy(const char *text, size_t len, struct arena *arena)
{
    size_t n = 0;
    char *copy;

    if (len == 0)
        return (char *)"";
    copy = arena_alloc(arena, len + 1, 1);
    if (copy == NULL)
        return NULL;
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '\0')
            copy[n++] = text[i];
    }
    return copy;
}

char *wire_shown(struct text text, struct arena *arena)
{
    static const char shown[] = "\xef\xbf\xbd"; /* U+FFFD */
    size_t n_nul = 0, n = 0;
    char *copy;

    for (size_t i = 0; i < text.len; i++)
        n_nul += text.text[i] == '\0';
    if (n_nul == 0)
        return text.len == 0 ? (char *)"" : (char *)text.text;
    copy = arena_alloc(arena, text.len + n_nul * (sizeof(shown) - 2) + 1, 1);
    for (size_t i = 0; copy != NULL && i < text.len; i++) {
        const bool is_nul = text.text[i] == '\0';
        const size_t n_bytes = is_nul ? sizeof(shown) - 1 : 1;

        memcpy(copy + n, is_nul ? shown : text.text + i, n_bytes);
        n += n_bytes;
    }
    return copy;
}
