#include "compute/cuda/pinned.h"

#include <stdlib.h>

enum { PAGE_BYTES = 4096 };

cudaError_t pinned_open(void **out, size_t size_bytes)
{
    size_t all_bytes = (size_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    void *at = aligned_alloc(PAGE_BYTES, all_bytes);
    cudaError_t rc = cudaErrorMemoryAllocation;

    *out = NULL;
    if (at == NULL)
        return rc;
    rc = cudaHostRegister(at, all_bytes, cudaHostRegisterDefault);
    if (rc == cudaSuccess)
        *out = at;
    else
        free(at);
    return rc;
}

void pinned_close(void *at, bool is_alive)
{
    if (at != NULL && is_alive)
        (void)cudaHostUnregister(at);
    free(at);
}
