/* Items of 4 kB into a table of Replay, and batches of 32 of them out of it, by 1 and by 8 clients,
 * beside the least that gRPC core can do with the same bytes: a server with a thread for each
 * stream, which answers a message by as many bytes, or sends such messages one after the other.
 * Both servers are processes of their own, the clients are threads with the same code and the same
 * encoded messages, and the rounds are interleaved.
 *
 *     bench_replay PARLEYD [SECONDS [ROUNDS]]      10^7 items of 4 bytes come last: what memory
 * they take */
#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "client/lib/stream.h"
#include "parley/v1/replay.pb-c.h"
#include "proto/codec.h"
#include "proto/locks.h"

enum {
    STEP_BYTES = 4096,
    BATCH = 32,
    IN_FLIGHT = 8, /* messages of inserts without answer */
    CLIENTS_MAX = 8,
    ROUNDS_MAX = 99,
    MANY = 10000000,
    MANY_AT_ONCE = 2000,
    MANY_MAX_ITEMS = 1000000,
};

#define CHECK(what) ((what) ? (void)0 : die(__LINE__, #what))

_Noreturn static void die(int line, const char *what)
{
    (void)fprintf(stderr, "bench replay: line %d: %s does not hold\n", line, what);
    exit(1);
}

/* --- the bare server --- */

/* The first message of a stream says how many bytes each answer has, and whether one comes for each
 * message or without end. */
struct bare_first {
    uint32_t answer_bytes, is_endless;
};

struct bare_stream {
    grpc_call *call;
    grpc_completion_queue *queue;
    grpc_metadata_array headers;
    grpc_call_details details;
    pthread_t thread;
};

static bool bare_do(struct bare_stream *b, const grpc_op *op)
{
    if (grpc_call_start_batch(b->call, op, 1, b, NULL) != GRPC_CALL_OK)
        return false;
    return grpc_completion_queue_pluck(b->queue, b, gpr_inf_future(GPR_CLOCK_REALTIME), NULL)
               .success != 0;
}

static grpc_byte_buffer *bare_receive(struct bare_stream *b)
{
    grpc_byte_buffer *message = NULL;
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    op.data.recv_message.recv_message = &message;
    return bare_do(b, &op) ? message : NULL;
}

static bool bare_send(struct bare_stream *b, const void *data, size_t size_bytes)
{
    grpc_slice slice = grpc_slice_from_static_buffer(data, size_bytes);
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    bool is_sent;

    op.data.send_message.send_message = grpc_raw_byte_buffer_create(&slice, 1);
    is_sent = bare_do(b, &op);
    grpc_byte_buffer_destroy(op.data.send_message.send_message);
    return is_sent;
}

static void *bare_run(void *arg)
{
    static unsigned char answer[BATCH * (STEP_BYTES + 64)];
    struct bare_stream *b = arg;
    grpc_op begin = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    grpc_byte_buffer *message;
    struct bare_first first;
    bool goes_on = bare_do(b, &begin);

    message = goes_on ? bare_receive(b) : NULL;
    if (message == NULL)
        return NULL;
    memcpy(&first, GRPC_SLICE_START_PTR(message->data.raw.slice_buffer.slices[0]), sizeof(first));
    grpc_byte_buffer_destroy(message);
    while (goes_on) {
        message = first.is_endless ? NULL : bare_receive(b);
        goes_on = first.is_endless || message != NULL;
        if (message != NULL)
            grpc_byte_buffer_destroy(message);
        goes_on = goes_on && bare_send(b, answer, first.answer_bytes);
    }
    grpc_call_unref(b->call);
    return NULL;
}

/* Until it is killed. */
_Noreturn static void bare_serve(void)
{
    grpc_server_credentials *insecure = grpc_insecure_server_credentials_create();
    grpc_server *server = grpc_server_create(NULL, NULL);
    grpc_completion_queue *queue = grpc_completion_queue_create_for_next(NULL);
    int port;

    grpc_server_register_completion_queue(server, queue, NULL);
    port = grpc_server_add_http2_port(server, "127.0.0.1:0", insecure);
    CHECK(port > 0);
    grpc_server_start(server);
    (void)printf("ready grpc=127.0.0.1:%d\n", port);
    (void)fflush(stdout);
    for (;;) {
        struct bare_stream *b = xalloc(sizeof(*b));

        b->queue = grpc_completion_queue_create_for_pluck(NULL);
        grpc_metadata_array_init(&b->headers);
        grpc_call_details_init(&b->details);
        CHECK(grpc_server_request_call(server, &b->call, &b->details, &b->headers, b->queue, queue,
                                       b) == GRPC_CALL_OK);
        CHECK(grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL).success);
        CHECK(pthread_create(&b->thread, NULL, bare_run, b) == 0);
    }
}

