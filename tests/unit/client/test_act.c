/* libparley's steps, streams and observers against a server whose methods are fakes. In callbacks
 * assert, not Check's: they run on the channel's thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/lib/parley.h"
#include "parley/v1/act.pb-c.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/server/rpc/rig.h"

struct server {
    char result[200]; /* of the last episode */
};

static struct server world;
static struct rig rig;

/* Tells back all that it was given. */
static void answer(Parley__V1__ActStepResponse *out, const Parley__V1__ActStepRequest *r)
{
    parley__v1__act_step_response__init(out);
    out->seq = r->seq;
    out->output = r->observation;
    out->n_output = r->n_observation;
    out->params_version = r->run_id;
    out->batch_size = r->row;
    out->queue_us = (uint32_t)r->reward + (r->done ? 1000 : 0);
    out->tag = r->tag;
}

static void fake_step(struct call *call)
{
    const Parley__V1__ActStepRequest *request = call_request(call);
    Parley__V1__ActStepResponse response;
    struct error err;

    if (strcmp(request->env_id, "bad") == 0) {
        (void)error_field(&err, "env_id", "is bad, in %s", request->model);
        call_finish(call, &err);
        return;
    }
    answer(&response, request);
    call_reply(call, &response.base);
}

static void stream_message(struct call *call, void *state, const ProtobufCMessage *m,
                           struct arena *arena)
{
    const Parley__V1__ActStepRequest *request = (const Parley__V1__ActStepRequest *)m;
    Parley__V1__ErrorDetail detail = PARLEY__V1__ERROR_DETAIL__INIT;
    Parley__V1__ActStepResponse response;
    char text[] = "seq is wrong", field[] = "seq", reason[] = "SEQ_GAP";

    if (m == NULL) {
        call_finish(call, NULL);
        return;
    }
    answer(&response, request);
    if (strcmp(request->env_id, "bad") == 0) {
        detail.code = STATUS_RANGE;
        detail.message = text;
        detail.field = field;
        detail.reason = reason;
        response.error = &detail;
    }
    call_write(call, &response.base, false);
}

static void stream_room(struct call *call, void *state)
{
    call_read(call); /* the next, once the answer is out */
}

static void gone(struct call *call, void *state, enum status why)
{
}

static void fake_stream(struct call *call)
{
    static const struct call_handler handler = {
        .on_write_ready = stream_room, .message = stream_message, .on_close = gone};
    struct server *server = call_server(call);

    call_set_handler(call, &handler, server);
    call_read(call);
}

static void attach_message(struct call *call, void *state, const ProtobufCMessage *m,
                           struct arena *arena)
{
    const Parley__V1__ActAttachRequest *request = (const Parley__V1__ActAttachRequest *)m;
    Parley__V1__ActAttachResponse response = PARLEY__V1__ACT_ATTACH_RESPONSE__INIT;
    Parley__V1__ActAccepted accepted = PARLEY__V1__ACT_ACCEPTED__INIT;
    const Parley__V1__ActEpisodeResult *r;
    struct server *server = state;

    if (m == NULL) {
        call_finish(call, NULL);
    } else if (request->what_case == PARLEY__V1__ACT_ATTACH_REQUEST__WHAT_OFFER) {
        accepted.row = (uint32_t)request->offer->run_id;
        response.what_case = PARLEY__V1__ACT_ATTACH_RESPONSE__WHAT_ACCEPTED;
        response.accepted = &accepted;
        (void)snprintf(server->result, sizeof(server->result), "%s %s: ", request->offer->env_id,
                       request->offer->environment);
        call_write(call, &response.base, true);
    } else {
        size_t len = strlen(server->result);

        r = request->result;
        (void)snprintf(server->result + len, sizeof(server->result) - len, "%d %g/%zu %g %s; ",
                       (int)r->episode, r->n_returns > 0 ? (double)r->returns[0] : 0.0,
                       r->n_returns, (double)r->reward,
                       r->error != NULL ? r->error->message : "good");
        call_read(call);
    }
}

