#include "compute/cuda/device.h"

#include <pthread.h>

/* A reset holds it for writing, because other threads may be inside a call with handles of the old
 * context. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static unsigned n_resets; /* under lock */
static bool is_lost;      /* under lock: a reset did not give a context that works */

void device_fail(struct cuda_device *d, const struct error *err)
{
    if (d->failed.status == STATUS_OK)
        d->failed = *err;
}

enum status device_status(struct cuda_device *d, cudaError_t rc, const char *what,
                          struct error *err)
{
    if (rc == cudaSuccess)
        return STATUS_OK;
    (void)cudaGetLastError(); /* clears the error, which is returned */
    if (rc == cudaErrorMemoryAllocation)
        return error_set(err, STATUS_EXHAUSTED, "out of device memory (to %s)", what);
    d->is_dead = true;
    return error_set(err, STATUS_INTERNAL, "the CUDA device failed to %s: %s (%s)", what,
                     cudaGetErrorString(rc), cudaGetErrorName(rc));
}

bool device_works(struct cuda_device *d, cudaError_t rc, const char *what)
{
    struct error err;

    if (device_status(d, rc, what, &err) == STATUS_OK)
        return true;
    device_fail(d, &err);
    return false;
}

bool device_enter(struct cuda_device *d)
{
    struct error err;

    (void)pthread_rwlock_rdlock(&lock);
    if (!d->is_dead && d->n_resets == n_resets)
        return true;
    (void)pthread_rwlock_unlock(&lock);
    d->is_dead = true;
    (void)error_set(&err, STATUS_INTERNAL, "the CUDA device has failed and must be opened again");
    device_fail(d, &err);
    return false;
}

void device_leave(void)
{
    (void)pthread_rwlock_unlock(&lock);
}

void device_opened(struct cuda_device *d)
{
    (void)pthread_rwlock_rdlock(&lock);
    d->n_resets = n_resets;
    (void)pthread_rwlock_unlock(&lock);
}

void device_reset(const struct cuda_device *d)
{
    cudaError_t rc;

    (void)pthread_rwlock_wrlock(&lock);
    if (d->n_resets == n_resets) {
        rc = cudaDeviceReset();
        if (rc == cudaSuccess)
            rc = cudaFree(NULL); /* frees nothing, makes a new context */
        is_lost = rc != cudaSuccess && rc != cudaErrorMemoryAllocation;
        n_resets++;
    }
    (void)cudaGetLastError();
    (void)pthread_rwlock_unlock(&lock);
}

bool device_is_lost(void)
{
    bool lost;

    (void)pthread_rwlock_rdlock(&lock);
    lost = is_lost;
    (void)pthread_rwlock_unlock(&lock);
    return lost;
}

void *device_take(struct cuda_device *d, size_t size_bytes)
{
    void *at = NULL;
    cudaError_t rc;

    if (!device_enter(d))
        return NULL;
    rc = cudaMalloc(&at, size_bytes > 0 ? size_bytes : 1);
    if (rc == cudaErrorMemoryAllocation)
        (void)cudaGetLastError(); /* clears the error; the caller reports it */
    else
        device_works(d, rc, "take memory");
    device_leave();
    return rc == cudaSuccess ? at : NULL;
}

enum status device_no_memory(const struct cuda_device *d, size_t size_bytes, const char *what,
                             struct error *err)
{
    if (!d->is_dead)
        return error_set(err, STATUS_EXHAUSTED, "out of device memory (%zu bytes for %s)",
                         size_bytes, what);
    *err = d->failed;
    return err->status;
}

void device_free(struct cuda_device *d, void *at)
{
    if (at == NULL || !device_enter(d))
        return;
    (void)cudaFree(at);
    (void)cudaGetLastError();
    device_leave();
}
