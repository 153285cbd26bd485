/* A policy's file: GGUF of architecture "policy", its spec in policy.*, its parameters as f32
 * tensors named after their layers. If it has learned, policy.adam_steps counts the steps, and
 * NAME.m and NAME.v are Adam's moments of NAME; without that key there are no moments. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/policy/parts.h"
#include "base/alloc.h"
#include "base/counter_rng.h"
#include "compute/gguf/write.h"

enum { PIECE = 4096 /* numbers drawn or checked at a time */ };

/* The most optimiser steps that a file may hold; counting on from there cannot overflow. */
static const uint64_t max_steps = UINT64_C(1) << 48;

enum { TENSOR_NAME_SIZE = PARAM_NAME_SIZE + 2 };

static const char *const kinds[] = {[POLICY_MLP] = "mlp", [POLICY_LSTM] = "lstm"};

enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static const char *const heads[] = {
    [POLICY_SOFTMAX] = "softmax", [POLICY_GAUSSIAN] = "gaussian", [POLICY_DUELLING] = "duelling"};

enum { N_HEADS = sizeof(heads) / sizeof(heads[0]) };

const char *policy_head_name(enum policy_head head)
{
    return heads[head];
}

const char *policy_kind_name(enum policy_kind kind)
{
    return kinds[kind];
}

void policy_spec_cartpole(struct policy_spec *out)
{
    *out = (struct policy_spec){.kind = POLICY_MLP,
                                .n_observations = 4,
                                .n_actions = 2,
                                .n_hidden = 128,
                                .n_layers = 1,
                                .dropout = 0.6f,
                                .environment = "CartPole-v1"};
}

enum status policy_spec_check(const struct policy_spec *s, struct error *err)
{
    const struct {
        const char *name;
        size_t value, least, most;
    } sizes[] = {
        {"observation_length", s->n_observations, 1, POLICY_MAX_WIDTH},
        {"action_count", s->n_actions, s->head == POLICY_GAUSSIAN ? 1 : 2,
         s->head == POLICY_GAUSSIAN ? POLICY_MAX_WIDTH / 2 : POLICY_MAX_WIDTH},
        {"hidden_length", s->n_hidden, 1, POLICY_MAX_WIDTH},
        {"hidden_layers", s->n_layers, 1, s->kind == POLICY_LSTM ? 1 : POLICY_MAX_LAYERS},
    };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (sizes[i].value < sizes[i].least || sizes[i].value > sizes[i].most)
            return error_field(err, sizes[i].name, "is %zu, it must be from %zu to %zu",
                               sizes[i].value, sizes[i].least, sizes[i].most);
    if (!(s->dropout >= 0.0f && s->dropout < 1.0f))
        return error_field(err, "dropout", "is %g, it must be at least 0 and below 1",
                           (double)s->dropout);
    if (s->head == POLICY_DUELLING && !s->has_value)
        return error_field(err, "has_value", "is false, it must be true for a duelling head");
    if (s->kind == POLICY_LSTM && s->dropout != 0.0f)
        return error_field(err, "dropout", "is %g, it must be 0 for an lstm", (double)s->dropout);
    return STATUS_OK;
}

/* Tensors in the order of the file: all parameters; then, if the policy has learned, all first
 * moments, then all second moments. */
static size_t n_tensors_of(const struct network *net)
{
    return network_n_kinds(net) * 2 * net->n_layers;
}

static bool is_second_moment(const struct network *net, size_t i)
{
    return i >= 2 * 2 * net->n_layers;
}

/* The parameter that tensor i belongs to and has the shape of. */
static const struct param *tensor_of(struct network *net, size_t i, char ret_name[TENSOR_NAME_SIZE])
{
    static const char *const kinds_of_tensors[] = {"", ".m", ".v"};
    size_t n = 2 * net->n_layers;
    char name[PARAM_NAME_SIZE];
    const struct param *p = network_param(net, i % n / 2, (int)(i % 2), name);

    (void)snprintf(ret_name, TENSOR_NAME_SIZE, "%s%s", name, kinds_of_tensors[i / n]);
    return p;
}

