/* One clone of a plain world: a clone of each participant and what they last said. Dialog,
 * round_robin and multi are a party by itself; batch and dynamic hold a slab of them.
 *
 * Members of the conversation have positions: 0 is the present task's clone, then the agents'. A
 * parley is, position after position: one speaks, all others observe. */
#ifndef WORLDS_PARTY_H
#define WORLDS_PARTY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "worlds/act.h"
#include "worlds/cast.h"
#include "worlds/participant.h"

/* Followed in memory by what each position said last and heard last, and by the clones. */
struct party {
    struct cast *cast;
    uint32_t index;
    uint32_t task;     /* the present one */
    uint32_t n_chosen; /* how often one was chosen */
    bool has_task;     /* one was chosen */
    bool is_over;      /* the quota is out: nobody speaks any more */
};

/* Bytes of a party, a multiple of 16. */
size_t party_size(const struct cast *c);
/* In zeroed memory of that size. O(tasks + agents), takes no other memory than the clones do. After
 * a failure there is nothing to deinit. */
enum status party_init(struct party *p, struct cast *c, uint32_t index,
                       struct error *err) MUST_CHECK;
void party_deinit(struct party *p);
void party_reset(struct party *p); /* the clones alone, nothing shared */

static inline size_t party_n(const struct cast *c)
{
    return c->n_agents + 1;
}
/* [party_n]: what each said last, by position. */
struct act *party_acts(const struct party *p);
/* [party_n]: what each observed last; NULL: nothing yet. */
const struct act **party_heard(const struct party *p);
struct participant_clone *party_clone(const struct party *p, size_t position);
/* Of cast->members. */
size_t party_member(const struct party *p, size_t position);

/* The task of the next exchange: the present one until its episode is done. */
void party_choose(struct party *p);
/* Position 0, after it spoke: whether the exchange goes on. An act beyond the quota is as if it had
 * never been said. */
bool party_admits(struct party *p);
/* The member speaks by itself. */
enum status party_speak(struct party *p, size_t position, struct arena *arena,
                        struct error *err) MUST_CHECK;
/* What was said at the position is observed by the others, and, if it was asked by a batch, by the
 * one who said it. */
enum status party_hear(struct party *p, size_t position, bool was_asked,
                       struct error *err) MUST_CHECK;

bool party_episode_done(const struct party *p);
bool party_epoch_done(const struct party *p);
/* Whether the last exchange was one of an example. */
bool party_has_example(const struct party *p);

void party_row(const struct party *p, struct world_row *out);

#endif
