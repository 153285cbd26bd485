/* parley bench params: rounds of UpdateAndFetch with trainers as processes and a parleyd of its
 * own, and in the same run the bare transport with the same chunks. The results are checked: every
 * trainer receives the same bytes in every round, and the last parameters are compared with those
 * that one process computes in double. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "cli/options/options.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "cli/subprocess.h"
#include "client/cli/bench/params_bench.h"
#include "client/cli/verbs.h"

enum { MAX_TRAINERS = 64, LINE_TIMEOUT_MS = 120 * 1000, RESNET_CLASSES = 30 };

static const double learning_rate = 0.001, momentum = 0.9, tolerance = 1e-6;

struct params_options {
    const char *shape;
    uint64_t n_bytes;
    uint32_t n_trainers, n_rounds;
    double max_ratio;
    bool is_json;
};

static const struct option_row params_rows[] = {
    {"trainers", "N", "trainer processes (5)", OPTION_U32,
     offsetof(struct params_options, n_trainers), 0},
    {"rounds", "N", "measured rounds, after one that is not measured (6)", OPTION_U32,
     offsetof(struct params_options, n_rounds), 0},
    {"shape", "NAME", "resnet50: the 161 tensors of ResNet-50 for 30 classes, 94.3 MB (resnet50)",
     OPTION_TEXT, offsetof(struct params_options, shape), 0},
    {"bytes", "N", "one tensor of N bytes instead", OPTION_U64,
     offsetof(struct params_options, n_bytes), 0},
    {"max-ratio", "X", "exit with 3 if a round takes more than X times as long as gRPC alone",
     OPTION_DOUBLE, offsetof(struct params_options, max_ratio), 0},
    {"json", NULL, "print one JSON object", OPTION_FLAG, offsetof(struct params_options, is_json),
     0},
    {0},
};

/* The measurements of one kind of processes. */
struct measured {
    double round_s; /* mean over the measured rounds */
    double clients_cpu_s, server_cpu_s;
    uint64_t peak_bytes; /* of the server's memory */
};

struct params_bench {
    struct params_options options;
    struct params_shape shape;
    struct measured server, floor;
    double max_diff; /* to the reference */
};

static double params_bench_cpu_s(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec) * 1e-6;
}

/* --- processes --- */

static enum status start_role(struct subprocess *out, const char *role, const char *address,
                              size_t index, size_t n, size_t n_rounds, struct error *err)
{
    char self[PROGRAM_PATH_MAX], numbers[3][24];
    char *argv[] = {self,
                    (char *)"bench",
                    (char *)"params",
                    (char *)(uintptr_t)role,
                    (char *)(uintptr_t)address,
                    numbers[0],
                    numbers[1],
                    numbers[2],
                    NULL};
    enum status rc = program_path(self, NULL, err);

    (void)snprintf(numbers[0], sizeof(numbers[0]), "%zu", index);
    (void)snprintf(numbers[1], sizeof(numbers[1]), "%zu", n);
    (void)snprintf(numbers[2], sizeof(numbers[2]), "%zu", n_rounds);
    return rc == STATUS_OK ? subprocess_start(out, argv, SUBPROCESS_READS_STDOUT, err) : rc;
}

struct params_span {
    uint64_t begin_ns, end_ns;
    char sha256[65];
};

/* Reads a trainer's line for that round. */
static enum status read_round(struct params_span *out, struct subprocess *c, size_t round,
                              struct error *err)
{
    unsigned long long begin, end;
    char line[256];
    size_t number;
    enum status rc = subprocess_line(c, line, sizeof(line), LINE_TIMEOUT_MS, err);

    if (rc != STATUS_OK)
        return rc;
    if (sscanf(line, PARAMS_ROUND_LINE, &number, &begin, &end, out->sha256) != 4 || number != round)
        return error_set(err, STATUS_INTERNAL, "a trainer printed '%.60s'", line);
    out->begin_ns = begin;
    out->end_ns = end;
    return STATUS_OK;
}

/* Round 0 warms up. The others are timed from the earliest begin to the latest end. */
static enum status read_rounds(struct measured *out, struct subprocess *clients,
                               const struct params_options *o, struct error *err)
{
    uint64_t first_ns = UINT64_MAX, last_ns = 0;

    for (size_t round = 0; round <= o->n_rounds; round++) {
        struct params_span first = {0};

        for (size_t i = 0; i < o->n_trainers; i++) {
            struct params_span s;
            enum status rc = read_round(&s, &clients[i], round, err);

            if (rc != STATUS_OK)
                return rc;
            if (i == 0)
                first = s;
            else if (strcmp(first.sha256, s.sha256) != 0)
                return error_set(err, STATUS_DATA_LOSS,
                                 "round %zu: two trainers got different parameters", round);
            if (round > 0 && s.begin_ns < first_ns)
                first_ns = s.begin_ns;
            if (s.end_ns > last_ns)
                last_ns = s.end_ns;
        }
    }
    out->round_s = (double)(last_ns - first_ns) * 1e-9 / o->n_rounds;
    return STATUS_OK;
}

