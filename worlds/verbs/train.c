/* parley train ENVIRONMENT: a policy from nothing to a file, by REINFORCE on a parleyd and
 * environment workers of its own. The setting is a modern one (returns normalised, a discount, no
 * dropout); that of the tutorial is `parley bench cartpole`. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/policy/policy.h"
#include "cli/options/options.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "worlds/environment/environment.h"
#include "worlds/verbs/policy/rollout.h"
#include "worlds/verbs/train_checkpoint.h"
#include "worlds/verbs/train_policy.h"
#include "worlds/verbs/verbs.h"

struct train_options {
    const char *out, *kind;
    uint32_t n_observers, n_episodes, n_steps, hidden;
    float gamma, learning_rate;
    float value_weight, entropy_weight;
    double until;
    uint64_t seed;
    bool loads_checkpoint, is_json;
};

static const struct option_row train_rows[] = {
    {"out", "FILE", "the file to write the policy to (ENVIRONMENT.gguf)", OPTION_TEXT,
     offsetof(struct train_options, out), 0},
    {"kind", "NAME", "mlp or lstm (mlp)", OPTION_TEXT, offsetof(struct train_options, kind), 0},
    {"hidden", "N", "units in the hidden layer (128)", OPTION_U32,
     offsetof(struct train_options, hidden), 0},
    {"observers", "N", "observer processes (8)", OPTION_U32,
     offsetof(struct train_options, n_observers), 0},
    {"episodes", "N", "the most episodes (100)", OPTION_U32,
     offsetof(struct train_options, n_episodes), 0},
    {"steps", "N", "the most steps of an episode, for each observer (500)", OPTION_U32,
     offsetof(struct train_options, n_steps), 0},
    {"gamma", "X", "discount factor (0.99)", OPTION_FLOAT_FROM_0,
     offsetof(struct train_options, gamma), 0},
    {"learning-rate", "X", "learning rate of Adam (0.01)", OPTION_FLOAT_FROM_0,
     offsetof(struct train_options, learning_rate), 0},
    {"value-weight", "X",
     "add a value head as baseline, and weigh its error in the loss by X; 0: none (0)",
     OPTION_FLOAT, offsetof(struct train_options, value_weight), 0},
    {"entropy-weight", "X", "weight of the actions' entropy in the loss; 0: none (0)", OPTION_FLOAT,
     offsetof(struct train_options, entropy_weight), 0},
    {"until", "X", "end when the running reward reaches X (what counts as solved)", OPTION_DOUBLE,
     offsetof(struct train_options, until), 0},
    {"seed", "N", "seed of the policy and the environments (543)", OPTION_U64,
     offsetof(struct train_options, seed), 0},
    {"load-from-checkpoint", "BOOL", "continue from FILE.checkpoint if it exists (true)",
     OPTION_BOOL, offsetof(struct train_options, loads_checkpoint), 0},
    {"json", NULL, "print one JSON object per line", OPTION_FLAG,
     offsetof(struct train_options, is_json), 0},
    {0},
};

/* Of the channel's thread, while a call of Train runs; else of the main thread. */
struct train_run {
    const struct train_options *options;
    struct policy_training training;
};

static bool on_episode(void *arg, const struct parley_trained *event)
{
    struct train_run *r = arg;
    struct parley_trained e = *event;
    double seconds = (double)(e.rollout_us + e.train_us) / 1e6;
    double rate = (double)e.n_actions / ((double)e.rollout_us / 1e6);

    policy_training_count(&r->training, &e);
    if (r->options->is_json)
        (void)out_json(json_pack("{s:I,s:f,s:f,s:f,s:f,s:I}", "episode", (json_int_t)e.episode,
                                 "mean_reward", (double)e.mean_reward, "running_reward",
                                 (double)e.running_reward, "rollout_s", (double)e.rollout_us / 1e6,
                                 "train_s", (double)e.train_us / 1e6, "actions",
                                 (json_int_t)e.n_actions));
    else
        printf("episode %3u  reward %5.1f  running %5.1f  %.2f s  %.0f actions/s\n", e.episode,
               (double)e.mean_reward, (double)e.running_reward, seconds, rate);
    return out_flush();
}

static enum status on_next(void *arg, struct parley_train *what, bool *ret_is_over,
                           struct error *err)
{
    struct train_run *r = arg;

    return policy_training_next(&r->training, what, ret_is_over, err);
}

