/* libparley's workers against a server that gives a list of orders. In callbacks assert, not
 * Check's: they run on the channel's thread. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "client/lib/parley.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/client/attach_server.h"

/* --- a worker that writes down what it is asked for; a clone is a text of its own --- */

struct diary {
    char text[2000];
    bool cannot_open, answers_late, detaches;
    unsigned n_clones; /* not closed */
    uint64_t late;     /* a step that waits */
    struct parley_call *worker;
    struct parley_error err;
    unsigned n_ends;
};

static void diary_note(void *arg, const char *what)
{
    struct diary *d = arg;

    note(d->text, sizeof(d->text), what);
}

static void *diary_clone(struct diary *d, const char *name)
{
    if (d->cannot_open)
        return NULL;
    d->n_clones++;
    return xstrdup(name);
}

static void on_accepted(void *arg)
{
    diary_note(arg, "accepted");
}

static void *on_open(void *arg, const struct parley_worker_open *what)
{
    char line[200], name[8];

    (void)snprintf(line, sizeof(line), "open '%s' %.*s %u", what->system, (int)what->state_len,
                   what->state == NULL ? "" : (const char *)what->state, what->turn);
    diary_note(arg, line);
    (void)snprintf(name, sizeof(name), "%c", 'a' + (int)((struct diary *)arg)->n_clones);
    return diary_clone(arg, name);
}

static bool on_replay(void *arg, void *clone, uint32_t turn, const struct parley_message *messages,
                      size_t n_messages, const char *reply)
{
    char line[200];

    (void)snprintf(line, sizeof(line), "replay %s %u %zu %s '%s' '%s'", (char *)clone, turn,
                   n_messages, messages[0].role, messages[0].text, reply);
    diary_note(arg, line);
    return true;
}

static void *on_fork(void *arg, void *parent, uint32_t at_turn)
{
    char line[100];

    (void)snprintf(line, sizeof(line), "fork %s %u", (char *)parent, at_turn);
    diary_note(arg, line);
    return diary_clone(arg, "f");
}

static bool on_rewind(void *arg, void *clone, uint32_t to_turn)
{
    char line[100];

    (void)snprintf(line, sizeof(line), "rewind %s %u", (char *)clone, to_turn);
    diary_note(arg, line);
    return true;
}

static void *on_save(void *arg, void *clone, size_t *ret_len)
{
    *ret_len = strlen(clone);
    return xstrdup(clone);
}

static void on_close(void *arg, void *clone)
{
    char line[100];

    (void)snprintf(line, sizeof(line), "close %s", (char *)clone);
    diary_note(arg, line);
    ((struct diary *)arg)->n_clones--;
    free(clone);
}

static void on_cancel(void *arg, uint64_t step, uint32_t row)
{
    struct diary *d = arg;
    struct parley_row_answer answers[2] = {{.text = "late"}, {.text = "too"}};
    char line[100];

    (void)snprintf(line, sizeof(line), "cancel %d %u", (int)step, row);
    diary_note(arg, line);
    if (d->late == step)
        assert(parley_worker_answer(d->worker, step, answers, 2));
}

static void diary_row(struct diary *d, const struct parley_worker_row *row)
{
    const struct parley_sampling *s = row->sampling;
    char line[300];

    (void)snprintf(line, sizeof(line), "row %s %u %d %zu '%s'",
                   row->clone == NULL ? "-" : (const char *)row->clone, row->turn,
                   row->is_continued, row->n_messages,
                   row->n_messages == 0 ? "" : row->messages[0].text);
    diary_note(d, line);
    if (s->set != 0) {
        (void)snprintf(line, sizeof(line), "sampling %x %g %u %d %s %d:%g", s->set,
                       (double)s->temperature, s->max_tokens, (int)s->seed, s->stops[0],
                       (int)s->bias_ids[0], (double)s->biases[0]);
        diary_note(d, line);
    }
    if (row->n_history > 0) {
        (void)snprintf(line, sizeof(line), "history '%s' %zu '%s' '%s'", row->system,
                       row->n_history, row->history[1].text, row->reply);
        diary_note(d, line);
    }
    if (row->observation != NULL) {
        (void)snprintf(line, sizeof(line), "observation %g %g, %g %d", (double)row->observation[0],
                       (double)row->observation[1], (double)row->reward, row->is_first);
        diary_note(d, line);
    }
}

