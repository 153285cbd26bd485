/* The verb "observe": an environment worker that attaches to a server and runs the episodes that
 * the server requests. */
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/output/console.h"
#include "cli/output/out.h"
#include "client/cli/connection.h"
#include "worlds/verbs/policy/environment_worker.h"
#include "worlds/verbs/verbs.h"

struct observe_options {
    const char *environment, *model, *env_id, *rpc;
    uint64_t seed_offset, seed_stride;
};

static const struct option_row observe_rows[] = {
    {"env", "NAME", "the environment: a built-in one, or plugin:FILE.so (cartpole)", OPTION_TEXT,
     offsetof(struct observe_options, environment), 0},
    {"model", "NAME", "the model that is the policy (the server's default)", OPTION_TEXT,
     offsetof(struct observe_options, model), 0},
    {"env-id", "TEXT",
     "the name of this run; a new run with the same name replaces the old one (random)",
     OPTION_TEXT, offsetof(struct observe_options, env_id), 0},
    {"rpc", "HOW", "unary or stream: how actions are requested (stream)", OPTION_TEXT,
     offsetof(struct observe_options, rpc), 0},
    {"seed-offset", "N", "a number that is added to the server's seed (0)", OPTION_U64,
     offsetof(struct observe_options, seed_offset), 0},
    {"seed-stride", "N", "N times the row that the server assigns is added too (0)", OPTION_U64,
     offsetof(struct observe_options, seed_stride), 0},
    {0},
};

/* The channel's thread owns it, except for the fields that the main thread waits for. */
struct observe {
    struct environment_worker *worker;
    pthread_mutex_t lock;
    struct parley_call
        *attached; /* guarded by lock: an episode may be requested before it is stored here */
    struct parley_run_episode episode;
    uint64_t seed_offset, seed_stride;
    uint32_t row;
    uint64_t n_episodes, n_steps;
    int over_fd; /* readable when the server has ended the stream */
    struct parley_error end;
};

static void on_accepted(void *arg, uint32_t row)
{
    struct observe *o = arg;

    o->row = row;
    environment_worker_set_row(o->worker, row);
}

static void on_played(void *arg, const struct played *played, const struct parley_error *err)
{
    struct observe *o = arg;
    const struct parley_episode_result result = {
        .episode = o->episode.episode,
        .returns = played->returns,
        .n_returns = played->n_returns,
        .reward = played->reward,
        .error = err->status == PARLEY_OK ? NULL : err,
    };

    o->n_episodes++;
    o->n_steps += played->n_returns;
    pthread_mutex_lock(&o->lock);
    (void)parley_attach_send(o->attached, &result); /* if it cannot be sent, the stream ends soon */
    pthread_mutex_unlock(&o->lock);
}

static void on_run(void *arg, const struct parley_run_episode *episode)
{
    struct observe *o = arg;

    o->episode = *episode;
    o->episode.seed += o->seed_offset + o->row * o->seed_stride;
    environment_worker_play(o->worker, &o->episode, false, on_played, o);
}

static void on_end(void *arg, const struct parley_error *err)
{
    struct observe *o = arg;

    o->end = *err;
    (void)eventfd_write(o->over_fd, 1); /* cannot overflow */
}

/* Waits until the server ends the stream, or for a SIGINT or SIGTERM: then true. */
static bool observe_wait_for_end(int over_fd, int signal_fd)
{
    struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN}, {.fd = over_fd, .events = POLLIN}};

    while (poll(fds, 2, -1) < 0)
        ;
    return (fds[0].revents & POLLIN) != 0;
}

static void print_figures(const struct observe *o, const char *env_id, bool is_json)
{
    const struct latency *l = environment_worker_latency(o->worker);
    json_t *buckets = json_array();

    if (!is_json)
        printf("%llu episodes, %llu steps, p50 %.0f us, p99 %.0f us\n",
               (unsigned long long)o->n_episodes, (unsigned long long)o->n_steps,
               latency_percentile(l, 50), latency_percentile(l, 99));
    for (size_t i = 0; i < LATENCY_BUCKETS; i++)
        if (l->buckets[i] > 0)
            (void)json_array_append_new(
                buckets, json_pack("[I,I]", (json_int_t)i, (json_int_t)l->buckets[i]));
    if (is_json)
        (void)out_json(json_pack("{s:s,s:I,s:I,s:f,s:f,s:O}", "env_id", env_id, "episodes",
                                 (json_int_t)o->n_episodes, "steps", (json_int_t)o->n_steps,
                                 "p50_us", latency_percentile(l, 50), "p99_us",
                                 latency_percentile(l, 99), "latency_buckets", buckets));
    json_decref(buckets);
}

