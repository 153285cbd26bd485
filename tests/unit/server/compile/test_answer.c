#include "server/compile/answer.h"

#include <check.h>
#include <string.h>

#include "tests/unit/base/suite.h"

static const struct compile_answer_head head_of_three = {COMPILE_MAGIC, COMPILE_DONE, 3};

/* An answer is the same however its bytes are cut, and is complete with the last one. */
START_TEST(test_cuts)
{
    char bytes[sizeof(head_of_three) + 3];

    memcpy(bytes, &head_of_three, sizeof(head_of_three));
    memcpy(bytes + sizeof(head_of_three), "abc", 3);
    for (size_t cut = 0; cut <= sizeof(bytes); cut++) {
        struct answer a;
        struct error err;

        answer_init(&a);
        ck_assert_int_eq(answer_take(&a, bytes, cut, &err), STATUS_OK);
        ck_assert(answer_is_complete(&a) == (cut == sizeof(bytes)));
        ck_assert_int_eq(answer_take(&a, bytes + cut, sizeof(bytes) - cut, &err), STATUS_OK);
        ck_assert(answer_is_complete(&a));
        ck_assert_str_eq(a.bytes, "abc");
        ck_assert_int_eq(answer_take(&a, "d", 1, &err), STATUS_DATA_LOSS);
        answer_deinit(&a);
    }
}
END_TEST

/* One of no bytes is complete with its head. */
START_TEST(test_empty)
{
    const struct compile_answer_head head = {COMPILE_MAGIC, COMPILE_TOO_LARGE, 0};
    struct answer a;
    struct error err;

    answer_init(&a);
    ck_assert(!answer_is_complete(&a));
    ck_assert_int_eq(answer_take(&a, (const char *)&head, sizeof(head), &err), STATUS_OK);
    ck_assert(answer_is_complete(&a));
    ck_assert_str_eq(a.bytes, "");
    answer_deinit(&a);
}
END_TEST

/* What is no answer, or a larger one than there is, is refused by its head. */
START_TEST(test_wrong)
{
    static const struct compile_answer_head heads[] = {
        {COMPILE_MAGIC + 1, COMPILE_DONE, 3},
        {COMPILE_MAGIC, N_COMPILE_VERDICTS, 3},
        {COMPILE_MAGIC, COMPILE_DONE, COMPILE_MAX_BYTES + 1},
        {COMPILE_MAGIC, COMPILE_INVALID, COMPILE_MAX_WHY + 1},
        {COMPILE_MAGIC, COMPILE_DONE, UINT32_MAX},
    };

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct answer a;
        struct error err;

        answer_init(&a);
        ck_assert_int_eq(answer_take(&a, (const char *)&heads[i], sizeof(heads[i]), &err),
                         STATUS_DATA_LOSS);
        ck_assert(!answer_is_complete(&a));
        answer_deinit(&a);
    }
}
END_TEST

SUITE_MAIN("answer", test_cuts, test_empty, test_wrong)
