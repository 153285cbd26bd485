/* What a teacher costs: acts handed out and replies scored, in memory and from a stream. Prints one
 * line of JSON for each. Arguments: megabytes of data (256), folder (/tmp). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/data_file.h"
#include "worlds/teachers/teacher.h"

static double seconds(clockid_t clock)
{
    struct timespec t;

    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void fail(const struct error *err)
{
    fprintf(stderr, "bench_teacher: %s\n", err->text);
    exit(1);
}

/* JSON lines of about 200 bytes, until there are enough bytes. */
static size_t write_data(const char *path, size_t n_bytes)
{
    FILE *out = fopen(path, "we");
    size_t n = 0, written = 0;

    if (out == NULL)
        exit(1);
    for (; written < n_bytes; n++)
        written += (size_t)fprintf(
            out,
            "{\"text\":\"Turn %zu: what do you say to somebody who asks where the kitchen is, and "
            "whether there is any milk left?\",\"labels\":[\"It is down the hallway, and the milk "
            "is in the fridge.\"],\"episode_done\":true}\n",
            n);
    if (fclose(out) != 0)
        exit(1);
    return written;
}

struct run {
    size_t n_examples;
    double wall_s, cpu_s;
};

/* Runs an epoch; answers with the label if answers is set. */
static struct run run(struct teacher *t, bool answers)
{
    struct participant *p = teacher_participant(t);
    struct participant_clone *c = calloc(1, participant_clone_size(p));
    struct run r = {0};
    struct arena arena;
    struct error err;
    bool done = false;

    if (c == NULL ||
        participant_clone_init(c, p, &(struct participant_slot){0, 0}, &err) != STATUS_OK)
        exit(1);
    arena_init(&arena, 1 << 20);
    r.wall_s = -seconds(CLOCK_MONOTONIC);
    r.cpu_s = -seconds(CLOCK_PROCESS_CPUTIME_ID);
    while (!done) {
        struct field field = {act_key_name(ACT_TEXT), ACT_TEXT, {.type = VALUE_NULL}};
        const struct act *seen;
        struct act said, reply;

        act_init(&said, &arena);
        if (p->type->act(c, &said, &err) != STATUS_OK)
            fail(&err);
        done = p->type->epoch_done(c);
        if (act_is_padding(&said))
            continue;
        r.n_examples++;
        if (!answers)
            continue;
        field.value = value_text(act_labels(&said)->list.items[0]);
        reply = (struct act){.fields = &field, .n = 1, .present = 1u << ACT_TEXT};
        if (participant_observe(c, &reply, &seen, &err) != STATUS_OK)
            fail(&err);
    }
    r.wall_s += seconds(CLOCK_MONOTONIC);
    r.cpu_s += seconds(CLOCK_PROCESS_CPUTIME_ID);
    participant_clone_deinit(c);
    free(c);
    arena_deinit(&arena);
    return r;
}

static void print(const char *what, const struct run *r, size_t n_bytes)
{
    struct rusage use;

    (void)getrusage(RUSAGE_SELF, &use);
    printf("{\"what\": \"%s\", \"examples\": %zu, \"examples_s\": %.0f, \"mb_s\": %.0f, "
           "\"cpu_s\": %.3f, \"wall_s\": %.3f, \"max_rss_mb\": %ld}\n",
           what, r->n_examples, (double)r->n_examples / r->wall_s,
           (double)n_bytes / 1e6 / r->wall_s, r->cpu_s, r->wall_s, use.ru_maxrss / 1024);
    (void)fflush(stdout);
}

static struct teacher *opened(const char *path, bool stream, unsigned metrics)
{
    struct teacher_config config;
    struct teacher *t;
    struct error err;
    char task[600];

    teacher_config_init(&config);
    config.datatype.stream = stream;
    config.metrics = metrics;
    (void)snprintf(task, sizeof(task), "jsonl:%s", path);
    if (teacher_open(&t, task, &config, &err) != STATUS_OK)
        fail(&err);
    return t;
}

int main(int argc, char **argv)
{
    size_t n_bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 256) << 20;
    const char *folder = argc > 2 ? argv[2] : "/tmp";
    char path[500], small[520], index_path[520];
    struct teacher *t;
    struct run r;

    (void)snprintf(path, sizeof(path), "%s/bench-teacher-%d.jsonl", folder, getpid());
    (void)snprintf(small, sizeof(small), "%s.small", path);
    (void)snprintf(index_path, sizeof(index_path), "%s.index", path);
    n_bytes = write_data(path, n_bytes);

    r = (struct run){.wall_s = -seconds(CLOCK_MONOTONIC),
                     .cpu_s = -seconds(CLOCK_PROCESS_CPUTIME_ID)};
    t = opened(path, true, METRICS_F1);
    r.n_examples = teacher_n_examples(t);
    r.wall_s += seconds(CLOCK_MONOTONIC);
    r.cpu_s += seconds(CLOCK_PROCESS_CPUTIME_ID);
    print("index a file", &r, n_bytes);
    r = run(t, false);
    print("stream, acts", &r, n_bytes);
    participant_unref(teacher_participant(t));

    n_bytes = write_data(small, n_bytes < 32 << 20 ? n_bytes : 32 << 20);
    t = opened(small, false, METRICS_F1);
    r = run(t, false);
    print("memory, acts", &r, n_bytes);
    participant_unref(teacher_participant(t));
    t = opened(small, false, METRICS_F1);
    r = run(t, true);
    print("memory, acts and scores, f1", &r, n_bytes);
    participant_unref(teacher_participant(t));
    t = opened(small, false, METRICS_DEFAULT);
    r = run(t, true);
    print("memory, acts and scores, default", &r, n_bytes);
    participant_unref(teacher_participant(t));
    (void)unlink(path);
    (void)unlink(small);
    (void)unlink(index_path);
    return 0;
}
