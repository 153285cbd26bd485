/* Files of policies: fresh parameters are initialized as torch's layers, and damaged or
 * inconsistent files are refused by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/agent.h"
#include "agents/policy/policy.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/write.h"
#include "tests/unit/base/suite.h"

static struct error err;
static char path[] = "/tmp/policy-file-XXXXXX.gguf";

static void take_path(void)
{
    int fd;

    memcpy(path + strlen(path) - 11, "XXXXXX", 6);
    fd = mkstemps(path, 5);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
}

static enum status open_file(struct agent **out)
{
    const struct agent_config config = {
        .name = "p", .path = path, .options.backend = "ref", .env = &env_real};

    return agent_open(out, NULL, &config, &err);
}

static void check_spread(const struct gguf *g, const char *name, size_t n_rows, size_t n_cols,
                         double bound)
{
    const struct tensor *t = NULL;
    static float x[1 << 16];
    double sum = 0.0, greatest = 0.0;
    size_t n = n_rows * n_cols;

    ck_assert_int_eq(gguf_tensor(g, name, &t, &err), STATUS_OK);
    ck_assert(t->n_rows == n_rows && t->n_cols == n_cols && t->type == DTYPE_F32);
    ck_assert_uint_le(n, sizeof(x) / sizeof(x[0]));
    ck_assert_int_eq(tensor_read(t, 0, n_rows, x, &err), STATUS_OK);
    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i];
        greatest = fmax(greatest, fabs((double)x[i]));
    }
    ck_assert_double_le(greatest, bound);
    ck_assert_double_gt(greatest, 0.9 * bound); /* the greatest of hundreds of numbers */
    ck_assert_double_lt(fabs(sum / (double)n), 4.0 * bound / sqrt(3.0 * (double)n));
}

