/* A request on an HTTP connection, when memory or the socket fails: it is answered as a whole,
 * refused, or cut off; the connection and the conversations are unchanged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "server/api/connect/connect_calls.h"
#include "server/api/routes.h"
#include "server/call/health.h"
#include "server/conversation/keyed_replies.h"
#include "server/conversation/names.h"
#include "server/http/front.h"
#include "server/http/http2.h"
#include "server/http/socket.h"
#include "server/json/fields.h"
#include "server/model/models.h"
#include "server/server.h"
#include "tests/fault/sweep.h"
#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

static struct fake_server s;
/* The part of a server that a request uses. */
static struct {
    struct models models;
    struct conversations conversations;
    struct conversation_names names;
    struct connect_calls connected;
    struct keyed_replies keyed;
} d;
static struct server server = {
    .state = SERVER_SERVING,
    .models = &d.models,
    .conversations = &d.conversations,
    .names = &d.names,
    .connected = &d.connected,
    .keyed = &d.keyed,
};
static struct http_front f;
static struct health health;
static long write_fails_after = -1; /* as fault_after, of the socket's writes */

struct lws {
    struct connection *connection;
    char said[16 << 10];
    size_t n_said;
    bool is_closed;
};

/* --- a socket that takes all bytes, until it fails --- */

bool socket_write(struct lws *to, char *data, size_t len)
{
    ck_assert(!to->is_closed);
    if (write_fails_after >= 0 && write_fails_after-- == 0)
        return false;
    ck_assert_uint_lt(len, sizeof(to->said) - to->n_said);
    memcpy(to->said + to->n_said, data, len);
    to->n_said += len;
    return true;
}

bool socket_is_choked(const struct lws *to)
{
    return false;
}

bool socket_has_unread(const struct lws *to)
{
    return false;
}

void socket_shut(struct lws *to)
{
}

void socket_close(struct lws *to)
{
    to->is_closed = true;
    connection_close(to->connection);
}

void socket_pause(struct lws *to, bool on)
{
}

/* --- a daemon with one model --- */

static struct alarm never; /* rings */

static void awake(struct http_front *front)
{
}

static void init_keyed(void)
{
    const struct keyed_replies_config config = {
        .conversations = &d.conversations, .env = &s.env, .alarm = &never};

    keyed_replies_init(&d.keyed, &config);
}

static void setup(void)
{
    const struct conversations_config conversations = {.env = &s.env, .alarm = &never};
    const struct http_config http = {.routes = routes_all,
                                     .max_body_bytes = 4096,
                                     .timeout_ms = 1000,
                                     .server = &server,
                                     .env = &s.env};

    fake_server_open(&s, "fake", 0, NULL);
    server.env = &s.env;
    models_init(&d.models, &(struct models_config){.env = &s.env});
    d.models.loaded[0] = &s.model;
    d.models.n_loaded = 1;
    conversations_init(&d.conversations, &conversations);
    fields_init();
    conversation_names_init(&d.names, &d.conversations, &s.env);
    health_init(&health);
    connect_calls_init(&d.connected, &s.env, &never, &health);
    init_keyed();
    front_init(&f, &http, awake);
    f.is_serving = true;
}

static void teardown(void)
{
    front_deinit(&f);
    keyed_replies_deinit(&d.keyed);
    connect_calls_deinit(&d.connected);
    health_deinit(&health);
    conversation_names_deinit(&d.names);
    conversations_close_all(&d.conversations, NULL, "the test is over");
    conversations_deinit(&d.conversations);
    models_deinit(&d.models);
    fake_server_close(&s);
}

/* --- a request and its answer --- */

struct asked {
    const char *line; /* with its headers, each with its end of line */
    const char *body;
    const char *status;    /* of a whole answer: "200", … */
    const char *last_said; /* the end of a whole answer */
};

#define JSON "Content-Type: application/json\r\n"
#define SAY_3 "\"messages\":[{\"role\":\"user\",\"content\":\"say 3\"}]"

