/* params: a batch-updating parameter server as an agent. The original holds the parameters as they
 * are published, and the optimiser; a clone is one client; a row is a completed upload, a gradient
 * or a few that count as one. A step of the batcher is a round: it reduces its rows in the order of
 * (client, step), steps the optimiser, and publishes the next version; every row is DONE by it. */
#ifndef AGENTS_PARAMS_PARAMS_H
#define AGENTS_PARAMS_PARAMS_H

#include "agents/agent.h"
#include "agents/params/memory.h"
#include "agents/params/snapshot.h"
#include "agents/params/spec.h"

extern const struct agent_type params_agent;

/* agent_config.spec of this kind; what it points to outlives the agent. */
struct params_open {
    const struct params_spec *spec; /* checked */
    struct params_memory *memory;   /* blocks of spec->n */
    struct params_budget *budget;   /* what memory is counted in */
};

struct params_client {
    struct clone base;
    char *id;
    bool has_step;
    uint64_t last_step;    /* that counted */
    uint64_t last_version; /* the one it went into */
};

/* A gradient that has come. */
struct params_gradient {
    const char *client; /* its client's id, which may be gone when it was pushed */
    uint64_t step_id, base_version;
    float *values; /* [spec->n], of params_open.memory; a round may take it and leave NULL */
};

/* A row: its turn and what the round works on. Zeroed before it is filled in. */
struct params_turn {
    struct agent_turn base;
    struct params_gradient *const *gradients; /* [n_gradients], in order of (client, step) */
    size_t n_gradients;
    size_t n_rows;       /* of the round that it was in */
    uint64_t counted_in; /* the version it went into, when it is done */
};

/* What a clone is called; before its first turn. */
enum status params_client_open(struct params_client **out, struct agent *a, const char *id,
                               struct error *err) MUST_CHECK;
struct params_client *params_client_of(struct clone *c);

/* The first version: values becomes the set's. Compute thread, before any round. STATUS_EXHAUSTED
 * leaves them the caller's. */
enum status params_begin(struct agent *a, float *values, struct error *err) MUST_CHECK;
/* Publishes it, once that is back. Loop. */
void params_publish(struct agent *a);

/* Borrowed; NULL before the first is published. Loop. */
struct snapshot *params_current(const struct agent *a);

/* That a gradient of base_version is not too old for the version there is now: PRECONDITION with
 * both. Loop. */
enum status params_check_fresh(const struct agent *a, uint64_t base_version,
                               struct error *err) MUST_CHECK;

/* That a client's step is new to it: EXISTS tells what it did last. Loop. */
enum status params_check_step(const struct params_client *c, uint64_t step_id,
                              struct error *err) MUST_CHECK;

/* Orders gradients by (client, step): below, 0 or above 0. */
int params_compare(const struct params_gradient *a, const struct params_gradient *b);

#endif
