#include "tests/support/policy_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/turn.h"
#include "base/alloc.h"

enum { MAX_BATCH = 256, ARENA_BYTES = 1 << 20 };

enum status policy_drive_open(struct agent **out, const struct policy_spec *spec, uint64_t seed,
                              struct agent_config *config, struct error *err)
{
    char path[] = "/tmp/policy-XXXXXX.gguf";
    int fd = mkstemps(path, 5);
    enum status rc;

    if (fd < 0)
        return error_set(err, STATUS_UNKNOWN, "no temporary file");
    (void)close(fd);
    config->path = path;
    if (config->options.backend == NULL)
        config->options.backend = "cpu";
    if (config->env == NULL)
        config->env = &env_real;
    rc = policy_file_create(path, spec, seed, err);
    if (rc == STATUS_OK)
        rc = agent_open(out, NULL, config, err);
    config->path = NULL;
    (void)unlink(path);
    return rc;
}

struct step {
    struct arena arena;
    struct agent_turn turn;
    struct tensor_view observation;
};

static enum status begin(struct step *s, const struct policy_batch *b, size_t i, struct error *err)
{
    const struct agent *a = b->clones[i]->agent;
    size_t size_bytes = b->n_observations * sizeof(float);

    arena_init(&s->arena, ARENA_BYTES);
    agent_turn_init(&s->turn, &s->arena, 0);
    s->observation = (struct tensor_view){.name = "observation",
                                          .type = TENSOR_F32,
                                          .n_dims = 1,
                                          .dims = {(int64_t)b->n_observations},
                                          .data = b->observations + i * b->n_observations,
                                          .size_bytes = size_bytes};
    s->turn.seen.tensors = &s->observation;
    s->turn.seen.n_tensors = 1;
    s->turn.seen.is_first = b->is_first;
    s->turn.seen.row_key = b->row_keys != NULL ? b->row_keys[i] : (uint32_t)i;
    sampling_init(&s->turn.seen.sampling);
    s->turn.seen.sampling.seed = b->seed;
    if (b->is_greedy)
        s->turn.seen.sampling.temperature = 0.0f;
    return a->type->observe(b->clones[i], &s->turn, err);
}

static enum status end(struct step *s, struct clone *c, struct answer *out, struct error *err)
{
    const struct agent_type *type = c->agent->type;
    const struct reply *reply = &s->turn.reply;

    type->stepped(c->agent, &s->turn.row);
    if (s->turn.row.outcome != ROW_DONE) {
        *err = s->turn.row.err;
        return err->status;
    }
    memcpy(&out->action, reply->tensors[0].data, sizeof(out->action));
    memcpy(&out->logp, reply->tensors[1].data, sizeof(out->logp));
    memcpy(&out->value, reply->tensors[2].data, sizeof(out->value));
    out->params_version = reply->params_version;
    out->batch_rows = reply->batch_rows;
    type->self_observe(c, &s->turn);
    return STATUS_OK;
}

static void run_step(const struct policy_batch *b, struct row *const *rows)
{
    const struct agent_type *type = b->clones[0]->agent->type;
    struct agent_step steps[MAX_BATCH];
    size_t n_steps = 0;

    for (size_t i = 0; i < b->n; i++) {
        struct agent *a = b->clones[i]->agent;

        if (n_steps == 0 || steps[n_steps - 1].agent != a)
            steps[n_steps++] = (struct agent_step){a, rows + i, 0};
        steps[n_steps - 1].n_rows++;
    }
    if (n_steps == 1)
        type->batch_act(steps->agent, rows, b->n);
    else
        type->group_act(steps, n_steps);
}

enum status policy_drive(const struct policy_batch *b, struct answer *answers, struct error *err)
{
    struct step *steps = xalloc(b->n * sizeof(*steps));
    struct row *rows[MAX_BATCH];
    size_t n_begun = 0;
    enum status rc = STATUS_OK;

    for (; rc == STATUS_OK && n_begun < b->n; n_begun++) {
        rc = begin(&steps[n_begun], b, n_begun, err);
        rows[n_begun] = &steps[n_begun].turn.row;
    }
    if (rc == STATUS_OK) {
        run_step(b, rows);
        for (size_t i = 0; i < b->n; i++) {
            enum status ended = end(&steps[i], b->clones[i], &answers[i], err);

            rc = rc == STATUS_OK ? ended : rc;
        }
    }
    for (size_t i = 0; i < n_begun; i++) {
        agent_turn_deinit(&steps[i].turn);
        arena_deinit(&steps[i].arena);
    }
    free(steps);
    return rc;
}

bool policy_same_files(const char *a, const char *b)
{
    const char *const paths[] = {a, b};
    char bytes[2][16 << 10];
    size_t n[2] = {0};

    for (size_t i = 0; i < 2; i++) {
        FILE *in = fopen(paths[i], "rbe");

        if (in == NULL)
            return false;
        n[i] = fread(bytes[i], 1, sizeof(bytes[i]), in);
        (void)fclose(in); /* only read */
    }
    return n[0] > 0 && n[0] < sizeof(bytes[0]) && n[0] == n[1] &&
           memcmp(bytes[0], bytes[1], n[0]) == 0;
}