static void policy_file_tell(struct gguf_writer *w, struct network *net, uint64_t seed)
{
    const struct policy_spec *s = &net->spec;

    gguf_write_text(w, "general.architecture", "policy");
    gguf_write_text(w, "policy.kind", kinds[s->kind]);
    if (s->head != POLICY_SOFTMAX)
        gguf_write_text(w, "policy.head", heads[s->head]);
    gguf_write_text(w, "policy.environment", s->environment);
    gguf_write_u64(w, "policy.observation_length", s->n_observations);
    gguf_write_u64(w, "policy.action_count", s->n_actions);
    gguf_write_u64(w, "policy.hidden_length", s->n_hidden);
    gguf_write_u64(w, "policy.hidden_layers", s->n_layers);
    gguf_write_f32(w, "policy.dropout", s->dropout);
    gguf_write_bool(w, "policy.has_value", s->has_value);
    gguf_write_u64(w, "policy.seed", seed);
    if (net->n_steps > 0)
        gguf_write_u64(w, "policy.adam_steps", net->n_steps);
    for (size_t i = 0; i < n_tensors_of(net); i++) {
        char name[TENSOR_NAME_SIZE];
        const struct param *p = tensor_of(net, i, name);

        gguf_write_tensor(w, name, p->n_rows, p->n_cols);
    }
}

/* Writes n numbers of tensor number which, drawn within bound. Word 2 of the counter is 1 here and
 * 0 where actions are drawn. */
static void write_drawn(struct gguf_writer *w, uint64_t seed, uint32_t which, size_t n, float bound)
{
    float piece[PIECE];

    for (size_t first = 0; first < n; first += PIECE) {
        size_t count = n - first < PIECE ? n - first : PIECE;

        for (size_t i = 0; i < count; i++)
            piece[i] =
                bound * (2.0f * counter_rng_uniform(seed, which, (uint32_t)(first + i), 1) - 1.0f);
        gguf_write_data(w, piece, count);
    }
}

enum status policy_file_create(const char *path, const struct policy_spec *spec, uint64_t seed,
                               struct error *err)
{
    struct gguf_writer *w;
    struct network net;
    enum status rc = policy_spec_check(spec, err);

    if (rc != STATUS_OK)
        return rc;
    network_shape(&net, spec);
    rc = gguf_writer_open(&w, path, err);
    if (rc != STATUS_OK)
        return rc;
    policy_file_tell(w, &net, seed);
    for (size_t i = 0; i < 2 * net.n_layers; i++) {
        char name[PARAM_NAME_SIZE];
        const struct param *p = network_param(&net, i / 2, (int)(i % 2), name);

        write_drawn(w, seed, (uint32_t)i, p->n_rows * p->n_cols, net.layers[i / 2].bound);
    }
    rc = gguf_writer_commit(w, err);
    gguf_writer_close(w);
    return rc;
}

/* Downloads the backend's numbers if the host keeps no copy; the caller frees *out. */
static enum status policy_file_fetch(struct network *net, float **out, struct error *err)
{
    size_t n_kinds = network_n_kinds(net);
    float *numbers = try_alloc(net->n_numbers, n_kinds * sizeof(*numbers));
    enum status rc;

    if (numbers == NULL)
        return error_no_memory(err, n_kinds * network_weight_bytes(net), "a policy");
    network_fetch(net, n_kinds, numbers);
    rc = net->backend->type->sync(net->backend, err);
    if (rc == STATUS_OK)
        *out = numbers;
    else
        free(numbers);
    return rc;
}

enum status policy_file_save(const char *path, struct network *net, struct error *err)
{
    struct gguf_writer *w = NULL;
    float *fetched = NULL;
    enum status rc = STATUS_OK;

    if (net->kept == NULL)
        rc = policy_file_fetch(net, &fetched, err);
    if (rc == STATUS_OK)
        rc = gguf_writer_open(&w, path, err);
    if (rc != STATUS_OK)
        goto out;
    policy_file_tell(w, net, net->spec.seed);
    gguf_write_data(w, net->kept != NULL ? net->kept : fetched,
                    network_n_kinds(net) * net->n_numbers);
    rc = gguf_writer_commit(w, err);
out:
    gguf_writer_close(w);
    free(fetched);
    return rc;
}

/* Reading. */

static enum status policy_file_read_size(const struct gguf *g, const char *key, size_t *out,
                                         struct error *err)
{
    uint64_t value = 0;
    enum status rc = gguf_get_u64(g, key, &value, err);

    *out = (size_t)value;
    return rc;
}

static enum status read_kind(const struct gguf *g, enum policy_kind *out, struct error *err)
{
    const char *text = "";
    size_t len = 0;
    enum status rc = gguf_get_text(g, "policy.kind", &text, &len, err);

    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < N_KINDS; i++)
        if (len == strlen(kinds[i]) && memcmp(text, kinds[i], len) == 0) {
            *out = (enum policy_kind)i;
            return STATUS_OK;
        }
    return error_set(err, STATUS_UNIMPLEMENTED, "%s: policy.kind is '%.*s', it must be mlp or lstm",
                     gguf_path(g), len < 40 ? (int)len : 40, text);
}

