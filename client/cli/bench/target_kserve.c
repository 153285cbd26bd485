/* A server of KServe v2 over gRPC (Triton, parleyd): each turn is one ModelInfer, with inputs as
 * the model's metadata describe them: texts where they are BYTES, else numbers drawn once. Optional
 * inputs are left out. The response is the reply's one chunk; nobody counts its tokens.
 *
 * Happy path: send packs the request and starts a unary call; its callback, on libparley's thread,
 * ends the turn. Leaving cancels a call in flight. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/counter_rng.h"
#include "base/list.h"
#include "client/cli/bench/target.h"
#include "client/cli/connection.h"
#include "client/cli/output/console.h"
#include "client/lib/parley.h"
#include "inference/grpc_service.pb-c.h"

enum {
    INFER_TIMEOUT_MS = 10 * 60 * 1000,
    MAX_DIMS = 8,
    MAX_INPUT_BYTES = 64 << 20,
    MAX_INPUTS = 32,
};

struct kserve_input {
    char *name, *datatype;
    int64_t shape[MAX_DIMS];
    size_t n_dims;
    bool is_text;
    size_t n;          /* elements */
    struct buf values; /* of numbers, as they are sent */
};

struct kserve_target {
    struct target base;
    struct parley_channel *channel;
    const char *model;
    struct kserve_input inputs[MAX_INPUTS];
    size_t n_inputs;
    pthread_mutex_t lock; /* guards the calls of the sessions */
};

struct kserve_session {
    struct target_session base;
    struct kserve_target *target;
    struct parley_call *call; /* in flight; NULL: none */
};

static struct kserve_target *kserve_target_of(struct target *t)
{
    return container_of(t, struct kserve_target, base);
}

static struct kserve_session *kserve_session_of(struct target_session *s)
{
    return container_of(s, struct kserve_session, base);
}

/* --- a turn --- */

/* Elements of BYTES: the length in four bytes, little end first, then the text. */
static enum status put_texts(struct buf *out, const char *text, size_t n)
{
    size_t len = strlen(text);
    const unsigned char head[4] = {(unsigned char)len, (unsigned char)(len >> 8),
                                   (unsigned char)(len >> 16), (unsigned char)(len >> 24)};
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < n; i++) {
        rc = buf_append(out, head, sizeof head);
        if (rc == STATUS_OK)
            rc = buf_append(out, text, len);
    }
    return rc;
}

/* Packs the request of one inference into out. */
static enum status pack_request(const struct kserve_target *t, const char *text, struct buf *out)
{
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    Inference__ModelInferRequest__InferInputTensor inputs[MAX_INPUTS], *pointers[MAX_INPUTS];
    ProtobufCBinaryData raw[MAX_INPUTS];
    enum status rc = STATUS_OK;
    struct buf texts;
    uint8_t *bytes;
    size_t len;

    buf_init(&texts, MAX_INPUT_BYTES);
    for (size_t i = 0; i < t->n_inputs; i++) {
        const struct kserve_input *in = &t->inputs[i];

        inference__model_infer_request__infer_input_tensor__init(&inputs[i]);
        inputs[i].name = in->name;
        inputs[i].datatype = in->datatype;
        inputs[i].shape = (int64_t *)(uintptr_t)in->shape; /* only read */
        inputs[i].n_shape = in->n_dims;
        pointers[i] = &inputs[i];
        raw[i] = (ProtobufCBinaryData){in->values.len, (uint8_t *)in->values.data};
        if (in->is_text && texts.len == 0) /* all of one element: the same bytes */
            rc = put_texts(&texts, text, in->n);
    }
    for (size_t i = 0; i < t->n_inputs; i++)
        if (t->inputs[i].is_text)
            raw[i] = (ProtobufCBinaryData){texts.len, (uint8_t *)texts.data};
    request.model_name = (char *)(uintptr_t)t->model; /* only read */
    request.inputs = pointers;
    request.n_inputs = request.n_raw_input_contents = t->n_inputs;
    request.raw_input_contents = raw;
    len = protobuf_c_message_get_packed_size(&request.base);
    bytes = rc == STATUS_OK ? try_alloc(len + 1, 1) : NULL;
    if (bytes != NULL) {
        (void)protobuf_c_message_pack(&request.base, bytes);
        rc = buf_append(out, bytes, len);
    } else {
        rc = STATUS_EXHAUSTED;
    }
    free(bytes);
    buf_deinit(&texts);
    return rc;
}

