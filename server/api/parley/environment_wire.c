#include "server/api/parley/environment_wire.h"

#include "server/api/parley/wire_tensor.h"

static enum status environment_wire_step(Parley__V1__AgentsAttachResponse *out,
                                         const struct environment_host *h,
                                         const struct host_order *o, struct arena *arena)
{
    Parley__V1__AgentEnvStep *m = arena_alloc(arena, 1, sizeof(*m));
    struct tensor_view *action = arena_alloc(arena, 1, sizeof(*action));
    size_t n_numbers = h->spaces.n_action_numbers;

    if (m == NULL || action == NULL)
        return STATUS_EXHAUSTED;
    *action = (struct tensor_view){.name = "action", .n_dims = 1, .dims = {(int64_t)o->n}};
    action->type = n_numbers > 0 ? TENSOR_F32 : TENSOR_I64;
    action->data = n_numbers > 0 ? (const void *)o->action_numbers : (const void *)o->choices;
    action->size_bytes = o->n * (n_numbers > 0 ? n_numbers * sizeof(float) : sizeof(o->choices[0]));
    if (n_numbers > 0)
        action->dims[action->n_dims++] = (int64_t)n_numbers;
    parley__v1__agent_env_step__init(m);
    m->action = arena_alloc(arena, 1, sizeof(*m->action));
    if (m->action == NULL)
        return STATUS_EXHAUSTED;
    m->order = o->id;
    m->environment = o->numbers;
    m->n_environment = o->n;
    wire_tensor(m->action, action);
    out->what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_ENV_STEP;
    out->env_step = m;
    return STATUS_OK;
}

static enum status environment_wire_reset(Parley__V1__AgentsAttachResponse *out,
                                          const struct host_order *o, struct arena *arena)
{
    Parley__V1__AgentEnvReset *m = arena_alloc(arena, 1, sizeof(*m));

    if (m == NULL)
        return STATUS_EXHAUSTED;
    parley__v1__agent_env_reset__init(m);
    m->order = o->id;
    m->environment = o->numbers;
    m->seed = o->seeds;
    m->n_environment = m->n_seed = o->n;
    out->what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_ENV_RESET;
    out->env_reset = m;
    return STATUS_OK;
}

static enum status environment_wire_close(Parley__V1__AgentsAttachResponse *out,
                                          const struct host_order *o, struct arena *arena)
{
    Parley__V1__AgentEnvClose *m = arena_alloc(arena, 1, sizeof(*m));

    if (m == NULL)
        return STATUS_EXHAUSTED;
    parley__v1__agent_env_close__init(m);
    m->environment = o->numbers;
    m->n_environment = o->n;
    out->what_case = PARLEY__V1__AGENTS_ATTACH_RESPONSE__WHAT_ENV_CLOSE;
    out->env_close = m;
    return STATUS_OK;
}

enum status environment_wire_order(Parley__V1__AgentsAttachResponse *out,
                                   const struct environment_host *h, const struct host_order *o,
                                   struct arena *arena, struct error *err)
{
    enum status rc;

    if (o->kind == HOST_RESET)
        rc = environment_wire_reset(out, o, arena);
    else if (o->kind == HOST_STEP)
        rc = environment_wire_step(out, h, o, arena);
    else
        rc = environment_wire_close(out, o, arena);
    if (rc == STATUS_OK)
        return rc;
    return error_no_memory(err, 0, "an order to the worker");
}

enum status environment_wire_tensor(struct tensor_view *out, Parley__V1__Tensor *m,
                                    const char *field, struct arena *arena, struct error *err)
{
    const struct tensor_view *view;

    if (m == NULL)
        return error_field(err, field, "is missing");
    if (wire_tensors(&view, &m, 1, 1, field, arena, err) != STATUS_OK)
        return error_name_field(err, field);
    *out = *view;
    out->name = field; /* for errors */
    return STATUS_OK;
}

enum status environment_wire_answer(struct host_answer *out, const Parley__V1__AgentEnvResult *m,
                                    struct arena *arena, struct error *err)
{
    static const char *const names[] = {"env_result.observation", "env_result.reward",
                                        "env_result.terminated", "env_result.truncated"};
    Parley__V1__Tensor *const tensors[] = {m->observation, m->reward, m->terminated, m->truncated};
    struct tensor_view *const views[] = {&out->observation, &out->reward, &out->terminated,
                                         &out->truncated};
    struct host_info *infos;
    struct host_failure *failures = arena_alloc(arena, m->n_failures + 1, sizeof(failures[0]));

    *out = (struct host_answer){.order = m->order, .failures = failures};
    if (failures == NULL)
        return error_no_memory(err, m->n_failures * sizeof(failures[0]), "failures");
    infos = arena_alloc(arena, m->n_infos + 1, sizeof(infos[0]));
    if (infos == NULL)
        return error_no_memory(err, m->n_infos * sizeof(infos[0]), "infos");
    out->infos = infos;
    for (; out->n_infos < m->n_infos; out->n_infos++)
        infos[out->n_infos] =
            (struct host_info){m->infos[out->n_infos]->place, m->infos[out->n_infos]->json};
    for (; out->n_failures < m->n_failures; out->n_failures++)
        failures[out->n_failures] = (struct host_failure){m->failures[out->n_failures]->place,
                                                          m->failures[out->n_failures]->message};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        views[i]->name = names[i];
        if (tensors[i] != NULL &&
            environment_wire_tensor(views[i], tensors[i], names[i], arena, err) != STATUS_OK)
            return err->status;
    }
    return STATUS_OK;
}
