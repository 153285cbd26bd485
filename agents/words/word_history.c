/* Two growing arrays: the words, and the end of each turn among them. Room for a turn is made by
 * growing both and setting their lengths back, so that the turn can be added without failing. */
#include "agents/words/word_history.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

#include "compute/gguf/hash.h"

enum { MAGIC_BYTES = 8 };

void word_history_init(struct word_history *h)
{
    buf_init(&h->words, WORD_HISTORY_MAX * sizeof(int32_t));
    buf_init(&h->ends, WORD_HISTORY_MAX * sizeof(uint32_t));
}

void word_history_deinit(struct word_history *h)
{
    buf_deinit(&h->words);
    buf_deinit(&h->ends);
}

size_t word_history_n_words(const struct word_history *h)
{
    return h->words.len / sizeof(int32_t);
}

size_t word_history_n_turns(const struct word_history *h)
{
    return h->ends.len / sizeof(uint32_t);
}

size_t word_history_size_bytes(const struct word_history *h)
{
    return h->words.cap + h->ends.cap;
}

/* How many words the first at_turn turns have. */
static size_t word_history_end(const struct word_history *h, size_t at_turn)
{
    uint32_t end;

    if (at_turn == 0)
        return 0;
    memcpy(&end, h->ends.data + (at_turn - 1) * sizeof(end), sizeof(end));
    return end;
}

static enum status word_history_check(const struct word_history *h, uint32_t at_turn,
                                      struct error *err)
{
    if (at_turn > word_history_n_turns(h))
        return error_because(err, STATUS_RANGE, REASON_TURN_NOT_FOUND, NULL,
                             "turn %u does not exist, the conversation has %zu turns", at_turn,
                             word_history_n_turns(h));
    return STATUS_OK;
}

enum status word_history_fork(struct word_history *h, const struct word_history *from,
                              uint32_t at_turn, struct error *err)
{
    size_t n;

    if (word_history_check(from, at_turn, err) != STATUS_OK)
        return err->status;
    if (at_turn == 0)
        return STATUS_OK;
    n = word_history_end(from, at_turn);
    if ((n > 0 && buf_append(&h->words, from->words.data, n * sizeof(int32_t)) != STATUS_OK) ||
        buf_append(&h->ends, from->ends.data, at_turn * sizeof(uint32_t)) != STATUS_OK)
        return error_no_memory(err, n * sizeof(int32_t), "a conversation");
    return STATUS_OK;
}

static void word_history_cut(struct word_history *h, size_t at_turn)
{
    h->words.len = word_history_end(h, at_turn) * sizeof(int32_t);
    h->ends.len = at_turn * sizeof(uint32_t);
}

enum status word_history_rewind(struct word_history *h, uint32_t at_turn, struct error *err)
{
    enum status rc = word_history_check(h, at_turn, err);

    if (rc == STATUS_OK)
        word_history_cut(h, at_turn);
    return rc;
}

void word_history_clear(struct word_history *h)
{
    word_history_cut(h, 0);
}

enum status word_history_reserve(struct word_history *h, size_t n, struct error *err)
{
    static const int32_t zeros[256];
    const size_t words_len = h->words.len, ends_len = h->ends.len;
    enum status rc = buf_append(&h->ends, zeros, sizeof(uint32_t));

    for (size_t left = n; rc == STATUS_OK && left > 0;) {
        const size_t some = left < 256 ? left : 256;

        rc = buf_append(&h->words, zeros, some * sizeof(int32_t));
        left -= some;
    }
    h->words.len = words_len;
    h->ends.len = ends_len;
    if (rc == STATUS_OK)
        return STATUS_OK;
    if (h->words.is_full || h->ends.is_full)
        return error_set(err, STATUS_RANGE, "the conversation would have more than %d words",
                         WORD_HISTORY_MAX);
    return error_no_memory(err, n * sizeof(int32_t), "a conversation");
}

