#include "agents/constraint/pattern.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    MAX_DEPTH = 32,
    MAX_REPEAT = 1000, /* of a character, in all groups around it together */
};

static bool take_repeat_count(const char **at, const char *end, uint64_t *out)
{
    const char *start = *at;

    for (*out = 0; *at < end && **at >= '0' && **at <= '9' && *out <= MAX_REPEAT; (*at)++)
        *out = *out * 10 + (uint64_t)(**at - '0');
    return *at > start;
}

/* The upper end of the repetition at text; 1 where there is none. */
static uint64_t repeat_at(const char *text, const char *end)
{
    uint64_t count, most = 1;

    if (text == end || *text != '{')
        return 1;
    for (text++; take_repeat_count(&text, end, &count); text++) {
        most = count > most ? count : most;
        if (text == end || *text != ',')
            break;
    }
    return most;
}

enum status pattern_check_bounds(const char *pattern, size_t len, struct error *err)
{
    const char *const end = pattern + len;
    uint64_t inner[MAX_DEPTH + 1] = {
        1}; /* the most repetitions of a character in each open group */
    unsigned depth = 0;

    for (const char *at = pattern; at < end; at++) {
        uint64_t most = repeat_at(at, end);

        if (*at == '\\') {
            at++;
            continue;
        }
        if (*at == '(') {
            if (++depth > MAX_DEPTH)
                return error_set(err, STATUS_UNIMPLEMENTED, "groups nested this deeply");
            inner[depth] = 1;
        } else if (*at == ')' && depth > 0) {
            most = inner[depth--] * repeat_at(at + 1, end);
        }
        if (most > inner[depth])
            inner[depth] = most;
        if (inner[depth] > MAX_REPEAT)
            return error_set(err, STATUS_UNIMPLEMENTED, "repetitions that multiply to more than %d",
                             MAX_REPEAT);
    }
    return STATUS_OK;
}
