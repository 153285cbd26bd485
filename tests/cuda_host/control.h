/* How a test controls the stand-in of the CUDA runtime. Where the stand-in is in a loaded module,
 * environment variables do the same, before the first call:
 *
 * CUDA_HOST_DRIVER      the version that the driver gives, as 13000; 0: there is none
 * CUDA_HOST_DEVICES     how many there are (1)
 * CUDA_HOST_CAPABILITY  of the device, as 90
 * CUDA_HOST_MEMORY      bytes of the device
 * CUDA_HOST_FAIL        CALLS:CODE, as cuda_host_fail
 * CUDA_HOST_RESET       what a reset of the device returns, as 700; 0: it heals the device
 * CUDA_HOST_STREAMS     a seed: work on streams runs early or late, by chance; 0: late
 * CUDA_HOST_ORDERS      in so many orders each kernel runs, compared bit for bit (1) */
#ifndef TESTS_CUDA_HOST_CONTROL_H
#define TESTS_CUDA_HOST_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#define CUDA_HOST_EXPORT __attribute__((visibility("default")))

/* The next n_calls calls that can fail do not, the one after them returns rc. Any rc but
 * cudaErrorMemoryAllocation breaks the device: all calls return it, until cudaDeviceReset. */
CUDA_HOST_EXPORT void cuda_host_fail(long n_calls, cudaError_t rc);

/* The number of calls so far that could fail; if cuda_host_fail was given more, its failure did not
 * happen. */
CUDA_HOST_EXPORT uint64_t cuda_host_n_calls(void);
CUDA_HOST_EXPORT uint64_t cuda_host_n_graphs(void);   /* launched */
CUDA_HOST_EXPORT uint64_t cuda_host_n_launches(void); /* of kernels, in graphs or not */
CUDA_HOST_EXPORT uint64_t cuda_host_n_copies(void);   /* between the host and the device */

/* Bytes of the device that are allocated; what a closed backend leaves is a leak. The same for
 * handles: pinned memory, streams, events, graphs. */
CUDA_HOST_EXPORT size_t cuda_host_bytes_taken(void);
CUDA_HOST_EXPORT size_t cuda_host_n_handles(void);

CUDA_HOST_EXPORT void cuda_host_set_memory(size_t size_bytes);
CUDA_HOST_EXPORT void cuda_host_set_reset(cudaError_t rc); /* as CUDA_HOST_RESET */

/* A stream begins with a pointer to these, by which the stand-in of another library, which is
 * loaded separately, finds them. */
struct cuda_host_calls {
    /* Puts run(a copy of arg) on the stream; a cudaError_t. */
    int (*enqueue)(struct CUstream_st *stream, void (*run)(const void *arg), const void *arg,
                   size_t size, const char *name);
    size_t (*room)(const void *at); /* bytes of the device's memory from there on; 0: none of its */
};

#endif
