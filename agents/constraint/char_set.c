#include "agents/constraint/char_set.h"

#include <string.h>

static bool char_set_insert(struct char_set *s, uint32_t first, uint32_t last)
{
    size_t at = 0, end;

    while (at < s->n && s->ranges[at].last + 1 < first)
        at++;
    for (end = at; end < s->n && s->ranges[end].first <= last + 1; end++) {
        first = s->ranges[end].first < first ? s->ranges[end].first : first;
        last = s->ranges[end].last > last ? s->ranges[end].last : last;
    }
    if (end == at && s->n == s->room)
        return false;
    memmove(&s->ranges[at + 1], &s->ranges[end], (s->n - end) * sizeof(s->ranges[0]));
    s->ranges[at] = (struct char_range){first, last};
    s->n = s->n - (end - at) + 1;
    return true;
}

bool char_set_add(struct char_set *s, uint32_t first, uint32_t last)
{
    if (first >= CHAR_FIRST_SURROGATE && last <= CHAR_LAST_SURROGATE)
        return true;
    if (last < CHAR_FIRST_SURROGATE || first > CHAR_LAST_SURROGATE)
        return char_set_insert(s, first, last);
    if (first < CHAR_FIRST_SURROGATE && !char_set_insert(s, first, CHAR_FIRST_SURROGATE - 1))
        return false;
    return last <= CHAR_LAST_SURROGATE || char_set_insert(s, CHAR_LAST_SURROGATE + 1, last);
}

bool char_set_add_all(struct char_set *s, const struct char_set *other)
{
    bool is_added = true;

    for (size_t i = 0; is_added && i < other->n; i++)
        is_added = char_set_add(s, other->ranges[i].first, other->ranges[i].last);
    return is_added;
}

bool char_set_invert(struct char_set *s)
{
    size_t n = 0;
    uint32_t at = 0;

    /* Surrogates count as members before, so that they are none behind. The gap before a range is
     * written no later than over that range, which was read. */
    if (!char_set_insert(s, CHAR_FIRST_SURROGATE, CHAR_LAST_SURROGATE))
        return false;
    for (size_t i = 0; i < s->n; i++) {
        const struct char_range r = s->ranges[i];

        if (r.first > at)
            s->ranges[n++] = (struct char_range){at, r.first - 1};
        at = r.last + 1;
    }
    if (at <= CHAR_LAST && n == s->room)
        return false;
    if (at <= CHAR_LAST)
        s->ranges[n++] = (struct char_range){at, CHAR_LAST};
    s->n = n;
    return true;
}

bool char_set_has(const struct char_set *s, uint32_t code)
{
    size_t low = 0, high = s->n;

    while (low < high) {
        const size_t mid = low + (high - low) / 2;

        if (s->ranges[mid].last < code)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n && s->ranges[low].first <= code;
}
