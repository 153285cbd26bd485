/* Methods of services, carried by a transport that is not gRPC: this program has no gRPC in it. */
#include "server/call/call.h"

#include <stdio.h>
#include <string.h>

#include "grpc/health/v1/health.pb-c.h"
#include "inference/grpc_service.pb-c.h"
#include "parley/v1/conversations.pb-c.h"
#include "server/call/health.h"
#include "server/call/multiplex.h"
#include "server/call/subscription.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/server/call/memory_call.h"

extern const struct call_table kserve_service_methods; /* as api/services.c declares it */

static struct memory_call carried;

/* --- a service of this test: a method of each form --- */

static enum status answer(struct call *c, const Parley__V1__Message *request,
                          Parley__V1__Message *response, struct error *err)
{
    if (request->text[0] == '\0')
        return error_field(err, "text", "is empty");
    response->text = arena_strndup(call_arena(c), request->text, strlen(request->text));
    response->role = (char *)call_principal(c)->name;
    response->name = (char *)call_header(c, "x-tag");
    return STATUS_OK;
}

struct count {
    struct subscription base;
    unsigned n;
};

static enum status closed_why;

static void count_write(struct call *c, void *state)
{
    struct count *count = state;
    Parley__V1__Message m = PARLEY__V1__MESSAGE__INIT;

    m.text = (char *)(count->n == 0 ? "first" : "second");
    if (count->n < 2)
        call_write(c, &m.base, count->n == 0);
    else if (!count->base.is_over)
        subscription_end(&count->base, NULL);
    count->n++;
}

static void count_close(struct call *c, void *state, enum status why)
{
    closed_why = why;
}

static void count_up(struct call *c, const Parley__V1__Message *request)
{
    static const struct call_handler handler = {
        .on_write_ready = count_write, .drain = subscription_drain, .on_close = count_close};
    struct count *count = arena_alloc(call_arena(c), 1, sizeof(*count));

    ck_assert_ptr_nonnull(count);
    ck_assert_str_eq(request->text, "count");
    ck_assert_uint_eq(call_deadline_us(c), 77);
    subscription_start(&count->base, c, &handler);
}

static void gather_message(struct call *c, void *state, const ProtobufCMessage *message,
                           struct arena *arena)
{
    Parley__V1__Message m = PARLEY__V1__MESSAGE__INIT;
    unsigned *n = state;
    char text[2] = {0};

    if (message != NULL) {
        ++*n;
        call_read_behind(c);
        return;
    }
    text[0] = (char)('0' + *n);
    m.text = text;
    call_reply(c, &m.base);
}

static void gather(struct call *c)
{
    static const struct call_handler handler = {.message = gather_message, .on_close = count_close};
    unsigned *n = arena_alloc(call_arena(c), 1, sizeof(*n));

    ck_assert_ptr_nonnull(n);
    ck_assert_ptr_null(call_request(c));
    call_set_handler(c, &handler, n);
    call_read(c);
}

struct echo {
    struct multiplex_item base;
    char text[16];
};

static void echo_begin(struct multiplex_item *base, const ProtobufCMessage *m, struct arena *arena)
{
    struct echo *e = container_of(base, struct echo, base);

    (void)snprintf(e->text, sizeof(e->text), "%s", ((const Parley__V1__Message *)m)->text);
    multiplex_notify(base);
}

static enum multiplex_written echo_write(struct multiplex_item *base)
{
    Parley__V1__Message m = PARLEY__V1__MESSAGE__INIT;

    m.text = container_of(base, struct echo, base)->text;
    multiplex_write(base, &m.base, false);
    return WROTE_LAST;
}

static void echo_end(struct multiplex_item *base, enum status why)
{
}

static void talk(struct call *c)
{
    static const struct multiplex_type type = {.item_size = sizeof(struct echo),
                                               .max_items = 2,
                                               .item_name = "an echo",
                                               .begin = echo_begin,
                                               .write = echo_write,
                                               .end = echo_end};

    multiplex_start(c, &type);
}

