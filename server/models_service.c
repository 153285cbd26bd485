/* parley.v1.Models. */
#include "server/daemon.h"
#include "server/repository_call.h"
#include "server/services.h"
#include "server/wire.h"

static void list_models(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    Parley__V1__ModelsListResponse response = PARLEY__V1__MODELS_LIST_RESPONSE__INIT;
    Parley__V1__Model *models[DAEMON_MAX_MODELS];
    struct error err;

    (void)message;
    for (size_t i = 0; i < d->n_models; i++) {
        if (wire_model(&models[i], d->models[i], i == 0, call_arena(call), &err) != STATUS_OK) {
            call_finish(call, &err);
            return;
        }
    }
    response.models = models;
    response.n_models = d->n_models;
    call_reply(call, &response.base);
}

static void get_model(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    const Parley__V1__ModelsGetRequest *request = (const Parley__V1__ModelsGetRequest *)message;
    Parley__V1__Model *response;
    struct model *m;
    struct error err;
    enum status rc;

    rc = daemon_model(&m, d, request->name, &err);
    if (rc == STATUS_OK)
        rc = wire_model(&response, m, m == d->models[0], call_arena(call), &err);
    if (rc == STATUS_OK)
        call_reply(call, &response->base);
    else
        call_finish(call, &err);
}

static void reply_load(struct call *call, struct daemon *d, const char *name)
{
    Parley__V1__Model *response;
    struct model *m;
    struct error err;
    enum status rc = daemon_model(&m, d, name, &err);

    if (rc == STATUS_OK)
        rc = wire_model(&response, m, m == d->models[0], call_arena(call), &err);
    if (rc == STATUS_OK)
        call_reply(call, &response->base);
    else
        call_finish(call, &err);
}

static void load_model(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    repository_call_load(call, d, ((const Parley__V1__ModelsLoadRequest *)message)->name,
                         reply_load);
}

static void reply_unload(struct call *call, struct daemon *d, const char *name)
{
    Parley__V1__ModelsUnloadResponse response = PARLEY__V1__MODELS_UNLOAD_RESPONSE__INIT;

    (void)d;
    (void)name;
    call_reply(call, &response.base);
}

static void unload_model(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    repository_call_unload(call, d, ((const Parley__V1__ModelsUnloadRequest *)message)->name,
                           reply_unload);
}

const struct rpc models_rpcs[N_MODELS_RPCS] = {
    {"/parley.v1.Models/List", RPC_UNARY, &parley__v1__models_list_request__descriptor,
     &parley__v1__models_list_response__descriptor, list_models},
    {"/parley.v1.Models/Get", RPC_UNARY, &parley__v1__models_get_request__descriptor,
     &parley__v1__model__descriptor, get_model},
    {"/parley.v1.Models/Load", RPC_UNARY, &parley__v1__models_load_request__descriptor,
     &parley__v1__model__descriptor, load_model},
    {"/parley.v1.Models/Unload", RPC_UNARY, &parley__v1__models_unload_request__descriptor,
     &parley__v1__models_unload_response__descriptor, unload_model},
};
