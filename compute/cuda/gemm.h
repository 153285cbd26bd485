/* Products of matrices in half precision, by cuBLASLt. */
#ifndef COMPUTE_CUDA_GEMM_H
#define COMPUTE_CUDA_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/cuda/cublas.h"
#include "compute/cuda/list.h"

struct gemm_plan;

struct gemm {
    struct cuda_device *device;
    struct command_list *list; /* in which its products are recorded */
    const struct cublas *blas; /* NULL: it is not open */
    void *handle, *desc, *preference;
    uint8_t *workspace; /* [GEMM_WORKSPACE] */
    struct gemm_plan *plans;
    int failed; /* the first failure of a launch; CUBLAS_SUCCESS: none */
};

/* NVIDIA's advice for its largest devices. */
enum { GEMM_WORKSPACE = 32 << 20 };

/* out [n][stride], of which n_rows columns are used, = (or +=) x [n][n_cols] · w [n_rows][n_cols]
 * transposed. All begin at multiples of CUBLAS_ALIGN. */
struct gemm_shape {
    size_t n, n_rows, n_cols, stride;
};

/* Not OK: there is no usable cuBLAS, and the error says why; the rest works without it, unless the
 * device failed, which is kept. */
enum status gemm_open(struct gemm *g, struct cuda_device *d, struct command_list *list,
                      struct error *err) MUST_CHECK;
void gemm_close(struct gemm *g);

/* Whether cuBLAS has an algorithm for the shape, which is looked up once. */
bool gemm_takes(struct gemm *g, const struct gemm_shape *shape);

/* Records the product of a shape that it takes. */
void gemm_add(struct gemm *g, const struct gemm_shape *shape, const uint16_t *x, const uint16_t *w,
              float *out, bool adds);

#endif
