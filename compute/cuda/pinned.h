/* Memory of ours that the device reads and writes as it is: pinned by registration, so that it
 * stays ours, and may be written, when the device is reset by whoever else uses it. */
#ifndef COMPUTE_CUDA_PINNED_H
#define COMPUTE_CUDA_PINNED_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda_runtime_api.h>

#include "base/status.h"

/* Sets *out, to NULL on failure. Between context_enter and context_leave. */
cudaError_t pinned_open(void **out, size_t size_bytes) MUST_CHECK;

/* is_alive: the context that it was pinned in still is, and this is between context_enter and
 * context_leave. NULL is allowed. */
void pinned_close(void *at, bool is_alive);

#endif
