/* Activations that are far greater than the others of their groups (kernels.h): the list of those
 * of a block of rows, from where the rounding left them. */
#ifndef COMPUTE_CPU_OUTLIERS_H
#define COMPUTE_CPU_OUTLIERS_H

#include "compute/cpu/kernels.h"

/* places: of the block, as struct act_slice has them. rows: of the block, each with the value of
 * group g at g; they become what struct act_outliers says, and columns, which has room for all
 * groups of all rows, is filled. */
void outliers_list(struct act_outlier *rows, struct act_outlier_counts *counts, uint32_t *columns,
                   const uint8_t *places, size_t n_groups, size_t n_rows);

#endif
