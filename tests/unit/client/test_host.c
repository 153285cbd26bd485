/* libparley's hosts of environments against a server that gives a list of orders. In callbacks
 * assert, not Check's: they run on the channel's thread. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/lib/parley.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/client/attach_server.h"

/* A host that writes down what it is asked for; an environment is a text of its own. */
struct diary {
    char text[1000];
    bool cannot_make;
    unsigned n_made, n_freed, n_ends;
};

static void diary_note(struct diary *d, const char *what)
{
    note(d->text, sizeof(d->text), what);
}

static void on_accepted(void *arg)
{
    diary_note(arg, "accepted");
}

static void *on_make(void *arg)
{
    struct diary *d = arg;
    char name[2] = {(char)('a' + (int)d->n_made), '\0'};

    if (d->cannot_make)
        return NULL;
    d->n_made++;
    return xstrdup(name);
}

static void on_free(void *arg, void *environment)
{
    char line[16];

    (void)snprintf(line, sizeof(line), "free %s", (const char *)environment);
    diary_note(arg, line);
    free(environment);
    ((struct diary *)arg)->n_freed++;
}

static void on_reset(void *arg, struct parley_call *host, const struct parley_host_order *order)
{
    static const float seen[] = {1, 2, 3, 4};
    const struct parley_host_results results = {.n = order->n, .observations = seen};
    char line[100] = "reset";

    for (size_t i = 0; i < order->n; i++)
        (void)snprintf(line + strlen(line), sizeof(line) - strlen(line), " %s=%d",
                       (const char *)order->environments[i], (int)order->seeds[i]);
    diary_note(arg, line);
    assert(order->choices == NULL && order->numbers == NULL);
    assert(parley_host_answer(host, order->id, &results));
}

static void on_step(void *arg, struct parley_call *host, const struct parley_host_order *order)
{
    static const float seen[] = {5, 6, NAN, 8}, rewards[] = {0.5F, 1};
    static const bool terminated[] = {true, false}, truncated[] = {false, true};
    static const char *const failures[] = {"it broke", NULL};
    const struct parley_host_results results = {order->n,   seen,      rewards,
                                                terminated, truncated, failures};
    char line[100] = "step";

    assert(order->seeds == NULL);
    for (size_t i = 0; i < order->n; i++)
        (void)snprintf(line + strlen(line), sizeof(line) - strlen(line), " %s=%g",
                       (const char *)order->environments[i],
                       order->choices != NULL ? (double)order->choices[i]
                                              : (double)order->numbers[i]);
    diary_note(arg, line);
    assert(parley_host_answer(host, order->id, &results));
}

static void on_end(void *arg, const struct parley_error *err)
{
    ((struct diary *)arg)->n_ends++;
}

static const struct parley_host_events all = {.accepted = on_accepted,
                                              .make = on_make,
                                              .free = on_free,
                                              .reset = on_reset,
                                              .step = on_step,
                                              .end = on_end};

static const struct parley_host_offer choices = {"cars", 2, 3, 0, 7},
                                      numbers = {.name = "cars",
                                                 .n_observations = 2,
                                                 .n_action_numbers = 1};

/* Runs the host to its end, with the server that the orders make. */
static enum parley_status run_host(struct diary *d, const struct parley_host_offer *offer,
                                   struct parley_error *err)
{
    struct parley_host_events events = all;
    struct parley_channel *channel;
    enum parley_status rc;

    events.arg = d;
    serve();
    channel = parley_channel_open(rig.address);
    rc = parley_host_run(channel, offer, &events, err);
    parley_channel_close(channel);
    rig_stop(&rig);
    ck_assert_uint_eq(d->n_made, d->n_freed);
    return rc;
}

/* The orders that the tests fill. */
static uint64_t pair[] = {4, 9}, seeds[] = {40, 90};
static int64_t chosen[] = {2, 0};
static float torques[] = {0.25F, -1};
static Parley__V1__AgentAccepted accepted;
static Parley__V1__AgentEnvReset reset;
static Parley__V1__AgentEnvStep step;
static Parley__V1__AgentEnvClose closing;
static Parley__V1__Tensor action;

static void set_up(void)
{
    world = (struct server){.end = STATUS_NOT_FOUND};
    parley__v1__agent_accepted__init(&accepted);
    parley__v1__agent_env_reset__init(&reset);
    parley__v1__agent_env_step__init(&step);
    parley__v1__agent_env_close__init(&closing);
    parley__v1__tensor__init(&action);
    reset.order = 1;
    reset.environment = step.environment = closing.environment = pair;
    reset.n_environment = reset.n_seed = step.n_environment = 2;
    reset.seed = seeds;
    step.order = 2;
    step.action = &action;
    action.dtype = PARLEY__V1__DTYPE__DTYPE_I64;
    action.data = (ProtobufCBinaryData){sizeof(chosen), (uint8_t *)chosen};
}