static enum status run_clients(struct measured *out, struct params_bench *b, const char *role,
                               const char *address, struct error *err)
{
    const struct params_options *o = &b->options;
    struct subprocess clients[MAX_TRAINERS] = {0};
    struct rusage usage;
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < o->n_trainers && rc == STATUS_OK; i++)
        rc = start_role(&clients[i], role, address, i, b->shape.n, o->n_rounds + 1, err);
    if (rc == STATUS_OK)
        rc = read_rounds(out, clients, o, err);
    for (size_t i = 0; i < o->n_trainers && rc == STATUS_OK; i++) {
        rc = subprocess_wait(&clients[i], &usage, err);
        out->clients_cpu_s += params_bench_cpu_s(&usage);
    }
    for (size_t i = 0; i < o->n_trainers; i++)
        subprocess_stop(&clients[i], NULL);
    return rc;
}

/* --- the bare transport --- */

static enum status run_floor(struct params_bench *b, struct error *err)
{
    const struct params_options *o = &b->options;
    char line[64], address[64];
    struct rusage usage = {0};
    struct subprocess server = {0};
    int port = 0;
    enum status rc = start_role(&server, "as-floor-server", "-", o->n_trainers, b->shape.n,
                                o->n_rounds + 1, err);

    if (rc == STATUS_OK)
        rc = subprocess_line(&server, line, sizeof(line), LINE_TIMEOUT_MS, err);
    if (rc == STATUS_OK && sscanf(line, "port %d", &port) != 1)
        rc = error_set(err, STATUS_INTERNAL, "the server for comparison printed '%s'", line);
    (void)snprintf(address, sizeof(address), "127.0.0.1:%d", port);
    if (rc == STATUS_OK)
        rc = run_clients(&b->floor, b, "as-floor-client", address, err);
    if (rc == STATUS_OK)
        rc = subprocess_wait(&server, &usage, err);
    b->floor.server_cpu_s = params_bench_cpu_s(&usage);
    subprocess_stop(&server, NULL);
    return rc;
}

/* --- the parameter server --- */

static uint64_t peak_of(pid_t pid)
{
    unsigned long long kib = 0;
    char path[64], line[128];
    FILE *in;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    in = fopen(path, "re");
    while (in != NULL && fgets(line, sizeof(line), in) != NULL)
        if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
            break;
    if (in != NULL)
        (void)fclose(in);
    return kib * 1024;
}

/* The expected result of the rounds, in double, number by number. */
static double reference(const struct params_options *o, size_t i)
{
    double sum = 0.0, value = 0.0, buffer = 0.0;

    for (size_t k = 0; k < o->n_trainers; k++)
        sum += (double)params_gradient_number(k, i);
    for (size_t round = 0; round <= o->n_rounds; round++) {
        buffer = momentum * buffer + sum / o->n_trainers;
        value -= learning_rate * buffer;
    }
    return value;
}

static enum status check_values(struct params_bench *b, struct parley_channel *channel,
                                struct error *err)
{
    float *values = try_alloc(b->shape.n, sizeof(float));
    struct parley_version version;
    struct parley_error why;

    if (values == NULL)
        return error_no_memory(err, b->shape.n * sizeof(float), "the parameters");
    if (parley_params_pull(channel, "bench", NULL, values, b->shape.n, &version, &why) !=
        PARLEY_OK) {
        free(values);
        return error_set(err, (enum status)why.status, "pulling: %s", why.text);
    }
    for (size_t i = 0; i < b->shape.n; i++)
        b->max_diff = fmax(b->max_diff, fabs((double)values[i] - reference(&b->options, i)));
    free(values);
    if (version.version != b->options.n_rounds + 1 || b->max_diff > tolerance)
        return error_set(err, STATUS_DATA_LOSS,
                         "version %llu differs by %g from the result of one process",
                         (unsigned long long)version.version, b->max_diff);
    return STATUS_OK;
}

static enum status create(struct params_bench *b, struct parley_channel *channel, struct error *err)
{
    const struct parley_params_config config = {
        .name = "bench",
        .specs = b->shape.specs,
        .n_specs = b->shape.n_specs,
        .learning_rate = learning_rate,
        .momentum = momentum,
        .round_size = b->options.n_trainers,
        .dedupe = true,
    };
    struct parley_error why;

