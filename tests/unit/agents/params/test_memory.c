#include "agents/params/memory.h"

#include "agents/params/snapshot.h"
#include "base/alloc.h"
#include "tests/unit/base/suite.h"

/* A block that is given back is used again; no more than n_keep are kept. */
START_TEST(test_reuse)
{
    struct params_budget budget;
    struct params_memory *m;
    float *a, *b, *c, *again;
    struct error err;

    params_budget_init(&budget, 3 * 400, NULL);
    ck_assert_int_eq(params_memory_open(&m, &budget, 100, 1, &err), STATUS_OK);
    ck_assert_int_eq(params_memory_take(&a, m, &err), STATUS_OK);
    ck_assert_int_eq(params_memory_take(&b, m, &err), STATUS_OK);
    ck_assert_int_eq(params_memory_take(&c, m, &err), STATUS_OK);
    ck_assert_uint_eq(params_memory_held(m), 1200);
    params_memory_give(m, a);
    params_memory_give(m, b);
    ck_assert_uint_eq(params_memory_held(m), 800);
    ck_assert_int_eq(params_memory_take(&again, m, &err), STATUS_OK);
    ck_assert_ptr_eq(again, a);
    params_memory_give(m, again);
    params_memory_give(m, c);
    params_memory_unref(m);
    ck_assert_uint_eq(budget.held_bytes, 0);
}
END_TEST

/* The budget is shared by all sets; when it is spent, the error has a retry hint. */
START_TEST(test_budget)
{
    struct params_budget budget;
    struct params_memory *m, *other;
    float *a, *b;
    struct error err = {0};

    params_budget_init(&budget, 799, NULL);
    ck_assert_int_eq(params_memory_open(&m, &budget, 100, 2, &err), STATUS_OK);
    ck_assert_int_eq(params_memory_open(&other, &budget, 100, 2, &err), STATUS_OK);
    ck_assert_int_eq(params_memory_take(&a, m, &err), STATUS_OK);
    ck_assert_int_eq(params_memory_take(&b, other, &err), STATUS_EXHAUSTED);
    ck_assert_uint_gt(err.retry_after_ms, 0);
    ck_assert_uint_eq(budget.held_bytes, 400);
    params_memory_give(m, a);
    params_memory_unref(m);
    ck_assert_int_eq(params_memory_take(&b, other, &err), STATUS_OK);
    params_memory_give(other, b);
    params_memory_unref(other);
    ck_assert_uint_eq(budget.held_bytes, 0);
    params_budget_init(&budget, 399, NULL); /* too small for one: a retry cures nothing */
    ck_assert_int_eq(params_memory_open(&m, &budget, 100, 2, &err), STATUS_OK);
    ck_assert_int_eq(params_memory_take(&a, m, &err), STATUS_PRECONDITION);
    ck_assert_uint_eq(err.retry_after_ms, 0);
    params_memory_unref(m);
}
END_TEST

/* If an allocation fails, nothing is counted. */
START_TEST(test_fault)
{
    struct params_budget budget;
    struct params_memory *m;
    float *a;
    struct error err;

    params_budget_init(&budget, 10000, NULL);
    fault_after = 0;
    ck_assert_int_eq(params_memory_open(&m, &budget, 100, 2, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(params_memory_open(&m, &budget, 100, 2, &err), STATUS_OK);
    fault_after = 0;
    ck_assert_int_eq(params_memory_take(&a, m, &err), STATUS_EXHAUSTED);
    fault_after = -1;
    ck_assert_uint_eq(budget.held_bytes, 0);
    params_memory_unref(m);
}
END_TEST

/* A snapshot outlives its set: a download that holds it keeps its numbers. */
START_TEST(test_snapshot_outlives)
{
    struct params_budget budget;
    struct params_memory *m;
    struct snapshot *s;
    struct error err;

    params_budget_init(&budget, 10000, NULL);
    ck_assert_int_eq(params_memory_open(&m, &budget, 100, 2, &err), STATUS_OK);
    ck_assert_int_eq(snapshot_make(&s, m, 100, 0, &err), STATUS_OK);
    ck_assert_int_eq(params_memory_take(&s->values, m, &err), STATUS_OK);
    s->values[99] = 7.0f;
    params_memory_unref(m);
    ck_assert_float_eq(s->values[99], 7.0f);
    snapshot_unref(s);
    ck_assert_uint_eq(budget.held_bytes, 0);
}
END_TEST

SUITE_MAIN("agents/params/memory", test_reuse, test_budget, test_fault, test_snapshot_outlives)