static void on_inferred(void *arg, void *data, size_t len, const struct parley_error *how)
{
    struct kserve_session *s = arg;
    struct error err = {0};

    (void)len;
    free(data);
    (void)pthread_mutex_lock(&s->target->lock);
    if (s->call != NULL)
        parley_call_unref(s->call);
    s->call = NULL;
    (void)pthread_mutex_unlock(&s->target->lock);
    if (how->status == PARLEY_OK)
        session_chunk(&s->base);
    else
        (void)error_set(&err, (enum status)how->status, "%s", how->text);
    s->base.events->end(&s->base, &err);
}

static enum status kserve_send(struct target *base, struct target_session *session,
                               struct error *err)
{
    struct kserve_target *t = kserve_target_of(base);
    struct kserve_session *s = kserve_session_of(session);
    struct buf request;
    enum status rc;

    session_begin(session);
    s->target = t;
    buf_init(&request, MAX_INPUT_BYTES);
    rc = pack_request(t, session->text, &request);
    if (rc == STATUS_OK) {
        /* The callback waits for the lock, and so finds the call here. */
        (void)pthread_mutex_lock(&t->lock);
        s->call = parley_unary_start(t->channel, "/inference.GRPCInferenceService/ModelInfer",
                                     request.data, request.len, INFER_TIMEOUT_MS, on_inferred, s);
        if (s->call == NULL)
            rc = STATUS_EXHAUSTED;
        (void)pthread_mutex_unlock(&t->lock);
    }
    buf_deinit(&request);
    return rc == STATUS_OK ? STATUS_OK
                           : error_set(err, rc, "no memory for a request, or it is too long");
}

static void kserve_leave(struct target *base, struct target_session *session)
{
    struct kserve_target *t = kserve_target_of(base);
    struct kserve_session *s = kserve_session_of(session);

    (void)pthread_mutex_lock(&t->lock);
    if (s->call != NULL)
        parley_call_cancel(s->call);
    (void)pthread_mutex_unlock(&t->lock);
}

static void kserve_session_deinit(struct target_session *s)
{
    (void)s; /* nothing is its own */
}

/* --- the model --- */

/* Bytes of an element; 0: it has no fixed size, or it is unknown. See Triton's data types. */
static size_t size_of_datatype(const char *datatype)
{
    static const struct {
        const char *name;
        size_t size;
    } sizes[] = {{"BOOL", 1},  {"UINT8", 1},  {"INT8", 1},  {"UINT16", 2}, {"INT16", 2},
                 {"FP16", 2},  {"BF16", 2},   {"INT32", 4}, {"UINT32", 4}, {"FP32", 4},
                 {"INT64", 8}, {"UINT64", 8}, {"FP64", 8}};

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (strcmp(sizes[i].name, datatype) == 0)
            return sizes[i].size;
    return 0;
}

/* One element: a real number below 1, or 0 or 1. */
static enum status draw_number(struct buf *out, const char *datatype, size_t size, uint32_t i)
{
    float u = counter_rng_uniform(1, 0, i, 0);
    double wide = (double)u;
    unsigned char small[8] = {u < 0.5F};

    if (strcmp(datatype, "FP32") == 0)
        return buf_append(out, &u, sizeof u);
    if (strcmp(datatype, "FP64") == 0)
        return buf_append(out, &wide, sizeof wide);
    if (strcmp(datatype, "FP16") == 0 || strcmp(datatype, "BF16") == 0)
        small[0] = 0; /* a number of 1 there is tiny */
    return buf_append(out, small, size);
}

static enum status take_input(struct kserve_input *in,
                              const Inference__ModelMetadataResponse__TensorMetadata *said,
                              struct error *err)
{
    size_t size = size_of_datatype(said->datatype);
    enum status rc = STATUS_OK;

    in->name = xstrdup(said->name);
    in->datatype = xstrdup(said->datatype);
    in->is_text = strcmp(said->datatype, "BYTES") == 0;
    in->n = 1;
    buf_init(&in->values, MAX_INPUT_BYTES);
    if (said->n_shape > MAX_DIMS || (size == 0 && !in->is_text))
        return error_set(err, STATUS_UNIMPLEMENTED, "input '%s' of %zu dimensions of %s",
                         said->name, said->n_shape, said->datatype);
    for (size_t i = 0; i < said->n_shape; i++) {
        in->shape[in->n_dims++] = said->shape[i] < 1 ? 1 : said->shape[i];
        if (in->n > (size_t)MAX_INPUT_BYTES / 8 / (size_t)in->shape[i])
            return error_set(err, STATUS_RANGE, "input '%s' has too many elements", said->name);
        in->n *= (size_t)in->shape[i];
    }
    for (uint32_t i = 0; !in->is_text && rc == STATUS_OK && i < in->n; i++)
        rc = draw_number(&in->values, in->datatype, size, i);
    return rc == STATUS_OK ? rc : error_set(err, rc, "input '%s' is too large", said->name);
}

