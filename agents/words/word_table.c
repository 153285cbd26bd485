/* Words lie in an array by id, and a hash table leads from a text to its word. Counting appends new
 * words; settling sorts the array and numbers it anew. */
#include "agents/words/word_table.h"

#include <stdlib.h>
#include <string.h>

#include "agents/words/tokens.h"
#include "base/alloc.h"
#include "base/arena.h"
#include "base/checksum.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/utf8.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/write.h"

struct table_word {
    struct hash_node node;
    struct text text; /* in the arena */
    uint64_t count;
    int32_t id;
};

struct word_table {
    struct hash hash;
    struct table_word **words; /* [n], by id once settled */
    size_t n, cap;
    struct arena arena; /* of the words */
};

static const char *const specials[WORD_N_SPECIALS] = {
    [WORD_NULL] = "__null__",
    [WORD_START] = "__start__",
    [WORD_END] = "__end__",
    [WORD_UNKNOWN] = "__unk__",
};

static enum status word_table_full(struct error *err)
{
    return error_no_memory(err, sizeof(struct table_word), "a vocabulary");
}

static struct table_word *word_table_find(const struct word_table *t, struct text text,
                                          uint64_t hash)
{
    for (struct hash_node *n = hash_first(&t->hash, hash); n != NULL; n = hash_next(n)) {
        struct table_word *w = container_of(n, struct table_word, node);

        if (w->text.len == text.len && memcmp(w->text.text, text.text, text.len) == 0)
            return w;
    }
    return NULL;
}

static enum status word_table_count(struct word_table *t, struct text text, struct error *err)
{
    const uint64_t hash = hash_bytes(&t->hash, 0, text.text, text.len);
    struct table_word *w = word_table_find(t, text, hash);
    char *copy;

    if (w != NULL) {
        w->count++;
        return STATUS_OK;
    }
    if (t->n == WORD_TABLE_MAX)
        return error_set(err, STATUS_EXHAUSTED, "a vocabulary has at most %d words",
                         WORD_TABLE_MAX);
    if (t->n == t->cap) {
        const size_t cap = t->cap == 0 ? 256 : 2 * t->cap;
        struct table_word **more = try_realloc(t->words, cap, sizeof(*more));

        if (more == NULL)
            return word_table_full(err);
        t->words = more;
        t->cap = cap;
    }
    w = arena_alloc(&t->arena, 1, sizeof(*w));
    copy = arena_strndup(&t->arena, text.text, text.len);
    if (w == NULL || copy == NULL)
        return word_table_full(err);
    *w = (struct table_word){.text = {copy, text.len}, .count = 1, .id = (int32_t)t->n};
    hash_add(&t->hash, &w->node, hash);
    t->words[t->n++] = w;
    return STATUS_OK;
}

static struct word_table *word_table_make(void)
{
    struct word_table *t = xalloc(sizeof(*t));

    arena_init(&t->arena, SIZE_MAX);
    hash_init(&t->hash, &env_real);
    return t;
}

enum status word_table_open(struct word_table **out, struct error *err)
{
    struct word_table *t = word_table_make();

    for (size_t i = 0; i < WORD_N_SPECIALS; i++) {
        if (word_table_count(t, (struct text){specials[i], strlen(specials[i])}, err) !=
            STATUS_OK) {
            word_table_close(t);
            return err->status;
        }
        t->words[i]->count = UINT64_MAX - i; /* they stay the first words, in this order */
    }
    *out = t;
    return STATUS_OK;
}

void word_table_close(struct word_table *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->n; i++)
        hash_remove(&t->hash, &t->words[i]->node);
    hash_deinit(&t->hash);
    free(t->words);
    arena_deinit(&t->arena);
    free(t);
}

enum status word_table_add(struct word_table *t, struct text text, struct error *err)
{
    enum status rc = STATUS_OK;
    struct text word;
    size_t at = 0;

    while (rc == STATUS_OK && (word = token_next(text, &at)).text != NULL)
        if (word.len <= WORD_MAX_BYTES)
            rc = word_table_count(t, word, err);
    return rc;
}

static int table_word_compare(const void *a, const void *b)
{
    const struct table_word *x = *(struct table_word *const *)a,
                            *y = *(struct table_word *const *)b;
    const size_t len = x->text.len < y->text.len ? x->text.len : y->text.len;
    int order;

    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    order = memcmp(x->text.text, y->text.text, len);
    if (order != 0)
        return order;
    return x->text.len < y->text.len ? -1 : x->text.len > y->text.len;
}

