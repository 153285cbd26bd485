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
