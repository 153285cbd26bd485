/* The happy path: inference_begin reads the request and begins its turn or step, or waits for its
 * slot in the sequence (on_turn). The reader or the step's waiter notifies it. inference_next makes
 * the responses, and leaves the sequence with the last one, so that the next request begins.
 * inference_end releases everything. */
#include "server/api/kserve/inference.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "server/conversation/conversation.h"
#include "server/model/models.h"
#include "server/server.h"

static struct inference *of_slot(struct sequence_slot *item)
{
    return container_of(item, struct inference, slot);
}

static void on_reader(void *arg)
{
    struct inference *in = arg;

    in->notify(in);
}

static void on_step(struct step_wait *w, struct step_reply *reply, const struct error *err)
{
    struct inference *in = container_of(w, struct inference, step);

    in->is_over = true;
    in->err = *err;
    in->reply = reply == NULL ? NULL : step_reply_ref(reply);
    in->notify(in);
}

/* --- start --- */

static enum status inference_begin_turn(struct inference *in, struct error *err)
{
    const struct message said = {
        .role = ROLE_USER, .text = in->request.text.text, .len = in->request.text.len};
    const struct turn_request r = {
        .number = in->request.turn,
        .messages = &said,
        .n_messages = said.len > 0,
        .overrides = in->request.overrides,
        .deadline_us = in->deadline_us,
        .resume = in->request.resume,
    };
    const struct open_request open = {.principal = in->principal,
                                      .limits.priority = in->request.priority};
    struct conversation *c;
    enum status rc;

    if (in->slot.sequence != NULL)
        return sequence_turn(&in->slot, &r, in->request.priority, &in->reader, err);
    rc = conversation_open(&c, in->server->conversations, in->model, &open, err);
    if (rc != STATUS_OK)
        return rc;
    in->own = c->id;
    in->has_own = true;
    return conversation_turn(c, &r, &in->reader, err);
}

/* The step has its own arena, with a copy of the observation, because the session takes it. */
static enum status inference_begin_step(struct inference *in, struct error *err)
{
    size_t n = (size_t)in->signature.inputs[0].dim, size_bytes = n * sizeof(float);
    const struct sampling_overrides *overrides = in->request.overrides;
    struct step_request r = {.principal = in->principal,
                             .deadline_us = in->deadline_us,
                             .priority = in->request.priority};
    struct step_reply *stored;
    struct tensor_view *view;
    struct arena arena;
    enum status rc;
    float *copy;

    arena_init(&arena, in->server->conversations->config.max_arena_bytes);
    view = arena_alloc(&arena, 1, sizeof(*view));
    copy = arena_alloc(&arena, n, sizeof(*copy));
    if (view == NULL || copy == NULL) {
        arena_deinit(&arena);
        return error_no_memory(err, size_bytes, "an observation");
    }
    memcpy(copy, in->request.observation, size_bytes);
    *view = (struct tensor_view){.name = "observation",
                                 .type = TENSOR_F32,
                                 .n_dims = 1,
                                 .dims = {(int64_t)n},
                                 .data = copy,
                                 .size_bytes = size_bytes};
    r.observation = view;
    r.n_observation = 1;
    if (in->slot.sequence != NULL) {
        rc = sequence_step(&in->slot, &r, &arena, &in->step, err);
    } else {
        uint64_t number = ++in->server->sequences->n_inferences;

        (void)snprintf(in->own_env, sizeof(in->own_env), "request/%llu",
                       (unsigned long long)number);
        r.model = in->model;
        r.env_id = in->own_env;
        /* The run id seeds the draws. */
        r.run_id = overrides != NULL && (overrides->given & SAMPLING_SEED) != 0
                       ? overrides->values.seed
                       : number;
        r.seq = 1;
        rc = sessions_step(in->server->sessions, &r, &arena, &in->step, &stored, err);
    }
    arena_deinit(&arena); /* empty when it was taken */
    return rc;
}

static enum status inference_begin_embeddings(struct inference *in, struct error *err)
{
    const struct embeddings_request r = {
        .principal = in->principal,
        .model = in->model,
        .inputs = in->request.texts,
        .n_inputs = in->request.n_texts,
        .dimensions = in->request.dimensions,
        .deadline_us = in->deadline_us,
    };
    enum status rc =
        embeddings_open(&in->embeddings, in->server->conversations, &r, on_reader, in, err);

    if (rc != STATUS_OK && strcmp(err->field, "input") == 0)
        (void)error_name_field(err, in->signature.inputs[KSERVE_TEXT_INPUT].name);
    return rc;
}

