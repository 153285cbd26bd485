/* cuBLASLt, NVIDIA's library of matrix products. It is not linked: it is half a gigabyte, may not
 * be installed, and only --fast-math and a comparison of rates use it.
 *
 * The part of it that is used is declared here, as cublasLt.h, cublas_api.h and library_types.h of
 * CUDA 13.0 have it (CUDA 12's have the same): the compiler that is fetched for a build brings none
 * of them. All statuses are cublasStatus_t, whose numbers are those of enum cublas_status. */
#ifndef COMPUTE_CUDA_CUBLAS_H
#define COMPUTE_CUDA_CUBLAS_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "base/status.h"

enum cublas_status {
    CUBLAS_SUCCESS = 0,
    CUBLAS_NOT_INITIALIZED = 1,
    CUBLAS_ALLOC_FAILED = 3,
    CUBLAS_EXECUTION_FAILED = 13,
    CUBLAS_INTERNAL_ERROR = 14,
    CUBLAS_NOT_SUPPORTED = 15,
};

enum {
    CUBLAS_R_32F = 0,          /* CUDA_R_32F, of cudaDataType */
    CUBLAS_R_16F = 2,          /* CUDA_R_16F */
    CUBLAS_COMPUTE_F32 = 68,   /* CUBLAS_COMPUTE_32F */
    CUBLAS_TRANSPOSED = 1,     /* CUBLAS_OP_T */
    CUBLAS_DESC_TRANSA = 3,    /* CUBLASLT_MATMUL_DESC_TRANSA, an int32_t */
    CUBLAS_PREF_WORKSPACE = 1, /* CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, a uint64_t */
    CUBLAS_ALIGN = 256,        /* of matrices, unless a preference says less */
};

struct cublas_algo { /* cublasLtMatmulAlgo_t */
    uint64_t data[8];
};

struct cublas_found { /* cublasLtMatmulHeuristicResult_t */
    struct cublas_algo algo;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};

/* The library's functions: get_version is cublasLtGetVersion, and so on. */
struct cublas {
    const char *file; /* that was loaded */
    size_t (*get_version)(void);
    const char *(*get_status_name)(int status);
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*matmul_desc_create)(void **desc, int compute, int scale_type);
    int (*matmul_desc_set_attribute)(void *desc, int attribute, const void *from, size_t n_bytes);
    int (*matmul_desc_destroy)(void *desc);
    int (*matrix_layout_create)(void **layout, int type, uint64_t n_rows, uint64_t n_cols,
                                int64_t stride);
    int (*matrix_layout_destroy)(void *layout);
    int (*matmul_preference_create)(void **preference);
    int (*matmul_preference_set_attribute)(void *preference, int attribute, const void *from,
                                           size_t n_bytes);
    int (*matmul_preference_destroy)(void *preference);
    int (*matmul_algo_get_heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d,
                                     void *preference, int n_wanted, struct cublas_found *found,
                                     int *n_found);
    int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout,
                  const void *b, void *b_layout, const void *beta, const void *c, void *c_layout,
                  void *d, void *d_layout, const struct cublas_algo *algo, void *workspace,
                  size_t workspace_bytes, cudaStream_t stream);
};

/* Looks for the library where $PARLEY_CUBLAS says; without that beside the module, where the
 * loader looks, and in /usr/local/cuda. Once found it stays loaded. NOT_FOUND says what was
 * missing. Any thread. */
enum status cublas_load(const struct cublas **out, struct error *err) MUST_CHECK;

#endif
