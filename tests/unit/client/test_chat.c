/* libparley's turns on one stream against a server whose Chat is a fake. In callbacks assert, not
 * Check's: they run on the channel's thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/lib/parley.h"
#include "parley/v1/conversations.pb-c.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/server/rpc/rig.h"

struct server {
    uint64_t tag; /* of the turn whose piece was written */
    uint32_t turn;
    bool is_told; /* its end, too */
};

static struct server world;
static struct rig rig;

static void write_error(struct call *call, uint64_t tag)
{
    Parley__V1__ErrorDetail detail = PARLEY__V1__ERROR_DETAIL__INIT;
    Parley__V1__ChatEvent event = PARLEY__V1__CHAT_EVENT__INIT;
    char text[] = "turn is wrong", field[] = "turn", reason[] = "TURN_GAP";

    detail.code = STATUS_RANGE;
    detail.message = text;
    detail.field = field;
    detail.reason = reason;
    event.tag = tag;
    event.event_case = PARLEY__V1__CHAT_EVENT__EVENT_ERROR;
    event.error = &detail;
    call_write(call, &event.base, false);
}

/* "bad" is refused, "hang" never answered, a cancelled turn is answered by an error, "over" ends
 * the stream, "stray" has an event of a tag that nobody has; anything else is said and done. */
static void chat_message(struct call *call, void *state, const ProtobufCMessage *m,
                         struct arena *arena)
{
    const Parley__V1__ChatRequest *request = (const Parley__V1__ChatRequest *)m;
    Parley__V1__ChatEvent event = PARLEY__V1__CHAT_EVENT__INIT;
    Parley__V1__TurnPiece piece = PARLEY__V1__TURN_PIECE__INIT;
    struct server *server = state;
    const char *text;

    server->is_told = true;
    if (m == NULL) {
        call_finish(call, NULL);
        return;
    }
    if (request->request_case == PARLEY__V1__CHAT_REQUEST__REQUEST_CANCEL) {
        write_error(call, request->tag);
        return;
    }
    text = request->turn->messages[0]->text;
    if (strcmp(text, "over") == 0) {
        call_finish(call, NULL);
    } else if (strcmp(text, "bad") == 0 || strcmp(text, "stray") == 0) {
        write_error(call, strcmp(text, "bad") == 0 ? request->tag : request->tag + 1);
    } else if (strcmp(text, "hang") == 0) {
        call_read(call);
    } else {
        piece.text = (char *)(uintptr_t)text;
        event.tag = server->tag = request->tag;
        server->turn = request->turn->turn;
        server->is_told = false;
        event.event_case = PARLEY__V1__CHAT_EVENT__EVENT_PIECE;
        event.piece = &piece;
        call_write(call, &event.base, false);
    }
}

static void chat_room(struct call *call, void *state)
{
    Parley__V1__ChatEvent event = PARLEY__V1__CHAT_EVENT__INIT;
    Parley__V1__TurnDone done = PARLEY__V1__TURN_DONE__INIT;
    struct server *server = state;

    if (server->is_told) {
        call_read(call);
        return;
    }
    server->is_told = true;
    done.turn = server->turn;
    done.finish_reason = PARLEY__V1__FINISH_REASON__FINISH_REASON_STOP;
    event.tag = server->tag;
    event.event_case = PARLEY__V1__CHAT_EVENT__EVENT_DONE;
    event.done = &done;
    call_write(call, &event.base, false);
}

static void chat_gone(struct call *call, void *state, enum status why)
{
}

static void fake_chat(struct call *call)
{
    static const struct call_handler handler = {
        .on_write_ready = chat_room, .message = chat_message, .on_close = chat_gone};
    struct server *server = call_server(call);

    server->is_told = true;
    call_set_handler(call, &handler, server);
    call_read(call);
}

static void serve(void)
{
    static const struct call_method rpcs[] = {
        {"/parley.v1.Conversations/Chat", CALL_BIDI, &parley__v1__chat_request__descriptor,
         &parley__v1__chat_event__descriptor, fake_chat, ACCESS_KEY},
    };
    static const struct call_table service = {rpcs, 1};
    static const struct call_table *const services[] = {&service};
    const struct port_config config = {.services = services, .n_services = 1, .server = &world};

    rig_start(&rig, &config);
    assert(rig.rc == STATUS_OK);
}

/* What came for a turn, and its end; or the stream's end alone. */
struct heard {
    char text[64];
    uint32_t turn;
    struct parley_error err;
    uv_sem_t has_ended;
};

static void on_piece(void *arg, const char *text, size_t len, const struct parley_token *tokens,
                     size_t n_tokens)
{
    struct heard *h = arg;

    (void)snprintf(h->text, sizeof(h->text), "%.*s", (int)len, text);
}

static void on_done(void *arg, const struct parley_done *done)
{
    ((struct heard *)arg)->turn = done->turn;
}

static void on_end(void *arg, const struct parley_error *err)
{
    struct heard *h = arg;

    h->err = *err;
    uv_sem_post(&h->has_ended);
}

static void heard_init(struct heard *h)
{
    *h = (struct heard){0};
    assert(uv_sem_init(&h->has_ended, 0) == 0);
}

static bool send_turn(struct parley_call *stream, const char *text, uint32_t number,
                      struct heard *h, uint64_t *ret_tag)
{
    const struct parley_message message = {"user", text};
    const struct parley_turn turn = {
        .conversation = "c", .turn = number, .messages = &message, .n_messages = 1};
    const struct parley_turn_events events = {
        .piece = on_piece, .done = on_done, .end = on_end, .arg = h};