/* Resets make environments, steps find them, and what became of them goes back in full: of one that
 * failed why, as of one whose numbers are none. Those that are left are freed at the end. */
START_TEST(test_orders)
{
    struct diary d = {0};
    struct parley_error err;

    set_up();
    ORDER(ACCEPTED, accepted);
    ORDER(ENV_RESET, reset);
    ORDER(ENV_STEP, step);
    closing.n_environment = 1;
    ORDER(ENV_CLOSE, closing);
    world.n_awaited = 2;
    ck_assert_int_eq(run_host(&d, &choices, &err), PARLEY_NOT_FOUND);
    ck_assert_str_eq(world.heard,
                     "offer cars  0 0 0 0 0; environment 2 3 0 7; "
                     "result 1 1:[2][2] 1 2 3 4; "
                     "result 2 1:[2][2] 5 6 nan 8 1:[2] 0.5 1 6:[2] 1 0 6:[2] 0 1; "
                     "0 failed: it broke; "
                     "1 failed: the environment returned a number that is not finite; ");
    ck_assert_str_eq(d.text, "accepted; reset a=40 b=90; step a=2 b=0; free a; free b; ");
    ck_assert_uint_eq(d.n_ends, 1);
}
END_TEST

/* Actions that are numbers; an environment is made once, whatever it is reset for. */
START_TEST(test_numbers)
{
    struct diary d = {0};
    struct parley_error err;

    set_up();
    ORDER(ENV_RESET, reset);
    ORDER(ENV_RESET, reset);
    action.dtype = PARLEY__V1__DTYPE__DTYPE_F32;
    action.data = (ProtobufCBinaryData){sizeof(torques), (uint8_t *)torques};
    ORDER(ENV_STEP, step);
    world.n_awaited = 3;
    ck_assert_int_eq(run_host(&d, &numbers, &err), PARLEY_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(d.text, "reset a=40 b=90; reset a=40 b=90; step a=0.25 b=-1; "));
    ck_assert_uint_eq(d.n_made, 2);
}
END_TEST

static void expect_end(const struct parley_host_offer *offer, bool cannot_make,
                       enum parley_status status, const char *why)
{
    struct diary d = {.cannot_make = cannot_make};
    struct parley_error err;

    world.n_awaited = MAX_ORDERS; /* they do not come */
    ck_assert_int_eq(run_host(&d, offer, &err), status);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' has no '%s'", err.text, why);
}

/* An order that cannot be done ends the stream with a sentence: environments that are not there,
 * seeds and actions that do not fit, what is for agents, and no memory. */
START_TEST(test_refused)
{
    Parley__V1__AgentSave save = PARLEY__V1__AGENT_SAVE__INIT;

    set_up();
    ORDER(ENV_STEP, step);
    expect_end(&choices, false, PARLEY_INTERNAL, "refers to environment 4, which is not open");
    set_up();
    reset.n_seed = 1;
    ORDER(ENV_RESET, reset);
    expect_end(&choices, false, PARLEY_INTERNAL, "order 1 has 1 seeds for 2 environments");
    set_up();
    ORDER(ENV_RESET, reset);
    action.data.len -= 1;
    ORDER(ENV_STEP, step);
    expect_end(&choices, false, PARLEY_INTERNAL, "order 2 has actions of another shape");
    set_up();
    ORDER(ENV_RESET, reset);
    ORDER(ENV_STEP, step);
    expect_end(&numbers, false, PARLEY_INTERNAL, "order 2 has actions of another shape");
    set_up();
    ORDER(ENV_RESET, reset);
    step.action = NULL;
    ORDER(ENV_STEP, step);
    expect_end(&choices, false, PARLEY_INTERNAL, "order 2 has actions of another shape");
    set_up();
    ORDER(SAVE, save);
    expect_end(&choices, false, PARLEY_INTERNAL, "an order that is not for environments");
    set_up();
    ORDER(ENV_RESET, reset);
    expect_end(&choices, true, PARLEY_RESOURCE_EXHAUSTED, "could not open environment 4");
}
END_TEST

static struct parley_call *start_host(struct parley_channel *channel, void *arg)
{
    struct parley_host_events events = all;

    events.arg = arg;
    return parley_host_start(channel, &choices, &events);
}

static bool answer_order(struct parley_call *host)
{
    static const float seen[] = {NAN, 1};
    const struct parley_host_results results = {.n = 1, .observations = seen};

    return parley_host_answer(host, 1, &results);
}

/* Without memory nothing is sent, and the caller is told; nothing leaks. */
START_TEST(test_faults)
{
    struct diary d = {0};

    set_up();
    serve_with_faults(start_host, answer_order, &d);
    ck_assert_uint_eq(d.n_ends, 1);
}
END_TEST

SUITE_MAIN("client/host", test_orders, test_numbers, test_refused, test_faults)