static void on_step(void *arg, struct parley_call *worker, const struct parley_worker_step *step)
{
    static const int64_t chosen = 1;
    static const struct parley_tensor action = {
        .name = "action", .dtype = PARLEY_I64, .data = &chosen, .size_bytes = sizeof(chosen)};
    static const struct parley_error refused = {.status = PARLEY_FAILED_PRECONDITION, .text = "no"};
    struct parley_row_answer answers[3] = {
        {.text = "done", .is_cut = true, .prompt_tokens = 7},
        {.text = "a piece", .outcome = PARLEY_ROW_MORE},
        {.outcome = PARLEY_ROW_FAILED, .error = &refused},
    };
    struct diary *d = arg;

    for (size_t i = 0; i < step->n_rows; i++)
        diary_row(d, &step->rows[i]);
    if (step->rows[0].observation != NULL)
        answers[0] =
            (struct parley_row_answer){.output = &action, .n_output = 1, .params_version = 5};
    d->worker = worker;
    d->late = d->answers_late ? step->id : 0;
    if (!d->answers_late)
        assert(parley_worker_answer(worker, step->id, answers, step->n_rows));
    if (d->detaches)
        parley_call_half_close(worker);
}

static void on_end(void *arg, const struct parley_error *err)
{
    struct diary *d = arg;

    d->err = *err;
    d->n_ends++;
}

static const struct parley_worker_events all = {.accepted = on_accepted,
                                                .open = on_open,
                                                .replay = on_replay,
                                                .fork = on_fork,
                                                .rewind = on_rewind,
                                                .save = on_save,
                                                .close = on_close,
                                                .step = on_step,
                                                .cancel = on_cancel,
                                                .end = on_end};

static const struct parley_worker_offer plain = {.name = "m"};

/* Runs the worker to its end, with the server that the orders make. */
static enum parley_status run_worker(struct diary *d, const struct parley_worker_offer *offer,
                                     struct parley_worker_events events, struct parley_error *err)
{
    struct parley_channel *channel;
    enum parley_status rc;

    events.arg = d;
    serve();
    channel = parley_channel_open(rig.address);
    rc = parley_worker_run(channel, offer, &events, err);
    parley_channel_close(channel);
    rig_stop(&rig);
    ck_assert_uint_eq(d->n_clones, 0);
    return rc;
}

static Parley__V1__Message said = PARLEY__V1__MESSAGE__INIT;
static Parley__V1__Message *said_list[2] = {&said, &said};

static void set_up(void)
{
    static char role[] = "user", text[] = "hello";

    world = (struct server){.end = STATUS_NOT_FOUND};
    said.role = role;
    said.text = text;
}

/* Each order reaches its callback with all that it says, clones by what the worker made of them;
 * answers and states go back in full. Clones that are left are closed at the end. */
