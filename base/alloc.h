/* Two allocators. xalloc is for bookkeeping of a size we choose: it never returns NULL, running out
 * aborts with a line. try_alloc is for every size that a request or a file chose: it may return
 * NULL, and a test can make the nth call of it fail. All memory is zeroed. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/status.h"

/* The next fault_after calls of try_* succeed, the one after them fails, and those after that
 * succeed again. Negative (the default): none fails. */
extern atomic_long fault_after;

void *xalloc(size_t size_bytes) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *old, size_t size_bytes)
    __attribute__((returns_nonnull)); /* new part not zeroed */
char *xstrdup(const char *text) __attribute__((malloc, returns_nonnull));

/* n * size_bytes is checked for overflow: an overflow is a failure, as is a fault. */
void *try_alloc(size_t n, size_t size_bytes) MUST_CHECK;
void *try_realloc(void *old, size_t n, size_t size_bytes) MUST_CHECK; /* new part not zeroed */
char *try_strndup(const char *text, size_t len) MUST_CHECK;

/* Returns free pages to the system: free() keeps them as long as memory at higher addresses is in
 * use. Milliseconds for 100 MB. */
void alloc_trim(void);

/* True when this call must fail: for failures other than of memory that a test injects (a write, a
 * device call). Counts like one try_alloc. */
int fault_now(void);

#endif
