/* Parameters over the wire: uploads in chunks with checksums; downloads are checked by the chunks'
 * checksums and the hash. A chunk's bytes are copied once each way, and summed while they are in
 * the cache. */
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checksum.h"
#include "client/lib/stream.h"
#include "parley/v1/params.pb-c.h"
#include "proto/chunk.h"
#include "proto/codec.h"

enum { CHUNK_BYTES = 1 << 20 };

struct transfer {
    struct call_stream *stream;
    struct sha256 *sha;
    parley_progress_fn progress; /* may be NULL */
    void *arg;
    size_t sent_bytes, received_bytes;
    struct error err; /* an error of the client itself */
};

struct parley_trainer {
    struct transfer transfer;
};

/* --- sending --- */

static bool transfer_advance(struct transfer *t)
{
    if (t->progress == NULL || t->progress(t->arg, t->sent_bytes, t->received_bytes))
        return true;
    (void)error_set(&t->err, STATUS_CANCELLED, "given up by the caller");
    return false;
}

static bool send_chunk(struct transfer *t, const void *data, uint64_t offset, size_t size_bytes)
{
    grpc_slice slices[3];
    grpc_byte_buffer *message;
    struct chunk_frame frame;

    slices[1] = grpc_slice_from_copied_buffer(data, size_bytes);
    sha256_add(t->sha, GRPC_SLICE_START_PTR(slices[1]), size_bytes);
    chunk_frame(&frame, offset, size_bytes, crc32c(0, GRPC_SLICE_START_PTR(slices[1]), size_bytes));
    slices[0] = grpc_slice_from_copied_buffer((const char *)frame.head, frame.n_head);
    slices[2] = grpc_slice_from_copied_buffer((const char *)frame.tail, frame.n_tail);
    message = grpc_raw_byte_buffer_create(slices, 3);
    for (size_t i = 0; i < 3; i++)
        grpc_slice_unref(slices[i]);
    return stream_send(t->stream, message);
}

/* Chunks, then their hash in sha. */
static bool send_values(struct transfer *t, const float *values, size_t n,
                        uint8_t sha[SHA256_BYTES])
{
    const size_t size_bytes = n * sizeof(float);

    for (size_t at = 0; at < size_bytes; at += CHUNK_BYTES) {
        size_t left = size_bytes - at;

        left = left < CHUNK_BYTES ? left : CHUNK_BYTES;
        if (!send_chunk(t, (const char *)values + at, at, left))
            return false;
        t->sent_bytes += left;
        if (!transfer_advance(t))
            return false;
    }
    sha256_take(t->sha, sha);
    return true;
}

/* The texts are only read. */
static char *params_text_of(const char *text)
{
    return (char *)(uintptr_t)text;
}

static bool send_gradient(struct transfer *t, const struct parley_gradient *g,
                          Parley__V1__ParamsWant want)
{
    Parley__V1__ParamsUploadHeader header = PARLEY__V1__PARAMS_UPLOAD_HEADER__INIT;
    Parley__V1__ParamsUpload message = PARLEY__V1__PARAMS_UPLOAD__INIT;
    uint8_t sha[SHA256_BYTES];

    header.name = params_text_of(g->params);
    header.client_id = params_text_of(g->client_id);
    header.step_id = g->step_id;
    header.base_version = g->base_version;
    header.want = want;
    message.what_case = PARLEY__V1__PARAMS_UPLOAD__WHAT_HEADER;
    message.header = &header;
    if (!stream_send_message(t->stream, &message.base) || !send_values(t, g->values, g->n, sha))
        return false;
    message.what_case = PARLEY__V1__PARAMS_UPLOAD__WHAT_SHA256;
    message.sha256.data = sha;
    message.sha256.len = sizeof(sha);
    return stream_send_message(t->stream, &message.base);
}

/* --- receiving --- */

static void params_hash(void *arg, const void *data, size_t size_bytes)
{
    sha256_add(arg, data, size_bytes);
}

