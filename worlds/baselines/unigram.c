/* Always answers with the most frequent words of a dictionary: the lowest baseline for a model. */
#include <stdlib.h>
#include <string.h>

#include "agents/words/tokens.h"
#include "base/buf.h"
#include "base/utf8.h"
#include "worlds/baselines/dictionary.h"
#include "worlds/baselines/reply.h"

enum { DEFAULT_WORDS = 10, MAX_TEXT_BYTES = 1 << 20 };

/* Not a special token, and not punctuation. */
static bool is_said(struct text word)
{
    uint32_t c = 0;

    if (word.len >= 2 && memcmp(word.text, "__", 2) == 0)
        return false;
    (void)utf8_next(word.text, word.len, &c); /* a word is not empty */
    return c == '_' || is_alphanumeric(c);
}

/* The most frequent word that is not used yet, the first of equal ones; n: there is none. */
static size_t next_word(const struct dictionary *d, uint64_t before, size_t behind)
{
    size_t n = dictionary_n(d), best = n;
    uint64_t most = 0;

    for (size_t i = 0; i < n; i++) {
        uint64_t count;
        struct text word = dictionary_word(d, i, &count);

        if (count > before || (count == before && i <= behind) || !is_said(word))
            continue;
        if (best == n || count > most) {
            best = i;
            most = count;
        }
    }
    return best;
}

static void free_text(void *prepared)
{
    buf_deinit(prepared);
    free(prepared);
}

static enum status unigram_prepare(struct simple *s, struct error *err)
{
    const struct dictionary *d = s->config.dictionary;
    size_t n = s->config.n_words != 0 ? s->config.n_words : DEFAULT_WORDS;
    struct buf *text = calloc(1, sizeof(*text));
    uint64_t before = UINT64_MAX;
    size_t behind = SIZE_MAX;

    if (text == NULL)
        return error_no_memory(err, sizeof(*text), "a reply");
    buf_init(text, MAX_TEXT_BYTES);
    s->prepared = text;
    s->free_prepared = free_text;
    for (size_t i = 0; i < n; i++) {
        size_t at = next_word(d, before, behind);
        struct text word;

        if (at == dictionary_n(d))
            break;
        word = dictionary_word(d, at, &before);
        behind = at;
        if ((i > 0 && buf_append_text(text, " ") != STATUS_OK) ||
            buf_append(text, word.text, word.len) != STATUS_OK)
            return error_set(err, STATUS_EXHAUSTED, "a reply of %zu words is too long", n);
    }
    return STATUS_OK;
}

static enum status unigram_act(struct participant_clone *c, struct act *out, struct error *err)
{
    const struct buf *text = simple_of(c)->prepared;

    return reply_say(out, "UnigramAgent",
                     (struct text){text->data != NULL ? text->data : "", text->len}, err);
}

const struct simple_type unigram_agent = {
    .base = {.name = "unigram",
             .close = simple_close,
             .clone_size = sizeof(struct simple_clone),
             .clone_init = simple_clone_init,
             .reset = simple_reset,
             .observe = simple_observe,
             .act = unigram_act},
    .needs_dictionary = true,
    .prepare = unigram_prepare,
};