/* Files without the key have a softmax. */
static enum status read_head(const struct gguf *g, enum policy_head *out, struct error *err)
{
    const char *text = "";
    size_t len = 0;
    enum status rc = gguf_get_text(g, "policy.head", &text, &len, err);

    *out = POLICY_SOFTMAX;
    if (rc == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < N_HEADS; i++)
        if (len == strlen(heads[i]) && memcmp(text, heads[i], len) == 0) {
            *out = (enum policy_head)i;
            return STATUS_OK;
        }
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "%s: policy.head is '%.*s', it must be softmax, gaussian or duelling",
                     gguf_path(g), len < 40 ? (int)len : 40, text);
}

/* Reads the environment's name; UTF-8 that is too long is cut. */
static enum status read_environment(const struct gguf *g, char out[POLICY_NAME_SIZE],
                                    struct error *err)
{
    const char *text = "";
    size_t len = 0;
    enum status rc = gguf_get_text(g, "policy.environment", &text, &len, err);

    if (rc == STATUS_OK)
        (void)snprintf(out, POLICY_NAME_SIZE, "%.*s",
                       len < POLICY_NAME_SIZE ? (int)len : POLICY_NAME_SIZE - 1, text);
    return rc;
}

static enum status policy_file_read_keys(const struct gguf *g, struct policy_spec *s,
                                         struct error *err)
{
    double dropout = 0;
    enum status rc = read_kind(g, &s->kind, err);

    if (rc == STATUS_OK)
        rc = read_head(g, &s->head, err);
    if (rc == STATUS_OK)
        rc = policy_file_read_size(g, "policy.observation_length", &s->n_observations, err);
    if (rc == STATUS_OK)
        rc = policy_file_read_size(g, "policy.action_count", &s->n_actions, err);
    if (rc == STATUS_OK)
        rc = policy_file_read_size(g, "policy.hidden_length", &s->n_hidden, err);
    if (rc == STATUS_OK)
        rc = policy_file_read_size(g, "policy.hidden_layers", &s->n_layers, err);
    if (rc == STATUS_OK)
        rc = gguf_get_f64(g, "policy.dropout", &dropout, err);
    if (rc == STATUS_OK)
        rc = gguf_get_bool(g, "policy.has_value", &s->has_value, err);
    if (rc == STATUS_OK)
        rc = gguf_get_u64(g, "policy.seed", &s->seed, err);
    if (rc == STATUS_OK)
        rc = read_environment(g, s->environment, err);
    s->dropout = (float)dropout;
    return rc;
}

/* Reads how often the policy has learned; older files lack the key. */
static enum status read_steps(const struct gguf *g, uint64_t *out, struct error *err)
{
    enum status rc = gguf_get_u64(g, "policy.adam_steps", out, err);

    if (rc == STATUS_NOT_FOUND) {
        *out = 0;
        return STATUS_OK;
    }
    if (rc == STATUS_OK && *out > max_steps)
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: policy.adam_steps is %llu, it must be at most %llu", gguf_path(g),
                         (unsigned long long)*out, (unsigned long long)max_steps);
    return rc;
}

/* Checks that a tensor has its layer's shape and finite numbers; second moments must not be
 * negative. */
static enum status check_tensor(const struct gguf *g, const char *name, const struct param *p,
                                bool is_square, struct error *err)
{
    const struct tensor *t;
    float *numbers;
    enum status rc = gguf_tensor(g, name, &t, err);

    if (rc == STATUS_NOT_FOUND) {
        err->status = STATUS_DATA_LOSS;
        return STATUS_DATA_LOSS;
    }
    if (rc != STATUS_OK)
        return rc;
    if (t->type != DTYPE_F32 || t->n_rows != p->n_rows || t->n_cols != p->n_cols)
        return error_set(
            err, STATUS_DATA_LOSS, "%s: tensor '%s' is %s [%zu][%zu], it must be f32 [%zu][%zu]",
            gguf_path(g), name, dtype_name(t->type), t->n_rows, t->n_cols, p->n_rows, p->n_cols);
    numbers = try_alloc(t->size_bytes, 1);
    if (numbers == NULL)
        return error_no_memory(err, t->size_bytes, t->name);
    rc = tensor_read(t, 0, t->n_rows, numbers, err);
    for (size_t i = 0; rc == STATUS_OK && is_square && i < t->n_rows * t->n_cols; i++)
        if (numbers[i] < 0.0f)
            rc = error_set(err, STATUS_DATA_LOSS,
                           "%s: tensor '%s' holds %g at %zu, it must be 0 or above", gguf_path(g),
                           name, (double)numbers[i], i);
    free(numbers);
    return rc;
}

