/* parley.v1.Params, Follow: one step of a set towards the newest version of another. A set that is
 * not there is made: the source's version is copied on the source's compute thread, and becomes the
 * first version of the new set. A call that closes before the new set serves takes it with it. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "proto/codec.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/params_wire.h"
#include "server/api/parley/placed_call.h"
#include "server/model/model.h"
#include "server/params/params.h"
#include "server/params/round.h"
#include "server/server.h"

/* The first values of a set that is made. The job may outlive its call. */
struct follow_copy {
    struct job job;
    struct follow *follow; /* NULL: the call has closed */
    struct snapshot *from;
    struct params_memory *memory; /* of the new set */
    float *values;                /* a block of memory */
};

struct follow {
    struct call *call;
    struct params_set *set; /* NULL before it is found, and after it has closed */
    struct params_subscriber subscriber;
    struct update_waiter waiter;
    struct follow_copy *copy; /* under way, or NULL */
    uint64_t source_version;
    bool is_making; /* the set is this call's until it serves */
    bool is_over;   /* the call was answered */
};

static void follow_fail(struct follow *f, const struct error *why)
{
    if (f->is_over)
        return;
    f->is_over = true;
    call_finish(f->call, why);
}

static void follow_answer(struct follow *f, uint64_t version, bool is_made)
{
    Parley__V1__ParamsFollowResponse response = PARLEY__V1__PARAMS_FOLLOW_RESPONSE__INIT;

    if (f->is_over)
        return;
    f->is_over = true;
    response.version = version;
    response.source_version = f->source_version;
    response.is_made = is_made;
    call_reply(f->call, &response.base);
}

static void follow_closing(struct params_subscriber *subscriber, const struct error *why)
{
    struct follow *f = container_of(subscriber, struct follow, subscriber);

    params_leave(f->set, &f->waiter);
    f->set = NULL;
    follow_fail(f, why);
}

static void follow_settled(struct update_waiter *w, const struct update_outcome *end)
{
    struct follow *f = container_of(w, struct follow, waiter);

    if (end->err.status == STATUS_OK)
        follow_answer(f, end->counted_in, false);
    else
        follow_fail(f, &end->err);
}

static void follow_on_close(struct call *call, void *state, enum status why)
{
    struct follow *f = state;
    struct error err;

    if (f->copy != NULL)
        f->copy->follow = NULL;
    if (f->set != NULL) {
        params_leave(f->set, &f->waiter);
        params_unsubscribe(&f->subscriber);
    }
    if (f->set != NULL && f->is_making) {
        f->set->made = NULL;
        (void)error_set(&err, STATUS_CANCELLED, "who makes them has gone away");
        params_close(f->set, &err);
    }
    free(f);
}

/* --- a set that is made --- */

static void follow_made(void *arg, const struct error *err)
{
    struct follow *f = arg;

    if (err->status != STATUS_OK) {
        follow_fail(f, err);
        return;
    }
    f->is_making = false;
    follow_answer(f, 0, true);
}

/* Compute thread. */
static void follow_run_copy(struct job *job)
{
    struct follow_copy *c = container_of(job, struct follow_copy, job);

    memcpy(c->values, c->from->values, c->from->size_bytes);
}

static void follow_copied(struct job *job)
{
    struct follow_copy *c = container_of(job, struct follow_copy, job);
    struct follow *f = c->follow;

    if (f != NULL)
        f->copy = NULL;
    if (f != NULL && f->set != NULL && !f->is_over) {
        params_fill(f->set, c->values, follow_made, f);
        c->values = NULL; /* the set's now */
    }
    params_memory_give(c->memory, c->values);
    params_memory_unref(c->memory);
    snapshot_unref(c->from);
    free(c);
}

static enum status follow_copy(struct follow *f, struct params_set *source, struct error *err)
{
    struct follow_copy *c = try_alloc(1, sizeof(*c));

    if (c == NULL)
        return error_no_memory(err, sizeof(*c), "a copy of parameters");
    if (params_memory_take(&c->values, f->set->memory, err) != STATUS_OK) {
        free(c);
        return err->status;
    }
    c->job = (struct job){.run = follow_run_copy, .done = follow_copied};
    c->follow = f;
    c->from = snapshot_ref(params_current(source->model->agent));
    c->memory = params_memory_ref(f->set->memory);
    f->copy = c;
    model_run(source->model, &c->job);
    return STATUS_OK;
}

/* What describes the new set: the source's tensors, SGD, and rounds of one. */
static enum status follow_config(Parley__V1__ParamsConfig **out, const char *name,
                                 const struct params_set *source, struct arena *arena,
                                 struct error *err)
{
    static Parley__V1__ParamsOptimiser plain = PARLEY__V1__PARAMS_OPTIMISER__INIT;
    Parley__V1__ParamsConfig *config = arena_alloc(arena, 1, sizeof(*config));
    ProtobufCMessage *given = NULL;

