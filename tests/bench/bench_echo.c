/* What the path through parleyd costs: turns of the agent "echo" over gRPC, compared with a minimal
 * echo server on bare gRPC core. Both servers are processes of their own, the client is one thread
 * with one completion queue in each case, and the rounds are interleaved, so that other load on the
 * machine affects all alike.
 *
 *     echo PARLEYD [--seconds S] [--rounds N] [--in-flight N] [--only bare|ask|turn|chat|plugged]
 *                  [--plugin ECHO.so]
 *
 * bare: a unary call that returns its request. ask: Conversations.Ask, one request, one reply.
 * turn: Conversations.Turn, the same request, the events accepted, piece, done. chat: the same
 * turns, all on one stream of Conversations.Chat. plugged: ask again, of an echo that is a plug-in;
 * its own ratio is to ask. */
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "parley/v1/conversations.pb-c.h"
#include "proto/locks.h"

enum { IN_FLIGHT_MAX = 1024, ROUNDS_MAX = 99 };

#define CHECK(what) ((what) ? (void)0 : die(__LINE__, #what))

_Noreturn static void die(int line, const char *what)
{
    (void)fprintf(stderr, "bench echo: line %d: %s does not hold\n", line, what);
    abort();
}

static double now_s(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static grpc_event next_event(grpc_completion_queue *queue)
{
    return grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
}

/* --- the bare server --- */

struct served {
    grpc_call *call;
    grpc_metadata_array headers;
    gpr_timespec deadline;
    grpc_byte_buffer *payload;
    int was_cancelled;
    bool is_answered;
};

static void serve_next(grpc_server *server, grpc_completion_queue *queue, void *method,
                       struct served *s)
{
    s->is_answered = false;
    grpc_metadata_array_init(&s->headers);
    CHECK(grpc_server_request_registered_call(server, method, &s->call, &s->deadline, &s->headers,
                                              &s->payload, queue, queue, s) == GRPC_CALL_OK);
}

static void serve_answer(struct served *s)
{
    grpc_slice nothing = grpc_empty_slice();
    grpc_op ops[4] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_MESSAGE},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
                      {.op = GRPC_OP_RECV_CLOSE_ON_SERVER}};

    ops[1].data.send_message.send_message = s->payload;
    ops[2].data.send_status_from_server.status = GRPC_STATUS_OK;
    ops[2].data.send_status_from_server.status_details = &nothing;
    ops[3].data.recv_close_on_server.cancelled = &s->was_cancelled;
    s->is_answered = true;
    CHECK(grpc_call_start_batch(s->call, ops, 4, s, NULL) == GRPC_CALL_OK);
}

/* Until it is killed. */
_Noreturn static void serve_bare(void)
{
    static struct served all[IN_FLIGHT_MAX];
    grpc_server_credentials *insecure;
    grpc_completion_queue *queue;
    grpc_server *server;
    void *method;
    int port;

    (void)locks_unchecked(); /* as parleyd does */
    grpc_init();
    queue = grpc_completion_queue_create_for_next(NULL);
    server = grpc_server_create(NULL, NULL);
    grpc_server_register_completion_queue(server, queue, NULL);
    method = grpc_server_register_method(server, "/bench.Bare/Echo", NULL,
                                         GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0);
    insecure = grpc_insecure_server_credentials_create();
    port = grpc_server_add_http2_port(server, "127.0.0.1:0", insecure);
    grpc_server_credentials_release(insecure);
    CHECK(port > 0);
    grpc_server_start(server);
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++)
        serve_next(server, queue, method, &all[i]);
    (void)printf("ready grpc=127.0.0.1:%d\n", port);
    (void)fflush(stdout);
    for (;;) {
        grpc_event event = next_event(queue);
        struct served *s = event.tag;

        CHECK(event.type == GRPC_OP_COMPLETE && event.success);
        if (!s->is_answered) {
            serve_answer(s);
            continue;
        }
        grpc_call_unref(s->call);
        grpc_byte_buffer_destroy(s->payload);
        grpc_metadata_array_destroy(&s->headers);
        serve_next(server, queue, method, s);
    }
}

/* --- children --- */

struct child {
    pid_t pid;
    char address[128];
};

