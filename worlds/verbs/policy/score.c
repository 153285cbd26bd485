/* parley eval --world ENVIRONMENT: plays episodes with a policy that a server serves, and reports
 * the reward it earned. */
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "client/cli/connection.h"
#include "worlds/verbs/policy/environment_worker.h"
#include "worlds/verbs/policy/local_environment.h"
#include "worlds/verbs/policy/remote_score.h"
#include "worlds/verbs/verbs.h"

enum { MAX_AT_ONCE = 256, MAX_EPISODES = 1000 * 1000 };

struct score_options {
    const char *world, *agent;
    uint32_t n_episodes, n_at_once;
    uint64_t seed;
};

static const struct option_row score_rows[] = {
    {"world", "NAME",
     "the environment: cartpole or another built-in one, plugin:FILE.so, or one that the server "
     "has",
     OPTION_TEXT, offsetof(struct score_options, world), 0},
    {"agent", "NAME", "the model that is the policy (the server's default)", OPTION_TEXT,
     offsetof(struct score_options, agent), 0},
    {"episodes", "N", "number of episodes (100)", OPTION_U32,
     offsetof(struct score_options, n_episodes), 0},
    {"at-once", "N", "episodes that run at the same time (16)", OPTION_U32,
     offsetof(struct score_options, n_at_once), 0},
    {"seed", "N", "seed of the environments (0)", OPTION_U64, offsetof(struct score_options, seed),
     0},
    {0},
};

struct scoring;

/* One environment worker, which plays one episode after another. */
struct evaluator_slot {
    struct scoring *scoring;
    struct environment_worker *worker;
    char env_id[48];
    size_t episode;
};

struct scoring {
    const struct score_options *options;
    struct evaluator_slot *slots; /* [n_slots] */
    size_t n_slots;
    float *rewards; /* [n_episodes]; the channel's thread's until is_over */
    size_t n_begun, n_ended;
    pthread_mutex_t lock;
    pthread_cond_t is_over_now;
    bool is_over;            /* guarded by lock */
    struct parley_error err; /* guarded by lock */
};

static void scoring_end(struct scoring *s, const struct parley_error *err)
{
    pthread_mutex_lock(&s->lock);
    if (!s->is_over)
        s->err = *err;
    s->is_over = true;
    pthread_cond_signal(&s->is_over_now);
    pthread_mutex_unlock(&s->lock);
}

static void evaluator_slot_play(struct evaluator_slot *slot, size_t episode);

static void on_played(void *arg, const struct played *played, const struct parley_error *err)
{
    struct evaluator_slot *slot = arg;
    struct scoring *s = slot->scoring;

    if (err->status != PARLEY_OK) {
        scoring_end(s, err);
        return;
    }
    s->rewards[slot->episode] = played->reward;
    s->n_ended++;
    console_progress("%zu of %u episodes …", s->n_ended, s->options->n_episodes);
    if (s->n_ended == s->options->n_episodes)
        scoring_end(s, err);
    else if (s->n_begun < s->options->n_episodes)
        evaluator_slot_play(slot, s->n_begun++);
}

/* Each episode has its own seed, so that its start does not depend on the worker that plays it. */
static void evaluator_slot_play(struct evaluator_slot *slot, size_t episode)
{
    const struct parley_run_episode run = {.episode = episode,
                                           .n_steps = environment_worker_max_steps(slot->worker),
                                           .gamma = 1,
                                           .seed = slot->scoring->options->seed + episode};

    slot->episode = episode;
    environment_worker_play(slot->worker, &run, true, on_played, slot);
}

/* Starts the first n_slots episodes and waits for the end of all: until then the rest of *s belongs
 * to the channel's thread. */
