/* What the offline worlds cost: examples a second of worlds with agents that cost nothing, by one
 * thread's processor time, data read, replies scored (exs, accuracy, f1, BLEU-4); what a clone
 * costs to make and to hold, and a million of them. Exits with 3 when a bound of the design does
 * not hold: a million examples a second (500 times ParlAI's), a microsecond and 256 bytes a clone
 * of an agent, 1 GiB for a million clones of a world.
 *
 *     bench_worlds DATA.txt [PARLAI]   the table, of data in ParlAI's format; PARLAI: the line that
 * parlai_worlds.py just printed, for the ratio bench_worlds --make DATA.txt N   writes N examples
 * of it, and does nothing else */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/counter_rng.h"
#include "worlds/baselines/simple.h"
#include "worlds/metrics/metrics.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/teacher.h"
#include "worlds/world/world.h"

enum { N_CLONES = 1000000, MOST_NS = 1000, MOST_CLONE_BYTES = 256 };

static const double least_rate = 1e6, least_ratio = 500, most_world_bytes = 1024.0 * 1024 * 1024;

static struct error err;
static bool is_missed;

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(enum status rc)
{
    if (rc == STATUS_OK)
        return;
    (void)fprintf(stderr, "bench_worlds: %s\n", err.text);
    exit(EXIT_FAILURE);
}

static void bound(bool holds)
{
    (void)printf("%s\n", holds ? "" : "   MISSED");
    is_missed |= !holds;
}

/* --- data --------------------------------------------------------------------------------------
 */

static const char *const words[] = {
    "time",    "year",    "people",   "way",    "day",        "man",    "thing",   "woman",
    "life",    "child",   "world",    "school", "state",      "family", "student", "group",
    "country", "problem", "hand",     "part",   "place",      "case",   "week",    "company",
    "system",  "program", "question", "work",   "government", "number", "night",   "point"};

static void write_words(FILE *to, uint32_t example, uint32_t which, size_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        float x = counter_rng_uniform(1, example, i, which);
        size_t w = (size_t)(x * (float)(sizeof(words) / sizeof(words[0])));

        (void)fprintf(to, "%s%s", i > 0 ? " " : "", words[w]);
    }
}

/* Writes questions of 6 to 15 words and answers of 2 to 5, an episode each. */
static int make(const char *path, size_t n)
{
    FILE *to = fopen(path, "we");

    if (to == NULL) {
        perror(path);
        return EXIT_FAILURE;
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)fputs("text:", to);
        write_words(to, i, 1, 6 + i % 10);
        (void)fputs("?\tlabels:", to);
        write_words(to, i, 2, 2 + i % 4);
        (void)fputs("\tepisode_done:True\n", to);
    }
    return fclose(to) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* --- examples a second ---------------------------------------------------------------------------
 */

static struct participant *open_task(const char *path, size_t batch_size)
{
    struct teacher_config config;
    struct teacher *teacher;
    char task[4096];

    teacher_config_init(&config);
    config.batch_size = batch_size;
    (void)snprintf(task, sizeof(task), "parlai:%s", path);
    must(teacher_open(&teacher, task, &config, &err));
    return teacher_participant(teacher);
}

static struct participant *open_agent(const char *name)
{
    struct simple_config config;
    struct participant *agent;

    simple_config_init(&config);
    must(simple_open(&agent, name, &config, &err));
    return agent;
}

static double measure(const char *path, const char *agent_name, struct world_config config)
{
    struct participant *task = open_task(path, config.batch_size);
    struct participant *agent = open_agent(agent_name);
    uint64_t n = 0;
    double start_s, took_s;
    struct report report = {0};
    struct world *w;

    config.tasks = &task;
    config.agents = &agent;
    config.n_tasks = config.n_agents = 1;
    must(world_open(&w, &config, &err));
    must(world_run(w, &err)); /* warm-up */
    start_s = now_s();
    do {
        struct world_counters counters;

        world_reset(w);
        must(world_run(w, &err));
        world_counters(w, &counters);
        n += counters.n_examples;
        took_s = now_s() - start_s;
    } while (took_s < 0.5);
    must(world_report(&report, w, &err));
    if (metric_value(report_get(&report, "exs")) != (double)world_n_examples(w)) {
        (void)fprintf(stderr, "bench_worlds: examples were lost\n");
        exit(EXIT_FAILURE);
    }
    report_deinit(&report);
    world_close(w);
    participant_unref(task);
    participant_unref(agent);
    return (double)n / took_s;
}