/* Starts argv and waits for its line "ready grpc=ADDRESS …" on fd_of_line. */
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
    if (posix_spawn(&c->pid, argv[0], &actions, NULL, argv, environ) != 0) {
        (void)fprintf(stderr, "bench echo: cannot start %s\n", argv[0]);
        exit(1);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    in = fdopen(ends[0], "r");
    CHECK(in != NULL);
    do {
        if (fgets(line, sizeof(line), in) == NULL) {
            (void)fprintf(stderr, "bench echo: %s did not get ready\n", argv[0]);
            exit(1);
        }
    } while (sscanf(line, "ready grpc=%127s", c->address) != 1);
    /* in stays open: later output of the child must not kill it. */
}

static void child_stop(struct child *c)
{
    (void)kill(c->pid, SIGTERM);
    (void)waitpid(c->pid, NULL, 0);
}

/* --- the client --- */

struct client {
    grpc_channel *channel;
    grpc_completion_queue *queue;
    void *method; /* registered */
    size_t in_flight;
    size_t n_done;
    double end_s;
    bool is_over; /* no new call is started */
};

static void client_open(struct client *c, const char *address, const char *method, size_t in_flight)
{
    grpc_channel_credentials *insecure = grpc_insecure_credentials_create();
    grpc_arg arg = {.type = GRPC_ARG_INTEGER, .key = (char[]){GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL}};
    const grpc_channel_args args = {1, &arg};

    arg.value.integer = 1;
    *c = (struct client){.in_flight = in_flight};
    c->channel = grpc_channel_create(address, insecure, &args);
    grpc_channel_credentials_release(insecure);
    c->queue = grpc_completion_queue_create_for_next(NULL);
    c->method = grpc_channel_register_call(c->channel, method, NULL, NULL);
}

static void client_close(struct client *c)
{
    grpc_channel_destroy(c->channel);
    grpc_completion_queue_shutdown(c->queue);
    while (next_event(c->queue).type != GRPC_QUEUE_SHUTDOWN)
        continue;
    grpc_completion_queue_destroy(c->queue);
}

static grpc_call *begin(struct client *c)
{
    return grpc_channel_create_registered_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->queue,
                                               c->method, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
}

static grpc_byte_buffer *encode(const ProtobufCMessage *m)
{
    grpc_slice slice = grpc_slice_malloc(protobuf_c_message_get_packed_size(m));
    grpc_byte_buffer *out;

    (void)protobuf_c_message_pack(m, GRPC_SLICE_START_PTR(slice));
    out = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    return out;
}

static grpc_slice read_all(grpc_byte_buffer *bytes)
{
    grpc_byte_buffer_reader reader;
    grpc_slice all;

    if (bytes->data.raw.slice_buffer.count == 1)
        return grpc_slice_ref(bytes->data.raw.slice_buffer.slices[0]);
    CHECK(grpc_byte_buffer_reader_init(&reader, bytes));
    all = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    return all;
}

/* A unary call from its start to its end; the response's bytes are in *ret. */
struct unary {
    grpc_call *call;
    grpc_metadata_array headers, trailers;
    grpc_byte_buffer *response;
    grpc_status_code status;
    grpc_slice details;
};

static void unary_begin(struct client *c, struct unary *u, grpc_byte_buffer *request)
{
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},           {.op = GRPC_OP_RECV_STATUS_ON_CLIENT},
    };

    *u = (struct unary){.call = begin(c)};
    ops[1].data.send_message.send_message = request;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &u->headers;
    ops[4].data.recv_message.recv_message = &u->response;
    ops[5].data.recv_status_on_client.trailing_metadata = &u->trailers;
    ops[5].data.recv_status_on_client.status = &u->status;
    ops[5].data.recv_status_on_client.status_details = &u->details;
    CHECK(grpc_call_start_batch(u->call, ops, 6, u, NULL) == GRPC_CALL_OK);
    grpc_byte_buffer_destroy(request);
}

static void unary_end(struct unary *u)
{
    CHECK(u->status == GRPC_STATUS_OK && u->response != NULL);
    grpc_byte_buffer_destroy(u->response);
    grpc_slice_unref(u->details);
    grpc_metadata_array_destroy(&u->headers);
    grpc_metadata_array_destroy(&u->trailers);
    grpc_call_unref(u->call);
}

