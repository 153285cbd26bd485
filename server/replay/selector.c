#include "server/replay/selector.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/real.h"

void selector_init(struct selector *s, int has_weights, double alpha, double epsilon)
{
    *s = (struct selector){.alpha = alpha,
                           .epsilon = epsilon,
                           .has_weights = has_weights != 0,
                           .oldest = SELECTOR_NONE,
                           .newest = SELECTOR_NONE};
}

void selector_deinit(struct selector *s)
{
    free(s->slots);
    free(s->dense);
    sum_tree_deinit(&s->weights);
    selector_init(s, s->has_weights, s->alpha, s->epsilon);
}

enum status selector_reserve(struct selector *s, size_t n_slots, struct error *err)
{
    struct selector_slot *slots;
    uint32_t *dense;

    if (n_slots <= s->n_slots)
        return STATUS_OK;
    if (s->has_weights && sum_tree_reserve(&s->weights, n_slots, err) != STATUS_OK)
        return err->status;
    slots = try_realloc(s->slots, n_slots, sizeof(slots[0]));
    if (slots == NULL)
        return error_no_memory(err, n_slots * sizeof(slots[0]), "the order of items");
    s->slots = slots;
    dense = try_realloc(s->dense, n_slots, sizeof(dense[0]));
    if (dense == NULL)
        return error_no_memory(err, n_slots * sizeof(dense[0]), "the places of items");
    s->dense = dense;
    s->n_slots = n_slots;
    return STATUS_OK;
}

static double selector_weight(const struct selector *s, double priority)
{
    return real_pow(fabs(priority) + s->epsilon, s->alpha);
}

void selector_add(struct selector *s, uint32_t slot, double priority)
{
    struct selector_slot *at = &s->slots[slot];

    assert(slot < s->n_slots);
    *at = (struct selector_slot){s->newest, SELECTOR_NONE, (uint32_t)s->n};
    if (s->newest != SELECTOR_NONE)
        s->slots[s->newest].newer = slot;
    else
        s->oldest = slot;
    s->newest = slot;
    s->dense[s->n++] = slot;
    if (s->has_weights)
        sum_tree_set(&s->weights, slot, selector_weight(s, priority));
}

void selector_remove(struct selector *s, uint32_t slot)
{
    const struct selector_slot *at = &s->slots[slot];
    uint32_t last = s->dense[--s->n];

    s->dense[at->place] = last;
    s->slots[last].place = at->place;
    if (at->older != SELECTOR_NONE)
        s->slots[at->older].newer = at->newer;
    else
        s->oldest = at->newer;
    if (at->newer != SELECTOR_NONE)
        s->slots[at->newer].older = at->older;
    else
        s->newest = at->older;
    if (s->has_weights)
        sum_tree_set(&s->weights, slot, 0.0);
}

void selector_update(struct selector *s, uint32_t slot, double priority)
{
    if (s->has_weights)
        sum_tree_set(&s->weights, slot, selector_weight(s, priority));
}

void selector_arrange(struct selector *s, const uint32_t *slots)
{
    for (size_t i = 0; i < s->n; i++) {
        s->dense[i] = slots[i];
        s->slots[slots[i]].place = (uint32_t)i;
    }
}

uint32_t selector_choose(const struct selector *s, enum selector_kind kind, double u, uint32_t at,
                         double *ret_probability)
{
    uint32_t slot;

    assert(s->n > 0);
    *ret_probability = 1.0;
    switch (kind) {
    case SELECTOR_FIFO:
        return at != SELECTOR_NONE ? at : s->oldest;
    case SELECTOR_LIFO:
        return at != SELECTOR_NONE ? at : s->newest;
    case SELECTOR_PRIORITIZED:
        slot = (uint32_t)sum_tree_find(&s->weights, u * sum_tree_total(&s->weights));
        *ret_probability = sum_tree_get(&s->weights, slot) / sum_tree_total(&s->weights);
        return slot;
    case SELECTOR_UNIFORM:
        break;
    }
    *ret_probability = 1.0 / (double)s->n;
    return s->dense[(size_t)(u * (double)s->n)];
}

uint32_t selector_next(const struct selector *s, enum selector_kind kind, uint32_t slot)
{
    return kind == SELECTOR_LIFO ? s->slots[slot].older : s->slots[slot].newer;
}
