#include "agents/lm/tokenizer/spm.h"

#include <stdlib.h>

#include "agents/lm/tokenizer/rank_heap.h"
#include "agents/lm/tokenizer/table.h"
#include "base/alloc.h"
#include "base/utf8.h"

static const uint32_t NONE = UINT32_MAX; /* no rank; no symbol */

/* A run of the text: a character, or what was merged. They are a linked list in text order. A
 * symbol that was merged into the one before it has no rank. */
struct spm_symbol {
    uint32_t from, len;
    uint32_t prev, next;
    uint32_t rank;   /* of the pair that begins here */
    int32_t id;      /* -1: not a token */
    int32_t pair_id; /* of the pair that begins here, if it has a rank */
};

struct spm_run {
    const struct vocab *v;
    struct spm_work *w;
    const char *text;
    size_t n_heap;
};

void spm_work_deinit(struct spm_work *w)
{
    free(w->symbols);
    free(w->heap);
    *w = (struct spm_work){0};
}

static enum status spm_make_room(struct spm_work *w, size_t n, struct error *err)
{
    size_t cap = w->cap == 0 ? 128 : w->cap;

    if (n <= w->cap)
        return STATUS_OK;
    while (cap < n)
        cap *= 2;
    spm_work_deinit(w);
    w->symbols = try_alloc(cap, sizeof(*w->symbols));
    w->heap = try_alloc(2 * cap, sizeof(*w->heap));
    if (w->symbols == NULL || w->heap == NULL) {
        spm_work_deinit(w);
        return error_no_memory(err, cap * (sizeof(*w->symbols) + 2 * sizeof(*w->heap)), "a text");
    }
    w->cap = cap;
    return STATUS_OK;
}

/* Looks the pair at i up. Whether it is a token depends on its text alone: its parts need not be
 * tokens. */
static void spm_look(struct spm_run *r, uint32_t i)
{
    struct spm_symbol *s = &r->w->symbols[i];
    size_t len;

    s->rank = NONE;
    if (s->next == NONE)
        return;
    len = (size_t)s->len + r->w->symbols[s->next].len;
    if (len > r->v->longest)
        return;
    s->pair_id = vocab_find(r->v, r->text + s->from, len);
    if (s->pair_id < 0)
        return;
    s->rank = r->v->ranks[s->pair_id];
    rank_heap_push(r->w->heap, &r->n_heap, rank_entry(s->rank, i));
}

/* Cuts text into characters. */
static void spm_begin(struct spm_run *r, size_t len)
{
    uint32_t n = 0;

    for (size_t at = 0; at < len; n++) {
        uint32_t c;
        size_t n_bytes = utf8_next(r->text + at, len - at, &c);

        r->w->symbols[n] = (struct spm_symbol){.from = (uint32_t)at,
                                               .len = (uint32_t)n_bytes,
                                               .prev = n - 1,
                                               .next = n + 1,
                                               .id = vocab_find(r->v, r->text + at, n_bytes)};
        at += n_bytes;
    }
    r->w->symbols[n - 1].next = NONE;
    for (uint32_t i = 0; i < n; i++)
        spm_look(r, i);
}

static void spm_merge(struct spm_run *r, uint32_t i)
{
    struct spm_symbol *left = &r->w->symbols[i], *right = &r->w->symbols[left->next];

    left->id = left->pair_id;
    left->len += right->len;
    left->next = right->next;
    right->rank = NONE;
    if (left->next != NONE)
        r->w->symbols[left->next].prev = i;
    spm_look(r, i);
    if (left->prev != NONE)
        spm_look(r, left->prev);
}

/* The tokens of the bytes of a character that is no token itself. */
static enum status spm_put_bytes(const struct spm_run *r, const struct spm_symbol *s,
                                 struct buf *ids, struct error *err)
{
    const char *bytes = r->text[s->from] == ' ' ? "\xE2\x96\x81" : r->text + s->from;
    size_t n = r->text[s->from] == ' ' ? 3 : s->len;
    int32_t found[4];

    for (size_t i = 0; i < n; i++) {
        found[i] = r->v->byte_ids[(unsigned char)bytes[i]];
        if (found[i] < 0)
            return vocab_append_ids(ids, &r->v->unknown, r->v->unknown >= 0, err);
    }
    return vocab_append_ids(ids, found, n, err);
}

static enum status spm_put(const struct spm_run *r, struct buf *ids, struct error *err)
{
    for (uint32_t i = 0; i != NONE; i = r->w->symbols[i].next) {
        const struct spm_symbol *s = &r->w->symbols[i];
        enum status rc =
            s->id >= 0 ? vocab_append_ids(ids, &s->id, 1, err) : spm_put_bytes(r, s, ids, err);

        if (rc != STATUS_OK)
            return rc;
    }
    return STATUS_OK;
}

enum status spm_encode(struct spm_work *w, const struct vocab *v, const char *text, size_t len,
                       struct buf *ids, struct error *err)
{
    struct spm_run r = {.v = v, .w = w, .text = text};

    if (len == 0)
        return STATUS_OK;
    if (spm_make_room(w, len, err) != STATUS_OK)
        return err->status;
    spm_begin(&r, len);
    while (r.n_heap > 0) { /* each merge takes one entry and makes two at most: 2n are enough */
        uint64_t entry = rank_heap_pop(w->heap, &r.n_heap);
        uint32_t i = (uint32_t)entry;

        if (w->symbols[i].rank == (uint32_t)(entry >> 32))
            spm_merge(&r, i);
    }
    return spm_put(&r, ids, err);
}
