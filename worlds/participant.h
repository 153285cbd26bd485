/* A participant of a world: a teacher, a simple agent, a language model. The *original* holds what
 * is shared (data, weights, a dictionary, metrics); a *clone* is a pointer to it and a small
 * private state, one for each conversation, in memory that the world owns (a slab of them). Kinds
 * are const tables.
 *
 * In a world: observe what another said, then answer. Who has `act` may be asked directly. Who has
 * `batch_act`, or `begin` and `finish`, is asked through a batcher (batching/batcher.h): a world
 * never calls a model itself. Batch worlds prefer batch_act, plain ones act.
 *
 * An act that is given lives until the same clone is asked again; so does all that it borrows. What
 * is heard may be borrowed as long: a teacher's act outlives the reply to it.
 *
 * A clone is one thread's. An original is used by many threads where a world has several, each with
 * a share of it; by default that is the original itself, whose const functions any thread may
 * call. */
#ifndef WORLDS_PARTICIPANT_H
#define WORLDS_PARTICIPANT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "batching/batcher.h"

struct act;
struct report;
struct participant;
struct participant_clone;

/* Where a clone stands. */
struct place {
    uint32_t index;  /* of the clone in its world, from 0 (ParlAI's batchindex) */
    uint32_t thread; /* from 0: the shard of what is counted */
};

/* How much there is to compute in an observation, in words or tokens. Batches by length are sorted
 * by text, then label; their sum is what a row costs. Both 0: padding, nothing to compute. */
struct lengths {
    uint32_t text, label;
};

/* One row of batch_act. Everything but *out, failed and err is the caller's. */
struct participant_row {
    struct participant_clone *clone;
    const struct act *observation; /* what observe gave; NULL for who heard nothing yet */
    struct act *out;               /* initialised, with an arena, to be filled or shared into */
    bool failed;                   /* this row alone, with err */
    struct error err;
};

struct participant_type {
    const char *name;
    size_t clone_size; /* its first member is struct participant_clone; at most 256 for our own */

    /* The original. close: no clone and no share lives. */
    void (*close)(struct participant *p);
    /* A share for one thread of several, closed like an original. NULL: one more reference. */
    enum status (*share)(struct participant **out, struct participant *p, uint32_t thread,
                         struct error *err);
    /* Everything that is shared begins anew: index, metrics. Clones are reset each. NULL: nothing
     * to do. No clone is in use. */
    void (*reset_shared)(struct participant *p);
    /* What it has counted. NULL: nothing. Any thread. */
    enum status (*report)(struct report *out, struct participant *p, struct error *err);
    /* Of an epoch; NULL or SIZE_MAX: not known. */
    size_t (*n_examples)(const struct participant *p);
    size_t (*n_episodes)(const struct participant *p);

    /* Clones: O(1). c->original is set, the rest zeroed. deinit, also after a failed init. May be
     * NULL. */
    enum status (*clone_init)(struct participant_clone *c, const struct place *place,
                              struct error *err);
    void (*clone_deinit)(struct participant_clone *c);
    void (*reset)(
        struct participant_clone *c); /* as fresh; touches nothing shared. NULL: nothing */

    /* What was heard becomes an observation, kept until the clone is asked: act itself, or one of
     * the clone's own. NULL: act itself. Never fails for padding. */
    enum status (*observe)(struct participant_clone *c, const struct act *act,
                           const struct act **ret_observation, struct error *err);
    /* Answers to the last observation, and has observed its own answer when it returns. *out is
     * empty, with an arena that lives as long as the act. */
    enum status (*act)(struct participant_clone *c, struct act *out, struct error *err);
    /* The answers of n clones of p in one go; each is then given to self_observe. */
    void (*batch_act)(struct participant *p, struct participant_row *rows, size_t n);
    /* What the clone itself just said, after batch_act or finish. NULL: nothing. */
    enum status (*self_observe)(struct participant_clone *c, const struct act *reply,
                                struct error *err);
    /* The original has a batch_act and does not want it: false. NULL: wants it. */
    bool (*use_batch_act)(const struct participant *p);

    /* For those whose answer takes several steps. batching: the adapter of the share p, and the
     * config of its batcher, filled with the world's own before: rows, policy. begin: the row to be
     * asked, which stays the clone's until finish, or drop when the ask has failed; NULL when there
     * is nothing to compute (padding). All four or none. */
    void (*batching)(struct participant *p, struct batch_agent *out, struct batcher_config *config);
    enum status (*begin)(struct participant_clone *c, const struct act *observation,
                         struct row **out, struct error *err);
    enum status (*finish)(struct participant_clone *c, struct act *out, struct error *err);
    void (*drop)(struct participant_clone *c);

    /* For batches by length: of what it will compute, cut as it cuts. NULL: words (runs of what is
     * not white space) of text and of the first label, cut to the world's bounds. */
    void (*lengths)(const struct participant_clone *c, const struct act *observation,
                    struct lengths *out);
    bool is_ragged; /* rows are packed: a budget is their sum, not rows times the longest */

    /* Of the last act; NULL: what the act says, and never. epoch_done: the clone will get nothing
     * more before a reset. */
    bool (*episode_done)(const struct participant_clone *c);
    bool (*epoch_done)(const struct participant_clone *c);
};

struct participant {
    const struct participant_type *type;
    atomic_size_t n_refs; /* 1 at the start; participant_unref by the last closes it */
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

/* Whether a batch world asks it by batches. */
bool participant_has_batch_act(const struct participant *p);

/* Bytes of a clone, a multiple of 16: how far apart clones stand in a slab. */
size_t participant_clone_size(const struct participant *p);
enum status participant_clone_init(struct participant_clone *c, struct participant *p,
                                   const struct place *place, struct error *err) MUST_CHECK;
void participant_clone_deinit(struct participant_clone *c);
void participant_clone_reset(struct participant_clone *c);
enum status participant_observe(struct participant_clone *c, const struct act *act,
                                const struct act **ret_observation, struct error *err) MUST_CHECK;
enum status participant_self_observe(struct participant_clone *c, const struct act *reply,
                                     struct error *err) MUST_CHECK;

#endif
