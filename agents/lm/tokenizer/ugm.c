/* Text is rewritten by the table of characters, cut into words that begin with a space, and each
 * word is cut by Viterbi's algorithm: the best row of tokens up to each character is known from
 * those before it. */
#include "agents/lm/tokenizer/ugm.h"

#include <stdlib.h>
#include <string.h>
#include <unictype.h>

#include "agents/lm/tokenizer/charsmap.h"
#include "agents/lm/tokenizer/spelling.h"
#include "agents/lm/tokenizer/table.h"
#include "base/alloc.h"
#include "base/utf8.h"

#define UNKNOWN_PENALTY 10.0 /* below the lowest score */

/* The best way to a place in a word. */
struct ugm_best {
    double score;
    uint32_t from; /* where its last token begins */
    int32_t id;    /* that token; -1: the place was not reached yet */
};

struct ugm_run {
    const struct vocab *v;
    struct buf *ids;
    struct error *err;
    struct ugm_best *best; /* [cap] of the word's places */
    size_t cap;
    bool was_unknown; /* the last id is the unknown token */
};

static void ugm_reach(struct ugm_best *to, double score, size_t from, int32_t id)
{
    if (to->id < 0 || score > to->score)
        *to = (struct ugm_best){score, (uint32_t)from, id};
}

/* Takes all tokens that begin at `from`, where a character of n_bytes stands. */
static void ugm_extend(const struct ugm_run *r, const char *word, size_t len, size_t from,
                       size_t n_bytes)
{
    const struct vocab *v = r->v;
    const double score = r->best[from].score;
    const size_t end = len - from < v->longest ? len : from + v->longest;
    bool is_known = false;

    for (size_t at = from + n_bytes; at <= end;) {
        int32_t id = vocab_find(v, word + from, at - from);
        uint32_t c;

        if (id >= 0) {
            ugm_reach(&r->best[at], score + (double)v->scores[id], from, id);
            is_known = is_known || at == from + n_bytes;
        }
        if (at == end)
            break;
        at += utf8_next(word + at, len - at, &c);
    }
    if (!is_known)
        ugm_reach(&r->best[from + n_bytes], score + v->least_score - UNKNOWN_PENALTY, from,
                  v->unknown);
}

/* Appends the tokens of the best way, which is followed from its end. */
static enum status ugm_put(struct ugm_run *r, size_t len)
{
    size_t n = 0;

    for (size_t at = len; at > 0; at = r->best[at].from)
        n++;
    for (size_t at = len, i = n; at > 0; at = r->best[at].from)
        r->best[--i + len + 1].id = r->best[at].id; /* behind the places, in order */
    for (size_t i = 0; i < n; i++) {
        const int32_t id = r->best[i + len + 1].id;
        const bool is_again = id == r->v->unknown && r->was_unknown;

        r->was_unknown = id == r->v->unknown;
        if (!is_again && vocab_append_ids(r->ids, &id, 1, r->err) != STATUS_OK)
            return r->err->status;
    }
    return STATUS_OK;
}

static enum status ugm_word(struct ugm_run *r, const char *word, size_t len)
{
    const size_t n = 2 * (len + 1);

    if (n > r->cap) {
        struct ugm_best *best = try_realloc(r->best, n, sizeof(*best));

        if (best == NULL)
            return error_no_memory(r->err, n * sizeof(*best), "a text");
        r->best = best;
        r->cap = n;
    }
    for (size_t i = 1; i <= len; i++)
        r->best[i].id = -1;
    r->best[0].score = 0;
    for (size_t at = 0; at < len;) {
        uint32_t c;
        size_t n_bytes = utf8_next(word + at, len - at, &c);

        ugm_extend(r, word, len, at, n_bytes);
        at += n_bytes;
    }
    return ugm_put(r, len);
}

/* Leaves one space of each run. Returns the new length. */
static size_t squeeze(char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        if (text[i] != ' ' || n == 0 || text[n - 1] != ' ')
            text[n++] = text[i];
    return n;
}

/* Makes a space of each character that is white space; returns the new length. */
static size_t space_out(char *text, size_t len)
{
    size_t n = 0;

    for (size_t at = 0; at < len;) {
        uint32_t c;
        size_t n_bytes = utf8_next(text + at, len - at, &c);

        if (uc_is_property_white_space(c)) {
            text[n++] = ' ';
        } else {
            memmove(text + n, text + at, n_bytes);
            n += n_bytes;
        }
        at += n_bytes;
    }
    return n;
}

/* A word ends before the next space; some have only their space. */
static enum status ugm_words(struct ugm_run *r, const char *text, size_t len)
{
    enum status rc = STATUS_OK;

    for (size_t at = 0; rc == STATUS_OK && at < len;) {
        const char *space = memchr(text + at + 1, ' ', len - at - 1);
        size_t end = space != NULL ? (size_t)(space - text) : len;

        rc = ugm_word(r, text + at, end - at);
        at = end;
    }
    return rc;
}

enum status ugm_encode(const struct vocab *v, const char *text, size_t len, bool has_prefix,
                       struct buf *ids, struct error *err)
{
    struct ugm_run r = {.v = v, .ids = ids, .err = err};
    struct buf plain;
    enum status rc = STATUS_OK;
    size_t n;

    buf_init(&plain, SIZE_MAX);
    if (buf_append(&plain, " ", 1) != STATUS_OK)
        rc = error_no_memory(err, 1, "a text");
    else
        rc = charsmap_rewrite(&v->charsmap, text, len, v->maps_graphemes, &plain, err);
    if (rc == STATUS_OK) {
        char *begin = plain.data + 1;

        n = spelling_unescape(begin, plain.len - 1, begin);
        if (v->cuts_at_white_space)
            n = space_out(begin, n);
        if (v->removes_spaces)
            n = squeeze(begin, n);
        for (; v->trims_right && n > 0 && begin[n - 1] == ' '; n--)
            ;
        for (; v->trims_left && n > 0 && begin[0] == ' '; n--)
            begin++;
        if (n > 0 && has_prefix && begin[0] != ' ') {
            begin--;
            n++;
        }
        rc = ugm_words(&r, begin, n);
    }
    free(r.best);
    buf_deinit(&plain);
    return rc;
}