/* --- children --- */

struct child {
    pid_t pid;
    char address[128];
};

/* Starts argv and waits for its line "ready grpc=ADDRESS …". */
static void child_start(struct child *c, char *const *argv, int fd_of_line)
{
    posix_spawn_file_actions_t actions;
    char line[1000];
    int ends[2];
    FILE *in;

    CHECK(pipe(ends) == 0);
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&actions, ends[1], fd_of_line) == 0);
    CHECK(posix_spawn_file_actions_addclose(&actions, ends[0]) == 0);
    CHECK(posix_spawn(&c->pid, argv[0], &actions, NULL, argv, environ) == 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    in = fdopen(ends[0], "r");
    CHECK(in != NULL);
    do
        CHECK(fgets(line, sizeof(line), in) != NULL);
    while (strstr(line, "ready grpc=") == NULL ||
           sscanf(strstr(line, "ready grpc="), "ready grpc=%127s", c->address) != 1);
    /* in stays open: later output of the child must not kill it. */
}

static void child_stop(struct child *c)
{
    (void)kill(c->pid, SIGKILL);
    (void)waitpid(c->pid, NULL, 0);
}

/* Processor time that it has used, and that we have. */
static double cpu_s(const struct child *c)
{
    unsigned long user = 0, system = 0;
    struct rusage own;
    char path[64];
    FILE *in;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)c->pid);
    in = fopen(path, "r");
    CHECK(in != NULL);
    CHECK(fscanf(in, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                 &system) == 2);
    (void)fclose(in);
    CHECK(getrusage(RUSAGE_SELF, &own) == 0);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK) + (double)own.ru_utime.tv_sec +
           (double)own.ru_stime.tv_sec +
           (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) * 1e-6;
}

static size_t child_rss_mb(const struct child *c)
{
    char path[64], line[256];
    size_t kb = 0;
    FILE *in;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)c->pid);
    in = fopen(path, "r");
    CHECK(in != NULL);
    while (fgets(line, sizeof(line), in) != NULL)
        (void)sscanf(line, "VmRSS: %zu kB", &kb);
    (void)fclose(in);
    return kb >> 10;
}

/* --- messages --- */

struct packed {
    size_t size_bytes;
    uint8_t *bytes;
};

static struct packed pack(const ProtobufCMessage *m)
{
    struct packed p = {.size_bytes = codec_size(m)};

    p.bytes = xalloc(p.size_bytes + 1);
    (void)codec_encode(m, p.bytes);
    return p;
}

static grpc_byte_buffer *buffer_of(const struct packed *p)
{
    grpc_slice slice = grpc_slice_from_static_buffer(p->bytes, p->size_bytes);

    return grpc_raw_byte_buffer_create(&slice, 1);
}

/* One chunk of n steps of n_bytes, and an item of each; without the table's name. */
static struct packed pack_items(size_t n, size_t n_bytes)
{
    Parley__V1__ReplayInsertRequest m = PARLEY__V1__REPLAY_INSERT_REQUEST__INIT;
    Parley__V1__ReplayChunk chunk = PARLEY__V1__REPLAY_CHUNK__INIT, *chunks[] = {&chunk};
    Parley__V1__Tensor tensor = PARLEY__V1__TENSOR__INIT, *tensors[] = {&tensor};
    Parley__V1__ReplayItem *items = xalloc(n * sizeof(items[0]));
    Parley__V1__ReplayItem **list = xalloc(n * sizeof(list[0]));
    Parley__V1__ReplaySlice *slices = xalloc(n * sizeof(slices[0]));
    Parley__V1__ReplaySlice **places = xalloc(n * sizeof(places[0]));
    int64_t shape[] = {(int64_t)n, (int64_t)n_bytes};