enum status policy_file_spec(const struct gguf *g, struct policy_spec *out, struct error *err)
{
    struct policy_spec s = {0};
    uint64_t n_steps = 0;
    struct network net;
    enum status rc = policy_file_read_keys(g, &s, err);

    if (rc == STATUS_NOT_FOUND) {
        err->status = STATUS_DATA_LOSS;
        return STATUS_DATA_LOSS;
    }
    if (rc == STATUS_OK)
        rc = read_steps(g, &n_steps, err);
    if (rc != STATUS_OK)
        return rc;
    if (policy_spec_check(&s, err) != STATUS_OK) {
        struct error inner = *err;

        return error_set(err, STATUS_DATA_LOSS, "%s: policy.%s", gguf_path(g), inner.text);
    }
    network_shape(&net, &s);
    net.n_steps = n_steps;
    for (size_t i = 0; i < n_tensors_of(&net); i++) {
        char name[TENSOR_NAME_SIZE];
        const struct param *p = tensor_of(&net, i, name);

        rc = check_tensor(g, name, p, is_second_moment(&net, i), err);
        if (rc != STATUS_OK)
            return rc;
    }
    if (gguf_n_tensors(g) != n_tensors_of(&net))
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: has %zu tensors, but an %s policy of these sizes has %zu",
                         gguf_path(g), gguf_n_tensors(g), kinds[s.kind], n_tensors_of(&net));
    *out = s;
    return STATUS_OK;
}

enum status policy_file_read(const struct gguf *g, struct network *net, struct error *err)
{
    float *numbers, *at;
    size_t n_kinds;
    enum status rc = read_steps(g, &net->n_steps, err);

    if (rc != STATUS_OK)
        return rc;
    n_kinds = network_n_kinds(net);
    at = numbers = try_alloc(net->n_numbers, n_kinds * sizeof(*numbers));
    if (numbers == NULL)
        return error_no_memory(err, n_kinds * network_weight_bytes(net), "a policy");
    for (size_t i = 0; rc == STATUS_OK && i < n_tensors_of(net); i++) {
        char name[TENSOR_NAME_SIZE];
        const struct param *p = tensor_of(net, i, name);
        const struct tensor *t;

        rc = gguf_tensor(g, name, &t, err); /* policy_file_spec has checked it */
        if (rc == STATUS_OK)
            rc = tensor_read(t, 0, t->n_rows, at, err);
        at += p->n_rows * p->n_cols;
    }
    if (rc == STATUS_OK)
        rc = network_load(net, numbers, err);
    if (rc == STATUS_OK && backend_is_device(net->backend))
        net->kept = numbers;
    else
        free(numbers);
    return rc;
}

/* Copying. */

static enum status policy_file_copy_tensor(struct gguf_writer *w, const struct gguf *g,
                                           const char *name, struct error *err)
{
    const struct tensor *t;
    float *numbers;
    enum status rc = gguf_tensor(g, name, &t, err); /* policy_file_spec has checked it */

    if (rc != STATUS_OK)
        return rc;
    numbers = try_alloc(t->size_bytes, 1);
    if (numbers == NULL)
        return error_no_memory(err, t->size_bytes, t->name);
    rc = tensor_read(t, 0, t->n_rows, numbers, err);
    if (rc == STATUS_OK)
        gguf_write_data(w, numbers, t->n_rows * t->n_cols);
    free(numbers);
    return rc;
}

static enum status policy_file_copy_opened(const struct gguf *g, const char *to, const char *state,
                                           struct error *err)
{
    struct policy_spec spec;
    struct network net;
    struct gguf_writer *w = NULL;
    enum status rc = policy_file_spec(g, &spec, err);

    if (rc != STATUS_OK)
        return rc;
    network_shape(&net, &spec);
    rc = read_steps(g, &net.n_steps, err);
    if (rc == STATUS_OK)
        rc = gguf_writer_open(&w, to, err);
    if (rc != STATUS_OK)
        return rc;
    policy_file_tell(w, &net, spec.seed);
    if (state != NULL)
        gguf_write_text(w, "training.state", state);
    for (size_t i = 0; rc == STATUS_OK && i < n_tensors_of(&net); i++) {
        char name[TENSOR_NAME_SIZE];

        (void)tensor_of(&net, i, name);
        rc = policy_file_copy_tensor(w, g, name, err);
    }
    if (rc == STATUS_OK)
        rc = gguf_writer_commit(w, err);
    gguf_writer_close(w);
    return rc;
}

enum status policy_file_copy(const char *from, const char *to, const char *state, struct error *err)
{
    struct gguf *g;
    enum status rc = gguf_open(&g, from, err);

    if (rc != STATUS_OK)
        return rc;
    rc = policy_file_copy_opened(g, to, state, err);
    gguf_close(g);
    return rc;
}