static enum status inference_start(struct inference *in, struct error *err)
{
    enum status rc = in->signature.is_policy      ? inference_begin_step(in, err)
                     : in->signature.is_embedding ? inference_begin_embeddings(in, err)
                                                  : inference_begin_turn(in, err);

    in->has_begun = rc == STATUS_OK;
    return rc;
}

/* Earlier requests of the sequence are done. */
static void on_turn(struct sequence_slot *item)
{
    struct inference *in = of_slot(item);

    if (inference_start(in, &in->err) != STATUS_OK)
        in->is_over = true;
    in->notify(in);
}

static enum status inference_find_model(struct inference *in,
                                        const Inference__ModelInferRequest *message,
                                        struct error *err)
{
    enum status rc;

    models_request(in->server->models, message->model_name);
    rc = models_get(&in->model, in->server->models, message->model_name, err);

    if (rc != STATUS_OK)
        return error_name_field(err, "model_name");
    rc = model_check_ready(in->model, err);
    if (rc == STATUS_OK && message->model_version[0] != '\0' &&
        strcmp(message->model_version, KSERVE_VERSION) != 0)
        rc = error_because(err, STATUS_NOT_FOUND, REASON_MODEL_NOT_FOUND, "model_version",
                           "model '%.40s' has no version '%.20s', there is: " KSERVE_VERSION,
                           in->model->name, message->model_version);
    return rc;
}

static enum status inference_take_slot(struct inference *in, struct error *err)
{
    const struct kserve_request *r = &in->request;

    if (r->sequence == NULL)
        return inference_start(in, err);
    in->slot.begin = on_turn;
    if (sequences_enter(in->server->sequences, in->principal, in->model, r->sequence, r->starts,
                        r->ends, &in->slot, err) != STATUS_OK) {
        statistics_refuse(&in->model->statistics, err->status);
        return err->status;
    }
    return sequence_slot_is_first(&in->slot) ? inference_start(in, err) : STATUS_OK;
}

enum status inference_begin(struct inference *in, struct server *server, uint32_t principal,
                            const Inference__ModelInferRequest *message, uint64_t deadline_us,
                            struct arena *arena, void (*notify)(struct inference *in),
                            struct error *err)
{
    uint64_t due_us;
    enum status rc;

    in->server = server;
    in->principal = principal;
    in->notify = notify;
    in->id = message->id;
    in->model_name = message->model_name;
    in->step.done = on_step;
    reader_init(&in->reader, on_reader, in);
    rc = inference_find_model(in, message, err);
    if (rc != STATUS_OK)
        return rc;
    kserve_signature_for(&in->signature, &in->model->info, message);
    in->model_name = arena_strndup(arena, in->model->name, strlen(in->model->name));
    if (in->model_name == NULL)
        return error_no_memory(err, strlen(in->model->name), "a request");
    rc = kserve_request_read(&in->request, message, &in->signature, in->model_name, arena, err);
    if (rc != STATUS_OK) {
        statistics_refuse(&in->model->statistics, rc);
        return rc;
    }
    due_us = in->request.timeout_us == 0 ? 0 : env_now_us(server->env) + in->request.timeout_us;
    if (in->request.turn != 0)
        deadline_us = 0; /* the call's: its turn can be asked for again */
    in->deadline_us =
        deadline_us == 0 || (due_us != 0 && due_us < deadline_us) ? due_us : deadline_us;
    rc = inference_take_slot(in, err);
    if (rc != STATUS_OK)
        sequence_leave(&in->slot);
    return rc;
}

/* --- responses --- */

static void open_response(const struct inference *in, struct inference_response *out)
{
    inference__model_infer_response__init(&out->message);
    out->message.model_name = (char *)in->model_name;
    out->message.model_version = (char *)KSERVE_VERSION;
    out->message.id = (char *)in->id;
    out->message.outputs = out->output_list;
    out->message.raw_output_contents = out->raw;
    out->message.parameters = out->parameter_list;
}

static Inference__InferParameter *add_parameter(struct inference_response *out, const char *key)
{
    size_t i = out->message.n_parameters++;

    assert(i < INFERENCE_MAX_PARAMETERS);
    inference__model_infer_response__parameters_entry__init(&out->parameters[i]);
    inference__infer_parameter__init(&out->values[i]);
    out->parameters[i].key = (char *)key;
    out->parameters[i].value = &out->values[i];
    out->parameter_list[i] = &out->parameters[i];
    return &out->values[i];
}

static void add_number(struct inference_response *out, const char *key, uint64_t value)
{
    Inference__InferParameter *p = add_parameter(out, key);

    p->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    p->int64_param = (int64_t)value;
}

