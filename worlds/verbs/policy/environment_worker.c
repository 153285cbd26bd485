/* Happy path: environment_worker_play resets the environment and sends the observation; the
 * returned action steps the environment, and so on until n_steps are done and `played` is called. A
 * failed step ends the episode with its error; an ABORTED one is sent again. */
#include "worlds/verbs/policy/environment_worker.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "worlds/verbs/policy/local_environment.h"

enum { BUCKETS_AN_OCTAVE = 16, MAX_ABORTS = 100, MAX_STEPS = 10 * 1000 * 1000 };

void latency_add(struct latency *l, uint64_t us)
{
    double at = us > 1 ? log2((double)us) * BUCKETS_AN_OCTAVE : 0;

    l->buckets[at < LATENCY_BUCKETS - 1 ? (size_t)at : LATENCY_BUCKETS - 1]++;
    l->n++;
}

double latency_percentile(const struct latency *l, double percent)
{
    uint64_t rank = (uint64_t)ceil((double)l->n * percent / 100), n = 0;

    for (size_t i = 0; i < LATENCY_BUCKETS && l->n > 0; i++) {
        n += l->buckets[i];
        if (n >= rank)
            return exp2(((double)i + 0.5) / BUCKETS_AN_OCTAVE);
    }
    return 0;
}

struct environment_worker {
    struct parley_channel *channel;
    struct environment_worker_config config;
    struct environment *environment;
    pthread_mutex_t lock;
    struct parley_call
        *stream; /* guarded by lock: its end may be called before it is stored here. NULL: none */
    struct latency latency;
    uint64_t seq;
    uint64_t sent_us;
    uint64_t seed;
    uint32_t n_resets; /* of the seed's series */
    float observation[ENVIRONMENT_MAX_OBSERVATION];
    float reward; /* the reward of the previous action */
    bool is_first;
    /* The running episode. */
    struct parley_run_episode episode;
    bool is_single, is_playing;
    float *rewards; /* [n_steps], and the returns at the end */
    bool *ends;     /* [n_steps] a sub-episode ended with this step */
    size_t cap_steps, n_steps, n_aborts;
    environment_worker_fn played;
    void *arg;
};

enum status environment_worker_open(struct environment_worker **out, struct parley_channel *channel,
                                    const struct environment_worker_config *config,
                                    struct error *err)
{
    struct environment *environment;
    enum status rc = local_environment_open(&environment, config->environment, err);
    struct environment_worker *w;

    if (rc != STATUS_OK)
        return rc;
    if (environment->type->n_actions == 0) {
        rc = error_set(
            err, STATUS_UNIMPLEMENTED,
            "the actions of %s are numbers, but this policy can only choose among discrete actions",
            environment->type->name);
        local_environment_close(environment);
        return rc;
    }
    w = xalloc(sizeof(*w));
    (void)pthread_mutex_init(&w->lock, NULL); /* cannot fail */
    w->channel = channel;
    w->config = *config;
    w->environment = environment;
    *out = w;
    return STATUS_OK;
}

void environment_worker_close(struct environment_worker *w)
{
    if (w == NULL)
        return;
    if (w->stream != NULL)
        parley_call_unref(w->stream);
    (void)pthread_mutex_destroy(&w->lock);
    local_environment_close(w->environment);
    free(w->rewards);
    free(w->ends);
    free(w);
}

void environment_worker_set_row(struct environment_worker *w, uint32_t row)
{
    w->config.row = row;
}

const char *environment_worker_environment(const struct environment_worker *w)
{
    return w->environment->type->name;
}

uint32_t environment_worker_max_steps(const struct environment_worker *w)
{
    return (uint32_t)w->environment->type->max_steps;
}

const struct latency *environment_worker_latency(const struct environment_worker *w)
{
    return &w->latency;
}

/* --- the end of an episode --- */

/* Turns rewards into rewards-to-go, from the back, starting again where a sub-episode ended.
 * Returns the sum of the first sub-episode's rewards. */
static float make_returns(struct environment_worker *w)
{
    float reward = 0, next = 0;

    for (size_t i = 0; i < w->n_steps; i++) {
        reward += w->rewards[i];
        if (w->ends[i])
            break;
    }
    for (size_t i = w->n_steps; i-- > 0;) {
        next = w->rewards[i] + (w->ends[i] ? 0 : w->episode.gamma * next);
        w->rewards[i] = next;
    }
    return reward;
}

static void environment_worker_finish(struct environment_worker *w, const struct parley_error *err)
{
    struct played played = {.n_returns = w->n_steps, .returns = w->rewards};

    if (!w->is_playing)
        return;
    w->is_playing = false;
    played.reward = make_returns(w);
    w->played(w->arg, &played, err);
}

static void environment_worker_fail(struct environment_worker *w, enum parley_status status,
                                    const char *text)
{
    struct parley_error err = {.status = status};

    (void)snprintf(err.text, sizeof(err.text), "%s", text);
    environment_worker_finish(w, &err);
}

/* --- a step --- */

static void on_action(void *arg, const struct parley_action *action,
                      const struct parley_error *err);

static void on_stream_action(void *arg, uint64_t tag, const struct parley_action *action,
                             const struct parley_error *err)
{
    on_action(arg, action, err);
}

static void on_stream_end(void *arg, const struct parley_error *err)
{
    struct environment_worker *w = arg;

    pthread_mutex_lock(&w->lock);
    parley_call_unref(w->stream);
    w->stream = NULL; /* the next step opens a new stream */
    pthread_mutex_unlock(&w->lock);
    if (err->status == PARLEY_OK)
        environment_worker_fail(w, PARLEY_UNAVAILABLE, "the server ended the stream of steps");
    else
        environment_worker_finish(w, err);
}

