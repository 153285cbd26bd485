/* Products of matrices in half precision, by cuBLASLt. */
#ifndef COMPUTE_CUDA_GEMM_H
#define COMPUTE_CUDA_GEMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/cuda/cublas.h"

struct cuda;
struct gemm_plan;

struct gemm {
    const struct cublas *blas; /* NULL: it is not open */
    void *handle, *desc, *preference;
    uint8_t *workspace; /* [GEMM_WORKSPACE] */
    struct gemm_plan *plans;
    int failed; /* the first failure of a launch, until gemm_works; CUBLAS_SUCCESS: none */
};

/* What NVIDIA advises for its largest devices. */
enum { GEMM_WORKSPACE = 32 << 20 };

/* out [n][stride], of which n_rows columns, is (plus) x [n][n_cols] · w [n_rows][n_cols] turned.
 * All begin at multiples of CUBLAS_ALIGN. */
struct gemm_shape {
    size_t n, n_rows, n_cols, stride;
};

/* Not OK: there is no cuBLAS to use, and the error says why; all else goes on without, unless the
 * device failed, which is kept. */
enum status gemm_open(struct cuda *c, struct error *err) MUST_CHECK;
void gemm_close(struct cuda *c);

/* Whether cuBLAS has a way for the shape, which is looked up once. */
bool gemm_takes(struct cuda *c, const struct gemm_shape *shape);

/* Records the product of a shape that it takes. */
void gemm_add(struct cuda *c, const struct gemm_shape *shape, const uint16_t *x, const uint16_t *w,
              float *out, bool adds);

/* After launches: that none has failed; else that is kept. */
bool gemm_works(struct cuda *c);

#endif
