#include "worlds/score/grams.h"

#include <string.h>

void grams_deinit(struct grams *g)
{
    words_deinit(&g->set);
    arena_deinit(&g->memory);
    *g = (struct grams){0};
}

void grams_clear(struct grams *g)
{
    words_clear(&g->set);
    arena_deinit(&g->memory);
    g->n_total = 0;
}

static enum status grams_put(struct grams *g, struct text gram)
{
    struct word_slot *slot;

    if (words_slot(&g->set, gram, &slot) != STATUS_OK)
        return STATUS_EXHAUSTED;
    if (slot->word.text == gram.text) { /* a new slot borrows memory that will be freed: copy it */
        char *copy;

        g->memory.limit_bytes = SIZE_MAX;
        copy = arena_strndup(&g->memory, gram.text, gram.len);
        if (copy == NULL) {
            slot->word = (struct text){"", 0}; /* counted, but it matches nothing */
            return STATUS_EXHAUSTED;
        }
        slot->word.text = copy;
    }
    return STATUS_OK;
}

enum status grams_add(struct grams *g, struct text gram)
{
    if (grams_put(g, gram) != STATUS_OK)
        return STATUS_EXHAUSTED;
    g->n_total++;
    return STATUS_OK;
}

enum status grams_merge(struct grams *g, const struct grams *from)
{
    for (size_t i = 0; i < from->set.n_slots; i++) {
        const struct word_slot *s = &from->set.slots[i];

        if (s->epoch == from->set.epoch && grams_put(g, s->word) != STATUS_OK)
            return STATUS_EXHAUSTED;
    }
    g->n_total += from->n_total;
    return STATUS_OK;
}
