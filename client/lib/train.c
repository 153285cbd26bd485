/* Training a policy on a server, and how it batches. */
#include "client/lib/parts.h"
#include "parley/v1/act.pb-c.h"

/* The response only repeats the request. */
static enum status ignore_response(void *arg, const void *data, size_t len, struct error *err)
{
    return STATUS_OK;
}

enum parley_status parley_act_configure(struct parley_channel *channel,
                                        const struct parley_act_configure *how,
                                        struct parley_error *err)
{
    Parley__V1__ActConfigureRequest request = PARLEY__V1__ACT_CONFIGURE_REQUEST__INIT;
    const struct call_start start = {.method = "/parley.v1.Act/Configure",
                                     .request = &request.base};

    request.model = (char *)(how->model == NULL ? "" : how->model);
    request.mode = (Parley__V1__ActMode)((int)how->mode + 1);
    request.n = how->n;
    request.timeout_ms = how->timeout_ms;
    request.on_miss = how->is_partial ? PARLEY__V1__ACT_ON_MISS__ACT_ON_MISS_PARTIAL
                                      : PARLEY__V1__ACT_ON_MISS__ACT_ON_MISS_ABORT;
    request.min = how->min;
    request.max = how->max;
    request.delay_us = how->delay_us;
    return request_wait(channel, &start, false, ignore_response, NULL, err);
}

struct train_call {
    parley_trained_fn trained;
    void *arg;
};

static enum status on_event(void *arg, const void *data, size_t len, struct error *err)
{
    const struct train_call *t = arg;
    Parley__V1__ActTrainEvent *from = parley__v1__act_train_event__unpack(NULL, len, data);
    struct parley_trained event;

    if (from == NULL)
        return error_set(err, STATUS_INTERNAL, "the server sent a message that is not an event");
    event = (struct parley_trained){
        .episode = from->episode,
        .mean_reward = from->mean_reward,
        .running_reward = from->running_reward,
        .rollout_us = from->rollout_us,
        .train_us = from->train_us,
        .n_actions = from->actions,
        .n_forwards = from->forwards,
        .n_observers = from->observers,
        .params_version = from->params_version,
    };
    parley__v1__act_train_event__free_unpacked(from, NULL);
    if (!t->trained(t->arg, &event))
        return error_set(err, STATUS_CANCELLED, "the training was ended");
    return STATUS_OK;
}

enum parley_status parley_train(struct parley_channel *channel, const struct parley_train *what,
                                parley_trained_fn trained, void *arg, struct parley_error *err)
{
    Parley__V1__ActTrainRequest request = PARLEY__V1__ACT_TRAIN_REQUEST__INIT;
    const struct call_start how = {.method = "/parley.v1.Act/Train", .request = &request.base};
    struct train_call t = {trained, arg};

    request.model = (char *)(what->model == NULL ? "" : what->model);
    request.observers = what->n_observers;
    request.episodes = what->n_episodes;
    request.n_steps = what->n_steps;
    request.gamma_given_case = PARLEY__V1__ACT_TRAIN_REQUEST__GAMMA_GIVEN_GAMMA;
    request.gamma = what->gamma;
    request.seed = what->seed;
    request.learning_rate_given_case =
        PARLEY__V1__ACT_TRAIN_REQUEST__LEARNING_RATE_GIVEN_LEARNING_RATE;
    request.learning_rate = what->learning_rate;
    request.loss = what->is_tutorial_loss ? PARLEY__V1__ACT_LOSS__ACT_LOSS_TUTORIAL
                                          : PARLEY__V1__ACT_LOSS__ACT_LOSS_FIXED;
    request.normalise = what->normalise;
    request.save_path = (char *)(what->save_path == NULL ? "" : what->save_path);
    request.timeout_ms = what->timeout_ms;
    request.until = what->until;
    request.value_weight = what->value_weight;
    request.entropy_weight = what->entropy_weight;
    return request_wait(channel, &how, true, on_event, &t, err);
}
