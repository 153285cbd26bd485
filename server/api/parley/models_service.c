/* parley.v1.Models. */
#include "server/api/models_load.h"
#include "server/api/parley/wire.h"
#include "server/api/services.h"
#include "server/model/models.h"
#include "server/server.h"

static void list_models(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    Parley__V1__ModelsListResponse response = PARLEY__V1__MODELS_LIST_RESPONSE__INIT;
    Parley__V1__Model *models[MODELS_MAX_LOADED];
    struct error err;

    (void)message;
    for (size_t i = 0; i < server->models->n_loaded; i++) {
        if (wire_model(&models[i], server->models->loaded[i], i == 0, call_arena(call), &err) !=
            STATUS_OK) {
            call_finish(call, &err);
            return;
        }
    }
    response.models = models;
    response.n_models = server->models->n_loaded;
    call_reply(call, &response.base);
}

static void get_model(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Parley__V1__ModelsGetRequest *request = (const Parley__V1__ModelsGetRequest *)message;
    Parley__V1__Model *response;
    struct model *m;
    struct error err;
    enum status rc;

    rc = models_get(&m, server->models, request->name, &err);
    if (rc != STATUS_OK)
        rc = error_name_field(&err, "name");
    else
        rc = wire_model(&response, m, m == server->models->loaded[0], call_arena(call), &err);
    if (rc == STATUS_OK)
        call_reply(call, &response->base);
    else
        call_finish(call, &err);
}

static void models_service_reply_load(struct call *call, struct server *server, const char *name)
{
    Parley__V1__Model *response;
    struct model *m;
    struct error err;
    enum status rc = models_get(&m, server->models, name, &err);

    if (rc == STATUS_OK)
        rc = wire_model(&response, m, m == server->models->loaded[0], call_arena(call), &err);
    if (rc == STATUS_OK)
        call_reply(call, &response->base);
    else
        call_finish(call, &err);
}

static void load_model(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    models_call_load(call, server, ((const Parley__V1__ModelsLoadRequest *)message)->name,
                     models_service_reply_load);
}

static void models_service_reply_unload(struct call *call, struct server *server, const char *name)
{
    Parley__V1__ModelsUnloadResponse response = PARLEY__V1__MODELS_UNLOAD_RESPONSE__INIT;

    (void)server;
    (void)name;
    call_reply(call, &response.base);
}

static void unload_model(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    models_call_unload(call, server, ((const Parley__V1__ModelsUnloadRequest *)message)->name,
                       models_service_reply_unload);
}

static const struct rpc rows[] = {
    {"/parley.v1.Models/List", RPC_UNARY, &parley__v1__models_list_request__descriptor,
     &parley__v1__models_list_response__descriptor, list_models, ACCESS_KEY},
    {"/parley.v1.Models/Get", RPC_UNARY, &parley__v1__models_get_request__descriptor,
     &parley__v1__model__descriptor, get_model, ACCESS_KEY},
    {"/parley.v1.Models/Load", RPC_UNARY, &parley__v1__models_load_request__descriptor,
     &parley__v1__model__descriptor, load_model, ACCESS_ADMIN},
    {"/parley.v1.Models/Unload", RPC_UNARY, &parley__v1__models_unload_request__descriptor,
     &parley__v1__models_unload_response__descriptor, unload_model, ACCESS_ADMIN},
};

const struct rpc_table models_rpcs = {rows, sizeof(rows) / sizeof(rows[0])};