static bool send_on_stream(struct environment_worker *w, const struct parley_step *step)
{
    const struct parley_act_events events = {on_stream_action, on_stream_end, w};

    bool is_sent;

    pthread_mutex_lock(&w->lock);
    if (w->stream == NULL)
        w->stream = parley_act_start(w->channel, &events);
    is_sent = w->stream != NULL && parley_act_send(w->stream, step);
    pthread_mutex_unlock(&w->lock);
    return is_sent;
}

static bool send_as_call(struct environment_worker *w, const struct parley_step *step)
{
    struct parley_call *call = parley_step_start(w->channel, step, on_action, w);

    if (call == NULL)
        return false;
    parley_call_unref(call);
    return true;
}

static void send_step(struct environment_worker *w)
{
    const int64_t shape[] = {(int64_t)w->environment->type->n_observation};
    const struct parley_tensor observation = {
        .name = "observation",
        .dtype = PARLEY_F32,
        .shape = shape,
        .n_dims = 1,
        .data = w->observation,
        .size_bytes = (size_t)shape[0] * sizeof(float),
    };
    const struct parley_step step = {
        .model = w->config.model,
        .env_id = w->config.env_id,
        .run_id = w->config.run_id,
        .seq = w->seq,
        .observation = &observation,
        .n_observation = 1,
        .reward = w->reward,
        .done = w->is_first,
        .row = w->config.row,
    };

    w->sent_us = clock_ns() / 1000;
    if (!(w->config.is_stream ? send_on_stream(w, &step) : send_as_call(w, &step)))
        environment_worker_fail(w, PARLEY_UNAVAILABLE, "the step could not be sent");
}

/* False: the environment has failed, and with it the episode. */
static bool environment_worker_goes_on(struct environment_worker *w)
{
    const char *failure = local_environment_failure(w->environment);

    if (failure != NULL)
        environment_worker_fail(w, PARLEY_INTERNAL, failure);
    return failure == NULL;
}

/* Begins an episode of the environment. */
static void environment_worker_reset(struct environment_worker *w)
{
    environment_reset(w->environment, w->seed, w->n_resets++, w->observation);
    w->is_first = true;
    if (environment_worker_goes_on(w))
        send_step(w);
}

/* The action's number, or -1. */
static int64_t action_of(const struct parley_action *action)
{
    for (size_t i = 0; i < action->n_output; i++) {
        const struct parley_tensor *t = &action->output[i];

        if (strcmp(t->name, "action") == 0 && t->dtype == PARLEY_I64 &&
            t->size_bytes == sizeof(int64_t)) {
            int64_t n;

            memcpy(&n, t->data, sizeof(n));
            return n;
        }
    }
    return -1;
}

static void environment_worker_move(struct environment_worker *w, size_t action)
{
    struct environment_step step;

    environment_step(w->environment, action, &step);
    memcpy(w->observation, step.observation, sizeof(w->observation));
    w->rewards[w->n_steps] = step.reward;
    w->ends[w->n_steps] = w->environment->is_over;
    w->reward = step.reward;
    w->is_first = false;
    w->n_steps++;
    w->seq++;
}

static void on_action(void *arg, const struct parley_action *action, const struct parley_error *err)
{
    struct environment_worker *w = arg;
    int64_t number;

    if (!w->is_playing)
        return;
    if (err->status == PARLEY_ABORTED && w->n_aborts++ < MAX_ABORTS) {
        send_step(w);
        return;
    }
    if (err->status != PARLEY_OK) {
        environment_worker_finish(w, err);
        return;
    }
    number = action_of(action);
    if (number < 0 || (uint64_t)number >= w->environment->type->n_actions) {
        environment_worker_fail(w, PARLEY_INVALID_ARGUMENT,
                                "the model's action is not an action of this environment");
        return;
    }
    latency_add(&w->latency, clock_ns() / 1000 - w->sent_us);
    environment_worker_move(w, (size_t)number);
    if (!environment_worker_goes_on(w))
        return;
    if (w->n_steps == w->episode.n_steps || (w->is_single && w->environment->is_over)) {
        static const struct parley_error none = {.status = PARLEY_OK};

        environment_worker_finish(w, &none);
        return;
    }
    if (w->environment->is_over)
        environment_worker_reset(w);
    else
        send_step(w);
}

void environment_worker_play(struct environment_worker *w, const struct parley_run_episode *episode,
                             bool is_single, environment_worker_fn played, void *arg)
{
    w->episode = *episode;
    w->is_single = is_single;
    w->n_steps = w->n_aborts = 0;
    w->reward = 0;
    w->played = played;
    w->arg = arg;
    w->is_playing = true;
    if (episode->n_steps == 0 || episode->n_steps > MAX_STEPS) {
        environment_worker_fail(w, PARLEY_OUT_OF_RANGE,
                                "the number of steps must be from 1 to ten million");
        return;
    }
    if (episode->n_steps > w->cap_steps) {
        w->rewards = xrealloc(w->rewards, episode->n_steps * sizeof(*w->rewards));
        w->ends = xrealloc(w->ends, episode->n_steps * sizeof(*w->ends));
        w->cap_steps = episode->n_steps;
    }
    if (w->seq == 0 || w->seed != episode->seed) {
        w->seed = episode->seed;
        w->n_resets = 0;
    }
    if (w->seq == 0)
        w->seq = 1;
    environment_worker_reset(w);
}
