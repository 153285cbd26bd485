/* Foreign bytes as the request of any method. The first byte picks the method; the rest is the
 * client's bytes. A decoded message has only valid text, survives encoding and decoding, and passes
 * through the server's conversions. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agents/reply/reply_format.h"
#include "base/utf8.h"
#include "parley/v1/act.pb-c.h"
#include "proto/codec.h"
#include "server/act/session.h"
#include "server/api/kserve/request.h"
#include "server/api/parley/agents_wire.h"
#include "server/api/parley/environment_wire.h"
#include "server/api/parley/params_wire.h"
#include "server/api/parley/wire.h"
#include "server/api/parley/wire_tensor.h"
#include "server/api/services.h"
#include "tests/fuzz/target.h"

enum { ARENA_BYTES = 1 << 20, MAX_FIELDS = 1000 };

static size_t check_message(const ProtobufCMessage *m);

/* Returns how many fields the value has inside. */
static size_t check_value(const ProtobufCFieldDescriptor *field, const void *value)
{
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        const ProtobufCMessage *inner = *(const ProtobufCMessage *const *)value;

        return inner == NULL ? 0 : check_message(inner);
    } else if (field->type == PROTOBUF_C_TYPE_STRING) {
        const char *text = *(const char *const *)value;

        assert(text == NULL || utf8_is_valid(text, strlen(text)));
    }
    return 0;
}

/* Returns how many of its fields took memory: values of repeated ones, and unknown ones. */
static size_t check_message(const ProtobufCMessage *m)
{
    size_t n_fields = m->n_unknown_fields;

    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &m->descriptor->fields[i];
        const char *at = (const char *)m + field->offset;

        if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF &&
            *(const uint32_t *)((const char *)m + field->quantifier_offset) != field->id)
            continue;
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            n_fields += check_value(field, at);
        } else if (field->type == PROTOBUF_C_TYPE_MESSAGE ||
                   field->type == PROTOBUF_C_TYPE_STRING) {
            size_t n = *(const size_t *)((const char *)m + field->quantifier_offset);
            void *const *values = *(void *const *const *)at;

            for (size_t k = 0; k < n; k++)
                n_fields += 1 + check_value(field, &values[k]);
        }
    }
    return n_fields;
}

/* A view's size matches its shape, and it is encoded as it was decoded. */
static void check_tensor(const struct tensor_view *view, const Parley__V1__Tensor *from)
{
    Parley__V1__Tensor back;
    size_t n;
    struct error err;

    assert(tensor_check(view, &n, &err) == STATUS_OK);
    assert(n * tensor_type_size(view->type) == from->data.len);
    wire_tensor(&back, view);
    assert(back.dtype == from->dtype && back.n_shape == from->n_shape);
    assert(n == 0 || memcmp(back.data.data, from->data.data, from->data.len) == 0);
}

/* Reading without the decoder gives the decoder's result, however the slices divide the bytes. */
static void check_part(const ProtobufCMessageDescriptor *type, const ProtobufCMessage *m,
                       const uint8_t *data, size_t size, struct arena *arena)
{
    struct iovec pieces[2] = {{(void *)(uintptr_t)data, size / 3},
                              {(void *)(uintptr_t)(data + size / 3), size - size / 3}};
    const struct call_bytes bytes = {pieces, 2, size, NULL};
    const Parley__V1__ParamsChunk *chunk;
    struct params_part part;
    struct error err = {0};
    enum status rc;
    uint8_t *copy;
    size_t at;

    if (type != &parley__v1__params_upload__descriptor &&
        type != &parley__v1__params_create_request__descriptor)
        return;
    rc = params_part_read(&part, &bytes, type, arena, &err);
    assert(rc == STATUS_OK || (rc == err.status && err.text[0] != '\0'));
    if (rc != STATUS_OK || part.kind != PARAMS_PART_CHUNK)
        return;
    assert(m != NULL);
    chunk = type == &parley__v1__params_upload__descriptor
                ? ((const Parley__V1__ParamsUpload *)m)->chunk
                : ((const Parley__V1__ParamsCreateRequest *)m)->chunk;
    assert(chunk->offset == part.chunk.offset && chunk->crc32c == part.chunk.crc);
    assert(chunk->data.len == part.chunk.size_bytes);
    copy = malloc(chunk->data.len + 1);
    assert(copy != NULL);
    (void)chunk_copy(copy, &part.chunk, pieces, NULL, NULL);
    for (at = 0; at < chunk->data.len; at++)
        assert(copy[at] == chunk->data.data[at]);
    free(copy);
}

