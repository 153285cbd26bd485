/* parley.v1.Models. */
#include "server/daemon.h"
#include "server/services.h"
#include "server/wire.h"

static void list_models(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    Parley__V1__ModelsListResponse response = PARLEY__V1__MODELS_LIST_RESPONSE__INIT;
    Parley__V1__Model *models[CONFIG_MAX_MODELS + 1];
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

const struct rpc models_rpcs[N_MODELS_RPCS] = {
    {"/parley.v1.Models/List", RPC_UNARY, &parley__v1__models_list_request__descriptor,
     &parley__v1__models_list_response__descriptor, list_models},
    {"/parley.v1.Models/Get", RPC_UNARY, &parley__v1__models_get_request__descriptor,
     &parley__v1__model__descriptor, get_model},
};
