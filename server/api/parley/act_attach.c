/* parley.v1.Act, Attach: the stream of an environment worker of a training run. An order is an
 * episode, its answer the episode's result. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/log.h"
#include "parley/v1/act.pb-c.h"
#include "server/act/session.h"
#include "server/act/trainer.h"
#include "server/api/parley/attach_stream.h"
#include "server/api/parley/methods.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

enum { ENVIRONMENT_MAX_BYTES = 256 };

struct attach {
    struct attach_stream stream;
    struct env_worker worker;
    char env_id[ENV_ID_MAX_BYTES + 1];
};

static struct attach *attach_of(const struct attach_stream *s)
{
    return container_of(s, struct attach, stream);
}

static void act_attach_notify(struct env_worker *o)
{
    struct attach *a = container_of(o, struct attach, worker);

    if (o->must_go)
        attach_stream_finish(&a->stream, &o->err);
    else if (!a->stream.is_finished)
        call_notify(a->stream.call);
}

static enum status take_offer(struct attach_stream *s, const ProtobufCMessage *message,
                              struct error *err)
{
    const Parley__V1__ActAttachRequest *request = (const Parley__V1__ActAttachRequest *)message;
    struct server *server = call_server(s->call);
    struct attach *a = attach_of(s);
    const Parley__V1__ActOffer *offer = request->offer;
    char quoted[ENVIRONMENT_MAX_BYTES];
    enum status rc;

    if (request->what_case != PARLEY__V1__ACT_ATTACH_REQUEST__WHAT_OFFER)
        return error_field(err, "offer", "is missing, it must be sent first");
    if (strlen(offer->env_id) > ENV_ID_MAX_BYTES)
        return error_field(err, "offer.env_id", "is longer than %d bytes", ENV_ID_MAX_BYTES);
    memcpy(a->env_id, offer->env_id, strlen(offer->env_id) + 1);
    rc = models_get(&a->worker.model, server->models, offer->model, err);
    if (rc != STATUS_OK)
        return rc;
    a->worker.principal = call_principal(s->call)->id;
    a->worker.env_id = a->env_id;
    a->worker.run_id = offer->run_id;
    a->worker.notify = act_attach_notify;
    rc = env_worker_open(&a->worker, server->trainers, err); /* an order may come inside */
    if (rc != STATUS_OK)
        return rc;
    log_debug("attached", "model=%s row=%u environment=%s", a->worker.model->name, a->worker.row,
              log_quote(quoted, sizeof(quoted), offer->environment));
    attach_stream_accept(s);
    return STATUS_OK;
}

static enum status take_result(struct attach_stream *s, const ProtobufCMessage *message,
                               struct arena *arena, struct error *err)
{
    const Parley__V1__ActAttachRequest *request = (const Parley__V1__ActAttachRequest *)message;
    const Parley__V1__ActEpisodeResult *from = request->result;
    struct attach *a = attach_of(s);
    struct episode_result result;

    if (request->what_case != PARLEY__V1__ACT_ATTACH_REQUEST__WHAT_RESULT)
        return error_field(err, "result", "is missing, an offer is sent only once");
    result = (struct episode_result){
        .episode = from->episode,
        .returns = from->returns,
        .n_returns = from->n_returns,
        .reward = from->reward,
        .has_failed = from->error != NULL,
    };
    if (from->error != NULL)
        log_info("episode", "model=%s row=%u failed=%u", a->worker.model->name, a->worker.row,
                 from->error->code);
    return env_worker_result(&a->worker, &result, err);
}

static void act_attach_write_accepted(struct attach_stream *s)
{
    Parley__V1__ActAttachResponse response = PARLEY__V1__ACT_ATTACH_RESPONSE__INIT;
    Parley__V1__ActAccepted accepted = PARLEY__V1__ACT_ACCEPTED__INIT;
    const struct env_worker *o = &attach_of(s)->worker;

    accepted.row = o->row;
    response.what_case = PARLEY__V1__ACT_ATTACH_RESPONSE__WHAT_ACCEPTED;
    response.accepted = &accepted;
    call_write(s->call, &response.base, o->has_order);
}

static void act_attach_write_order(struct attach_stream *s)
{
    Parley__V1__ActAttachResponse response = PARLEY__V1__ACT_ATTACH_RESPONSE__INIT;
    Parley__V1__ActEpisode run = PARLEY__V1__ACT_EPISODE__INIT;
    struct env_worker *o = &attach_of(s)->worker;

    if (!o->has_order)
        return;
    o->has_order = false;
    run.episode = o->order.episode;
    run.n_steps = o->order.n_steps;
    run.gamma = o->order.gamma;
    run.seed = o->order.seed;
    response.what_case = PARLEY__V1__ACT_ATTACH_RESPONSE__WHAT_RUN;
    response.run = &run;
    call_write(s->call, &response.base, false);
}

static void act_attach_release(struct attach_stream *s)
{
    if (s->is_accepted)
        env_worker_close(&attach_of(s)->worker);
}

static void start_attach(struct call *call)
{
    /* The worker is detached by release alone: its notify may come while the trainers go through
     * their workers. */
    static const struct attach_stream_kind kind = {.offer = take_offer,
                                                   .take = take_result,
                                                   .write_accepted = act_attach_write_accepted,
                                                   .write_orders = act_attach_write_order,
                                                   .release = act_attach_release,
                                                   .ends_when_draining = true};
    struct attach *a = try_alloc(1, sizeof(*a));
    struct error err;

    if (a == NULL) {
        (void)error_no_memory(&err, sizeof(*a), "an observer");
        call_finish(call, &err);
        return;
    }
    attach_stream_begin(&a->stream, call, &kind);
}

#define ACT_ATTACH_METHODS(METHOD) \
    METHOD(BIDI, ADMIN, "Act/Attach", act_attach_request, act_attach_response, start_attach)

PARLEY_TABLE(act_attach_methods, ACT_ATTACH_METHODS)
