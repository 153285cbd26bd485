/* Happy path: embeddings_open begins the first inputs, each as the only turn of a conversation. The
 * end of a turn notifies the owner, whose embeddings_advance copies the result, closes the
 * conversation, and begins the next input in its place.
 *
 * Where the model's queue is full while inputs of the request are in flight, the next ones wait for
 * these. The first failure of an input is that of the request. */
#include "server/conversation/embeddings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/conversation/conversation.h"
#include "server/conversation/reader.h"
#include "server/model/model.h"

enum { IN_FLIGHT_MAX = 32 }; /* inputs of a request: half the rows of a step */

/* An input in flight. */
struct embedding_turn {
    struct embeddings *of;
    bool is_busy;
    struct conversation_id conversation;
    struct turn_reader reader;
    size_t input;
};

struct embeddings {
    struct conversations *all;
    struct embeddings_request request;
    void (*notify)(void *arg);
    void *arg;
    size_t width, n_begun, n_done;
    uint64_t n_tokens, n_cached;
    struct embedding_turn turns[IN_FLIGHT_MAX];
    float values[]; /* [n_inputs][width] */
};

static void embedding_notify(void *arg)
{
    const struct embedding_turn *t = arg;

    if (t->reader.turn == NULL) /* it has ended */
        t->of->notify(t->of->arg);
}

static enum status name_input(const struct embeddings *e, size_t input, struct error *err)
{
    if (e->request.n_inputs > 1)
        (void)error_prefix(err, "input %zu", input);
    return error_name_field(err, "input");
}

static void embedding_turn_end(struct embedding_turn *t)
{
    struct conversation *c = conversations_get(t->of->all, &t->conversation);

    reader_close(&t->reader, STATUS_CANCELLED);
    if (c != NULL)
        conversation_close(c, WATCH_CLOSED, "its request is answered");
    t->is_busy = false;
}

static enum status embedding_turn_begin(struct embedding_turn *t, size_t input, struct error *err)
{
    struct embeddings *e = t->of;
    const struct embedding_input *in = &e->request.inputs[input];
    const struct open_request nothing = {.principal = e->request.principal, .system = ""};
    const struct message message = {.role = ROLE_USER, .text = in->text, .len = in->len};
    const struct turn_request r = {
        .messages = &message,
        .n_messages = in->text != NULL,
        .is_plain = true,
        .plain_ids = in->ids,
        .n_plain_ids = in->text != NULL ? 0 : in->n_ids,
        .wants = {.pooling = e->request.pooling, .no_reply = true, .is_counted = input > 0},
        .deadline_us = e->request.deadline_us,
    };
    struct conversation *c;
    enum status rc = conversation_open(&c, e->all, e->request.model, &nothing, err);

    if (rc != STATUS_OK)
        return rc;
    t->input = input;
    t->conversation = c->id;
    reader_init(&t->reader, embedding_notify, t);
    rc = conversation_turn(c, &r, &t->reader, err);
    t->is_busy = rc == STATUS_OK;
    if (rc == STATUS_OK)
        return rc;
    conversation_close(c, WATCH_CLOSED, "its request was refused");
    return rc == STATUS_EXHAUSTED || rc == STATUS_UNAVAILABLE ? rc : name_input(e, input, err);
}

/* The first values of the model's, scaled to length 1; sums in f64, in order. */
static void embedding_take_values(const struct embeddings *e, const float *from, float *out)
{
    double sum = 0, factor = 1;

    for (size_t i = 0; i < e->width; i++)
        sum += (double)from[i] * (double)from[i];
    if (!e->request.keeps_length && sum > 0)
        factor = 1 / sqrt(sum);
    for (size_t i = 0; i < e->width; i++)
        out[i] = (float)((double)from[i] * factor);
}

static enum status embedding_turn_take(struct embedding_turn *t, struct error *err)
{
    struct embeddings *e = t->of;
    const struct completed_turn *done = t->reader.completed;
    const struct error *failure = reader_failure(&t->reader);

