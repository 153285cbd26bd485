/* The port and its calls, against a simple gRPC client. The handlers are fakes that the tests
 * control, and semaphores report what they saw. */
#include "server/rpc/port.h"

#include <arpa/inet.h>
#include <assert.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "proto/locks.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/server/rpc/rig.h"

typedef Parley__V1__Message message;

/* State shared by the fake handlers and the tests. A field is the loop's until its semaphore is
 * posted. */
struct server {
    uv_sem_t has_begun, is_gone;
    enum status why;
    size_t n_gone;
    uint64_t left_us;
    char header[32];
    bool had_no_header;
    struct call *call;
    size_t n_write_ready;
    atomic_size_t n_released;
};

static struct rig rig;
static struct server world;

static void say(message *m, char *text)
{
    *m = (message)PARLEY__V1__MESSAGE__INIT;
    m->text = text;
}

/* A unary method that returns its request at once. */
static void echo(struct call *call)
{
    const ProtobufCMessage *request = call_request(call);
    struct server *server = call_server(call);
    const char *header = call_header(call, "x-test");
    message reply;

    say(&reply, ((const message *)request)->text);
    (void)snprintf(server->header, sizeof(server->header), "%s", header == NULL ? "" : header);
    server->had_no_header = call_header(call, "x-other") == NULL;
    call_reply(call, &reply.base);
}

/* A unary method that fails in each way. */
static void refuse(struct call *call)
{
    const ProtobufCMessage *request = call_request(call);
    const char *text = ((const Parley__V1__Message *)request)->text;
    struct error err;

    (void)error_field(&err, text[0] != '\0' ? text : "top_p", "is 7, it must be from 0 to 1%s",
                      text);
    err.retry_after_ms = 250;
    call_finish(call, &err);
}

static void note_gone(struct call *call, void *state, enum status why)
{
    struct server *server = state;

    assert(call_server(call) == server);
    server->why = why;
    server->n_gone++;
    uv_sem_post(&server->is_gone);
}

/* Never answers. */
static void hang(struct call *call)
{
    static const struct call_handler handler = {.on_close = note_gone};
    struct server *server = call_server(call);

    server->call = call;
    server->left_us = call_deadline_us(call);
    if (server->left_us > 0) {
        uint64_t now_us = env_now_us(&env_real);

        server->left_us -= now_us < server->left_us ? now_us : server->left_us;
    }
    call_set_handler(call, &handler, server);
    uv_sem_post(&server->has_begun);
}

static void linger_drain(struct call *call, void *state)
{
    struct error err;

    (void)error_set(&err, STATUS_UNAVAILABLE, "drained");
    call_finish(call, &err);
}

/* Never answers, and ends when the server drains; "unawaited": it stays. */
static void linger(struct call *call)
{
    static const struct call_handler ends = {.drain = linger_drain, .on_close = note_gone};
    const ProtobufCMessage *request = call_request(call);
    struct server *server = call_server(call);
    static const struct call_handler stays = {.on_close = note_gone, .is_unawaited = true};
    bool is_unawaited = strcmp(((const message *)request)->text, "unawaited") == 0;

    call_set_handler(call, is_unawaited ? &stays : &ends, server);
    uv_sem_post(&server->has_begun);
}

/* A pulled stream with as many messages as its request says; "3+" writes all it can with `more` and
 * ends with the last one; "all" never ends. */
struct source {
    struct server *server;
    size_t n, at;
    bool is_greedy, is_endless;
};

static void source_on_close(struct call *call, void *state, enum status why)
{
    struct source *s = state;

    note_gone(call, s->server, why);
    free(s);
}

static void source_write_ready(struct call *call, void *state)
{
    static char filler[20000];
    struct source *s = state;
    char text[32];
    message m;

    s->server->n_write_ready++;
    if (s->is_endless) {
        memset(filler, 'x', sizeof(filler) - 1);
        say(&m, filler);
        call_write(call, &m.base, false);
        return;
    }
    do {
        (void)snprintf(text, sizeof(text), "%zu", ++s->at);
        say(&m, text);
        if (s->at == s->n && s->is_greedy) {
            call_finish_with(call, &m.base);
            return;
        }
        call_write(call, &m.base, s->is_greedy);
        if (s->at == s->n) {
            call_finish(call, NULL);
            return;
        }
    } while (s->is_greedy && call_is_write_ready(call));
}

static void stream(struct call *call)
{
    static const struct call_handler handler = {.on_write_ready = source_write_ready,
                                                .on_close = source_on_close};
    const ProtobufCMessage *request = call_request(call);
    struct server *server = call_server(call);
    const char *text = ((const message *)request)->text;
    struct source *s = xalloc(sizeof(*s));

    s->server = server;
    s->n = strtoul(text, NULL, 10);
    s->is_greedy = strchr(text, '+') != NULL;
    s->is_endless = strcmp(text, "all") == 0;
    server->n_write_ready = 0;
    call_set_handler(call, &handler, s);
    call_notify(call);
}

/* Bidi: echoes each message, until the client half-closes. "fail" ends it. */
struct talk {
    struct server *server;
    struct arena arena; /* of the message being answered */
    char *text;
};

/* False: no message to answer. */
static bool answer_talk(struct call *call, struct talk *t)
{
    message m;

    if (t->text == NULL)
        return false;
    say(&m, t->text);
    t->text = NULL;
    call_write(call, &m.base, false);
    arena_deinit(&t->arena);
    return true;
}

static void talk_write_ready(struct call *call, void *state)
{
    if (answer_talk(call, state))
        call_read(call);
}

