/* parley.v1.Act, Train: a training run and the stream of its events. If the call closes first, the
 * run is cancelled, and their shared memory is freed when the run has ended. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "parley/v1/act.pb-c.h"
#include "server/act/trainer.h"
#include "server/api/parley/methods.h"
#include "server/model/models.h"
#include "server/server.h"

enum { STEPS_DEFAULT = 500, TIMEOUT_DEFAULT_MS = 60000 };

static const float learning_rate_default = 0.01f;

struct train {
    struct call *call; /* NULL: closed */
    struct act_training_run run;
    struct list events; /* not written yet */
    bool has_ended;
    struct error err; /* the run's final status */
    char save_path[];
};

struct train_event {
    struct link link;
    struct training_event what;
};

static void free_train(struct train *t)
{
    struct link *l;

    while ((l = list_pop(&t->events)) != NULL)
        free(container_of(l, struct train_event, link));
    free(t);
}

static void act_train_tell(struct act_training_run *run, const struct training_event *what)
{
    struct train *t = container_of(run, struct train, run);
    struct train_event *event;

    if (t->call == NULL)
        return;
    event = try_alloc(1, sizeof(*event));
    if (event == NULL) { /* no event is skipped: the totals would be wrong */
        (void)error_no_memory(&t->err, sizeof(*event), "an event");
        training_run_cancel(run);
        return;
    }
    event->what = *what;
    list_push(&t->events, &event->link);
    call_notify(t->call);
}

static void ended(struct act_training_run *run, const struct error *err)
{
    struct train *t = container_of(run, struct train, run);

    t->has_ended = true;
    if (t->call == NULL) {
        free_train(t);
        return;
    }
    if (t->err.status == STATUS_OK)
        t->err = *err;
    call_notify(t->call);
}

static void act_train_write_ready(struct call *call, void *state)
{
    Parley__V1__ActTrainEvent message = PARLEY__V1__ACT_TRAIN_EVENT__INIT;
    struct train *t = state;
    struct train_event *event;
    struct link *l = list_pop(&t->events);

    if (l == NULL) {
        if (t->has_ended)
            call_finish(call, &t->err);
        return;
    }
    event = container_of(l, struct train_event, link);
    message.episode = event->what.episode;
    message.mean_reward = event->what.mean_reward;
    message.running_reward = event->what.running_reward;
    message.rollout_us = event->what.rollout_us;
    message.train_us = event->what.train_us;
    message.actions = event->what.n_actions;
    message.forwards = event->what.n_forwards;
    message.observers = event->what.n_workers;
    message.params_version = event->what.params_version;
    free(event);
    call_write(call, &message.base, false);
}

static void act_train_on_close(struct call *call, void *state, enum status why)
{
    struct train *t = state;

    t->call = NULL;
    if (t->has_ended)
        free_train(t);
    else
        training_run_cancel(&t->run);
}

static void act_train_drain(struct call *call, void *state)
{
    struct train *t = state;

    if (t->err.status == STATUS_OK)
        (void)error_draining(&t->err);
    training_run_cancel(&t->run);
}

static void take_request(struct training_config *out, const Parley__V1__ActTrainRequest *r)
{
    *out = (struct training_config){
        .n_workers = r->observers,
        .n_episodes = r->episodes,
        .n_steps = r->n_steps != 0 ? r->n_steps : STEPS_DEFAULT,
        .gamma = r->gamma_given_case != 0 ? r->gamma : 1,
        .seed = r->seed,
        .learn = {.loss = r->loss == PARLEY__V1__ACT_LOSS__ACT_LOSS_TUTORIAL ? LEARN_TUTORIAL
                                                                             : LEARN_FIXED,
                  .learning_rate =
                      r->learning_rate_given_case != 0 ? r->learning_rate : learning_rate_default,
                  .normalise = r->normalise != 0,
                  .value_weight = r->value_weight,
                  .entropy_weight = r->entropy_weight},
        .until = r->until,
        .timeout_ms = r->timeout_ms != 0 ? r->timeout_ms : TIMEOUT_DEFAULT_MS,
    };
}

static void start_train(struct call *call, const Parley__V1__ActTrainRequest *r)
{
    static const struct call_handler handler = {.on_write_ready = act_train_write_ready,
                                                .drain = act_train_drain,
                                                .on_close = act_train_on_close};
    struct server *server = call_server(call);
    size_t path_size = strlen(r->save_path) + 1;
    struct train *t = try_alloc(1, sizeof(*t) + path_size);
    struct error err;
    enum status rc;

    if (t == NULL) {
        (void)error_no_memory(&err, sizeof(*t) + path_size, "a training");
        call_finish(call, &err);
        return;
    }
    t->call = call;
    list_init(&t->events);
    memcpy(t->save_path, r->save_path, path_size);
    take_request(&t->run.config, r);
    t->run.config.save_path = t->save_path;
    t->run.tell = act_train_tell;
    t->run.ended = ended;
    rc = (unsigned)r->loss <= PARLEY__V1__ACT_LOSS__ACT_LOSS_TUTORIAL
             ? models_get(&t->run.model, server->models, r->model, &err)
             : error_field(&err, "loss", "is %d, which is not a loss", (int)r->loss);
    if (rc == STATUS_OK)
        rc = training_run_start(&t->run, server->trainers, &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        free(t);
        return;
    }
    call_set_handler(call, &handler, t);
}

#define ACT_TRAIN_METHODS(METHOD) \
    METHOD(SERVER_STREAM, ADMIN, "Act/Train", act_train_request, act_train_event, start_train)

PARLEY_TABLE(act_train_methods, ACT_TRAIN_METHODS)
