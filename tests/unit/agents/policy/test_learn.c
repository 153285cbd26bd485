/* Learning: the gradient matches the reported loss, rows and clones may be computed together or one
 * by one, and a policy learns what it is rewarded for. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/policy/parts.h"
#include "agents/policy/policy.h"
#include "base/counter_rng.h"
#include "compute/gguf/gguf.h"
#include "compute/ref/ref.h"
#include "tests/support/policy_driver.h"
#include "tests/unit/base/suite.h"

enum { MAX_CLONES = 16, N_OBS = 3 };

static struct error err;

static const struct learn_config plain = {.learning_rate = 0.01f};

static struct policy_spec spec_of_kind(enum policy_kind kind, bool has_value)
{
    return (struct policy_spec){.kind = kind,
                                .n_observations = N_OBS,
                                .n_actions = 3,
                                .n_hidden = kind == POLICY_LSTM ? 5 : 9,
                                .n_layers = kind == POLICY_LSTM ? 1 : 2,
                                .dropout = kind == POLICY_LSTM ? 0.0f : 0.3f,
                                .has_value = has_value};
}

/* An agent, and clones that have recorded n_steps: in one batch per step, or each alone. */
struct class
{
    struct agent *agent;
    struct clone *clones[MAX_CLONES];
    size_t n, n_steps;
    int64_t *actions; /* [n][n_steps] */
    float *returns;   /* [n][n_steps] */
};

static struct policy *policy_in(const struct class *c)
{
    return container_of(c->agent, struct policy, base);
}

static float some(uint32_t clone, uint32_t step, uint32_t which)
{
    return 2.0f * counter_rng_uniform(11, clone, step, which) - 1.0f;
}