    if (parley_channel_wait(channel, LINE_TIMEOUT_MS, &why) != PARLEY_OK ||
        parley_params_create(channel, &config, NULL, b->shape.n, &why) != PARLEY_OK)
        return error_set(err, (enum status)why.status, "creating: %s", why.text);
    return STATUS_OK;
}

static enum status run_server(struct params_bench *b, struct error *err)
{
    struct parley_channel *channel;
    struct rusage usage = {0};
    struct served served;
    enum status rc = served_start(&served, NULL, 0, err);

    if (rc != STATUS_OK)
        return rc;
    channel = parley_channel_open(served.address);
    if (channel == NULL) {
        served_stop(&served, NULL);
        return error_no_memory(err, 0, "a connection");
    }
    rc = create(b, channel, err);
    if (rc == STATUS_OK)
        rc = run_clients(&b->server, b, "as-trainer", served.address, err);
    b->server.peak_bytes = peak_of(served.subprocess.pid);
    if (rc == STATUS_OK)
        rc = check_values(b, channel, err);
    parley_channel_close(channel);
    served_stop(&served, &usage);
    b->server.server_cpu_s = params_bench_cpu_s(&usage);
    return rc;
}

/* --- the report --- */

static void params_bench_print(const struct params_bench *b)
{
    const struct params_options *o = &b->options;
    const double bytes = (double)(b->shape.n * sizeof(float));
    const double ratio = b->server.round_s / b->floor.round_s;

    if (o->is_json) {
        (void)out_json(json_pack(
            "{s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:b}", "trainers",
            (int)o->n_trainers, "rounds", (int)o->n_rounds, "bytes", bytes, "round_s",
            b->server.round_s, "floor_s", b->floor.round_s, "ratio", ratio, "server_cpu_s",
            b->server.server_cpu_s, "trainers_cpu_s", b->server.clients_cpu_s, "floor_server_cpu_s",
            b->floor.server_cpu_s, "floor_clients_cpu_s", b->floor.clients_cpu_s,
            "server_peak_bytes", (double)b->server.peak_bytes, "max_diff", b->max_diff,
            "is_identical", 1)); /* out_end reports a failure */
        return;
    }
    printf("%u trainers, %.1f MB each way, %u rounds\n", o->n_trainers, bytes / 1e6, o->n_rounds);
    printf("a round          %.3f s, %.2f times the bare transport (%.3f s)\n", b->server.round_s,
           ratio, b->floor.round_s);
    printf("server           %.2f s of CPU, at most %.0f MB: %.1f times the parameters\n",
           b->server.server_cpu_s, (double)b->server.peak_bytes / 1e6,
           (double)b->server.peak_bytes / bytes);
    printf("trainers         %.2f s of CPU\n", b->server.clients_cpu_s);
    printf("bare transport   %.2f s and %.2f s of CPU\n", b->floor.server_cpu_s,
           b->floor.clients_cpu_s);
    printf("every round the same bytes for all; at most %.1e from one process in double\n",
           b->max_diff);
}

static enum exit_code check_options(struct params_bench *b, const struct verb *verb)
{
    const struct params_options *o = &b->options;

    if (o->n_trainers == 0 || o->n_trainers > MAX_TRAINERS)
        return options_misuse(verb, "--trainers: must be from 1 to %d", MAX_TRAINERS);
    if (o->n_rounds == 0)
        return options_misuse(verb, "--rounds: must be above 0");
    if (o->n_bytes % sizeof(float) != 0)
        return options_misuse(verb, "--bytes: must be a multiple of 4");
    if (strcmp(o->shape, "resnet50") != 0)
        return options_misuse(verb, "--shape: must be resnet50");
    if (o->n_bytes > 0)
        params_shape_flat(&b->shape, o->n_bytes / sizeof(float));
    else
        params_shape_resnet50(&b->shape, RESNET_CLASSES);
    return EXIT_DONE;
}

enum exit_code bench_params_run(const struct verb *verb, int argc, char **argv)
{
    struct params_bench b = {.options = {.shape = "resnet50", .n_trainers = 5, .n_rounds = 6}};
    const struct option_group groups[] = {{params_rows, &b.options, NULL}};
    struct error err = {0};
    enum exit_code code;
    int first;

    if (params_role_run(argc, argv, &code) ||
        !options_read(verb, groups, 1, argc, argv, 0, 0, &first, &code))
        return code;
    code = check_options(&b, verb);
    if (code != EXIT_DONE)
        return code;
    if (run_floor(&b, &err) != STATUS_OK || run_server(&b, &err) != STATUS_OK) {
        console_error("%s", err.text);
        code = EXIT_FAILED;
    } else {
        params_bench_print(&b);
        if (b.options.max_ratio > 0.0 && b.server.round_s > b.options.max_ratio * b.floor.round_s)
            code = EXIT_BOUND;
    }
    params_shape_free(&b.shape);
    return code;
}
