/* 64 policies of one shape, each with parameters of its own (MADDPG's case), one observation for
 * each: asked all at once, so that they are computed as one pass, beside one by one. First without
 * a server, the pass alone by processor time; then through a daemon by the clock: one Step after
 * the other; all on one stream without waiting; and so too by policies of 64 shapes, which cannot
 * be grouped.
 *
 * usage: bench_grouped PARLEYD [ROUNDS] */
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agents/agent.h"
#include "agents/policy/policy.h"
#include "agents/turn.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "client/lib/parley.h"

enum { POLICIES = 64, N_OBS = 18, REPEATS = 200, WARM = 20 };

extern char **environ;

#define CHECK(what) ((what) ? (void)0 : die(__LINE__, #what))

_Noreturn static void die(int line, const char *what)
{
    (void)fprintf(stderr, "bench grouped: line %d: %s does not hold\n", line, what);
    exit(1);
}

static float observation[N_OBS];

static struct policy_spec spec_of(size_t n_hidden, size_t n_layers)
{
    struct policy_spec s;

    policy_spec_cartpole(&s);
    s.n_observations = N_OBS;
    s.n_actions = 5;
    s.n_hidden = n_hidden;
    s.n_layers = n_layers;
    s.dropout = 0.0f;
    return s;
}

static void write_policy(char path[64], const char *folder, const struct policy_spec *s, size_t i)
{
    struct error err;

    (void)snprintf(path, 64, "%s/%zu.gguf", folder, i);
    CHECK(policy_file_create(path, s, i + 1, &err) == STATUS_OK);
}

/* --- the pass alone --- */

struct asked {
    struct agent *agent;
    struct clone *clone;
    struct arena arena;
    struct agent_turn turn;
    struct tensor_view seen;
    struct row *row;
};

static void asked_open(struct asked *a, const char *path)
{
    const struct agent_config config = {
        .name = "p", .path = path, .options = {.backend = "cpu", .n_threads = 1}, .env = &env_real};
    struct error err;

    CHECK(agent_open(&a->agent, NULL, &config, &err) == STATUS_OK);
    CHECK(clone_open(&a->clone, a->agent, &(struct clone_config){0}, &err) == STATUS_OK);
    arena_init(&a->arena, 1 << 16);
    agent_turn_init(&a->turn, &a->arena, 0);
    a->seen = (struct tensor_view){.name = "observation",
                                   .type = TENSOR_F32,
                                   .n_dims = 1,
                                   .dims = {N_OBS},
                                   .data = observation,
                                   .size_bytes = sizeof(observation)};
    a->turn.seen.tensors = &a->seen;
    a->turn.seen.n_tensors = 1;
    sampling_init(&a->turn.seen.sampling);
    CHECK(a->agent->type->observe(a->clone, &a->turn, &err) == STATUS_OK);
    a->row = &a->turn.row;
}

static void asked_close(struct asked *a)
{
    agent_turn_deinit(&a->turn);
    arena_deinit(&a->arena);
    clone_close(a->clone);
    agent_unref(a->agent);
}

static double cpu_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* cannot fail for this clock */
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static void bench_pass(const char *folder, size_t n_hidden, size_t n_layers)
{
    const struct policy_spec s = spec_of(n_hidden, n_layers);
    struct asked *a = xalloc(POLICIES * sizeof(*a));
    struct agent_step steps[POLICIES];
    double alone = 1e30, grouped = 1e30;
    char path[64];

    for (size_t i = 0; i < POLICIES; i++) {
        write_policy(path, folder, &s, i);
        asked_open(&a[i], path);
        (void)unlink(path);
        steps[i] = (struct agent_step){a[i].agent, &a[i].row, 1};
    }
    for (size_t round = 0; round < REPEATS; round++) {
        double from = cpu_us();

        for (size_t i = 0; i < POLICIES; i++)
            a[i].agent->type->batch_act(a[i].agent, &a[i].row, 1);
        alone = least(alone, cpu_us() - from);
        from = cpu_us();
        a->agent->type->group_act(steps, POLICIES);
        grouped = least(grouped, cpu_us() - from);
    }
    (void)printf("pass of 64, %3zu x %zu   grouped %7.1f us  one by one %7.1f us  %.2f x\n",
                 n_hidden, n_layers, grouped, alone, alone / grouped);
    for (size_t i = 0; i < POLICIES; i++)
        asked_close(&a[i]);
    free(a);
}

