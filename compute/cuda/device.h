/* A backend's view of the device: its failures, its memory, and the process's one context on it,
 * which all backends share. A backend that finds the context broken resets it, once; what the
 * others hold on the device is then lost. */
#ifndef COMPUTE_CUDA_DEVICE_H
#define COMPUTE_CUDA_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include <cuda_runtime_api.h>

#include "base/status.h"

struct cuda_device {
    bool is_dead;        /* it has failed: it is not called any more */
    unsigned n_resets;   /* of the process's context, when this was opened */
    struct error failed; /* the first failure since the last sync; STATUS_OK when there is none */
    int n_multiprocessors;
};

/* Keeps the first failure. */
void device_fail(struct cuda_device *d, const struct error *err);

/* True when the call worked; else the failure is kept: EXHAUSTED where there was no memory, else
 * INTERNAL, and the device is dead. what names the call, such as "copy logits". */
bool device_works(struct cuda_device *d, cudaError_t rc, const char *what);

/* The same as a status, which is not kept. */
enum status device_status(struct cuda_device *d, cudaError_t rc, const char *what,
                          struct error *err) MUST_CHECK;

/* Device memory; NULL: none left, or the device failed, which is kept. */
void *device_take(struct cuda_device *d, size_t size_bytes);
/* Sets err for that NULL. */
enum status device_no_memory(const struct cuda_device *d, size_t size_bytes, const char *what,
                             struct error *err);
/* No running work may use the memory. NULL is allowed. */
void device_free(struct cuda_device *d, void *at);

/* Called before and after calls of the device; may be nested. False: the device is dead. */
bool device_enter(struct cuda_device *d) MUST_CHECK;
void device_leave(void);
/* Called first. */
void device_opened(struct cuda_device *d);
/* Resets the context of a dead device, unless another backend has done so. What the device reads
 * and writes in the host's memory may be freed after it, not before: work may still run. */
void device_reset(const struct cuda_device *d);
/* A reset has failed. Of some errors (an illegal address) CUDA's headers say that the process must
 * be ended and started anew. */
bool device_is_lost(void) MUST_CHECK;

#endif