/* One chunk, which must be the next, into values. */
static enum status take_chunk(struct transfer *t, const grpc_slice_buffer *slices, float *values,
                              size_t at, size_t size_bytes, size_t *ret_size, struct error *err)
{
    struct iovec *pieces = try_alloc(slices->count, sizeof(*pieces));
    struct chunk c;
    enum status rc = STATUS_OK;

    if (pieces == NULL)
        return error_no_memory(err, slices->count * sizeof(*pieces), "a chunk");
    for (size_t i = 0; i < slices->count; i++)
        pieces[i] = (struct iovec){GRPC_SLICE_START_PTR(slices->slices[i]),
                                   GRPC_SLICE_LENGTH(slices->slices[i])};
    if (chunk_read(&c, pieces, slices->count, slices->length) != CHUNK_READ || c.offset != at ||
        c.size_bytes == 0 || c.size_bytes > size_bytes - at)
        rc = error_set(err, STATUS_INTERNAL,
                       "the chunk at %zu has another offset or size than expected", at);
    else if (chunk_copy((char *)values + at, &c, pieces, params_hash, t->sha) != c.crc)
        rc = error_set(err, STATUS_DATA_LOSS,
                       "the chunk at %zu arrived damaged: its crc32c differs", at);
    else
        *ret_size = c.size_bytes;
    free(pieces);
    return rc;
}

/* Takes message. */
static enum status params_decode(ProtobufCMessage **out, grpc_byte_buffer *message,
                                 const ProtobufCMessageDescriptor *type, struct arena *arena,
                                 struct error *err)
{
    grpc_byte_buffer_reader reader;
    grpc_slice whole;
    enum status rc;

    *out = NULL;
    if (message == NULL)
        return error_set(err, STATUS_INTERNAL, "the answer ends too early");
    (void)grpc_byte_buffer_reader_init(&reader, message); /* not compressed: cannot fail */
    whole = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(message);
    rc = codec_decode(out, type, GRPC_SLICE_START_PTR(whole), GRPC_SLICE_LENGTH(whole),
                      CODEC_ANY_FIELDS, arena, err);
    grpc_slice_unref(whole);
    return rc;
}

static enum status receive(const Parley__V1__ParamsDownload **out, struct transfer *t,
                           struct arena *arena)
{
    ProtobufCMessage *m;
    enum status rc = params_decode(&m, stream_receive(t->stream),
                                   &parley__v1__params_download__descriptor, arena, &t->err);

    *out = (const Parley__V1__ParamsDownload *)m;
    return rc;
}

static enum status take_values(struct transfer *t, float *values, size_t size_bytes,
                               uint8_t sha[SHA256_BYTES])
{
    const Parley__V1__ParamsDownload *m;
    struct arena arena;
    enum status rc = STATUS_OK;
    size_t n = 0;

    for (size_t at = 0; at < size_bytes && rc == STATUS_OK; at += n) {
        grpc_byte_buffer *message = stream_receive(t->stream);

        if (message == NULL)
            return error_set(&t->err, STATUS_INTERNAL, "the answer ends too early");
        rc = take_chunk(t, &message->data.raw.slice_buffer, values, at, size_bytes, &n, &t->err);
        grpc_byte_buffer_destroy(message);
        t->received_bytes += n;
        if (rc == STATUS_OK && !transfer_advance(t))
            rc = t->err.status;
    }
    if (rc != STATUS_OK)
        return rc;
    arena_init(&arena, DECODED_MAX_BYTES);
    rc = receive(&m, t, &arena);
    sha256_take(t->sha, sha);
    if (rc == STATUS_OK &&
        (m->what_case != PARLEY__V1__PARAMS_DOWNLOAD__WHAT_SHA256 ||
         m->sha256.len != SHA256_BYTES || memcmp(m->sha256.data, sha, SHA256_BYTES) != 0))
        rc = error_set(&t->err, STATUS_DATA_LOSS,
                       "the parameters arrived damaged: their sha256 differs");
    arena_deinit(&arena);
    return rc;
}

static enum status take_version(struct transfer *t, float *values, size_t n,
                                struct parley_version *out)
{
    const Parley__V1__ParamsDownload *m;
    struct arena arena;
    uint64_t size_bytes = 0;
    enum status rc;

