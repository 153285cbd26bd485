#include "agents/lm/tokenizer/merges.h"

#include <assert.h>
#include <stdlib.h>

#include "agents/lm/tokenizer/rank_heap.h"
#include "base/alloc.h"

static const uint32_t NONE = UINT32_MAX; /* no rank; no symbol */

struct merge_slot {
    int32_t left, right;
    uint32_t rank_plus_1; /* 0: empty */
};

/* The symbols of the piece, as a linked list in text order. A symbol that was merged into the one
 * before it has no rank. */
struct merge_symbol {
    int32_t id;
    uint32_t prev, next;
    uint32_t rank; /* rank of the pair that begins here */
};

enum status merges_open(struct merges *out, size_t n_max, struct error *err)
{
    struct merges m = {0};
    size_t n_slots = 16;

    if (n_max >= NONE / 4)
        return error_set(err, STATUS_UNIMPLEMENTED, "there are %zu merges, which is too many",
                         n_max);
    while (n_slots < 2 * n_max)
        n_slots *= 2;
    m.mask = n_slots - 1;
    m.slots = try_alloc(n_slots, sizeof(*m.slots));
    m.results = try_alloc(n_max + 1, sizeof(*m.results));
    if (m.slots == NULL || m.results == NULL) {
        merges_close(&m);
        return error_no_memory(err, n_slots * sizeof(*m.slots), "merges");
    }
    *out = m;
    return STATUS_OK;
}

void merges_close(struct merges *m)
{
    free(m->slots);
    free(m->results);
    *m = (struct merges){0};
}

/* The slot of the pair, or the empty slot for it. */
static struct merge_slot *merges_find(const struct merges *m, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = (size_t)(key * 0x9E3779B97F4A7C15u >> 32) & m->mask;

    while (m->slots[i].rank_plus_1 != 0 && (m->slots[i].left != left || m->slots[i].right != right))
        i = (i + 1) & m->mask;
    return &m->slots[i];
}

void merges_add(struct merges *m, int32_t left, int32_t right, int32_t result)
{
    struct merge_slot *slot = merges_find(m, left, right);

    assert(2 * m->n <= m->mask + 1);
    m->results[m->n++] = result;
    if (slot->rank_plus_1 == 0)
        *slot = (struct merge_slot){left, right, (uint32_t)m->n};
}

static uint32_t rank_of(const struct merges *m, int32_t left, int32_t right)
{
    return merges_find(m, left, right)->rank_plus_1 - 1; /* an empty slot's 0 becomes NONE */
}

void merge_work_deinit(struct merge_work *w)
{
    free(w->symbols);
    free(w->heap);
    *w = (struct merge_work){0};
}

static enum status merges_make_room(struct merge_work *w, size_t n, struct error *err)
{
    size_t cap = w->cap == 0 ? 128 : w->cap;

    if (n <= w->cap)
        return STATUS_OK;
    while (cap < n)
        cap *= 2;
    merge_work_deinit(w);
    w->symbols = try_alloc(cap, sizeof(*w->symbols));
    w->heap = try_alloc(2 * cap, sizeof(*w->heap));
    if (w->symbols == NULL || w->heap == NULL) {
        merge_work_deinit(w);
        return error_no_memory(err, cap * (sizeof(*w->symbols) + 2 * sizeof(*w->heap)),
                               "a long word");
    }
    w->cap = cap;
    return STATUS_OK;
}

/* Looks up the rank of the new pair at i. */
static void merges_look(const struct merges *m, struct merge_work *w, uint32_t i, size_t *n_heap)
{
    struct merge_symbol *s = &w->symbols[i];

    s->rank = s->next == NONE ? NONE : rank_of(m, s->id, w->symbols[s->next].id);
    if (s->rank != NONE)
        rank_heap_push(w->heap, n_heap, rank_entry(s->rank, i));
}

static size_t merges_begin(const struct merges *m, struct merge_work *w, const int32_t *ids,
                           size_t n)
{
    size_t n_heap = 0;

    for (size_t i = 0; i < n; i++) {
        struct merge_symbol *s = &w->symbols[i];

        *s = (struct merge_symbol){ids[i], (uint32_t)i - 1, (uint32_t)i + 1, NONE};
        if (i + 1 == n)
            s->next = NONE;
        else
            s->rank = rank_of(m, ids[i], ids[i + 1]);
        if (s->rank != NONE)
            w->heap[n_heap++] = rank_entry(s->rank, (uint32_t)i);
    }
    rank_heap_make(w->heap, n_heap);
    return n_heap;
}

enum status merges_apply(const struct merges *m, struct merge_work *w, int32_t *ids, size_t n,
                         size_t *ret_n, struct error *err)
{
    size_t n_heap, n_left = 0;

    assert(n <= INT32_MAX);
    if (n < 2) {
        *ret_n = n;
        return STATUS_OK;
    }
    if (merges_make_room(w, n, err) != STATUS_OK)
        return err->status;
    n_heap = merges_begin(m, w, ids, n);
    while (n_heap > 0) { /* each merge takes one entry and makes two at most: 2n are enough */
        uint64_t entry = rank_heap_pop(w->heap, &n_heap);
        uint32_t i = (uint32_t)entry, rank = (uint32_t)(entry >> 32);
        struct merge_symbol *left = &w->symbols[i], *right;

        if (left->rank != rank)
            continue;
        right = &w->symbols[left->next];
        left->id = m->results[rank];
        left->next = right->next;
        right->rank = NONE;
        if (left->next != NONE)
            w->symbols[left->next].prev = i;
        merges_look(m, w, i, &n_heap);
        if (left->prev != NONE)
            merges_look(m, w, left->prev, &n_heap);
    }
    for (uint32_t i = 0; i != NONE; i = w->symbols[i].next)
        ids[n_left++] = w->symbols[i].id;
    *ret_n = n_left;
    return STATUS_OK;
}
