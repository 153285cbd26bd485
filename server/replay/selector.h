/* A selector chooses items of a table, which it knows by their slots, for sampling and for
 * removing. It holds the items in the order in which they were inserted, in an array without gaps
 * for uniform draws, and, if it has weights, by weight. All functions are called on the loop. */
#ifndef SERVER_REPLAY_SELECTOR_H
#define SERVER_REPLAY_SELECTOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "server/replay/sum_tree.h"

enum selector_kind { SELECTOR_UNIFORM, SELECTOR_FIFO, SELECTOR_LIFO, SELECTOR_PRIORITIZED };

#define SELECTOR_NONE UINT32_MAX

struct selector {
    double alpha, epsilon; /* the weight of an item is (|priority| + epsilon)^alpha */
    struct selector_slot {
        uint32_t older, newer; /* the slots before and behind this one; SELECTOR_NONE: no slot */
        uint32_t place;        /* the index of this slot in dense */
    } * slots;                 /* [n_slots] */
    uint32_t *dense;           /* [n] the slots that have an item; uniform draws go by this array */
    struct sum_tree weights;   /* the weights by slot, if has_weights */
    size_t n_slots, n;         /* slots; items */
    uint32_t oldest, newest;   /* slots; SELECTOR_NONE: there is no item */
    uint8_t has_weights;       /* SELECTOR_PRIORITIZED is wanted */
};

void selector_init(struct selector *s, int has_weights, double alpha, double epsilon);
void selector_deinit(struct selector *s);
/* Makes room for n_slots slots. EXHAUSTED leaves the items as they are. */
enum status selector_reserve(struct selector *s, size_t n_slots, struct error *err) MUST_CHECK;

/* Adds the item of a slot, as the newest. The slot has no item yet. */
void selector_add(struct selector *s, uint32_t slot, double priority);
void selector_remove(struct selector *s, uint32_t slot);
/* Sets the weight of a slot's item by its new priority. */
void selector_update(struct selector *s, uint32_t slot, double priority);

/* Puts the n slots that have an item into the order of slots, by which uniform draws go. */
void selector_arrange(struct selector *s, const uint32_t *slots);

/* Returns the slot of an item that is chosen by kind; there must be an item. u, in [0, 1), decides
 * for SELECTOR_UNIFORM and SELECTOR_PRIORITIZED. SELECTOR_FIFO and SELECTOR_LIFO return at, or the
 * oldest or newest slot if at is SELECTOR_NONE. *ret_probability is that of the choice. */
uint32_t selector_choose(const struct selector *s, enum selector_kind kind, double u, uint32_t at,
                         double *ret_probability);
/* Returns the slot that comes behind slot: the next older for SELECTOR_LIFO, else the next newer.
 * SELECTOR_NONE if slot is the last. */
uint32_t selector_next(const struct selector *s, enum selector_kind kind, uint32_t slot);

#endif
