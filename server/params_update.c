/* parley.v1.Params, UpdateAndFetch and Push. An update goes through: header, upload, contribution,
 * round, download; then the stream's next may begin. The header's step is looked up twice: at once,
 * so that a step that came before needs no memory, and again when all of it is there, since much
 * may have happened meanwhile. A call that goes away leaves its round; a failure ends its call, and
 * no other. */
#include <stdlib.h>
#include <string.h>

#include "server/daemon.h"
#include "server/download.h"
#include "server/intake.h"
#include "server/services.h"

/* What both have of an upload's header. */
struct header {
    struct params_set *set;
    char client[PARAMS_MAX_CLIENT + 1];
    uint64_t step_id, base_version;
    Parley__V1__Want want;
    enum params_step step; /* as it was when the header came */
};

static enum status look_up(struct header *h, enum params_step *out, uint64_t *ret_version,
                           struct error *err)
{
    return params_look_up(out, ret_version, h->set, h->client, h->step_id, h->base_version, err);
}

static enum status read_header(struct header *out, const ProtobufCMessage *message,
                               struct daemon *d, struct error *err)
{
    const Parley__V1__ParamsUploadHeader *from =
        ((const Parley__V1__ParamsUpload *)message)->header;
    size_t len = strlen(from->client_id);
    const struct tensor_view *tensors;
    struct arena arena;
    uint64_t version;
    enum status rc;

    if (len == 0 || len > PARAMS_MAX_CLIENT)
        return error_field(err, "client_id", "has %zu bytes, it must have from 1 to %d", len,
                           PARAMS_MAX_CLIENT);
    if ((unsigned)from->want > PARLEY__V1__WANT__NOTHING)
        return error_field(err, "want", "is %d, there is no such wish", (int)from->want);
    rc = params_find(&out->set, &d->params, from->name, err);
    if (rc != STATUS_OK)
        return rc;
    arena_init(&arena, (size_t)64 << 20);
    if (from->n_specs > 0) {
        rc = params_wire_tensors(&tensors, from->specs, from->n_specs, &arena, err);
        if (rc == STATUS_OK)
            rc = params_spec_match(&out->set->spec, tensors, from->n_specs, err);
    }
    arena_deinit(&arena);
    if (rc != STATUS_OK)
        return rc;
    memcpy(out->client, from->client_id, len + 1);
    out->step_id = from->step_id;
    out->base_version = from->base_version;
    out->want = from->want;
    return look_up(out, &out->step, &version, err);
}

static void begin_upload(struct intake *in, const struct header *h)
{
    const struct upload_config config = {
        .spec = &h->set->spec,
        .memory = h->set->memory,
        .model = h->set->model,
        .may_be_non_finite = h->set->spec.allow_non_finite,
        .is_ignored = h->step != PARAMS_STEP_NEW,
    };

    intake_begin(in, &config);
}

/* The gradient that came; the block is its own. */
static enum status take_gradient(struct params_gradient **out, struct intake *in,
                                 const struct header *h, struct error *err)
{
    float *values;
    enum status rc;

    if (h->step != PARAMS_STEP_NEW)
        return error_set(err, STATUS_ABORTED,
                         "the round of step %llu was given up while it came again",
                         (unsigned long long)h->step_id);
    values = upload_take(in->upload);
    rc = gradient_make(out, h->client, h->step_id, h->base_version, values, err);
    if (rc != STATUS_OK)
        params_memory_give(h->set->memory, values);
    return rc;
}

/* --- UpdateAndFetch --- */

struct update {
    struct call *call;
    struct intake intake;
    struct header header; /* set: NULL before the first, and when it has closed */
    struct params_user user;
    struct contribution_waiter waiter;
    struct download download;
    struct endless endless;
    bool is_draining;
};

static void update_reply(struct update *u, uint64_t wait_us, uint64_t counted_in)
{
    struct snapshot *s = params_current(u->header.set->model->agent);
    bool has_values =
        u->header.want == PARLEY__V1__WANT__FULL ||
        (u->header.want == PARLEY__V1__WANT__IF_CHANGED && u->header.base_version != s->version);

    download_begin(&u->download, s, has_values, wait_us, counted_in);
    call_wake(u->call);
}

static void update_settled(struct contribution_waiter *w, const struct contribution_end *end)
{
    struct update *u = container_of(w, struct update, waiter);

    if (u->intake.is_over)
        return;
    if (end->err.status == STATUS_OK)
        update_reply(u, end->wait_us, end->counted_in);
    else
        intake_fail(&u->intake, &end->err);
}

static void update_closing(struct params_user *user, const struct error *why)
{
    struct update *u = container_of(user, struct update, user);

    params_leave(u->header.set, &u->waiter);
    u->header.set = NULL;
    intake_fail(&u->intake, why);
}

static void update_leave(struct update *u)
{
    if (u->header.set == NULL)
        return;
    params_leave(u->header.set, &u->waiter);
    params_unuse(&u->user);
    u->header.set = NULL;
}

static void fail_stopping(struct intake *in)
{
    struct error err;

    (void)error_set(&err, STATUS_UNAVAILABLE, "the server is stopping");
    intake_fail(in, &err);
}

static void update_header(struct intake *in, const ProtobufCMessage *message)
{
    struct update *u = container_of(in, struct update, intake);
    struct error err;

    update_leave(u);
    if (u->is_draining) {
        fail_stopping(in);
        return;
    }
    if (read_header(&u->header, message, call_daemon(u->call), &err) != STATUS_OK) {
        u->header.set = NULL;
        intake_fail(in, &err);
        return;
    }
    params_use(u->header.set, &u->user);
    begin_upload(in, &u->header);
}