static void play_all(struct scoring *s)
{
    s->n_begun = s->n_slots;
    for (size_t i = 0; i < s->n_slots; i++)
        evaluator_slot_play(&s->slots[i], i);
    pthread_mutex_lock(&s->lock);
    while (!s->is_over)
        pthread_cond_wait(&s->is_over_now, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static enum status open_slots(struct scoring *s, struct parley_channel *channel, struct error *err)
{
    uint64_t run_id;
    enum status rc = STATUS_OK;

    if (getrandom(&run_id, sizeof(run_id), 0) != sizeof(run_id))
        return error_set(err, STATUS_UNAVAILABLE, "the kernel returned no random number");
    for (size_t i = 0; i < s->n_slots && rc == STATUS_OK; i++) {
        struct evaluator_slot *slot = &s->slots[i];
        const struct environment_worker_config config = {
            .model = s->options->agent,
            .env_id = slot->env_id,
            .environment = s->options->world,
            .run_id = run_id,
            .row = (uint32_t)i,
            .is_stream = true,
        };

        slot->scoring = s;
        (void)snprintf(slot->env_id, sizeof(slot->env_id), "eval-%llx-%zu",
                       (unsigned long long)run_id, i);
        rc = environment_worker_open(&slot->worker, channel, &config, err);
    }
    return rc;
}

/* n_full: episodes that had the full length. */
static void print_score(const struct scoring *s, size_t n_full, bool is_json)
{
    size_t n = s->options->n_episodes;
    double sum = 0, squares = 0, low = (double)s->rewards[0], high = low, mean;

    for (size_t i = 0; i < n; i++) {
        double r = (double)s->rewards[i];

        sum += r;
        squares += r * r;
        low = fmin(low, r);
        high = fmax(high, r);
    }
    mean = sum / (double)n;
    squares = sqrt(fmax(squares / (double)n - mean * mean, 0));
    if (is_json)
        (void)out_json(json_pack("{s:s,s:I,s:f,s:f,s:f,s:f,s:I}", "world", s->options->world,
                                 "episodes", (json_int_t)n, "mean_reward", mean, "deviation",
                                 squares, "min_reward", low, "max_reward", high, "full_episodes",
                                 (json_int_t)n_full)); /* out_end reports a failure */
    else
        printf("%zu episodes: mean reward %.1f, deviation %.1f, from %.0f to %.0f, %zu to the "
               "full length\n",
               n, mean, squares, low, high, n_full);
}

static size_t scoring_n_full(const struct scoring *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->options->n_episodes; i++)
        n += s->rewards[i] >= (float)environment_worker_max_steps(s->slots[0].worker);
    return n;
}

static void tell_remote(size_t n_ended, void *arg)
{
    const struct score_options *o = arg;

    console_progress("%zu of %u episodes …", n_ended, o->n_episodes);
}

/* In an environment that only the server has. */
static enum exit_code score_remotely(const struct score_options *o,
                                     const struct connection_options *c)
{
    struct scoring s = {.options = o};
    struct remote_score remote = {.environment = o->world,
                                  .policy = o->agent,
                                  .n_episodes = o->n_episodes,
                                  .n_at_once = o->n_at_once,
                                  .seed = o->seed};
    enum exit_code code;
    struct parley_channel *channel = connection_open(c, &code);
    struct error err;
    enum status rc;

    if (channel == NULL)
        return code;
    s.rewards = remote.rewards = xalloc(o->n_episodes * sizeof(*s.rewards));
    rc = remote_score_play(&remote, channel, tell_remote, (void *)(uintptr_t)o, &err);
    parley_channel_close(channel);
    console_clear();
    if (rc == STATUS_OK)
        print_score(&s, remote.n_cut, c->is_json);
    else
        console_error("%s", err.text);
    free(s.rewards);
    return rc == STATUS_OK ? EXIT_DONE : EXIT_FAILED;
}

static enum exit_code score_policy(const struct score_options *o,
                                   const struct connection_options *c)
{
    struct scoring s = {.options = o,
                        .n_slots = o->n_at_once < o->n_episodes ? o->n_at_once : o->n_episodes};
    enum exit_code code = EXIT_FAILED;
    struct parley_channel *channel = connection_open(c, &code);
    struct error err;

    if (channel == NULL)
        return code;
    (void)pthread_mutex_init(&s.lock, NULL);
    (void)pthread_cond_init(&s.is_over_now, NULL);
    s.slots = xalloc(s.n_slots * sizeof(*s.slots));
    s.rewards = xalloc(o->n_episodes * sizeof(*s.rewards));
    if (open_slots(&s, channel, &err) == STATUS_OK)
        play_all(&s);
    else
        console_error("%s", err.text);
    parley_channel_close(channel); /* no callback is called after this */
    console_clear();
    if (s.is_over && s.err.status == PARLEY_OK) {
        print_score(&s, scoring_n_full(&s), c->is_json);
        code = EXIT_DONE;
    } else if (s.is_over) {
        code = connection_complain(&s.err);
    }
    for (size_t i = 0; i < s.n_slots; i++)
        environment_worker_close(s.slots[i].worker);
    free(s.slots);
    free(s.rewards);
    (void)pthread_mutex_destroy(&s.lock);
    (void)pthread_cond_destroy(&s.is_over_now);
    return code;
}

bool score_is_wanted(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--world") == 0 || strncmp(argv[i], "--world=", 8) == 0)
            return true;
    return false;
}

enum exit_code score_run(const struct verb *verb, int argc, char **argv)
{
    struct connection_options connection = connection_defaults();
    struct score_options o = {.n_episodes = 100, .n_at_once = 16};
    const struct option_group groups[] = {{connection_rows, &connection, NULL},
                                          {score_rows, &o, NULL}};
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 2, argc, argv, 0, 0, &first, &code))
        return code;
    if (o.n_episodes == 0 || o.n_episodes > MAX_EPISODES)
        return options_misuse(verb, "--episodes is %u, it must be from 1 to %d", o.n_episodes,
                              MAX_EPISODES);
    if (o.n_at_once == 0 || o.n_at_once > MAX_AT_ONCE)
        return options_misuse(verb, "--at-once is %u, it must be from 1 to %d", o.n_at_once,
                              MAX_AT_ONCE);
    if (o.world != NULL && !local_environment_is_known(o.world))
        return score_remotely(&o, &connection);
    return score_policy(&o, &connection);
}