#define FORMS_METHODS(METHOD)                                                                    \
    METHOD(ANSWER, KEY, "/test.Forms/Answer", parley__v1__message, parley__v1__message, answer)  \
    METHOD(SERVER_STREAM, OPEN, "/test.Forms/Count", parley__v1__message, parley__v1__message,   \
           count_up)                                                                             \
    METHOD(CLIENT_STREAM, ADMIN, "/test.Forms/Gather", parley__v1__message, parley__v1__message, \
           gather)                                                                               \
    METHOD(BIDI, KEY, "/test.Forms/Talk", parley__v1__message, parley__v1__message, talk)

extern const struct call_table forms_methods;
CALL_TABLE(forms_methods, FORMS_METHODS)

static const char *text_of(size_t i)
{
    ck_assert_uint_lt(i, carried.n_messages);
    return ((const Parley__V1__Message *)carried.messages[i])->text;
}

static Parley__V1__Message message_of(const char *text)
{
    Parley__V1__Message m = PARLEY__V1__MESSAGE__INIT;

    m.text = (char *)text;
    return m;
}

/* A row has the kind, the caller's access and the messages of its method. */
START_TEST(rows)
{
    const struct call_method *row = forms_methods.rows;

    ck_assert_uint_eq(forms_methods.n, 4);
    ck_assert_int_eq(row[0].kind, CALL_UNARY);
    ck_assert_int_eq(row[1].kind, CALL_SERVER_STREAM);
    ck_assert_int_eq(row[2].kind, CALL_CLIENT_STREAM);
    ck_assert_int_eq(row[3].kind, CALL_BIDI);
    ck_assert_int_eq(row[1].access, ACCESS_OPEN);
    ck_assert_int_eq(row[2].access, ACCESS_ADMIN);
    ck_assert_ptr_eq(row[0].request, &parley__v1__message__descriptor);
}
END_TEST

/* A function that answers at once: its response, or its failure with the field. It sees the caller
 * and the headers. */
START_TEST(answers)
{
    const struct principal who = {.name = "ann"};
    Parley__V1__Message m = message_of("hello");

    carried.base.principal = &who;
    carried.header_key = "x-tag";
    carried.header_value = "seven";
    memory_call_start(&carried, &forms_methods, "/test.Forms/Answer", &m);
    ck_assert(carried.is_finished);
    ck_assert_int_eq(carried.err.status, STATUS_OK);
    ck_assert_str_eq(text_of(0), "hello");
    ck_assert_str_eq(((const Parley__V1__Message *)carried.messages[0])->role, "ann");
    ck_assert_str_eq(((const Parley__V1__Message *)carried.messages[0])->name, "seven");
    memory_call_close(&carried, STATUS_OK);
    m = message_of("");
    memory_call_start(&carried, &forms_methods, "/test.Forms/Answer", &m);
    ck_assert(carried.is_finished);
    ck_assert_int_eq(carried.err.status, STATUS_INVALID);
    ck_assert_str_eq(carried.err.field, "text");
    ck_assert_uint_eq(carried.n_messages, 0);
    memory_call_close(&carried, STATUS_OK);
}
END_TEST

/* A stream is pulled: while the reader is slow nothing is written. A drain ends it, and the handler
 * hears why its call is over. */
START_TEST(streams_out)
{
    Parley__V1__Message m = message_of("count");

    carried.base.deadline_us = 77;
    memory_call_start(&carried, &forms_methods, "/test.Forms/Count", &m);
    carried.is_full = true;
    memory_call_pull(&carried);
    ck_assert_uint_eq(carried.n_messages, 0);
    carried.is_full = false;
    for (size_t i = 0; i < 4; i++)
        memory_call_pull(&carried);
    ck_assert_uint_eq(carried.n_messages, 2);
    ck_assert_str_eq(text_of(1), "second");
    ck_assert(carried.is_finished);
    ck_assert_int_eq(carried.err.status, STATUS_OK);
    memory_call_close(&carried, STATUS_OK);
    ck_assert_int_eq(closed_why, STATUS_OK);
    carried.base.deadline_us = 77;
    memory_call_start(&carried, &forms_methods, "/test.Forms/Count", &m);
    call_tell_drain(&carried.base);
    ck_assert(carried.is_finished);
    ck_assert_int_eq(carried.err.status, STATUS_UNAVAILABLE);
    memory_call_close(&carried, STATUS_CANCELLED);
    ck_assert_int_eq(closed_why, STATUS_CANCELLED);
}
END_TEST

