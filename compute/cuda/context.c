#include <pthread.h>

#include "compute/cuda/parts.h"

/* Whoever resets holds it alone: elsewhere a call may be under way, with a handle of before. */
static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static unsigned n_resets; /* under lock */

bool context_enter(struct cuda *c)
{
    struct error err;

    (void)pthread_rwlock_rdlock(&lock);
    if (!c->is_dead && c->n_resets == n_resets)
        return true;
    (void)pthread_rwlock_unlock(&lock);
    c->is_dead = true;
    (void)error_set(&err, STATUS_INTERNAL, "the CUDA device has failed, and must be opened again");
    cuda_fail(c, &err);
    return false;
}

void context_leave(void)
{
    (void)pthread_rwlock_unlock(&lock);
}

void context_opened(struct cuda *c)
{
    (void)pthread_rwlock_rdlock(&lock);
    c->n_resets = n_resets;
    (void)pthread_rwlock_unlock(&lock);
}

void context_reset(const struct cuda *c)
{
    (void)pthread_rwlock_wrlock(&lock);
    if (c->n_resets == n_resets) {
        (void)cudaDeviceReset();
        n_resets++;
    }
    (void)cudaGetLastError();
    (void)pthread_rwlock_unlock(&lock);
}