static void talk_message(struct call *call, void *state, const ProtobufCMessage *m,
                         struct arena *arena)
{
    struct talk *t = state;
    struct error err = {0};

    if (m == NULL) {
        call_finish(call, NULL);
        return;
    }
    t->text = ((const message *)m)->text;
    if (strcmp(t->text, "fail") == 0) {
        (void)error_set(&err, STATUS_ABORTED, "as asked");
        call_finish(call, &err);
        return;
    }
    t->arena = *arena; /* kept until it is answered */
    arena_init(arena, 0);
    call_notify(call);
}

static void talk_on_close(struct call *call, void *state, enum status why)
{
    struct talk *t = state;

    note_gone(call, t->server, why);
    arena_deinit(&t->arena);
    free(t);
}

static void open_talk(struct call *call, struct server *server, const struct call_handler *handler)
{
    struct talk *t = xalloc(sizeof(*t));

    t->server = server;
    call_set_handler(call, handler, t);
    call_read(call);
}

static void talk(struct call *call)
{
    static const struct call_handler handler = {
        .on_write_ready = talk_write_ready, .message = talk_message, .on_close = talk_on_close};
    const ProtobufCMessage *request = call_request(call);
    struct server *server = call_server(call);

    assert(request == NULL);
    open_talk(call, server, &handler);
    uv_sem_post(&server->has_begun);
}

/* Bidi: the same, but reads behind its answers; "hold" gets none. */
static void turns_write_ready(struct call *call, void *state)
{
    (void)answer_talk(call, state);
}

static void turns_message(struct call *call, void *state, const ProtobufCMessage *m,
                          struct arena *arena)
{
    struct talk *t = state;

    if (m == NULL) {
        call_finish(call, NULL);
        return;
    }
    if (strcmp(((const message *)m)->text, "hold") != 0) {
        t->text = ((const message *)m)->text;
        t->arena = *arena; /* kept until it is answered */
        arena_init(arena, 0);
        call_notify(call);
    }
    call_read_behind(call);
}

static void turns(struct call *call)
{
    static const struct call_handler handler = {
        .on_write_ready = turns_write_ready, .message = turns_message, .on_close = talk_on_close};
    const ProtobufCMessage *request = call_request(call);
    struct server *server = call_server(call);

    assert(request == NULL);
    open_talk(call, server, &handler);
}

/* A client's stream: keeps its messages undecoded, and when the client half-closes returns them all
 * as one, in pieces: the encoded fields in order, of which the last one counts. */
struct gathering {
    struct server *server;
    struct call_bytes *kept[8];
    size_t n;
};

static void release_bytes(void *arg)
{
    struct server *server = arg;

    (void)atomic_fetch_add(&server->n_released, 1);
}

static void gather_bytes(struct call *call, void *state, struct call_bytes *bytes)
{
    static const char tail[] = {0x12, 2, 'o', 'k'}; /* text */
    struct gathering *g = state;
    enum { MAX_PIECES = 32 };
    struct call_piece pieces[MAX_PIECES];
    size_t n = 0;

    if (bytes != NULL) {
        g->kept[g->n++] = bytes;
        call_read(call);
        return;
    }
    for (size_t i = 0; i < g->n; i++) {
        const struct call_bytes *b = g->kept[i];

        for (size_t k = 0; k < b->n_pieces && n < MAX_PIECES; k++)
            pieces[n++] =
                (struct call_piece){b->pieces[k].iov_base, b->pieces[k].iov_len, NULL, NULL};
    }
    assert(n < MAX_PIECES);
    pieces[n++] = (struct call_piece){tail, sizeof(tail), release_bytes, g->server};
    call_write_pieces(call, pieces, n, false);
    call_finish(call, NULL);
}

static void gather_on_close(struct call *call, void *state, enum status why)
{
    struct gathering *g = state;

    for (size_t i = 0; i < g->n; i++)
        call_bytes_free(g->kept[i]);
    note_gone(call, g->server, why);
    free(g);
}

static void gather(struct call *call)
{
    static const struct call_handler handler = {.bytes = gather_bytes, .on_close = gather_on_close};
    const ProtobufCMessage *request = call_request(call);
    struct server *server = call_server(call);
    struct gathering *g = xalloc(sizeof(*g));

    assert(request == NULL);
    g->server = server;
    call_set_handler(call, &handler, g);
    call_read(call);
}

#define MESSAGE &parley__v1__message__descriptor
static const struct call_method rpcs[] = {
    {"/test.Port/Echo", CALL_UNARY, MESSAGE, MESSAGE, echo, ACCESS_KEY},
    {"/test.Port/Fail", CALL_UNARY, MESSAGE, MESSAGE, refuse, ACCESS_KEY},
    {"/test.Port/Hang", CALL_UNARY, MESSAGE, MESSAGE, hang, ACCESS_KEY},
    {"/test.Port/Linger", CALL_UNARY, MESSAGE, MESSAGE, linger, ACCESS_KEY},
    {"/test.Port/Stream", CALL_SERVER_STREAM, MESSAGE, MESSAGE, stream, ACCESS_KEY},
    {"/test.Port/Talk", CALL_BIDI, MESSAGE, MESSAGE, talk, ACCESS_KEY},
    {"/test.Port/Turns", CALL_BIDI, MESSAGE, MESSAGE, turns, ACCESS_KEY},
    {"/test.Port/Gather", CALL_CLIENT_STREAM, MESSAGE, MESSAGE, gather, ACCESS_KEY},
    {"/test.Port/Rule", CALL_UNARY, MESSAGE, MESSAGE, echo, ACCESS_ADMIN},
    {"/test.Port/Knock", CALL_UNARY, MESSAGE, MESSAGE, echo, ACCESS_OPEN},
};