/* Uniform within 1 / sqrt(inputs): the same for the same seed, different for another. */
START_TEST(fresh_parameters)
{
    struct policy_spec spec;
    const struct tensor *t = NULL;
    struct gguf *g = NULL;
    float first[512], again[512];

    policy_spec_cartpole(&spec);
    take_path();
    for (int round = 0; round < 3; round++) {
        ck_assert_int_eq(policy_file_create(path, &spec, round < 2 ? 9 : 10, &err), STATUS_OK);
        ck_assert_int_eq(gguf_open(&g, path, &err), STATUS_OK);
        check_spread(g, "hidden.0.weight", 128, 4, 0.5);
        check_spread(g, "hidden.0.bias", 1, 128, 0.5);
        check_spread(g, "actions.weight", 2, 128, 0.08839);
        ck_assert_uint_eq(gguf_n_tensors(g), 4);
        ck_assert_int_eq(gguf_tensor(g, "hidden.0.weight", &t, &err), STATUS_OK);
        ck_assert_int_eq(tensor_read(t, 0, 128, round == 0 ? first : again, &err), STATUS_OK);
        gguf_close(g);
        if (round == 1)
            ck_assert_mem_eq(first, again, sizeof(first));
    }
    ck_assert_int_ne(memcmp(first, again, sizeof(first)), 0);
    spec.kind = POLICY_LSTM;
    spec.dropout = 0.0f;
    spec.has_value = true;
    ck_assert_int_eq(policy_file_create(path, &spec, 9, &err), STATUS_OK);
    ck_assert_int_eq(gguf_open(&g, path, &err), STATUS_OK);
    check_spread(g, "lstm.input.weight", 512, 4, 0.08839);
    check_spread(g, "lstm.state.weight", 512, 128, 0.08839);
    check_spread(g, "lstm.state.bias", 1, 512, 0.08839);
    check_spread(g, "value.weight", 1, 128, 0.08839);
    gguf_close(g);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* A spec out of bounds creates no file. */
START_TEST(specs_have_bounds)
{
    static const struct {
        size_t n_observations, n_actions, n_hidden, n_layers;
        float dropout;
        enum policy_kind kind;
        const char *field;
    } bad[] = {
        {0, 2, 8, 1, 0, POLICY_MLP, "observation_length"},
        {4, 1, 8, 1, 0, POLICY_MLP, "action_count"},
        {4, 2, POLICY_MAX_WIDTH + 1, 1, 0, POLICY_MLP, "hidden_length"},
        {4, 2, 8, POLICY_MAX_LAYERS + 1, 0, POLICY_MLP, "hidden_layers"},
        {4, 2, 8, 2, 0, POLICY_LSTM, "hidden_layers"},
        {4, 2, 8, 1, 1, POLICY_MLP, "dropout"},
        {4, 2, 8, 1, NAN, POLICY_MLP, "dropout"},
        {4, 2, 8, 1, 0.5f, POLICY_LSTM, "dropout"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const struct policy_spec spec = {.kind = bad[i].kind,
                                         .n_observations = bad[i].n_observations,
                                         .n_actions = bad[i].n_actions,
                                         .n_hidden = bad[i].n_hidden,
                                         .n_layers = bad[i].n_layers,
                                         .dropout = bad[i].dropout};

        ck_assert_int_eq(policy_file_create("/tmp/policy-never.gguf", &spec, 1, &err),
                         STATUS_INVALID);
        ck_assert_str_eq(err.field, bad[i].field);
    }
    ck_assert_int_ne(access("/tmp/policy-never.gguf", F_OK), 0);
}
END_TEST

/* Defects of a file of 2 inputs, 3 hidden, 2 actions. */
struct damage {
    const char *leave_out; /* a key or tensor */
    const char *kind, *head;
    size_t n_hidden, n_layers;
    float dropout, poison; /* in actions.weight */
    const char *add;       /* one more tensor */
    bool is_narrow;        /* hidden.0.weight lacks a column */
    uint64_t adam_steps;   /* above 0: it has learned, and moments follow its parameters */
    float square;          /* in hidden.0.weight.v */
    bool is_m_narrow;      /* hidden.0.weight.m lacks a column */
};

static bool is_there(const struct damage *d, const char *name)
{
    return name != NULL && (d->leave_out == NULL || strcmp(d->leave_out, name) != 0);
}

static void tell_size(struct gguf_writer *w, const struct damage *d, const char *key, size_t value)
{
    if (is_there(d, key))
        gguf_write_u64(w, key, value);
}

static void write_damaged(const struct damage *d)
{
    const struct {
        const char *name;
        size_t n_rows, n_cols;
        bool is_moment;
    } tensors[] = {{"hidden.0.weight", 3, d->is_narrow ? 1 : 2, false},
                   {"hidden.0.bias", 1, 3, false},
                   {"actions.weight", 2, 3, false},
                   {"actions.bias", 1, 2, false},
                   {d->add, 1, 1, false},
                   {"hidden.0.weight.m", 3, d->is_m_narrow ? 1 : 2, true},
                   {"hidden.0.bias.m", 1, 3, true},
                   {"actions.weight.m", 2, 3, true},
                   {"actions.bias.m", 1, 2, true},
                   {"hidden.0.weight.v", 3, 2, true},
                   {"hidden.0.bias.v", 1, 3, true},
                   {"actions.weight.v", 2, 3, true},
                   {"actions.bias.v", 1, 2, true}};
    const size_t n_tensors = sizeof(tensors) / sizeof(tensors[0]);
    const float numbers[6] = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f};
    struct gguf_writer *w;

    ck_assert_int_eq(gguf_writer_open(&w, path, &err), STATUS_OK);
    gguf_write_text(w, "general.architecture", "policy");
    if (is_there(d, "policy.kind"))
        gguf_write_text(w, "policy.kind", d->kind != NULL ? d->kind : "mlp");
    if (d->head != NULL)
        gguf_write_text(w, "policy.head", d->head);
    gguf_write_text(w, "policy.environment", "");
    tell_size(w, d, "policy.observation_length", 2);
    tell_size(w, d, "policy.action_count", 2);
    tell_size(w, d, "policy.hidden_length", d->n_hidden != 0 ? d->n_hidden : 3);
    tell_size(w, d, "policy.hidden_layers", d->n_layers != 0 ? d->n_layers : 1);
    gguf_write_f32(w, "policy.dropout", d->dropout);
    gguf_write_bool(w, "policy.has_value", false);
    gguf_write_u64(w, "policy.seed", 1);
    if (d->adam_steps > 0 && is_there(d, "policy.adam_steps"))
        gguf_write_u64(w, "policy.adam_steps", d->adam_steps);
    for (size_t i = 0; i < n_tensors; i++)
        if (is_there(d, tensors[i].name) && (d->adam_steps > 0 || !tensors[i].is_moment))
            gguf_write_tensor(w, tensors[i].name, tensors[i].n_rows, tensors[i].n_cols);
    for (size_t i = 0; i < n_tensors; i++) {
        bool is_square = tensors[i].is_moment && strcmp(tensors[i].name, "hidden.0.weight.v") == 0;
        float poison = i == 2 ? d->poison : is_square ? d->square : 0.0f;

        if (!is_there(d, tensors[i].name) || (d->adam_steps == 0 && tensors[i].is_moment))
            continue;
        if (poison != 0.0f) {
            gguf_write_data(w, numbers, 4);
            gguf_write_data(w, &poison, 1);
            gguf_write_data(w, numbers, 1);
        } else {
            gguf_write_data(w, numbers, tensors[i].n_rows * tensors[i].n_cols);
        }
    }
    ck_assert_int_eq(gguf_writer_commit(w, &err), STATUS_OK);
    gguf_writer_close(w);
}

/* Each is refused with its status, in words that name the file and what is wrong. */
START_TEST(damaged_files_are_refused)
{
    static const struct {
        struct damage damage;
        enum status status;
        const char *words;
    } cases[] = {
        {{.leave_out = "policy.hidden_length"}, STATUS_DATA_LOSS, "policy.hidden_length"},
        {{.leave_out = "actions.bias"}, STATUS_DATA_LOSS, "actions.bias"},
        {{.kind = "gru"}, STATUS_UNIMPLEMENTED, "'gru'"},
        {{.kind = "lstm"}, STATUS_DATA_LOSS, "lstm.input.weight"},
        {{.head = "beta"}, STATUS_UNIMPLEMENTED, "'beta'"},
        {{.head = "gaussian"}, STATUS_DATA_LOSS, "'actions.weight' is F32 [2][3]"},
        {{.head = "duelling"}, STATUS_DATA_LOSS, "policy.has_value is false"},
        {{.n_hidden = 4}, STATUS_DATA_LOSS, "'hidden.0.weight' is F32 [3][2]"},
        {{.n_hidden = 70000}, STATUS_DATA_LOSS, "policy.hidden_length is 70000"},
        {{.n_layers = 2}, STATUS_DATA_LOSS, "hidden.1.weight"},
        {{.dropout = 1.5f}, STATUS_DATA_LOSS, "policy.dropout is 1.5"},
        {{.poison = NAN}, STATUS_DATA_LOSS, "'actions.weight' has the value nan at 4"},
        {{.poison = INFINITY}, STATUS_DATA_LOSS, "'actions.weight' has the value inf at 4"},
        {{.is_narrow = true}, STATUS_DATA_LOSS, "it must be f32 [3][2]"},
        {{.add = "more"}, STATUS_DATA_LOSS, "5 tensors"},
        {{.adam_steps = 1, .leave_out = "policy.adam_steps"}, STATUS_DATA_LOSS, "12 tensors"},
        {{.adam_steps = 1, .leave_out = "actions.bias.v"}, STATUS_DATA_LOSS, "actions.bias.v"},
        {{.adam_steps = 1, .is_m_narrow = true},
         STATUS_DATA_LOSS,
         "'hidden.0.weight.m' is F32 [3][1], it must be f32 [3][2]"},
        {{.adam_steps = 1, .square = -0.5f},
         STATUS_DATA_LOSS,
         "'hidden.0.weight.v' holds -0.5 at 4, it must be 0 or above"},
        {{.adam_steps = 1, .square = NAN},
         STATUS_DATA_LOSS,
         "'hidden.0.weight.v' has the value nan at 4"},
        {{.adam_steps = UINT64_MAX}, STATUS_DATA_LOSS, "policy.adam_steps is 18446744073709551615"},
    };
    const struct damage none = {0}, learned = {.adam_steps = 7};
    struct agent *a = NULL;

    take_path();
    write_damaged(&none);
    if (open_file(&a) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    agent_unref(a);
    write_damaged(&learned);
    if (open_file(&a) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    agent_unref(a);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        enum status rc;

        a = NULL;
        write_damaged(&cases[i].damage);
        rc = open_file(&a);
        if (rc != cases[i].status || strstr(err.text, cases[i].words) == NULL ||
            strstr(err.text, path) == NULL)
            ck_abort_msg("case %zu: status %d, %s", i, rc, err.text);
        ck_assert_ptr_null(a);
        ck_assert_int_eq(policy_file_copy(path, "/tmp/policy-never.gguf", NULL, &err), rc);
        ck_assert_int_ne(access("/tmp/policy-never.gguf", F_OK), 0);
    }
    ck_assert_int_eq(truncate(path, 300), 0);
    ck_assert_int_eq(open_file(&a), STATUS_DATA_LOSS);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(open_file(&a), STATUS_NOT_FOUND);
}
END_TEST

SUITE_MAIN("agents/policy/file", fresh_parameters, specs_have_bounds, damaged_files_are_refused)
