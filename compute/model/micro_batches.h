/* A step of many sequences, divided among the backend's threads: each takes a micro-batch through
 * all layers. The threads wait for each other once at the end; with an undivided step they wait
 * after each operator. Each thread then reads the weights for itself, so this takes many tokens to
 * pay. A row's result does not depend on other rows, so the bits are the same. */
#ifndef COMPUTE_MODEL_MICRO_BATCHES_H
#define COMPUTE_MODEL_MICRO_BATCHES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct transformer;
struct transformer_row;

/* Opens none where the backend has one thread. */
enum status micro_batches_open(struct transformer *m, struct error *err) MUST_CHECK;
void micro_batches_close(struct transformer *m);

/* Partitions the rows among the micro-batches; false: the step is better run undivided. */
bool micro_batches_partition(struct transformer *m, const struct transformer_row *rows,
                             size_t n_rows);

/* Runs the rows that have been partitioned. */
enum status micro_batches_run(struct transformer *m, struct error *err) MUST_CHECK;

#endif
