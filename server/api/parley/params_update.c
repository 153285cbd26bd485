/* parley.v1.Params, UpdateAndFetch and Push. The stages of an update are header, upload, update,
 * round, download; then the stream's next update may begin. The header's step is looked up twice:
 * at once, so that a known step needs no memory, and again after the upload, since the set may have
 * changed. A call that closes leaves its round; a failure ends its own call only. */
#include <float.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/list.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/params_download.h"
#include "server/api/parley/params_upload_stream.h"
#include "server/api/parley/params_wire.h"
#include "server/api/parley/placed_call.h"
#include "server/model/model.h"
#include "server/params/params.h"
#include "server/params/round.h"
#include "server/server.h"

/* The common part of the two headers. */
struct header {
    struct params_set *set;
    char client[PARAMS_MAX_CLIENT + 1];
    uint64_t step_id, base_version;
    Parley__V1__ParamsWant want;
    enum params_step step; /* as of the header's arrival */
    uint32_t timeout_ms;
    bool *skips; /* as a gradient's; owned until take_gradient */
    bool has_rate, is_crc_only, is_in_memory;
    double rate;
};

static void header_free(struct header *h)
{
    free(h->skips);
    *h = (struct header){0};
}

static enum status look_up(struct header *h, enum params_step *out, uint64_t *ret_version,
                           struct error *err)
{
    return params_look_up(out, ret_version, h->set, h->client, h->step_id, h->base_version, err);
}

static enum status update_read_rate(struct header *out, const Parley__V1__ParamsUploadHeader *from,
                                    struct error *err)
{
    out->has_rate = from->learning_rate_given_case != 0;
    out->rate = from->learning_rate;
    if (out->has_rate && !(out->rate >= 0 && out->rate <= (double)FLT_MAX))
        return error_field(err, "learning_rate", "is %g, it must be 0 or more, and finite in f32",
                           out->rate);
    return STATUS_OK;
}

static enum status update_read_skips(struct header *out, const Parley__V1__ParamsUploadHeader *from,
                                     struct error *err)
{
    const struct params_spec *spec = &out->set->spec;

    if (from->n_skipped == 0)
        return STATUS_OK;
    out->skips = try_alloc(spec->n_tensors, sizeof(out->skips[0]));
    if (out->skips == NULL)
        return error_no_memory(err, spec->n_tensors, "the tensors without a gradient");
    for (size_t i = 0; i < from->n_skipped; i++) {
        if (from->skipped[i] >= spec->n_tensors)
            return error_field(err, "skipped", "has %u, but '%.64s' has the tensors 0 to %zu",
                               from->skipped[i], spec->name, spec->n_tensors - 1);
        out->skips[from->skipped[i]] = true;
    }
    return STATUS_OK;
}

/* Fills a zeroed header, which the caller frees, also after a failure. */
static enum status read_header(struct header *out, const ProtobufCMessage *message,
                               const struct call *call, struct error *err)
{
    const Parley__V1__ParamsUploadHeader *from =
        ((const Parley__V1__ParamsUpload *)message)->header;
    size_t len = strlen(from->client_id);
    uint64_t version;
    enum status rc;

    if (len == 0 || len > PARAMS_MAX_CLIENT)
        return error_field(err, "client_id", "has %zu bytes, it must have from 1 to %d", len,
                           PARAMS_MAX_CLIENT);
    if ((unsigned)from->want > PARLEY__V1__PARAMS_WANT__PARAMS_WANT_NOTHING)
        return error_field(err, "want", "is %d, which is not a value of want", (int)from->want);
    rc = params_find(&out->set, call_server(call)->params, call_principal(call), ACCESS_WRITE,
                     from->name, err);
    if (rc != STATUS_OK)
        return rc;
    rc = params_wire_match(out->set, from->specs, from->n_specs, err);
    if (rc == STATUS_OK)
        rc = update_read_rate(out, from, err);
    if (rc == STATUS_OK)
        rc = update_read_skips(out, from, err);
    if (rc != STATUS_OK)
        return rc;
    memcpy(out->client, from->client_id, len + 1);
    out->step_id = from->step_id;
    out->base_version = from->base_version;
    out->want = from->want;
    out->timeout_ms = from->timeout_ms;
    out->is_crc_only = from->crc_only != 0;
    out->is_in_memory = from->in_memory != 0;
    rc = look_up(out, &out->step, &version, err);
    if (rc == STATUS_OK && out->step == PARAMS_STEP_NEW)
        rc = params_count_request(call_server(call)->params, call_principal(call), err);
    return rc;
}

