/* parley.v1.Act, Attach: an environment worker's stream. It sends its offer first; then it receives
 * orders and sends results. The end of the stream detaches it. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/log.h"
#include "parley/v1/act.pb-c.h"
#include "server/act/session.h"
#include "server/act/trainer.h"
#include "server/api/services.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

enum { ENVIRONMENT_MAX_BYTES = 256 };

struct attach {
    struct call *call;
    struct server *server;
    struct env_worker worker;
    bool is_open; /* its offer was accepted */
    bool is_accepted_due, is_finished;
    char env_id[ENV_ID_MAX_BYTES + 1];
};

static void attach_finish(struct attach *a, const struct error *err)
{
    if (a->is_finished)
        return;
    a->is_finished = true;
    call_finish(a->call, err);
}

static void act_attach_notify(struct env_worker *o)
{
    struct attach *a = container_of(o, struct attach, worker);

    if (o->must_go)
        attach_finish(a, &o->err);
    else if (!a->is_finished)
        call_notify(a->call);
}

static enum status take_offer(struct attach *a, const Parley__V1__ActAttachRequest *request,
                              struct error *err)
{
    const Parley__V1__ActOffer *offer = request->offer;
    char quoted[ENVIRONMENT_MAX_BYTES];
    enum status rc;

    if (request->what_case != PARLEY__V1__ACT_ATTACH_REQUEST__WHAT_OFFER)
        return error_field(err, "offer", "is missing, it must be sent first");
    if (strlen(offer->env_id) > ENV_ID_MAX_BYTES)
        return error_field(err, "offer.env_id", "is longer than %d bytes", ENV_ID_MAX_BYTES);
    memcpy(a->env_id, offer->env_id, strlen(offer->env_id) + 1);
    rc = models_get(&a->worker.model, a->server->models, offer->model, err);
    if (rc != STATUS_OK)
        return rc;
    a->worker.principal = call_principal(a->call)->id;
    a->worker.env_id = a->env_id;
    a->worker.run_id = offer->run_id;
    a->worker.notify = act_attach_notify;
    a->is_accepted_due = true; /* an order may come inside env_worker_open */
    rc = env_worker_open(&a->worker, a->server->trainers, err);
    if (rc != STATUS_OK)
        return rc;
    a->is_open = true;
    log_debug("attached", "model=%s row=%u environment=%s", a->worker.model->name, a->worker.row,
              log_quote(quoted, sizeof(quoted), offer->environment));
    call_notify(a->call);
    return STATUS_OK;
}

static enum status take_result(struct attach *a, const Parley__V1__ActAttachRequest *request,
                               struct error *err)
{
    const Parley__V1__ActEpisodeResult *from = request->result;
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

static void message(struct call *call, void *state, const ProtobufCMessage *message,
                    struct arena *arena)
{
    const Parley__V1__ActAttachRequest *request = (const Parley__V1__ActAttachRequest *)message;
    struct attach *a = state;
    struct error err;
    enum status rc;

    (void)arena;
    if (request == NULL) {
        attach_finish(a, NULL);
        return;
    }
    rc = a->is_open ? take_result(a, request, &err) : take_offer(a, request, &err);
    if (rc != STATUS_OK)
        attach_finish(a, &err);
    else if (!a->is_finished)
        call_read(call);
}

static void act_attach_write_ready(struct call *call, void *state)
{
    Parley__V1__ActAttachResponse response = PARLEY__V1__ACT_ATTACH_RESPONSE__INIT;
    Parley__V1__ActAccepted accepted = PARLEY__V1__ACT_ACCEPTED__INIT;
    Parley__V1__ActEpisode run = PARLEY__V1__ACT_EPISODE__INIT;
    struct attach *a = state;
    struct env_worker *o = &a->worker;

    if (a->is_finished || !a->is_open)
        return;
    if (a->is_accepted_due) {
        a->is_accepted_due = false;
        accepted.row = o->row;
        response.what_case = PARLEY__V1__ACT_ATTACH_RESPONSE__WHAT_ACCEPTED;
        response.accepted = &accepted;
        call_write(call, &response.base, o->has_order);
    } else if (o->has_order) {
        o->has_order = false;
        run.episode = o->order.episode;
        run.n_steps = o->order.n_steps;
        run.gamma = o->order.gamma;
        run.seed = o->order.seed;
        response.what_case = PARLEY__V1__ACT_ATTACH_RESPONSE__WHAT_RUN;
        response.run = &run;
        call_write(call, &response.base, false);
    }
}

static void act_attach_on_close(struct call *call, void *state, enum status why)
{
    struct attach *a = state;

    (void)call;
    (void)why;
    a->is_finished = true;
    if (a->is_open)
        env_worker_close(&a->worker);
    free(a);
}

static void act_attach_drain(struct call *call, void *state)
{
    struct attach *a = state;
    struct error err;

    (void)call;
    (void)error_draining(&err);
    attach_finish(a, &err);
}

static void start_attach(struct call *call, const ProtobufCMessage *request, struct server *server)
{
    static const struct call_handler handler = {.on_write_ready = act_attach_write_ready,
                                                .message = message,
                                                .drain = act_attach_drain,
                                                .on_close = act_attach_on_close};
    struct attach *a = try_alloc(1, sizeof(*a));
    struct error err;

    (void)request;
    if (a == NULL) {
        (void)error_no_memory(&err, sizeof(*a), "an observer");
        call_finish(call, &err);
        return;
    }
    a->call = call;
    a->server = server;
    call_set_handler(call, &handler, a);
    call_read(call);
}

static const struct rpc rows[] = {
    {"/parley.v1.Act/Attach", RPC_BIDI, &parley__v1__act_attach_request__descriptor,
     &parley__v1__act_attach_response__descriptor, start_attach, ACCESS_ADMIN},
};

const struct rpc_table attach_rpcs = {rows, sizeof(rows) / sizeof(rows[0])};
