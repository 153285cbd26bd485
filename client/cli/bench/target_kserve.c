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
#include "base/list.h"
#include "cli/output/console.h"
#include "client/cli/bench/kserve_inputs.h"
#include "client/cli/bench/target.h"
#include "client/cli/connection.h"
#include "client/lib/parley.h"
#include "inference/grpc_service.pb-c.h"

enum { INFER_TIMEOUT_MS = 10 * 60 * 1000 };

struct kserve_target {
    struct target base;
    struct parley_channel *channel;
    const char *model;
    struct kserve_inputs inputs;
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
        rc = buf_append(out, head, sizeof(head));
        if (rc == STATUS_OK)
            rc = buf_append(out, text, len);
    }
    return rc;
}

/* Packs the request of one inference into out. */
static enum status pack_request(const struct kserve_target *t, const char *text, struct buf *out)
{
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    Inference__ModelInferRequest__InferInputTensor inputs[KSERVE_MAX_INPUTS],
        *pointers[KSERVE_MAX_INPUTS];
    ProtobufCBinaryData raw[KSERVE_MAX_INPUTS];
    enum status rc = STATUS_OK;
    struct buf texts;
    uint8_t *bytes;
    size_t len;

    buf_init(&texts, KSERVE_MAX_INPUT_BYTES);
    for (size_t i = 0; i < t->inputs.n; i++) {
        const struct kserve_input *in = &t->inputs.items[i];

        inference__model_infer_request__infer_input_tensor__init(&inputs[i]);
        inputs[i].name = in->name;
        inputs[i].datatype = in->datatype;
        inputs[i].shape = (int64_t *)(uintptr_t)in->shape; /* only read */
        inputs[i].n_shape = in->n_dims;
        pointers[i] = &inputs[i];
        raw[i] = (ProtobufCBinaryData){in->values.len, (uint8_t *)in->values.data};
        if (in->is_text && texts.len == 0) /* all tensors have one element and the same bytes */
            rc = put_texts(&texts, text, in->n);
    }
    for (size_t i = 0; i < t->inputs.n; i++)
        if (t->inputs.items[i].is_text)
            raw[i] = (ProtobufCBinaryData){texts.len, (uint8_t *)texts.data};
    request.model_name = (char *)(uintptr_t)t->model; /* only read */
    request.inputs = pointers;
    request.n_inputs = request.n_raw_input_contents = t->inputs.n;
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
    buf_init(&request, KSERVE_MAX_INPUT_BYTES);
    rc = pack_request(t, session->text, &request);
    if (rc == STATUS_OK) {
        /* The callback waits for the lock, so it finds the call stored here. */
        (void)pthread_mutex_lock(&t->lock);
        s->call = parley_unary_start(t->channel, "/inference.GRPCInferenceService/ModelInfer",
                                     request.data, request.len, INFER_TIMEOUT_MS, on_inferred, s);
        if (s->call == NULL)
            rc = STATUS_EXHAUSTED;
        (void)pthread_mutex_unlock(&t->lock);
    }
    buf_deinit(&request);
    return rc == STATUS_OK
               ? STATUS_OK
               : error_set(err, rc, "out of memory for a request, or the request is too long");
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
}

/* --- the server --- */

static void kserve_target_close(struct target *base)
{
    struct kserve_target *t = kserve_target_of(base);

    parley_channel_close(t->channel);
    kserve_inputs_deinit(&t->inputs);
    (void)pthread_mutex_destroy(&t->lock);
    free(t);
}

static struct target *kserve_target_open(const char *address, const struct target_config *config,
                                         enum exit_code *ret_code)
{
    struct connection_options where = config->connection;
    struct error err = {0};
    struct kserve_target *t;

    if (config->model == NULL) {
        console_error("kserve:// needs a --model");
        *ret_code = EXIT_MISUSE;
        return NULL;
    }
    where.server = address;
    where.may_lack_health = true;
    t = xalloc(sizeof(*t));
    t->base.type = &kserve_target;
    t->model = config->model;
    t->channel = connection_open(&where, ret_code);
    if (t->channel == NULL) {
        free(t);
        return NULL;
    }
    (void)pthread_mutex_init(&t->lock, NULL); /* cannot fail on Linux */
    if (kserve_inputs_read(&t->inputs, t->channel, t->model, &err) == STATUS_OK)
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