START_TEST(test_orders)
{
    static char system[] = "be brief", reply[] = "hi", stop[] = "END";
    static uint8_t state[] = "abc";
    Parley__V1__AgentAccepted accepted = PARLEY__V1__AGENT_ACCEPTED__INIT;
    Parley__V1__AgentCloneOpen open = PARLEY__V1__AGENT_CLONE_OPEN__INIT;
    Parley__V1__AgentCloneOpen restored = PARLEY__V1__AGENT_CLONE_OPEN__INIT;
    Parley__V1__AgentCloneReplay replay = PARLEY__V1__AGENT_CLONE_REPLAY__INIT;
    Parley__V1__AgentCloneFork fork = PARLEY__V1__AGENT_CLONE_FORK__INIT;
    Parley__V1__AgentCloneRewind rewind = PARLEY__V1__AGENT_CLONE_REWIND__INIT;
    Parley__V1__AgentCloneClose close = PARLEY__V1__AGENT_CLONE_CLOSE__INIT;
    Parley__V1__AgentSave save = PARLEY__V1__AGENT_SAVE__INIT;
    Parley__V1__AgentStep step = PARLEY__V1__AGENT_STEP__INIT;
    Parley__V1__AgentRow rows[3] = {PARLEY__V1__AGENT_ROW__INIT, PARLEY__V1__AGENT_ROW__INIT,
                                    PARLEY__V1__AGENT_ROW__INIT};
    Parley__V1__AgentRow *row_list[3] = {&rows[0], &rows[1], &rows[2]};
    Parley__V1__Sampling sampling = PARLEY__V1__SAMPLING__INIT;
    Parley__V1__Sampling__LogitBiasEntry bias = PARLEY__V1__SAMPLING__LOGIT_BIAS_ENTRY__INIT;
    Parley__V1__Sampling__LogitBiasEntry *biases[] = {&bias};
    char *stops[] = {stop};
    const struct parley_worker_offer offer = {.name = "m",
                                              .version = "2",
                                              .max_rows = 3,
                                              .slots = 2,
                                              .save_every = 4,
                                              .max_cost = 99,
                                              .is_cost_in_bytes = true,
                                              .is_deterministic = true};
    struct diary d = {0};
    struct parley_error err;

    set_up();
    ORDER(ACCEPTED, accepted);
    open.clone = restored.clone = 11;
    open.system = system;
    ORDER(OPEN, open);
    restored.clone = 12;
    restored.has_state = 1;
    restored.state = (ProtobufCBinaryData){3, state};
    restored.turn = 4;
    ORDER(OPEN, restored);
    replay.clone = 11;
    replay.turn = 1;
    replay.messages = said_list;
    replay.n_messages = 1;
    replay.reply = reply;
    ORDER(REPLAY, replay);
    fork.clone = 13;
    fork.parent = 12;
    fork.at_turn = 3;
    ORDER(FORK, fork);
    rewind.clone = 13;
    rewind.to_turn = 2;
    ORDER(REWIND, rewind);
    save.clone = 12;
    ORDER(SAVE, save);
    step.step = 7;
    step.rows = row_list;
    step.n_rows = 3;
    for (uint32_t i = 0; i < 3; i++) {
        rows[i].row = i;
        rows[i].clone = 11 + i;
        rows[i].turn = i + 1;
    }
    rows[0].messages = said_list;
    rows[0].n_messages = 2;
    rows[0].sampling = &sampling;
    sampling.has_temperature = sampling.has_max_tokens = sampling.has_seed = 1;
    sampling.temperature = 0.5f;
    sampling.max_tokens = 9;
    sampling.seed = 77;
    sampling.stop = stops;
    sampling.n_stop = 1;
    bias.has_key = bias.has_value = 1;
    bias.key = 3;
    bias.value = -1;
    sampling.logit_bias = biases;
    sampling.n_logit_bias = 1;
    rows[1].is_continued = 1;
    ORDER(STEP, step);
    close.clone = 11;
    ORDER(CLOSE, close);
    world.n_awaited = 2;
    ck_assert_int_eq(run_worker(&d, &offer, all, &err), PARLEY_NOT_FOUND);
    ck_assert_str_eq(world.heard,
                     "offer m 2 3 2 4 99 2 1 2 3 4; state 12 b; 7.0 'done' 1 2 7; 7.1 'a piece' 2 "
                     "0 0; 7.2 '' 3 0 0; error 9 no; ");
    ck_assert_ptr_nonnull(strstr(
        d.text, "accepted; open 'be brief'  0; open '' abc 4; replay a 1 1 user 'hello' 'hi'; fork "
                "b 3; rewind f 2; row a 1 0 2 'hello'; sampling 181 0.5 9 77 END 3:-1; row b 2 1 "
                "0 ''; row f 3 0 0 ''; close a; close "));
    ck_assert_str_eq(err.text, "model 'm' was unloaded");
    ck_assert_uint_eq(d.n_ends, 1);
}
END_TEST