static const struct call_table service = {rpcs, sizeof(rpcs) / sizeof(rpcs[0])};
static const struct call_table *const services[] = {&service};

static const struct port_config config = {.services = services, .n_services = 1, .server = &world};

static void world_open(void)
{
    world = (struct server){0};
    ck_assert_int_eq(uv_sem_init(&world.has_begun, 0), 0);
    ck_assert_int_eq(uv_sem_init(&world.is_gone, 0), 0);
}

static void open_with(struct dial *d, const struct port_config *with)
{
    world_open();
    rig_start(&rig, with);
    ck_assert_int_eq(rig.rc, STATUS_OK);
    dial_open(d, rig.address);
}

static void open_all(struct dial *d)
{
    open_with(d, &config);
}

static void close_all(struct dial *d)
{
    dial_close(d);
    rig_stop(&rig);
    uv_sem_destroy(&world.has_begun);
    uv_sem_destroy(&world.is_gone);
}

static void get_why(struct rig *r, void *arg)
{
    *(enum status *)arg = world.why;
}

/* Waits for a handler's end and returns its reason. */
static enum status wait_gone(void)
{
    enum status why;

    uv_sem_wait(&world.is_gone);
    rig_on_loop(&rig, get_why, &why);
    return why;
}

static struct dialled c; /* large */

static void expect_alive(struct dial *d)
{
    dial_unary(d, &c, "/test.Port/Echo", "still there?", 0);
    ck_assert_int_eq(c.status, GRPC_STATUS_OK);
    ck_assert_str_eq(c.reply, "still there?");
}

/* A unary call gets its reply; its handler sees headers. */
START_TEST(unary)
{
    struct dial d;
    struct call_stats stats;

    open_all(&d);
    for (size_t i = 0; i < 300; i++) { /* more than are requested from gRPC at once */
        dial_unary(&d, &c, "/test.Port/Echo", "gr\xc3\xbc\xc3\x9f dich", 0);
        ck_assert_int_eq(c.status, GRPC_STATUS_OK);
        ck_assert_uint_eq(c.n_messages, 1);
        ck_assert_str_eq(c.reply, "gr\xc3\xbc\xc3\x9f dich");
    }
    stats = rig_stats(&rig);
    ck_assert_uint_eq(stats.n_started, 300);
    ck_assert_uint_eq(stats.n_failed, 0);
    ck_assert_str_eq(world.header, "a header");
    ck_assert(world.had_no_header);
    close_all(&d);
}
END_TEST

/* Repeated bursts of more calls than are requested from gRPC, of a method with few at first: all
 * are answered. */
START_TEST(bursts)
{
    static struct dialled burst[80];
    struct dial d;

    open_all(&d);
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < 80; i++)
            dial_start(&d, &burst[i], "/test.Port/Echo", "x", 0);
        for (size_t i = 0; i < 80; i++) {
            while (dial_read(&d, &burst[i]))
                continue;
            dial_end(&d, &burst[i]);
            ck_assert_int_eq(burst[i].status, GRPC_STATUS_OK);
        }
    }
    ck_assert_uint_eq(rig_stats(&rig).n_started, 240);
    close_all(&d);
}
END_TEST

/* Debian's Abseil can leave its locks unchecked. */
START_TEST(locks)
{
    ck_assert(locks_unchecked());
}
END_TEST