    tensor.dtype = PARLEY__V1__DTYPE__DTYPE_U8;
    tensor.shape = shape;
    tensor.n_shape = 2;
    tensor.data.len = n * n_bytes;
    tensor.data.data = xalloc(tensor.data.len);
    chunk.id = 1; /* none is kept, so it may come again */
    chunk.columns = tensors;
    chunk.n_columns = 1;
    for (size_t i = 0; i < n; i++) {
        parley__v1__replay_slice__init(&slices[i]);
        slices[i].chunk = 1;
        slices[i].first = (uint32_t)i;
        slices[i].steps = 1;
        places[i] = &slices[i];
        parley__v1__replay_item__init(&items[i]);
        items[i].slices = &places[i];
        items[i].n_slices = 1;
        list[i] = &items[i];
    }
    m.chunks = chunks;
    m.n_chunks = 1;
    m.items = list;
    m.n_items = n;
    return pack(&m.base);
}

/* --- clients --- */

struct load {
    const struct child *server;
    const char *method;
    struct packed first;   /* of each stream; its answer is not counted */
    struct packed message; /* size_bytes 0: the server sends without end */
    bool is_first_answered;
    atomic_bool is_over;
};

struct load_client {
    struct load *load;
    pthread_t thread;
    atomic_ulong n; /* answers */
};

/* How many messages the answer is for; 0: the stream is over. The last field, messages, says it;
 * the bare server has none. */
static size_t load_receive(struct call_stream *s)
{
    grpc_byte_buffer *answer = stream_receive(s);
    size_t n = answer != NULL;

    if (n > 0) {
        const grpc_slice_buffer *all = &answer->data.raw.slice_buffer;
        const grpc_slice last = all->count > 0 ? all->slices[all->count - 1] : grpc_empty_slice();
        const uint8_t *end = GRPC_SLICE_END_PTR(last);

        if (GRPC_SLICE_LENGTH(last) >= 2 && end[-2] == 2 << 3 && end[-1] < 0x80)
            n = end[-1];
        grpc_byte_buffer_destroy(answer);
    }
    return n;
}

static void *load_run(void *arg)
{
    struct load_client *c = arg;
    struct load *load = c->load;
    struct parley_channel *channel = parley_channel_open(load->server->address);
    struct call_stream *s = stream_open(channel, load->method);

    CHECK(s != NULL && stream_send(s, buffer_of(&load->first)));
    if (load->message.size_bytes == 0)
        stream_half_close(s);
    if (load->is_first_answered)
        CHECK(load_receive(s));
    for (size_t i = 0; load->message.size_bytes > 0 && i < IN_FLIGHT; i++)
        CHECK(stream_send(s, buffer_of(&load->message)));
    while (!load->is_over) {
        size_t n = load_receive(s);

        CHECK(n > 0);
        c->n += n;
        for (size_t i = 0; load->message.size_bytes > 0 && i < n; i++)
            CHECK(stream_send(s, buffer_of(&load->message)));
    }
    stream_close(s);
    parley_channel_close(channel);
    return NULL;
}

struct rate {
    double per_s, cpu_us; /* answers a second; processor time of each, the client's included */
};

static struct rate load_rate(struct load *load, size_t n_clients, double seconds)
{
    struct load_client clients[CLIENTS_MAX] = {0};
    uint64_t begin_ns, end_ns;
    unsigned long n = 0;
    struct rate r;
    double cpu;

    load->is_over = false;
    for (size_t i = 0; i < n_clients; i++) {
        clients[i].load = load;
        CHECK(pthread_create(&clients[i].thread, NULL, load_run, &clients[i]) == 0);
    }
    (void)poll(NULL, 0, 100); /* all are connected */
    for (size_t i = 0; i < n_clients; i++)
        n -= clients[i].n;
    begin_ns = clock_ns();
    cpu = cpu_s(load->server);
    (void)poll(NULL, 0, (int)(seconds * 1e3));
    for (size_t i = 0; i < n_clients; i++)
        n += clients[i].n;
    end_ns = clock_ns();
    cpu = cpu_s(load->server) - cpu;
    load->is_over = true;
    for (size_t i = 0; i < n_clients; i++)
        (void)pthread_join(clients[i].thread, NULL);
    r.per_s = (double)n / ((double)(end_ns - begin_ns) * 1e-9);
    r.cpu_us = cpu * 1e6 / (double)n;
    return r;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof(values[0]), by_value);
    return values[n / 2];
}

