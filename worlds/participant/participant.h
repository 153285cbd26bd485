/* A participant of a world: a teacher, a simple agent, a language model. The *original* holds what
 * is shared (data, weights, a dictionary, metrics); a *clone* is a pointer to it and a small
 * private state, one for each conversation, in memory that the world owns (a slab of them). Kinds
 * are const tables.
 *
 * In a world a participant observes the acts of the others, then answers. One that has `act` may be
 * called directly. One that has `batch_act`, or `begin` and `finish`, is asked through a batcher
 * (batching/batcher.h): a world never calls a model itself. Batch worlds prefer batch_act, plain
 * ones act.
 *
 * A clone's act, and all that it borrows, lives until the same clone is asked again. An observed
 * act may be borrowed as long: a teacher's act outlives the reply to it.
 *
 * A clone is used by one thread. An original is used by all threads of a world, each with a share
 * of it; by default that is the original itself, whose const functions any thread may call. */
#ifndef WORLDS_PARTICIPANT_PARTICIPANT_H
#define WORLDS_PARTICIPANT_PARTICIPANT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "batching/batcher.h"

struct act;
struct agent_turn;
struct report;
struct participant;
struct participant_clone;

/* A clone's position in its world. */
struct participant_slot {
    uint32_t index;  /* of the clone, from 0 (ParlAI's batchindex) */
    uint32_t thread; /* from 0: the metrics' shard */
};

/* How much there is to compute in an observation, in words or tokens. Length bucketing sorts by
 * text, then label; a row's cost is their sum. Both 0: padding, nothing to compute. */
struct lengths {
    uint32_t text, label;
};

/* One row of batch_act. Everything but *out, failed and err is the caller's. */
struct participant_row {
    struct participant_clone *clone;
    const struct act *observation; /* the result of observe; NULL: it has observed nothing yet */
    struct act *out;               /* initialised, with an arena, to be filled or shared into */
    bool failed;                   /* this row alone, with err */
    struct error err;
};

struct participant_type {
    const char *name;
    size_t clone_size; /* its first member is struct participant_clone; at most 256 for our own */

    /* The original. close: no clone and no share is left. */
    void (*close)(struct participant *p);
    /* A share for one thread of several, closed like an original. NULL: one more reference. */
    enum status (*share)(struct participant **out, struct participant *p, uint32_t thread,
                         struct error *err);
    /* Resets all that is shared: index, metrics; clones are reset one by one. NULL: nothing to
     * do. No clone is in use. */
    void (*reset_shared)(struct participant *p);
    /* Its metrics. NULL: none. Any thread. */
    enum status (*report)(struct report *out, struct participant *p, struct error *err);
    /* Of an epoch; NULL or SIZE_MAX: not known. */
    size_t (*n_examples)(const struct participant *p);
    size_t (*n_episodes)(const struct participant *p);

    /* Clones: O(1). c->original is set, the rest zeroed. deinit, also after a failed init. May be
     * NULL. */
    enum status (*clone_init)(struct participant_clone *c, const struct participant_slot *place,
                              struct error *err);
    void (*clone_deinit)(struct participant_clone *c);
    void (*reset)(
        struct participant_clone *c); /* as fresh; touches nothing shared. NULL: nothing */

    /* Turns an act into an observation, kept until the clone is asked: the act itself, or one of
     * the clone's own. NULL: the act itself. Never fails for padding. */
    enum status (*observe)(struct participant_clone *c, const struct act *act,
                           const struct act **ret_observation, struct error *err);
    /* Answers the last observation, and self-observes the answer before it returns. *out is empty,
     * with an arena that lives as long as the act. */
    enum status (*act)(struct participant_clone *c, struct act *out, struct error *err);
    /* Answers for n clones of p at once; each answer then goes to self_observe. */
    void (*batch_act)(struct participant *p, struct participant_row *rows, size_t n);
    /* Takes the clone's own reply, after batch_act or finish. NULL: nothing to do. */
    enum status (*self_observe)(struct participant_clone *c, const struct act *reply,
                                struct error *err);
    /* False: the original has a batch_act that must not be used. NULL: true. */
    bool (*use_batch_act)(const struct participant *p);

    /* For participants whose answer takes several steps. batching: the adapter of the share p, and
     * the config of its batcher, filled with the world's own before: rows, policy. begin: returns
     * an observed turn to ask, or NULL when there is nothing to compute (padding). The clone owns
     * the turn: finish keeps or drops it; drop drops it after a failed request. compute: a step of
     * all rows. All five or none. */
    void (*batching)(struct participant *p, struct batch_agent *out, struct batcher_config *config);
    enum status (*begin)(struct participant_clone *c, const struct act *observation,
                         struct agent_turn **out, struct error *err);
    void (*compute)(struct participant *p, struct row *const *rows, size_t n);
    enum status (*finish)(struct participant_clone *c, struct act *out, struct error *err);
    void (*drop)(struct participant_clone *c);

    /* For length bucketing: lengths of the input as the clone truncates it. NULL: words (separated
     * by white space) of text and of the first label, cut to the world's bounds. */
    void (*lengths)(const struct participant_clone *c, const struct act *observation,
                    struct lengths *out);
    /* For data_build: what its vectors depend on, as listener_config_digest writes it. NULL: it
     * reads none that were made before. */
    const char *(*vectors_of)(const struct participant *p);
    bool is_ragged; /* rows are packed: the budget bounds their sum, not rows times the longest */

    /* Of the last act. NULL: episode_done is the act's field, epoch_done never true. epoch_done:
     * the clone gets no more before a reset. */
    bool (*episode_done)(const struct participant_clone *c);
    bool (*epoch_done)(const struct participant_clone *c);
};

struct participant {
    const struct participant_type *type;
    atomic_size_t n_refs; /* starts at 1; the last participant_unref closes the participant */
};

struct participant_clone {
    struct participant *original; /* the share of its thread */
};

void participant_init(struct participant *p, const struct participant_type *type);
struct participant *participant_ref(struct participant *p);
void participant_unref(struct participant *p); /* NULL is fine */
/* type->share, or a reference. */
enum status participant_share(struct participant **out, struct participant *p, uint32_t thread,
                              struct error *err) MUST_CHECK;

/* Whether a batch world uses its batch_act. */
bool participant_has_batch_act(const struct participant *p);

/* Bytes of a clone, a multiple of 16: the distance of clones in a slab. */
size_t participant_clone_size(const struct participant *p);
enum status participant_clone_init(struct participant_clone *c, struct participant *p,
                                   const struct participant_slot *place,
                                   struct error *err) MUST_CHECK;
void participant_clone_deinit(struct participant_clone *c);
void participant_clone_reset(struct participant_clone *c);
enum status participant_observe(struct participant_clone *c, const struct act *act,
                                const struct act **ret_observation, struct error *err) MUST_CHECK;
enum status participant_self_observe(struct participant_clone *c, const struct act *reply,
                                     struct error *err) MUST_CHECK;

#endif