    if (failure != NULL) {
        *err = *failure;
        return err->status;
    }
    if (done->results == NULL) /* its conversation was closed by another call */
        return error_set(err, STATUS_CANCELLED, "the request was cancelled");
    embedding_take_values(e, done->results->embedding, e->values + t->input * e->width);
    e->n_tokens += done->usage.n_prompt;
    e->n_cached += done->usage.n_cached;
    e->n_done++;
    embedding_turn_end(t);
    return STATUS_OK;
}

/* Begins inputs as long as there is room. */
static enum status embeddings_begin(struct embeddings *e, struct error *err)
{
    for (size_t i = 0; i < IN_FLIGHT_MAX && e->n_begun < e->request.n_inputs; i++) {
        struct embedding_turn *t = &e->turns[i];
        enum status rc;

        if (t->is_busy)
            continue;
        rc = embedding_turn_begin(t, e->n_begun, err);
        if (rc == STATUS_EXHAUSTED && e->n_begun > e->n_done)
            return STATUS_OK; /* those in flight make room */
        if (rc != STATUS_OK)
            return rc;
        e->n_begun++;
    }
    return STATUS_OK;
}

enum status embeddings_open(struct embeddings **out, struct conversations *all,
                            const struct embeddings_request *r, void (*notify)(void *arg),
                            void *arg, struct error *err)
{
    const struct agent_info *info = &r->model->info;
    size_t width = r->dimensions == 0 ? info->text.n_embedding : r->dimensions, n_values;
    struct embeddings *e;

    if (info->text.n_embedding == 0)
        return error_because(err, STATUS_UNIMPLEMENTED, REASON_MODEL_UNSUITABLE, "model",
                             "model '%s' does not compute embeddings", r->model->name);
    if (width > info->text.n_embedding)
        return error_field(err, "dimensions", "is %zu, an embedding of '%s' has %zu", width,
                           r->model->name, info->text.n_embedding);
    n_values = r->n_inputs * width;
    e = try_alloc(1, sizeof(*e) + n_values * sizeof(e->values[0]));
    if (e == NULL)
        return error_no_memory(err, n_values * sizeof(e->values[0]), "embeddings");
    e->all = all;
    e->request = *r;
    if (r->pooling == POOLING_NONE)
        e->request.pooling = info->text.pooling;
    e->notify = notify;
    e->arg = arg;
    e->width = width;
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++)
        e->turns[i].of = e;
    model_hold(r->model);
    if (embeddings_begin(e, err) != STATUS_OK) {
        embeddings_close(e);
        return err->status;
    }
    *out = e;
    return STATUS_OK;
}

void embeddings_close(struct embeddings *e)
{
    if (e == NULL)
        return;
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++)
        if (e->turns[i].is_busy)
            embedding_turn_end(&e->turns[i]);
    model_release(e->request.model);
    free(e);
}

enum status embeddings_advance(struct embeddings *e, bool *ret_is_done, struct error *err)
{
    for (size_t i = 0; i < IN_FLIGHT_MAX; i++) {
        struct embedding_turn *t = &e->turns[i];

        if (t->is_busy && t->reader.turn == NULL && embedding_turn_take(t, err) != STATUS_OK)
            return name_input(e, t->input, err);
    }
    if (embeddings_begin(e, err) != STATUS_OK)
        return err->status;
    *ret_is_done = e->n_done == e->request.n_inputs;
    return STATUS_OK;
}

const float *embeddings_values(const struct embeddings *e, size_t i)
{
    return e->values + i * e->width;
}

size_t embeddings_width(const struct embeddings *e)
{
    return e->width;
}

uint64_t embeddings_n_tokens(const struct embeddings *e)
{
    return e->n_tokens;
}

uint64_t embeddings_n_cached(const struct embeddings *e)
{
    return e->n_cached;
}