static void compare(const char *what, struct load *ours, struct load *bare, size_t n_clients,
                    size_t n_items, double seconds, size_t n_rounds)
{
    double rates[ROUNDS_MAX], bare_rates[ROUNDS_MAX], ratios[ROUNDS_MAX], cpu_ratios[ROUNDS_MAX];
    double cpu_us[ROUNDS_MAX];

    for (size_t i = 0; i < n_rounds; i++) {
        const struct rate a = load_rate(ours, n_clients, seconds);
        const struct rate b = load_rate(bare, n_clients, seconds);

        rates[i] = a.per_s * (double)n_items;
        bare_rates[i] = b.per_s * (double)n_items;
        cpu_us[i] = a.cpu_us / (double)n_items;
        ratios[i] = a.per_s / b.per_s;
        cpu_ratios[i] = b.cpu_us / a.cpu_us;
    }
    printf("%-22s %zu clients %8.0f items/s  bare %8.0f  ratio %.2f  CPU %6.2f us  ratio %.2f\n",
           what, n_clients, median(rates, n_rounds), median(bare_rates, n_rounds),
           median(ratios, n_rounds), median(cpu_us, n_rounds), median(cpu_ratios, n_rounds));
    (void)fflush(stdout);
}

/* --- the table --- */

static void create_table(const char *address, const char *name, size_t n_bytes, uint64_t max_items,
                         uint64_t max_bytes, bool is_prioritized)
{
    Parley__V1__ReplayCreateTableRequest m = PARLEY__V1__REPLAY_CREATE_TABLE_REQUEST__INIT;
    Parley__V1__ReplayConfig config = PARLEY__V1__REPLAY_CONFIG__INIT;
    Parley__V1__TensorSpec spec = PARLEY__V1__TENSOR_SPEC__INIT, *columns[] = {&spec};
    struct parley_channel *channel = parley_channel_open(address);
    struct call_stream *s = stream_open(channel, "/parley.v1.Replay/CreateTable");
    int64_t shape = (int64_t)n_bytes;

    spec.name = (char[]){"x"};
    spec.dtype = PARLEY__V1__DTYPE__DTYPE_U8;
    spec.shape = &shape;
    spec.n_shape = 1;
    config.table = (char *)name;
    config.columns = columns;
    config.n_columns = 1;
    config.max_items = max_items;
    config.max_bytes = max_bytes;
    config.alpha = 0.6;
    config.epsilon = 0.01;
    config.seed = 543;
    config.sampler = is_prioritized ? PARLEY__V1__REPLAY_SELECTOR__REPLAY_SELECTOR_PRIORITIZED
                                    : PARLEY__V1__REPLAY_SELECTOR__REPLAY_SELECTOR_UNIFORM;
    m.config = &config;
    CHECK(stream_send_message(s, &m.base));
    stream_half_close(s);
    CHECK(load_receive(s));
    stream_close(s);
    parley_channel_close(channel);
}

static struct packed first_insert(const char *table)
{
    Parley__V1__ReplayInsertRequest m = PARLEY__V1__REPLAY_INSERT_REQUEST__INIT;

    m.table = (char *)table;
    return pack(&m.base);
}

static struct packed first_sample(const char *table)
{
    Parley__V1__ReplaySampleRequest m = PARLEY__V1__REPLAY_SAMPLE_REQUEST__INIT;

    m.table = (char *)table;
    m.batch_size = BATCH;
    return pack(&m.base);
}

static struct packed first_bare(uint32_t answer_bytes, bool is_endless)
{
    struct packed p = {.size_bytes = sizeof(struct bare_first)};
    const struct bare_first first = {answer_bytes, is_endless};

    p.bytes = xalloc(p.size_bytes);
    memcpy(p.bytes, &first, sizeof(first));
    return p;
}