enum status word_table_settle(struct word_table *t, size_t most, struct error *err)
{
    if (most != 0 && most < WORD_N_SPECIALS + 1)
        return error_set(err, STATUS_INVALID, "a vocabulary of %zu words is too small for any word",
                         most);
    qsort(t->words, t->n, sizeof(struct table_word *), table_word_compare);
    while (most != 0 && t->n > most)
        hash_remove(&t->hash, &t->words[--t->n]->node);
    for (size_t i = 0; i < t->n; i++)
        t->words[i]->id = (int32_t)i;
    return STATUS_OK;
}

size_t word_table_n(const struct word_table *t)
{
    return t->n;
}

struct text word_table_word(const struct word_table *t, size_t id)
{
    return t->words[id]->text;
}

uint32_t word_table_crc(const struct word_table *t)
{
    uint32_t crc = 0;

    for (size_t i = 0; i < t->n; i++) {
        const uint32_t len = (uint32_t)t->words[i]->text.len;

        crc = crc32c(crc32c(crc, &len, sizeof(len)), t->words[i]->text.text, len);
    }
    return crc;
}

enum status word_table_encode(const struct word_table *t, const char *text, size_t len,
                              struct buf *ids, struct error *err)
{
    const size_t before = ids->len;
    struct text word;
    size_t at = 0;

    while ((word = token_next((struct text){text, len}, &at)).text != NULL) {
        const struct table_word *w =
            word_table_find(t, word, hash_bytes(&t->hash, 0, word.text, word.len));
        const int32_t id = w != NULL ? w->id : WORD_UNKNOWN;

        if (buf_append(ids, &id, sizeof(id)) != STATUS_OK) {
            ids->len = before;
            return error_no_memory(err, ids->len + sizeof(id), "the words of a text");
        }
    }
    return STATUS_OK;
}

enum status word_table_decode(const struct word_table *t, const int32_t *ids, size_t n,
                              struct buf *text, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct text word;

        if (ids[i] < 0 || (size_t)ids[i] >= t->n)
            return error_set(err, STATUS_INVALID,
                             "token %d is not in the vocabulary, which has %zu words", ids[i],
                             t->n);
        word = t->words[ids[i]]->text;
        if ((i > 0 && buf_append(text, " ", 1) != STATUS_OK) ||
            buf_append(text, word.text, word.len) != STATUS_OK)
            return error_no_memory(err, word.len, "a text");
    }
    return STATUS_OK;
}

/* --- the file -------------------------------------------------------------------------------- */

void word_table_write(const struct word_table *t, struct gguf_writer *w, const char *key)
{
    gguf_write_texts(w, key, t->n);
    for (size_t i = 0; i < t->n; i++)
        gguf_write_item(w, t->words[i]->text.text, t->words[i]->text.len);
}

static enum status word_table_read_words(struct word_table *t, struct gguf *g, const char *key,
                                         size_t n, struct error *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *text = "";
        size_t len = 0;

        if (gguf_array_text(g, key, i, &text, &len, err) != STATUS_OK)
            return err->status;
        if (len == 0 || len > WORD_MAX_BYTES || !utf8_is_valid(text, len))
            return error_set(err, STATUS_DATA_LOSS, "%s: word %zu of %s is not a word",
                             gguf_path(g), i, key);
        if (i < WORD_N_SPECIALS &&
            (len != strlen(specials[i]) || memcmp(text, specials[i], len) != 0))
            return error_set(err, STATUS_DATA_LOSS, "%s: word %zu of %s must be %s", gguf_path(g),
                             i, key, specials[i]);
        if (word_table_count(t, (struct text){text, len}, err) != STATUS_OK)
            return err->status;
        if (t->n != i + 1)
            return error_set(err, STATUS_DATA_LOSS, "%s: word %zu of %s is there twice",
                             gguf_path(g), i, key);
    }
    return STATUS_OK;
}

enum status word_table_read(struct word_table **out, struct gguf *g, const char *key,
                            struct error *err)
{
    struct word_table *t;
    size_t n = 0;

    if (gguf_array_len(g, key, &n, err) != STATUS_OK)
        return err->status;
    if (n <= WORD_N_SPECIALS || n > WORD_TABLE_MAX)
        return error_set(err, STATUS_DATA_LOSS, "%s: %s has %zu words, it must have %d to %d",
                         gguf_path(g), key, n, WORD_N_SPECIALS + 1, WORD_TABLE_MAX);
    t = word_table_make();
    if (word_table_read_words(t, g, key, n, err) != STATUS_OK) {
        word_table_close(t);
        return err->status;
    }
    *out = t;
    return STATUS_OK;
}