static enum status train_policy(struct train_run *r, const char *environment, struct error *err)
{
    const struct train_options *o = r->options;
    const struct rollout_config config = {
        .policy = r->training.served,
        .environment = environment,
        .mode = {.mode = PARLEY_ACT_AUTO},
        .train = {.n_observers = o->n_observers,
                  .n_steps = o->n_steps,
                  .gamma = o->gamma,
                  .learning_rate = o->learning_rate,
                  .normalise = true,
                  .value_weight = o->value_weight,
                  .entropy_weight = o->entropy_weight},
        .next = on_next,
        .is_stream = true,
        .has_own_seeds = true,
    };
    struct rollout ignored;
    enum status rc = STATUS_OK;

    if (!policy_training_is_over(&r->training)) /* else a previous process has completed it */
        rc = rollout_run(&ignored, &config, on_episode, r, err);
    if (rc == STATUS_OK)
        rc = policy_training_finish(&r->training, err);
    return rc;
}

static enum status train_environment(struct train_run *r, struct train_options *o,
                                     const struct environment_type *environment, const char *path,
                                     struct error *err)
{
    const struct option_group groups[] = {{train_rows, o, NULL}};
    struct policy_spec spec = {
        .kind = strcmp(o->kind, "lstm") == 0 ? POLICY_LSTM : POLICY_MLP,
        .n_observations = environment->n_observation,
        .n_actions = environment->n_actions,
        .n_hidden = o->hidden,
        .n_layers = 1,
        .has_value = o->value_weight != 0,
    };
    json_t *options = train_checkpoint_options(groups, 1);
    const struct policy_training_config config = {
        .path = path,
        .spec = &spec,
        .options = options,
        .seed = o->seed,
        .n_episodes = o->n_episodes,
        .until = (float)o->until,
        .loads_checkpoint = o->loads_checkpoint,
    };
    enum status rc;

    (void)snprintf(spec.environment, sizeof(spec.environment), "%s", environment->name);
    rc = policy_training_open(&r->training, &config, err);
    if (rc == STATUS_OK)
        rc = train_policy(r, environment->name, err);
    policy_training_close(&r->training);
    json_decref(options);
    return rc;
}

enum exit_code train_run(const struct verb *verb, int argc, char **argv)
{
    struct train_options o = {.kind = "mlp",
                              .n_observers = 8,
                              .n_episodes = 100,
                              .n_steps = 500,
                              .hidden = 128,
                              .gamma = 0.99F,
                              .learning_rate = 0.01F,
                              .seed = 543,
                              .loads_checkpoint = true};
    const struct option_group groups[] = {{train_rows, &o, NULL}};
    struct train_run run = {.options = &o};
    struct environment *environment;
    struct error err;
    char *path = NULL;
    enum exit_code code;
    enum status rc;
    int first;

    if (train_program_is_wanted(argc, argv))
        return train_program_run(verb, argc, argv);
    if (eval_task_is_wanted(argc, argv))
        return train_task_run(verb, argc, argv);
    if (!options_read(verb, groups, 1, argc, argv, 1, 1, &first, &code))
        return code;
    if (strcmp(o.kind, "mlp") != 0 && strcmp(o.kind, "lstm") != 0)
        return options_misuse(verb, "--kind is '%s', it must be mlp or lstm", o.kind);
    if (o.n_episodes == 0)
        return options_misuse(verb, "--episodes is 0, it must be above 0");
    if (environment_open(&environment, argv[first], &err) != STATUS_OK)
        return options_misuse(verb, "%s", err.text);
    if (environment->type->n_actions == 0)
        return options_misuse(
            verb,
            "the actions of %s are numbers, but this policy can only choose among discrete actions",
            environment->type->name);
    if (o.until == 0)
        o.until = environment->type->solved;
    if (asprintf(&path, "%s%s", o.out != NULL ? o.out : argv[first], o.out != NULL ? "" : ".gguf") <
        0)
        abort(); /* no memory for a path */
    rc = train_environment(&run, &o, environment->type, path, &err);
    if (rc != STATUS_OK)
        console_error("%s", err.text);
    else if (!o.is_json)
        printf("%s after %u episodes, running reward %.1f; 'parleyd --model %s=%s' serves it\n",
               path, run.training.n_episodes, (double)run.training.running_reward, "pole", path);
    environment_close(environment);
    free(path);
    return rc == STATUS_OK ? EXIT_DONE : EXIT_FAILED;
}
