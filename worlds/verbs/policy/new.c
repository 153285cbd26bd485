/* parley policy new: a policy's file with fresh parameters. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agents/policy/policy.h"
#include "cli/options/options.h"
#include "cli/output/console.h"
#include "worlds/environment/environment.h"
#include "worlds/verbs/verbs.h"

struct policy_new_options {
    const char *environment, *kind, *head_name;
    enum policy_head head; /* head_name's */
    uint32_t n_observations, n_actions, n_hidden, n_layers;
    float dropout;
    bool has_value;
    uint64_t seed;
};

static const struct option_row policy_new_rows[] = {
    {"observations", "N", "how many numbers an observation has", OPTION_U32,
     offsetof(struct policy_new_options, n_observations), 0},
    {"actions", "N", "how many actions there are to choose from, or how many numbers an action has",
     OPTION_U32, offsetof(struct policy_new_options, n_actions), 0},
    {"environment", "NAME",
     "an environment's name, written into the file; a built-in one (CartPole-v1) also sets both "
     "numbers",
     OPTION_TEXT, offsetof(struct policy_new_options, environment), 0},
    {"head", "NAME",
     "softmax: chooses an action; gaussian: actions are numbers; duelling: learns action values, "
     "needs --value (softmax)",
     OPTION_TEXT, offsetof(struct policy_new_options, head_name), 0},
    {"kind", "NAME", "mlp or lstm (mlp)", OPTION_TEXT, offsetof(struct policy_new_options, kind),
     0},
    {"hidden", "N", "units of each hidden layer (128)", OPTION_U32,
     offsetof(struct policy_new_options, n_hidden), 0},
    {"layers", "N", "number of hidden layers (1)", OPTION_U32,
     offsetof(struct policy_new_options, n_layers), 0},
    {"dropout", "X", "dropout in training, from 0 to below 1 (0)", OPTION_FLOAT,
     offsetof(struct policy_new_options, dropout), 0},
    {"value", NULL, "add a second head that estimates the return", OPTION_FLAG,
     offsetof(struct policy_new_options, has_value), 0},
    {"seed", "N", "seed of the parameters (0)", OPTION_U64,
     offsetof(struct policy_new_options, seed), 0},
    {0},
};

static bool policy_new_head(enum policy_head *out, const char *name)
{
    for (int head = POLICY_SOFTMAX; head <= POLICY_DUELLING; head++) {
        if (strcmp(name, policy_head_name((enum policy_head)head)) == 0) {
            *out = (enum policy_head)head;
            return true;
        }
    }
    return false;
}

/* Of an environment that is built in: how many actions the head has there. */
static enum status policy_new_actions(struct policy_new_options *o,
                                      const struct environment_type *type, struct error *err)
{
    bool is_numbers = o->head == POLICY_GAUSSIAN;

    if (o->n_actions != 0)
        return STATUS_OK;
    if (type->n_actions == 0 && !is_numbers)
        return error_set(
            err, STATUS_INVALID,
            "the actions of %s are numbers: use --head gaussian, or --actions N to choose one of N",
            type->name);
    if (type->n_actions != 0 && is_numbers)
        return error_set(err, STATUS_INVALID,
                         "%s takes no numbers, so --head gaussian does not fit", type->name);
    o->n_actions = (uint32_t)(is_numbers ? type->n_action_numbers : type->n_actions);
    return STATUS_OK;
}

/* What the options leave to the environment. */
static enum status policy_new_settle(struct policy_new_options *o, struct error *err)
{
    const struct environment_type *type =
        o->environment == NULL ? NULL : environment_type_find(o->environment);

    if (!policy_new_head(&o->head, o->head_name))
        return error_set(err, STATUS_INVALID,
                         "--head is '%.40s', it must be softmax, gaussian or duelling",
                         o->head_name);
    if (type != NULL) {
        o->environment = type->name;
        o->n_observations =
            o->n_observations != 0 ? o->n_observations : (uint32_t)type->n_observation;
        if (policy_new_actions(o, type, err) != STATUS_OK)
            return err->status;
    }
    if (o->n_observations == 0)
        return error_set(err, STATUS_INVALID, "--observations is missing");
    if (o->n_actions == 0)
        return error_set(err, STATUS_INVALID, "--actions is missing");
    if (o->environment != NULL && strlen(o->environment) >= POLICY_NAME_SIZE)
        return error_set(err, STATUS_INVALID, "--environment is longer than %d bytes",
                         POLICY_NAME_SIZE - 1);
    if (strcmp(o->kind, policy_kind_name(POLICY_MLP)) != 0 &&
        strcmp(o->kind, policy_kind_name(POLICY_LSTM)) != 0)
        return error_set(err, STATUS_INVALID, "--kind is '%.40s', it must be mlp or lstm", o->kind);
    return STATUS_OK;
}

static enum status policy_new_write(const struct policy_new_options *o, const char *path,
                                    struct error *err)
{
    struct policy_spec spec = {
        .kind = strcmp(o->kind, policy_kind_name(POLICY_LSTM)) == 0 ? POLICY_LSTM : POLICY_MLP,
        .head = o->head,
        .n_observations = o->n_observations,
        .n_actions = o->n_actions,
        .n_hidden = o->n_hidden,
        .n_layers = o->n_layers,
        .dropout = o->dropout,
        .has_value = o->has_value,
    };

    (void)snprintf(spec.environment, sizeof(spec.environment), "%s",
                   o->environment == NULL ? "" : o->environment);
    if (access(path, F_OK) == 0) /* the existing file may be a trained policy */
        return error_set(err, STATUS_EXISTS,
                         "%.200s exists already: choose another name or remove it", path);
    if (policy_file_create(path, &spec, o->seed, err) != STATUS_OK)
        return err->status;
    (void)printf("%s: %s, %zu observations, %zu actions, %zu × %zu hidden%s\n", path, o->kind,
                 spec.n_observations, spec.n_actions, spec.n_layers, spec.n_hidden,
                 spec.has_value ? ", a value" : ""); /* main reports a failure of stdout */
    return STATUS_OK;
}

enum exit_code policy_run(const struct verb *verb, int argc, char **argv)
{
    struct policy_new_options o = {
        .kind = "mlp", .head_name = "softmax", .n_hidden = 128, .n_layers = 1};
    const struct option_group groups[] = {{policy_new_rows, &o, NULL}};
    enum exit_code code;
    struct error err;
    int first;

    if (!options_read(verb, groups, 1, argc, argv, 2, 2, &first, &code))
        return code;
    if (strcmp(argv[first], "new") != 0)
        return options_misuse(verb, "'%.40s' is unknown, the only command is 'new'", argv[first]);
    if (policy_new_settle(&o, &err) != STATUS_OK)
        return options_misuse(verb, "%s", err.text);
    if (policy_new_write(&o, argv[first + 1], &err) == STATUS_OK)
        return EXIT_DONE;
    console_error("%s", err.text);
    return EXIT_FAILED;
}
