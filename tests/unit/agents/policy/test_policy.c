/* A policy through its interface: what it refuses, that a row's result is the same in any batch,
 * that draws depend on keys, and what a clone keeps from step to step. */
#include <math.h>
#include <string.h>

#include "agents/policy/parts.h"
#include "base/counter_rng.h"
#include "tests/support/policy_driver.h"
#include "tests/unit/base/suite.h"

enum { N = 11, N_OBS = 4 };

static struct error err;
static float observations[N][N_OBS];

static void fill_observations(uint64_t seed)
{
    for (uint32_t i = 0; i < N * N_OBS; i++)
        observations[i / N_OBS][i % N_OBS] = 2.0f * counter_rng_uniform(seed, 0, i, 9) - 1.0f;
}

static struct policy_spec small(enum policy_kind kind)
{
    struct policy_spec s;

    policy_spec_cartpole(&s);
    s.kind = kind;
    if (kind == POLICY_LSTM) {
        s.n_hidden = 19;
        s.dropout = 0.0f;
    }
    return s;
}

static struct agent *open_spec(const struct policy_spec *s, const char *backend)
{
    struct agent_config config = {
        .name = "pole", .options.backend = backend, .options.n_threads = 2};
    struct agent *a = NULL;

    if (policy_drive_open(&a, s, 7, &config, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    return a;
}

static struct agent *open_kind(enum policy_kind kind)
{
    const struct policy_spec s = small(kind);

    return open_spec(&s, "cpu");
}

static void open_clones(struct agent *a, struct clone **clones, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(clone_open(&clones[i], a, &(struct clone_config){0}, &err), STATUS_OK);
}

static void close_all(struct agent *a, struct clone **clones, size_t n)
{
    for (size_t i = 0; i < n; i++)
        clone_close(clones[i]);
    agent_unref(a);
}

static void drive(const struct policy_batch *b, struct answer *answers)
{
    if (policy_drive(b, answers, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
}

static struct policy_batch batch_of(struct clone **clones, size_t n)
{
    return (struct policy_batch){.clones = clones,
                                 .observations = observations[0],
                                 .n = n,
                                 .n_observations = N_OBS,
                                 .seed = 543};
}

static bool same_answer(const struct answer *a, const struct answer *b)
{
    return a->action == b->action && memcmp(&a->logp, &b->logp, sizeof(a->logp)) == 0 &&
           memcmp(&a->value, &b->value, sizeof(a->value)) == 0;
}

/* Its info; a file of this architecture is opened by this kind. */
START_TEST(says_what_it_is)
{
    struct agent *a = open_kind(POLICY_MLP);
    struct batcher_config batching;
    struct agent_info info;

    agent_describe(a, &info);
    agent_batching(a, &batching);
    ck_assert_str_eq(info.kind, "policy");
    ck_assert_str_eq(info.architecture, "mlp");
    ck_assert_str_eq(info.backend, "cpu");
    ck_assert_uint_eq(info.weight_bytes, 898 * sizeof(float)); /* the tutorial's count */
    ck_assert_uint_eq(strlen(info.version), 64);
    ck_assert_int_eq(batching.policy, BATCH_ADAPTIVE);
    ck_assert_uint_le(sizeof(struct policy_clone), 256);
    agent_unref(a);
}
END_TEST

static enum status observe(struct clone *c, const struct tensor_view *t, size_t n_tensors)
{
    struct arena arena;
    struct agent_turn turn;
    enum status rc;

    arena_init(&arena, 4096);
    agent_turn_init(&turn, &arena, 0);
    turn.seen.tensors = t;
    turn.seen.n_tensors = n_tensors;
    sampling_init(&turn.seen.sampling);
    rc = c->agent->type->observe(c, &turn, &err);
    agent_turn_deinit(&turn);
    arena_deinit(&arena);
    return rc;
}

/* An observation of another name, type or shape, or with a NaN, is refused by name, with both
 * shapes. */
START_TEST(wrong_observations_are_refused)
{
    struct agent *a = open_kind(POLICY_MLP);
    struct clone *c;
    float numbers[6] = {0};
    const struct tensor_view good = {"observation", TENSOR_F32, 1, {4}, numbers, 16};
    struct tensor_view bad = good;

    open_clones(a, &c, 1);
    ck_assert_int_eq(observe(c, &good, 1), STATUS_OK);
    ck_assert_int_eq(observe(c, NULL, 0), STATUS_INVALID);
    ck_assert_int_eq(observe(c, (struct tensor_view[]){good, good}, 2), STATUS_INVALID);
    bad.name = "state";
    ck_assert_int_eq(observe(c, &bad, 1), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "'state'"));
    bad = good;
    bad.type = TENSOR_I32;
    ck_assert_int_eq(observe(c, &bad, 1), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "i32[4]"));
    bad = good;
    bad.dims[0] = 5;
    bad.size_bytes = 20;
    ck_assert_int_eq(observe(c, &bad, 1), STATUS_INVALID);
    ck_assert_str_eq(err.text, "observation is f32[5], it must be f32[4]");
    ck_assert_str_eq(err.field, "observation");
    bad = good;
    bad.n_dims = 2;
    bad.dims[0] = 1;
    bad.dims[1] = 4;
    ck_assert_int_eq(observe(c, &bad, 1), STATUS_INVALID);
    numbers[2] = NAN;
    ck_assert_int_eq(observe(c, &good, 1), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "nan at 2"));
    numbers[2] = -INFINITY;
    ck_assert_int_eq(observe(c, &good, 1), STATUS_INVALID);
    close_all(a, &c, 1);
}
END_TEST

/* Steps in a batch, in training, have the same bits as each step alone. */
static void check_alone(struct agent *a)
{
    struct clone *clones[N], *alone[N];
    struct answer batched[N], single;

    a->type->learning->train(a, true);
    open_clones(a, clones, N);
    open_clones(a, alone, N);
    for (uint64_t step = 0; step < 5; step++) {
        struct policy_batch b = batch_of(clones, N);

        fill_observations(step);
        b.is_first = step == 3;
        drive(&b, batched);
        for (uint32_t i = 0; i < N; i++) {
            struct policy_batch one = b;

            one.clones = &alone[i];
            one.observations = observations[i];
            one.row_keys = &i;
            one.n = 1;
            drive(&one, &single);
            ck_assert(same_answer(&batched[i], &single));
            ck_assert_uint_eq(batched[i].batch_rows, N);
            ck_assert_uint_eq(single.batch_rows, 1);
        }
    }
    for (size_t i = 0; i < N; i++)
        clone_close(alone[i]);
    close_all(a, clones, N);
}

START_TEST(rows_are_what_they_are_alone)
{
    struct policy_spec s = small(POLICY_MLP);

    check_alone(open_spec(&s, "cpu"));
    check_alone(open_spec(&s, "ref"));
    s.n_layers = 3;
    s.n_hidden = 67;
    s.n_actions = 5;
    s.has_value = true;
    check_alone(open_spec(&s, "cpu"));
    s = small(POLICY_LSTM);
    s.has_value = true;
    check_alone(open_spec(&s, "cpu"));
}
END_TEST

enum { N_POLICIES = 5, GROUP_ROWS = 1 + 2 + 3 + 1 + 2 };

/* Policies of one shape, of parameters of their own. A pass has room for max_rows rows. */
static void open_group(struct agent *policies[N_POLICIES], struct clone *clones[GROUP_ROWS],
                       const struct policy_spec *s, const char *backend, size_t max_rows)
{
    static const size_t n_clones[N_POLICIES] = {1, 2, 3, 1, 2};
    size_t at = 0;

    for (size_t i = 0; i < N_POLICIES; i++) {
        struct agent_config config = {.name = "pole",
                                      .options.backend = backend,
                                      .options.n_threads = 2,
                                      .max_step_rows = max_rows};

        if (policy_drive_open(&policies[i], s, 7 + i, &config, &err) != STATUS_OK)
            ck_abort_msg("%s", err.text);
        policies[i]->type->learning->train(policies[i], i % 2 == 1);
        open_clones(policies[i], clones + at, n_clones[i]);
        at += n_clones[i];
    }
}

static void close_group(struct agent *policies[N_POLICIES], struct clone *clones[GROUP_ROWS])
{
    for (size_t i = 0; i < GROUP_ROWS; i++)
        clone_close(clones[i]);
    for (size_t i = 0; i < N_POLICIES; i++)
        agent_unref(policies[i]);
}

/* Several steps of all policies together, and of each row alone. Some of the policies train. */
static void check_group(const struct policy_spec *s, const char *backend, size_t max_rows,
                        size_t n_pass)
{
    struct agent *policies[N_POLICIES], *others[N_POLICIES];
    struct clone *clones[GROUP_ROWS], *alone[GROUP_ROWS];
    struct answer grouped[GROUP_ROWS], single;

    open_group(policies, clones, s, backend, max_rows);
    open_group(others, alone, s, backend, max_rows);
    for (size_t i = 0; i < N_POLICIES; i++)
        ck_assert(policies[i]->type->groups_with(policies[0], policies[i]));
    for (uint64_t step = 0; step < 4; step++) {
        struct policy_batch b = batch_of(clones, GROUP_ROWS);

        fill_observations(step);
        b.is_first = step == 2;
        drive(&b, grouped);
        for (uint32_t i = 0; i < GROUP_ROWS; i++) {
            struct policy_batch one = b;

            one.clones = &alone[i];
            one.observations = observations[i];
            one.row_keys = &i;
            one.n = 1;
            drive(&one, &single);
            ck_assert(same_answer(&grouped[i], &single));
        }
        ck_assert_uint_eq(grouped[0].batch_rows, n_pass);
    }
    close_group(policies, clones);
    close_group(others, alone);
}

/* Steps of several policies in one pass have the bits of each row alone, also where a pass has no
 * room for all of them. */
START_TEST(policies_together_are_what_they_are_alone)
{
    struct policy_spec s = small(POLICY_MLP);

    check_group(&s, "cpu", 0, GROUP_ROWS);
    check_group(&s, "ref", 0, GROUP_ROWS);
    check_group(&s, "cpu", 3, 3);
    s.n_layers = 3;
    s.n_hidden = 67;
    s.n_actions = 5;
    s.has_value = true;
    check_group(&s, "cpu", 0, GROUP_ROWS);
    s.n_hidden = 300;
    check_group(&s, "cpu", 0, GROUP_ROWS);
    s = small(POLICY_LSTM);
    s.has_value = true;
    check_group(&s, "cpu", 0, GROUP_ROWS);
    check_group(&s, "ref", 3, 3);
}
END_TEST

/* Policies of another shape, or on another backend, are not computed with this one. */
START_TEST(other_shapes_are_not_grouped)
{
    struct policy_spec s = small(POLICY_MLP), other[] = {s, s, s, s, small(POLICY_LSTM)};
    struct agent *a = open_spec(&s, "cpu"), *b;

    other[0].n_hidden++;
    other[1].has_value = true;
    other[2].dropout = 0.25f;
    other[3].n_layers++;
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        b = open_spec(&other[i], "cpu");
        ck_assert(!a->type->groups_with(a, b));
        agent_unref(b);
    }
    b = open_spec(&s, "ref");
    ck_assert(!a->type->groups_with(a, b));
    agent_unref(b);
    agent_unref(a);
}
END_TEST