/* --- through a daemon --- */

struct served {
    pid_t pid;
    char address[128], names[POLICIES][8];
    struct parley_channel *channel;
    struct parley_call *stream;
    uint64_t seq;
    pthread_mutex_t lock;
    pthread_cond_t told;
    /* By the lock. */
    size_t n_told;              /* answers, and the end */
    uint64_t n_rows, n_answers; /* of the answers' batches */
};

/* Tells the main thread of an answer of so many rows; 0: of the end. */
static void served_tell(struct served *s, uint32_t n_rows)
{
    CHECK(pthread_mutex_lock(&s->lock) == 0);
    s->n_rows += n_rows;
    s->n_answers += n_rows > 0;
    s->n_told++;
    CHECK(pthread_cond_signal(&s->told) == 0);
    CHECK(pthread_mutex_unlock(&s->lock) == 0);
}

static void served_await(struct served *s, size_t n)
{
    CHECK(pthread_mutex_lock(&s->lock) == 0);
    while (s->n_told < n)
        CHECK(pthread_cond_wait(&s->told, &s->lock) == 0);
    s->n_told -= n;
    CHECK(pthread_mutex_unlock(&s->lock) == 0);
}

static void on_action(void *arg, uint64_t tag, const struct parley_action *action,
                      const struct parley_error *err)
{
    struct served *s = arg;

    if (err->status != PARLEY_OK)
        (void)fprintf(stderr, "%s\n", err->text);
    CHECK(err->status == PARLEY_OK);
    served_tell(s, action->batch_size);
}

static void on_end(void *arg, const struct parley_error *err)
{
    struct served *s = arg;

    served_tell(s, 0);
}

static void served_run(struct served *s, char *const argv[])
{
    posix_spawn_file_actions_t actions;
    char line[1000];
    int ends[2];
    FILE *in;

    CHECK(pipe(ends) == 0);
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, ends[1], 2) == 0);
    CHECK(posix_spawn_file_actions_addclose(&actions, ends[0]) == 0);
    CHECK(posix_spawn(&s->pid, argv[0], &actions, NULL, argv, environ) == 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    in = fdopen(ends[0], "r");
    CHECK(in != NULL);
    do
        CHECK(fgets(line, sizeof(line), in) != NULL);
    while (strstr(line, "ready grpc=") == NULL ||
           sscanf(strstr(line, "ready grpc="), "ready grpc=%127s", s->address) != 1);
    /* in stays open: later output of the child must not kill it. */
}

static void served_open(struct served *s, const char *parleyd, const char *folder, bool are_alike)
{
    const struct parley_act_events events = {.action = on_action, .end = on_end, .arg = s};
    char *argv[8 + 2 * POLICIES], options[POLICIES][96];
    size_t n = 0;

    *s = (struct served){0};
    CHECK(pthread_mutex_init(&s->lock, NULL) == 0 && pthread_cond_init(&s->told, NULL) == 0);
    argv[n++] = (char *)(uintptr_t)parleyd;
    argv[n++] = (char *)(uintptr_t) "--listen=127.0.0.1:0";
    argv[n++] = (char *)(uintptr_t) "--threads=1";
    for (size_t i = 0; i < POLICIES; i++) {
        /* 64 wide, or 64 in the mean */
        const struct policy_spec spec = spec_of(are_alike ? 64 : 33 + i, 2);
        char path[64];

        write_policy(path, folder, &spec, i);
        (void)snprintf(s->names[i], sizeof(s->names[i]), "p%zu", i);
        (void)snprintf(options[i], sizeof(options[i]), "%s=%s", s->names[i], path);
        argv[n++] = (char *)(uintptr_t) "--model";
        argv[n++] = options[i];
    }
    argv[n] = NULL;
    served_run(s, argv);
    s->channel = parley_channel_open(s->address);
    CHECK(s->channel != NULL);
    s->stream = parley_act_start(s->channel, &events);
    CHECK(s->stream != NULL);
}