    if (config == NULL)
        return error_no_memory(err, sizeof(*config), "what describes a set of parameters");
    if (codec_decode(&given, &parley__v1__params_config__descriptor, source->config,
                     source->config_size, PARAMS_WIRE_MAX_FIELDS, arena, err) != STATUS_OK)
        return err->status;
    parley__v1__params_config__init(config);
    config->name = (char *)name;
    config->n_specs = ((const Parley__V1__ParamsConfig *)given)->n_specs;
    config->specs = ((const Parley__V1__ParamsConfig *)given)->specs;
    config->optimiser = &plain;
    config->round_size = 1;
    config->allow_non_finite = source->spec.allow_non_finite;
    *out = config;
    return STATUS_OK;
}

static enum status follow_make(struct follow *f, const char *name, struct params_set *source,
                               struct error *err)
{
    struct arena *arena = call_arena(f->call);
    const struct access_sharing nobody = {0};
    Parley__V1__ParamsConfig *config = NULL;
    struct params_spec spec;
    enum status rc = follow_config(&config, name, source, arena, err);

    if (rc == STATUS_OK)
        rc = params_wire_config(&spec, config, arena, err);
    if (rc == STATUS_OK)
        rc = params_make(&f->set, call_server(f->call)->params, call_principal(f->call), &spec,
                         &nobody, true, err);
    if (rc != STATUS_OK) {
        f->set = NULL;
        return rc;
    }
    rc = params_wire_describe(f->set, config, err);
    if (rc == STATUS_OK)
        rc = follow_copy(f, source, err);
    if (rc != STATUS_OK) {
        params_close(f->set, err);
        f->set = NULL;
        return rc;
    }
    f->is_making = true;
    params_subscribe(f->set, &f->subscriber);
    return STATUS_OK;
}

/* --- a step --- */

static enum status follow_step(struct follow *f, const Parley__V1__ParamsFollowRequest *request,
                               struct params_set *source, struct error *err)
{
    struct snapshot *to = params_current(source->model->agent);

    if (source == f->set)
        return error_field(err, "source", "is the set itself: name the one that it follows");
    if (params_spec_match(&f->set->spec, source->spec.tensors, source->spec.n_tensors, err) !=
        STATUS_OK)
        return err->status;
    if (request->tau_given_case == 0) {
        follow_answer(f, params_current(f->set->model->agent)->version, false);
        f->set = NULL; /* it is not subscribed to */
        return STATUS_OK;
    }
    if (params_follow(f->set, source->name.text, to, (float)request->tau, &f->waiter, err) !=
        STATUS_OK)
        return err->status;
    params_subscribe(f->set, &f->subscriber);
    return STATUS_OK;
}

static enum status follow_begin(struct follow *f, const Parley__V1__ParamsFollowRequest *request,
                                struct error *err)
{
    const struct params_sets *all = call_server(f->call)->params;
    const struct principal *who = call_principal(f->call);
    struct params_set *source;
    enum status rc;

    if (request->tau_given_case != 0 && !(request->tau >= 0 && request->tau <= 1))
        return error_field(err, "tau", "is %g, it must be from 0 to 1", request->tau);
    if (params_find(&source, all, who, ACCESS_READ, request->source, err) != STATUS_OK)
        return error_name_field(err, "source");
    if (params_count_request(all, who, err) != STATUS_OK)
        return err->status;
    f->source_version = params_current(source->model->agent)->version;
    rc = params_find(&f->set, all, who, ACCESS_WRITE, request->name, err);
    if (rc == STATUS_NOT_FOUND && strchr(request->name, '/') == NULL) {
        f->set = NULL;
        return follow_make(f, request->name, source, err);
    }
    if (rc == STATUS_OK)
        rc = follow_step(f, request, source, err);
    if (rc != STATUS_OK)
        f->set = NULL;
    return rc;
}

static void params_follow_start(struct call *call, const Parley__V1__ParamsFollowRequest *request)
{
    static const struct call_handler handler = {.on_close = follow_on_close};
    struct follow *f = call_state(call, sizeof(*f));
    struct error err;

    if (f == NULL)
        return;
    f->call = call;
    f->waiter.settled = follow_settled;
    f->subscriber.closing = follow_closing;
    call_set_handler(call, &handler, f);
    if (follow_begin(f, request, &err) != STATUS_OK)
        follow_fail(f, &err);
}

#define PARAMS_FOLLOW_METHODS(METHOD)                                                  \
    METHOD(UNARY, KEY, "Params/Follow", params_follow_request, params_follow_response, \
           params_follow_start)

#define PARLEY_PLACE JOURNAL_PLACE_PARAMS
PLACED_TABLE(params_follow_methods, PARAMS_FOLLOW_METHODS)