static void update_complete(struct intake *in)
{
    struct update *u = container_of(in, struct update, intake);
    struct params_set *set = u->header.set;
    struct params_gradient *gradient;
    enum params_step step;
    uint64_t version;
    struct error err;
    enum status rc = look_up(&u->header, &step, &version, &err);

    if (rc == STATUS_OK && step == PARAMS_STEP_NEW) {
        rc = take_gradient(&gradient, in, &u->header, &err);
        if (rc == STATUS_OK)
            rc = params_contribute(set, gradient, &u->waiter, &err);
    } else if (rc == STATUS_OK) {
        set->counters.duplicates++;
        if (step == PARAMS_STEP_JOINS)
            params_join(set, u->header.client, u->header.step_id, &u->waiter);
        else
            update_reply(u, 0, version);
    }
    if (rc != STATUS_OK)
        intake_fail(in, &err);
}

static void update_closed(struct intake *in)
{
    struct error err;

    if (in->upload == NULL) {
        in->is_over = true;
        call_finish(in->call, NULL);
        return;
    }
    (void)error_set(&err, STATUS_INVALID, "the stream ended inside an upload");
    intake_fail(in, &err);
}

static void update_bytes(struct call *call, void *state, struct call_bytes *bytes)
{
    struct update *u = state;

    (void)call;
    intake_bytes(&u->intake, bytes);
}

static void update_room(struct call *call, void *state)
{
    struct update *u = state;

    if (u->intake.is_over || u->download.snapshot == NULL || !download_write(&u->download, call))
        return;
    if (u->is_draining)
        fail_stopping(&u->intake);
    else
        intake_next(&u->intake);
}

static void update_gone(struct call *call, void *state, enum status why)
{
    struct update *u = state;

    (void)call;
    (void)why;
    intake_gone(&u->intake);
    update_leave(u);
    download_drop(&u->download);
    endless_end(&u->endless);
    free(u);
}

/* What is under way goes on; nothing new begins. */
static void update_drain(struct endless *l)
{
    struct update *u = container_of(l, struct update, endless);

    u->is_draining = true;
    if (u->intake.upload == NULL && u->download.snapshot == NULL)
        fail_stopping(&u->intake);
}

static void start_update(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    static const struct call_handler handler = {
        .room = update_room, .bytes = update_bytes, .gone = update_gone};
    static const struct intake_kind kind = {
        .type = &parley__v1__params_upload__descriptor,
        .header = update_header,
        .complete = update_complete,
        .closed = update_closed,
    };
    struct update *u = call_state(call, sizeof(*u));

    (void)message;
    if (u == NULL)
        return;
    u->call = call;
    u->user.closing = update_closing;
    u->waiter.settled = update_settled;
    call_set_handler(call, &handler, u);
    intake_init(&u->intake, call, &kind);
    endless_begin(&u->endless, d, update_drain);
}

/* --- Push --- */

struct push {
    struct intake intake;
    struct header header;
    struct params_user user;
};

static void push_closing(struct params_user *user, const struct error *why)
{
    struct push *p = container_of(user, struct push, user);

    p->header.set = NULL;
    intake_fail(&p->intake, why);
}

static void push_header(struct intake *in, const ProtobufCMessage *message)
{
    struct push *p = container_of(in, struct push, intake);
    struct error err;

    if (read_header(&p->header, message, call_daemon(in->call), &err) != STATUS_OK) {
        p->header.set = NULL;
        intake_fail(in, &err);
        return;
    }
    params_use(p->header.set, &p->user);
    begin_upload(in, &p->header);
}

static void push_complete(struct intake *in)
{
    struct push *p = container_of(in, struct push, intake);
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
        intake_fail(in, &err);
        return;
    }
    response.version = params_current(set->model->agent)->version;
    response.depth = (uint32_t)params_depth(set);
    response.dropped = set->counters.dropped;
    in->is_over = true;
    call_reply(in->call, &response.base);
}

static void push_closed(struct intake *in)
{
    struct error err;

    (void)error_set(&err, STATUS_INVALID, "the stream ended without a gradient");
    intake_fail(in, &err);
}

static void push_bytes(struct call *call, void *state, struct call_bytes *bytes)
{
    struct push *p = state;

    (void)call;
    intake_bytes(&p->intake, bytes);
}

static void push_gone(struct call *call, void *state, enum status why)
{
    struct push *p = state;

    (void)call;
    (void)why;
    intake_gone(&p->intake);
    params_unuse(&p->user);
    free(p);
}

static void start_push(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    static const struct call_handler handler = {.bytes = push_bytes, .gone = push_gone};
    static const struct intake_kind kind = {
        .type = &parley__v1__params_upload__descriptor,
        .header = push_header,
        .complete = push_complete,
        .closed = push_closed,
    };
    struct push *p = call_state(call, sizeof(*p));

    (void)message;
    (void)d;
    if (p == NULL)
        return;
    p->user.closing = push_closing;
    call_set_handler(call, &handler, p);
    intake_init(&p->intake, call, &kind);
}

const struct rpc params_update_rpcs[N_PARAMS_UPDATE_RPCS] = {
    {"/parley.v1.Params/UpdateAndFetch", RPC_BIDI, &parley__v1__params_upload__descriptor,
     &parley__v1__params_download__descriptor, start_update},
    {"/parley.v1.Params/Push", RPC_CLIENT_STREAM, &parley__v1__params_upload__descriptor,
     &parley__v1__params_push_response__descriptor, start_push},
};
