#include "base/alloc.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "tests/unit/base/suite.h"

/* Read through volatile, so that the compiler does not object to sizes that are meant to fail. */
static volatile size_t huge = SIZE_MAX / 2 + 2;

static int is_zero(const char *memory, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (memory[i] != 0)
            return 0;
    }
    return 1;
}

/* Memory of both allocators is zeroed, also when it was in use before. */
START_TEST(memory_is_zeroed)
{
    for (int round = 0; round < 3; round++) {
        char *a = xalloc(100);
        char *b = try_alloc(25, 4);

        ck_assert_ptr_nonnull(b);
        ck_assert(is_zero(a, 100) && is_zero(b, 100));
        memset(a, 'a', 100);
        memset(b, 'b', 100);
        free(a);
        free(b);
    }
}
END_TEST

/* An allocation of size 0 is not NULL. */
START_TEST(empty_is_not_null)
{
    void *a = xalloc(0);
    void *b = try_alloc(0, 8);
    void *c = try_realloc(NULL, 8, 0);
    void *d = xrealloc(NULL, 0);

    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_nonnull(c);
    ck_assert_ptr_nonnull(d);
    /* A reallocation to size 0 does not free. */
    c = try_realloc(c, 0, 0);
    ck_assert_ptr_nonnull(c);
    free(a);
    free(b);
    free(c);
    free(d);
}
END_TEST

/* Growing keeps the contents; if it fails, the old memory is unchanged. */
START_TEST(growing_keeps)
{
    char *text = xstrdup("kept");
    char *more = xrealloc(text, 1000);
    char *none;

    ck_assert_str_eq(more, "kept");
    text = try_realloc(more, 500, 20);
    ck_assert_ptr_nonnull(text);
    ck_assert_str_eq(text, "kept");
    fault_after = 0;
    none = try_realloc(text, 1000, 20);
    ck_assert_ptr_null(none);
    ck_assert_str_eq(text, "kept");
    free(text);
}
END_TEST

/* A size that overflows, or that no object can have, fails and does not wrap. */
START_TEST(overflow_fails)
{
    char c = 'x';

    ck_assert_ptr_null(try_alloc(huge, 2));
    ck_assert_ptr_null(try_alloc(2, huge));
    ck_assert_ptr_null(try_alloc(huge, 1));
    ck_assert_ptr_null(try_realloc(NULL, huge, huge));
    ck_assert_ptr_null(try_strndup(&c, SIZE_MAX));
}
END_TEST

/* A copy is NUL-ended, may hold NUL bytes, and may be empty. */
START_TEST(strndup_copies_bytes)
{
    char *a = try_strndup("a\0bcd", 4);
    char *b = try_strndup(NULL, 0);

    ck_assert_ptr_nonnull(a);
    ck_assert_mem_eq(a, "a\0bc", 5);
    ck_assert_ptr_nonnull(b);
    ck_assert_str_eq(b, "");
    free(a);
    free(b);
}
END_TEST

/* fault_after calls succeed, the next one fails, those after it succeed: whichever calls they are.
 */
START_TEST(the_nth_call_fails)
{
    void *kept[3];

    fault_after = 2;
    kept[0] = try_alloc(1, 1);
    kept[1] = try_strndup("x", 1);
    ck_assert_ptr_nonnull(kept[0]);
    ck_assert_ptr_nonnull(kept[1]);
    ck_assert_ptr_null(try_alloc(1, 1));
    ck_assert_int_eq(fault_after, -1);
    kept[2] = try_alloc(1, 1);
    ck_assert_ptr_nonnull(kept[2]);
    ck_assert_int_eq(fault_after, -1);
    for (int i = 0; i < 3; i++)
        free(kept[i]);

    fault_after = 1;
    ck_assert(!fault_now());
    ck_assert(fault_now());
    ck_assert(!fault_now());
}
END_TEST

/* xalloc ignores injected faults. */
START_TEST(xalloc_does_not_count)
{
    void *memory;

    fault_after = 0;
    memory = xalloc(1);
    ck_assert_int_eq(fault_after, 0);
    fault_after = -1;
    free(memory);
}
END_TEST

enum { N_THREADS = 4, N_CALLS = 5000 };

static void *count_faults(void *arg)
{
    long *n_faults = arg;

    for (int i = 0; i < N_CALLS; i++)
        *n_faults += fault_now();
    return NULL;
}

/* Of several threads that allocate, exactly one call fails. */
START_TEST(one_thread_gets_the_fault)
{
    pthread_t threads[N_THREADS];
    long n_faults[N_THREADS] = {0};
    long sum = 0;

    fault_after = N_THREADS * N_CALLS - 1; /* the very last */
    for (int i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, count_faults, &n_faults[i]), 0);
    for (int i = 0; i < N_THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        sum += n_faults[i];
    }
    ck_assert_int_eq(sum, 1);
    ck_assert_int_eq(fault_after, -1);
}
END_TEST

static void take_too_much(void)
{
    free(xalloc(huge));
}

/* xalloc never returns NULL: it ends the process. */
START_TEST(xalloc_ends_the_process)
{
    ck_assert_int_ne(suite_fate(take_too_much), 0);
}
END_TEST

SUITE_MAIN("alloc", memory_is_zeroed, empty_is_not_null, growing_keeps, overflow_fails,
           strndup_copies_bytes, the_nth_call_fails, xalloc_does_not_count,
           one_thread_gets_the_fault, xalloc_ends_the_process)
