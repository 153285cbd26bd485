#include "agents/params/spec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/base/suite.h"

static const struct tensor_view two[] = {
    {.name = "w", .type = TENSOR_F32, .n_dims = 2, .dims = {2, 3}, .size_bytes = 24},
    {.name = "b", .type = TENSOR_F32, .n_dims = 1, .dims = {3}, .size_bytes = 12},
};

static struct params_spec good(void)
{
    return (struct params_spec){
        .name = "p",
        .tensors = two,
        .n_tensors = 2,
        .schedule = {.rate = 0.1},
        .round_size = 3,
    };
}

/* Defaults are filled in. */
START_TEST(test_good)
{
    struct params_spec s = good();
    struct error err;

    ck_assert_int_eq(params_spec_check(&s, &err), STATUS_OK);
    ck_assert_uint_eq(s.n, 9);
    ck_assert_uint_eq(s.fan_in, 1);
    ck_assert_uint_eq(s.max_queue, 64);
    ck_assert_uint_eq(s.quorum.min, 1);
    ck_assert_uint_eq(params_spec_moments(&s), 0);
    s.optim.momentum = 0.9f;
    ck_assert_uint_eq(params_spec_moments(&s), 1);
    s.optim.kind = OPTIM_ADAM;
    ck_assert_uint_eq(params_spec_moments(&s), 2);
}
END_TEST

static void refused(struct params_spec s, const char *field)
{
    struct error err;

    ck_assert_int_eq(params_spec_check(&s, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, field);
}

/* Invalid and unsatisfiable values are refused by name. */
START_TEST(test_bad)
{
    struct tensor_view t = two[0];
    struct params_spec s = good();

    s.name = "";
    refused(s, "name");
    s = good();
    s.n_tensors = 0;
    refused(s, "specs");
    s = good();
    s.round_size = 0;
    refused(s, "round_size");
    s.round_size = PARAMS_MAX_ROUND + 1;
    refused(s, "round_size");
    s = good();
    s.quorum.min = 4;
    refused(s, "quorum.min");
    s = good();
    s.quorum.may_be_partial = true;
    refused(s, "quorum.timeout_ms");
    s = good();
    s.fan_in = 22;
    refused(s, "max_queue");
    s.max_queue = PARAMS_MAX_QUEUE + 1;
    refused(s, "max_queue");
    s = good();
    s.optim.momentum = NAN;
    refused(s, "optimiser.momentum");
    s.optim = (struct optim){.kind = OPTIM_ADAM, .beta1 = 1.0f};
    refused(s, "optimiser.beta1");
    s.optim = (struct optim){.nesterov = true};
    refused(s, "optimiser.nesterov");
    s.optim = (struct optim){.dampening = 1.5f};
    refused(s, "optimiser.dampening");
    s = good();
    s.schedule.rate = -1.0;
    refused(s, "learning_rate");
    s = good();
    s.optim = (struct optim){.kind = OPTIM_ADAM, .beta1 = 0.9f, .beta2 = 0.999f};
    refused(s, "optimiser.epsilon");
    s = good();
    s.tensors = &t;
    s.n_tensors = 1;
    t.type = TENSOR_F64;
    refused(s, "w");
    t = two[0];
    t.dims[0] = -2;
    refused(s, "w");
    t.dims[0] = 0;
    t.size_bytes = 0;
    refused(s, "specs");
    t.name = "";
    refused(s, "specs");
}
END_TEST

/* Two tensors of one name, at any places, are refused by that name. */
START_TEST(test_one_name_twice)
{
    struct tensor_view three[3] = {two[0], two[1], two[0]};
    struct params_spec s = good();
    struct error err;

    s.tensors = three;
    s.n_tensors = 3;
    ck_assert_int_eq(params_spec_check(&s, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "specs");
    ck_assert_str_eq(err.text, "specs has two tensors with the name 'w'");
    three[2].name = "w2";
    ck_assert_int_eq(params_spec_check(&s, &err), STATUS_OK);
    ck_assert_str_eq(s.tensors[0].name, "w"); /* in the order that was given */
}
END_TEST

/* Tensors that differ from the set's are named in the error with both shapes. */
START_TEST(test_match)
{
    struct tensor_view t[2] = {two[0], two[1]};
    struct params_spec s = good();
    struct error err;

    ck_assert_int_eq(params_spec_match(&s, t, 2, &err), STATUS_OK);
    ck_assert_int_eq(params_spec_match(&s, t, 1, &err), STATUS_INVALID);
    t[1].name = "c";
    ck_assert_int_eq(params_spec_match(&s, t, 2, &err), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "'c'"));
    t[1] = two[1];
    t[0].dims[0] = 3;
    t[0].dims[1] = 2;
    ck_assert_int_eq(params_spec_match(&s, t, 2, &err), STATUS_INVALID);
    ck_assert_str_eq(err.field, "w");
    ck_assert_ptr_nonnull(strstr(err.text, "f32[3,2]"));
    ck_assert_ptr_nonnull(strstr(err.text, "f32[2,3]"));
}
END_TEST

/* NaN and infinities are found at any place, and reported by tensor and index. */
START_TEST(test_finite)
{
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    float values[9] = {0};
    struct params_spec s = good();
    struct error err;

    ck_assert_int_eq(params_spec_check(&s, &err), STATUS_OK);
    values[0] = 3.4e38f;
    values[1] = 1e-45f;
    ck_assert_int_eq(params_spec_check_finite(&s, values, 0, 9, &err), STATUS_OK);
    for (size_t i = 0; i < 9; i++) {
        float kept = values[i];
        char place[32];

        values[i] = bad[i % 4];
        ck_assert_int_eq(params_spec_check_finite(&s, values, 0, 9, &err), STATUS_INVALID);
        ck_assert_str_eq(err.field, i < 6 ? "w" : "b");
        (void)snprintf(place, sizeof(place), " at position %zu,", i < 6 ? i : i - 6);
        ck_assert_ptr_nonnull(strstr(err.text, place));
        ck_assert_int_eq(params_spec_check_finite(&s, values, i, 1, &err), STATUS_INVALID);
        ck_assert_int_eq(params_spec_check_finite(&s, values, i + 1, 8 - i, &err), STATUS_OK);
        values[i] = kept;
    }
}
END_TEST

SUITE_MAIN("agents/params/spec", test_good, test_bad, test_one_name_twice, test_match, test_finite)
