#include "worlds/verbs/policy/local_environment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/plugin/library.h"
#include "base/alloc.h"

static const char prefix[] = "plugin:";

/* Steps of an episode where the plug-in has no bound. */
enum { UNBOUNDED_STEPS = 100000 };

struct local_environment {
    struct environment base;
    struct environment_type type; /* base's */
    struct plugin_library library;
    void *theirs;
    char failure[200]; /* "": none */
};

static struct local_environment *local_environment_of(struct environment *e)
{
    return (struct local_environment *)e;
}

/* Takes over what the plug-in said, or left. */
static void local_environment_note(struct local_environment *l, const char *failure,
                                   const float *observation, float reward)
{
    bool is_finite = isfinite(reward);

    for (size_t i = 0; i < l->type.n_observation; i++)
        is_finite = is_finite && isfinite(observation[i]);
    if (failure == NULL && !is_finite)
        failure = "the environment returned a number that is not finite";
    if (failure != NULL)
        (void)snprintf(l->failure, sizeof(l->failure), "the environment failed: %s", failure);
}

static void on_local_reset(struct environment *e, uint64_t seed, uint32_t episode,
                           float *observation)
{
    struct local_environment *l = local_environment_of(e);
    const char *failure = NULL;
    struct environment_step ignored = {.reward = 0}; /* as parleyd, arrays for all results */
    struct parley_environment_results out = {observation, &ignored.reward, &ignored.terminated,
                                             &ignored.truncated, &failure};

    l->failure[0] = '\0';
    memset(observation, 0, l->type.n_observation * sizeof(observation[0]));
    l->library.environment->reset(&l->theirs, 1, &seed, &episode, &out);
    local_environment_note(l, failure, observation, 0);
}

static void local_environment_act(struct local_environment *l,
                                  const struct parley_environment_actions *action,
                                  struct environment_step *out)
{
    const char *failure = NULL;
    struct parley_environment_results results = {out->observation, &out->reward, &out->terminated,
                                                 &out->truncated, &failure};

    *out = (struct environment_step){.reward = 0};
    l->library.environment->step(&l->theirs, 1, action, &results);
    local_environment_note(l, failure, out->observation, out->reward);
}

static void on_local_step(struct environment *e, size_t action, struct environment_step *out)
{
    const int64_t choice = (int64_t)action;

    local_environment_act(local_environment_of(e),
                          &(struct parley_environment_actions){.choices = &choice}, out);
}

static void on_local_numbers(struct environment *e, const float *action,
                             struct environment_step *out)
{
    local_environment_act(local_environment_of(e),
                          &(struct parley_environment_actions){.numbers = action}, out);
}

static bool local_environment_is_plugged(const struct environment *e)
{
    return e->type->reset == on_local_reset;
}

static enum status local_environment_check(const struct plugin_library *library, const char *path,
                                           struct error *err)
{
    if (library->environment == NULL)
        return error_set(err, STATUS_PRECONDITION, "plug-in %.120s: it has no environment", path);
    if (library->environment->n_observations > ENVIRONMENT_MAX_OBSERVATION)
        return error_set(
            err, STATUS_UNIMPLEMENTED,
            "plug-in %.120s: an observation of %s has %u numbers, it may have at most %d here",
            path, library->environment->name, library->environment->n_observations,
            ENVIRONMENT_MAX_OBSERVATION);
    return STATUS_OK;
}

static enum status local_environment_load(struct environment **out, const char *path,
                                          struct error *err)
{
    struct local_environment *l = NULL;
    struct plugin_library library;
    const struct parley_environment *theirs;

    if (plugin_library_open(&library, path, err) != STATUS_OK)
        return err->status;
    theirs = library.environment;
    if (local_environment_check(&library, path, err) != STATUS_OK)
        goto out;
    l = xalloc(sizeof(*l));
    l->theirs = theirs->make();
    if (l->theirs == NULL) {
        (void)error_no_memory(err, sizeof(*l), "an environment");
        goto out;
    }
    l->library = library; /* given away */
    library = (struct plugin_library){.handle = NULL};
    l->type = (struct environment_type){
        .name = theirs->name,
        .size = sizeof(*l),
        .n_observation = theirs->n_observations,
        .n_actions = theirs->n_actions,
        .n_action_numbers = theirs->n_action_numbers,
        .max_steps = theirs->max_steps != 0 ? theirs->max_steps : UNBOUNDED_STEPS,
        .reset = on_local_reset,
        .step = on_local_step,
        .step_numbers = on_local_numbers,
    };
    l->base = (struct environment){.type = &l->type, .is_over = true};
    *out = &l->base;
    l = NULL; /* given away */
    err->status = STATUS_OK;
out:
    free(l);
    plugin_library_close(&library);
    return err->status;
}

enum status local_environment_open(struct environment **out, const char *name, struct error *err)
{
    struct error why;
    enum status rc;

    if (strncmp(name, prefix, sizeof(prefix) - 1) == 0)
        return local_environment_load(out, name + sizeof(prefix) - 1, err);
    rc = environment_open(out, name, &why);
    return rc == STATUS_OK ? rc
                           : error_set(err, rc,
                                       "%s, and plugin:FILE.so; environments of the server run "
                                       "only there (parley.v1.Env's Rollout, parley.rollouts)",
                                       why.text);
}

bool local_environment_is_known(const char *name)
{
    return strncmp(name, prefix, sizeof(prefix) - 1) == 0 || environment_type_find(name) != NULL;
}

void local_environment_close(struct environment *e)
{
    if (e != NULL && local_environment_is_plugged(e)) {
        struct local_environment *l = local_environment_of(e);

        l->library.environment->free(l->theirs);
        plugin_library_close(&l->library);
    }
    environment_close(e);
}

const char *local_environment_failure(const struct environment *e)
{
    if (!local_environment_is_plugged(e))
        return NULL;
    return ((const struct local_environment *)e)->failure[0] != '\0'
               ? ((const struct local_environment *)e)->failure
               : NULL;
}
