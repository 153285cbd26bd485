/* The team of threads behind an operator. */
#include "compute/cpu/team.h"

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

static struct team *open_team(size_t n_threads)
{
    struct team *t = NULL;
    struct error err;

    ck_assert_int_eq(team_open(&t, n_threads, &err), STATUS_OK);
    return t;
}

/* Every item of every job is done once and before team_for returns, however many jobs of whatever
 * sizes follow one another, with more threads than processors too. */
START_TEST(each_item_is_done_once)
{
    static const size_t sizes[] = {1, 2, 3, 7, 64, 5, 199, 2};
    struct team *t = open_team((size_t)_i);
    static struct count counts[2];

    ck_assert_uint_eq(team_size(t), (size_t)_i);
    for (size_t job = 0; job < JOBS; job++) {
        struct count *c = &counts[job % 2]; /* a late member would still have the other */
        size_t n = sizes[job * 7 % 8];

        team_for(t, n, 1 + job % 3, count, c);
        for (size_t i = 0; i < MAX_ITEMS; i++) {
            ck_assert_int_eq(atomic_load(&c->seen[i]), i < n);
            atomic_store(&c->seen[i], 0);
        }
    }
    team_close(t);
}
END_TEST

/* More items than the words of the shares can count are handed out several as one. */
START_TEST(many_items_are_done_once)
{
    enum { MANY = 200003 };
    static atomic_char seen[MANY];
    struct team *t = open_team(3);

    for (size_t n = MANY - 5; n <= MANY; n++) {
        team_for(t, n, 7, mark, seen);
        for (size_t i = 0; i < MANY; i++) {
            ck_assert_int_eq(atomic_load_explicit(&seen[i], memory_order_relaxed), i < n);
            atomic_store_explicit(&seen[i], 0, memory_order_relaxed);
        }
    }
    team_close(t);
}
END_TEST

static void add(void *arg, size_t begin, size_t end)
{
    atomic_fetch_add_explicit((atomic_size_t *)arg, end - begin, memory_order_relaxed);
}

/* A large job right behind a small one: a member that saw the small one exhausted takes nothing of
 * the large one before it is published. */
START_TEST(jobs_follow_closely)
{
    struct team *t = open_team(2);
    atomic_size_t n_done = 0;
    size_t n = 0;

    for (size_t job = 0; job < QUICK_JOBS; job++) {
        size_t n_items = 2 + job % 16;

        team_for(t, n_items, 1, add, &n_done);
        n += n_items;
        ck_assert_uint_eq(atomic_load(&n_done), n);
    }
    team_close(t);
}
END_TEST

/* An empty job returns, and a team that never worked closes. */
START_TEST(nothing_to_do)
{
    struct team *t = open_team(3);

    team_for(t, 0, 1, count, NULL);
    team_close(t);
    team_close(NULL);
    team_close(open_team(0));
}
END_TEST

/* A thread that cannot be had is an error, and those that were started stop. */
START_TEST(no_thread_to_be_had)
{
    struct team *t = NULL;
    struct error err;

    atomic_store(&fault_after, 1);
    ck_assert_int_eq(team_open(&t, 4, &err), STATUS_EXHAUSTED);
    atomic_store(&fault_after, -1);
    ck_assert_ptr_null(t);
    ck_assert_int_eq(team_open(&t, 1 << 20, &err), STATUS_INVALID);
    ck_assert_ptr_null(t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("team");
    TCase *tests = tcase_create("team");
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
