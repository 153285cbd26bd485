/* The backend "cuda" is a shared library of its own, so that parleyd starts where there is neither
 * driver nor GPU: libparley-cuda.so, made of compute/cuda/ where nvcc was found. */
#ifndef COMPUTE_CUDA_MODULE_H
#define COMPUTE_CUDA_MODULE_H

#include "compute/backend/backend.h"

/* What the library exports, by the name "parley_cuda_module". */
struct cuda_module {
    const char *version; /* PARLEY_VERSION */
    size_t type_bytes;   /* sizeof(struct backend_type) */
    const struct backend_type *type;
};

/* "cuda", whose other entries are the library's. It is looked for where $PARLEY_CUDA_MODULE says;
 * without that in ../lib and compute/cuda beside the program's folder. */
extern const struct backend_type cuda_backend;

#endif