static const struct asked requests[] = {
    {"POST /v1/chat/completions HTTP/1.1\r\n", "{" SAY_3 ",\"stop\":[\"no\"]}", "200", "}"},
    {"POST /v1/chat/completions HTTP/1.1\r\n", "{" SAY_3 ",\"n\":2,\"logprobs\":true}", "200", "}"},
    {"POST /v1/chat/completions HTTP/1.1\r\n",
     "{" SAY_3 ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}", "200",
     "data: [DONE]\n\n\r\n0\r\n\r\n"},
    {"POST /v1/chat/completions HTTP/1.1\r\nX-Conversation-Id: tour\r\n", "{" SAY_3 "}", "200",
     "}"},
    {"POST /v1/responses HTTP/1.1\r\n", "{\"input\":\"say 3\",\"instructions\":\"be brief\"}",
     "200", "}"},
    {"POST /v1/responses HTTP/1.1\r\n", "{\"input\":\"say 3\",\"stream\":true}", "200",
     "\r\n0\r\n\r\n"},
    {"POST /v1/chat/completions HTTP/1.1\r\nExpect: 100-continue\r\n", "{]", "100", "}}"},
    {"POST /tokenize HTTP/1.1\r\n", "{\"prompt\":\"a\"}", "400", "}}"},
    {"GET /v1/models HTTP/1.1\r\n", "", "200", "}"},
    {"POST /v1/conversations HTTP/1.1\r\n",
     "{\"items\":[{\"role\":\"user\",\"content\":\"a\"}],\"metadata\":{\"a\":\"b\"}}", "200", "}"},
    {"POST /parley.v1.Conversations/Open HTTP/1.1\r\n" JSON,
     "{\"model\":\"fake\",\"metadata\":{\"a\":\"b\"},\"sampling\":{\"stop\":[\"no\"]}}", "200",
     "}"},
    {"POST /parley.v1.Conversations/Open HTTP/1.1\r\n" JSON "Connect-Timeout-Ms: 9\r\n",
     "{\"modle\":1}", "400", "]}"},
    {"POST /parley.v1.Conversations/Watch HTTP/1.1\r\nContent-Type: application/connect+json\r\n",
     "cut", "200", "]}}\r\n0\r\n\r\n"},
    {"GET /parley.v1.Conversations/List?encoding=json&base64=1&message=e30 HTTP/1.1\r\n", "", "200",
     "}"},
    {"GET /nowhere HTTP/1.1\r\n", "", "404", "}}"},
    {"POST /v1/chat/completions HTTP/1.1\r\nOrigin: http://a\r\n", "{" SAY_3 "}", "200", "}"},
    {"POST /v1/chat/completions HTTP/1.1\r\nOrigin: http://b\r\n", "{" SAY_3 "}", "403", "}}"},
    {"POST /v1/messages HTTP/1.1\r\n", "{" SAY_3 ",\"max_tokens\":9,\"stop_sequences\":[\"no\"]}",
     "200", "}"},
    {"POST /v1/messages HTTP/1.1\r\n", "{" SAY_3 ",\"max_tokens\":9,\"stream\":true}", "200",
     "\r\n0\r\n\r\n"},
    {"POST /api/chat HTTP/1.1\r\n", "{" SAY_3 ",\"options\":{\"num_predict\":9}}", "200",
     "\r\n0\r\n\r\n"},
    {"POST /api/generate HTTP/1.1\r\n",
     "{\"model\":\"fake:latest\",\"prompt\":\"say 3\",\"system\":\"a\",\"stream\":false}", "200",
     "}"},
    {"GET /api/tags HTTP/1.1\r\n", "", "200", "]}"},
    {"POST /api/show HTTP/1.1\r\n", "{\"model\":\"fake\"}", "200", "}"},
    {"GET /v1/responses/resp_1?stream=%74rue HTTP/1.1\r\n", "", "404", "}}"},
    {"OPTIONS /v1/chat/completions HTTP/1.1\r\nOrigin: http://a\r\n", "", "204", "\r\n\r\n"},
};

enum { N_REQUESTS = sizeof(requests) / sizeof(requests[0]) };

#define CHAT "POST /v1/chat/completions HTTP/1.1\r\n"
#define COMPLETIONS "POST /v1/completions HTTP/1.1\r\n"
#define RESPONSES "POST /v1/responses HTTP/1.1\r\n"
#define KEY "Idempotency-Key: a\r\n"
#define STREAM_END "data: [DONE]\n\n\r\n0\r\n\r\n"
#define TWO "{" SAY_3 ",\"n\":2,\"logprobs\":true}"
#define STREAMED "{" SAY_3 ",\"stream\":true}"
#define PROMPT "{\"prompt\":\"say 3\",\"logprobs\":1,\"stream\":true}"
#define INPUT "{\"input\":\"say 3\",\"instructions\":\"be brief\",\"stream\":true}"