void word_history_add(struct word_history *h, const int32_t *words, size_t n)
{
    enum status rc = n > 0 ? buf_append(&h->words, words, n * sizeof(int32_t)) : STATUS_OK;

    assert(rc == STATUS_OK);
}

void word_history_end_turn(struct word_history *h)
{
    const uint32_t end = (uint32_t)word_history_n_words(h);
    enum status rc = buf_append(&h->ends, &end, sizeof(end));

    assert(rc == STATUS_OK);
}

/* --- saved state: a magic, the file's version, two counts, then ends and words, all little endian
 * (as the machine is) --- */

enum status word_history_save(const struct word_history *h, const char *magic, const char *version,
                              struct buf *out, struct error *err)
{
    const uint32_t counts[2] = {(uint32_t)word_history_n_turns(h),
                                (uint32_t)word_history_n_words(h)};
    char padded[MODEL_HASH_SIZE] = "";
    const size_t before = out->len;

    memcpy(padded, version, strlen(version));
    if (buf_append(out, magic, MAGIC_BYTES) == STATUS_OK &&
        buf_append(out, padded, sizeof(padded)) == STATUS_OK &&
        buf_append(out, counts, sizeof(counts)) == STATUS_OK &&
        (h->ends.len == 0 || buf_append(out, h->ends.data, h->ends.len) == STATUS_OK) &&
        (h->words.len == 0 || buf_append(out, h->words.data, h->words.len) == STATUS_OK))
        return STATUS_OK;
    out->len = before;
    return error_no_memory(err, h->words.len, "a saved state");
}

static enum status word_history_bad(struct error *err)
{
    return error_set(err, STATUS_DATA_LOSS, "the saved state is not one of this agent, version 1");
}

/* Whether ends never fall, and end with all words; and words are of the vocabulary. */
static bool word_history_is_good(const char *ends, uint32_t n_turns, const char *words,
                                 uint32_t n_words, size_t n_vocab)
{
    uint32_t before = 0;
    int32_t word;

    for (uint32_t i = 0; i < n_turns; i++) {
        uint32_t end;

        memcpy(&end, ends + i * sizeof(end), sizeof(end));
        if (end < before || end > n_words)
            return false;
        before = end;
    }
    for (uint32_t i = 0; i < n_words; i++) {
        memcpy(&word, words + i * sizeof(word), sizeof(word));
        if (word < 0 || (size_t)word >= n_vocab)
            return false;
    }
    return before == n_words;
}

enum status word_history_restore(struct word_history *h, const char *magic, const char *version,
                                 size_t n_vocab, const void *data, size_t size_bytes,
                                 struct error *err)
{
    const size_t head = MAGIC_BYTES + MODEL_HASH_SIZE;
    const char *at = data, *ends, *words;
    uint32_t counts[2];

    if (size_bytes < head + sizeof(counts) || memcmp(at, magic, MAGIC_BYTES) != 0 ||
        memcmp(at + MAGIC_BYTES, version, strlen(version) + 1) != 0)
        return word_history_bad(err);
    memcpy(counts, at + head, sizeof(counts));
    if (size_bytes - head - sizeof(counts) != ((uint64_t)counts[0] + counts[1]) * sizeof(int32_t))
        return word_history_bad(err);
    ends = at + head + sizeof(counts);
    words = ends + counts[0] * sizeof(uint32_t);
    if (!word_history_is_good(ends, counts[0], words, counts[1], n_vocab))
        return word_history_bad(err);
    word_history_clear(h);
    if ((counts[1] > 0 && buf_append(&h->words, words, counts[1] * sizeof(int32_t)) != STATUS_OK) ||
        (counts[0] > 0 && buf_append(&h->ends, ends, counts[0] * sizeof(uint32_t)) != STATUS_OK)) {
        word_history_clear(h);
        return error_no_memory(err, size_bytes, "a conversation");
    }
    return STATUS_OK;
}
