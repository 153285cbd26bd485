/* The agent `policy` is a network from observations to actions. One pass computes all rows of a
 * step, and no row needs a second step. */
#include <stdlib.h>
#include <string.h>

#include "agents/policy/parts.h"
#include "base/alloc.h"
#include "compute/backends.h"

extern const struct agent_type policy_agent;

enum {
    POLICY_MAX_ROWS = 256,
    POLICY_MAX_WAITING = 16384,
    LIGHT_MAX_BYTES = 64 << 10, /* fits the cache: 16 rows take 10 to 20 microseconds */
};

static struct policy *to_policy(struct agent *a)
{
    return container_of(a, struct policy, base);
}

static void policy_close(struct agent *a)
{
    struct policy *p = to_policy(a);

    network_close(&p->target);
    network_close(&p->net);
    backend_close(p->backend);
    free(p->rows);
    free(p->in);
    free(p->h);
    free(p->c);
    free(p->outputs);
    free(p->target_numbers);
    free(p->values);
    free(p->draws);
}

static enum status open_staging(struct policy *p, struct error *err)
{
    const struct policy_spec *s = &p->net.spec;
    size_t n = p->max_rows, n_state = s->kind == POLICY_LSTM ? s->n_hidden : 1;

    p->rows = try_alloc(n, sizeof(*p->rows));
    p->in = try_alloc(n, s->n_observations * sizeof(*p->in));
    p->h = try_alloc(n, n_state * sizeof(*p->h));
    p->c = try_alloc(n, n_state * sizeof(*p->c));
    p->outputs = try_alloc(n, p->net.n_outputs * sizeof(*p->outputs));
    p->values = try_alloc(n, sizeof(*p->values));
    p->draws = try_alloc(n, sizeof(*p->draws));
    if (p->rows != NULL && p->in != NULL && p->h != NULL && p->c != NULL && p->outputs != NULL &&
        p->values != NULL && p->draws != NULL)
        return STATUS_OK;
    return error_no_memory(err, n * (s->n_observations + 2 * n_state + p->net.n_outputs) * 4,
                           "a policy's steps");
}

static enum status open_backend(struct policy *p, const struct agent_config *config,
                                struct error *err)
{
    enum status rc;

    p->backend_config = (struct backend_config){.n_threads = config->options.n_threads};
    rc = config->backend_type != NULL
             ? backend_open_type(&p->backend, config->backend_type, &p->backend_config, err)
             : backend_open(&p->backend, config->options.backend, &p->backend_config, err);
    if (rc == STATUS_OK && p->backend->type->net == NULL)
        rc = error_set(err, STATUS_UNIMPLEMENTED, "the backend %s cannot run policies",
                       p->backend->type->name);
    return rc;
}

static enum status policy_open(struct agent *a, const struct agent_config *config,
                               struct error *err)
{
    struct policy *p = to_policy(a);
    struct policy_spec spec;
    struct gguf *g = NULL;
    enum status rc;

    if (config->path == NULL)
        return error_set(err, STATUS_INVALID, "a policy needs a file: use --model NAME=FILE");
    p->max_rows = config->max_step_rows != 0 ? config->max_step_rows : POLICY_MAX_ROWS;
    p->params_version = 1;
    rc = gguf_open(&g, config->path, err);
    if (rc != STATUS_OK)
        return rc;
    rc = policy_file_spec(g, &spec, err);
    if (rc == STATUS_OK) {
        network_shape(&p->net, &spec);
        rc = open_backend(p, config, err);
    }
    if (rc == STATUS_OK)
        rc = network_open(&p->net, p->backend, p->max_rows, err);
    if (rc == STATUS_OK)
        rc = open_staging(p, err);
    if (rc == STATUS_OK)
        rc = policy_file_read(g, &p->net, err);
    if (rc == STATUS_OK)
        rc = model_hash(p->version, gguf_fd(g, 0), err);
    if (rc == STATUS_OK)
        rc = gguf_check_unchanged(g, err);
    gguf_close(g);
    return rc; /* agent_open calls policy_close on failure */
}

static void policy_info(const struct agent *a, struct agent_info *out)
{
    const struct policy *p = container_of(a, const struct policy, base);
    bool is_gaussian = p->net.spec.head == POLICY_GAUSSIAN;

    out->architecture = policy_kind_name(p->net.spec.kind);
    out->backend = p->backend->type->name;
    out->weight_bytes = network_weight_bytes(&p->net);
    out->device_losses = p->n_losses_seen;
    out->is_light = network_weight_bytes(&p->net) <= LIGHT_MAX_BYTES;
    out->acting = (struct acting_info){
        .n_observations = p->net.spec.n_observations,
        .n_actions = is_gaussian ? 0 : p->net.spec.n_actions,
        .n_action_numbers = is_gaussian ? p->net.spec.n_actions : 0,
        .n_state = p->net.spec.kind == POLICY_LSTM ? 2 * p->net.spec.n_hidden : 0,
        .has_logp = p->net.spec.head != POLICY_DUELLING,
        .has_value = p->net.spec.has_value,
    };
    memcpy(out->version, p->version, sizeof(out->version));
}

static void policy_batching(const struct agent *a, struct batcher_config *out)
{
    *out = (struct batcher_config){.policy = BATCH_ADAPTIVE,
                                   .max_rows = container_of(a, const struct policy, base)->max_rows,
                                   .max_waiting = POLICY_MAX_WAITING};
}

static void policy_train(struct agent *a, bool on)
{
    to_policy(a)->trains = on;
}

static enum status policy_save(struct agent *a, const char *path, struct error *err)
{
    return policy_file_save(path, &to_policy(a)->net, err);
}

static const struct agent_learning policy_learning = {
    .train = policy_train,
    .record = policy_clone_record,
    .learn = policy_learn,
    .learn_trajectories = policy_learn_trajectories,
    .learn_transitions = policy_learn_transitions,
    .get_state = policy_clone_get_state,
    .set_state = policy_clone_set_state,
    .save = policy_save,
};

const struct agent_type policy_agent = {
    .name = "policy",
    .has_own_files = true,
    .learning = &policy_learning,
    .agent_size = sizeof(struct policy),
    .clone_size = sizeof(struct policy_clone),
    .open = policy_open,
    .close = policy_close,
    .info = policy_info,
    .batching = policy_batching,
    .clone_open = policy_clone_open,
    .clone_close = policy_clone_close,
    .clone_info = policy_clone_info,
    .fork = policy_clone_fork,
    .rewind = policy_clone_rewind,
    .reset = policy_clone_reset,
    .save = policy_clone_save,
    .restore = policy_clone_restore,
    .observe = policy_observe,
    .self_observe = policy_self_observe,
    .batch_act = policy_batch_act,
    .groups_with = policy_groups_with,
    .group_act = policy_group_act,
    .stepped = policy_stepped,
};
