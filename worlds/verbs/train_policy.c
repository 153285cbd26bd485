#include "worlds/verbs/train_policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agents/policy/policy.h"
#include "cli/output/console.h"
#include "worlds/verbs/train_checkpoint.h"

/* Apart from the seeds of the observers, which are a million from each other. */
enum { EPISODE_SEED_SHIFT = 32 };

static char *policy_training_path(const char *path, const char *end)
{
    char *out;

    if (asprintf(&out, "%s%s", path, end) < 0)
        abort(); /* no memory for a path */
    return out;
}

/* --- the checkpoint --------------------------------------------------------------------------- */

static enum status policy_training_save(const struct policy_training *t, struct error *err)
{
    json_t *state = json_pack("{s:s,s:I,s:f,s:I}", "environment", t->config.spec->environment,
                              "episodes", (json_int_t)t->n_episodes, "running_reward",
                              (double)t->running_reward, "actions", (json_int_t)t->n_actions);
    char *text = train_checkpoint_join(state, t->config.options);
    enum status rc = policy_file_copy(t->served, t->checkpoint, text, err);

    free(text);
    return rc;
}

static enum status policy_training_parse(struct policy_training *t, const json_t *state,
                                         struct error *err)
{
    json_int_t episodes = 0, actions = 0;
    double running = 0;
    const char *environment = "";

    if (json_unpack((json_t *)(uintptr_t)state, "{s:s,s:I,s:F,s:I}", "environment", &environment,
                    "episodes", &episodes, "running_reward", &running, "actions", &actions) != 0 ||
        episodes < 1 || episodes > UINT32_MAX || actions < 0 || !isfinite((float)running))
        return train_checkpoint_damaged(t->checkpoint, err);
    if (strcmp(environment, t->config.spec->environment) != 0)
        return error_set(err, STATUS_PRECONDITION,
                         "%.120s is of a training in %.40s, not %.40s: use --load-from-checkpoint "
                         "false to begin a new training",
                         t->checkpoint, environment, t->config.spec->environment);
    if (episodes > t->config.n_episodes)
        return error_set(err, STATUS_PRECONDITION,
                         "%.120s is of %llu episodes, but this training ends after %u: use "
                         "--load-from-checkpoint false to begin a new training",
                         t->checkpoint, (unsigned long long)episodes, t->config.n_episodes);
    t->n_episodes = (uint32_t)episodes;
    t->running_reward = (float)running;
    t->n_actions = (uint64_t)actions;
    return STATUS_OK;
}

/* NOT_FOUND: there is none. */
static enum status policy_training_restore(struct policy_training *t, struct error *err)
{
    json_t *state = NULL;
    enum status rc = train_checkpoint_load(&state, t->checkpoint, t->config.options, err);

    if (rc != STATUS_OK)
        return rc;
    rc = policy_training_parse(t, state, err);
    json_decref(state);
    if (rc != STATUS_OK)
        return rc;
    rc = policy_file_copy(t->checkpoint, t->served, NULL, err);
    if (rc != STATUS_OK)
        return train_checkpoint_advise(err);
    t->is_saved = true;
    console_line("train: continues from %s at episode %u", t->checkpoint, t->n_episodes + 1);
    return STATUS_OK;
}

/* --- the training ----------------------------------------------------------------------------- */

enum status policy_training_open(struct policy_training *t,
                                 const struct policy_training_config *config, struct error *err)
{
    enum status rc = STATUS_NOT_FOUND;

    *t = (struct policy_training){.config = *config,
                                  .checkpoint = policy_training_path(config->path, ".checkpoint"),
                                  .served = policy_training_path(config->path, ".episode.gguf")};
    if (config->loads_checkpoint)
        rc = policy_training_restore(t, err);
    if (rc == STATUS_NOT_FOUND)
        rc = policy_file_create(t->served, config->spec, config->seed, err);
    return rc;
}

void policy_training_close(struct policy_training *t)
{
    free(t->checkpoint);
    free(t->served);
}

bool policy_training_is_over(const struct policy_training *t)
{
    return t->n_episodes >= t->config.n_episodes ||
           (t->config.until != 0 && t->n_episodes > 0 && t->running_reward >= t->config.until);
}

enum status policy_training_next(struct policy_training *t, struct parley_train *what,
                                 bool *ret_is_over, struct error *err)
{
    struct error why;

    if (t->n_episodes > 0 && !t->is_saved && policy_training_save(t, &why) != STATUS_OK)
        console_error("cannot write a checkpoint: %s", why.text);
    t->is_saved = true;
    what->n_episodes = 1;
    what->seed = t->config.seed + ((uint64_t)t->n_episodes << EPISODE_SEED_SHIFT);
    what->save_path = t->served;
    *ret_is_over = policy_training_is_over(t);
    return STATUS_OK;
}

void policy_training_count(struct policy_training *t, struct parley_trained *event)
{
    if (event->n_observers > 0) /* 0: the event reports no learning */
        t->running_reward = 0.5F * event->mean_reward + 0.5F * t->running_reward;
    t->n_actions += event->n_actions;
    t->n_episodes++;
    t->is_saved = false;
    event->episode = t->n_episodes;
    event->running_reward = t->running_reward;
    event->n_actions = t->n_actions;
}

enum status policy_training_finish(struct policy_training *t, struct error *err)
{
    enum status rc = policy_file_copy(t->served, t->config.path, NULL, err);

    if (rc != STATUS_OK)
        return rc;
    (void)unlink(t->checkpoint); /* there may be none */
    (void)unlink(t->served); /* a file that cannot be removed is overwritten by the next training */
    return STATUS_OK;
}