/* Requests with a key, and again, perhaps from a place on. */
static const struct asked pairs[][2] = {
    {{CHAT KEY, TWO, "200", "}"}, {CHAT KEY, TWO, "200", "}"}},
    {{CHAT KEY, STREAMED, "200", STREAM_END},
     {CHAT KEY "Last-Event-ID: 1.1.2\r\n", STREAMED, "200", STREAM_END}},
    {{CHAT KEY "X-Conversation-Id: tour\r\n", "{" SAY_3 "}", "200", "}"},
     {CHAT KEY "X-Conversation-Id: tour\r\n", "{" SAY_3 "}", "200", "}"}},
    {{COMPLETIONS KEY, PROMPT, "200", STREAM_END},
     {COMPLETIONS KEY "Last-Event-ID: 1.1.2\r\n", PROMPT, "200", STREAM_END}},
    {{RESPONSES KEY, INPUT, "200", "\r\n0\r\n\r\n"},
     {RESPONSES KEY "Last-Event-ID: 1.1.1\r\n", INPUT, "200", "\r\n0\r\n\r\n"}},
    {{CHAT KEY, STREAMED, "200", STREAM_END}, {CHAT KEY, TWO, "422", "}}"}},
};

enum { N_PAIRS = sizeof(pairs) / sizeof(pairs[0]) };

static void serve(void)
{
    bool is_more;

    do {
        is_more = !list_is_empty(&f.notified);
        front_serve(&f);
        is_more = fake_server_step(&s) || is_more;
    } while (is_more);
}

static bool ends_with(const struct lws *of, const char *end)
{
    size_t len = strlen(end);

    return of->n_said >= len && memcmp(of->said + of->n_said - len, end, len) == 0;
}

/* Whether the answer is whole. */
static bool ask_once(const struct asked *a)
{
    struct lws *socket = calloc(1, sizeof(*socket));
    char request[1024];
    size_t len =
        (size_t)snprintf(request, sizeof(request), "%sHost: a\r\nContent-Length: %zu\r\n\r\n%s",
                         a->line, strlen(a->body), a->body);
    size_t half = len / 2;
    bool is_whole;

    ck_assert_ptr_nonnull(socket);
    ck_assert_uint_lt(len, sizeof(request));
    socket->connection = connection_open(&f, socket);
    if (socket->connection != NULL) {
        connection_read(socket->connection, request, half);
        serve();
        if (!socket->is_closed)
            connection_read(socket->connection, request + half, len - half);
        serve();
        if (!socket->is_closed)
            connection_close(socket->connection);
        serve(); /* its request ends */
    }
    if (socket->n_said > 0)
        ck_assert_int_eq(memcmp(socket->said, "HTTP/1.1 ", 9), 0);
    is_whole = socket->n_said > 12 && memcmp(socket->said + 9, a->status, 3) == 0 &&
               ends_with(socket, a->last_said);
    free(socket);
    ck_assert(list_is_empty(&f.connections) && list_is_empty(&f.exchanges));
    ck_assert_uint_eq(f.n_answering, 0);
    return is_whole;
}

static void forget_all(void)
{
    conversations_close_all(&d.conversations, NULL, "the request is over");
    serve();
    ck_assert_uint_eq(d.conversations.n, 0);
    keyed_replies_deinit(&d.keyed);
    init_keyed();
}

static enum status ask(void *arg)
{
    bool is_whole = ask_once(arg);

    forget_all();
    ck_assert_uint_eq(d.connected.limit.held, 0);
    return is_whole ? STATUS_OK : STATUS_EXHAUSTED;
}

/* --- HTTP/2 --- */

static size_t put_frame(char *out, char kind, char flags, char stream, const char *bytes,
                        size_t len)
{
    const char head[9] = {0, 0, (char)len, kind, flags, 0, 0, 0, stream};

    ck_assert_uint_lt(len, 128);
    memcpy(out, head, sizeof(head));
    if (len > 0)
        memcpy(out + sizeof(head), bytes, len);
    return sizeof(head) + len;
}

/* A streamed chat on a connection of HTTP/2. */
static enum status ask_frames(void *arg)
{
    static const char head[] = "\x83\x86\x04\x14/v1/chat/completions\x01\x01"
                               "a";
    static const char body[] = STREAMED;
    static const char end[] = {0, 0, 0, 0, 1, 0, 0, 0, 1}; /* DATA, the last of stream 1 */
    struct lws *socket = calloc(1, sizeof(*socket));
    char sent[512] = HTTP2_PREFACE;
    size_t len = HTTP2_PREFACE_BYTES, at = 0;
    bool is_whole;