/* shared: the stream's memory, or NULL. */
static void begin_upload(struct upload_stream *in, const struct header *h,
                         struct params_shared *shared)
{
    const struct upload_config config = {
        .spec = &h->set->spec,
        .memory = h->set->memory,
        .model = h->set->model,
        .may_be_non_finite = h->set->spec.allow_non_finite,
        .is_ignored = h->step != PARAMS_STEP_NEW,
        .is_crc_only = h->is_crc_only,
        .shared = h->is_in_memory ? shared : NULL,
    };
    struct error err;

    if (h->is_in_memory && (shared == NULL || shared->n != h->set->spec.n)) {
        (void)error_field(&err, "in_memory", "needs memory of this stream for %zu numbers: %s",
                          h->set->spec.n,
                          shared == NULL ? "ask for it first" : "it has some for another set");
        upload_stream_fail(in, &err);
        return;
    }
    upload_stream_begin(in, &config);
}

/* Makes the gradient of the received block, which it takes, with the header's skips. */
static enum status take_gradient(struct params_gradient **out, struct upload_stream *in,
                                 struct header *h, struct error *err)
{
    float *values;
    enum status rc;

    if (h->step != PARAMS_STEP_NEW)
        return error_because(err, STATUS_ABORTED, REASON_ROUND_GIVEN_UP, "step_id",
                             "the round of step %llu was given up during its retry",
                             (unsigned long long)h->step_id);
    values = upload_take(in->upload);
    rc = gradient_make(out, h->client, h->step_id, h->base_version, values, err);
    if (rc != STATUS_OK) {
        params_memory_give(h->set->memory, values);
        return rc;
    }
    (*out)->skips = h->skips;
    h->skips = NULL;
    (*out)->has_rate = h->has_rate;
    (*out)->rate = h->rate;
    return STATUS_OK;
}

/* --- UpdateAndFetch --- */

/* Copies a version to the stream's memory. It outlives its update. */
struct update_copy {
    struct job job;
    struct update *update; /* NULL: it is gone */
    struct snapshot *snapshot;
    struct params_shared *shared;
    uint64_t wait_us, counted_in;
};

struct update {
    struct call *call;
    struct upload_stream upload_stream;
    struct header header; /* set: NULL before the first header, and after the set has closed */
    struct params_subscriber subscriber;
    struct update_waiter waiter;
    struct params_download download;
    struct params_shared *shared; /* NULL: there is none */
    bool tells_shared;            /* its place is to be written */
    struct update_copy *copy;     /* under way, or NULL */
    bool is_draining;
};

/* Compute thread. */
static void update_run_copy(struct job *job)
{
    struct update_copy *c = container_of(job, struct update_copy, job);

    memcpy(c->shared->values, c->snapshot->values, c->snapshot->size_bytes);
}

static void update_copied(struct job *job)
{
    struct update_copy *c = container_of(job, struct update_copy, job);
    struct update *u = c->update;

    if (u != NULL) {
        u->copy = NULL;
        if (!u->upload_stream.is_over) {
            download_begin(&u->download, c->snapshot, false, c->wait_us, c->counted_in);
            u->download.is_in_memory = true;
            call_notify(u->call);
        }
    }
    snapshot_unref(c->snapshot);
    params_shared_unref(c->shared);
    free(c);
}

static void update_copy(struct update *u, struct snapshot *s, uint64_t wait_us, uint64_t counted_in)
{
    struct update_copy *c = try_alloc(1, sizeof(*c));
    struct error err;

    if (c == NULL) {
        (void)error_no_memory(&err, sizeof(*c), "an answer");
        upload_stream_fail(&u->upload_stream, &err);
        return;
    }
    *c = (struct update_copy){.job = {.run = update_run_copy, .done = update_copied},
                              .update = u,
                              .snapshot = snapshot_ref(s),
                              .shared = params_shared_ref(u->shared),
                              .wait_us = wait_us,
                              .counted_in = counted_in};
    u->copy = c;
    model_run(u->header.set->model, &c->job);
}

static void update_reply(struct update *u, uint64_t wait_us, uint64_t counted_in)
{
    struct snapshot *s = params_current(u->header.set->model->agent);
    bool has_values = u->header.want == PARLEY__V1__PARAMS_WANT__PARAMS_WANT_UNSPECIFIED ||
                      u->header.want == PARLEY__V1__PARAMS_WANT__PARAMS_WANT_FULL ||
                      (u->header.want == PARLEY__V1__PARAMS_WANT__PARAMS_WANT_IF_CHANGED &&
                       u->header.base_version != s->version);

    if (has_values && u->header.is_in_memory) {
        update_copy(u, s, wait_us, counted_in);
        return;
    }
    download_begin(&u->download, s, has_values, wait_us, counted_in);
    call_notify(u->call);
}

static void update_settled(struct update_waiter *w, const struct update_outcome *end)
{
    struct update *u = container_of(w, struct update, waiter);

    if (u->upload_stream.is_over)
        return;
    if (end->err.status == STATUS_OK)
        update_reply(u, end->wait_us, end->counted_in);
    else
        upload_stream_fail(&u->upload_stream, &end->err);
}