/* 10^7 items of 4 bytes through a table that may have a tenth of them. */
static void insert_many(struct child *daemon)
{
    const struct packed first = first_insert("many"), message = pack_items(MANY_AT_ONCE, 4);
    struct parley_channel *channel = parley_channel_open(daemon->address);
    struct call_stream *s = stream_open(channel, "/parley.v1.Replay/Insert");
    size_t before_mb = child_rss_mb(daemon), n_in_flight = 0;
    uint64_t begin_ns = clock_ns();

    create_table(daemon->address, "many", 4, MANY_MAX_ITEMS, (uint64_t)1 << 30, true);
    CHECK(stream_send(s, buffer_of(&first)) && load_receive(s));
    for (size_t i = 0; i < MANY / MANY_AT_ONCE; i++) {
        CHECK(stream_send(s, buffer_of(&message)));
        if (++n_in_flight == IN_FLIGHT)
            n_in_flight -= load_receive(s);
    }
    while (n_in_flight > 0)
        n_in_flight -= load_receive(s);
    printf("%d items of 4 bytes, by priority, at most %d: %.0f items/s, %zu MB more, %.0f bytes an "
           "item\n",
           MANY, MANY_MAX_ITEMS, MANY / ((double)(clock_ns() - begin_ns) * 1e-9),
           child_rss_mb(daemon) - before_mb,
           (double)(child_rss_mb(daemon) - before_mb) * 1048576.0 / MANY_MAX_ITEMS);
    stream_close(s);
    parley_channel_close(channel);
}

int main(int argc, char **argv)
{
    double seconds = argc > 2 ? strtod(argv[2], NULL) : 1.0;
    size_t n_rounds = argc > 3 ? strtoul(argv[3], NULL, 10) : 5;
    static const size_t n_clients[] = {1, 8}, n_items[] = {1, 16};
    struct child daemon, bare;

    if (argc > 1 && strcmp(argv[1], "--serve") == 0) {
        (void)locks_unchecked(); /* as parleyd does */
        grpc_init();
        bare_serve();
    }
    CHECK(argc > 1 && seconds > 0 && n_rounds > 0 && n_rounds <= ROUNDS_MAX);
    grpc_init();
    child_start(&bare, (char *[]){(char[]){"/proc/self/exe"}, (char[]){"--serve"}, NULL},
                STDOUT_FILENO);
    child_start(&daemon,
                (char *[]){argv[1], (char[]){"--listen"}, (char[]){"127.0.0.1:0"},
                           (char[]){"--http"}, (char[]){"off"}, NULL},
                STDERR_FILENO);
    create_table(daemon.address, "uniform", STEP_BYTES, 20000, (uint64_t)1 << 28, false);
    create_table(daemon.address, "prioritized", STEP_BYTES, 20000, (uint64_t)1 << 28, true);
    for (size_t i = 0; i < 4; i++) {
        const struct packed message = pack_items(n_items[i / 2], STEP_BYTES);
        const uint32_t answer_bytes = (uint32_t)(2 + 8 * n_items[i / 2]);
        struct load ours = {.server = &daemon,
                            .method = "/parley.v1.Replay/Insert",
                            .first = first_insert("uniform"),
                            .message = message,
                            .is_first_answered = true};
        struct load theirs = {.server = &bare,
                              .method = "/bench.Bare/Exchange",
                              .first = first_bare(answer_bytes, false),
                              .message = message};

        compare(n_items[i / 2] == 1 ? "inserts, 1 a message" : "inserts, 16 a message", &ours,
                &theirs, n_clients[i % 2], n_items[i / 2], seconds, n_rounds);
    }
    {
        struct load fill = {.server = &daemon,
                            .method = "/parley.v1.Replay/Insert",
                            .first = first_insert("prioritized"),
                            .message = pack_items(16, STEP_BYTES),
                            .is_first_answered = true};

        (void)load_rate(&fill, 1, 1.0);
    }
    for (size_t i = 0; i < 4; i++) {
        const char *table = i < 2 ? "uniform" : "prioritized";
        struct load ours = {
            .server = &daemon, .method = "/parley.v1.Replay/Sample", .first = first_sample(table)};
        struct load theirs = {.server = &bare,
                              .method = "/bench.Bare/Exchange",
                              .first = first_bare(BATCH * (STEP_BYTES + 28), true)};

        compare(i < 2 ? "samples, uniform" : "samples, by priority", &ours, &theirs,
                n_clients[i % 2], BATCH, seconds, n_rounds);
    }
    insert_many(&daemon);
    child_stop(&daemon);
    child_stop(&bare);
    return 0;
}
