/* A limit that all principals share: how much there may be of one kind of thing (sessions, bytes of
 * tables), and how much of it each principal holds. Without keys (principal 0) all may take it
 * whole. With keys no principal may have more than half, so that none locks the others out; the
 * administrators' keys are no exception. What exists already stays when keys are added. A limit
 * belongs to one thread. */
#ifndef BASE_SHARED_LIMIT_H
#define BASE_SHARED_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* What a limit bounds, in the words of its refusals. The owner of a limit has one constant of this
 * type, named kind_of_..., and docs/operations.md has a row for each: tools/check_limits.py
 * compares them. */
struct limit_kind {
    const char *noun;   /* of what is counted, in the plural: "sessions of Act" */
    const char *option; /* that sets the limit; NULL: the limit is built in */
    const char *field;  /* of a refused request, that is at fault; NULL: none */
};

/* Zeroed but for kind and max, nothing is held. max may change at any time. */
struct shared_limit {
    const struct limit_kind *kind; /* borrowed for ever: a constant */
    uint64_t max;                  /* of all together */
    uint64_t held;                 /* by all */
    uint64_t *by_principal;        /* [n_principals], owned: what each holds */
    size_t n_principals;
};

void shared_limit_init(struct shared_limit *l, const struct limit_kind *kind, uint64_t max);
void shared_limit_deinit(struct shared_limit *l);

/* The most that the principal may hold: max without keys, else half of it, and at least 1. */
uint64_t shared_limit_part(const struct shared_limit *l, uint32_t principal);
uint64_t shared_limit_held_by(const struct shared_limit *l, uint32_t principal);
/* Whether the principal holds all that it may, whatever others hold. */
bool shared_limit_is_full_for(const struct shared_limit *l, uint32_t principal);
/* How much more the principal could take now. */
uint64_t shared_limit_room(const struct shared_limit *l, uint32_t principal);

/* Whether the principal may take n more. EXHAUSTED (LIMIT_REACHED) names the limit, its option, and
 * whether all of it or the principal's half is used up. */
enum status shared_limit_check(const struct shared_limit *l, uint32_t principal, uint64_t n,
                               struct error *err) MUST_CHECK;
/* The same, and takes them. */
enum status shared_limit_take(struct shared_limit *l, uint32_t principal, uint64_t n,
                              struct error *err) MUST_CHECK;
/* Takes them without asking. What was there before (read from a disk) is checked for principal 0,
 * and then held by its own. */
void shared_limit_hold(struct shared_limit *l, uint32_t principal, uint64_t n);
void shared_limit_give(struct shared_limit *l, uint32_t principal, uint64_t n);

#endif
