#include "worlds/score/words.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

enum { FIRST_SLOTS = 64, FIRST_IDS = 32 };

enum status ids_push(struct ids *ids, uint32_t id)
{
    if (ids->n == ids->cap) {
        size_t cap = ids->cap == 0 ? FIRST_IDS : 2 * ids->cap;
        uint32_t *at = try_realloc(ids->at, cap, sizeof(*at));

        if (at == NULL)
            return STATUS_EXHAUSTED;
        ids->at = at;
        ids->cap = cap;
    }
    ids->at[ids->n++] = id;
    return STATUS_OK;
}

enum status ids_zero(struct ids *ids, size_t n)
{
    if (ids->cap < n) {
        uint32_t *at = try_realloc(ids->at, n, sizeof(*at));

        if (at == NULL)
            return STATUS_EXHAUSTED;
        ids->at = at;
        ids->cap = n;
    }
    if (n > 0)
        memset(ids->at, 0, n * sizeof(*ids->at));
    ids->n = n;
    return STATUS_OK;
}

enum status ids_copy(struct ids *ids, const struct ids *from)
{
    if (ids_zero(ids, from->n) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (from->n > 0)
        memcpy(ids->at, from->at, from->n * sizeof(*ids->at));
    return STATUS_OK;
}

void ids_deinit(struct ids *ids)
{
    free(ids->at);
    *ids = (struct ids){0};
}

void words_deinit(struct words *w)
{
    free(w->slots);
    *w = (struct words){0};
}

void words_clear(struct words *w)
{
    w->n = 0;
    if (++w->epoch == 0) { /* after 2^32 resets an old slot would look like a new one */
        memset(w->slots, 0, w->n_slots * sizeof(*w->slots));
        w->epoch = 1;
    }
}

/* The finaliser of splitmix64. */
static uint64_t words_mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

static bool words_is_same(const struct word_slot *s, uint64_t key, const struct text *word)
{
    return s->key == key && (word == NULL || (s->word.len == word->len &&
                                              memcmp(s->word.text, word->text, word->len) == 0));
}

/* The slot of key (and word), or the free slot for it. */
static struct word_slot *words_slot_of(const struct words *w, uint64_t key, const struct text *word)
{
    size_t mask = w->n_slots - 1;

    for (size_t i = (size_t)words_mix(key) & mask;; i = (i + 1) & mask) {
        struct word_slot *s = &w->slots[i];

        if (s->epoch != w->epoch || words_is_same(s, key, word))
            return s;
    }
}

static enum status words_grow(struct words *w)
{
    struct words bigger = {.n_slots = w->n_slots == 0 ? FIRST_SLOTS : 2 * w->n_slots,
                           .n = w->n,
                           .epoch = w->epoch == 0 ? 1 : w->epoch};

    bigger.slots = try_alloc(bigger.n_slots, sizeof(*bigger.slots));
    if (bigger.slots == NULL)
        return STATUS_EXHAUSTED;
    for (size_t i = 0; i < w->n_slots; i++) {
        const struct word_slot *s = &w->slots[i];

        if (s->epoch == w->epoch)
            *words_slot_of(&bigger, s->key, s->word.text == NULL ? NULL : &s->word) = *s;
    }
    free(w->slots);
    *w = bigger;
    return STATUS_OK;
}

static enum status words_find_slot(struct words *w, uint64_t key, const struct text *word,
                                   struct word_slot **out)
{
    struct word_slot *s;

    if (2 * ((size_t)w->n + 1) > w->n_slots && words_grow(w) != STATUS_OK)
        return STATUS_EXHAUSTED;
    s = words_slot_of(w, key, word);
    if (s->epoch != w->epoch)
        *s = (struct word_slot){w->epoch, w->n++, key,
                                word == NULL ? (struct text){NULL, 0} : *word};
    *out = s;
    return STATUS_OK;
}

/* FNV-1a */
static uint64_t words_hash_of(struct text word)
{
    uint64_t hash = 0xCBF29CE484222325u;

    for (size_t i = 0; i < word.len; i++)
        hash = (hash ^ (unsigned char)word.text[i]) * 0x100000001B3u;
    return hash;
}

const struct word_slot *words_find(const struct words *w, struct text word)
{
    const struct word_slot *s =
        w->n_slots == 0 ? NULL : words_slot_of(w, words_hash_of(word), &word);

    return s != NULL && s->epoch == w->epoch ? s : NULL;
}

enum status words_slot(struct words *w, struct text word, struct word_slot **out)
{
    return words_find_slot(w, words_hash_of(word), &word, out);
}

enum status words_of(struct words *w, struct text word, uint32_t *out)
{
    struct word_slot *slot;

    if (words_slot(w, word, &slot) != STATUS_OK)
        return STATUS_EXHAUSTED;
    *out = slot->id;
    return STATUS_OK;
}

enum status words_of_pair(struct words *w, uint32_t a, uint32_t b, uint32_t *out)
{
    struct word_slot *slot;

    if (words_find_slot(w, (uint64_t)a << 32 | b, NULL, &slot) != STATUS_OK)
        return STATUS_EXHAUSTED;
    *out = slot->id;
    return STATUS_OK;
}

enum status words_split(struct words *w, const char *text, size_t len, struct ids *out)
{
    for (;;) {
        const char *space = len == 0 ? NULL : memchr(text, ' ', len);
        size_t n = space == NULL ? len : (size_t)(space - text);
        uint32_t id;

        if (words_of(w, (struct text){text, n}, &id) != STATUS_OK || ids_push(out, id) != STATUS_OK)
            return STATUS_EXHAUSTED;
        if (space == NULL)
            return STATUS_OK;
        text += n + 1;
        len -= n + 1;
    }
}
