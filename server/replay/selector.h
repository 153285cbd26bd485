/* Chooses items of a table, by their slots: to sample, and to remove. Loop. */
#ifndef SERVER_REPLAY_SELECTOR_H
#define SERVER_REPLAY_SELECTOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "server/replay/sum_tree.h"

enum selector_kind { SELECTOR_UNIFORM, SELECTOR_FIFO, SELECTOR_LIFO, SELECTOR_PRIORITIZED };

#define SELECTOR_NONE UINT32_MAX

/* Zeroed: without items. All slots are kept in their order; by weight, or in no order, only where
 * it is wanted. */
struct selector {
    double alpha, epsilon; /* a weight is (|priority| + epsilon)^alpha */
    struct selector_slot {
        uint32_t older, newer; /* SELECTOR_NONE: none */
        uint32_t place;        /* in dense */
    } * slots;                 /* [n_slots] */
    uint32_t *dense;           /* [n] the slots that have an item, in no order */
    struct sum_tree weights;   /* of slots */
    size_t n_slots, n;
    uint32_t oldest, newest;
    uint8_t has_weights; /* else all weigh the same */
};

void selector_init(struct selector *s, int has_weights, double alpha, double epsilon);
void selector_deinit(struct selector *s);
/* Room for so many slots. EXHAUSTED: all stays. */
enum status selector_reserve(struct selector *s, size_t n_slots, struct error *err) MUST_CHECK;

/* The slot is new, and has no item yet. */
void selector_add(struct selector *s, uint32_t slot, double priority);
void selector_remove(struct selector *s, uint32_t slot);
void selector_update(struct selector *s, uint32_t slot, double priority);

/* Gives the n slots that have an item, in the order that uniform draws go by. */
void selector_arrange(struct selector *s, const uint32_t *slots);

/* Chooses one of at least one; u in [0, 1). *ret_probability: of it among all. at: where in the
 * order, from the oldest or newest on (SELECTOR_NONE: that one), for the kinds that go by it. */
uint32_t selector_choose(const struct selector *s, enum selector_kind kind, double u, uint32_t at,
                         double *ret_probability);
/* The slot behind one, in the direction of the kind; SELECTOR_NONE: none. */
uint32_t selector_next(const struct selector *s, enum selector_kind kind, uint32_t slot);

#endif