static void add_text(struct inference_response *out, const char *key, const char *value)
{
    Inference__InferParameter *p = add_parameter(out, key);

    p->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    p->string_param = (char *)value;
}

static void add_final(struct inference_response *out, bool is_final)
{
    Inference__InferParameter *p = add_parameter(out, "triton_final_response");

    p->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    p->bool_param = is_final;
}

static void add_output(const struct inference *in, struct inference_response *out, size_t which,
                       const void *data, size_t size_bytes)
{
    const struct kserve_tensor *t = &in->signature.outputs[which];
    size_t i = out->message.n_outputs;
    Inference__ModelInferResponse__InferOutputTensor *tensor = &out->outputs[i];

    if (!in->request.wants[which])
        return;
    inference__model_infer_response__infer_output_tensor__init(tensor);
    tensor->name = (char *)t->name;
    tensor->datatype = (char *)t->datatype;
    tensor->shape = t->has_rows ? (int64_t *)in->shape : (int64_t *)&t->dim;
    tensor->n_shape = t->has_rows ? 2 : 1;
    out->output_list[i] = tensor;
    out->raw[i] = (ProtobufCBinaryData){.len = size_bytes, .data = (uint8_t *)data};
    out->message.n_outputs = out->message.n_raw_output_contents = i + 1;
}

/* An element of BYTES: its length in 4 bytes, then its data. */
static enum status add_text_output(struct inference *in, struct inference_response *out,
                                   const char *text, size_t len, struct arena *arena)
{
    uint8_t *raw = arena_alloc(arena, len + 4, 1);

    if (raw == NULL)
        return error_no_memory(&in->err, len + 4, "a response");
    for (size_t i = 0; i < 4; i++)
        raw[i] = (uint8_t)(len >> 8 * i);
    if (len > 0)
        memcpy(raw + 4, text, len);
    add_output(in, out, 0, raw, len + 4);
    return STATUS_OK;
}

/* On a stream the message names the request and its final status. */
static enum inference_said inference_fail(struct inference *in, struct inference_response *out)
{
    in->is_over = true;
    open_response(in, out);
    add_final(out, true);
    add_text(out, "status", status_name(in->err.status));
    sequence_leave(&in->slot);
    return INFERENCE_FAILED;
}

static enum inference_said say_step(struct inference *in, bool is_stream,
                                    struct inference_response *out)
{
    const struct step_reply *r = in->reply;

    if (!in->is_over)
        return INFERENCE_NOTHING;
    if (r == NULL)
        return inference_fail(in, out);
    open_response(in, out);
    for (size_t i = 0; i < r->n_tensors; i++)
        for (size_t which = 0; which < in->signature.n_outputs; which++)
            if (strcmp(r->tensors[i].name, in->signature.outputs[which].name) == 0)
                add_output(in, out, which, r->tensors[i].data, r->tensors[i].size_bytes);
    add_number(out, "params_version", r->params_version);
    add_number(out, "batch_size", r->batch_rows);
    add_number(out, "queue_us", r->queue_us);
    if (is_stream)
        add_final(out, true);
    sequence_leave(&in->slot);
    return INFERENCE_LAST;
}

static enum inference_said say_embeddings(struct inference *in, bool is_stream,
                                          struct inference_response *out)
{
    const struct embeddings *e = in->embeddings;
    bool is_done = false;

    if (in->is_over)
        return INFERENCE_NOTHING;
    if (embeddings_advance(in->embeddings, &is_done, &in->err) != STATUS_OK)
        return inference_fail(in, out);
    if (!is_done)
        return INFERENCE_NOTHING;
    in->is_over = true;
    in->shape[0] = (int64_t)in->request.n_texts;
    in->shape[1] = (int64_t)embeddings_width(e);
    open_response(in, out);
    add_output(in, out, 0, embeddings_values(e, 0),
               in->request.n_texts * embeddings_width(e) * sizeof(float));
    add_number(out, "prompt_tokens", embeddings_n_tokens(e));
    add_number(out, "cached_tokens", embeddings_n_cached(e));
    if (is_stream)
        add_final(out, true);
    return INFERENCE_LAST;
}

static void add_ending(struct inference_response *out, const struct completed_turn *r)
{
    add_text(out, "finish_reason", finish_name(r->finish));
    add_number(out, "prompt_tokens", r->usage.n_prompt);
    add_number(out, "cached_tokens", r->usage.n_cached);
    add_number(out, "completion_tokens", r->usage.n_completion);
}

