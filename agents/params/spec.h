/* What a set of parameters is: its tensors, how it is updated, and what a round needs. */
#ifndef AGENTS_PARAMS_SPEC_H
#define AGENTS_PARAMS_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/params/schedule.h"
#include "agents/tensor.h"
#include "base/arena.h"
#include "base/status.h"
#include "compute/optim.h"

enum {
    PARAMS_MAX_NAME = 64,
    PARAMS_MAX_TENSORS = 1 << 16,
    PARAMS_MAX_ROUND = 1024,
    PARAMS_MAX_QUEUE = 4096,
};

struct params_quorum {
    size_t min;          /* rows that a partial round needs; 0: 1 */
    uint64_t timeout_ms; /* from the first of the round; 0: as long as it takes */
    bool may_be_partial; /* else a round that is late is aborted */
};

struct params_spec {
    const char *name;
    const struct tensor_view *tensors; /* [n_tensors] f32, one behind the other; without data */
    size_t n_tensors;
    size_t n; /* numbers in all; params_spec_check fills it in */
    struct optim optim;
    struct schedule schedule;
    bool is_sum; /* else the mean */
    size_t round_size;
    bool dedupe; /* a client's step counts once, and its steps only grow */
    struct params_quorum quorum;
    uint64_t max_staleness; /* versions; 0: any */
    bool allow_non_finite;
    size_t fan_in;    /* pushed gradients that are reduced first, to count as one; 0: 1 */
    size_t max_queue; /* pushed gradients that may wait; 0: 64 */
};

/* Checks all of it and fills in what was left to us. STATUS_INVALID names what cannot be, or can
 * never be met. */
enum status params_spec_check(struct params_spec *s, struct error *err) MUST_CHECK;

/* That these tensors are the set's, in its order. The text names the tensor and both shapes. */
enum status params_spec_match(const struct params_spec *s, const struct tensor_view *tensors,
                              size_t n, struct error *err) MUST_CHECK;

/* A copy in arena, texts and all. STATUS_EXHAUSTED. */
enum status params_spec_copy(struct params_spec *out, const struct params_spec *s,
                             struct arena *arena, struct error *err) MUST_CHECK;

/* That numbers [first, first + n) of the set are finite; the text names the tensor and the place.
 */
enum status params_spec_check_finite(const struct params_spec *s, const float *values, size_t first,
                                     size_t n, struct error *err) MUST_CHECK;

/* How many more numbers the optimiser keeps for each: 0, 1, 2. */
size_t params_spec_moments(const struct params_spec *s);

#endif
