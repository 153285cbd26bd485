/* Happy path: prompt_batch_open begins the first inputs, each as the only turn of a conversation.
 * The end of a turn notifies the owner, whose prompt_batch_advance passes the result on, closes the
 * conversation, and begins the next input in its place.
 *
 * Where the model's queue is full while inputs of the request are in flight, the next ones wait for
 * these. The first failure of an input is that of the request. */
#include "server/conversation/prompt_batch.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "server/conversation/conversation.h"
#include "server/conversation/reader.h"
#include "server/model/model.h"

enum { IN_FLIGHT_MAX = 32 }; /* inputs of a request: half the rows of a step */

/* An input in flight. */
struct prompt_turn {
    struct prompt_batch *of;
    bool is_busy;
    struct conversation_id conversation;
    struct turn_reader reader;
    size_t input;
};

struct prompt_batch {
    struct conversations *all;
    struct prompt_batch_request request;
    struct prompt_batch_events events;
    size_t n_begun, n_done;
    uint64_t n_tokens, n_cached;
    struct prompt_turn turns[IN_FLIGHT_MAX];
};

static void prompt_turn_notify(void *arg)
{
    const struct prompt_turn *t = arg;

    if (t->reader.turn == NULL) /* it has ended */
        t->of->events.notify(t->of->events.notify_arg);
}

static enum status name_input(const struct prompt_batch *b, size_t input, struct error *err)
{
    if (b->request.n_inputs > 1)
        (void)error_prefix(err, "input %zu", input);
    return error_name_field(err, "input");
}

static void prompt_turn_end(struct prompt_turn *t)
{
    struct conversation *c = conversations_get(t->of->all, &t->conversation);

    reader_close(&t->reader, STATUS_CANCELLED);
    if (c != NULL)
        conversation_close(c, WATCH_CLOSED, "its request is answered");
    t->is_busy = false;
}

static enum status prompt_turn_ask(struct prompt_turn *t, size_t input, struct conversation *c,
                                   struct error *err)
{
    const struct prompt_batch_request *of = &t->of->request;
    const struct prompt_input *in = &of->inputs[input];
    const struct message texts[] = {
        {.role = ROLE_USER, .text = in->text, .len = in->len},
        {.role = ROLE_USER, .text = in->document, .len = in->document_len}};
    const bool is_chat = in->n_messages > 0;
    struct turn_request r = {
        .messages = is_chat ? in->messages : texts,
        .n_messages =
            is_chat ? in->n_messages : (size_t)(in->text != NULL) + (size_t)(in->document != NULL),
        .is_plain = !is_chat,
        .raw = {.parses_control = in->parses_control},
        .plain_ids = in->ids,
        .n_plain_ids = is_chat || in->text != NULL ? 0 : in->n_ids,
        .wants = of->wants,
        .deadline_us = of->deadline_us,
    };

    r.wants.no_reply = true;
    r.wants.is_counted = input > 0;
    reader_init(&t->reader, prompt_turn_notify, t);
    return conversation_turn(c, &r, &t->reader, err);
}

static enum status prompt_turn_begin(struct prompt_turn *t, size_t input, struct error *err)
{
    struct prompt_batch *b = t->of;
    const struct prompt_input *in = &b->request.inputs[input];
    const struct open_request open = {.principal = b->request.principal,
                                      .system = in->system != NULL ? in->system : "",
                                      .system_len = in->system_len};
    struct conversation *c;
    enum status rc = conversation_open(&c, b->all, b->request.model, &open, err);

    if (rc != STATUS_OK)
        return rc;
    t->input = input;
    t->conversation = c->id;
    rc = prompt_turn_ask(t, input, c, err);
    t->is_busy = rc == STATUS_OK;
    if (rc == STATUS_OK)
        return rc;
    conversation_close(c, WATCH_CLOSED, "its request was refused");
    return rc == STATUS_EXHAUSTED || rc == STATUS_UNAVAILABLE ? rc : name_input(b, input, err);
}

static enum status prompt_turn_take(struct prompt_turn *t, struct error *err)
{
    struct prompt_batch *b = t->of;
    struct completed_turn *done = t->reader.completed;
    const struct error *failure = reader_failure(&t->reader);

    if (failure != NULL) {
        *err = *failure;
        return err->status;
    }
    if (done->results == NULL) /* its conversation was closed by another call */
        return error_set(err, STATUS_CANCELLED, "the request was cancelled");
    if (b->events.take(b->events.take_arg, t->input, done, err) != STATUS_OK)
        return err->status;
    b->n_tokens += done->usage.n_prompt;
    b->n_cached += done->usage.n_cached;
    b->n_done++;
    prompt_turn_end(t);
    return STATUS_OK;
}

/* Begins inputs as long as there is room. */
static enum status prompt_batch_begin(struct prompt_batch *b, struct error *err)
{
    for (size_t i = 0; i < IN_FLIGHT_MAX && b->n_begun < b->request.n_inputs; i++) {
        struct prompt_turn *t = &b->turns[i];
        enum status rc;

        if (t->is_busy)
            continue;
        rc = prompt_turn_begin(t, b->n_begun, err);
        if (rc == STATUS_EXHAUSTED && b->n_begun > b->n_done)
            return STATUS_OK; /* those in flight make room */
        if (rc != STATUS_OK)
            return rc;
        b->n_begun++;
    }
    return STATUS_OK;
}

enum status prompt_batch_open(struct prompt_batch **out, struct conversations *all,
                              const struct prompt_batch_request *r,
                              const struct prompt_batch_events *events, struct error *err)
{
    struct prompt_batch *b = try_alloc(1, sizeof(*b));

    if (b == NULL)
        return error_no_memory(err, sizeof(*b), "prompts");
    b->all = all;
    b->request = *r;
    b->events = *events;
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++)
        b->turns[i].of = b;
    model_hold(r->model);
    if (prompt_batch_begin(b, err) != STATUS_OK) {
        prompt_batch_close(b);
        return err->status;
    }
    *out = b;
    return STATUS_OK;
}

void prompt_batch_close(struct prompt_batch *b)
{
    if (b == NULL)
        return;
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++)
        if (b->turns[i].is_busy)
            prompt_turn_end(&b->turns[i]);
    model_release(b->request.model);
    free(b);
}

enum status prompt_batch_advance(struct prompt_batch *b, bool *ret_is_done, struct error *err)
{
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++) {
        struct prompt_turn *t = &b->turns[i];

        if (t->is_busy && t->reader.turn == NULL && prompt_turn_take(t, err) != STATUS_OK)
            return name_input(b, t->input, err);
    }
    if (prompt_batch_begin(b, err) != STATUS_OK)
        return err->status;
    *ret_is_done = b->n_done == b->request.n_inputs;
    return STATUS_OK;
}

uint64_t prompt_batch_n_tokens(const struct prompt_batch *b)
{
    return b->n_tokens;
}

uint64_t prompt_batch_n_cached(const struct prompt_batch *b)
{
    return b->n_cached;
}