/* The place behind this response, from which a broken stream goes on. */
static void add_cursor(struct inference *in, struct inference_response *out)
{
    (void)snprintf(in->cursor, sizeof(in->cursor), "%u.%u.%llu", in->generation, in->request.turn,
                   (unsigned long long)in->next_index);
    add_text(out, "cursor", in->cursor);
}

/* Reads the next event: a text to send, or the end. */
static enum inference_said next_text(struct inference *in, struct text *out)
{
    struct turn_event event;

    *out = (struct text){.text = "", .len = 0};
    while (reader_next(&in->reader, &event)) {
        switch (event.kind) {
        case EVENT_ACCEPTED:
            in->generation = event.generation;
            in->request.turn = in->request.turn == 0 ? 0 : event.number;
            break;
        case EVENT_PROGRESS:
            break;
        case EVENT_PIECE:
            in->next_index = event.piece.next_index;
            if (event.piece.len == 0)
                break; /* an incomplete character */
            *out = (struct text){.text = event.piece.text, .len = event.piece.len};
            return INFERENCE_PART;
        case EVENT_DONE:
            return INFERENCE_LAST;
        case EVENT_FAILED:
            in->err = *event.err;
            return INFERENCE_FAILED;
        }
    }
    return INFERENCE_NOTHING;
}

/* Sends the reply in parts as they come. The final response is empty if requested, else it has an
 * empty text, because a text is sent before it is known to be the last. */
static enum inference_said say_part(struct inference *in, struct inference_response *out,
                                    struct arena *arena)
{
    struct text text;
    enum inference_said said = next_text(in, &text);
    bool is_last = said == INFERENCE_LAST;

    if (said == INFERENCE_NOTHING)
        return said;
    if (said == INFERENCE_FAILED)
        return inference_fail(in, out);
    open_response(in, out);
    if ((!is_last || !in->request.wants_empty_final) &&
        add_text_output(in, out, text.text, text.len, arena) != STATUS_OK)
        return inference_fail(in, out);
    add_final(out, is_last);
    if (in->request.turn != 0)
        add_cursor(in, out);
    if (!is_last)
        return said;
    in->is_over = true;
    add_ending(out, in->reader.completed);
    sequence_leave(&in->slot);
    return said;
}

/* Sends the complete reply as a whole. */
static enum inference_said say_whole(struct inference *in, bool is_stream,
                                     struct inference_response *out, struct arena *arena)
{
    const struct completed_turn *r;
    struct text ignored;
    enum inference_said said;

    do
        said = next_text(in, &ignored);
    while (said == INFERENCE_PART);
    if (said == INFERENCE_NOTHING)
        return said;
    if (said == INFERENCE_FAILED)
        return inference_fail(in, out);
    r = in->reader.completed;
    open_response(in, out);
    if (add_text_output(in, out, r->text, r->len, arena) != STATUS_OK)
        return inference_fail(in, out);
    if (is_stream)
        add_final(out, true);
    add_ending(out, r);
    in->is_over = true;
    sequence_leave(&in->slot);
    return INFERENCE_LAST;
}

enum inference_said inference_next(struct inference *in, bool is_stream,
                                   struct inference_response *out, struct arena *arena)
{
    out->message = (Inference__ModelInferResponse){0};
    if (!in->has_begun)
        return in->is_over ? inference_fail(in, out) : INFERENCE_NOTHING;
    if (in->signature.is_policy)
        return say_step(in, is_stream, out);
    if (in->signature.is_embedding)
        return say_embeddings(in, is_stream, out);
    if (is_stream && in->request.wants_stream && in->signature.is_decoupled)
        return say_part(in, out, arena);
    return say_whole(in, is_stream, out, arena);
}

bool inference_has_more(const struct inference *in)
{
    if (!in->has_begun || in->signature.is_policy)
        return in->is_over;
    if (in->signature.is_embedding)
        return !in->is_over;
    return reader_has_more(&in->reader);
}

void inference_end(struct inference *in, enum status why)
{
    struct conversation *c;

    embeddings_close(in->embeddings);
    in->embeddings = NULL;
    if (in->has_begun && !in->signature.is_policy && !in->signature.is_embedding)
        reader_close(&in->reader, why);
    step_wait_leave(&in->step);
    step_reply_unref(in->reply);
    in->reply = NULL;
    sequence_leave(&in->slot);
    if (in->has_own) {
        c = conversations_get(in->server->conversations, &in->own);
        if (c != NULL)
            conversation_close(c, WATCH_CLOSED, "its request ended");
    }
    if (in->own_env[0] != '\0')
        sessions_end(in->server->sessions, in->principal, in->model, in->own_env);
}
