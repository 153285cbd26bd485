#include "base/shared_limit.h"

#include <check.h>
#include <string.h>

#include "base/reason.h"
#include "tests/unit/base/suite.h"

static const struct limit_kind sessions = {"sessions of Act", "--max-sessions", NULL};
static const struct limit_kind replay_bytes = {"bytes of tables of Replay", "--replay-bytes",
                                               "max_bytes"};
static const struct limit_kind store_bytes = {"bytes of values in Store", "--store-bytes",
                                              "size_bytes"};
static const struct limit_kind conversations = {"open conversations", "--max-conversations", NULL};

enum { ALICE = 1, BOB = 2, CAROL = 70 };

/* Without keys the one principal may have all, and is told when there is no more. */
START_TEST(whole_without_keys)
{
    struct shared_limit l;
    struct error err;

    shared_limit_init(&l, &sessions, 10);
    ck_assert_uint_eq(shared_limit_part(&l, 0), 10);
    ck_assert_int_eq(shared_limit_take(&l, 0, 10, &err), STATUS_OK);
    ck_assert_uint_eq(shared_limit_room(&l, 0), 0);
    ck_assert_int_eq(shared_limit_take(&l, 0, 1, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(err.reason, REASON_LIMIT_REACHED);
    ck_assert_ptr_nonnull(strstr(err.text, "the limit of 10 sessions of Act (--max-sessions)"));
    ck_assert_ptr_null(strstr(err.text, "half"));
    shared_limit_give(&l, 0, 3);
    ck_assert_int_eq(shared_limit_take(&l, 0, 4, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(shared_limit_take(&l, 0, 3, &err), STATUS_OK);
    shared_limit_deinit(&l);
}
END_TEST

/* With keys each has at most half, whoever else has nothing; the error says so, by the option. */
START_TEST(half_with_keys)
{
    struct shared_limit l;
    struct error err;

    shared_limit_init(&l, &replay_bytes, 11);
    ck_assert_int_eq(shared_limit_take(&l, ALICE, 6, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(shared_limit_take(&l, ALICE, 5, &err), STATUS_OK);
    ck_assert_uint_eq(shared_limit_room(&l, ALICE), 0);
    ck_assert_int_eq(shared_limit_take(&l, ALICE, 1, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(err.reason, REASON_LIMIT_REACHED);
    ck_assert_str_eq(err.field, "max_bytes");
    ck_assert_str_eq(err.text, "the principal's half of the limit of 11 bytes of tables "
                               "of Replay (--replay-bytes) is reached: it has 5, 1 more are asked "
                               "for");
    ck_assert_uint_eq(shared_limit_room(&l, CAROL), 5);
    ck_assert_int_eq(shared_limit_take(&l, CAROL, 5, &err), STATUS_OK);
    ck_assert_int_eq(shared_limit_take(&l, BOB, 2, &err), STATUS_EXHAUSTED);
    ck_assert_ptr_null(strstr(err.text, "half"));
    ck_assert_int_eq(shared_limit_take(&l, BOB, 1, &err), STATUS_OK);
    ck_assert_uint_eq(shared_limit_held_by(&l, CAROL), 5);
    shared_limit_give(&l, CAROL, 5);
    ck_assert_uint_eq(shared_limit_held_by(&l, CAROL), 0);
    ck_assert_uint_eq(l.held, 6);
    shared_limit_deinit(&l);
}
END_TEST

/* What was there before stays, above the half and above the limit; more is refused until it is
 * below again. */
START_TEST(what_is_held_stays)
{
    struct shared_limit l;
    struct error err;

    shared_limit_init(&l, &store_bytes, 10);
    shared_limit_hold(&l, ALICE, 12);
    ck_assert_uint_eq(shared_limit_room(&l, ALICE), 0);
    ck_assert_uint_eq(shared_limit_room(&l, BOB), 0);
    ck_assert_int_eq(shared_limit_take(&l, ALICE, 0, &err), STATUS_OK);
    ck_assert_int_eq(shared_limit_take(&l, BOB, 1, &err), STATUS_EXHAUSTED);
    shared_limit_give(&l, ALICE, 6);
    ck_assert_int_eq(shared_limit_take(&l, ALICE, 1, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(shared_limit_take(&l, BOB, 4, &err), STATUS_OK);
    shared_limit_deinit(&l);
}
END_TEST

/* A limit of 1 is whoever's comes first; numbers as large as may be do not wrap. */
START_TEST(extremes)
{
    struct shared_limit l;
    struct error err;

    shared_limit_init(&l, &conversations, 1);
    ck_assert_int_eq(shared_limit_take(&l, ALICE, 1, &err), STATUS_OK);
    ck_assert_int_eq(shared_limit_take(&l, BOB, 1, &err), STATUS_EXHAUSTED);
    shared_limit_deinit(&l);
    shared_limit_init(&l, &store_bytes, UINT64_MAX);
    ck_assert_int_eq(shared_limit_take(&l, ALICE, UINT64_MAX / 2, &err), STATUS_OK);
    ck_assert_int_eq(shared_limit_take(&l, ALICE, UINT64_MAX, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(shared_limit_take(&l, BOB, UINT64_MAX / 2, &err), STATUS_OK);
    shared_limit_deinit(&l);
    shared_limit_init(&l, &store_bytes, 0);
    ck_assert_int_eq(shared_limit_take(&l, 0, 1, &err), STATUS_EXHAUSTED);
    shared_limit_deinit(&l);
}
END_TEST

SUITE_MAIN("base/shared_limit", whole_without_keys, half_with_keys, what_is_held_stays, extremes)