static void attach_room(struct call *call, void *state)
{
    Parley__V1__ActAttachResponse response = PARLEY__V1__ACT_ATTACH_RESPONSE__INIT;
    Parley__V1__ActEpisode run = PARLEY__V1__ACT_EPISODE__INIT;
    struct server *server = state;

    if (strstr(server->result, "asked") != NULL) {
        call_read(call);
        return;
    }
    (void)strncat(server->result, "asked ", sizeof(server->result) - strlen(server->result) - 1);
    run.episode = 8;
    run.n_steps = 3;
    run.gamma = 0.5f;
    run.seed = 543;
    response.what_case = PARLEY__V1__ACT_ATTACH_RESPONSE__WHAT_RUN;
    response.run = &run;
    call_write(call, &response.base, false);
}

static void fake_attach(struct call *call)
{
    static const struct call_handler handler = {
        .on_write_ready = attach_room, .message = attach_message, .on_close = gone};
    struct server *server = call_server(call);

    call_set_handler(call, &handler, server);
    call_read(call);
}

static void serve(void)
{
    static const struct call_method rpcs[] = {
        {"/parley.v1.Act/Step", CALL_UNARY, &parley__v1__act_step_request__descriptor,
         &parley__v1__act_step_response__descriptor, fake_step, ACCESS_KEY},
        {"/parley.v1.Act/Stream", CALL_BIDI, &parley__v1__act_step_request__descriptor,
         &parley__v1__act_step_response__descriptor, fake_stream, ACCESS_KEY},
        {"/parley.v1.Act/Attach", CALL_BIDI, &parley__v1__act_attach_request__descriptor,
         &parley__v1__act_attach_response__descriptor, fake_attach, ACCESS_KEY},
    };
    static const struct call_table service = {rpcs, 3};
    static const struct call_table *const services[] = {&service};
    const struct port_config config = {.services = services, .n_services = 1, .server = &world};

    rig_start(&rig, &config);
    assert(rig.rc == STATUS_OK);
}

/* What came, as one text, and the end. */
struct heard {
    char text[2000];
    struct parley_error err;
    unsigned n_answers;
    uv_sem_t has_ended;
};

static void hear_action(struct heard *h, const struct parley_action *a,
                        const struct parley_error *err)
{
    size_t len = strlen(h->text);
    const struct parley_tensor *t = a == NULL ? NULL : &a->output[0];

    if (a == NULL)
        (void)snprintf(h->text + len, sizeof(h->text) - len, "%s: %s", err->field, err->text);
    else
        (void)snprintf(h->text + len, sizeof(h->text) - len,
                       "%d: %zu %s %d [%d] %g, version %d, %u, %u", (int)a->seq, a->n_output,
                       t->name, (int)t->dtype, (int)t->shape[0],
                       (double)((const float *)t->data)[1], (int)a->params_version, a->batch_size,
                       a->queue_us);
}

static void on_action(void *arg, const struct parley_action *action, const struct parley_error *err)
{
    struct heard *h = arg;

    assert((action == NULL) == (err->status != PARLEY_OK));
    hear_action(h, action, err);
    h->n_answers++;
}

static struct parley_step make_step(const char *env_id, uint64_t seq)
{
    static const int64_t shape[] = {2};
    static const float numbers[] = {1.5f, 2.5f};
    static const struct parley_tensor observation = {"seen", PARLEY_F32, shape,
                                                     1,      numbers,    sizeof(numbers)};

    return (struct parley_step){.model = "m",
                                .env_id = env_id,
                                .run_id = 77,
                                .seq = seq,
                                .observation = &observation,
                                .n_observation = 1,
                                .reward = 3,
                                .done = true,
                                .row = 5,
                                .tag = 10 * seq};
}

