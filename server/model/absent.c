#include "server/model/absent.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/turn.h"
#include "base/alloc.h"

/* --- the agent --- */

/* Of the vocabulary nothing is known: the model refuses what it lacks once it is back. */
static void absent_info(const struct agent *a, struct agent_info *out)
{
    out->version[0] = '\0';
    out->text.n_vocab = INT32_MAX;
}

static enum status absent_fork(struct clone *c, const struct clone *parent, uint32_t at_turn,
                               struct error *err)
{
    return STATUS_OK;
}

static enum status absent_rewind(struct clone *c, uint32_t at_turn, struct error *err)
{
    return STATUS_OK;
}

static enum status absent_observe(struct clone *c, struct agent_turn *turn, struct error *err)
{
    turn->row.clone = c;
    return STATUS_OK;
}

static void absent_self_observe(struct clone *c, struct agent_turn *turn)
{
}

static enum status absent_trace(const struct clone *c, const struct agent_turn *turn,
                                struct buf *out, struct error *err)
{
    return STATUS_OK;
}

static enum status absent_recall(struct clone *c, struct agent_turn *turn, const void *trace,
                                 size_t size_bytes, struct error *err)
{
    return STATUS_OK;
}

static void absent_act(struct agent *a, struct row *row)
{
    assert(false); /* no turn is asked of a model that is not served */
}

static const struct agent_type absent_agent = {
    .name = "absent",
    .agent_size = sizeof(struct agent),
    .clone_size = sizeof(struct clone),
    .info = absent_info,
    .fork = absent_fork,
    .rewind = absent_rewind,
    .observe = absent_observe,
    .self_observe = absent_self_observe,
    .trace = absent_trace,
    .recall = absent_recall,
    .act = absent_act,
};

/* --- the models --- */

struct absent_model {
    struct link link;
    struct model model; /* never started: it has no thread, no batcher and no handles */
    char name[];
};

bool model_is_absent(const struct model *m)
{
    return m->type == &absent_agent;
}

static void absent_model_free(struct absent_model *a)
{
    assert(a->model.n_conversations == 0 && a->model.n_holders == 0);
    agent_unref(a->model.agent);
    statistics_deinit(&a->model.statistics);
    tenants_deinit(&a->model.tenants);
    free(a);
}

static enum status absent_model_open(struct absent_model **out, const struct env *env,
                                     const char *name, const char *version, struct error *err)
{
    const size_t size = strlen(name) + 1;
    struct absent_model *a = try_alloc(1, sizeof(*a) + size);
    struct agent_config config = {.env = env};
    struct model *m;

    if (a == NULL)
        return error_no_memory(err, sizeof(*a) + size, "a stored conversation");
    m = &a->model;
    m->name = memcpy(a->name, name, size);
    m->type = &absent_agent;
    m->env = env;
    m->state = MODEL_FAILED;
    config.name = a->name;
    if (agent_open_type(&m->agent, &absent_agent, &config, err) != STATUS_OK) {
        free(a);
        return err->status;
    }
    agent_describe(m->agent, &m->info);
    (void)snprintf(m->info.version, sizeof(m->info.version), "%s", version); /* a longer is none */
    *out = a;
    return STATUS_OK;
}

enum status absent_models_get(struct model **out, struct absent_models *all, const char *name,
                              const char *version, struct error *err)
{
    struct absent_model *a;
    struct link *at;

    for (at = list_first(&all->models); at != NULL; at = list_next(&all->models, at)) {
        a = container_of(at, struct absent_model, link);
        if (strcmp(a->model.name, name) == 0 && strcmp(a->model.info.version, version) == 0) {
            *out = &a->model;
            return STATUS_OK;
        }
    }
    if (absent_model_open(&a, all->env, name, version, err) != STATUS_OK)
        return err->status;
    list_push(&all->models, &a->link);
    *out = &a->model;
    return STATUS_OK;
}

void absent_models_init(struct absent_models *all, const struct env *env)
{
    all->env = env;
    list_init(&all->models);
}

void absent_models_deinit(struct absent_models *all)
{
    struct link *at;

    while ((at = list_pop(&all->models)) != NULL)
        absent_model_free(container_of(at, struct absent_model, link));
}