static enum exit_code observe_environments(struct parley_channel *channel,
                                           const struct observe_options *options,
                                           const struct connection_options *connection,
                                           int signal_fd)
{
    struct environment_worker_config config = {
        .model = options->model,
        .env_id = options->env_id,
        .environment = options->environment,
        .is_stream = strcmp(options->rpc, "stream") == 0,
    };
    struct observe o = {.seed_offset = options->seed_offset,
                        .seed_stride = options->seed_stride,
                        .lock = PTHREAD_MUTEX_INITIALIZER};
    const struct parley_attach_events events = {on_accepted, on_run, on_end, &o};
    struct parley_attach offer = {.model = options->model, .env_id = options->env_id};
    struct error err;
    bool is_asked;

    if (getrandom(&config.run_id, sizeof(config.run_id), 0) != sizeof(config.run_id)) {
        console_error("the kernel returned no random number");
        return EXIT_FAILED;
    }
    if (environment_worker_open(&o.worker, channel, &config, &err) != STATUS_OK) {
        console_error("%s", err.text);
        return EXIT_MISUSE;
    }
    offer.run_id = config.run_id;
    offer.environment = environment_worker_environment(o.worker);
    o.over_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_lock(&o.lock);
    o.attached = parley_attach_start(channel, &offer, &events);
    pthread_mutex_unlock(&o.lock);
    if (o.over_fd < 0 || o.attached == NULL) {
        console_error("out of memory");
        parley_channel_close(channel);
        environment_worker_close(o.worker);
        return EXIT_FAILED;
    }
    is_asked = observe_wait_for_end(o.over_fd, signal_fd);
    parley_channel_close(channel); /* no callback is called after this */
    print_figures(&o, options->env_id, connection->is_json);
    parley_call_unref(o.attached);
    environment_worker_close(o.worker);
    (void)close(o.over_fd);
    return is_asked || o.end.status == PARLEY_OK ? EXIT_DONE : connection_complain(&o.end);
}

/* A descriptor for SIGINT and SIGTERM. Call before threads start. */
static int observe_catch_signals(void)
{
    sigset_t signals;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL); /* cannot fail */
    return signalfd(-1, &signals, SFD_CLOEXEC);
}

/* Many workers share a machine with their server. When the server wakes one it still has answers
 * for others, so the worker must not preempt it. */
static void observe_use_batch_scheduling(void)
{
    const struct sched_param none = {0};
    int rc = sched_setscheduler(0, SCHED_BATCH, &none);

    (void)rc; /* a failure only costs more context switches */
}

enum exit_code observe_run(const struct verb *verb, int argc, char **argv)
{
    struct connection_options connection = connection_defaults();
    struct observe_options options = {.environment = "cartpole", .rpc = "stream"};
    const struct option_group groups[] = {{connection_rows, &connection, NULL},
                                          {observe_rows, &options, NULL}};
    char name[32];
    struct parley_channel *channel;
    enum exit_code code;
    int first, signal_fd;

    if (!options_read(verb, groups, 2, argc, argv, 0, 0, &first, &code))
        return code;
    if (strcmp(options.rpc, "stream") != 0 && strcmp(options.rpc, "unary") != 0)
        return options_misuse(verb, "--rpc is '%s', it must be unary or stream", options.rpc);
    if (options.env_id == NULL) {
        (void)snprintf(name, sizeof(name), "observer-%ld", (long)getpid());
        options.env_id = name;
    }
    observe_use_batch_scheduling();
    signal_fd = observe_catch_signals();
    channel = connection_open(&connection, &code);
    if (channel == NULL)
        return code;
    code = observe_environments(channel, &options, &connection, signal_fd);
    (void)close(signal_fd);
    return code;
}