/* A failure arrives as status and text, and with all its detail in the trailers. */
START_TEST(failure_has_its_detail)
{
    struct dial d;

    open_all(&d);
    dial_unary(&d, &c, "/test.Port/Fail", "", 0);
    ck_assert_int_eq(c.status, GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(c.words, "top_p is 7, it must be from 0 to 1");
    ck_assert_uint_eq(c.code, GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(c.field, "top_p");
    ck_assert_uint_eq(c.retry_ms, 250);
    ck_assert_str_eq(c.retry_header, "250");
    ck_assert_str_eq(c.reason, "INVALID_FIELD");
    ck_assert_uint_eq(c.n_details, 3);
    ck_assert_uint_eq(rig_stats(&rig).n_failed, 1);
    close_all(&d);
}
END_TEST

/* The longest text, in characters that a header takes thrice as long, arrives with all details:
 * a client that takes 8 KiB of metadata accepts it. */
START_TEST(longest_failure_arrives)
{
    char text[3 * 200 + 1] = "";
    struct dial d;

    for (size_t i = 0; i + 3 < sizeof(text); i += 3)
        memcpy(text + i, "€", 4);
    open_all(&d);
    dial_unary(&d, &c, "/test.Port/Fail", text, 0);
    ck_assert_int_eq(c.status, GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_uint_ge(strlen(c.words), ERROR_TEXT_MAX - 3);
    ck_assert_uint_ge(strlen(c.field), 45);
    ck_assert_uint_eq(c.n_details, 3);
    close_all(&d);
}
END_TEST

static void expect_count(struct dial *d, const char *text, size_t n)
{
    char expected[32];

    dial_start(d, &c, "/test.Port/Stream", text, 0);
    for (size_t i = 1; i <= n; i++) {
        ck_assert(dial_read(d, &c));
        (void)snprintf(expected, sizeof(expected), "%zu", i);
        ck_assert_str_eq(c.reply, expected);
    }
    ck_assert(!dial_read(d, &c));
    dial_end(d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_OK);
    ck_assert_int_eq(wait_gone(), STATUS_OK);
}

/* A pulled stream arrives whole and in order, one message at a time or as many as fit; its handler
 * is notified of the end once. */
START_TEST(streams)
{
    struct dial d;

    open_all(&d);
    expect_count(&d, "1", 1);
    expect_count(&d, "3", 3);
    expect_count(&d, "2000", 2000);
    expect_count(&d, "1+", 1);
    expect_count(&d, "3+", 3);
    expect_count(&d, "20000+", 20000);
    ck_assert_uint_eq(world.n_gone, 6);
    close_all(&d);
}
END_TEST

static void get_write_ready(struct rig *r, void *arg)
{
    *(size_t *)arg = world.n_write_ready;
}

/* A client that does not read stops the source: the window bounds the writes, however long other
 * calls are served meanwhile. Cancelling a write in flight ends the call. */
START_TEST(slow_reader_stops_the_source)
{
    static struct dialled held;
    struct dial d;
    size_t n;

    open_all(&d);
    dial_start(&d, &held, "/test.Port/Stream", "all", 0);
    ck_assert(dial_read(&d, &held));
    for (size_t i = 0; i < 200; i++)
        expect_alive(&d);
    rig_on_loop(&rig, get_write_ready, &n);
    ck_assert_uint_ge(n, 1);
    ck_assert_uint_lt(n, 20); /* the window is 64 KiB, and one message may be held back */
    ck_assert_int_eq(grpc_call_cancel(held.call, NULL), GRPC_CALL_OK);
    ck_assert_int_eq(wait_gone(), STATUS_CANCELLED);
    dial_end(&d, &held);
    expect_alive(&d);
    close_all(&d);
}
END_TEST

/* Both sides send; the client's half-close ends the call. Each message is decoded separately. */
START_TEST(bidi)
{
    struct dial d;
    char text[32];

    open_all(&d);
    dial_start(&d, &c, "/test.Port/Talk", NULL, 0);
    for (size_t i = 0; i < 200; i++) {
        (void)snprintf(text, sizeof(text), "message %zu", i);
        dial_send_text(&d, &c, text);
        ck_assert(dial_read(&d, &c));
        ck_assert_str_eq(c.reply, text);
    }
    dial_half_close(&d, &c);
    ck_assert(!dial_read(&d, &c));
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_OK);
    ck_assert_int_eq(wait_gone(), STATUS_OK);

    dial_start(&d, &c, "/test.Port/Talk", NULL, 0);
    dial_send_text(&d, &c, "fail");
    ck_assert(!dial_read(&d, &c));
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_ABORTED);
    uv_sem_wait(&world.is_gone);
    close_all(&d);
}
END_TEST

/* Alternates requests and answers, until reads are delayed behind the answers. */
static void take_turns(struct dial *d, struct dialled *turns_call)
{
    char text[32];

    dial_start(d, turns_call, "/test.Port/Turns", NULL, 60000);
    for (size_t i = 0; i < 40; i++) {
        (void)snprintf(text, sizeof(text), "turn %zu", i);
        dial_send_text(d, turns_call, text);
        ck_assert(dial_read(d, turns_call));
        ck_assert_str_eq(turns_call->reply, text);
    }
}

/* A client that has waited for every answer so far, and then sends on without one, is still read,
 * and so is its half-close. */
START_TEST(bidi_reads_behind_answers)
{
    struct dial d;

    open_all(&d);
    take_turns(&d, &c);
    for (size_t i = 0; i < 3; i++) {
        dial_send_text(&d, &c, "hold");
        dial_send_text(&d, &c, "hold");
        dial_send_text(&d, &c, "free");
        ck_assert(dial_read(&d, &c));
        ck_assert_str_eq(c.reply, "free");
    }
    dial_send_text(&d, &c, "hold");
    dial_half_close(&d, &c);
    ck_assert(!dial_read(&d, &c));
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_OK);
    uv_sem_wait(&world.is_gone);
    close_all(&d);
}
END_TEST

/* The port stops while a read is delayed. */
START_TEST(stops_with_a_read_put_off)
{
    struct dial d;

    open_all(&d);
    take_turns(&d, &c);
    dial_send_text(&d, &c, "hold");
    rig_stop(&rig);
    ck_assert_uint_eq(world.n_gone, 1);
    while (dial_read(&d, &c))
        continue;
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_UNAVAILABLE);
    dial_close(&d);
}
END_TEST

/* A damaged message ends a bidi call with an error that names the fault. */
START_TEST(bidi_damaged_message)
{
    struct dial d;

    open_all(&d);
    dial_start(&d, &c, "/test.Port/Talk", NULL, 0);
    dial_send(&d, &c, "\x12\x01\xff", 3);
    ck_assert(!dial_read(&d, &c));
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_str_eq(c.field, "text");
    uv_sem_wait(&world.is_gone);
    close_all(&d);
}
END_TEST

/* A client's stream is delivered message by message, undecoded, and has one answer; memory shared
 * with gRPC is released. */
START_TEST(client_stream)
{
    struct dial d;

    open_all(&d);
    dial_start(&d, &c, "/test.Port/Gather", NULL, 0);
    for (size_t i = 0; i < 3; i++)
        dial_send_text(&d, &c, "a longer text than a slice holds within itself");
    dial_half_close(&d, &c);
    ck_assert(dial_read(&d, &c));
    ck_assert_str_eq(c.reply, "ok");
    ck_assert_uint_gt(c.last_len, 140);
    ck_assert(!dial_read(&d, &c));
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_OK);
    ck_assert_int_eq(wait_gone(), STATUS_OK);
    close_all(&d);
    ck_assert_uint_eq(atomic_load(&world.n_released), 1);
}
END_TEST

