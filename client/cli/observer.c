/* Happy path: observer_play resets the environment and sends the observation; the action that comes
 * back moves the environment, and so on until n_steps are done and played is called. A failed step
 * ends the episode with its error, but for ABORTED. */
#include "client/cli/observer.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "worlds/environment.h"

enum { BUCKETS_AN_OCTAVE = 16, MAX_ABORTS = 100, MAX_STEPS = 10 * 1000 * 1000 };

void latency_add(struct latency *l, uint64_t us)
{
    double at = us > 1 ? log2((double)us) * BUCKETS_AN_OCTAVE : 0;

    l->buckets[at < LATENCY_BUCKETS - 1 ? (size_t)at : LATENCY_BUCKETS - 1]++;
    l->n++;
}

void latency_merge(struct latency *into, const struct latency *from)
{
    for (size_t i = 0; i < LATENCY_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
    into->n += from->n;
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

struct observer {
    struct parley_channel *channel;
    struct observer_config config;
    struct environment *environment;
    pthread_mutex_t lock;
    struct parley_call
        *stream; /* guarded by lock: its end may come before it is here. NULL: none */
    struct latency latency;
    uint64_t seq;
    uint64_t sent_us;
    uint64_t seed;
    uint32_t n_resets; /* of the seed's series */
    float observation[ENVIRONMENT_MAX_OBSERVATION];
    float reward; /* of the action before */
    bool is_first;
    /* The episode under way. */
    struct parley_run_episode episode;
    bool is_single, is_playing;
    float *rewards; /* [n_steps], and the returns at the end */
    bool *ends;     /* [n_steps] a sub-episode ended with this step */
    size_t cap_steps, n_steps, n_aborts;
    observer_fn played;
    void *arg;
};

enum status observer_open(struct observer **out, struct parley_channel *channel,
                          const struct observer_config *config, struct error *err)
{
    struct environment *environment;
    enum status rc = environment_open(&environment, config->environment, err);
    struct observer *o;

    if (rc != STATUS_OK)
        return rc;
    o = xalloc(sizeof(*o));
    (void)pthread_mutex_init(&o->lock, NULL); /* cannot fail */
    o->channel = channel;
    o->config = *config;
    o->environment = environment;
    *out = o;
    return STATUS_OK;
}

void observer_close(struct observer *o)
{
    if (o == NULL)
        return;
    if (o->stream != NULL)
        parley_call_unref(o->stream);
    (void)pthread_mutex_destroy(&o->lock);
    environment_close(o->environment);
    free(o->rewards);
    free(o->ends);
    free(o);
}

void observer_set_row(struct observer *o, uint32_t row)
{
    o->config.row = row;
}

const char *observer_environment(const struct observer *o)
{
    return o->environment->type->name;
}

uint32_t observer_max_steps(const struct observer *o)
{
    return (uint32_t)o->environment->type->max_steps;
}

const struct latency *observer_latency(const struct observer *o)
{
    return &o->latency;
}

/* --- the end of an episode --- */

/* Rewards become rewards-to-go, from the back, anew where a sub-episode ended. Its first one's
 * reward is their sum. */
static float make_returns(struct observer *o)
{
    float reward = 0, next = 0;

    for (size_t i = 0; i < o->n_steps; i++) {
        reward += o->rewards[i];
        if (o->ends[i])
            break;
    }
    for (size_t i = o->n_steps; i-- > 0;) {
        next = o->rewards[i] + (o->ends[i] ? 0 : o->episode.gamma * next);
        o->rewards[i] = next;
    }
    return reward;
}

static void finish(struct observer *o, const struct parley_error *err)
{
    struct played played = {.n_returns = o->n_steps, .returns = o->rewards};

    if (!o->is_playing)
        return;
    o->is_playing = false;
    played.reward = make_returns(o);
    o->played(o->arg, &played, err);
}

static void fail(struct observer *o, enum parley_status status, const char *text)
{
    struct parley_error err = {.status = status};

    (void)snprintf(err.text, sizeof err.text, "%s", text);
    finish(o, &err);
}

/* --- a step --- */

static void on_action(void *arg, const struct parley_action *action,
                      const struct parley_error *err);

static void on_stream_action(void *arg, uint64_t tag, const struct parley_action *action,
                             const struct parley_error *err)
{
    (void)tag; /* one step is under way at a time */
    on_action(arg, action, err);
}

static void on_stream_end(void *arg, const struct parley_error *err)
{
    struct observer *o = arg;

    pthread_mutex_lock(&o->lock);
    parley_call_unref(o->stream);
    o->stream = NULL; /* the next step opens another */
    pthread_mutex_unlock(&o->lock);
    if (err->status == PARLEY_OK)
        fail(o, PARLEY_UNAVAILABLE, "the server ended the stream of steps");
    else
        finish(o, err);
}

static bool send_on_stream(struct observer *o, const struct parley_step *step)
{
    const struct parley_act_events events = {on_stream_action, on_stream_end, o};

    bool is_sent;

    pthread_mutex_lock(&o->lock);
    if (o->stream == NULL)
        o->stream = parley_act_start(o->channel, &events);
    is_sent = o->stream != NULL && parley_act_send(o->stream, step);
    pthread_mutex_unlock(&o->lock);
    return is_sent;
}

static bool send_as_call(struct observer *o, const struct parley_step *step)
{
    struct parley_call *call = parley_step_start(o->channel, step, on_action, o);

    if (call == NULL)
        return false;
    parley_call_unref(call);
    return true;
}

static void send_step(struct observer *o)
{
    const int64_t shape[] = {(int64_t)o->environment->type->n_observation};
    const struct parley_tensor observation = {
        .name = "observation",
        .dtype = PARLEY_F32,
        .shape = shape,
        .n_dims = 1,
        .data = o->observation,
        .size_bytes = (size_t)shape[0] * sizeof(float),
    };
    const struct parley_step step = {
        .model = o->config.model,
        .env_id = o->config.env_id,
        .run_id = o->config.run_id,
        .seq = o->seq,
        .observation = &observation,
        .n_observation = 1,
        .reward = o->reward,
        .done = o->is_first,
        .row = o->config.row,
    };

    o->sent_us = clock_ns() / 1000;
    if (!(o->config.is_stream ? send_on_stream(o, &step) : send_as_call(o, &step)))
        fail(o, PARLEY_UNAVAILABLE, "the step could not be sent");
}

static void reset(struct observer *o)
{
    environment_reset(o->environment, o->seed, o->n_resets++, o->observation);
    o->is_first = true;
}

/* The action's number, or -1. */
static int64_t action_of(const struct parley_action *action)
{
    for (size_t i = 0; i < action->n_output; i++) {
        const struct parley_tensor *t = &action->output[i];

        if (strcmp(t->name, "action") == 0 && t->dtype == PARLEY_I64 &&
            t->size_bytes == sizeof(int64_t)) {
            int64_t n;

            memcpy(&n, t->data, sizeof n);
            return n;
        }
    }
    return -1;
}

static void move(struct observer *o, size_t action)
{
    struct environment_step step;

    environment_step(o->environment, action, &step);
    memcpy(o->observation, step.observation, sizeof o->observation);
    o->rewards[o->n_steps] = step.reward;
    o->ends[o->n_steps] = o->environment->is_over;
    o->reward = step.reward;
    o->is_first = false;
    o->n_steps++;
    o->seq++;
}

static void on_action(void *arg, const struct parley_action *action, const struct parley_error *err)
{
    struct observer *o = arg;
    int64_t number;

    if (!o->is_playing)
        return;
    if (err->status == PARLEY_ABORTED && o->n_aborts++ < MAX_ABORTS) {
        send_step(o);
        return;
    }
    if (err->status != PARLEY_OK) {
        finish(o, err);
        return;
    }
    number = action_of(action);
    if (number < 0 || (uint64_t)number >= o->environment->type->n_actions) {
        fail(o, PARLEY_INVALID_ARGUMENT, "the model's action is none of this environment's");
        return;
    }
    latency_add(&o->latency, clock_ns() / 1000 - o->sent_us);
    move(o, (size_t)number);
    if (o->n_steps == o->episode.n_steps || (o->is_single && o->environment->is_over)) {
        static const struct parley_error none = {.status = PARLEY_OK};

        finish(o, &none);
        return;
    }
    if (o->environment->is_over)
        reset(o);
    send_step(o);
}

void observer_play(struct observer *o, const struct parley_run_episode *episode, bool is_single,
                   observer_fn played, void *arg)
{
    o->episode = *episode;
    o->is_single = is_single;
    o->n_steps = o->n_aborts = 0;
    o->reward = 0;
    o->played = played;
    o->arg = arg;
    o->is_playing = true;
    if (episode->n_steps == 0 || episode->n_steps > MAX_STEPS) {
        fail(o, PARLEY_OUT_OF_RANGE, "an episode has from 1 to ten million steps");
        return;
    }
    if (episode->n_steps > o->cap_steps) {
        o->rewards = xrealloc(o->rewards, episode->n_steps * sizeof *o->rewards);
        o->ends = xrealloc(o->ends, episode->n_steps * sizeof *o->ends);
        o->cap_steps = episode->n_steps;
    }
    if (o->seq == 0 || o->seed != episode->seed) {
        o->seed = episode->seed;
        o->n_resets = 0;
    }
    if (o->seq == 0)
        o->seq = 1;
    reset(o);
    send_step(o);
}