/* A step carries every field and brings back the action; a refusal its field and text. */
START_TEST(test_step)
{
    struct parley_step step = make_step("env", 9);
    struct parley_channel *channel;
    struct parley_error err;
    struct heard h = {0};

    serve();
    channel = parley_channel_open(rig.address);
    ck_assert_int_eq(parley_step(channel, &step, on_action, &h, &err), PARLEY_OK);
    ck_assert_str_eq(h.text, "9: 1 seen 0 [2] 2.5, version 77, 5, 1003");
    ck_assert_uint_eq(h.n_answers, 1);
    ck_assert_int_eq(parley_step(channel, &step, NULL, NULL, NULL), PARLEY_OK);
    step.env_id = "bad";
    h = (struct heard){0};
    ck_assert_int_eq(parley_step(channel, &step, on_action, &h, &err), PARLEY_INVALID_ARGUMENT);
    ck_assert_str_eq(err.text, "env_id is bad, in m");
    ck_assert_str_eq(h.text, "env_id: env_id is bad, in m");
    ck_assert_uint_eq(h.n_answers, 1);
    parley_channel_close(channel);
    rig_stop(&rig);
}
END_TEST

static void on_answer(void *arg, uint64_t tag, const struct parley_action *action,
                      const struct parley_error *err)
{
    struct heard *h = arg;

    h->n_answers++;
    if (action == NULL) {
        assert(err->status == PARLEY_OUT_OF_RANGE && strcmp(err->field, "seq") == 0);
        assert(strcmp(err->text, "seq is wrong") == 0 && strcmp(err->reason, "SEQ_GAP") == 0);
    } else {
        assert(tag == 10 * action->seq);
    }
}

static void on_end(void *arg, const struct parley_error *err)
{
    struct heard *h = arg;

    h->err = *err;
    uv_sem_post(&h->has_ended);
}

static struct parley_call *start_stream(struct parley_channel *channel, struct heard *h)
{
    const struct parley_act_events events = {on_answer, on_end, h};

    *h = (struct heard){0};
    assert(uv_sem_init(&h->has_ended, 0) == 0);
    return parley_act_start(channel, &events);
}

/* Steps on a stream are each answered, errors in band; after half-closing it ends, and no more is
 * sent. */
START_TEST(test_stream)
{
    enum { N = 200 };
    struct parley_channel *channel;
    struct parley_call *stream;
    struct parley_step step;
    struct heard h;

    serve();
    channel = parley_channel_open(rig.address);
    stream = start_stream(channel, &h);
    for (uint64_t i = 1; i <= N; i++) {
        step = make_step(i == 50 ? "bad" : "env", i);
        ck_assert(parley_act_send(stream, &step));
    }
    parley_call_half_close(stream);
    ck_assert(!parley_act_send(stream, &step));
    uv_sem_wait(&h.has_ended);
    ck_assert_int_eq(h.err.status, PARLEY_OK);
    ck_assert_uint_eq(h.n_answers, N);
    parley_call_half_close(stream);
    ck_assert(!parley_act_send(stream, &step));
    parley_call_unref(stream);
    uv_sem_destroy(&h.has_ended);
    parley_channel_close(channel);
    rig_stop(&rig);
}
END_TEST

/* A stream that is cancelled, or whose server goes, ends; what was still to go out is given up. */
START_TEST(test_stream_ends)
{
    struct parley_channel *channel;
    struct parley_call *streams[2];
    struct parley_step step = make_step("env", 1);
    struct heard h[2];

    serve();
    channel = parley_channel_open(rig.address);
    for (size_t i = 0; i < 2; i++) {
        streams[i] = start_stream(channel, &h[i]);
        for (size_t k = 0; k < 100; k++)
            ck_assert(parley_act_send(streams[i], &step));
    }
    parley_call_cancel(streams[0]);
    uv_sem_wait(&h[0].has_ended);
    ck_assert_int_eq(h[0].err.status, PARLEY_CANCELLED);
    rig_stop(&rig);
    uv_sem_wait(&h[1].has_ended);
    ck_assert_int_ne(h[1].err.status, PARLEY_OK);
    for (size_t i = 0; i < 2; i++) {
        ck_assert(!parley_act_send(streams[i], &step));
        parley_call_unref(streams[i]);
        uv_sem_destroy(&h[i].has_ended);
    }
    parley_channel_close(channel);
}
END_TEST