/* Damaged or missing requests are refused. */
START_TEST(damaged_requests)
{
    struct dial d;

    open_all(&d);
    dial_start(&d, &c, "/test.Port/Echo", NULL, 0);
    dial_send(&d, &c, "\x12\x7f", 2);
    dial_half_close(&d, &c);
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_INVALID_ARGUMENT);
    ck_assert_uint_eq(c.code, GRPC_STATUS_INVALID_ARGUMENT);

    dial_start(&d, &c, "/test.Port/Echo", NULL, 0);
    dial_half_close(&d, &c);
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_INVALID_ARGUMENT);
    expect_alive(&d);
    close_all(&d);
}
END_TEST

/* A request of many small fields, which would cost the loop time and memory, is refused as
 * INVALID_ARGUMENT, since a retry would fail too. */
START_TEST(too_many_fields)
{
    size_t len = 2 * (CALL_MAX_FIELDS + 1);
    char *bytes = xalloc(len);
    struct dial d;

    for (size_t i = 0; i < len; i++)
        bytes[i] = i % 2 == 0 ? 0x78 : 1; /* an unknown field 15 */
    open_all(&d);
    dial_start(&d, &c, "/test.Port/Echo", NULL, 0);
    dial_send(&d, &c, bytes, len - 2);
    dial_half_close(&d, &c);
    ck_assert(dial_read(&d, &c) && !dial_read(&d, &c));
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_OK);
    dial_start(&d, &c, "/test.Port/Echo", NULL, 0);
    dial_send(&d, &c, bytes, len);
    dial_half_close(&d, &c);
    ck_assert(!dial_read(&d, &c));
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_INVALID_ARGUMENT);
    expect_alive(&d);
    free(bytes);
    close_all(&d);
}
END_TEST

/* An unknown method is reported by its path. */
START_TEST(unknown_method)
{
    struct dial d;

    open_all(&d);
    dial_unary(&d, &c, "/test.Port/Nonsense", "x", 0);
    ck_assert_int_eq(c.status, GRPC_STATUS_UNIMPLEMENTED);
    ck_assert_str_eq(c.words, "there is no method /test.Port/Nonsense");
    ck_assert_uint_eq(c.code, GRPC_STATUS_UNIMPLEMENTED);
    close_all(&d);
}
END_TEST

/* A client's cancel is noticed at once. */
START_TEST(client_cancels)
{
    struct dial d;

    open_all(&d);
    dial_start(&d, &c, "/test.Port/Hang", "x", 0);
    uv_sem_wait(&world.has_begun);
    ck_assert_uint_eq(world.left_us, 0);
    ck_assert_uint_eq(rig_stats(&rig).n_calls, 1);
    ck_assert_int_eq(grpc_call_cancel(c.call, NULL), GRPC_CALL_OK);
    ck_assert_int_eq(wait_gone(), STATUS_CANCELLED);
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_CANCELLED);
    ck_assert_uint_eq(rig_stats(&rig).n_failed, 1);
    close_all(&d);
}
END_TEST

/* One call with a deadline that passes, on its own server and connection. False: it passed before
 * the handler could see any time left. */
static bool saw_deadline_pass(uint32_t ms)
{
    bool has_begun;
    struct dial d;

    open_all(&d);
    expect_alive(&d);
    dial_start(&d, &c, "/test.Port/Hang", "x", ms);
    dial_end(&d, &c);
    dial_close(&d);
    rig_stop(&rig); /* the call has fully ended */
    has_begun = uv_sem_trywait(&world.has_begun) == 0;
    uv_sem_destroy(&world.has_begun);
    uv_sem_destroy(&world.is_gone);
    if (!has_begun || world.left_us == 0)
        return false;
    ck_assert_uint_le(world.left_us, (ms + 10) * (uint64_t)1000);
    ck_assert_int_eq(world.why, STATUS_DEADLINE);
    ck_assert_int_eq(c.status, GRPC_STATUS_DEADLINE_EXCEEDED);
    return true;
}

/* The handler sees the deadline, and gets it as the reason when it passes. On a busy machine, where
 * it passes on the way, a longer one is tried. */
START_TEST(deadline)
{
    uint32_t ms = 300;

    while (!saw_deadline_pass(ms)) {
        ms *= 2;
        ck_assert_uint_lt(ms, 30000);
    }
}
END_TEST

/* A killed peer is noticed at once. The peer is this program, run as one (main). */
START_TEST(peer_is_killed)
{
    char *argv[] = {(char[]){"peer"}, (char[]){"--hang"}, rig.address, NULL};
    struct dial d;
    pid_t pid;

    open_all(&d);
    ck_assert_int_eq(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ), 0);
    uv_sem_wait(&world.has_begun);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(wait_gone(), STATUS_CANCELLED);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    expect_alive(&d);
    close_all(&d);
}
END_TEST

static int connect_raw(const char *address)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    to.sin_port = htons((uint16_t)strtoul(strrchr(address, ':') + 1, NULL, 10));
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

static void expect_hang_up(const void *bytes, size_t len)
{
    int fd = connect_raw(rig.address);
    char in[256];

    ck_assert_int_eq(send(fd, bytes, len, MSG_NOSIGNAL), (ssize_t)len);
    while (recv(fd, in, sizeof(in), 0) > 0) /* 0 or an error: the server has hung up */
        continue;
    ck_assert_int_eq(close(fd), 0);
}