/* Whether the model's configuration says that it may be left out. */
static bool is_optional(const Inference__ModelConfigResponse *config, const char *name)
{
    for (size_t i = 0; config != NULL && config->config != NULL && i < config->config->n_input; i++)
        if (strcmp(config->config->input[i]->name, name) == 0)
            return config->config->input[i]->optional;
    return false;
}

/* NULL, with *err filled, after a failure. The caller frees it. */
static ProtobufCMessage *ask(struct kserve_target *t, const char *method,
                             const ProtobufCMessage *request,
                             const ProtobufCMessageDescriptor *descriptor, struct error *err)
{
    ProtobufCMessage *answer = NULL;
    struct parley_error why;

    if (connection_call(&answer, t->channel, method, request, descriptor, 0, &why) != PARLEY_OK)
        (void)error_set(err, (enum status)why.status, "%s", why.text);
    return answer;
}

static enum status take_described(struct kserve_target *t,
                                  const Inference__ModelMetadataResponse *metadata,
                                  const Inference__ModelConfigResponse *config, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < metadata->n_inputs; i++)
        if (!is_optional(config, metadata->inputs[i]->name)) {
            if (t->n_inputs == MAX_INPUTS)
                return error_set(err, STATUS_UNIMPLEMENTED, "it has more than %d inputs",
                                 (int)MAX_INPUTS);
            rc = take_input(&t->inputs[t->n_inputs++], metadata->inputs[i], err);
        }
    return rc;
}

static enum status describe(struct kserve_target *t, struct error *err)
{
    Inference__ModelMetadataRequest what = INFERENCE__MODEL_METADATA_REQUEST__INIT;
    Inference__ModelConfigRequest how = INFERENCE__MODEL_CONFIG_REQUEST__INIT;
    ProtobufCMessage *metadata, *config;
    struct error ignored; /* a server without configurations: no input is optional */
    enum status rc;

    what.name = how.name = (char *)(uintptr_t)t->model; /* only read */
    metadata = ask(t, "/inference.GRPCInferenceService/ModelMetadata", &what.base,
                   &inference__model_metadata_response__descriptor, err);
    if (metadata == NULL)
        return err->status;
    config = ask(t, "/inference.GRPCInferenceService/ModelConfig", &how.base,
                 &inference__model_config_response__descriptor, &ignored);
    rc = take_described(t, (const Inference__ModelMetadataResponse *)(const void *)metadata,
                        (const Inference__ModelConfigResponse *)(const void *)config, err);
    protobuf_c_message_free_unpacked(metadata, NULL);
    if (config != NULL)
        protobuf_c_message_free_unpacked(config, NULL);
    return rc;
}

/* --- the server --- */

static void kserve_target_close(struct target *base)
{
    struct kserve_target *t = kserve_target_of(base);

    parley_channel_close(t->channel);
    for (size_t i = 0; i < t->n_inputs; i++) {
        free(t->inputs[i].name);
        free(t->inputs[i].datatype);
        buf_deinit(&t->inputs[i].values);
    }
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

static struct target *kserve_target_open(const char *address, const struct target_config *config)
{
    struct connection_options where = config->connection;
    struct error err = {0};
    struct kserve_target *t;

    if (config->model == NULL) {
        console_error("kserve:// needs a --model");
        return NULL;
    }
    where.server = address;
    t = xalloc(sizeof *t);
    t->base.type = &kserve_target;
    t->model = config->model;
    t->channel = connection_open(&where);
    if (t->channel == NULL) {
        free(t);
        return NULL;
    }
    (void)pthread_mutex_init(&t->lock, NULL); /* cannot fail on Linux */
    if (describe(t, &err) == STATUS_OK)
        return &t->base;
    console_error("model '%s' at %s: %s [%s]", t->model, address, err.text,
                  status_name(err.status));
    kserve_target_close(&t->base);
    return NULL;
}

const struct target_type kserve_target = {
    .scheme = "kserve://",
    .counts_no_tokens = true,
    .session_size = sizeof(struct kserve_session),
    .open = kserve_target_open,
    .close = kserve_target_close,
    .send = kserve_send,
    .leave = kserve_leave,
    .session_deinit = kserve_session_deinit,
};