/* A worker without open has no clones: a row brings the conversation. A policy's brings numbers. */
START_TEST(test_without_clones)
{
    static char system[] = "s", so_far[] = "so far";
    static float numbers[] = {1.5f, 2.5f};
    Parley__V1__AgentStep step = PARLEY__V1__AGENT_STEP__INIT,
                          acting = PARLEY__V1__AGENT_STEP__INIT;
    Parley__V1__AgentRow row = PARLEY__V1__AGENT_ROW__INIT, seen = PARLEY__V1__AGENT_ROW__INIT;
    Parley__V1__AgentRow *rows[] = {&row}, *seens[] = {&seen};
    Parley__V1__Tensor tensor = PARLEY__V1__TENSOR__INIT;
    Parley__V1__Tensor *tensors[] = {&tensor};
    const struct parley_worker_offer offer = {
        .name = "m", .n_observations = 2, .n_actions = 3, .has_value = true};
    struct diary d = {0};
    struct parley_error err;

    set_up();
    step.step = 1;
    step.rows = rows;
    step.n_rows = 1;
    row.turn = 2;
    row.is_continued = 1;
    row.system = system;
    row.reply = so_far;
    row.history = row.messages = said_list;
    row.n_history = 2;
    row.n_messages = 1;
    ORDER(STEP, step);
    acting.step = 2;
    acting.rows = seens;
    acting.n_rows = 1;
    seen.observation = tensors;
    seen.n_observation = 1;
    tensor.data = (ProtobufCBinaryData){sizeof(numbers), (uint8_t *)numbers};
    seen.reward = 3;
    seen.is_first = 1;
    ORDER(STEP, acting);
    world.n_awaited = 2;
    ck_assert_int_eq(run_worker(&d, &offer,
                                (struct parley_worker_events){.step = on_step, .cancel = on_cancel},
                                &err),
                     PARLEY_NOT_FOUND);
    ck_assert_str_eq(world.heard,
                     "offer m  0 0 0 0 1 5; tensors 2 3 0 01; 1.0 'done' 1 2 7; 2.0 '' "
                     "1 0 0; action 4 8 5; ");
    ck_assert_str_eq(d.text, "row - 2 1 1 'hello'; history 's' 2 'hello' 'so far'; row - 0 0 0 ''; "
                             "observation 1.5 2.5, 3 1; ");
}
END_TEST

/* A step may be answered after its callback; a cancel says for which row that is of no use. */
START_TEST(test_late_answer)
{
    Parley__V1__AgentStep step = PARLEY__V1__AGENT_STEP__INIT;
    Parley__V1__AgentCancel cancel = PARLEY__V1__AGENT_CANCEL__INIT;
    Parley__V1__AgentRow rows[2] = {PARLEY__V1__AGENT_ROW__INIT, PARLEY__V1__AGENT_ROW__INIT};
    Parley__V1__AgentRow *list[] = {&rows[0], &rows[1]};
    struct diary d = {.answers_late = true};
    struct parley_error err;

    set_up();
    rows[1].row = 1;
    step.step = cancel.step = 5;
    step.rows = list;
    step.n_rows = 2;
    cancel.row = 1;
    ORDER(STEP, step);
    ORDER(CANCEL, cancel);
    world.n_awaited = 1;
    ck_assert_int_eq(run_worker(&d, &plain,
                                (struct parley_worker_events){.step = on_step, .cancel = on_cancel},
                                &err),
                     PARLEY_NOT_FOUND);
    ck_assert_str_eq(world.heard, "offer m  0 0 0 0 1 5; 5.0 'late' 1 0 0; 5.1 'too' 1 0 0; ");
}
END_TEST

