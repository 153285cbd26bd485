/* Words are counted in an array; a hash table leads from a word to its index there. Writing sorts
 * the array, so the table then gets the new indices. */
#include "worlds/baselines/dictionary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/words/tokens.h"
#include "base/alloc.h"
#include "base/arena.h"
#include "base/utf8.h"
#include "worlds/message/act.h"
#include "worlds/score/words.h"
#include "worlds/teachers/lines.h"

enum { MAX_LINE_BYTES = 1 << 20, FIRST_WORDS = 256 };

struct counted_word {
    struct text word; /* the arena's */
    uint64_t count;
};

struct dictionary {
    struct words words; /* number: index of counted */
    struct counted_word *counted;
    size_t n, cap;
    struct arena arena;
};

static enum status out_of_memory(struct error *err)
{
    return error_no_memory(err, sizeof(struct counted_word), "a dictionary");
}

static enum status dictionary_make_room(struct dictionary *d, struct error *err)
{
    size_t cap = d->cap == 0 ? FIRST_WORDS : 2 * d->cap;
    struct counted_word *counted;

    if (d->n < d->cap)
        return STATUS_OK;
    counted = try_realloc(d->counted, cap, sizeof(counted[0]));
    if (counted == NULL)
        return out_of_memory(err);
    d->counted = counted;
    d->cap = cap;
    return STATUS_OK;
}

static enum status dictionary_add_count(struct dictionary *d, struct text word, uint64_t n,
                                        struct error *err)
{
    const struct word_slot *known = words_find(&d->words, word);
    struct word_slot *slot;
    char *copy;

    if (known != NULL) {
        d->counted[known->id].count += n;
        return STATUS_OK;
    }
    if (d->n == UINT32_MAX)
        return error_set(err, STATUS_EXHAUSTED, "a dictionary may have at most %u words",
                         UINT32_MAX);
    copy = arena_strndup(&d->arena, word.text, word.len);
    if (copy == NULL || dictionary_make_room(d, err) != STATUS_OK ||
        words_slot(&d->words, (struct text){copy, word.len}, &slot) != STATUS_OK)
        return out_of_memory(err);
    d->counted[d->n++] = (struct counted_word){{copy, word.len}, n};
    return STATUS_OK;
}

static struct dictionary *make_empty(void)
{
    struct dictionary *d = xalloc(sizeof(*d));

    arena_init(&d->arena, SIZE_MAX);
    return d;
}

enum status dictionary_open(struct dictionary **out, struct error *err)
{
    static const char *const specials[] = {"__null__", "__start__", "__end__", "__unk__"};
    struct dictionary *d = make_empty();

    for (size_t i = 0; i < 4; i++) {
        struct text special = {specials[i], strlen(specials[i])};

        /* The first ids, in this order. */
        if (dictionary_add_count(d, special, UINT64_C(1000000003) - i, err) != STATUS_OK) {
            dictionary_close(d);
            return err->status;
        }
    }
    *out = d;
    return STATUS_OK;
}

void dictionary_close(struct dictionary *d)
{
    if (d == NULL)
        return;
    words_deinit(&d->words);
    free(d->counted);
    arena_deinit(&d->arena);
    free(d);
}

/* --- the file ----------------------------------------------------------------------------------
 */

static const struct {
    char is, stands; /* is: the character; stands: the letter after a backslash that means it */
} escapes[] = {{'\n', 'n'}, {'\t', 't'}, {'\r', 'r'}};

/* In place; returns the new length. */
static size_t dictionary_unescape(char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        text[n] = text[i];
        for (size_t e = 0; text[i] == '\\' && i + 1 < len && e < 3; e++) {
            if (text[i + 1] != escapes[e].stands)
                continue;
            text[n] = escapes[e].is;
            i++;
            break;
        }
        n++;
    }
    return n;
}

/* A count consists of digits; it is never 0. */
static bool read_count(const char *text, size_t len, uint64_t *out)
{
    uint64_t n = 0;

    for (size_t i = 0; i < len; i++)
        if (text[i] < '0' || text[i] > '9' || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(text[i] - '0'), &n))
            return false;
    *out = n;
    return true;
}

static enum status dictionary_read_line(struct dictionary *d, const char *line, size_t len,
                                        struct error *err)
{
    const char *tab = len > 0 ? memchr(line, '\t', len) : NULL;
    size_t word_len = tab != NULL ? (size_t)(tab - line) : len;
    uint64_t n = 0;
    enum status rc;
    char *word;

    while (len > 0 && line[len - 1] == '\r')
        len--;
    if (word_len > len)
        word_len = len;
    if (!utf8_is_valid(line, len))
        return error_set(err, STATUS_INVALID, "is not UTF-8");
    if (tab != NULL && (tab + 1 == line + len || !read_count(tab + 1, len - word_len - 1, &n)))
        return error_set(err, STATUS_INVALID, "has no number after the tab");
    word = try_strndup(line, word_len);
    if (word == NULL)
        return out_of_memory(err);
    word_len = dictionary_unescape(word, word_len);
    if (word_len == 0)
        rc = error_set(err, STATUS_INVALID, "has no word");
    else if (words_find(&d->words, (struct text){word, word_len}) != NULL)
        rc = error_set(err, STATUS_INVALID, "has a word that an earlier line has already");
    else
        rc = dictionary_add_count(d, (struct text){word, word_len}, n, err);
    free(word);
    return rc;
}

