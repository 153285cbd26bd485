/* Checkpoints of sets in the journal. A checkpoint is the values, the moments and the remembered
 * steps of one version, and replaces the checkpoint before it as a whole. Without a journal nothing
 * is kept. All functions are called on the loop, but for what the set's thread copies. */
#ifndef SERVER_PARAMS_CHECKPOINT_H
#define SERVER_PARAMS_CHECKPOINT_H

#include "server/params/checkpoint_body.h"
#include "server/params/set.h"

/* Keeps the version that the set has now. OK with *ret_is_kept if the journal has it already; else
 * w->done is called once it is written or has failed, and kept_leave ends the wait. PRECONDITION if
 * nothing is kept. */
enum status params_settle(struct params_set *set, struct kept_wait *w, bool *ret_is_kept,
                          struct error *err) MUST_CHECK;

/* Has the journal forget the set. What the journal has appended by now is settled when the
 * forgetting is durable. Does nothing for a set that is not kept. UNAVAILABLE if the journal does
 * not forget. */
enum status params_unkeep(struct params_set *set, struct error *err) MUST_CHECK;

/* --- for this folder --- */

/* Returns whether the set can be kept: there is a journal, and the set is described. */
bool checkpoint_is_possible(const struct params_set *set);
/* Begins a checkpoint of the version that the set has now. The set's checkpoint_wait is done when
 * the checkpoint is written or has failed. */
void checkpoint_begin(struct params_set *set);
/* Tells that a round was published: begins a checkpoint if one is due. */
void checkpoint_after_round(struct params_set *set);
/* Tells each of the waits, of struct kept_wait, how the checkpoint has ended. A wait may be freed
 * when it is done. */
void checkpoint_tell(struct list *waits, const struct error *err);
/* Gives up what is being written, because the set closes. */
void checkpoint_abandon(struct params_set *set, const struct error *why);

/* The part of a checkpoint that comes next: of the values, which are array 0, and of the moments,
 * which are the arrays behind them. */
struct checkpoint_place {
    size_t size_bytes;        /* of each array */
    unsigned which, n_arrays; /* the array that the part is of; how many arrays there are */
    size_t offset;            /* the part's place in that array, in bytes */
};

/* What was read of a set that is being made again. */
struct params_restored {
    struct checkpoint_body body;
    float *values; /* a block of the set's memory; NULL once it was given away */
    struct checkpoint_place place;
};

#define CHECKPOINT_MAX_BYTES ((size_t)256 << 20)

/* Returns the set of a kept thing. */
struct params_set *checkpoint_set(const struct kept_thing *k);
/* Returns the place of a set's first part. */
struct checkpoint_place checkpoint_place_begin(const struct params_set *set);
/* Returns where the next part lies in arrays, with its length in *ret_len; NULL behind the last
 * part. */
void *checkpoint_place_next(struct checkpoint_place *p, float *const arrays[3], size_t *ret_len);
/* Takes n_moments blocks of memory for moments. EXHAUSTED. */
enum status checkpoint_take_moments(struct params_moments *out, struct params_memory *memory,
                                    size_t n_moments, struct error *err) MUST_CHECK;
/* Frees set->restored; does nothing if the set is not being made again. */
void params_restored_free(struct params_set *set);

/* How the keeper writes a set: see struct keeper_type. */
void checkpoint_name(const struct kept_thing *k, const char **ret_principal, const char **ret_name);
uint64_t checkpoint_version_of(const struct kept_thing *k);
enum status checkpoint_write_begin(struct kept_thing *k, struct error *err) MUST_CHECK;
const void *checkpoint_write_bytes(struct kept_thing *k, size_t *ret_len);
void checkpoint_write_tail(struct kept_thing *k, struct body_writer *w);
void checkpoint_write_ended(struct kept_thing *k);

#endif
