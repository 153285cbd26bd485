/* parley.v1.Params, all but updates: Create, Pull, Watch, List, Delete. */
#include <stdlib.h>

#include "base/list.h"
#include "server/api/parley/checkpoint_call.h"
#include "server/api/parley/conversation_call.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/params_download.h"
#include "server/api/parley/params_upload_stream.h"
#include "server/api/parley/placed_call.h"
#include "server/api/parley/wire_sharing.h"
#include "server/call/subscription.h"
#include "server/model/model.h"
#include "server/params/checkpoint.h"
#include "server/params/params.h"
#include "server/params/round.h"
#include "server/server.h"

/* --- Create --- */

struct creation {
    struct upload_stream upload_stream;
    struct params_set *set; /* NULL before the config, and after the set has closed */
    struct params_subscriber subscriber;
    bool is_made;
};

static void create_closing(struct params_subscriber *subscriber, const struct error *why)
{
    struct creation *c = container_of(subscriber, struct creation, subscriber);

    c->set = NULL;
    upload_stream_fail(&c->upload_stream, why);
}

static void create_made(void *arg, const struct error *err)
{
    Parley__V1__ParamsCreateResponse response = PARLEY__V1__PARAMS_CREATE_RESPONSE__INIT;
    struct creation *c = arg;

    if (err->status != STATUS_OK) {
        upload_stream_fail(&c->upload_stream, err);
        return;
    }
    c->is_made = true;
    c->upload_stream.is_over = true;
    call_reply(c->upload_stream.call, &response.base);
}

static void create_config(struct upload_stream *in, const ProtobufCMessage *message)
{
    struct creation *c = container_of(in, struct creation, upload_stream);
    struct server *server = call_server(in->call);
    struct upload_config config;
    struct access_sharing sharing;
    struct params_spec spec;
    struct error err;
    enum status rc;

    wire_sharing(&sharing, ((const Parley__V1__ParamsCreateRequest *)message)->config->access);
    rc = params_wire_config(&spec, ((const Parley__V1__ParamsCreateRequest *)message)->config,
                            call_arena(in->call), &err);
    if (rc == STATUS_OK)
        rc = params_make(&c->set, server->params, call_principal(in->call), &spec, &sharing, true,
                         &err);
    if (rc != STATUS_OK) {
        c->set = NULL;
        upload_stream_fail(in, &err);
        return;
    }
    rc = params_wire_describe(c->set, ((const Parley__V1__ParamsCreateRequest *)message)->config,
                              &err);
    if (rc != STATUS_OK) {
        params_close(c->set, &err);
        c->set = NULL;
        upload_stream_fail(in, &err);
        return;
    }
    params_subscribe(c->set, &c->subscriber);
    config = (struct upload_config){
        .spec = &c->set->spec,
        .memory = c->set->memory,
        .model = c->set->model,
        .may_be_non_finite = c->set->spec.allow_non_finite,
    };
    upload_stream_begin(in, &config);
}

static void create_complete(struct upload_stream *in)
{
    struct creation *c = container_of(in, struct creation, upload_stream);

    params_fill(c->set, upload_take(in->upload), create_made, c);
}

/* Without values they are zero: a new block of the set is zeroed. */
static void create_closed(struct upload_stream *in)
{
    struct error err;

    if (in->upload != NULL) {
        create_complete(in);
        return;
    }
    (void)error_field(&err, "config", "is missing");
    upload_stream_fail(in, &err);
}

static void create_bytes(struct call *call, void *state, struct call_bytes *bytes)
{
    struct creation *c = state;

    upload_stream_bytes(&c->upload_stream, bytes);
}

static void create_on_close(struct call *call, void *state, enum status why)
{
    struct creation *c = state;
    struct error err;

    upload_stream_close(&c->upload_stream);
    params_unsubscribe(&c->subscriber);
    if (c->set != NULL && !c->is_made) {
        c->set->made = NULL;
        (void)error_set(&err, STATUS_CANCELLED, "who creates them has gone away");
        params_close(c->set, &err);
    }
    free(c);
}