static void update_closing(struct params_subscriber *subscriber, const struct error *why)
{
    struct update *u = container_of(subscriber, struct update, subscriber);

    params_leave(u->header.set, &u->waiter);
    u->header.set = NULL;
    upload_stream_fail(&u->upload_stream, why);
}

static void update_leave(struct update *u)
{
    if (u->header.set != NULL) {
        params_leave(u->header.set, &u->waiter);
        params_unsubscribe(&u->subscriber);
    }
    header_free(&u->header);
}

static void fail_stopping(struct upload_stream *in)
{
    struct error err;

    (void)error_draining(&err);
    upload_stream_fail(in, &err);
}

static void update_header(struct upload_stream *in, const ProtobufCMessage *message)
{
    struct update *u = container_of(in, struct update, upload_stream);
    struct error err;

    update_leave(u);
    if (u->is_draining) {
        fail_stopping(in);
        return;
    }
    if (read_header(&u->header, message, u->call, &err) != STATUS_OK) {
        header_free(&u->header);
        upload_stream_fail(in, &err);
        return;
    }
    params_subscribe(u->header.set, &u->subscriber);
    begin_upload(in, &u->header, u->shared);
}

static void update_memory(struct upload_stream *in, const ProtobufCMessage *message)
{
    struct update *u = container_of(in, struct update, upload_stream);
    const char *name = ((const Parley__V1__ParamsUpload *)message)->memory->name;
    const struct server *server = call_server(u->call);
    struct params_set *set;
    struct error err;
    enum status rc;

    if (u->is_draining) {
        fail_stopping(in);
        return;
    }
    params_shared_unref(u->shared);
    u->shared = NULL;
    rc = params_find(&set, server->params, call_principal(u->call), ACCESS_WRITE, name, &err);
    if (rc == STATUS_OK)
        rc = params_shared_open(&u->shared, set->open.budget, set->spec.n, set->sets->env, &err);
    if (rc != STATUS_OK) {
        upload_stream_fail(in, &err);
        return;
    }
    u->tells_shared = true;
    call_notify(u->call);
}

static void update_write_memory(struct update *u)
{
    Parley__V1__ParamsDownload message = PARLEY__V1__PARAMS_DOWNLOAD__INIT;
    Parley__V1__ParamsMemory memory = PARLEY__V1__PARAMS_MEMORY__INIT;

    u->tells_shared = false;
    memory.pid = (uint32_t)getpid();
    memory.fd = (uint32_t)u->shared->fd;
    memory.label = u->shared->label;
    memory.size_bytes = u->shared->size_bytes;
    message.what_case = PARLEY__V1__PARAMS_DOWNLOAD__WHAT_MEMORY;
    message.memory = &memory;
    call_write(u->call, &message.base, false);
}

static void update_complete(struct upload_stream *in)
{
    struct update *u = container_of(in, struct update, upload_stream);
    struct params_set *set = u->header.set;
    struct params_gradient *gradient;
    enum params_step step;
    uint64_t version;
    struct error err;
    enum status rc = look_up(&u->header, &step, &version, &err);

    if (rc == STATUS_OK && step == PARAMS_STEP_NEW) {
        rc = take_gradient(&gradient, in, &u->header, &err);
        if (rc == STATUS_OK)
            rc = params_submit(set, gradient, u->header.timeout_ms, &u->waiter, &err);
    } else if (rc == STATUS_OK) {
        set->counters.duplicates++;
        if (step == PARAMS_STEP_JOINS)
            params_join(set, u->header.client, u->header.step_id, &u->waiter);
        else
            update_reply(u, 0, version);
    }
    if (rc != STATUS_OK)
        upload_stream_fail(in, &err);
}

static void update_closed(struct upload_stream *in)
{
    struct error err;

    if (in->upload == NULL) {
        in->is_over = true;
        call_finish(in->call, NULL);
        return;
    }
    (void)error_because(&err, STATUS_INVALID, REASON_INVALID_FIELD, "sha256",
                        "the stream ended inside an upload");
    upload_stream_fail(in, &err);
}

static void update_bytes(struct call *call, void *state, struct call_bytes *bytes)
{
    struct update *u = state;

    upload_stream_bytes(&u->upload_stream, bytes);
}

static void update_write_ready(struct call *call, void *state)
{
    struct update *u = state;

    if (u->upload_stream.is_over)
        return;
    if (u->tells_shared)
        update_write_memory(u);
    else if (u->download.snapshot == NULL || !download_write(&u->download, call))
        return;
    if (u->is_draining)
        fail_stopping(&u->upload_stream);
    else
        upload_stream_next(&u->upload_stream);
}

