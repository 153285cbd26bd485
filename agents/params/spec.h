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

enum {
    PARAMS_MAX_NAME = 64,
    PARAMS_MAX_TENSORS = 1 << 16,
    PARAMS_MAX_ROUND = 1024,
    PARAMS_MAX_QUEUE = 4096,
};

struct params_quorum {
    size_t min;          /* rows that a partial round needs; 0: 1 */
    uint64_t timeout_ms; /* from the first row of the round; 0: no limit */
    bool may_be_partial; /* else a late round is aborted */
};

struct params_spec {
    const char *name;
    const struct tensor_view *tensors; /* [n_tensors] f32, consecutive in the set; without data */
    size_t n_tensors;
    size_t n; /* total of numbers; params_spec_check fills it in */
    struct optim optim;
    struct schedule schedule;
    bool is_sum; /* else the mean */
    size_t round_size;
    bool dedupe; /* each client step counts once, and a client's steps must increase */
    struct params_quorum quorum;
    uint64_t max_staleness; /* versions; 0: any */
    bool allow_non_finite;
    size_t fan_in;    /* pushed gradients that are reduced first and count as one; 0: 1 */
    size_t max_queue; /* pushed gradients that may wait; 0: 64 */
};

/* Checks s and fills in defaults. STATUS_INVALID names a member that is invalid or can never be
 * satisfied. */
enum status params_spec_check(struct params_spec *s, struct error *err) MUST_CHECK;

/* Checks that these tensors are the set's, in its order. The error names the tensor and both
 * shapes. */
enum status params_spec_match(const struct params_spec *s, const struct tensor_view *tensors,
                              size_t n, struct error *err) MUST_CHECK;

/* Copies s and its texts into arena. STATUS_EXHAUSTED. */
enum status params_spec_copy(struct params_spec *out, const struct params_spec *s,
                             struct arena *arena, struct error *err) MUST_CHECK;

/* Checks that numbers [first, first + n) of the set are finite; the error names the tensor and the
 * index. */
enum status params_spec_check_finite(const struct params_spec *s, const float *values, size_t first,
                                     size_t n, struct error *err) MUST_CHECK;

/* How many moments the optimiser keeps for each number: 0, 1, 2. */
size_t params_spec_moments(const struct params_spec *s);

#endif