    arena_init(&arena, DECODED_MAX_BYTES);
    rc = receive(&m, t, &arena);
    if (rc == STATUS_OK && m->what_case != PARLEY__V1__PARAMS_DOWNLOAD__WHAT_VERSION)
        rc = error_set(&t->err, STATUS_INTERNAL, "the answer begins without its version");
    if (rc == STATUS_OK) {
        size_bytes = m->version->size_bytes;
        *out = (struct parley_version){
            .version = m->version->version,
            .counted_in = m->version->counted_in,
            .round_wait_us = m->version->round_wait_us,
            .n_contributors = (uint32_t)m->version->n_contributors,
            .has_values = size_bytes > 0,
        };
    }
    arena_deinit(&arena);
    if (rc != STATUS_OK || size_bytes == 0)
        return rc;
    if (values == NULL || size_bytes != n * sizeof(float))
        return error_set(&t->err, STATUS_INVALID,
                         "the parameters have %llu bytes, but %zu were expected",
                         (unsigned long long)size_bytes, n * sizeof(float));
    return take_values(t, values, size_bytes, out->sha256);
}

/* --- calls --- */

static bool transfer_open(struct transfer *t, struct parley_channel *channel, const char *method)
{
    *t = (struct transfer){0};
    if (sha256_open(&t->sha, &t->err) != STATUS_OK)
        return false;
    t->stream = stream_open(channel, method);
    if (t->stream != NULL)
        return true;
    sha256_close(t->sha);
    (void)error_no_memory(&t->err, sizeof(struct call_stream), "a call");
    return false;
}

static void transfer_close(struct transfer *t)
{
    stream_close(t->stream);
    sha256_close(t->sha);
}

/* Why the transfer failed: the client's own error first, else the server's status. */
static enum parley_status failed(struct transfer *t, struct parley_error *err)
{
    bool is_ours = t->err.status != STATUS_OK && t->err.status != STATUS_INTERNAL;

    if (!is_ours && t->stream != NULL && stream_end(t->stream, err) != PARLEY_OK)
        return err->status;
    if (t->err.status == STATUS_OK)
        (void)error_set(&t->err, STATUS_INTERNAL, "the stream ended before its answer");
    outcome_of_failure(err, &t->err);
    return err->status;
}

struct parley_trainer *parley_trainer_open(struct parley_channel *channel)
{
    struct parley_trainer *trainer = try_alloc(1, sizeof(*trainer));

    if (trainer != NULL &&
        transfer_open(&trainer->transfer, channel, "/parley.v1.Params/UpdateAndFetch"))
        return trainer;
    free(trainer);
    return NULL;
}

void parley_trainer_close(struct parley_trainer *trainer)
{
    if (trainer == NULL)
        return;
    transfer_close(&trainer->transfer);
    free(trainer);
}

enum parley_status parley_update_and_fetch(struct parley_trainer *trainer,
                                           const struct parley_gradient *gradient, float *values,
                                           struct parley_version *out, parley_progress_fn progress,
                                           void *arg, struct parley_error *err)
{
    struct transfer *t = &trainer->transfer;
    Parley__V1__ParamsWant want = values == NULL ? PARLEY__V1__PARAMS_WANT__PARAMS_WANT_NOTHING
                                                 : PARLEY__V1__PARAMS_WANT__PARAMS_WANT_FULL;

    t->progress = progress;
    t->arg = arg;
    t->sent_bytes = t->received_bytes = 0;
    if (!send_gradient(t, gradient, want) || take_version(t, values, gradient->n, out) != STATUS_OK)
        return failed(t, err);
    return PARLEY_OK;
}

/* The single response to a client stream. */
static enum parley_status transfer_finish(struct transfer *t,
                                          const ProtobufCMessageDescriptor *type,
                                          struct arena *arena, ProtobufCMessage **out,
                                          struct parley_error *err)
{
    stream_half_close(t->stream);
    if (params_decode(out, stream_receive(t->stream), type, arena, &t->err) != STATUS_OK)
        return failed(t, err);
    return stream_end(t->stream, err);
}

