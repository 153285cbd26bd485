/* The agent kind `params` is a parameter server that updates in batches. The original is a
 * parameter set: it holds the published parameters and the optimiser. A clone is one client. A row
 * is a completed upload: one gradient, or a few that count as one. A step of the batcher is a
 * round: it reduces its rows in the order of (client, step), steps the optimiser, and makes the
 * next version, which is published when the step is done. Every row of a round ends with ROW_DONE;
 * only without memory all of them fail, and the set is unchanged. */
#ifndef AGENTS_PARAMS_PARAMS_H
#define AGENTS_PARAMS_PARAMS_H

#include "agents/agent.h"
#include "agents/params/memory.h"
#include "agents/params/snapshot.h"
#include "agents/params/spec.h"
#include "agents/turn.h"

extern const struct agent_type params_agent;

/* The spec in the agent_config of this kind. What it points to must outlive the agent. */
struct params_open {
    const struct params_spec *spec; /* params_spec_check has passed it */
    struct params_memory *memory;   /* blocks of spec->n numbers */
    struct params_budget *budget;   /* the optimiser's moments count in it */
};

/* A client: the clone's private state. Loop. */
struct params_client {
    struct clone base;
    char *id;              /* owned */
    bool has_step;         /* a step of the client has counted */
    uint64_t last_step;    /* id of the last step that counted, if has_step */
    uint64_t last_version; /* the version that it went into */
};

/* An uploaded gradient. The caller owns it until its row has ended. */
struct params_gradient {
    const char *client; /* its client's id; the client may be gone if the gradient was pushed */
    uint64_t step_id, base_version; /* number of the client's step; the version that the gradient
                                       is for */
    float *values; /* [spec->n], a block of params_open.memory; a round may take it and set NULL */
    bool *skips;   /* [spec->n_tensors] the tensors that have no gradient; NULL: all have one */
    bool has_rate; /* it asks for a learning rate, from which the schedule goes on */
    double rate;   /* 0 or more, at most FLT_MAX */
    /* Not NULL: no gradient, but a step towards this version of another set, which has as many
     * numbers, by tau (0 to 1). The caller holds a reference. values is room for the result. Such a
     * row is alone in its round, and no step of its client. */
    struct snapshot *follows;
    float tau;
};

/* A row: its turn and its gradients. The caller zeroes it before it fills in gradients. */
struct params_turn {
    struct agent_turn base;
    struct params_gradient *const *gradients; /* [n_gradients], in the order of (client, step) */
    size_t n_gradients;
    size_t n_rows;       /* out: how many rows its round had */
    uint64_t counted_in; /* out: the version that the gradients went into */
};

/* Opens a clone for the client with this id, which is copied. EXHAUSTED. Loop. */
enum status params_client_open(struct params_client **out, struct agent *a, const char *id,
                               struct error *err) MUST_CHECK;
struct params_client *params_client_of(struct clone *c);

/* A version's number and the optimiser's moments that belong to it. */
struct params_moments {
    uint64_t version;
    float *m, *v; /* [spec->n]; NULL: the optimiser does not have it */
    uint64_t
        *steps; /* [spec->n_tensors] of the optimiser that each tensor has had; NULL: version */
};

/* Makes the first version of the set, with values (a block of the set's memory), which it takes.
 * With from NULL the version is 0 and the moments are 0. Otherwise the set continues one of an
 * earlier process: version and moments are from's, which are copied. Only STATUS_EXHAUSTED can
 * happen; values then stay the caller's. The version still has to be published. Compute thread,
 * once, before any round. */
enum status params_begin(struct agent *a, float *values, const struct params_moments *from,
                         struct error *err) MUST_CHECK;
/* Copies the number and the moments of the version that was made last into out, whose arrays the
 * caller provides. Compute thread. */
void params_copy_moments(const struct agent *a, struct params_moments *out);
/* Publishes the version that params_begin has made; versions of rounds are published by the agent.
 * Loop. */
void params_publish(struct agent *a);

/* Returns the published version, borrowed; NULL before the first params_publish. Loop. */
struct snapshot *params_current(const struct agent *a);

/* Checks that a gradient for base_version is not too old. PRECONDITION, with both versions, if it
 * is older than the spec's max_staleness allows. INVALID if base_version is newer than the current
 * version; but ABORTED, with both versions, if the set continues one of an earlier process, which
 * may have made that version. Loop. */
enum status params_check_fresh(const struct agent *a, uint64_t base_version,
                               struct error *err) MUST_CHECK;

/* Checks that a client's step is new: above the last one that counted. EXISTS names that step and
 * its version. Loop. */
enum status params_check_step(const struct params_client *c, uint64_t step_id,
                              struct error *err) MUST_CHECK;

/* Compares gradients by (client, step), as strcmp does: below 0, 0 or above 0. */
int params_compare(const struct params_gradient *a, const struct params_gradient *b);

#endif
