#include <check.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda/rig_device.h"

enum {
    SKIPPED = 77,   /* as Meson has it */
    PATTERN = 0xa5, /* of memory that nobody has written */
};

/* Before main, since the tests run on the emulation too, and know of no device that is missing. */
__attribute__((constructor)) static void rig_open_device(void)
{
    int n = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);

    if (rc == cudaSuccess && n > 0)
        return;
    (void)fprintf(stderr, "skipped: there is no CUDA device: %s\n", cudaGetErrorString(rc));
    _exit(SKIPPED);
}

void *rig_alloc(size_t size_bytes)
{
    void *at = NULL;
    cudaError_t rc = cudaMallocManaged(&at, size_bytes > 0 ? size_bytes : 1, cudaMemAttachGlobal);

    ck_assert_msg(rc == cudaSuccess, "%s", cudaGetErrorString(rc));
    memset(at, PATTERN, size_bytes);
    return at;
}

void rig_free(void *at)
{
    (void)cudaFree(at);
}

void rig_written(const void *at, size_t size_bytes)
{
    (void)at, (void)size_bytes;
}

void rig_set_orders(unsigned n, unsigned seed)
{
    (void)n, (void)seed;
}

const char *rig_error(void)
{
    const cudaError_t launched = cudaGetLastError(), ran = cudaDeviceSynchronize();

    if (launched != cudaSuccess)
        return cudaGetErrorString(launched);
    return ran != cudaSuccess ? cudaGetErrorString(ran) : NULL;
}
