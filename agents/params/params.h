/* params: a batch-updating parameter server as an agent. The original holds the parameters as they
 * are published, and the optimiser; a clone is one client; a row is a completed upload, a gradient
 * or a few that count as one. A step of the batcher is a round: it reduces its rows in the order of
 * (client, step), steps the optimiser, and publishes the next version. Every row ends DONE. */
#ifndef AGENTS_PARAMS_PARAMS_H
#define AGENTS_PARAMS_PARAMS_H

#include "agents/agent.h"
#include "agents/params/memory.h"
#include "agents/params/snapshot.h"
#include "agents/params/spec.h"
#include "agents/turn.h"

extern const struct agent_type params_agent;

/* agent_config.spec of this kind; its pointers must outlive the agent. */
struct params_open {
    const struct params_spec *spec; /* checked */
    struct params_memory *memory;   /* blocks of spec->n */
    struct params_budget *budget;   /* that memory is counted against */
};

struct params_client {
    struct clone base;
    char *id;
    bool has_step;
    uint64_t last_step;    /* the last one that counted */
    uint64_t last_version; /* the version it went into */
};

/* An uploaded gradient. */
struct params_gradient {
    const char *client; /* its client's id; the client may be gone if the gradient was pushed */
    uint64_t step_id, base_version;
    float *values; /* [spec->n], of params_open.memory; a round may take it and leave NULL */
};

/* A row: its turn and its gradients. Zeroed before it is filled in. */
struct params_turn {
    struct agent_turn base;
    struct params_gradient *const *gradients; /* [n_gradients], in order of (client, step) */
    size_t n_gradients;
    size_t n_rows;       /* rows of its round */
    uint64_t counted_in; /* the version it went into, once done */
};

/* Opens a clone for the client with this id. */
enum status params_client_open(struct params_client **out, struct agent *a, const char *id,
                               struct error *err) MUST_CHECK;
struct params_client *params_client_of(struct clone *c);

/* What a version has beside its values. */
struct params_moments {
    uint64_t version;
    float *m, *v; /* [spec->n]; NULL: the optimiser does not have it */
};

/* Makes the first version, which is 0, or of a set that goes on the one of from (NULL: 0), whose
 * numbers are copied; takes ownership of values, except on STATUS_EXHAUSTED. Compute thread, before
 * any round. */
enum status params_begin(struct agent *a, float *values, const struct params_moments *from,
                         struct error *err) MUST_CHECK;
/* Copies those of the version that was made last. Compute thread. */
void params_copy_moments(const struct agent *a, struct params_moments *out);
/* Publishes the version that params_begin or a round made. Loop. */
void params_publish(struct agent *a);

/* Borrowed; NULL before the first is published. Loop. */
struct snapshot *params_current(const struct agent *a);

/* Checks that a gradient of base_version is not too old: PRECONDITION with both versions. INVALID
 * if it is newer than the current version; ABORTED with both, if the set goes on from one of an
 * earlier process, which may have made that version. Loop. */
enum status params_check_fresh(const struct agent *a, uint64_t base_version,
                               struct error *err) MUST_CHECK;

/* Checks that a client's step is new: EXISTS names its last step and version. Loop. */
enum status params_check_step(const struct params_client *c, uint64_t step_id,
                              struct error *err) MUST_CHECK;

/* Orders gradients by (client, step): below, 0 or above 0. */
int params_compare(const struct params_gradient *a, const struct params_gradient *b);

#endif