static enum status convert_params(const ProtobufCMessage *m, struct arena *arena, struct error *err)
{
    const struct tensor_view *tensors;
    struct params_spec spec;
    enum status rc = STATUS_OK;

    if (m->descriptor == &parley__v1__params_create_request__descriptor) {
        const Parley__V1__ParamsCreateRequest *r = (const Parley__V1__ParamsCreateRequest *)m;

        if (r->what_case != PARLEY__V1__PARAMS_CREATE_REQUEST__WHAT_CONFIG)
            return STATUS_OK;
        rc = params_wire_config(&spec, r->config, arena, err);
        if (rc == STATUS_OK)
            rc = params_spec_check(&spec, err);
    } else if (m->descriptor == &parley__v1__params_upload__descriptor) {
        const Parley__V1__ParamsUpload *r = (const Parley__V1__ParamsUpload *)m;

        if (r->what_case == PARLEY__V1__PARAMS_UPLOAD__WHAT_HEADER)
            rc = params_wire_tensors(&tensors, r->header->specs, r->header->n_specs, arena, err);
    }
    return rc;
}

/* The same to a model of embeddings. */
static enum status convert_rows(const Inference__ModelInferRequest *r, struct arena *arena,
                                struct error *err)
{
    const struct agent_info info = {.kind = "lm",
                                    .architecture = "",
                                    .backend = "",
                                    .text = {.n_embedding = 4, .is_embedder = true}};
    struct kserve_signature sig;
    struct kserve_request out;
    enum status rc;

    kserve_signature(&sig, &info);
    rc = kserve_request_read(&out, r, &sig, "model", arena, err);
    for (size_t i = 0; rc == STATUS_OK && i < out.n_texts; i++)
        assert(out.texts[i].len > 0 && utf8_is_valid(out.texts[i].text, out.texts[i].len));
    assert(rc != STATUS_OK || (out.n_texts > 0 && out.sequence == NULL));
    return rc;
}

/* The requests of KServe's clients, to a model that speaks and to one that acts. */
static enum status convert_inference(const Inference__ModelInferRequest *r, bool is_policy,
                                     struct arena *arena, struct error *err)
{
    const struct agent_info info = {.kind = is_policy ? "policy" : "lm",
                                    .architecture = "",
                                    .backend = "",
                                    .acting.n_observations = is_policy ? 4 : 0};
    struct kserve_signature sig;
    struct kserve_request out;
    enum status rc;

    kserve_signature(&sig, &info);
    rc = kserve_request_read(&out, r, &sig, "model", arena, err);
    if (rc != STATUS_OK)
        return rc;
    if (is_policy)
        assert(memcmp(out.observation, out.observation, 4 * sizeof(float)) == 0);
    else
        assert(out.text.len > 0 && utf8_is_valid(out.text.text, out.text.len) &&
               strlen(out.text.text) == out.text.len);
    assert(out.priority >= -100 && out.priority <= 100);
    assert(out.sequence == NULL || out.sequence[0] != '\0');
    return STATUS_OK;
}

/* What a worker sends, before it is compared with the step that it answers. */
static enum status convert_worker(const Parley__V1__AgentsAttachRequest *r, struct arena *arena,
                                  struct error *err)
{
    struct remote_answer *answers;
    struct remote_offer offer;
    struct host_answer answer;
    enum status rc = STATUS_OK;

    if (r->what_case == PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_OFFER) {
        rc = agents_wire_offer(&offer, r->offer, err);
    } else if (r->what_case == PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_RESULT) {
        rc = agents_wire_result(&answers, r->result, arena, err);
        for (size_t i = 0; rc == STATUS_OK && i < r->result->n_rows; i++)
            assert((answers[i].outcome == ROW_FAILED) == (answers[i].err.status != STATUS_OK));
    } else if (r->what_case == PARLEY__V1__AGENTS_ATTACH_REQUEST__WHAT_ENV_RESULT) {
        rc = environment_wire_answer(&answer, r->env_result, arena, err);
        if (rc == STATUS_OK && r->env_result->observation != NULL)
            check_tensor(&answer.observation, r->env_result->observation);
        assert(rc != STATUS_OK || answer.n_failures == r->env_result->n_failures);
    }
    return rc;
}