/* Bytes that are not HTTP/2 end their connection and nothing else. */
START_TEST(garbage)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    char bytes[256];
    struct dial d;

    open_all(&d);
    expect_hang_up(http, sizeof(http) - 1);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(i * 37 + 11);
    expect_hang_up(bytes, sizeof(bytes));
    memcpy(bytes, preface, sizeof(preface) - 1); /* and garbage only after it */
    expect_hang_up(bytes, sizeof(bytes));
    expect_alive(&d);
    close_all(&d);
}
END_TEST

/* A request over the size limit is refused, in a unary call and on a stream; a smaller one
 * passes. */
START_TEST(oversize)
{
    struct port_config small = config;
    char *text = xalloc(20001);
    struct dial d;

    world_open();
    small.max_message_bytes = 10000;
    rig_start(&rig, &small);
    dial_open(&d, rig.address);
    memset(text, 'x', 9000);
    dial_unary(&d, &c, "/test.Port/Echo", text, 0);
    ck_assert_int_eq(c.status, GRPC_STATUS_OK);
    memset(text, 'x', 20000);
    dial_unary(&d, &c, "/test.Port/Echo", text, 0);
    ck_assert_int_eq(c.status, GRPC_STATUS_RESOURCE_EXHAUSTED);
    dial_start(&d, &c, "/test.Port/Talk", NULL, 0);
    dial_send_text(&d, &c, text);
    ck_assert(!dial_read(&d, &c));
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, GRPC_STATUS_RESOURCE_EXHAUSTED);
    uv_sem_wait(&world.is_gone);
    expect_alive(&d);
    free(text);
    close_all(&d);
}
END_TEST

/* A call beyond the bound is refused with a retry hint; those in flight go on. */
START_TEST(too_many_calls)
{
    struct port_config small = config;
    static struct dialled held[2];
    struct dial d;

    world_open();
    small.max_calls = 2;
    rig_start(&rig, &small);
    dial_open(&d, rig.address);
    for (size_t i = 0; i < 2; i++) {
        dial_start(&d, &held[i], "/test.Port/Hang", "x", 0);
        uv_sem_wait(&world.has_begun);
    }
    dial_unary(&d, &c, "/test.Port/Echo", "x", 0);
    ck_assert_int_eq(c.status, GRPC_STATUS_RESOURCE_EXHAUSTED);
    ck_assert_uint_gt(c.retry_ms, 0);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(grpc_call_cancel(held[i].call, NULL), GRPC_CALL_OK);
        uv_sem_wait(&world.is_gone);
        dial_end(&d, &held[i]);
    }
    (void)rig_stats(&rig); /* the loop has released them */
    expect_alive(&d);
    close_all(&d);
}
END_TEST

static void answer(struct rig *r, void *arg)
{
    message reply;

    say(&reply, (char[]){"at last"});
    call_reply(world.call, &reply.base);
}

static void drain(struct rig *r, void *arg)
{
    port_drain(r->port);
}

static void count_awaited(struct rig *r, void *arg)
{
    *(size_t *)arg = port_n_awaited(r->port);
}

/* A call is counted until gRPC has released it, a little after its handler's on_close. */
static void expect_awaited(size_t n)
{
    size_t n_awaited;

    do {
        rig_on_loop(&rig, count_awaited, &n_awaited);
    } while (n_awaited > n);
    ck_assert_uint_eq(n_awaited, n);
}

/* A drain ends long-lived calls, also one that begins later; others go on, and new ones are
 * accepted. It does not wait for an unawaited call. */
START_TEST(drains)
{
    static struct dialled held, lingers, unawaited, late;
    struct dial d;

    open_all(&d);
    dial_start(&d, &held, "/test.Port/Hang", "x", 0);
    dial_start(&d, &lingers, "/test.Port/Linger", "x", 0);
    dial_start(&d, &unawaited, "/test.Port/Linger", "unawaited", 0);
    for (size_t i = 0; i < 3; i++)
        uv_sem_wait(&world.has_begun);
    expect_awaited(2);
    rig_on_loop(&rig, drain, NULL);
    dial_end(&d, &lingers);
    ck_assert_int_eq(lingers.status, GRPC_STATUS_UNAVAILABLE);
    ck_assert_str_eq(lingers.words, "drained");
    dial_start(&d, &late, "/test.Port/Linger", "x", 0);
    uv_sem_wait(&world.has_begun);
    dial_end(&d, &late);
    ck_assert_int_eq(late.status, GRPC_STATUS_UNAVAILABLE);
    ck_assert_str_eq(late.words, "drained");
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(wait_gone(), STATUS_OK);
    expect_alive(&d);
    rig_on_loop(&rig, answer, NULL);
    ck_assert(dial_read(&d, &held));
    dial_end(&d, &held);
    ck_assert_int_eq(held.status, GRPC_STATUS_OK);
    ck_assert_int_eq(wait_gone(), STATUS_OK);
    expect_awaited(0);
    ck_assert_uint_eq(rig_stats(&rig).n_calls, 1);
    ck_assert_int_eq(grpc_call_cancel(unawaited.call, NULL), GRPC_CALL_OK);
    dial_end(&d, &unawaited);
    ck_assert_int_eq(wait_gone(), STATUS_CANCELLED);
    expect_awaited(0);
    close_all(&d);
}
END_TEST

static void expect_draining(const struct dialled *ended)
{
    ck_assert_int_eq(ended->status, GRPC_STATUS_UNAVAILABLE);
    ck_assert_str_eq(ended->reason, "SERVER_DRAINING");
    ck_assert_uint_eq(ended->n_details, 2); /* ErrorInfo, RetryInfo */
    ck_assert_uint_gt(ended->retry_ms, 0);
}

static void end_all(struct rig *r, void *arg)
{
    port_end(r->port);
}

