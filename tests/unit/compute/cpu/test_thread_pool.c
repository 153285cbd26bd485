/* The thread pool. */
#include "compute/cpu/thread_pool.h"

#include <check.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/alloc.h"

enum { MAX_ITEMS = 200, JOBS = 2000, QUICK_JOBS = 100000 };

struct count {
    atomic_int seen[MAX_ITEMS];
};

static void count(void *arg, size_t begin, size_t end)
{
    struct count *c = arg;

    for (size_t i = begin; i < end; i++)
        atomic_fetch_add_explicit(&c->seen[i], 1, memory_order_relaxed);
}

static void mark(void *arg, size_t begin, size_t end)
{
    atomic_char *seen = arg;

    for (size_t i = begin; i < end; i++)
        atomic_fetch_add_explicit(&seen[i], 1, memory_order_relaxed);
}

static struct thread_pool *open_pool(size_t n_threads)
{
    struct thread_pool *p = NULL;
    struct error err;

    ck_assert_int_eq(thread_pool_open(&p, n_threads, &err), STATUS_OK);
    return p;
}

/* Every item of every job is done once and before thread_pool_for returns, for many jobs of any
 * sizes in a row, also with more threads than processors. */
START_TEST(each_item_is_done_once)
{
    static const size_t sizes[] = {1, 2, 3, 7, 64, 5, 199, 2};
    struct thread_pool *p = open_pool((size_t)_i);
    static struct count counts[2];

    ck_assert_uint_eq(thread_pool_size(p), (size_t)_i);
    for (size_t job = 0; job < JOBS; job++) {
        struct count *c = &counts[job % 2]; /* a late thread would still have the other */
        size_t n = sizes[job * 7 % 8];

        thread_pool_for(p, n, 1 + job % 3, count, c);
        for (size_t i = 0; i < MAX_ITEMS; i++) {
            ck_assert_int_eq(atomic_load(&c->seen[i]), i < n);
            atomic_store(&c->seen[i], 0);
        }
    }
    thread_pool_close(p);
}
END_TEST

/* More items than a share's word can count are combined to units. */
START_TEST(many_items_are_done_once)
{
    enum { MANY = 200003 };
    static atomic_char seen[MANY];
    struct thread_pool *p = open_pool(3);

    for (size_t n = MANY - 5; n <= MANY; n++) {
        thread_pool_for(p, n, 7, mark, seen);
        for (size_t i = 0; i < MANY; i++) {
            ck_assert_int_eq(atomic_load_explicit(&seen[i], memory_order_relaxed), i < n);
            atomic_store_explicit(&seen[i], 0, memory_order_relaxed);
        }
    }
    thread_pool_close(p);
}
END_TEST

static void add(void *arg, size_t begin, size_t end)
{
    atomic_fetch_add_explicit((atomic_size_t *)arg, end - begin, memory_order_relaxed);
}

/* A large job right after a small one: a thread that saw the small one exhausted takes nothing of
 * the large one before it is published. */
START_TEST(jobs_follow_closely)
{
    struct thread_pool *p = open_pool(2);
    atomic_size_t n_done = 0;
    size_t n = 0;

    for (size_t job = 0; job < QUICK_JOBS; job++) {
        size_t n_items = 2 + job % 16;

        thread_pool_for(p, n_items, 1, add, &n_done);
        n += n_items;
        ck_assert_uint_eq(atomic_load(&n_done), n);
    }
    thread_pool_close(p);
}
END_TEST

/* An empty job returns, and a pool that never worked closes. */
START_TEST(nothing_to_do)
{
    struct thread_pool *p = open_pool(3);

    thread_pool_for(p, 0, 1, count, NULL);
    thread_pool_close(p);
    thread_pool_close(NULL);
    thread_pool_close(open_pool(0));
}
END_TEST

/* A thread that cannot be started is an error, and those that were started stop. */
START_TEST(no_thread_to_be_had)
{
    struct thread_pool *p = NULL;
    struct error err;

    atomic_store(&fault_after, 1);
    ck_assert_int_eq(thread_pool_open(&p, 4, &err), STATUS_EXHAUSTED);
    atomic_store(&fault_after, -1);
    ck_assert_ptr_null(p);
    ck_assert_int_eq(thread_pool_open(&p, 1 << 20, &err), STATUS_INVALID);
    ck_assert_ptr_null(p);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("thread_pool");
    TCase *tests = tcase_create("thread_pool");
    SRunner *runner;
    int n_failed;

    tcase_set_timeout(tests, 120);
    tcase_add_loop_test(tests, each_item_is_done_once, 1, 5);
    tcase_add_test(tests, many_items_are_done_once);
    tcase_add_test(tests, jobs_follow_closely);
    tcase_add_test(tests, nothing_to_do);
    tcase_add_test(tests, no_thread_to_be_had);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    n_failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return n_failed == 0 ? 0 : 1;
}
