/* Hands out blocks of a set's size and keeps returned blocks for the next round. A budget that all
 * sets share bounds the bytes of all blocks. */
#include "agents/params/memory.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/alloc.h"
#include "base/shared_limit.h"

static const struct limit_kind kind_of_params_bytes = {"bytes of parameter sets", "--params-bytes",
                                                       NULL};

/* The size of a huge page: fewer page faults and table walks. */
#define HUGE_BYTES ((uintptr_t)2 << 20)

struct params_memory {
    pthread_mutex_t lock;
    struct params_budget *budget;
    size_t n;
    size_t n_keep;   /* guarded by lock */
    size_t n_refs;   /* guarded by lock: holders, and one for each block in use */
    size_t n_blocks; /* guarded by lock: used or kept */
    size_t n_kept;   /* guarded by lock */
    float *kept[];   /* [n_kept], guarded by lock */
};

void params_budget_init(struct params_budget *b, size_t max_bytes, struct params_budget *all)
{
    b->all = all;
    b->max_bytes = max_bytes;
    atomic_init(&b->held_bytes, 0);
}

static enum status params_budget_take_own(struct params_budget *b, size_t size_bytes,
                                          struct error *err)
{
    const char *part = b->all == NULL ? "" : "the principal's half of ";
    const size_t limit = b->all == NULL ? b->max_bytes : b->all->max_bytes;
    const char *noun = kind_of_params_bytes.noun;
    const char *option = kind_of_params_bytes.option;
    size_t held = atomic_load_explicit(&b->held_bytes, memory_order_relaxed);

    if (size_bytes > b->max_bytes) /* waiting cannot help */
        return error_set(err, STATUS_PRECONDITION,
                         "these parameters take %zu bytes, which is above %sthe limit of %zu %s "
                         "(%s)",
                         size_bytes, part, limit, noun, option);
    do {
        if (held > b->max_bytes - size_bytes) {
            (void)error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                                "%sthe limit of %zu %s (%s) is reached: there are %zu, %zu more "
                                "are asked for",
                                part, limit, noun, option, held, size_bytes);
            err->retry_after_ms = 1000;
            return err->status;
        }
    } while (!atomic_compare_exchange_weak_explicit(&b->held_bytes, &held, held + size_bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return STATUS_OK;
}

static void params_budget_give_own(struct params_budget *b, size_t size_bytes)
{
    (void)atomic_fetch_sub_explicit(&b->held_bytes, size_bytes, memory_order_relaxed);
}

enum status params_budget_take(struct params_budget *b, size_t size_bytes, struct error *err)
{
    if (b->all != NULL && params_budget_take_own(b->all, size_bytes, err) != STATUS_OK)
        return err->status;
    if (params_budget_take_own(b, size_bytes, err) == STATUS_OK)
        return STATUS_OK;
    if (b->all != NULL)
        params_budget_give_own(b->all, size_bytes);
    return err->status;
}

void params_budget_give(struct params_budget *b, size_t size_bytes)
{
    params_budget_give_own(b, size_bytes);
    if (b->all != NULL)
        params_budget_give_own(b->all, size_bytes);
}

enum status params_memory_open(struct params_memory **out, struct params_budget *budget, size_t n,
                               size_t n_keep, struct error *err)
{
    struct params_memory *m = try_alloc(1, sizeof(*m) + n_keep * sizeof(m->kept[0]));

    if (m == NULL)
        return error_no_memory(err, sizeof(*m), "the memory of parameters");
    (void)pthread_mutex_init(&m->lock, NULL); /* cannot fail with default attributes */
    m->budget = budget;
    m->n = n;
    m->n_keep = n_keep;
    m->n_refs = 1;
    *out = m;
    return STATUS_OK;
}

/* Called with the lock held. */
static void drop_kept(struct params_memory *m)
{
    params_budget_give(m->budget, m->n_kept * m->n * sizeof(float));
    m->n_blocks -= m->n_kept;
    while (m->n_kept > 0)
        free(m->kept[--m->n_kept]);
}

/* Called with the lock held, which it releases; the last reference frees. */
static void unref(struct params_memory *m)
{
    size_t n_refs = --m->n_refs;

    if (n_refs == 0)
        drop_kept(m);
    (void)pthread_mutex_unlock(&m->lock);
    if (n_refs > 0)
        return;
    (void)pthread_mutex_destroy(&m->lock);
    free(m);
}

struct params_memory *params_memory_ref(struct params_memory *m)
{
    (void)pthread_mutex_lock(&m->lock);
    m->n_refs++;
    (void)pthread_mutex_unlock(&m->lock);
    return m;
}

void params_memory_unref(struct params_memory *m)
{
    if (m == NULL)
        return;
    (void)pthread_mutex_lock(&m->lock);
    unref(m);
}

void params_memory_close(struct params_memory *m)
{
    (void)pthread_mutex_lock(&m->lock);
    m->n_keep = 0;
    drop_kept(m);
    unref(m);
}

static float *take_kept(struct params_memory *m)
{
    float *block = NULL;

    (void)pthread_mutex_lock(&m->lock);
    if (m->n_kept > 0) {
        block = m->kept[--m->n_kept];
        m->n_refs++;
    }
    (void)pthread_mutex_unlock(&m->lock);
    return block;
}

static void use_huge_pages(void *block, size_t size_bytes)
{
    uintptr_t first = ((uintptr_t)block + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    uintptr_t end = ((uintptr_t)block + size_bytes) & ~(HUGE_BYTES - 1);

    if (first < end)
        (void)madvise((void *)first, end - first,
                      MADV_HUGEPAGE); /* only advice: a failure is harmless */
}

enum status params_memory_take(float **out, struct params_memory *m, struct error *err)
{
    const size_t size_bytes = m->n * sizeof(float);
    float *block = take_kept(m);
    enum status rc;

    if (block != NULL) {
        *out = block;
        return STATUS_OK;
    }
    rc = params_budget_take(m->budget, size_bytes, err);
    if (rc != STATUS_OK)
        return rc;
    block = try_alloc(m->n, sizeof(float));
    if (block == NULL) {
        params_budget_give(m->budget, size_bytes);
        return error_no_memory(err, size_bytes, "parameters");
    }
    use_huge_pages(block, size_bytes);
    (void)pthread_mutex_lock(&m->lock);
    m->n_blocks++;
    m->n_refs++;
    (void)pthread_mutex_unlock(&m->lock);
    *out = block;
    return STATUS_OK;
}

void params_memory_give(struct params_memory *m, float *block)
{
    bool is_kept;

    if (block == NULL)
        return;
    (void)pthread_mutex_lock(&m->lock);
    is_kept = m->n_kept < m->n_keep;
    if (is_kept) {
        m->kept[m->n_kept++] = block;
    } else {
        m->n_blocks--;
        params_budget_give(m->budget, m->n * sizeof(float));
        free(block);
    }
    unref(m);
}

size_t params_memory_held(struct params_memory *m)
{
    size_t held;

    (void)pthread_mutex_lock(&m->lock);
    held = m->n_blocks * m->n * sizeof(float);
    (void)pthread_mutex_unlock(&m->lock);
    return held;
}
