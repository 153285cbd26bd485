#include "compute/kv/slots.h"

#include "tests/unit/base/suite.h"

static struct error err;

static void expect_usage(const struct kv_slots *s, size_t n_free, size_t n_shared)
{
    struct kv_slot_usage u;

    kv_slots_usage(s, &u);
    ck_assert_uint_eq(u.n_free, n_free);
    ck_assert_uint_eq(u.n_shared, n_shared);
}

/* A slot is free again once its last holder has dropped it. */
START_TEST(slots_have_holders)
{
    struct kv_slots *s = NULL;
    int32_t a, b;

    ck_assert_int_eq(kv_slots_open(&s, 2, &err), STATUS_OK);
    a = kv_slot_take(s);
    b = kv_slot_take(s);
    ck_assert_int_ne(a, b);
    ck_assert_int_eq(kv_slot_take(s), KV_NO_SLOT);
    ck_assert_int_eq(kv_slot_share(s, a), a);
    ck_assert_uint_eq(kv_slot_n_holders(s, a), 2);
    expect_usage(s, 0, 1);
    kv_slot_drop(s, a);
    expect_usage(s, 0, 0);
    kv_slot_drop(s, a);
    expect_usage(s, 1, 0);
    ck_assert_int_eq(kv_slot_take(s), a);
    kv_slot_drop(s, a);
    kv_slot_drop(s, b);
    kv_slot_drop(s, KV_NO_SLOT);
    expect_usage(s, 2, 0);
    kv_slots_close(s);
    kv_slots_close(NULL);
}
END_TEST

SUITE_MAIN("slots", slots_have_holders)