enum parley_status parley_params_push(struct parley_channel *channel,
                                      const struct parley_gradient *gradient,
                                      struct parley_pushed *out, struct parley_error *err)
{
    ProtobufCMessage *m = NULL;
    enum parley_status rc;
    struct transfer t;
    struct arena arena;

    if (!transfer_open(&t, channel, "/parley.v1.Params/Push"))
        return failed(&t, err);
    arena_init(&arena, DECODED_MAX_BYTES);
    rc = send_gradient(&t, gradient, PARLEY__V1__PARAMS_WANT__PARAMS_WANT_NOTHING)
             ? transfer_finish(&t, &parley__v1__params_push_response__descriptor, &arena, &m, err)
             : failed(&t, err);
    if (rc == PARLEY_OK) {
        const Parley__V1__ParamsPushResponse *r = (const Parley__V1__ParamsPushResponse *)m;

        *out = (struct parley_pushed){r->version, r->depth, r->dropped};
    }
    arena_deinit(&arena);
    transfer_close(&t);
    return rc;
}

enum parley_status parley_params_pull(struct parley_channel *channel, const char *params,
                                      const uint64_t *if_newer_than, float *values, size_t n,
                                      struct parley_version *out, struct parley_error *err)
{
    Parley__V1__ParamsPullRequest request = PARLEY__V1__PARAMS_PULL_REQUEST__INIT;
    enum parley_status rc;
    struct transfer t;

    if (!transfer_open(&t, channel, "/parley.v1.Params/Pull"))
        return failed(&t, err);
    request.name = params_text_of(params);
    request.has_if_newer_than = if_newer_than != NULL;
    request.if_newer_than = if_newer_than != NULL ? *if_newer_than : 0;
    if (stream_send_message(t.stream, &request.base)) {
        stream_half_close(t.stream);
        rc = take_version(&t, values, n, out) == STATUS_OK ? stream_end(t.stream, err)
                                                           : failed(&t, err);
    } else {
        rc = failed(&t, err);
    }
    transfer_close(&t);
    return rc;
}

/* --- Create --- */

/* Whether a number is given: it is not 0, or it is PARLEY_ZERO. */
static bool optimiser_gives(double x)
{
    return x != 0 || signbit(x);
}

static void fill_optimiser(Parley__V1__ParamsOptimiser *out, const struct parley_params_config *c)
{
    parley__v1__params_optimiser__init(out);
    out->kind = (Parley__V1__ParamsOptimiserKind)((int)c->optimiser + 1);
    out->learning_rate = c->learning_rate;
    out->momentum = c->momentum;
    out->dampening = c->dampening;
    out->nesterov = c->nesterov;
    out->weight_decay = c->weight_decay;
    if (optimiser_gives(c->beta1)) {
        out->beta1_given_case = PARLEY__V1__PARAMS_OPTIMISER__BETA1_GIVEN_BETA1;
        out->beta1 = c->beta1 + 0.0; /* -0 becomes 0 */
    }
    if (optimiser_gives(c->beta2)) {
        out->beta2_given_case = PARLEY__V1__PARAMS_OPTIMISER__BETA2_GIVEN_BETA2;
        out->beta2 = c->beta2 + 0.0; /* -0 becomes 0 */
    }
    if (optimiser_gives(c->epsilon)) {
        out->epsilon_given_case = PARLEY__V1__PARAMS_OPTIMISER__EPSILON_GIVEN_EPSILON;
        out->epsilon = c->epsilon + 0.0; /* -0 becomes 0 */
    }
}

static void fill_schedule(Parley__V1__ParamsSchedule *out, const struct parley_params_config *c)
{
    parley__v1__params_schedule__init(out);
    out->kind = (Parley__V1__ParamsScheduleKind)((int)c->schedule + 1);
    out->warm_up = c->warm_up;
    out->step_size = c->step_size;
    out->factor = c->factor;
    out->total = c->total;
    out->minimum = c->minimum;
}