/* A server that goes away is attached to again; a worker that detaches itself is done. */
START_TEST(test_again)
{
    Parley__V1__AgentAccepted accepted = PARLEY__V1__AGENT_ACCEPTED__INIT;
    Parley__V1__AgentStep step = PARLEY__V1__AGENT_STEP__INIT;
    Parley__V1__AgentRow row = PARLEY__V1__AGENT_ROW__INIT;
    Parley__V1__AgentRow *rows[] = {&row};
    struct diary d = {.detaches = true};
    struct parley_error err;

    set_up();
    world.end = STATUS_UNAVAILABLE;
    step.step = 1;
    step.rows = rows;
    step.n_rows = 1;
    ORDER(ACCEPTED, accepted);
    ORDER(STEP, step);
    world.n_awaited = 2; /* one more than comes: the worker ends the stream */
    ck_assert_int_eq(
        run_worker(&d, &plain, (struct parley_worker_events){.step = on_step, .end = on_end}, &err),
        PARLEY_OK);
    ck_assert_uint_eq(d.n_ends, 2);
    ck_assert_uint_eq(world.n_streams, 2);
    ck_assert_ptr_nonnull(strstr(world.heard, "1.0 'done'"));
}
END_TEST

static void expect_end(struct diary *d, struct parley_worker_events events,
                       enum parley_status status, const char *why)
{
    struct parley_error err;

    world.n_awaited = 1; /* it does not come */
    ck_assert_int_eq(run_worker(d, &plain, events, &err), status);
    ck_assert_msg(strstr(err.text, why) != NULL, "'%s' has no '%s'", err.text, why);
}

/* An order that cannot be done ends the stream with a sentence: a clone that is not there, or is
 * there twice, a step with wrong rows, what was not offered, and no memory. */
START_TEST(test_refused)
{
    Parley__V1__AgentCloneOpen open = PARLEY__V1__AGENT_CLONE_OPEN__INIT;
    Parley__V1__AgentCloneFork fork = PARLEY__V1__AGENT_CLONE_FORK__INIT;
    Parley__V1__AgentSave save = PARLEY__V1__AGENT_SAVE__INIT;
    Parley__V1__AgentStep step = PARLEY__V1__AGENT_STEP__INIT;
    Parley__V1__AgentRow row = PARLEY__V1__AGENT_ROW__INIT;
    Parley__V1__AgentRow *rows[] = {&row};
    struct parley_worker_events few = all;
    struct diary d = {0};

    step.rows = rows;
    step.n_rows = 1;
    row.clone = save.clone = 3;
    open.clone = 3;
    set_up();
    ORDER(STEP, step);
    expect_end(&d, all, PARLEY_INTERNAL, "refers to clone 3, which is not open");
    set_up();
    ORDER(SAVE, save);
    expect_end(&d, all, PARLEY_INTERNAL, "refers to clone 3, which is not open");
    set_up();
    ORDER(OPEN, open);
    ORDER(OPEN, open);
    expect_end(&d, all, PARLEY_INTERNAL, "opens clone 3 twice");
    set_up();
    ORDER(OPEN, open);
    row.row = 1;
    ORDER(STEP, step);
    expect_end(&d, all, PARLEY_INTERNAL, "has row 1 in place 0");
    set_up();
    few.fork = NULL;
    ORDER(OPEN, open);
    fork.parent = 3;
    fork.clone = 4;
    ORDER(FORK, fork);
    expect_end(&d, few, PARLEY_INTERNAL, "an order that was not offered");
    set_up();
    ORDER(OPEN, open);
    d.cannot_open = true;
    expect_end(&d, all, PARLEY_RESOURCE_EXHAUSTED, "could not open clone 3");
}
END_TEST

static struct parley_call *start_worker(struct parley_channel *channel, void *arg)
{
    const struct parley_worker_events events = {.step = on_step, .end = on_end, .arg = arg};

    return parley_worker_start(channel, &plain, &events);
}

static bool answer_step(struct parley_call *worker)
{
    static const struct parley_error why = {.status = PARLEY_INTERNAL};
    static const struct parley_tensor action = {.name = "action"};
    const struct parley_row_answer answer = {.error = &why, .output = &action, .n_output = 1};

    return parley_worker_answer(worker, 1, &answer, 1);
}

/* Without memory nothing is sent, and the caller is told; nothing leaks. */
START_TEST(test_faults)
{
    struct diary d = {0};

    set_up();
    serve_with_faults(start_worker, answer_step, &d);
    ck_assert_uint_eq(d.n_ends, 1);
}
END_TEST

SUITE_MAIN("client/worker", test_orders, test_without_clones, test_late_answer, test_again,
           test_refused, test_faults)