static void open_conversations(const char *address, const char *model, size_t n, char (*out)[33])
{
    Parley__V1__ConversationsOpenRequest request = PARLEY__V1__CONVERSATIONS_OPEN_REQUEST__INIT;
    struct client c;

    request.model = (char *)(uintptr_t)model; /* only read */
    client_open(&c, address, "/parley.v1.Conversations/Open", 1);
    for (size_t i = 0; i < n; i++) {
        Parley__V1__ConversationsOpenResponse *response;
        grpc_slice all;
        struct unary u;

        unary_begin(&c, &u, encode(&request.base));
        CHECK(next_event(c.queue).success);
        CHECK(u.response != NULL);
        all = read_all(u.response);
        response = parley__v1__conversations_open_response__unpack(NULL, GRPC_SLICE_LENGTH(all),
                                                                   GRPC_SLICE_START_PTR(all));
        CHECK(response != NULL && strlen(response->conversation) == 32);
        memcpy(out[i], response->conversation, 33);
        parley__v1__conversations_open_response__free_unpacked(response, NULL);
        grpc_slice_unref(all);
        unary_end(&u);
    }
    client_close(&c);
}

static grpc_byte_buffer *turn_request(char *conversation)
{
    Parley__V1__TurnRequest request = PARLEY__V1__TURN_REQUEST__INIT;

    request.conversation = conversation;
    request.text = (char[]){"hello"};
    return encode(&request.base);
}

/* Rates: each returns what was completed in a second. */

/* conversations: one for each call in flight. */
static double rate_unary(const char *address, const char *method, char (*conversations)[33],
                         size_t in_flight, double seconds)
{
    static struct unary all[IN_FLIGHT_MAX];
    struct client c;
    double start_s;

    client_open(&c, address, method, in_flight);
    start_s = now_s();
    for (size_t i = 0; i < in_flight; i++)
        unary_begin(&c, &all[i], turn_request(conversations[i]));
    for (size_t n_out = in_flight; n_out > 0;) {
        grpc_event event = next_event(c.queue);
        struct unary *u = event.tag;

        CHECK(event.success);
        unary_end(u);
        c.n_done++;
        if (c.n_done % 64 == 0 && now_s() - start_s >= seconds)
            c.is_over = true;
        if (c.is_over)
            n_out--;
        else
            unary_begin(&c, u, turn_request(conversations[u - all]));
    }
    seconds = now_s() - start_s;
    client_close(&c);
    return (double)c.n_done / seconds;
}

static double rate_bare(const char *address, size_t in_flight, double seconds)
{
    static char conversations[IN_FLIGHT_MAX][33];

    for (size_t i = 0; i < in_flight; i++)
        memcpy(conversations[i], "0123456789abcdef0123456789abcdef", 33);
    return rate_unary(address, "/bench.Bare/Echo", conversations, in_flight, seconds);
}

static double rate_ask_of(const char *model, const char *address, size_t in_flight, double seconds)
{
    static char conversations[IN_FLIGHT_MAX][33];

    open_conversations(address, model, in_flight, conversations);
    return rate_unary(address, "/parley.v1.Conversations/Ask", conversations, in_flight, seconds);
}

static double rate_ask(const char *address, size_t in_flight, double seconds)
{
    return rate_ask_of("echo", address, in_flight, seconds);
}

static double rate_plugged(const char *address, size_t in_flight, double seconds)
{
    return rate_ask_of("plugged", address, in_flight, seconds);
}

/* A server stream: the first batch brings the first message, one more each other; the status last.
 */
struct stream {
    struct unary u; /* the first member: the tag of reads */
    char status_tag;
    char *conversation;
    size_t n_messages;
    unsigned n_out;
};

static void stream_begin(struct client *c, struct stream *s)
{
    grpc_byte_buffer *request = turn_request(s->conversation);
    grpc_op ops[5] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},  {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT}, {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},
    };

    s->u = (struct unary){.call = begin(c)};
    s->n_messages = 0;
    ops[1].data.send_message.send_message = request;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &s->u.headers;
    ops[4].data.recv_message.recv_message = &s->u.response;
    CHECK(grpc_call_start_batch(s->u.call, ops, 5, s, NULL) == GRPC_CALL_OK);
    grpc_byte_buffer_destroy(request);
}

/* An operation has completed. True when the stream is over. The third message is the last: it comes
 * with the status in one batch. */
