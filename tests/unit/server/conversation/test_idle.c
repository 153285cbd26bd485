#include "server/conversation/idle.h"

#include "tests/unit/base/suite.h"

static struct idle_entry *only_due(const struct idle_list *l, uint64_t now_us)
{
    struct idle_entry *e = idle_list_due(l, now_us);

    ck_assert(e == NULL || idle_list_due_us(l) <= now_us);
    return e;
}

/* What was used longest ago is due, once the bound is passed and a while is over; nothing is
 * without a bound, or within it. */
START_TEST(the_least_recent_is_due)
{
    struct idle_entry a = {.size_bytes = 0}, b = {.size_bytes = 0}, c = {.size_bytes = 0};
    struct idle_list l;

    idle_list_init(&l, 0);
    ck_assert_ptr_null(idle_list_first(&l));
    idle_list_remove(&l, &a); /* it is not there */
    ck_assert_uint_eq(idle_list_due_us(&l), 0);
    idle_list_put(&l, &a, 10, 1);
    idle_list_put(&l, &b, 20, 2);
    idle_list_put(&l, &c, 30, 3);
    ck_assert_uint_eq(l.bytes, 60);
    ck_assert_ptr_null(only_due(&l, UINT64_MAX));
    l.max_bytes = 60;
    ck_assert_ptr_null(only_due(&l, UINT64_MAX));
    l.max_bytes = 59;
    ck_assert_uint_eq(idle_list_due_us(&l), 1 + IDLE_LEAST_US);
    ck_assert_ptr_null(only_due(&l, IDLE_LEAST_US));
    ck_assert_ptr_eq(only_due(&l, 1 + IDLE_LEAST_US), &a);
    idle_list_put(&l, &a, 15, 4); /* it was used, and has grown */
    ck_assert_uint_eq(l.bytes, 65);
    ck_assert_ptr_eq(only_due(&l, 2 + IDLE_LEAST_US), &b);
    ck_assert_ptr_eq(idle_list_next(&l, &b), &c);
    ck_assert_ptr_eq(idle_list_next(&l, &c), &a);
    ck_assert_ptr_null(idle_list_next(&l, &a));
    idle_list_remove(&l, &b);
    ck_assert_uint_eq(l.bytes, 45);
    ck_assert_ptr_null(only_due(&l, UINT64_MAX));
    idle_list_remove(&l, &c);
    idle_list_remove(&l, &a);
    ck_assert_uint_eq(l.bytes, 0);
    l.max_bytes = 1;
    ck_assert_ptr_null(only_due(&l, UINT64_MAX));
}
END_TEST

SUITE_MAIN("server/conversation/idle", the_least_recent_is_due)
