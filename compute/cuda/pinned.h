/* Host memory that the device reads and writes in place. It is pinned by registration, so that it
 * stays valid when another backend resets the device. */
#ifndef COMPUTE_CUDA_PINNED_H
#define COMPUTE_CUDA_PINNED_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda_runtime_api.h>

#include "base/status.h"

/* Sets *out, to NULL on failure. Between device_enter and device_leave. */
cudaError_t pinned_open(void **out, size_t size_bytes) MUST_CHECK;

/* is_alive: the context that it was pinned in still is, and this is between device_enter and
 * device_leave. NULL is allowed. */
void pinned_close(void *at, bool is_alive);

#endif
