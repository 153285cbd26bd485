/* parley.v1.Models. */
#include "server/api/models_load.h"
#include "server/api/parley/methods.h"
#include "server/api/parley/wire.h"
#include "server/model/models.h"
#include "server/server.h"

static enum status list_models(struct call *call, const Parley__V1__ModelsListRequest *request,
                               Parley__V1__ModelsListResponse *response, struct error *err)
{
    struct models *models = call_server(call)->models;

    if (request->all && models_scan(models, err) != STATUS_OK)
        return err->status;
    return wire_models(&response->models, &response->n_models, models, request->all,
                       call_arena(call), err);
}

static enum status get_model(struct call *call, const Parley__V1__ModelsGetRequest *request,
                             Parley__V1__Model *response, struct error *err)
{
    struct server *server = call_server(call);
    Parley__V1__Model *filled;
    struct model *m;
    enum status rc;

    rc = models_get(&m, server->models, request->name, err);
    if (rc != STATUS_OK)
        rc = error_name_field(err, "name");
    else
        rc = wire_model(&filled, m, m == server->models->loaded[0], call_arena(call), err);
    if (rc == STATUS_OK)
        *response = *filled;
    return rc;
}

static enum status load_model(struct call *call, const Parley__V1__ModelsLoadRequest *request,
                              Parley__V1__Model *response, struct error *err)
{
    const struct models *models = call_server(call)->models;
    Parley__V1__Model *filled;
    struct model *m;
    enum status rc = models_get(&m, models, request->name, err);

    if (rc == STATUS_OK)
        rc = wire_model(&filled, m, m == models->loaded[0], call_arena(call), err);
    if (rc == STATUS_OK)
        *response = *filled;
    return rc;
}

static enum status unload_model(struct call *call, const Parley__V1__ModelsUnloadRequest *request,
                                Parley__V1__ModelsUnloadResponse *response, struct error *err)
{
    return STATUS_OK;
}

/* These answer once it is done. */
#define CALL_KIND_LOAD CALL_UNARY
#define CALL_KIND_UNLOAD CALL_UNARY
#define CALL_START_LOAD(start, request, response, f) \
    CALL_START_WHEN(start, request, response, f, models_call_load)
#define CALL_START_UNLOAD(start, request, response, f) \
    CALL_START_WHEN(start, request, response, f, models_call_unload)
#define CALL_START_WHEN(start, request, response, f, done)       \
    CALL_START_ANSWER(f##_done, request, response, f)            \
    static void start(struct call *call)                         \
    {                                                            \
        done(call, CALL_REQUEST(call, request)->name, f##_done); \
    }

#define MODELS_SERVICE_METHODS(METHOD)                                                         \
    METHOD(ANSWER, KEY, "Models/List", models_list_request, models_list_response, list_models) \
    METHOD(ANSWER, KEY, "Models/Get", models_get_request, model, get_model)                    \
    METHOD(LOAD, ADMIN, "Models/Load", models_load_request, model, load_model)                 \
    METHOD(UNLOAD, ADMIN, "Models/Unload", models_unload_request, models_unload_response,      \
           unload_model)

PARLEY_TABLE(models_service_methods, MODELS_SERVICE_METHODS)
