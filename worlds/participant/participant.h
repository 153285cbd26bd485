/* A participant of a world: a teacher, a simple agent, a language model. The *original* holds what
 * is shared: data, weights, a dictionary, metrics. A *clone* is a pointer to its original and a
 * small private state. There is one clone for each conversation, in memory that the world owns (a
 * slab of clones). Kinds are const tables.
 *
 * In a world a participant observes the acts of the others, then answers. A participant with `act`
 * may be called directly. A participant with `batch_act`, or with `begin` and `finish`, is asked
 * through a batcher (batching/batcher.h): a world never calls a model itself. Batch worlds prefer
 * batch_act, plain worlds prefer act.
 *
 * A clone's act, and all that the act borrows, lives until the same clone is asked again. Who
 * observes an act may borrow it that long: a teacher's act outlives the reply to it.
 *
 * A clone is used by one thread. An original is used by all threads of a world, each through a
 * share of the original. By default the share is the original itself, whose const functions any
 * thread may call. */
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
    uint32_t index;  /* number of the clone, from 0 (ParlAI's batchindex) */
    uint32_t thread; /* number of the world's thread, from 0; also the shard of its metrics */
};

/* The size of an observation, in words or tokens. Length bucketing sorts rows by text, then by
 * label; a row's cost is their sum. Both are 0 for padding, which needs no computing. */
struct lengths {
    uint32_t text, label;
};

/* One row of batch_act. The caller sets clone, observation and out; batch_act writes *out, failed
 * and err. */
struct participant_row {
    struct participant_clone *clone;
    const struct act *observation; /* result of observe; NULL: the clone has observed nothing yet */
    struct act *out;  /* an empty act with an arena; batch_act sets its fields or shares others */
    bool failed;      /* this row has failed, and no other; err says why */
    struct error err; /* set if failed is */
};

struct participant_type {
    const char *name;
    size_t clone_size; /* size of a clone's struct, whose first member is struct participant_clone;
                          at most 256 bytes for kinds of this project */

    /* Closes the original, when no clone and no share of it is left. May be NULL. */
    void (*close)(struct participant *p);
    /* Returns a share of p for one of several threads. It is called on that thread, and may be
     * called on others at the same time; the share is closed like an original. NULL: the share is
     * one more reference to p. */
    enum status (*share)(struct participant **out, struct participant *p, uint32_t thread,
                         struct error *err);
    /* Resets all that is shared, e.g. the index of the next episode and metrics. Clones are reset
     * one by one, by reset. Called while no clone is in use. NULL: there is nothing to reset. */
    void (*reset_shared)(struct participant *p);
    /* Reports the participant's metrics. Any thread. NULL: it has none. */
    enum status (*report)(struct report *out, struct participant *p, struct error *err);
    /* Return how many examples and episodes an epoch has. NULL, or SIZE_MAX: this is not known. */
    size_t (*n_examples)(const struct participant *p);
    size_t (*n_episodes)(const struct participant *p);

    /* Initialises a clone in O(1). c->original is set, all other bytes are zero. clone_deinit is
     * called also after a failed clone_init. Both may be NULL. */
    enum status (*clone_init)(struct participant_clone *c, const struct participant_slot *place,
                              struct error *err);
    void (*clone_deinit)(struct participant_clone *c);
    /* Returns the clone to its state after clone_init; changes nothing shared. NULL: a clone has no
     * state. */
    void (*reset)(struct participant_clone *c);

    /* Turns an act into an observation, which is the act itself or an act of the clone's own. It is
     * kept until the clone is asked. Never fails for padding. NULL: it is the act itself. */
    enum status (*observe)(struct participant_clone *c, const struct act *act,
                           const struct act **ret_observation, struct error *err);
    /* Answers the last observation, and self-observes the answer before it returns. *out is an
     * empty act whose arena lives as long as the act. NULL: the kind answers in batches only. */
    enum status (*act)(struct participant_clone *c, struct act *out, struct error *err);
    /* Answers for n clones of p at once; the world then passes each answer to self_observe. */
    void (*batch_act)(struct participant *p, struct participant_row *rows, size_t n);
    /* Takes the clone's own reply, after batch_act or finish. NULL: nothing to do. */
    enum status (*self_observe)(struct participant_clone *c, const struct act *reply,
                                struct error *err);
    /* Returns whether batch_act may be used by this original. NULL: it may. */
    bool (*use_batch_act)(const struct participant *p);

    /* The next five are for participants whose answer takes several steps: all five are set, or
     * none. batching fills in the adapter of the share p and the config of its own batcher; it
     * keeps the config's max_waiting, which is set before. begin returns an observed turn to ask,
     * or NULL if there is nothing to compute (padding, or a ready answer). compute computes one
     * step of all rows. finish makes the answer and keeps or drops the turn; without a turn it is
     * called directly after begin. drop drops the turn of a request that failed. The clone owns the
     * turn. */
    void (*batching)(struct participant *p, struct batch_agent *out, struct batcher_config *config);
    enum status (*begin)(struct participant_clone *c, const struct act *observation,
                         struct agent_turn **out, struct error *err);
    void (*compute)(struct participant *p, struct row *const *rows, size_t n);
    enum status (*finish)(struct participant_clone *c, struct act *out, struct error *err);
    void (*drop)(struct participant_clone *c);

    /* Gives the lengths of an observation as the clone truncates it, for length bucketing. NULL:
     * they are the words (separated by white space) of the text and of the first label, cut to the
     * world's bounds. */
    void (*lengths)(const struct participant_clone *c, const struct act *observation,
                    struct lengths *out);
    /* Returns the digest that data_build writes beside vectors which this participant made
     * (listener_config_digest). NULL: the participant takes no vectors that were made before. */
    const char *(*vectors_of)(const struct participant *p);
    /* Returns the most rows of a batch_act, at least 1. NULL: as many as the world has. */
    size_t (*max_rows)(const struct participant *p);
    bool is_ragged; /* rows are packed: the budget of a batch bounds the sum of their costs, not
                       their number times the largest */

    /* Return whether the clone's last act ended its episode, and whether an epoch has ended for the
     * clone. NULL: the act's field episode_done says the former, and no epoch ever ends. */
    bool (*episode_done)(const struct participant_clone *c);
    bool (*epoch_done)(const struct participant_clone *c);
};

/* An original or a share. The kind's open function makes it with one reference (participant_init);
 * each world that uses it takes a share of it for each thread; the last participant_unref calls the
 * kind's close. */
struct participant {
    const struct participant_type *type;
    atomic_size_t n_refs; /* 1 at first */
};

struct participant_clone {
    struct participant *original; /* the share of the clone's thread; borrowed */
};

/* For a kind's open function: sets the table and the first reference. */
void participant_init(struct participant *p, const struct participant_type *type);
struct participant *participant_ref(struct participant *p); /* any thread */
void participant_unref(struct participant *p);              /* any thread; p may be NULL */
/* Returns a share of p for a thread of a world, by the table's share, or else a reference. Called
 * on that thread. */
enum status participant_share(struct participant **out, struct participant *p, uint32_t thread,
                              struct error *err) MUST_CHECK;

/* Returns whether batch worlds ask the participant in batches: it has batch_act or begin, and
 * use_batch_act does not forbid it. */
bool participant_has_batch_act(const struct participant *p);

/* Returns the bytes of a clone, a multiple of 16: the distance of clones in a slab. */
size_t participant_clone_size(const struct participant *p);
/* These call the table's functions, and do what the table says of NULL. participant_clone_init
 * zeroes the clone first; participant_clone_deinit may be called for a zeroed clone. */
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