static void one_step(struct class *c, uint32_t first, uint32_t n, uint32_t step)
{
    float observations[MAX_CLONES][N_OBS];
    struct answer answers[MAX_CLONES];
    uint32_t keys[MAX_CLONES];
    struct policy_batch b = {.clones = c->clones + first,
                             .observations = observations[0],
                             .n = n,
                             .n_observations = N_OBS,
                             .seed = 3,
                             .is_first = step == 4, /* a second episode begins */
                             .row_keys = keys};

    for (uint32_t i = 0; i < n; i++) {
        keys[i] = first + i;
        for (uint32_t k = 0; k < N_OBS; k++)
            observations[i][k] = some(first + i, step, k);
    }
    if (policy_drive(&b, answers, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    for (uint32_t i = 0; i < n; i++)
        c->actions[(first + i) * c->n_steps + step] = answers[i].action;
}

static void all_steps(struct class *c, bool is_batched)
{
    for (uint32_t t = 0; t < c->n_steps; t++)
        for (uint32_t i = 0; i < c->n; i++) {
            if (!is_batched)
                one_step(c, i, 1, t);
            else if (i == 0)
                one_step(c, 0, (uint32_t)c->n, t);
            c->returns[i * c->n_steps + t] = 1.5f + some(i, t, 77);
        }
}

/* Makes a class of the agent, which the class owns from then on. Nothing is recorded yet. */
static void gather_class(struct class *c, struct agent *agent, size_t n, size_t n_steps)
{
    *c = (struct class){.agent = agent, .n = n, .n_steps = n_steps};
    c->actions = calloc(n * n_steps, sizeof(*c->actions));
    c->returns = calloc(n * n_steps, sizeof(*c->returns));
    agent->type->learning->train(agent, true);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_eq(clone_open(&c->clones[i], agent, &(struct clone_config){0}, &err),
                         STATUS_OK);
        ck_assert_int_eq(agent->type->learning->record(c->clones[i], n_steps, &err), STATUS_OK);
    }
}

static void open_class_on(struct class *c, struct agent_config *config,
                          const struct policy_spec *spec, size_t n, size_t n_steps, bool is_batched)
{
    struct agent *agent = NULL;

    if (policy_drive_open(&agent, spec, 21, config, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    gather_class(c, agent, n, n_steps);
    all_steps(c, is_batched);
}

static void open_class(struct class *c, const struct policy_spec *spec, size_t n, size_t n_steps,
                       bool is_batched, size_t max_rows)
{
    struct agent_config config = {.name = "p", .max_step_rows = max_rows, .options.n_threads = 1};

    open_class_on(c, &config, spec, n, n_steps, is_batched);
}

static void close_class(struct class *c)
{
    for (size_t i = 0; i < c->n; i++)
        clone_close(c->clones[i]);
    agent_unref(c->agent);
    free(c->actions);
    free(c->returns);
}

/* Restores the records that learning emptied. */
static void recall(struct class *c)
{
    for (size_t i = 0; i < c->n; i++)
        container_of(c->clones[i], struct policy_clone, base)->record->n = c->n_steps;
}

static struct learn_report learn(struct class *c, const struct learn_config *config)
{
    struct learn_report report;

    recall(c);
    if (c->agent->type->learning->learn(c->agent, c->clones, c->n, c->returns, c->n_steps, config,
                                        &report, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    return report;
}

/* The current loss, by learning at a rate too small to change parameters. */
static double loss_now(struct class *c, const struct learn_config *config)
{
    struct learn_config still = *config;

    still.learning_rate = 1e-30f;
    return learn(c, &still).loss;
}

static void read_buffer(struct policy *p, const struct buffer *m, float *out, size_t n)
{
    p->backend->type->download(p->backend, out, m, n * sizeof(*out));
    ck_assert_int_eq(p->backend->type->sync(p->backend, &err), STATUS_OK);
}

/* Writes at most max gradients, one after the other; returns how many there are. */
static size_t gradients(struct policy *p, float *out, size_t max)
{
    size_t len = 0;

    for (size_t i = 0; i < 2 * p->net.n_layers; i++) {
        char name[PARAM_NAME_SIZE];
        struct param *param = network_param(&p->net, i / 2, (int)(i % 2), name);
        size_t n = param->n_rows * param->n_cols;

        ck_assert_uint_le(len + n, max);
        read_buffer(p, param->gradient, out + len, n);
        len += n;
    }
    return len;
}

static float *number_at(struct policy *p, float *values, size_t at, struct param **ret_param,
                        size_t *ret_n)
{
    for (size_t i = 0;; i++) {
        char name[PARAM_NAME_SIZE];
        struct param *param = network_param(&p->net, i / 2, (int)(i % 2), name);
        size_t n = param->n_rows * param->n_cols;

        if (at < n) {
            read_buffer(p, param->value, values, n);
            *ret_param = param;
            *ret_n = n;
            return values + at;
        }
        at -= n;
    }
}

enum { MAX_PARAMS = 2048 };

/* The difference of config's loss and that of less, if less is not NULL. */
static double loss_beyond(struct class *c, const struct learn_config *config,
                          const struct learn_config *less)
{
    return loss_now(c, config) - (less != NULL ? loss_now(c, less) : 0.0);
}

static size_t gradient_beyond(struct class *c, const struct learn_config *config,
                              const struct learn_config *less, float *out)
{
    static float base[MAX_PARAMS];
    size_t n;

    (void)loss_now(c, config);
    n = gradients(policy_in(c), out, MAX_PARAMS);
    if (less == NULL)
        return n;
    (void)loss_now(c, less);
    (void)gradients(policy_in(c), base, MAX_PARAMS);
    for (size_t i = 0; i < n; i++)
        out[i] -= base[i];
    return n;
}

/* Moves every parameter a little either way: the loss changes as the gradient predicts. Little, so
 * that no ReLU crosses its kink. */
static void check_gradient(const struct policy_spec *spec, const struct learn_config *config,
                           const struct learn_config *less)
{
    const float little = 2e-4f;
    static float gradient[MAX_PARAMS], values[MAX_PARAMS];
    double largest = 0.0;
    struct policy *p;
    struct class c;
    size_t n;

    open_class(&c, spec, 4, 7, true, 0);
    p = policy_in(&c);
    n = gradient_beyond(&c, config, less, gradient);
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)gradient[i]));
    ck_assert_double_gt(largest, 0.1);
    for (size_t i = 0; i < n; i++) {
        struct param *param;
        double loss[2], at[2];
        size_t n_values;
        float *x = number_at(p, values, i, &param, &n_values), was = *x;

        for (size_t k = 0; k < 2; k++) {
            *x = k == 0 ? was + little : was - little;
            at[k] = (double)*x;
            p->backend->type->upload(p->backend, param->value, values, n_values * sizeof(*values));
            loss[k] = loss_beyond(&c, config, less);
        }
        *x = was;
        p->backend->type->upload(p->backend, param->value, values, n_values * sizeof(*values));
        ck_assert_double_eq_tol((double)gradient[i], (loss[0] - loss[1]) / (at[0] - at[1]),
                                1e-3 * largest);
    }
    close_class(&c);
}

/* Through layers, masks and ReLU; with the tutorial's loss; with normalised returns. */
START_TEST(gradient_of_an_mlp)
{
    const struct policy_spec spec = spec_of_kind(POLICY_MLP, false);
    struct learn_config config = plain;

    check_gradient(&spec, &config, NULL);
    config.loss = LEARN_TUTORIAL;
    check_gradient(&spec, &config, NULL);
    config = plain;
    config.normalise = true;
    check_gradient(&spec, &config, NULL);
}
END_TEST

/* Through time, across the border of an episode. */
START_TEST(gradient_of_an_lstm)
{
    const struct policy_spec spec = spec_of_kind(POLICY_LSTM, false);

    check_gradient(&spec, &plain, NULL);
}
END_TEST

/* The entropy's gradient. */
START_TEST(gradient_of_entropy)
{
    const struct policy_spec mlp = spec_of_kind(POLICY_MLP, false);
    const struct policy_spec lstm = spec_of_kind(POLICY_LSTM, false);
    struct learn_config config = plain;

    config.entropy_weight = 0.4f;
    check_gradient(&mlp, &config, NULL);
    check_gradient(&lstm, &config, NULL);
}
END_TEST

/* The value's gradient: the difference between two value weights, since the value that is
 * subtracted from the log-probabilities' weights has no gradient and is the same in both. */
START_TEST(gradient_of_values)
{
    const struct policy_spec mlp = spec_of_kind(POLICY_MLP, true);
    const struct policy_spec lstm = spec_of_kind(POLICY_LSTM, true);
    struct learn_config config = plain, less = plain;

    config.value_weight = 1.5f;
    less.value_weight = 0.5f;
    check_gradient(&mlp, &config, &less);
    check_gradient(&lstm, &config, &less);
}
END_TEST

/* Clones that act and learn one by one, with few rows at a time, give the same actions and
 * gradient. */
static void check_together(enum policy_kind kind)
{
    static const size_t max_rows[] = {0, 1, 3};
    const struct policy_spec spec = spec_of_kind(kind, true);
    static float want[MAX_PARAMS], got[MAX_PARAMS];
    struct learn_config config = plain;
    struct class all, apart;
    double largest = 0.0;
    size_t n;

    config.value_weight = 0.5f;
    config.entropy_weight = 0.01f;
    open_class(&all, &spec, 7, 9, true, 0);
    (void)loss_now(&all, &config);
    n = gradients(policy_in(&all), want, MAX_PARAMS);
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (size_t k = 0; k < sizeof(max_rows) / sizeof(max_rows[0]); k++) {
        open_class(&apart, &spec, 7, 9, false, max_rows[k]);
        ck_assert_mem_eq(all.actions, apart.actions, 7 * 9 * sizeof(*all.actions));
        (void)loss_now(&apart, &config);
        ck_assert_uint_eq(gradients(policy_in(&apart), got, MAX_PARAMS), n);
        for (size_t i = 0; i < n; i++)
            ck_assert_double_eq_tol((double)got[i], (double)want[i], 1e-5 * largest);
        close_class(&apart);
    }
    close_class(&all);
}

START_TEST(together_or_apart)
{
    check_together(POLICY_MLP);
    check_together(POLICY_LSTM);
}
END_TEST

/* The tutorial's loss weights every clone's step by the sum of all clones' returns: with one clone
 * it is correct, with more it is not; if all returns are 1 it is n times as large. */
START_TEST(the_tutorials_loss)
{
    const struct policy_spec spec = spec_of_kind(POLICY_MLP, false);
    struct learn_config tutorial = plain;
    struct class c;

    tutorial.loss = LEARN_TUTORIAL;
    open_class(&c, &spec, 1, 8, true, 0);
    ck_assert(loss_now(&c, &plain) == loss_now(&c, &tutorial));
    close_class(&c);
    open_class(&c, &spec, 6, 8, true, 0);
    for (size_t i = 0; i < 6 * 8; i++)
        c.returns[i] = 1.0f;
    ck_assert_double_eq_tol(loss_now(&c, &tutorial), 6.0 * loss_now(&c, &plain), 1e-4);
    close_class(&c);
}
END_TEST

/* Invalid input to learning is refused, and neither parameters nor records change. */
START_TEST(refusals_change_nothing)
{
    const struct policy_spec spec = spec_of_kind(POLICY_MLP, false);
    struct learn_config config = plain;
    struct learn_report report;
    struct clone_info info;
    struct class c;
    const struct agent_type *type;
    double before;

    open_class(&c, &spec, 3, 5, true, 0);
    type = c.agent->type;
    before = loss_now(&c, &plain);
    recall(&c);
    ck_assert_int_eq(
        type->learning->learn(c.agent, c.clones, 3, c.returns, 4, &plain, &report, &err),
        STATUS_PRECONDITION);
    c.returns[7] = NAN;
    ck_assert_int_eq(
        type->learning->learn(c.agent, c.clones, 3, c.returns, 5, &plain, &report, &err),
        STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "clone 1, step 2"));
    c.returns[7] = 3e38f; /* its gradient overflows */
    c.returns[8] = 3e38f;
    config.loss = LEARN_TUTORIAL;
    c.returns[7 + 5] = 3e38f;
    ck_assert_int_eq(
        type->learning->learn(c.agent, c.clones, 3, c.returns, 5, &config, &report, &err),
        STATUS_INTERNAL);
    for (size_t i = 0; i < 3 * 5; i++)
        c.returns[i] = 1e25f; /* its square overflows */
    ck_assert_int_eq(
        type->learning->learn(c.agent, c.clones, 3, c.returns, 5, &plain, &report, &err),
        STATUS_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.text, "too large for f32"));
    for (uint32_t i = 0; i < 3 * 5; i++)
        c.returns[i] = 1.5f + some(i / 5, i % 5, 77);
    c.returns[7 + 5] = 1.5f + some(2, 2, 77);
    c.returns[7] = 1.5f + some(1, 2, 77);
    c.returns[8] = 1.5f + some(1, 3, 77);
    config = plain;
    config.learning_rate = -1.0f;
    ck_assert_int_eq(
        type->learning->learn(c.agent, c.clones, 3, c.returns, 5, &config, &report, &err),
        STATUS_INVALID);
    config = plain;
    config.value_weight = 0.5f;
    ck_assert_int_eq(
        type->learning->learn(c.agent, c.clones, 3, c.returns, 5, &config, &report, &err),
        STATUS_PRECONDITION);
    type->clone_info(c.clones[0], &info);
    ck_assert_uint_eq(info.n_recorded, 5);
    ck_assert(loss_now(&c, &plain) == before);
    close_class(&c);
}
END_TEST