static bool send_config(struct transfer *t, const struct parley_params_config *c,
                        struct arena *arena)
{
    Parley__V1__ParamsCreateRequest message = PARLEY__V1__PARAMS_CREATE_REQUEST__INIT;
    Parley__V1__ParamsConfig config = PARLEY__V1__PARAMS_CONFIG__INIT;
    Parley__V1__ParamsSchedule schedule;
    Parley__V1__ParamsOptimiser optimiser;
    Parley__V1__ParamsQuorum quorum = PARLEY__V1__PARAMS_QUORUM__INIT;
    Parley__V1__TensorSpec *specs = arena_alloc(arena, c->n_specs, sizeof(*specs)), **pointers;

    pointers = arena_alloc(arena, c->n_specs, sizeof(Parley__V1__TensorSpec *));
    if (specs == NULL || pointers == NULL) {
        (void)error_no_memory(&t->err, c->n_specs * sizeof(*specs), "the specs");
        return false;
    }
    for (size_t i = 0; i < c->n_specs; i++) {
        parley__v1__tensor_spec__init(&specs[i]);
        specs[i].name = params_text_of(c->specs[i].name);
        specs[i].dtype = PARLEY__V1__DTYPE__DTYPE_F32;
        specs[i].shape = (int64_t *)(uintptr_t)c->specs[i].shape; /* only read */
        specs[i].n_shape = c->specs[i].n_dims;
        pointers[i] = &specs[i];
    }
    fill_optimiser(&optimiser, c);
    fill_schedule(&schedule, c);
    quorum.min = c->quorum_min;
    quorum.timeout_ms = c->quorum_timeout_ms;
    quorum.on_miss = c->may_be_partial ? PARLEY__V1__PARAMS_ON_MISS__PARAMS_ON_MISS_APPLY_PARTIAL
                                       : PARLEY__V1__PARAMS_ON_MISS__PARAMS_ON_MISS_ABORT;
    config.name = params_text_of(c->name);
    config.specs = pointers;
    config.n_specs = c->n_specs;
    config.optimiser = &optimiser;
    config.reduce = c->is_sum ? PARLEY__V1__PARAMS_REDUCE__PARAMS_REDUCE_SUM
                              : PARLEY__V1__PARAMS_REDUCE__PARAMS_REDUCE_MEAN;
    config.round_size = c->round_size;
    config.dedupe = c->dedupe;
    config.quorum = &quorum;
    config.max_staleness = c->max_staleness;
    config.fan_in = c->fan_in;
    config.max_queue = c->max_queue;
    config.allow_non_finite = c->allow_non_finite;
    config.schedule = &schedule;
    message.what_case = PARLEY__V1__PARAMS_CREATE_REQUEST__WHAT_CONFIG;
    message.config = &config;
    return stream_send_message(t->stream, &message.base);
}

static bool send_first(struct transfer *t, const float *values, size_t n)
{
    Parley__V1__ParamsCreateRequest message = PARLEY__V1__PARAMS_CREATE_REQUEST__INIT;
    uint8_t sha[SHA256_BYTES];

    if (!send_values(t, values, n, sha))
        return false;
    message.what_case = PARLEY__V1__PARAMS_CREATE_REQUEST__WHAT_SHA256;
    message.sha256.data = sha;
    message.sha256.len = sizeof(sha);
    return stream_send_message(t->stream, &message.base);
}

enum parley_status parley_params_create(struct parley_channel *channel,
                                        const struct parley_params_config *config,
                                        const float *values, size_t n, struct parley_error *err)
{
    ProtobufCMessage *m = NULL;
    enum parley_status rc;
    struct arena arena;
    struct transfer t;

    if (!transfer_open(&t, channel, "/parley.v1.Params/Create"))
        return failed(&t, err);
    arena_init(&arena, DECODED_MAX_BYTES);
    if (send_config(&t, config, &arena) && (values == NULL || send_first(&t, values, n)))
        rc = transfer_finish(&t, &parley__v1__params_create_response__descriptor, &arena, &m, err);
    else
        rc = failed(&t, err);
    arena_deinit(&arena);
    transfer_close(&t);
    return rc;
}