/* The end cuts a call that is in flight and refuses one that comes, both with the reason and when
 * to come back; what the handler answers later is dropped. */
START_TEST(ends)
{
    static struct dialled held, stream;
    struct dial d;

    open_all(&d);
    dial_start(&d, &stream, "/test.Port/Linger", "x", 0);
    uv_sem_wait(&world.has_begun);
    dial_start(&d, &held, "/test.Port/Hang", "x", 0);
    uv_sem_wait(&world.has_begun);
    rig_on_loop(&rig, end_all, NULL);
    dial_unary(&d, &c, "/test.Port/Echo", "x", 0);
    expect_draining(&c);
    dial_end(&d, &held);
    expect_draining(&held);
    dial_end(&d, &stream);
    expect_draining(&stream);
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(wait_gone(), STATUS_CANCELLED);
    close_all(&d);
}
END_TEST

static void end_then_answer(struct rig *r, void *arg)
{
    port_end(r->port);
    answer(r, arg);
}

/* A handler that answers after the end, and before it knows, changes nothing. */
START_TEST(answers_behind_the_end_are_dropped)
{
    static struct dialled held;
    struct dial d;

    open_all(&d);
    dial_start(&d, &held, "/test.Port/Hang", "x", 0);
    uv_sem_wait(&world.has_begun);
    rig_on_loop(&rig, end_then_answer, NULL);
    dial_end(&d, &held);
    expect_draining(&held);
    ck_assert_int_eq(wait_gone(), STATUS_CANCELLED);
    close_all(&d);
}
END_TEST

enum { CALLERS = 4 };

struct caller {
    struct dialled c;
    size_t n_refused;
};

static void call_until_refused(void *arg)
{
    struct caller *caller = arg;
    struct dial d;

    dial_open(&d, rig.address);
    for (;;) {
        dial_unary(&d, &caller->c, "/test.Port/Echo", "x", 0);
        if (caller->c.status == GRPC_STATUS_UNAVAILABLE && caller->c.reason[0] == '\0')
            break; /* the port is not there any more */
        if (caller->c.status == GRPC_STATUS_OK)
            continue;
        expect_draining(&caller->c);
        caller->n_refused++;
    }
    dial_close(&d);
}

/* While clients call without a pause the port stops: each call is answered, is refused with its
 * reason, or finds no port. */
START_TEST(stops_under_calls)
{
    static struct caller callers[CALLERS];
    uv_thread_t threads[CALLERS];
    size_t n_refused = 0;
    struct dial d;

    open_all(&d);
    for (size_t i = 0; i < CALLERS; i++)
        ck_assert_int_eq(uv_thread_create(&threads[i], call_until_refused, &callers[i]), 0);
    while (rig_stats(&rig).n_started < 10 * CALLERS)
        continue;
    rig_begin_stop(&rig);
    for (size_t i = 0; i < CALLERS; i++) {
        ck_assert_int_eq(uv_thread_join(&threads[i]), 0);
        n_refused += callers[i].n_refused;
    }
    ck_assert_uint_gt(n_refused, 0);
    dial_close(&d);
    rig_join(&rig);
    uv_sem_destroy(&world.has_begun);
    uv_sem_destroy(&world.is_gone);
}
END_TEST

/* What needs the role admin is either with the rest, or with health alone: elsewhere there is no
 * such method. */
START_TEST(parts)
{
    static const struct {
        enum port_part part;
        bool has_rest, has_admin;
    } cases[] = {
        {PORT_EVERYTHING, true, true},
        {PORT_WITHOUT_ADMIN, true, false},
        {PORT_ADMIN, false, true},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct {
            const char *path;
            bool is_served;
        } calls[] = {{"/test.Port/Echo", cases[i].has_rest},
                     {"/test.Port/Rule", cases[i].has_admin},
                     {"/test.Port/Knock", true}};
        struct port_config with = config;
        struct dial d;

        with.part = cases[i].part;
        open_with(&d, &with);
        for (size_t k = 0; k < sizeof(calls) / sizeof(calls[0]); k++) {
            dial_unary(&d, &c, calls[k].path, "hi", 0);
            ck_assert_int_eq(c.status, calls[k].is_served ? STATUS_OK : STATUS_UNIMPLEMENTED);
        }
        close_all(&d);
    }
}
END_TEST

/* A connection without a call is closed; the next call makes another. */
START_TEST(idle_connections_close)
{
    struct port_config with = config;
    struct dial d;

    with.idle_ms = 1000;
    open_with(&d, &with);
    expect_alive(&d);
    dial_wait_while_ready(&d);
    expect_alive(&d);
    close_all(&d);
}
END_TEST

/* An old connection takes no new calls, and those that it has go on. */
START_TEST(old_connections_end)
{
    static struct dialled held; /* large */
    struct port_config with = config;
    struct dial d;

    with.age_ms = 500;
    open_with(&d, &with);
    dial_start(&d, &held, "/test.Port/Hang", "", 0);
    uv_sem_wait(&world.has_begun);
    dial_wait_while_ready(&d);
    expect_alive(&d);
    ck_assert_uint_eq(world.n_gone, 0);
    rig_on_loop(&rig, end_all, NULL);
    dial_end(&d, &held);
    (void)wait_gone(); /* either way it is over */
    close_all(&d);
}
END_TEST

