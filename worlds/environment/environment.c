#include "worlds/environment/environment.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

extern const struct environment_type cartpole_environment;

static const struct environment_type *const types[] = {&cartpole_environment};

const struct environment_type *environment_type_at(size_t i)
{
    return i < sizeof types / sizeof types[0] ? types[i] : NULL;
}

/* "cartpole" names "CartPole-v1". */
static bool is_called(const struct environment_type *type, const char *name)
{
    const char *version = strrchr(type->name, '-');
    size_t stem = version != NULL ? (size_t)(version - type->name) : strlen(type->name);

    return strcasecmp(type->name, name) == 0 ||
           (strlen(name) == stem && strncasecmp(type->name, name, stem) == 0);
}

enum status environment_open(struct environment **out, const char *name, struct error *err)
{
    const struct environment_type *type;
    struct environment *e;
    size_t i = 0;

    while ((type = environment_type_at(i)) != NULL && !is_called(type, name))
        i++;
    if (type == NULL)
        return error_set(err, STATUS_NOT_FOUND, "no environment is called '%.40s'; there is: %s",
                         name, cartpole_environment.name);
    e = xalloc(type->size);
    e->type = type;
    e->is_over = true;
    *out = e;
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

void environment_step(struct environment *e, size_t action, struct environment_step *out)
{
    assert(!e->is_over && action < e->type->n_actions);
    e->type->step(e, action, out);
    e->n_steps++;
    out->truncated = e->n_steps >= e->type->max_steps;
    e->is_over = out->terminated || out->truncated;
}