/* Both backends give the same bits. */
START_TEST(backends_agree)
{
    for (int kind = POLICY_MLP; kind <= POLICY_LSTM; kind++) {
        const struct policy_spec s = small((enum policy_kind)kind);
        static const char *const names[] = {"cpu", "ref"};
        struct answer answers[2][N];

        for (size_t k = 0; k < 2; k++) {
            struct agent *a = open_spec(&s, names[k]);
            struct clone *clones[N];

            open_clones(a, clones, N);
            for (uint64_t step = 0; step < 3; step++) {
                struct policy_batch b = batch_of(clones, N);

                fill_observations(step);
                drive(&b, answers[k]);
            }
            close_all(a, clones, N);
        }
        for (size_t i = 0; i < N; i++)
            ck_assert(same_answer(&answers[0][i], &answers[1][i]));
    }
}
END_TEST

/* Rows in another order of arrival get the actions of their keys. */
START_TEST(arrival_does_not_matter)
{
    struct agent *a = open_kind(POLICY_MLP);
    struct clone *clones[N], *shuffled[N];
    struct answer straight[N], mixed[N];
    float moved[N][N_OBS];
    uint32_t keys[N];
    struct policy_batch b;

    a->type->learning->train(a, true);
    open_clones(a, clones, N);
    open_clones(a, shuffled, N);
    fill_observations(1);
    b = batch_of(clones, N);
    drive(&b, straight);
    for (uint32_t i = 0; i < N; i++) {
        keys[i] = i * 7 % N;
        memcpy(moved[i], observations[keys[i]], sizeof(moved[i]));
    }
    b = batch_of(shuffled, N);
    b.observations = moved[0];
    b.row_keys = keys;
    drive(&b, mixed);
    for (size_t i = 0; i < N; i++)
        ck_assert(same_answer(&mixed[i], &straight[keys[i]]));
    for (size_t i = 0; i < N; i++)
        clone_close(shuffled[i]);
    close_all(a, clones, N);
}
END_TEST

