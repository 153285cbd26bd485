#include "agents/reply/reply_places.h"

enum {
    MAX_HELD_BACK = 1024, /* bytes that a stop text may have held back, and tokens that have them */
};

/* The first token behind whose text the reply is longer than this. */
static size_t tokens_find(const struct reply_tokens *t, size_t at)
{
    size_t from = 0, to = t->n;

    while (from < to) {
        const size_t middle = from + (to - from) / 2;

        if (t->at(t->tokens, middle).text_end > at)
            to = middle;
        else
            from = middle + 1;
    }
    return from;
}

bool reply_tokens_have(const struct reply_tokens *t, int32_t id, size_t at, size_t len)
{
    const size_t last = tokens_find(t, at);

    for (size_t i = last + 1; i-- > 0 && last - i < MAX_HELD_BACK;) {
        const size_t begin = i == 0 ? 0 : t->at(t->tokens, i - 1).text_end;
        size_t shown; /* the token with which so much text came */

        if (i == t->n)
            continue;
        if (begin + MAX_HELD_BACK < at)
            return false;
        if (t->at(t->tokens, i).id != id || begin > at)
            continue;
        shown = tokens_find(t, begin + len - 1);
        if (shown < t->n && at + len <= t->at(t->tokens, shown).text_end)
            return true;
    }
    return false;
}