static bool stream_step(struct stream *s)
{
    grpc_op ops[2] = {{.op = GRPC_OP_RECV_MESSAGE}, {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};

    CHECK(s->u.response != NULL);
    if (++s->n_messages == 3) {
        unary_end(&s->u);
        return true;
    }
    grpc_byte_buffer_destroy(s->u.response);
    s->u.response = NULL;
    ops[0].data.recv_message.recv_message = &s->u.response;
    ops[1].data.recv_status_on_client.trailing_metadata = &s->u.trailers;
    ops[1].data.recv_status_on_client.status = &s->u.status;
    ops[1].data.recv_status_on_client.status_details = &s->u.details;
    CHECK(grpc_call_start_batch(s->u.call, ops, s->n_messages == 2 ? 2 : 1, s, NULL) ==
          GRPC_CALL_OK);
    return false;
}

static double rate_turn(const char *address, size_t in_flight, double seconds)
{
    static char conversations[IN_FLIGHT_MAX][33];
    static struct stream all[IN_FLIGHT_MAX];
    struct client c;
    double start_s;

    open_conversations(address, "echo", in_flight, conversations);
    client_open(&c, address, "/parley.v1.Conversations/Turn", in_flight);
    start_s = now_s();
    for (size_t i = 0; i < in_flight; i++) {
        all[i].conversation = conversations[i];
        stream_begin(&c, &all[i]);
    }
    for (size_t n_out = in_flight; n_out > 0;) {
        grpc_event event = next_event(c.queue);
        struct stream *s = event.tag;

        CHECK(event.success);
        if (!stream_step(s))
            continue;
        c.n_done++;
        if (c.n_done % 64 == 0 && now_s() - start_s >= seconds)
            c.is_over = true;
        if (c.is_over)
            n_out--;
        else
            stream_begin(&c, s);
    }
    seconds = now_s() - start_s;
    client_close(&c);
    return (double)c.n_done / seconds;
}

/* All turns on one stream. A message is sent once the one before has been written; its flush is
 * held back while another waits. */
struct chat {
    grpc_call *call;
    grpc_metadata_array headers, trailers;
    grpc_byte_buffer *in;
    grpc_status_code status;
    grpc_slice details;
    size_t waiting[IN_FLIGHT_MAX], first, n_waiting; /* tags whose request is to be sent */
    bool is_sending;
    char send_tag, read_tag, end_tag;
    char (*conversations)[33];
};

static void chat_start(struct chat *chat, const grpc_op *ops, size_t n, void *tag)
{
    CHECK(grpc_call_start_batch(chat->call, ops, n, tag, NULL) == GRPC_CALL_OK);
}

static void chat_read(struct chat *chat)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};

    op.data.recv_message.recv_message = &chat->in;
    chat_start(chat, &op, 1, &chat->read_tag);
}

static void chat_send(struct chat *chat)
{
    Parley__V1__TurnRequest turn = PARLEY__V1__TURN_REQUEST__INIT;
    Parley__V1__ChatRequest request = PARLEY__V1__CHAT_REQUEST__INIT;
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    size_t tag;

    if (chat->is_sending || chat->n_waiting == 0)
        return;
    tag = chat->waiting[chat->first++ % IN_FLIGHT_MAX];
    chat->n_waiting--;
    turn.conversation = chat->conversations[tag];
    turn.text = (char[]){"hello"};
    request.tag = tag;
    request.request_case = PARLEY__V1__CHAT_REQUEST__REQUEST_TURN;
    request.turn = &turn;
    op.flags = chat->n_waiting > 0 ? GRPC_WRITE_BUFFER_HINT : 0;
    op.data.send_message.send_message = encode(&request.base);
    chat->is_sending = true;
    chat_start(chat, &op, 1, &chat->send_tag);
    grpc_byte_buffer_destroy(op.data.send_message.send_message);
}

static void chat_ask(struct chat *chat, size_t tag)
{
    chat->waiting[(chat->first + chat->n_waiting++) % IN_FLIGHT_MAX] = tag;
}

/* Takes the message that was read: true, with its tag, if it ends a turn. */
static bool chat_take(struct chat *chat, size_t *ret_tag)
{
    grpc_slice all = read_all(chat->in);
    Parley__V1__ChatEvent *event;
    bool is_done;

    event = parley__v1__chat_event__unpack(NULL, GRPC_SLICE_LENGTH(all), GRPC_SLICE_START_PTR(all));
    grpc_slice_unref(all);
    CHECK(event != NULL && event->event_case != PARLEY__V1__CHAT_EVENT__EVENT_ERROR);
    is_done = event->event_case == PARLEY__V1__CHAT_EVENT__EVENT_DONE;
    *ret_tag = (size_t)event->tag;
    parley__v1__chat_event__free_unpacked(event, NULL);
    grpc_byte_buffer_destroy(chat->in);
    chat->in = NULL;
    return is_done;
}