static void update_on_close(struct call *call, void *state, enum status why)
{
    struct update *u = state;

    upload_stream_close(&u->upload_stream);
    update_leave(u);
    download_drop(&u->download);
    if (u->copy != NULL)
        u->copy->update = NULL;
    params_shared_unref(u->shared);
    free(u);
}

/* The current update goes on; no new one begins. */
static void update_drain(struct call *call, void *state)
{
    struct update *u = state;

    u->is_draining = true;
    if (u->upload_stream.upload == NULL && u->download.snapshot == NULL && !u->tells_shared)
        fail_stopping(&u->upload_stream);
}

static void start_update(struct call *call)
{
    static const struct call_handler handler = {.on_write_ready = update_write_ready,
                                                .bytes = update_bytes,
                                                .drain = update_drain,
                                                .on_close = update_on_close};
    static const struct upload_stream_kind kind = {
        .type = &parley__v1__params_upload__descriptor,
        .header = update_header,
        .memory = update_memory,
        .complete = update_complete,
        .closed = update_closed,
    };
    struct update *u = call_state(call, sizeof(*u));

    if (u == NULL)
        return;
    u->call = call;
    u->subscriber.closing = update_closing;
    u->waiter.settled = update_settled;
    call_set_handler(call, &handler, u);
    upload_stream_init(&u->upload_stream, call, &kind);
}

/* --- Push --- */

struct push {
    struct upload_stream upload_stream;
    struct header header;
    struct params_subscriber subscriber;
};

static void push_closing(struct params_subscriber *subscriber, const struct error *why)
{
    struct push *p = container_of(subscriber, struct push, subscriber);

    p->header.set = NULL;
    upload_stream_fail(&p->upload_stream, why);
}

static void push_header(struct upload_stream *in, const ProtobufCMessage *message)
{
    struct push *p = container_of(in, struct push, upload_stream);
    struct error err;

    if (read_header(&p->header, message, in->call, &err) != STATUS_OK) {
        header_free(&p->header);
        upload_stream_fail(in, &err);
        return;
    }
    params_subscribe(p->header.set, &p->subscriber);
    begin_upload(in, &p->header, NULL);
}

static void push_complete(struct upload_stream *in)
{
    struct push *p = container_of(in, struct push, upload_stream);
    Parley__V1__ParamsPushResponse response = PARLEY__V1__PARAMS_PUSH_RESPONSE__INIT;
    struct params_set *set = p->header.set;
    struct params_gradient *gradient;
    enum params_step step;
    uint64_t version;
    struct error err;
    enum status rc = look_up(&p->header, &step, &version, &err);

    if (rc == STATUS_OK && step == PARAMS_STEP_NEW) {
        rc = take_gradient(&gradient, in, &p->header, &err);
        if (rc == STATUS_OK)
            params_push(set, gradient);
    } else if (rc == STATUS_OK) {
        set->counters.duplicates++;
    }
    if (rc != STATUS_OK) {
        upload_stream_fail(in, &err);
        return;
    }
    response.version = params_current(set->model->agent)->version;
    response.depth = (uint32_t)params_depth(set);
    response.dropped = set->counters.dropped;
    in->is_over = true;
    call_reply(in->call, &response.base);
}

static void push_closed(struct upload_stream *in)
{
    struct error err;

    (void)error_because(&err, STATUS_INVALID, REASON_INVALID_FIELD, "header",
                        "the stream ended without a gradient");
    upload_stream_fail(in, &err);
}

static void push_bytes(struct call *call, void *state, struct call_bytes *bytes)
{
    struct push *p = state;

    upload_stream_bytes(&p->upload_stream, bytes);
}

static void push_on_close(struct call *call, void *state, enum status why)
{
    struct push *p = state;

    upload_stream_close(&p->upload_stream);
    params_unsubscribe(&p->subscriber);
    header_free(&p->header);
    free(p);
}

static void start_push(struct call *call)
{
    static const struct call_handler handler = {.bytes = push_bytes, .on_close = push_on_close};
    static const struct upload_stream_kind kind = {
        .type = &parley__v1__params_upload__descriptor,
        .header = push_header,
        .complete = push_complete,
        .closed = push_closed,
    };
    struct push *p = call_state(call, sizeof(*p));

    if (p == NULL)
        return;
    p->subscriber.closing = push_closing;
    call_set_handler(call, &handler, p);
    upload_stream_init(&p->upload_stream, call, &kind);
}

#define PARAMS_UPDATE_METHODS(METHOD)                                                        \
    METHOD(BIDI, KEY, "Params/UpdateAndFetch", params_upload, params_download, start_update) \
    METHOD(CLIENT_STREAM, KEY, "Params/Push", params_upload, params_push_response, start_push)

#define PARLEY_PLACE JOURNAL_PLACE_PARAMS
PLACED_TABLE(params_update_methods, PARAMS_UPDATE_METHODS)