struct observing {
    struct heard heard;
    struct parley_call *call;
    uv_sem_t has_order;
    uint32_t row;
};

static void on_accepted(void *arg, uint32_t row)
{
    ((struct observing *)arg)->row = row;
}

static void on_run(void *arg, const struct parley_run_episode *episode)
{
    struct observing *o = arg;

    assert(episode->episode == 8 && episode->n_steps == 3);
    assert(episode->gamma == 0.5f && episode->seed == 543);
    uv_sem_post(&o->has_order);
}

static void on_attach_end(void *arg, const struct parley_error *err)
{
    on_end(&((struct observing *)arg)->heard, err);
}

/* An environment worker is given its row, asked for an episode, and sends the result. */
START_TEST(test_attach)
{
    static const float returns[] = {3, 2, 1};
    const struct parley_attach offer = {
        .model = "m", .env_id = "env", .run_id = 4, .environment = "CartPole-v1"};
    const struct parley_error failure = {.status = PARLEY_ABORTED, .text = "too slow"};
    struct observing o = {0};
    const struct parley_attach_events events = {on_accepted, on_run, on_attach_end, &o};
    struct parley_episode_result result = {
        .episode = 8, .returns = returns, .n_returns = 3, .reward = 3};
    struct parley_channel *channel;

    serve();
    assert(uv_sem_init(&o.heard.has_ended, 0) == 0 && uv_sem_init(&o.has_order, 0) == 0);
    channel = parley_channel_open(rig.address);
    o.call = parley_attach_start(channel, &offer, &events);
    uv_sem_wait(&o.has_order);
    ck_assert_uint_eq(o.row, 4);
    ck_assert(parley_attach_send(o.call, &result));
    result = (struct parley_episode_result){.episode = 9, .error = &failure};
    ck_assert(parley_attach_send(o.call, &result));
    parley_call_half_close(o.call);
    uv_sem_wait(&o.heard.has_ended);
    ck_assert_int_eq(o.heard.err.status, PARLEY_OK);
    ck_assert_str_eq(world.result, "env CartPole-v1: asked 8 3/3 3 good; 9 0/0 0 too slow; ");
    parley_call_unref(o.call);
    uv_sem_destroy(&o.heard.has_ended);
    uv_sem_destroy(&o.has_order);
    parley_channel_close(channel);
    rig_stop(&rig);
}
END_TEST

/* Memory that is not there at any point is an error, on either side, never a crash or a hang. A
 * server without memory for a new connection closes it. */
START_TEST(test_faults)
{
    struct parley_step step = make_step("env", 1);
    enum parley_status status = PARLEY_RESOURCE_EXHAUSTED;
    struct parley_channel *channel;
    struct parley_call *stream;
    bool is_sent = false;
    struct heard h;
    long n;

    serve();
    channel = parley_channel_open(rig.address);
    for (n = 0; status != PARLEY_OK; n++) {
        fault_after = n;
        status = parley_step(channel, &step, NULL, NULL, NULL);
        fault_after = -1;
        ck_assert(status == PARLEY_OK || status == PARLEY_RESOURCE_EXHAUSTED ||
                  status == PARLEY_UNAVAILABLE);
    }
    ck_assert_int_gt(n, 3);
    stream = start_stream(channel, &h);
    for (n = 0; !is_sent; n++) {
        fault_after = n;
        is_sent = parley_act_send(stream, &step);
        fault_after = -1;
    }
    ck_assert_int_gt(n, 1);
    parley_call_cancel(stream); /* the server may have met the last fault */
    uv_sem_wait(&h.has_ended);
    parley_call_unref(stream);
    uv_sem_destroy(&h.has_ended);
    parley_channel_close(channel);
    rig_stop(&rig);
}
END_TEST

SUITE_MAIN("client/act", test_step, test_stream, test_stream_ends, test_attach, test_faults)
