#include "base/alloc.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL_BYTES = 1032 }; /* the largest piece that a thread's cache keeps */

atomic_long fault_after = -1;

int fault_now(void)
{
    /* Relaxed: the count orders nothing but itself. */
    long n = atomic_load_explicit(&fault_after, memory_order_relaxed);

    while (n >= 0) {
        if (atomic_compare_exchange_weak_explicit(&fault_after, &n, n - 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return n == 0;
    }
    return 0;
}

static void *or_die(void *memory, size_t size_bytes)
{
    if (memory == NULL) {
        (void)fprintf(stderr, "out of memory (%zu bytes)\n", size_bytes);
        abort();
    }
    return memory;
}

/* Sets *ret, which is never 0, for which malloc and realloc may return NULL. False on overflow, and
 * above PTRDIFF_MAX, since no object can be so large. */
static bool total_size(size_t n, size_t size_bytes, size_t *ret)
{
    size_t total;

    if (__builtin_mul_overflow(n, size_bytes, &total) || total > PTRDIFF_MAX)
        return false;
    *ret = total == 0 ? 1 : total;
    return true;
}

/* glibc's calloc (2.36) does not use the thread's cache of small pieces, and takes several times as
 * long as malloc; for large ones it knows which are zero already. */
static void *take_zeroed(size_t size_bytes)
{
    void *memory;

    if (size_bytes > SMALL_BYTES)
        return calloc(1, size_bytes);
    memory = malloc(size_bytes);
    if (memory != NULL)
        memset(memory, 0, size_bytes);
    return memory;
}

void *xalloc(size_t size_bytes)
{
    return or_die(take_zeroed(size_bytes == 0 ? 1 : size_bytes), size_bytes);
}

void *xrealloc(void *old, size_t size_bytes)
{
    return or_die(realloc(old, size_bytes == 0 ? 1 : size_bytes), size_bytes);
}

char *xstrdup(const char *text)
{
    return or_die(strdup(text), strlen(text) + 1);
}

void *try_alloc(size_t n, size_t size_bytes)
{
    size_t total;

    if (fault_now() || !total_size(n, size_bytes, &total))
        return NULL;
    return take_zeroed(total);
}

void *try_realloc(void *old, size_t n, size_t size_bytes)
{
    size_t total;

    if (fault_now() || !total_size(n, size_bytes, &total))
        return NULL;
    return realloc(old, total);
}

char *try_strndup(const char *text, size_t len)
{
    char *copy;

    if (len == SIZE_MAX)
        return NULL;
    copy = try_alloc(len + 1, 1);
    if (copy != NULL && len > 0)
        memcpy(copy, text, len);
    return copy;
}

void alloc_trim(void)
{
    (void)malloc_trim(0); /* whether it freed anything does not matter */
}
