/* Forms steps: which rows are in the next one, and how many tokens of each are scheduled.
 *
 * A decode row needs all of its cost in a step; a row that can be chunked (it reads a prompt) may
 * get less. Decode rows come first, the one that was scheduled longest ago at the head. Then come
 * prefill chunks, in the order in which their rows would finish if each had run alone since it
 * began to wait: of rows that arrived together the shortest comes first, and a long one comes first
 * once it has waited that much longer. They share what is left of the step's cost, within the
 * prefill budget that the inter-token latency of the decode rows allows (step_time.h). The first
 * chunked row always proceeds, and occasionally a short prompt runs unchunked. Budget is kept for
 * waiting requests that the policy admits and that would finish before a chunked row.
 *
 * Then, if every decode row was scheduled, waiting requests are admitted. The first that does not
 * fit ends the admission, so no request is overtaken because it is large.
 *
 * Last, rows reserve what they need. When a running row cannot, the running row of the lowest aged
 * priority is preempted and the reservation is tried again; a row that is alone and still cannot
 * reserve fails. In such a step no request is admitted. */
#ifndef BATCHING_STEP_H
#define BATCHING_STEP_H

#include <stdint.h>

#include "batching/state.h"

/* The policy's view of the batcher at now_us. */
struct policy_view step_view(struct batcher *b, uint64_t now_us);

/* Chooses the rows of the next step and schedules tokens of each: fills rows, n_rows and in_step.
 * Rows that cannot proceed end. *ret_wake_us: when the policy is to be called again, 0: never. */
void step_form(struct batcher *b, uint64_t now_us, uint64_t *ret_wake_us);

/* Called when the step is done: the models learn its time. */
void step_learn(struct batcher *b, uint64_t now_us);

#endif