/* A client's stream is read message by message, when the handler asks. */
START_TEST(streams_in)
{
    Parley__V1__Message m = message_of("one");

    memory_call_start(&carried, &forms_methods, "/test.Forms/Gather", NULL);
    ck_assert(!carried.is_read_behind);
    memory_call_send(&carried, &m.base);
    ck_assert(carried.is_read_behind);
    memory_call_send(&carried, &m.base);
    memory_call_send(&carried, NULL);
    ck_assert(carried.is_finished);
    ck_assert_str_eq(text_of(0), "2");
    memory_call_close(&carried, STATUS_OK);
}
END_TEST

/* A stream of many items: each is answered; while max_items are there the stream is not read. */
START_TEST(streams_both)
{
    Parley__V1__Message a = message_of("a"), b = message_of("b");

    memory_call_start(&carried, &forms_methods, "/test.Forms/Talk", NULL);
    memory_call_send(&carried, &a.base);
    memory_call_send(&carried, &b.base);
    ck_assert(!carried.is_reading);
    memory_call_pull(&carried);
    ck_assert_str_eq(text_of(0), "a");
    ck_assert(carried.is_reading);
    memory_call_send(&carried, NULL);
    ck_assert(!carried.is_finished);
    memory_call_pull(&carried);
    ck_assert_str_eq(text_of(1), "b");
    ck_assert(carried.is_finished);
    memory_call_close(&carried, STATUS_OK);
}
END_TEST

/* Services of the daemon: health tells its changes, KServe answers and refuses. */
START_TEST(services)
{
    Grpc__Health__V1__HealthCheckRequest ask = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    Inference__ServerLiveRequest live = INFERENCE__SERVER_LIVE_REQUEST__INIT;
    Inference__SystemSharedMemoryStatusRequest shared =
        INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_REQUEST__INIT;
    struct health health;

    health_init(&health);
    health_set(&health, "a", HEALTH_SERVING);
    ask.service = (char *)"a";
    carried.base.health = &health;
    memory_call_start(&carried, &health_methods, "/grpc.health.v1.Health/Watch", &ask);
    ck_assert_uint_eq(carried.n_unawaited, 1);
    memory_call_pull(&carried);
    memory_call_pull(&carried); /* no change, no message */
    health_set(&health, "a", HEALTH_NOT_SERVING);
    memory_call_pull(&carried);
    ck_assert_uint_eq(carried.n_messages, 2);
    ck_assert_int_eq(((Grpc__Health__V1__HealthCheckResponse *)carried.messages[1])->status,
                     HEALTH_NOT_SERVING);
    memory_call_close(&carried, STATUS_CANCELLED);
    health_deinit(&health);
    memory_call_start(&carried, &kserve_service_methods,
                      "/inference.GRPCInferenceService/ServerLive", &live);
    ck_assert(((Inference__ServerLiveResponse *)carried.messages[0])->live);
    memory_call_close(&carried, STATUS_OK);
    memory_call_start(&carried, &kserve_service_methods,
                      "/inference.GRPCInferenceService/SystemSharedMemoryStatus", &shared);
    ck_assert_int_eq(carried.err.status, STATUS_UNIMPLEMENTED);
    memory_call_close(&carried, STATUS_OK);
}
END_TEST

SUITE_MAIN("server/call", rows, answers, streams_out, streams_in, streams_both, services)
