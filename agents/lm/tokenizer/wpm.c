#include "agents/lm/tokenizer/wpm.h"

#include <stdlib.h>
#include <string.h>
#include <unicase.h>
#include <unictype.h>
#include <uninorm.h>

#include "agents/lm/tokenizer/table.h"
#include "base/alloc.h"
#include "base/utf8.h"

enum {
    WORD_MAX = 100, /* characters */
    CHAR_BYTES = 4,
    CAPITAL_I_WITH_DOT = 0x130, /* the only one whose lower case is two characters */
    DOT_ABOVE = 0x307,
};

struct wpm_run {
    const struct vocab *v;
    struct buf *ids;
    struct error *err;
    char word[1 + (WORD_MAX + 1) * CHAR_BYTES]; /* [len] a space, then its characters */
    size_t len, n_chars;
};

static bool is_chinese(uint32_t c)
{
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

static bool is_separator(uint32_t c)
{
    return c == '\t' || c == '\n' || c == '\r' || uc_is_property_white_space(c);
}

/* What cleaning leaves out. */
static bool is_left_out(uint32_t c)
{
    return c == 0 || c == 0xFFFD || uc_is_general_category_withtable(c, UC_CATEGORY_MASK_C);
}

static bool is_punctuation(uint32_t c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~') || uc_is_general_category_withtable(c, UC_CATEGORY_MASK_P);
}

static void wpm_put_char(struct wpm_run *r, uint32_t c)
{
    if (r->n_chars <= WORD_MAX)
        r->len += utf8_encode(c, r->word + r->len);
    r->n_chars++;
}

/* The longest token that the word has at `from`; *ret_len is its length there. -1: none. */
static int32_t wpm_longest(const struct wpm_run *r, size_t from, size_t *ret_len)
{
    size_t end = r->len - from < r->v->longest ? r->len : from + r->v->longest;

    for (; end > from; end--) {
        int32_t id = vocab_find(r->v, r->word + from, end - from);

        if (id >= 0) {
            *ret_len = end - from;
            return id;
        }
    }
    return -1;
}

/* Appends the word's ids, if there is a word, and begins the next one. */
static enum status wpm_end_word(struct wpm_run *r)
{
    const size_t before = r->ids->len;
    enum status rc = STATUS_OK;
    bool is_known = r->n_chars <= WORD_MAX;

    for (size_t from = 0, len = 0; rc == STATUS_OK && is_known && r->n_chars > 0 && from < r->len;
         from += len) {
        int32_t id = wpm_longest(r, from, &len);

        is_known = id >= 0;
        if (is_known)
            rc = vocab_append_ids(r->ids, &id, 1, r->err);
    }
    if (rc == STATUS_OK && !is_known) {
        r->ids->len = before;
        rc = vocab_append_ids(r->ids, &r->v->unknown, r->v->unknown >= 0, r->err);
    }
    r->len = 1;
    r->n_chars = 0;
    return rc;
}

static enum status wpm_take_char(struct wpm_run *r, uint32_t c)
{
    const bool is_alone = is_punctuation(c) || is_chinese(c);
    enum status rc = STATUS_OK;

    if (is_separator(c))
        return wpm_end_word(r);
    if (is_left_out(c) ||
        (r->v->strips_accents && uc_is_general_category_withtable(c, UC_CATEGORY_MASK_Mn)))
        return STATUS_OK;
    if (is_alone)
        rc = wpm_end_word(r);
    if (r->v->folds_case && c == CAPITAL_I_WITH_DOT) {
        wpm_put_char(r, 'i');
        wpm_put_char(r, DOT_ABOVE);
    } else {
        wpm_put_char(r, r->v->folds_case ? uc_tolower(c) : c);
    }
    return rc == STATUS_OK && is_alone ? wpm_end_word(r) : rc;
}

static enum status wpm_take_text(struct wpm_run *r, const char *text, size_t len)
{
    enum status rc = STATUS_OK;

    for (size_t at = 0; at < len && rc == STATUS_OK;) {
        uint32_t c;

        at += utf8_next(text + at, len - at, &c);
        rc = wpm_take_char(r, c);
    }
    return rc == STATUS_OK ? wpm_end_word(r) : rc;
}

enum status wpm_encode(const struct vocab *v, const char *text, size_t len, struct buf *ids,
                       struct error *err)
{
    struct wpm_run r = {.v = v, .ids = ids, .err = err, .word = " ", .len = 1};
    uint8_t *decomposed;
    size_t n_bytes;
    enum status rc;

    if (!v->strips_accents)
        return wpm_take_text(&r, text, len);
    decomposed = u8_normalize(UNINORM_NFD, (const uint8_t *)text, len, NULL, &n_bytes);
    if (decomposed == NULL)
        return error_no_memory(err, len, "a text");
    rc = wpm_take_text(&r, (const char *)decomposed, n_bytes);
    free(decomposed);
    return rc;
}