    return parley_chat_turn(stream, &turn, &events, ret_tag);
}

/* Each turn hears its own events; one that is refused or cancelled leaves the others alone, and
 * its tag is not used again: what comes late for it is nobody's. */
START_TEST(test_turns)
{
    enum { N = 100 };
    struct heard turns[N], end;
    struct parley_channel *channel;
    struct parley_call *stream;
    uint64_t tag, first;

    serve();
    heard_init(&end);
    channel = parley_channel_open(rig.address);
    stream = parley_chat_start(channel, on_end, &end);
    for (uint32_t i = 0; i < N; i++) {
        heard_init(&turns[i]);
        ck_assert(send_turn(stream, i == 50 ? "bad" : "hello", i, &turns[i], NULL));
    }
    for (uint32_t i = 0; i < N; i++) {
        uv_sem_wait(&turns[i].has_ended);
        ck_assert_int_eq(turns[i].err.status, i == 50 ? PARLEY_OUT_OF_RANGE : PARLEY_OK);
        ck_assert_str_eq(turns[i].err.reason, i == 50 ? "TURN_GAP" : "");
        ck_assert_str_eq(turns[i].text, i == 50 ? "" : "hello");
        ck_assert_uint_eq(turns[i].turn, i == 50 ? 0 : i);
    }
    ck_assert(send_turn(stream, "hang", 1, &turns[0], &first));
    parley_chat_cancel(stream, first);
    uv_sem_wait(&turns[0].has_ended);
    ck_assert_int_eq(turns[0].err.status, PARLEY_OUT_OF_RANGE);
    ck_assert(send_turn(stream, "stray", 1, &turns[0], &tag));
    ck_assert(tag != first && (uint32_t)tag == (uint32_t)first); /* its place, not its tag */
    parley_chat_cancel(stream, first);
    ck_assert(send_turn(stream, "hello", 2, &turns[1], NULL));
    uv_sem_wait(&turns[1].has_ended);
    ck_assert_str_eq(turns[0].text, "hello"); /* of before: neither event was this turn's */
    parley_chat_cancel(stream, tag);
    uv_sem_wait(&turns[0].has_ended);
    parley_call_half_close(stream);
    uv_sem_wait(&end.has_ended);
    ck_assert_int_eq(end.err.status, PARLEY_OK);
    parley_call_unref(stream);
    for (uint32_t i = 0; i < N; i++)
        uv_sem_destroy(&turns[i].has_ended);
    uv_sem_destroy(&end.has_ended);
    parley_channel_close(channel);
    rig_stop(&rig);
}
END_TEST

/* A stream that ends, well or not, ends its turns before; then none is sent. */
START_TEST(test_ends)
{
    struct parley_channel *channel;
    struct parley_call *streams[2];
    struct heard turns[2], over, ends[2];

    serve();
    heard_init(&over);
    channel = parley_channel_open(rig.address);
    for (size_t i = 0; i < 2; i++) {
        heard_init(&turns[i]);
        heard_init(&ends[i]);
        streams[i] = parley_chat_start(channel, on_end, &ends[i]);
        ck_assert(send_turn(streams[i], "hang", 1, &turns[i], NULL));
    }
    ck_assert(send_turn(streams[0], "over", 1, &over, NULL));
    parley_call_cancel(streams[1]);
    for (size_t i = 0; i < 2; i++) {
        uv_sem_wait(&ends[i].has_ended);
        ck_assert(uv_sem_trywait(&turns[i].has_ended) == 0);
        ck_assert_int_eq(turns[i].err.status, i == 0 ? PARLEY_UNAVAILABLE : PARLEY_CANCELLED);
        ck_assert(!send_turn(streams[i], "hello", 1, &turns[i], NULL));
        ck_assert(uv_sem_trywait(&turns[i].has_ended) != 0);
        parley_call_unref(streams[i]);
        uv_sem_destroy(&turns[i].has_ended);
        uv_sem_destroy(&ends[i].has_ended);
    }
    ck_assert_int_eq(ends[0].err.status, PARLEY_OK);
    uv_sem_wait(&over.has_ended);
    uv_sem_destroy(&over.has_ended);
    parley_channel_close(channel);
    rig_stop(&rig);
}
END_TEST

/* Without memory a turn is not sent, and nothing is lost. */
START_TEST(test_faults)
{
    struct parley_channel *channel;
    struct parley_call *stream;
    struct heard turn, end;
    bool is_sent = false;
    long n;

    serve();
    heard_init(&turn);
    heard_init(&end);
    channel = parley_channel_open(rig.address);
    stream = parley_chat_start(channel, on_end, &end);
    for (n = 0; !is_sent; n++) {
        fault_after = n;
        is_sent = send_turn(stream, "hang", 1, &turn, NULL);
        fault_after = -1;
    }
    ck_assert_int_gt(n, 3);
    parley_call_cancel(stream); /* the server may have met the last fault */
    uv_sem_wait(&turn.has_ended);
    uv_sem_wait(&end.has_ended);
    parley_call_unref(stream);
    uv_sem_destroy(&turn.has_ended);
    uv_sem_destroy(&end.has_ended);
    parley_channel_close(channel);
    rig_stop(&rig);
}
END_TEST

SUITE_MAIN("client/chat", test_turns, test_ends, test_faults)