/* Actions come as often as their probability says; with temperature 0 always the likeliest. */
START_TEST(actions_follow_their_chances)
{
    enum { DRAWS = 4000 };
    struct agent *a = open_kind(POLICY_MLP);
    struct clone *c;
    struct policy_batch b = batch_of(&c, 1);
    struct answer answer;
    size_t n_ones = 0;
    double p_one = 0.0;
    int64_t greedy;

    open_clones(a, &c, 1);
    fill_observations(3);
    for (size_t i = 0; i < DRAWS; i++) {
        double p;

        drive(&b, &answer);
        p = exp((double)answer.logp);
        p_one = answer.action == 1 ? p : 1.0 - p; /* without dropout the same every step */
        n_ones += answer.action == 1;
    }
    ck_assert_double_eq_tol((double)n_ones / DRAWS, p_one, 4.0 * sqrt(0.25 / DRAWS));
    greedy = p_one > 0.5;
    b.is_greedy = true;
    for (size_t i = 0; i < 20; i++) {
        drive(&b, &answer);
        ck_assert_int_eq(answer.action, greedy);
    }
    close_all(a, &c, 1);
}
END_TEST

/* In training the dropout mask changes from step to step; else there is none. */
START_TEST(dropout_is_for_training)
{
    struct agent *a = open_kind(POLICY_MLP);
    struct clone *c;
    struct policy_batch b = batch_of(&c, 1);
    struct answer first, second;

    open_clones(a, &c, 1);
    fill_observations(3);
    b.is_greedy = true;
    drive(&b, &first);
    drive(&b, &second);
    ck_assert(same_answer(&first, &second));
    a->type->learning->train(a, true);
    drive(&b, &first);
    drive(&b, &second);
    ck_assert(first.logp != second.logp);
    a->type->learning->train(a, false);
    ck_assert_int_eq(a->type->rewind(c, 0, &err), STATUS_OK);
    drive(&b, &second);
    drive(&b, &first);
    ck_assert(same_answer(&first, &second));
    close_all(a, &c, 1);
}
END_TEST