static void chat_begin(struct client *c, struct chat *chat)
{
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_RECV_INITIAL_METADATA}};

    chat->call = begin(c);
    ops[1].data.recv_initial_metadata.recv_initial_metadata = &chat->headers;
    chat_start(chat, ops, 1, &chat->send_tag);
    CHECK(next_event(c->queue).success);
    chat_start(chat, ops + 1, 1, &chat->end_tag); /* comes with the first message */
    chat_read(chat);
}

static void chat_end(struct client *c, struct chat *chat)
{
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
                      {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};

    ops[1].data.recv_status_on_client.trailing_metadata = &chat->trailers;
    ops[1].data.recv_status_on_client.status = &chat->status;
    ops[1].data.recv_status_on_client.status_details = &chat->details;
    chat_start(chat, ops, 2, &chat->end_tag);
    for (size_t n_back = 0; n_back < 2;
         n_back++) /* the end and the last read, which finds no message */
        (void)next_event(c->queue);
    CHECK(chat->status == GRPC_STATUS_OK && chat->in == NULL);
    grpc_slice_unref(chat->details);
    grpc_metadata_array_destroy(&chat->headers);
    grpc_metadata_array_destroy(&chat->trailers);
    grpc_call_unref(chat->call);
}

static double rate_chat(const char *address, size_t in_flight, double seconds)
{
    static char conversations[IN_FLIGHT_MAX][33];
    static struct chat chat;
    struct client c;
    double start_s;
    size_t tag;

    open_conversations(address, "echo", in_flight, conversations);
    client_open(&c, address, "/parley.v1.Conversations/Chat", in_flight);
    chat = (struct chat){.conversations = conversations};
    chat_begin(&c, &chat);
    start_s = now_s();
    for (size_t i = 0; i < in_flight; i++)
        chat_ask(&chat, i);
    chat_send(&chat);
    for (size_t n_out = in_flight; n_out > 0;) {
        grpc_event event = next_event(c.queue);

        CHECK(event.success);
        if (event.tag == &chat.send_tag) {
            chat.is_sending = false;
        } else if (event.tag == &chat.read_tag) {
            CHECK(chat.in != NULL);
            if (chat_take(&chat, &tag)) {
                c.n_done++;
                if (c.n_done % 64 == 0 && now_s() - start_s >= seconds)
                    c.is_over = true;
                if (c.is_over)
                    n_out--;
                else
                    chat_ask(&chat, tag);
            }
            chat_read(&chat);
        }
        chat_send(&chat);
    }
    seconds = now_s() - start_s;
    chat_end(&c, &chat);
    client_close(&c);
    return (double)c.n_done / seconds;
}

/* --- the comparison --- */

/* CPU time that a process has used: the figure that other load on the machine changes least. */
static double cpu_s(pid_t pid)
{
    struct timespec used = {0};
    clockid_t clock;

    CHECK(clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &used) == 0);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

enum { BARE, ASK, PLUGGED, TURN, CHAT, N_MODES }; /* ask and plugged beside each other */