/* The version counts up, records are emptied, and the saved file has the learned parameters. */
START_TEST(what_is_learned_is_saved)
{
    const struct policy_spec spec = spec_of_kind(POLICY_LSTM, true);
    char path[] = "/tmp/policy-learned-XXXXXX.gguf";
    struct agent_config config = {
        .name = "q", .options.backend = "cpu", .path = path, .env = &env_real};
    struct learn_report report;
    struct clone_info info;
    struct agent *loaded = NULL;
    float was[MAX_PARAMS], is[MAX_PARAMS];
    struct class c;
    int fd = mkstemps(path, 5);

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    open_class(&c, &spec, 3, 5, true, 0);
    report = learn(&c, &plain);
    ck_assert_uint_eq(report.params_version, 2);
    ck_assert_double_gt(report.gradient_norm, 0.0);
    ck_assert(report.entropy > 0.5 && report.entropy < log(3.0) + 1e-6);
    clone_describe(c.clones[0], &info);
    ck_assert_uint_eq(info.n_recorded, 0);
    ck_assert_int_eq(c.agent->type->learning->save(c.agent, path, &err), STATUS_OK);
    if (agent_open(&loaded, NULL, &config, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    for (size_t i = 0; i < 2 * policy_in(&c)->net.n_layers; i++) {
        struct policy *p = policy_in(&c), *q = container_of(loaded, struct policy, base);
        char name[PARAM_NAME_SIZE];
        const struct param *a = network_param(&p->net, i / 2, (int)(i % 2), name);
        const struct param *b = network_param(&q->net, i / 2, (int)(i % 2), name);
        size_t n = a->n_rows * a->n_cols;

        read_buffer(p, a->value, was, n);
        read_buffer(q, b->value, is, n);
        ck_assert_mem_eq(was, is, n * sizeof(*was));
    }
    agent_unref(loaded);
    ck_assert_int_eq(remove(path), 0);
    close_class(&c);
}
END_TEST

/* Records the same steps from the start and learns from them. */
static void study(struct class *c)
{
    for (size_t i = 0; i < c->n; i++)
        c->agent->type->reset(c->clones[i]);
    all_steps(c, true);
    (void)learn(c, &plain);
}

static void check_same_numbers(const struct class *a, const struct class *b)
{
    struct network *nets[] = {&policy_in(a)->net, &policy_in(b)->net};
    float numbers[2][3 * MAX_PARAMS];

    ck_assert_uint_eq(nets[0]->n_steps, nets[1]->n_steps);
    ck_assert_uint_le(3 * nets[0]->n_numbers, 3 * MAX_PARAMS);
    for (size_t i = 0; i < 2; i++) {
        network_fetch(nets[i], 3, numbers[i]);
        ck_assert_int_eq(policy_sync(policy_in(i == 0 ? a : b), &err), STATUS_OK);
    }
    ck_assert_mem_eq(numbers[0], numbers[1], 3 * nets[0]->n_numbers * sizeof(float));
}

static void has_text(const char *path, const char *key, const char *text)
{
    const char *found = "";
    size_t len = 0;
    struct gguf *g;

    ck_assert_int_eq(gguf_open(&g, path, &err), STATUS_OK);
    if (text == NULL)
        ck_assert_int_eq(gguf_get_text(g, key, &found, &len, &err), STATUS_NOT_FOUND);
    else
        ck_assert_int_eq(gguf_get_text(g, key, &found, &len, &err), STATUS_OK);
    ck_assert(text == NULL || (len == strlen(text) && memcmp(found, text, len) == 0));
    gguf_close(g);
}

/* A copy is the same file, the moments included; with a text it can be copied back. */
static void copies(const char *path, const char *copy)
{
    ck_assert_int_eq(policy_file_copy(path, copy, "{\"n\":1}", &err), STATUS_OK);
    ck_assert(!policy_same_files(path, copy));
    has_text(copy, "training.state", "{\"n\":1}");
    ck_assert_int_eq(policy_file_copy(copy, copy, NULL, &err), STATUS_OK);
    has_text(copy, "training.state", NULL);
    ck_assert(policy_same_files(path, copy));
}

/* A saved policy continues to learn as without saving, to the last bit: its file holds Adam's
 * moments and the number of steps. Saved again before it learns, the file is the same. */
static void learn_on(const struct policy_spec *spec)
{
    char path[] = "/tmp/policy-learned-XXXXXX.gguf", copy[] = "/tmp/policy-copy-XXXXXX.gguf";
    const struct agent_config config = {
        .name = "q", .options.backend = "cpu", .path = path, .env = &env_real};
    struct class c, on;
    int fds[] = {mkstemps(path, 5), mkstemps(copy, 5)};
    struct agent *saved = NULL;

    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_ge(fds[i], 0);
        (void)close(fds[i]);
    }
    open_class(&c, spec, 3, 5, true, 0);
    study(&c);
    study(&c);
    ck_assert_int_eq(c.agent->type->learning->save(c.agent, path, &err), STATUS_OK);
    if (agent_open(&saved, NULL, &config, &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    ck_assert_int_eq(saved->type->learning->save(saved, copy, &err), STATUS_OK);
    ck_assert(policy_same_files(path, copy));
    copies(path, copy);
    gather_class(&on, saved, 3, 5);
    check_same_numbers(&c, &on);
    study(&c);
    study(&on);
    check_same_numbers(&c, &on);
    ck_assert_uint_eq(policy_in(&on)->net.n_steps, 3);
    close_class(&on);
    close_class(&c);
    ck_assert_int_eq(remove(path), 0);
    ck_assert_int_eq(remove(copy), 0);
}

START_TEST(a_saved_policy_learns_on)
{
    const struct policy_spec mlp = spec_of_kind(POLICY_MLP, true);
    const struct policy_spec lstm = spec_of_kind(POLICY_LSTM, true);

    learn_on(&mlp);
    learn_on(&lstm);
}
END_TEST

/* --- what is copied to the host --- */

static size_t n_downloaded; /* numbers */

static void counted_download(struct backend *b, void *to, const struct buffer *from,
                             size_t size_bytes)
{
    n_downloaded += size_bytes / sizeof(float);
    ref_backend.download(b, to, from, size_bytes);
}

static size_t some_memory(struct backend *b)
{
    return 1 << 20;
}

/* How many numbers a lesson of one step copies to the host; *ret_n_numbers: the policy's
 * parameters. */
static size_t copied_by_lesson(const struct backend_type *type, size_t *ret_n_numbers)
{
    const struct policy_spec spec = spec_of_kind(POLICY_MLP, false);
    struct agent_config config = {.name = "p", .backend_type = type};
    struct class c;
    size_t n;

    open_class_on(&c, &config, &spec, 2, 1, true);
    n_downloaded = 0;
    (void)learn(&c, &plain);
    n = n_downloaded;
    *ret_n_numbers = policy_in(&c)->net.n_numbers;
    close_class(&c);
    return n;
}

/* A device may fail, so the host copies the new parameters and Adam's moments; in the host's own
 * memory nothing is copied. */
START_TEST(only_a_device_is_copied)
{
    struct backend_type host = ref_backend, device;
    size_t of_host, of_device, n_numbers;

    host.download = counted_download;
    device = host;
    device.memory_free = some_memory;
    of_host = copied_by_lesson(&host, &n_numbers);
    of_device = copied_by_lesson(&device, &n_numbers);
    ck_assert_uint_ge(of_host, n_numbers); /* the gradient's norm */
    ck_assert_uint_eq(of_device, of_host + 3 * n_numbers);
}
END_TEST

/* The task: tell at the last step whether the first observation was positive; one step for a policy
 * without memory. Returns the share of right actions over the last rounds. */
static double practise(const struct policy_spec *spec, uint32_t n_steps, size_t n_rounds)
{
    struct agent_config config = {.name = "p", .options.n_threads = 1};
    const struct learn_config learning = {.learning_rate = 0.02f, .normalise = true};
    struct clone *clones[MAX_CLONES];
    size_t n_right = 0, n_last = n_rounds / 5;
    struct agent *a;

    ck_assert_int_eq(policy_drive_open(&a, spec, 5, &config, &err), STATUS_OK);
    a->type->learning->train(a, true);
    for (size_t i = 0; i < MAX_CLONES; i++) {
        ck_assert_int_eq(clone_open(&clones[i], a, &(struct clone_config){0}, &err), STATUS_OK);
        ck_assert_int_eq(a->type->learning->record(clones[i], n_steps, &err), STATUS_OK);
    }
    for (uint32_t round = 0; round < n_rounds; round++) {
        float observations[MAX_CLONES][N_OBS] = {{0}}, *returns;
        bool is_up[MAX_CLONES];
        struct answer answers[MAX_CLONES];
        struct learn_report report;
        struct policy_batch b = {.clones = clones,
                                 .observations = observations[0],
                                 .n = MAX_CLONES,
                                 .n_observations = N_OBS,
                                 .seed = 17};

        returns = calloc(MAX_CLONES * n_steps, sizeof(*returns));
        for (uint32_t i = 0; i < MAX_CLONES; i++)
            is_up[i] = some(i, round, 5) > 0.0f;
        for (uint32_t t = 0; t < n_steps; t++) {
            for (size_t i = 0; i < MAX_CLONES; i++)
                observations[i][0] = t > 0 ? 0.0f : is_up[i] ? 1.0f : -1.0f;
            b.is_first = t == 0;
            ck_assert_int_eq(policy_drive(&b, answers, &err), STATUS_OK);
        }
        for (size_t i = 0; i < MAX_CLONES; i++) {
            bool is_right = (answers[i].action == 1) == is_up[i];

            for (uint32_t t = 0; t < n_steps; t++)
                returns[i * n_steps + t] = is_right ? 1.0f : -1.0f;
            n_right += is_right && round >= n_rounds - n_last;
        }
        ck_assert_int_eq(a->type->learning->learn(a, clones, MAX_CLONES, returns, n_steps,
                                                  &learning, &report, &err),
                         STATUS_OK);
        free(returns);
    }
    for (size_t i = 0; i < MAX_CLONES; i++)
        clone_close(clones[i]);
    agent_unref(a);
    return (double)n_right / (double)(n_last * MAX_CLONES);
}

START_TEST(practice_pays)
{
    struct policy_spec spec = spec_of_kind(POLICY_MLP, false);

    spec.n_actions = 2;
    spec.n_hidden = 32;
    ck_assert_double_gt(practise(&spec, 1, 200), 0.9);
    spec = spec_of_kind(POLICY_LSTM, false);
    spec.n_actions = 2;
    spec.n_hidden = 8;
    ck_assert_double_gt(practise(&spec, 3, 300), 0.9);
}
END_TEST

SUITE_MAIN("agents/policy/learn", gradient_of_an_mlp, gradient_of_an_lstm, gradient_of_entropy,
           gradient_of_values, together_or_apart, the_tutorials_loss, refusals_change_nothing,
           what_is_learned_is_saved, a_saved_policy_learns_on, only_a_device_is_copied,
           practice_pays)