/* After a drop, a rewind or a restore a clone continues unchanged. */
static void check_continues(enum policy_kind kind)
{
    struct agent *a = open_kind(kind);
    struct clone *clones[3]; /* a clone, its fork, a restored one */
    struct policy_batch b = batch_of(clones, 1);
    struct answer want, got;
    struct buf state;

    buf_init(&state, 1 << 20);
    open_clones(a, clones, 1);
    fill_observations(5);
    drive(&b, &want);
    drive(&b, &want);
    ck_assert_int_eq(clone_fork(&clones[1], clones[0], 2, &err), STATUS_OK);
    ck_assert_int_eq(a->type->save(clones[0], &state, &err), STATUS_OK);
    open_clones(a, &clones[2], 1);
    ck_assert_int_eq(a->type->restore(clones[2], state.data, state.len, &err), STATUS_OK);
    drive(&b, &want);
    for (size_t i = 1; i < 3; i++) {
        b.clones = &clones[i];
        drive(&b, &got);
        ck_assert(same_answer(&got, &want));
    }
    ck_assert_int_eq(a->type->restore(clones[2], state.data, state.len - 1, &err),
                     STATUS_DATA_LOSS);
    state.data[0] = 'x';
    ck_assert_int_eq(a->type->restore(clones[2], state.data, state.len, &err), STATUS_DATA_LOSS);
    ck_assert_int_eq(a->type->rewind(clones[0], 4, &err), STATUS_RANGE);
    ck_assert_int_eq(a->type->rewind(clones[0], 2, &err),
                     kind == POLICY_LSTM ? STATUS_UNIMPLEMENTED : STATUS_OK);
    ck_assert_int_eq(a->type->rewind(clones[0], 0, &err), STATUS_OK);
    a->type->reset(clones[1]);
    b.clones = &clones[0];
    drive(&b, &want);
    b.clones = &clones[1];
    drive(&b, &got);
    ck_assert(same_answer(&got, &want));
    buf_deinit(&state);
    close_all(a, clones, 3);
}