static const char *const names[N_MODES] = {"bare", "ask", "plugged", "turn", "chat"};
static double (*const rates[N_MODES])(const char *, size_t, double) = {
    rate_bare, rate_ask, rate_plugged, rate_turn, rate_chat};

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(const double *values, size_t n)
{
    double sorted[ROUNDS_MAX];

    memcpy(sorted, values, n * sizeof(*values));
    qsort(sorted, n, sizeof(*sorted), compare_doubles);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static int use(void)
{
    (void)fprintf(stderr, "use: echo PARLEYD [--seconds S] [--rounds N] [--in-flight N] "
                          "[--only bare|ask|turn|chat|plugged] [--plugin ECHO.so]\n");
    return 2;
}

int main(int argc, char **argv)
{
    static double rate[N_MODES][ROUNDS_MAX], ratio[N_MODES][ROUNDS_MAX];
    static double cpu[N_MODES][ROUNDS_MAX], cpu_ratio[N_MODES][ROUNDS_MAX]; /* seconds of an echo */
    size_t n_rounds = 5, in_flight = 64;
    const char *only = NULL, *plugin = NULL;
    static double plugged_ratio[ROUNDS_MAX], plugged_cpu[ROUNDS_MAX]; /* to ask */
    char plugged[4096];
    double seconds = 2;
    struct child bare, parleyd;

    if (argc == 2 && strcmp(argv[1], "--serve-bare") == 0)
        serve_bare();
    if (argc < 2 || argv[1][0] == '-' || argc % 2 != 0)
        return use();
    for (int i = 2; i < argc; i += 2) {
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = strtod(argv[i + 1], NULL);
        else if (strcmp(argv[i], "--rounds") == 0)
            n_rounds = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--in-flight") == 0)
            in_flight = strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
        else if (strcmp(argv[i], "--plugin") == 0)
            plugin = argv[i + 1];
        else
            return use();
    }
    if (n_rounds == 0 || n_rounds > ROUNDS_MAX || in_flight == 0 || in_flight > IN_FLIGHT_MAX ||
        !(seconds > 0))
        return use();

    (void)snprintf(plugged, sizeof(plugged), "plugged=%s", plugin == NULL ? "" : plugin);
    child_start(&bare, (char *[]){(char[]){"/proc/self/exe"}, (char[]){"--serve-bare"}, NULL},
                STDOUT_FILENO);
    child_start(&parleyd,
                (char *[]){argv[1], (char[]){"--listen"}, (char[]){"127.0.0.1:0"},
                           (char[]){"--log-level"}, (char[]){"error"},
                           plugin == NULL ? NULL : (char[]){"--plugin"}, plugged, NULL},
                STDERR_FILENO);
    (void)locks_unchecked(); /* as parleyd does */
    grpc_init();
    for (size_t round = 0; round < n_rounds; round++) {
        for (size_t mode = 0; mode < N_MODES; mode++) {
            const struct child *server = mode == BARE ? &bare : &parleyd;
            double server_s = cpu_s(server->pid), client_s = cpu_s(0), n;

            if ((only != NULL && strcmp(only, names[mode]) != 0) ||
                (mode == PLUGGED && plugin == NULL))
                continue;
            rate[mode][round] = rates[mode](server->address, in_flight, seconds);
            ratio[mode][round] = rate[mode][round] / rate[BARE][round];
            n = rate[mode][round] * seconds; /* about */
            server_s = cpu_s(server->pid) - server_s;
            client_s = cpu_s(0) - client_s;
            cpu[mode][round] = (server_s + client_s) / n;
            cpu_ratio[mode][round] = cpu[BARE][round] / cpu[mode][round];
            (void)printf("round %zu %-7s %8.0f /s  ratio %.3f  CPU %5.1f us (server %.1f, client "
                         "%.1f)  ratio %.3f\n",
                         round + 1, names[mode], rate[mode][round], ratio[mode][round],
                         cpu[mode][round] * 1e6, server_s / n * 1e6, client_s / n * 1e6,
                         cpu_ratio[mode][round]);
            (void)fflush(stdout);
        }
    }
    for (size_t mode = 0; mode < N_MODES; mode++) {
        if ((only == NULL || strcmp(only, names[mode]) == 0) && (mode != PLUGGED || plugin != NULL))
            (void)printf("median  %-7s %8.0f /s  ratio %.3f  CPU %5.1f us  ratio %.3f  (%zu in "
                         "flight)\n",
                         names[mode], median(rate[mode], n_rounds), median(ratio[mode], n_rounds),
                         median(cpu[mode], n_rounds) * 1e6, median(cpu_ratio[mode], n_rounds),
                         in_flight);
    }
    for (size_t i = 0; i < n_rounds; i++) {
        plugged_ratio[i] = rate[PLUGGED][i] / rate[ASK][i];
        plugged_cpu[i] = cpu[ASK][i] / cpu[PLUGGED][i];
    }
    if (plugin != NULL && only == NULL)
        (void)printf("plugged to built in: turns/s %.3f, CPU %.3f\n",
                     median(plugged_ratio, n_rounds), median(plugged_cpu, n_rounds));
    child_stop(&bare);
    child_stop(&parleyd);
    grpc_shutdown_blocking();
    return 0;
}