    ck_assert_ptr_nonnull(socket);
    len += put_frame(sent + len, 4, 0, 0, NULL, 0);
    len += put_frame(sent + len, 1, 4, 1, head, sizeof(head) - 1);
    len += put_frame(sent + len, 0, 1, 1, body, sizeof(body) - 1);
    socket->connection = connection_open(&f, socket);
    for (size_t n = 10; socket->connection != NULL && !socket->is_closed && at < len; at += n) {
        n = n < len - at ? n : len - at;
        connection_read(socket->connection, sent + at, n);
        serve();
    }
    if (socket->connection != NULL && !socket->is_closed)
        connection_close(socket->connection);
    serve(); /* its request ends */
    is_whole = socket->n_said > sizeof(end) &&
               memcmp(socket->said + socket->n_said - sizeof(end), end, sizeof(end)) == 0 &&
               memmem(socket->said, socket->n_said, "data: [DONE]", 12) != NULL;
    free(socket);
    ck_assert(list_is_empty(&f.connections) && list_is_empty(&f.exchanges) &&
              list_is_empty(&f.http2_due));
    ck_assert_uint_eq(f.n_answering, 0);
    forget_all();
    return is_whole ? STATUS_OK : STATUS_EXHAUSTED;
}

/* If the first has its whole reply (a stream may also end with an error) the second generates
 * nothing. */
static enum status ask_twice(void *arg)
{
    const struct asked *pair = arg;
    uint64_t n_before = d.conversations.n_turns, n_turns;
    bool is_whole = ask_once(&pair[0]), is_kept;

    n_turns = d.conversations.n_turns;
    is_kept = is_whole && n_turns > n_before;
    is_whole = ask_once(&pair[1]) && is_whole;
    ck_assert(!is_kept || n_turns == d.conversations.n_turns);
    forget_all();
    return is_whole ? STATUS_OK : STATUS_EXHAUSTED;
}

/* Each allocation fails in turn. */
START_TEST(memory_fails)
{
    setup();
    for (size_t i = 0; i < N_REQUESTS; i++) {
        struct asked a = requests[i];

        ck_assert_int_gt(sweep(ask, &a), 2);
    }
    for (size_t i = 0; i < N_PAIRS; i++) {
        struct asked pair[2] = {pairs[i][0], pairs[i][1]};

        ck_assert_int_gt(sweep(ask_twice, pair), 20);
    }
    teardown();
}
END_TEST

/* Each write to the socket fails in turn. */
START_TEST(socket_fails)
{
    setup();
    for (size_t i = 0; i < N_REQUESTS; i++) {
        struct asked a = requests[i];
        long left = -1;

        for (long n = 0; left < 0; n++) {
            enum status rc;

            write_fails_after = n;
            rc = ask(&a);
            left = write_fails_after;
            write_fails_after = -1;
            ck_assert_int_eq(rc, left < 0 ? STATUS_EXHAUSTED : STATUS_OK);
        }
    }
    teardown();
}
END_TEST

/* The same of a connection of HTTP/2. */
START_TEST(http2_fails)
{
    long left = -1;

    setup();
    ck_assert_int_gt(sweep(ask_frames, NULL), 10);
    for (long n = 0; left < 0; n++) {
        enum status rc;

        write_fails_after = n;
        rc = ask_frames(NULL);
        left = write_fails_after;
        write_fails_after = -1;
        ck_assert_int_eq(rc, left < 0 ? STATUS_EXHAUSTED : STATUS_OK);
    }
    teardown();
}
END_TEST

/* One more Connect call than there may be is refused; health is answered, and other APIs are. */
START_TEST(connect_calls_have_a_limit)
{
    struct asked open = {"POST /parley.v1.Conversations/Open HTTP/1.1\r\n" JSON, "{}", "200", "}"},
                 refused = {open.line, "{}", "429", "]}"},
                 check = {"POST /grpc.health.v1.Health/Check HTTP/1.1\r\n" JSON,
                          "{\"service\":\"none\"}", "404", "]}"};

    setup();
    d.connected.limit.max = 2;
    ck_assert_int_eq(ask(&open), STATUS_OK); /* and gives back what it held */
    shared_limit_hold(&d.connected.limit, 0, 1);
    ck_assert(ask_once(&open));
    shared_limit_hold(&d.connected.limit, 0, 1);
    ck_assert(ask_once(&refused));
    ck_assert(ask_once(&check));
    ck_assert(ask_once(&requests[0]));
    ck_assert_uint_eq(d.connected.limit.held, 2);
    forget_all();
    teardown();
}
END_TEST

SUITE_MAIN("fault/http", memory_fails, socket_fails, http2_fails, connect_calls_have_a_limit)