/* A stop ends calls of every kind, notifies each handler once, and leaves nothing behind. */
START_TEST(stops_with_calls_in_flight)
{
    static struct dialled held[3];
    struct dial d;

    open_all(&d);
    dial_start(&d, &held[0], "/test.Port/Hang", "x", 0);
    uv_sem_wait(&world.has_begun);
    dial_start(&d, &held[1], "/test.Port/Talk", NULL, 0);
    uv_sem_wait(&world.has_begun);
    dial_start(&d, &held[2], "/test.Port/Stream", "all", 0);
    ck_assert(dial_read(&d, &held[2]));
    rig_stop(&rig);
    ck_assert_uint_eq(world.n_gone, 3);
    for (size_t i = 0; i < 3; i++) {
        while (dial_read(&d, &held[i]))
            continue;
        dial_end(&d, &held[i]);
        ck_assert_int_eq(held[i].status, GRPC_STATUS_UNAVAILABLE);
    }
    dial_close(&d);
}
END_TEST

/* Starts a second port at address; returns its status. */
static enum status start_at(const char *address, struct error *ret_err)
{
    const char *const listen[] = {address};
    struct port_config other = config;
    struct rig second;
    enum status rc;

    other.listen = listen;
    other.n_listen = 1;
    rig_start(&second, &other);
    rc = second.rc;
    *ret_err = second.err;
    rig_stop(&second);
    return rc;
}

/* A port in use is an error that names the address. */
START_TEST(port_is_taken)
{
    struct error err;
    struct dial d;
    int fd;

    open_all(&d);
    ck_assert_int_eq(start_at(rig.address, &err), STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, rig.address));
    ck_assert_ptr_nonnull(strstr(err.text, "taken"));
    expect_alive(&d);
    fd = connect_raw(rig.address);
    ck_assert_int_eq(close(fd), 0);
    close_all(&d);
}
END_TEST

/* An invalid address, or one that cannot be bound, is an error that says so. */
START_TEST(bad_addresses)
{
    static const struct {
        const char *address;
        enum status rc;
    } cases[] = {
        {"", STATUS_INVALID},
        {"localhost", STATUS_INVALID},
        {":80", STATUS_INVALID},
        {"127.0.0.1:", STATUS_INVALID},
        {"127.0.0.1:x", STATUS_INVALID},
        {"127.0.0.1:65536", STATUS_INVALID},
        {"127.0.0.1:1x", STATUS_INVALID},
        {"::1:80", STATUS_INVALID},
        {"[]:80", STATUS_INVALID},
        {"192.0.2.1:8001", STATUS_UNAVAILABLE}, /* not ours: TEST-NET-1 */
        {"unix:", STATUS_INVALID},
        {"unix:/nowhere/at/all/socket", STATUS_UNAVAILABLE},
        {"unix:/dev/null", STATUS_INVALID},
    };
    struct error err;

    world_open();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(start_at(cases[i].address, &err), cases[i].rc);
        ck_assert_ptr_nonnull(strstr(err.text, cases[i].address));
    }
}
END_TEST

static void leave_stale(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_ge(fd, 0);
    memcpy(at.sun_path, path, strlen(path) + 1);
    ck_assert_int_eq(bind(fd, (const struct sockaddr *)&at, sizeof(at)), 0);
    ck_assert_int_eq(close(fd), 0);
}

/* A Unix socket: a stale one is replaced, one in use is refused, ours is removed at the end. */
START_TEST(unix_socket)
{
    char folder[] = "/tmp/parley-test-XXXXXX", path[64], address[72], long_path[200];
    const char *const listen[] = {address};
    struct port_config local = config;
    struct error err;
    struct stat st;
    struct dial d;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/socket", folder);
    (void)snprintf(address, sizeof(address), "unix:%s", path);
    leave_stale(path);
    world_open();
    local.listen = listen;
    local.n_listen = 1;
    rig_start(&rig, &local);
    ck_assert_int_eq(rig.rc, STATUS_OK);
    ck_assert_str_eq(rig.address, address);
    dial_open(&d, address);
    expect_alive(&d);
    ck_assert_int_eq(start_at(address, &err), STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "taken"));
    expect_alive(&d);
    dial_close(&d);
    rig_stop(&rig);
    ck_assert_int_ne(stat(path, &st), 0);
    ck_assert_int_eq(rmdir(folder), 0);

    memset(long_path, 'x', sizeof(long_path) - 1);
    long_path[sizeof(long_path) - 1] = '\0';
    memcpy(long_path, "unix:/", 6);
    ck_assert_int_eq(start_at(long_path, &err), STATUS_INVALID);
}
END_TEST

/* Runs one hanging call until it is killed. */
static void be_peer(const char *address)
{
    struct dial d;

    dial_open(&d, address);
    dial_start(&d, &c, "/test.Port/Hang", "x", 0);
    dial_end(&d, &c);
}

int main(int argc, char **argv)
{
    const TTest *const tests[] = {
        unary,
        failure_has_its_detail,
        longest_failure_arrives,
        streams,
        slow_reader_stops_the_source,
        bidi,
        bidi_damaged_message,
        client_stream,
        damaged_requests,
        too_many_fields,
        unknown_method,
        client_cancels,
        deadline,
        peer_is_killed,
        garbage,
        oversize,
        bursts,
        locks,
        too_many_calls,
        drains,
        ends,
        answers_behind_the_end_are_dropped,
        stops_under_calls,
        parts,
        idle_connections_close,
        old_connections_end,
        stops_with_calls_in_flight,
        bidi_reads_behind_answers,
        stops_with_a_read_put_off,
        port_is_taken,
        bad_addresses,
        unix_socket,
    };

    if (argc == 3 && strcmp(argv[1], "--hang") == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failing test does not leave it behind */
        be_peer(argv[2]);
        return EXIT_FAILURE;
    }
    return suite_run("server/port", tests, sizeof(tests) / sizeof(tests[0]));
}