START_TEST(a_clone_can_be_taken_up)
{
    check_continues(POLICY_MLP);
    check_continues(POLICY_LSTM);
}
END_TEST

/* An LSTM's reply depends on earlier steps, but not across episodes. */
START_TEST(episodes_do_not_know_each_other)
{
    struct agent *a = open_kind(POLICY_LSTM);
    struct clone *clones[2];
    struct policy_batch b = batch_of(clones, 2);
    struct answer fresh[2], later[2], again[2];

    open_clones(a, clones, 2);
    fill_observations(5);
    b.is_greedy = true;
    drive(&b, fresh);
    drive(&b, later);
    ck_assert(fresh[0].logp != later[0].logp);
    b.is_first = true;
    drive(&b, again);
    ck_assert(same_answer(&again[0], &fresh[0]) && same_answer(&again[1], &fresh[1]));
    close_all(a, clones, 2);
}
END_TEST

/* A record holds at most max_steps; a rewind removes the last ones. */
START_TEST(records_are_bounded)
{
    struct agent *a = open_kind(POLICY_MLP);
    struct clone *c;
    struct policy_batch b = batch_of(&c, 1);
    struct clone_info info;
    struct answer answer;

    open_clones(a, &c, 1);
    fill_observations(5);
    ck_assert_int_eq(a->type->learning->record(c, (1 << 20) + 1, &err), STATUS_INVALID);
    ck_assert_int_eq(a->type->learning->record(c, 2, &err), STATUS_OK);
    drive(&b, &answer);
    drive(&b, &answer);
    ck_assert_int_eq(policy_drive(&b, &answer, &err), STATUS_PRECONDITION);
    clone_describe(c, &info);
    ck_assert_uint_eq(info.n_recorded, 2);
    ck_assert_int_eq(a->type->rewind(c, 1, &err), STATUS_OK);
    clone_describe(c, &info);
    ck_assert_uint_eq(info.n_recorded, 1);
    drive(&b, &answer);
    ck_assert_int_eq(a->type->learning->record(c, 0, &err), STATUS_OK);
    drive(&b, &answer);
    clone_describe(c, &info);
    ck_assert_uint_eq(info.n_recorded, 0);
    close_all(a, &c, 1);
}
END_TEST

SUITE_MAIN("agents/policy", says_what_it_is, wrong_observations_are_refused,
           rows_are_what_they_are_alone, policies_together_are_what_they_are_alone,
           other_shapes_are_not_grouped, backends_agree, arrival_does_not_matter,
           actions_follow_their_chances, dropout_is_for_training, a_clone_can_be_taken_up,
           episodes_do_not_know_each_other, records_are_bounded)
