/* The specification of a parameter set: its tensors, how it is updated, and what a round needs. */
#ifndef AGENTS_PARAMS_SPEC_H
#define AGENTS_PARAMS_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/params/schedule.h"
#include "agents/tensor.h"
#include "base/arena.h"
#include "base/status.h"
#include "compute/numerics/optim.h"

/* Upper bounds of a specification. */
enum {
    PARAMS_MAX_NAME = 64, /* bytes */
    PARAMS_MAX_TENSORS = 1 << 16,
    PARAMS_MAX_ROUND = 1024, /* rows */
    PARAMS_MAX_QUEUE = 4096, /* gradients */
};

/* When a round that is not full begins, or ends without a step. */
struct params_quorum {
    size_t min;          /* the fewest rows of a partial round; 0: 1 */
    uint64_t timeout_ms; /* how long the first row of a round waits for the others; 0: no limit */
    bool may_be_partial; /* after the timeout min rows suffice; else the round is aborted */
};

struct params_spec {
    const char *name;
    const struct tensor_view *tensors; /* [n_tensors] f32, consecutive in the set; without data */
    size_t n_tensors;
    size_t n; /* how many numbers the tensors have together; params_spec_check fills it in */
    struct optim optim;
    struct schedule schedule;
    bool is_sum;       /* a round adds its gradients; else it averages them */
    size_t round_size; /* rows of a full round */
    bool dedupe;       /* each client step counts once, and a client's steps must increase */
    struct params_quorum quorum;
    uint64_t max_staleness; /* by how many versions a gradient may be too old; 0: any number */
    bool allow_non_finite;  /* gradients may hold NaN and infinities */
    size_t fan_in;          /* how many pushed gradients are reduced to one row; 0: 1 */
    size_t max_queue;       /* the most pushed gradients that wait; 0: 64 */
};

/* Checks s, fills in defaults and s->n. STATUS_INVALID names a member that is not valid, or whose
 * condition can never be met. */
enum status params_spec_check(struct params_spec *s, struct error *err) MUST_CHECK;

/* Checks that these tensors have the names, types and shapes of the set's, in the set's order.
 * STATUS_INVALID names the first tensor that differs. */
enum status params_spec_match(const struct params_spec *s, const struct tensor_view *tensors,
                              size_t n, struct error *err) MUST_CHECK;

/* Copies s with its texts and tensors into arena. STATUS_EXHAUSTED. */
enum status params_spec_copy(struct params_spec *out, const struct params_spec *s,
                             struct arena *arena, struct error *err) MUST_CHECK;

/* Checks that n of the set's numbers, values[first] and those behind it, are finite. STATUS_INVALID
 * names the tensor and the index in it. */
enum status params_spec_check_finite(const struct params_spec *s, const float *values, size_t first,
                                     size_t n, struct error *err) MUST_CHECK;

/* Returns how many moments the optimiser keeps for each number: 0, 1 or 2. */
size_t params_spec_moments(const struct params_spec *s);

#endif