static void served_close(struct served *s)
{
    parley_call_half_close(s->stream);
    served_await(s, 1);
    parley_call_unref(s->stream);
    parley_channel_close(s->channel);
    (void)kill(s->pid, SIGKILL);
    (void)waitpid(s->pid, NULL, 0);
    (void)pthread_cond_destroy(&s->told);
    (void)pthread_mutex_destroy(&s->lock);
}

static void on_step(void *arg, const struct parley_action *action, const struct parley_error *err)
{
    on_action(arg, 0, action, err);
}

enum way { BY_STEP, BY_STREAM, TOGETHER };

/* An action of each policy; microseconds. */
static double served_round(struct served *s, enum way way)
{
    const int64_t shape[] = {N_OBS};
    const struct parley_tensor seen = {"observation", PARLEY_F32,         shape, 1,
                                       observation,   sizeof(observation)};
    double from_s = clock_s();

    s->seq++;
    for (size_t i = 0; i < POLICIES; i++) {
        const struct parley_step step = {.model = s->names[i],
                                         .env_id = s->names[i],
                                         .run_id = 1,
                                         .seq = s->seq,
                                         .observation = &seen,
                                         .n_observation = 1};
        struct parley_error err;

        if (way == BY_STEP)
            CHECK(parley_step(s->channel, &step, on_step, s, &err) == PARLEY_OK);
        else
            CHECK(parley_act_send(s->stream, &step));
        if (way != TOGETHER)
            served_await(s, 1);
    }
    if (way == TOGETHER)
        served_await(s, POLICIES);
    return (clock_s() - from_s) * 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    qsort(x, n, sizeof(*x), by_value);
    return x[n / 2];
}

static void bench_served(const char *parleyd, const char *folder, size_t n_rounds)
{
    double *us[4];
    struct served alike, unlike;

    for (size_t k = 0; k < 4; k++)
        us[k] = xalloc(n_rounds * sizeof(*us[k]));
    served_open(&alike, parleyd, folder, true);
    served_open(&unlike, parleyd, folder, false);
    for (size_t i = 0; i < WARM; i++) {
        (void)served_round(&alike, TOGETHER);
        (void)served_round(&unlike, TOGETHER);
    }
    alike.n_rows = alike.n_answers = 0;
    for (size_t i = 0; i < n_rounds; i++)
        us[TOGETHER][i] = served_round(&alike, TOGETHER);
    (void)printf("through a daemon, 64 x 2: rows in an answer's pass, mean %.1f of 64\n",
                 (double)alike.n_rows / (double)alike.n_answers);
    for (size_t i = 0; i < n_rounds; i++) {
        us[BY_STEP][i] = served_round(&alike, BY_STEP);
        us[BY_STREAM][i] = served_round(&alike, BY_STREAM);
        us[TOGETHER][i] = served_round(&alike, TOGETHER);
        us[3][i] = served_round(&unlike, TOGETHER);
    }
    for (size_t k = 0; k < 4; k++) {
        static const char *const names[] = {"one Step after the other",
                                            "one after the other, a stream",
                                            "all at once, a stream", "64 shapes, all at once"};
        double all = median(us[TOGETHER], n_rounds), this = median(us[k], n_rounds);

        (void)printf("  %-30s %8.0f us  %.2f x\n", names[k], this, this / all);
    }
    served_close(&unlike);
    served_close(&alike);
    for (size_t k = 0; k < 4; k++)
        free(us[k]);
}

int main(int argc, char **argv)
{
    size_t n_rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 100;
    char folder[] = "/tmp/bench-grouped-XXXXXX", path[64];

    if (argc < 2 || n_rounds == 0)
        return 2;
    for (size_t i = 0; i < N_OBS; i++)
        observation[i] = (float)i / N_OBS - 0.5f;
    CHECK(mkdtemp(folder) != NULL);
    bench_pass(folder, 16, 2);
    bench_pass(folder, 64, 2);
    bench_pass(folder, 128, 1);
    bench_served(argv[1], folder, n_rounds);
    for (size_t i = 0; i < POLICIES; i++) {
        (void)snprintf(path, sizeof(path), "%s/%zu.gguf", folder, i);
        (void)unlink(path);
    }
    return rmdir(folder) == 0 ? 0 : 1;
}