enum status dictionary_read(struct dictionary **out, const char *path, struct error *err)
{
    struct dictionary *d = make_empty();
    struct lines lines = {.fd = -1};
    const char *line = "";
    enum status rc = lines_open(&lines, path, MAX_LINE_BYTES, err);
    size_t len;

    while (rc == STATUS_OK && line != NULL) {
        rc = lines_next(&lines, &line, &len, err);
        if (rc == STATUS_OK && line != NULL)
            rc = dictionary_read_line(d, line, len, err);
        if (rc == STATUS_INVALID)
            rc = error_prefix(err, "%s:%zu", path, lines.number);
    }
    lines_close(&lines);
    if (rc == STATUS_OK) {
        *out = d;
        return STATUS_OK;
    }
    dictionary_close(d);
    return rc;
}

static int dictionary_compare(const void *a, const void *b)
{
    const struct counted_word *x = a, *y = b;
    size_t len = x->word.len < y->word.len ? x->word.len : y->word.len;
    int order;

    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    order = memcmp(x->word.text, y->word.text, len);
    if (order != 0)
        return order;
    return x->word.len < y->word.len ? -1 : x->word.len > y->word.len;
}

/* The most frequent first; the numbers of words follow. */
static enum status dictionary_sort(struct dictionary *d, struct error *err)
{
    qsort(d->counted, d->n, sizeof(d->counted[0]), dictionary_compare);
    for (size_t i = 0; i < d->n; i++) {
        struct word_slot *slot;

        if (words_slot(&d->words, d->counted[i].word, &slot) != STATUS_OK)
            return out_of_memory(err);
        slot->id = (uint32_t)i;
    }
    return STATUS_OK;
}

static void write_word(FILE *to, struct text word)
{
    for (size_t i = 0; i < word.len; i++) {
        size_t e = 0;

        while (e < 3 && word.text[i] != escapes[e].is)
            e++;
        if (e < 3)
            (void)fprintf(to, "\\%c", escapes[e].stands);
        else
            (void)fputc(word.text[i], to); /* ferror reports it at the end */
    }
}

static bool dictionary_write_all(const struct dictionary *d, FILE *to)
{
    for (size_t i = 0; i < d->n; i++) {
        write_word(to, d->counted[i].word);
        (void)fprintf(to, "\t%llu\n", (unsigned long long)d->counted[i].count);
    }
    return fflush(to) == 0 && ferror(to) == 0 && fsync(fileno(to)) == 0 && !fault_now();
}

enum status dictionary_write(struct dictionary *d, const char *path, struct error *err)
{
    size_t len = strlen(path) + sizeof(".part");
    char *part = try_alloc(len, 1);
    FILE *to = NULL;
    bool is_good;

    if (part == NULL)
        return error_no_memory(err, len, "the name of a file");
    if (dictionary_sort(d, err) != STATUS_OK) {
        free(part);
        return err->status;
    }
    (void)snprintf(part, len, "%s.part", path);
    to = fopen(part, "we");
    is_good = to != NULL && dictionary_write_all(d, to);
    if (to != NULL && fclose(to) != 0)
        is_good = false;
    if (is_good && rename(part, path) != 0)
        is_good = false;
    if (!is_good)
        (void)error_set(err, STATUS_UNAVAILABLE, "'%.160s' cannot be written: %s", path,
                        strerror(errno));
    if (!is_good && to != NULL)
        (void)unlink(part); /* the incomplete file is useless */
    free(part);
    return is_good ? STATUS_OK : err->status;
}

/* --- words -------------------------------------------------------------------------------------
 */

enum status dictionary_add(struct dictionary *d, struct text text, struct error *err)
{
    enum status rc = STATUS_OK;
    struct text word;
    size_t at = 0;

    while (rc == STATUS_OK && (word = token_next(text, &at)).text != NULL)
        rc = dictionary_add_count(d, word, 1, err);
    return rc;
}

enum status dictionary_add_act(struct dictionary *d, const struct act *a, struct error *err)
{
    const struct value *labels = act_list(a, ACT_LABELS);
    enum status rc = dictionary_add(d, act_text(a), err);

    for (size_t i = 0; labels != NULL && i < labels->list.n && rc == STATUS_OK; i++)
        rc = dictionary_add(d, labels->list.items[i], err);
    return rc;
}

size_t dictionary_n(const struct dictionary *d)
{
    return d->n;
}

uint64_t dictionary_count(const struct dictionary *d, struct text word)
{
    const struct word_slot *slot = words_find(&d->words, word);

    return slot != NULL ? d->counted[slot->id].count : 0;
}

struct text dictionary_word(const struct dictionary *d, size_t id, uint64_t *ret_count)
{
    if (ret_count != NULL)
        *ret_count = d->counted[id].count;
    return d->counted[id].word;
}
