/* A call that tells numbers: those that it was given on the loop. */
#include "server/call/subscription.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/base/suite.h"
#include "tests/unit/server/rpc/rig.h"

struct numbers_call {
    struct subscription base;
    unsigned number, told;
};

static struct numbers_call *watched; /* the loop's */

static void numbers_write_ready(struct call *call, void *state)
{
    struct numbers_call *n = state;
    Parley__V1__Message m = PARLEY__V1__MESSAGE__INIT;
    char text[16];

    if (n->base.is_over || n->told == n->number)
        return;
    n->told = n->number;
    (void)snprintf(text, sizeof(text), "%u", n->number);
    m.text = text;
    call_write(call, &m.base, false);
}

static void numbers_on_close(struct call *call, void *state, enum status why)
{
    watched = NULL;
    free(state);
}

static void start_numbers(struct call *call)
{
    static const struct call_handler handler = {.on_write_ready = numbers_write_ready,
                                                .drain = subscription_drain,
                                                .on_close = numbers_on_close};

    watched = call_state(call, sizeof(*watched));
    ck_assert_ptr_nonnull(watched);
    watched->number = 1;
    subscription_start(&watched->base, call, &handler);
}

static const struct call_method rows[] = {
    {"/test.Watch/Numbers", CALL_SERVER_STREAM, &parley__v1__message__descriptor,
     &parley__v1__message__descriptor, start_numbers, ACCESS_KEY},
};
static const struct call_table table = {rows, 1};
static const struct call_table *const services[] = {&table};
static const struct port_config config = {.services = services, .n_services = 1};

static struct rig rig;
static struct dial d;
static struct dialled c; /* large */

static void begins(void)
{
    rig_start(&rig, &config);
    ck_assert_int_eq(rig.rc, STATUS_OK);
    dial_open(&d, rig.address);
    dial_start(&d, &c, "/test.Watch/Numbers", "", 60000);
    ck_assert(dial_read(&d, &c)); /* what there is, without another word */
    ck_assert_str_eq(c.reply, "1");
}

static void ends_with(grpc_status_code status, const char *words)
{
    ck_assert(!dial_read(&d, &c));
    dial_end(&d, &c);
    ck_assert_int_eq(c.status, status);
    ck_assert_str_eq(c.words, words);
    dial_close(&d);
    rig_stop(&rig);
    ck_assert_ptr_null(watched);
}

static void tell(struct rig *r, void *arg)
{
    watched->number = *(const unsigned *)arg;
    call_notify(watched->base.call);
}

/* The thing goes: said twice, and then the server drains. */
static void end_twice(struct rig *r, void *arg)
{
    struct error gone, again;

    (void)error_set(&gone, STATUS_NOT_FOUND, "it is gone");
    (void)error_set(&again, STATUS_ABORTED, "it has gone before");
    subscription_end(&watched->base, &gone);
    subscription_end(&watched->base, &again);
    ck_assert(watched->base.is_over);
    port_drain(r->port);
}

static void drain_twice(struct rig *r, void *arg)
{
    struct error gone;

    port_drain(r->port);
    (void)error_set(&gone, STATUS_NOT_FOUND, "it is gone");
    subscription_end(&watched->base, &gone);
}

/* The first end counts; what is told before comes first. */
START_TEST(an_end)
{
    unsigned number = 2;

    begins();
    rig_on_loop(&rig, tell, &number);
    ck_assert(dial_read(&d, &c));
    ck_assert_str_eq(c.reply, "2");
    rig_on_loop(&rig, end_twice, NULL);
    ends_with(GRPC_STATUS_NOT_FOUND, "it is gone");
}
END_TEST

/* A server that stops says so, with a reason that programs read. */
START_TEST(a_drain)
{
    begins();
    rig_on_loop(&rig, drain_twice, NULL);
    ends_with(GRPC_STATUS_UNAVAILABLE, "the server is shutting down");
    ck_assert_str_eq(c.reason, "SERVER_DRAINING");
}
END_TEST

SUITE_MAIN("server/subscription", an_end, a_drain)