static void convert(const ProtobufCMessage *m, struct arena *arena)
{
    struct error err = {0};
    struct turn_request turn;
    struct open_request open;
    struct update_request update;
    const struct tensor_view *tensors;
    const struct pair *pairs;
    struct reply_format format;
    enum status rc = STATUS_OK;

    reply_format_find(&format, "tools <tool_call> <think>", 25, true);
    if (m->descriptor == &parley__v1__turn_request__descriptor) {
        rc = wire_turn(&turn, (const Parley__V1__TurnRequest *)m, &format, arena, &err);
    } else if (m->descriptor == &parley__v1__chat_request__descriptor) {
        const Parley__V1__ChatRequest *chat = (const Parley__V1__ChatRequest *)m;

        if (chat->turn != NULL)
            rc = wire_turn(&turn, chat->turn, &format, arena, &err);
    } else if (m->descriptor == &parley__v1__conversations_open_request__descriptor) {
        rc = wire_open(&open, (const Parley__V1__ConversationsOpenRequest *)m, arena, &err);
    } else if (m->descriptor == &parley__v1__conversations_update_request__descriptor) {
        rc = wire_update(&update, (const Parley__V1__ConversationsUpdateRequest *)m, arena, &err);
    } else if (m->descriptor == &parley__v1__conversations_fork_request__descriptor) {
        rc = wire_fork_metadata(&pairs, (const Parley__V1__ConversationsForkRequest *)m, arena,
                                &err);
    } else if (m->descriptor == &parley__v1__act_step_request__descriptor) {
        const Parley__V1__ActStepRequest *step = (const Parley__V1__ActStepRequest *)m;

        rc = wire_tensors(&tensors, step->observation, step->n_observation, STEP_MAX_TENSORS,
                          "observation", arena, &err);
        for (size_t i = 0; rc == STATUS_OK && i < step->n_observation; i++)
            check_tensor(&tensors[i], step->observation[i]);
    } else if (m->descriptor == &parley__v1__agents_attach_request__descriptor) {
        rc = convert_worker((const Parley__V1__AgentsAttachRequest *)m, arena, &err);
    } else if (m->descriptor == &inference__model_infer_request__descriptor) {
        const Inference__ModelInferRequest *r = (const Inference__ModelInferRequest *)m;

        rc = convert_inference(r, true, arena, &err);
        assert(rc == STATUS_OK || (rc == err.status && err.text[0] != '\0'));
        rc = convert_rows(r, arena, &err);
        assert(rc == STATUS_OK || (rc == err.status && err.text[0] != '\0'));
        rc = convert_inference(r, false, arena, &err);
    }
    if (rc == STATUS_OK)
        rc = convert_params(m, arena, &err);
    assert(rc == STATUS_OK || (rc == err.status && err.text[0] != '\0'));
}

/* Its own bytes, decoded and encoded once more, are the same. */
static void round_trip(const ProtobufCMessage *m)
{
    size_t size = codec_size(m);
    uint8_t *first = malloc(size + 1), *second = malloc(size + 1);
    ProtobufCMessage *again = NULL;
    struct arena arena;
    struct error err;
    enum status rc;

    assert(first != NULL && second != NULL);
    arena_init(&arena, 4 * ARENA_BYTES);
    assert(codec_encode(m, first) == size);
    rc = codec_decode(&again, m->descriptor, first, size, MAX_FIELDS, &arena, &err);
    assert(rc == STATUS_OK && codec_size(again) == size);
    assert(codec_encode(again, second) == size && memcmp(first, second, size) == 0);
    arena_deinit(&arena);
    free(first);
    free(second);
}

/* The methods of all services are numbered consecutively. */
static const ProtobufCMessageDescriptor *type_of(size_t number)
{
    size_t n, n_rows = 0, i = 0;
    const struct call_table *const *services = services_tables(&n);

    for (size_t k = 0; k < n; k++)
        n_rows += services[k]->n;
    for (number %= n_rows; number >= services[i]->n; i++)
        number -= services[i]->n;
    return services[i]->rows[number].request;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    const ProtobufCMessageDescriptor *type;
    ProtobufCMessage *m = NULL;
    struct arena arena;
    struct error err = {0};
    enum status rc;

    if (size_bytes == 0)
        return 0;
    type = type_of(data[0]);
    arena_init(&arena, ARENA_BYTES);
    rc = codec_decode(&m, type, data + 1, size_bytes - 1, MAX_FIELDS, &arena, &err);
    check_part(type, m, data + 1, size_bytes - 1, &arena);
    if (rc == STATUS_OK) {
        assert(m->descriptor == type);
        assert(check_message(m) <= MAX_FIELDS);
        convert(m, &arena);
        round_trip(m);
    } else {
        assert(rc == STATUS_INVALID || rc == STATUS_EXHAUSTED);
        assert(m == NULL && rc == err.status && err.text[0] != '\0');
    }
    arena_deinit(&arena);
    return 0;
}
