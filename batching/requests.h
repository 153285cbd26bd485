/* Moves a request between its states: it waits, is taken out, ends. These functions only move
 * requests between lists and make no calls outside the batcher; futures settle in batcher.c. */
#ifndef BATCHING_REQUESTS_H
#define BATCHING_REQUESTS_H

#include <stdbool.h>
#include <stddef.h>

#include "batching/state.h"

/* Removes the request from its list. It waits, is queued in its flow, or runs and is in no step. */
void batch_request_take_out(struct batcher *b, struct batch_request *request);

/* The waiting request costs so much more (wraps: less). */
void batch_request_count_cost(struct batcher *b, const struct batch_request *request, size_t cost);

/* The request, which was taken out, will settle with request->row->err. */
void batch_request_end(struct batcher *b, struct batch_request *request);

/* Makes the request, which was taken out, wait; in front of all others if it was preempted. */
void batch_request_wait(struct batcher *b, struct batch_request *request, bool is_preempted);

/* Each takes the request out and ends it: because the batcher closes, it was cancelled, its
 * deadline passed, or only n requests of a fixed batch arrived in time. */
void batch_request_end_closing(struct batcher *b, struct batch_request *request);
void batch_request_end_cancelled(struct batcher *b, struct batch_request *request);
void batch_request_end_overdue(struct batcher *b, struct batch_request *request);
void batch_request_end_missed(struct batcher *b, struct batch_request *request, size_t n);
/* Takes the request out and ends it by the outcome of its row, DONE or FAILED. */
void batch_request_end_row(struct batcher *b, struct batch_request *request);

#endif
