/* The failures and the memory of the cpu backend. */
#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "compute/cpu/parts.h"

void cpu_fail(struct cpu *c, const struct error *err)
{
    if (c->failed.status == STATUS_OK)
        c->failed = *err;
}

bool cpu_reserve(struct cpu *c, void **room, size_t *cap, size_t need, size_t size,
                 const char *what)
{
    struct error err;
    void *more;

    if (need <= *cap)
        return true;
    free(*room); /* contents need not be kept */
    *room = NULL;
    *cap = 0;
    more = try_alloc(need, size);
    if (more == NULL) {
        (void)error_no_memory(&err, (uint64_t)need * size, what);
        cpu_fail(c, &err);
        return false;
    }
    *room = more;
    *cap = need;
    return true;
}

static size_t cpu_page_up(size_t size_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (size_bytes + page - 1) / page * page;
}

void *cpu_map(size_t size_bytes)
{
    uint8_t *at, *first;
    size_t skip;

    if (size_bytes > SIZE_MAX - CPU_HUGE_BYTES || fault_now())
        return NULL;
    at = mmap(NULL, size_bytes + CPU_HUGE_BYTES, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return NULL;
    /* unmap what is before and after a range aligned to huge pages */
    skip = (CPU_HUGE_BYTES - (uintptr_t)at % CPU_HUGE_BYTES) % CPU_HUGE_BYTES;
    first = at + skip;
    cpu_unmap(skip > 0 ? at : NULL, skip);
    cpu_unmap(first + cpu_page_up(size_bytes), CPU_HUGE_BYTES - skip);
    (void)madvise(first, size_bytes, MADV_HUGEPAGE); /* a wish */
    return first;
}

bool cpu_populate(void *at, size_t size_bytes)
{
#if defined(MADV_POPULATE_WRITE)
    return !fault_now() && madvise(at, size_bytes, MADV_POPULATE_WRITE) == 0; /* Linux 5.14 */
#else
    return false;
#endif
}

void cpu_unmap(void *at, size_t size_bytes)
{
    if (at != NULL && size_bytes > 0)
        (void)munmap(at, size_bytes);
}

float *cpu_written(struct buffer *m, size_t n, size_t width)
{
    assert(width == 0 || n <= m->size_bytes / sizeof(float) / width);
    return m->data;
}

const float *cpu_read(const struct buffer *m, size_t n, size_t width)
{
    assert(width == 0 || n <= m->size_bytes / sizeof(float) / width);
    return m->data;
}