/* ParlAI's examples a second; 0: not measured. */
static double parlai_rate(const char *line)
{
    json_t *o = line != NULL ? json_loads(line, 0, NULL) : NULL;
    double n = json_number_value(json_object_get(o, "exs"));
    double seconds = json_number_value(json_object_get(o, "seconds"));

    json_decref(o);
    return seconds > 0 ? n / seconds : 0;
}

static void print_rates(const char *path, double peer)
{
    const struct {
        const char *what, *agent;
        struct world_config config;
        bool is_bound;
    } rows[] = {
        {"batch 64, repeat_label", "repeat_label", {.batch_size = 64}, true},
        {"batch 1, repeat_label", "repeat_label", {.batch_size = 1}, false},
        {"batch 64, repeat_query, by a batcher", "repeat_query", {.batch_size = 64}, false},
        {"dynamic full, repeat_query",
         "repeat_query",
         {.batch_size = 64, .dynamic = DYNAMIC_FULL, .text_truncate = 32, .label_truncate = 16},
         false},
    };

    (void)printf("examples a second of processor time\n");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double rate = measure(path, rows[i].agent, rows[i].config);

        (void)printf("  %-40s %12.0f", rows[i].what, rate);
        bound(!rows[i].is_bound || rate >= least_rate);
        if (rows[i].is_bound && peer > 0) {
            (void)printf("  %-40s %12.0f   1/%.0f of it", "the same in ParlAI 1.7.2", peer,
                         rate / peer);
            bound(rate >= least_ratio * peer);
        }
    }
}

/* --- clones --------------------------------------------------------------------------------------
 */

static double resident_bytes(void)
{
    unsigned long total = 0, resident = 0;
    FILE *in = fopen("/proc/self/statm", "re");

    if (in == NULL || fscanf(in, "%lu %lu", &total, &resident) != 2)
        resident = 0;
    if (in != NULL)
        (void)fclose(in);
    return (double)resident * 4096;
}

static void print_agents(void)
{
    (void)printf("a clone of an agent, bytes and ns\n");
    for (size_t i = 0; simple_name_at(i) != NULL; i++) {
        struct participant *agent;
        struct participant_clone *clone;
        const struct participant_slot place = {0, 0};
        double start_s, ns;
        size_t size;

        if (simple_needs_dictionary(simple_name_at(i)))
            continue;
        agent = open_agent(simple_name_at(i));
        size = participant_clone_size(agent);
        clone = calloc(1, size);
        if (clone == NULL)
            exit(EXIT_FAILURE);
        start_s = now_s();
        for (size_t n = 0; n < N_CLONES; n++) {
            must(participant_clone_init(clone, agent, &place, &err));
            participant_clone_deinit(clone);
        }
        ns = (now_s() - start_s) * 1e9 / N_CLONES;
        (void)printf("  %-40s %6zu %5.0f", simple_name_at(i), size, ns);
        bound(ns <= MOST_NS && size <= MOST_CLONE_BYTES);
        free(clone);
        participant_unref(agent);
    }
}

static void print_world_clones(const char *path)
{
    struct participant *task = open_task(path, 1), *agent = open_agent("repeat_label");
    const struct world_config config = {
        .tasks = &task, .n_tasks = 1, .agents = &agent, .n_agents = 1, .batch_size = N_CLONES};
    double before = resident_bytes(), start_s = now_s(), bytes, ns;
    struct world *w;

    must(world_open(&w, &config, &err));
    ns = (now_s() - start_s) * 1e9 / N_CLONES;
    bytes = resident_bytes() - before;
    (void)printf("a million clones of a world, ns each    %6.0f", ns);
    bound(ns <= MOST_NS);
    (void)printf("  MiB after they were made              %6.0f", bytes / 1048576);
    bound(bytes < most_world_bytes);
    must(world_parley(w, &err));
    bytes = resident_bytes() - before;
    (void)printf("  MiB while each holds what was said    %6.0f", bytes / 1048576);
    bound(bytes < most_world_bytes);
    world_close(w);
    participant_unref(task);
    participant_unref(agent);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--make") == 0)
        return make(argv[2], strtoull(argv[3], NULL, 10));
    if (argc != 2 && argc != 3) {
        (void)fprintf(stderr, "usage: bench_worlds DATA.txt [PARLAI] | --make DATA.txt N\n");
        return 2;
    }
    print_rates(argv[1], parlai_rate(argc == 3 ? argv[2] : NULL));
    print_agents();
    print_world_clones(argv[1]);
    return is_missed ? 3 : EXIT_SUCCESS;
}
