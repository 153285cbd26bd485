/* Happy path: parleyd starts on a free port, then the workers, which attach; Configure, Train to
 * its end; SIGTERM to the workers, each of which prints its measurements, and then to parleyd. On
 * any failure all processes are stopped. */
#include "worlds/verbs/policy/rollout.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/subprocess.h"

static const char model_name[] = "policy";

enum { WORKER_TIMEOUT_MS = 60 * 1000, SEED_STRIDE = 1000 * 1000 };

/* How long a worker waits for the server, which is slow to answer on a busy machine: as long as
 * Train waits for workers. */
static const char worker_wait_s[] = "60";

struct training_run {
    const struct rollout_config *config;
    struct rollout *out;
    struct served served;
    struct subprocess *workers; /* [n_started] */
    size_t n_started;
    struct parley_channel *channel;
    uint64_t n_actions, n_forwards; /* of the calls of Train before */
    parley_trained_fn trained;
    void *arg;
};

static double rollout_cpu_s(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) / 1e6;
}

static enum status start_server(struct training_run *r, struct error *err)
{
    char model[PROGRAM_PATH_MAX];
    const char *flags[] = {"--model", model, "--log-level", "error"};

    (void)snprintf(model, sizeof(model), "%s=%s", model_name, r->config->policy);
    return served_start(&r->served, flags, sizeof(flags) / sizeof(flags[0]), err);
}

static enum status start_worker(struct training_run *r, size_t i, struct error *err)
{
    char self[PROGRAM_PATH_MAX], name[32], stride[32];
    char *const argv[] = {
        self,
        (char *)"observe",
        (char *)"--json",
        (char *)"--server",
        r->served.address,
        (char *)"--wait",
        (char *)worker_wait_s,
        (char *)"--env",
        (char *)r->config->environment,
        (char *)"--rpc",
        (char *)(r->config->is_stream ? "stream" : "unary"),
        (char *)"--env-id",
        name,
        (char *)"--seed-stride",
        stride,
        NULL,
    };
    enum status rc = program_path(self, NULL, err);

    (void)snprintf(name, sizeof(name), "observer-%zu", i);
    (void)snprintf(stride, sizeof(stride), "%d", r->config->has_own_seeds ? SEED_STRIDE : 0);
    if (rc == STATUS_OK)
        rc = subprocess_start(&r->workers[i], argv, SUBPROCESS_READS_STDOUT, err);
    return rc;
}

static enum status of_call(struct error *err, enum parley_status rc, const struct parley_error *why)
{
    return rc == PARLEY_OK ? STATUS_OK : error_set(err, (enum status)rc, "%s", why->text);
}

static bool on_trained(void *arg, const struct parley_trained *event)
{
    struct training_run *r = arg;

    r->out->rollout_s += (double)event->rollout_us / 1e6;
    r->out->train_s += (double)event->train_us / 1e6;
    r->out->n_actions = r->n_actions + event->n_actions;
    r->out->n_forwards = r->n_forwards + event->n_forwards;
    r->out->running_reward = (double)event->running_reward;
    return r->trained == NULL || r->trained(r->arg, event);
}

static enum status rollout_train(struct training_run *r, struct error *err)
{
    const struct rollout_config *config = r->config;
    struct parley_act_configure mode = config->mode;
    struct parley_train what = config->train;
    struct parley_error why;
    bool is_over = false;
    enum parley_status rc;

    mode.model = what.model = model_name;
    r->channel = parley_channel_open(r->served.address);
    if (r->channel == NULL)
        return error_no_memory(err, 0, "a channel");
    rc = parley_act_configure(r->channel, &mode, &why);
    while (rc == PARLEY_OK && !is_over) {
        if (config->next != NULL && config->next(r->arg, &what, &is_over, err) != STATUS_OK)
            return err->status;
        if (is_over)
            break;
        rc = parley_train(r->channel, &what, on_trained, r, &why);
        r->n_actions = r->out->n_actions;
        r->n_forwards = r->out->n_forwards;
        is_over = config->next == NULL;
    }
    return of_call(err, rc, &why);
}

/* The line that a worker prints at its end. */
static enum status read_figures(struct training_run *r, struct subprocess *worker,
                                struct error *err)
{
    char line[sizeof(worker->line)];
    json_t *figures, *buckets, *pair;
    size_t i;
    enum status rc = subprocess_line(worker, line, sizeof(line), WORKER_TIMEOUT_MS, err);

    if (rc != STATUS_OK)
        return rc;
    figures = json_loads(line, 0, NULL);
    buckets = json_object_get(figures, "latency_buckets");
    json_array_foreach(buckets, i, pair)
    {
        json_int_t bucket = json_integer_value(json_array_get(pair, 0));
        json_int_t n = json_integer_value(json_array_get(pair, 1));

        if (bucket >= 0 && bucket < LATENCY_BUCKETS && n > 0) {
            r->out->latency.buckets[bucket] += (uint32_t)n;
            r->out->latency.n += (uint64_t)n;
        }
    }
    if (!json_is_array(buckets))
        rc = error_set(err, STATUS_DATA_LOSS, "an observer printed '%.80s'", line);
    json_decref(figures);
    return rc;
}

static enum status end_workers(struct training_run *r, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < r->n_started; i++)
        (void)kill(r->workers[i].pid, SIGTERM); /* if the process has ended, the wait reports it */
    for (size_t i = 0; i < r->n_started && rc == STATUS_OK; i++) {
        struct rusage usage;

        rc = read_figures(r, &r->workers[i], err);
        if (rc == STATUS_OK)
            rc = subprocess_wait(&r->workers[i], &usage, err);
        if (rc == STATUS_OK)
            r->out->workers_cpu_s += rollout_cpu_s(&usage);
    }
    return rc;
}

enum status rollout_run(struct rollout *out, const struct rollout_config *config,
                        parley_trained_fn trained, void *arg, struct error *err)
{
    struct rollout result = {0};
    struct training_run r = {.config = config, .out = &result, .trained = trained, .arg = arg};
    size_t n = config->train.n_observers;
    double start_s = clock_s();
    struct rusage usage = {0};
    enum status rc;

    if (n == 0 || n > ROLLOUT_MAX_WORKERS)
        return error_set(err, STATUS_INVALID, "%zu observers cannot be run, it must be 1 to %d", n,
                         ROLLOUT_MAX_WORKERS);
    r.workers = xalloc(n * sizeof(*r.workers));
    rc = start_server(&r, err);
    while (rc == STATUS_OK && r.n_started < n) {
        rc = start_worker(&r, r.n_started, err);
        r.n_started += rc == STATUS_OK;
    }
    if (rc == STATUS_OK)
        rc = rollout_train(&r, err);
    if (rc == STATUS_OK)
        rc = end_workers(&r, err);
    parley_channel_close(r.channel);
    for (size_t i = 0; i < r.n_started; i++)
        subprocess_stop(&r.workers[i], NULL);
    served_stop(&r.served, &usage);
    free(r.workers);
    if (rc != STATUS_OK)
        return rc;
    result.agent_cpu_s = rollout_cpu_s(&usage);
    result.wall_s = clock_s() - start_s;
    *out = result;
    return STATUS_OK;
}
