#include "base/prefault.h"

#include <stdatomic.h>
#include <stddef.h>
#include <uv.h>

#include "base/alloc.h"
#include "tests/unit/base/suite.h"

struct chore {
    int n_left; /* the thread's, as n_done */
    int n_done;
    bool was_busy; /* the last time */
    uv_sem_t over; /* posted when nothing is left, each time */
};

static bool do_a_little(void *arg, bool is_busy)
{
    struct chore *c = arg;

    c->was_busy = is_busy;
    if (c->n_left > 0) {
        c->n_done++;
        c->n_left--;
    }
    if (c->n_left > 0)
        return true;
    uv_sem_post(&c->over);
    return false;
}

/* While no step runs, all work is done at once; then fn is not called until prefault_notice, after
 * which it gets is_busy. */
START_TEST(idle_time_is_used)
{
    struct chore c = {.n_left = 3};
    struct prefault *a;

    ck_assert_int_eq(uv_sem_init(&c.over, 0), 0);
    a = prefault_start(do_a_little, &c);
    ck_assert_ptr_nonnull(a);
    uv_sem_wait(&c.over);
    ck_assert_int_eq(c.n_done, 3);
    ck_assert(!c.was_busy);
    prefault_notice(a);
    uv_sem_wait(&c.over);
    prefault_stop(a);
    ck_assert(c.was_busy);
    ck_assert_int_eq(c.n_done, 3);
    uv_sem_destroy(&c.over);
}
END_TEST

static bool is_never_through(void *arg, bool is_busy)
{
    uv_sem_post(arg);
    return true;
}

/* It stops in the middle of the work, or of a pause. */
START_TEST(it_stops_at_once)
{
    for (int is_busy = 0; is_busy < 2; is_busy++) {
        struct prefault *a;
        uv_sem_t begun;

        ck_assert_int_eq(uv_sem_init(&begun, 0), 0);
        a = prefault_start(is_never_through, &begun);
        ck_assert_ptr_nonnull(a);
        if (is_busy)
            prefault_notice(a);
        uv_sem_wait(&begun);
        prefault_stop(a);
        uv_sem_destroy(&begun);
    }
}
END_TEST

START_TEST(no_thread_is_no_harm)
{
    struct chore c = {.n_left = 3};
    struct prefault *a;

    atomic_store(&fault_after, 0);
    a = prefault_start(do_a_little, &c);
    atomic_store(&fault_after, -1);
    ck_assert_ptr_null(a);
    prefault_notice(a);
    prefault_stop(a);
    ck_assert_int_eq(c.n_done, 0);
}
END_TEST

SUITE_MAIN("prefault", idle_time_is_used, it_stops_at_once, no_thread_is_no_harm)
