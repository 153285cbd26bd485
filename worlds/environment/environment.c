#include "worlds/environment/environment.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

extern const struct environment_type cartpole_environment, pendulum_environment,
    grid_world_environment;

static const struct environment_type *const types[] = {&cartpole_environment, &pendulum_environment,
                                                       &grid_world_environment};

const struct environment_type *environment_type_at(size_t i)
{
    return i < sizeof(types) / sizeof(types[0]) ? types[i] : NULL;
}

/* "cartpole" names "CartPole-v1". */
static bool is_called(const struct environment_type *type, const char *name)
{
    const char *version = strrchr(type->name, '-');
    size_t stem = version != NULL ? (size_t)(version - type->name) : strlen(type->name);

    return strcasecmp(type->name, name) == 0 ||
           (strlen(name) == stem && strncasecmp(type->name, name, stem) == 0);
}

const struct environment_type *environment_type_find(const char *name)
{
    const struct environment_type *type;
    size_t i = 0;

    while ((type = environment_type_at(i)) != NULL && !is_called(type, name))
        i++;
    return type;
}

struct environment *environment_open_type(const struct environment_type *type)
{
    struct environment *e = xalloc(type->size);

    e->type = type;
    e->is_over = true;
    return e;
}

enum status environment_open(struct environment **out, const char *name, struct error *err)
{
    const struct environment_type *type = environment_type_find(name);

    if (type == NULL)
        return error_set(err, STATUS_NOT_FOUND,
                         "there is no environment '%.40s', it must be one of: %s, %s, %s", name,
                         types[0]->name, types[1]->name, types[2]->name);
    *out = environment_open_type(type);
    return STATUS_OK;
}

void environment_close(struct environment *e)
{
    free(e);
}

void environment_reset(struct environment *e, uint64_t seed, uint32_t episode, float *observation)
{
    e->n_steps = 0;
    e->is_over = false;
    e->type->reset(e, seed, episode, observation);
}

static void environment_count(struct environment *e, struct environment_step *out)
{
    e->n_steps++;
    out->truncated = e->n_steps >= e->type->max_steps;
    e->is_over = out->terminated || out->truncated;
}

void environment_step(struct environment *e, size_t action, struct environment_step *out)
{
    assert(!e->is_over && action < e->type->n_actions);
    e->type->step(e, action, out);
    environment_count(e, out);
}

void environment_step_numbers(struct environment *e, const float *action,
                              struct environment_step *out)
{
    assert(!e->is_over && e->type->n_action_numbers > 0);
    e->type->step_numbers(e, action, out);
    environment_count(e, out);
}