static void start_create(struct call *call)
{
    static const struct call_handler handler = {.bytes = create_bytes, .on_close = create_on_close};
    static const struct upload_stream_kind kind = {
        .type = &parley__v1__params_create_request__descriptor,
        .header = create_config,
        .complete = create_complete,
        .closed = create_closed,
    };
    struct creation *c = call_state(call, sizeof(*c));

    if (c == NULL)
        return;
    c->subscriber.closing = create_closing;
    call_set_handler(call, &handler, c);
    upload_stream_init(&c->upload_stream, call, &kind);
}

/* --- Pull --- */

static void pull_write_ready(struct call *call, void *state)
{
    struct params_download *download = state;

    if (download->snapshot != NULL && download_write(download, call))
        call_finish(call, NULL);
}

static void pull_on_close(struct call *call, void *state, enum status why)
{
    download_drop(state);
}

static void start_pull(struct call *call, const Parley__V1__ParamsPullRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = pull_write_ready,
                                                .on_close = pull_on_close};
    struct server *server = call_server(call);
    struct params_download *download = arena_alloc(call_arena(call), 1, sizeof(*download));
    struct params_set *set;
    struct snapshot *s;
    struct error err;

    if (download == NULL) {
        (void)error_no_memory(&err, sizeof(*download), "a stream");
        call_finish(call, &err);
        return;
    }
    if (params_find(&set, server->params, call_principal(call), ACCESS_READ, request->name, &err) !=
        STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    if (params_wire_match(set, request->specs, request->n_specs, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    s = params_current(set->model->agent);
    download_begin(download, s, !request->has_if_newer_than || s->version > request->if_newer_than,
                   0, 0);
    if (request->client_id[0] != '\0')
        download->last_step = params_last_step(set, request->client_id);
    call_set_handler(call, &handler, download);
    call_notify(call);
}

/* --- Watch --- */

struct params_watch {
    struct subscription base;
    struct params_set *set; /* NULL after the set has closed */
    struct params_subscriber subscriber;
    bool has_told;
    uint64_t told_version;
};

static void watch_published(struct params_subscriber *subscriber)
{
    call_notify(container_of(subscriber, struct params_watch, subscriber)->base.call);
}

static void watch_closing(struct params_subscriber *subscriber, const struct error *why)
{
    struct params_watch *w = container_of(subscriber, struct params_watch, subscriber);

    w->set = NULL;
    subscription_end(&w->base, why);
}

static void params_service_watch_write_ready(struct call *call, void *state)
{
    Parley__V1__ParamsVersion message = PARLEY__V1__PARAMS_VERSION__INIT;
    struct params_watch *w = state;
    const struct snapshot *s;

    if (w->base.is_over)
        return;
    s = params_current(w->set->model->agent);
    if (w->has_told && w->told_version == s->version)
        return;
    w->has_told = true;
    w->told_version = s->version;
    message.version = s->version;
    message.contributors = s->contributors;
    message.n_contributors = s->n_contributors;
    call_write(call, &message.base, false);
}

static void params_service_watch_on_close(struct call *call, void *state, enum status why)
{
    struct params_watch *w = state;

    params_unsubscribe(&w->subscriber);
    free(w);
}

static void params_service_start_watch(struct call *call,
                                       const Parley__V1__ParamsWatchRequest *request)
{
    static const struct call_handler handler = {.on_write_ready = params_service_watch_write_ready,
                                                .drain = subscription_drain,
                                                .on_close = params_service_watch_on_close};
    struct server *server = call_server(call);
    struct params_watch *w;
    struct params_set *set;
    struct error err;

    if (params_find(&set, server->params, call_principal(call), ACCESS_READ, request->name, &err) !=
        STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    w = call_state(call, sizeof(*w));
    if (w == NULL)
        return;
    w->set = set;
    w->subscriber.published = watch_published;
    w->subscriber.closing = watch_closing;
    params_subscribe(set, &w->subscriber);
    subscription_start(&w->base, call, &handler);
}

/* --- List, Delete --- */

static void fill_info(Parley__V1__ParamsInfo *out, const struct params_set *set, char *name)
{
    const struct snapshot *s = params_current(set->model->agent);

    parley__v1__params_info__init(out);
    out->name = name;
    out->version = s->version;
    out->size_bytes = s->size_bytes;
    out->round_size = (uint32_t)set->spec.round_size;
    out->waiting = (uint32_t)params_n_waiting(set);
    out->rounds = set->counters.rounds;
    out->aborted = set->counters.aborted;
    out->partial = set->counters.partial;
    out->duplicates = set->counters.duplicates;
    out->held_bytes = params_held(set);
    out->depth = (uint32_t)params_depth(set);
    out->dropped = set->counters.dropped;
}

static enum status list_params(struct call *call, const Parley__V1__ParamsListRequest *request,
                               Parley__V1__ParamsListResponse *response, struct error *err)
{
    struct {
        Parley__V1__ParamsInfo infos[PARAMS_MAX_SETS], *pointers[PARAMS_MAX_SETS];
        char names[PARAMS_MAX_SETS][SHARED_NAME_PATH_SIZE];
    } *parts = arena_alloc(call_arena(call), 1, sizeof(*parts));
    const struct principal *who = call_principal(call);
    const struct list *all = &call_server(call)->params->names.all;

    if (parts == NULL)
        return error_no_memory(err, sizeof(*parts), "a list of parameters");
    for (struct link *l = list_first(all); l != NULL; l = list_next(all, l)) {
        const struct params_set *set = params_at(l);
        size_t i = response->n_params;

        if (!params_is_listed(set, who))
            continue;
        shared_name_path(parts->names[i], &set->name, who);
        fill_info(&parts->infos[i], set, parts->names[i]);
        parts->pointers[i] = &parts->infos[i];
        response->n_params++;
    }
    response->params = parts->pointers;
    return STATUS_OK;
}

static enum status delete_params(struct call *call, const Parley__V1__ParamsDeleteRequest *request,
                                 Parley__V1__ParamsDeleteResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    const char *name = request->name;
    struct params_set *set;

    if (params_find(&set, server->params, call_principal(call), ACCESS_OWN, name, err) != STATUS_OK)
        return err->status;
    if (params_unkeep(set, err) != STATUS_OK)
        return err->status;
    (void)error_because(err, STATUS_NOT_FOUND, REASON_PARAMS_DELETED, "name",
                        "the parameters '%s' were deleted", name);
    params_close(set, err);
    return STATUS_OK;
}

static void params_start_checkpoint(struct call *call,
                                    const Parley__V1__ParamsCheckpointRequest *request)
{
    static const Parley__V1__ParamsCheckpointResponse response =
        PARLEY__V1__PARAMS_CHECKPOINT_RESPONSE__INIT;
    struct checkpoint_call *c;
    struct params_set *set;
    struct error err = {.status = STATUS_OK};
    bool is_kept = false;

    if (params_find(&set, call_server(call)->params, call_principal(call), ACCESS_WRITE,
                    request->name, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    c = checkpoint_call_make(call, &response.base);
    if (c != NULL && (params_settle(set, &c->wait, &is_kept, &err) != STATUS_OK || is_kept))
        checkpoint_call_end(c, &err);
}

#define PARAMS_SERVICE_METHODS(METHOD)                                                             \
    METHOD(CLIENT_STREAM, KEY, "Params/Create", params_create_request, params_create_response,     \
           start_create)                                                                           \
    METHOD(SERVER_STREAM, KEY, "Params/Pull", params_pull_request, params_download, start_pull)    \
    METHOD(SERVER_STREAM, KEY, "Params/Watch", params_watch_request, params_version,               \
           params_service_start_watch)                                                             \
    METHOD(ANSWER, KEY, "Params/List", params_list_request, params_list_response, list_params)     \
    METHOD(KEPT, KEY, "Params/Delete", params_delete_request, params_delete_response,              \
           delete_params)                                                                          \
    METHOD(UNARY, KEY, "Params/Checkpoint", params_checkpoint_request, params_checkpoint_response, \
           params_start_checkpoint)

#define PARLEY_PLACE JOURNAL_PLACE_PARAMS
PLACED_TABLE(params_service_methods, PARAMS_SERVICE_METHODS)
