/* inference.GRPCInferenceService, the repository: its index, and loading and unloading of models by
 * name. */
#include <string.h>

#include "base/list.h"
#include "inference/grpc_service.pb-c.h"
#include "server/api/kserve/methods.h"
#include "server/api/kserve/signature.h"
#include "server/api/models_load.h"
#include "server/model/models.h"
#include "server/server.h"

typedef Inference__RepositoryIndexResponse__ModelIndex model_index;

static void repository_service_describe(model_index *out, const struct model_entry *e)
{
    static const char *const names[] = {
        [MODEL_ENTRY_UNLOADED] = "UNAVAILABLE",
        [MODEL_ENTRY_LOADING] = "LOADING",
        [MODEL_ENTRY_READY] = "READY",
        [MODEL_ENTRY_UNLOADING] = "UNLOADING",
    };

    inference__repository_index_response__model_index__init(out);
    out->name = e->name;
    out->version = (char *)KSERVE_VERSION;
    out->state = (char *)names[e->state];
    if (e->state == MODEL_ENTRY_UNLOADED)
        out->reason = (char *)(e->why.status == STATUS_OK ? "unloaded" : e->why.text);
}

static enum status repository_index(struct call *call, const Inference__RepositoryIndexRequest *r,
                                    Inference__RepositoryIndexResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    const struct list *entries = &server->models->entries;
    model_index *indexes;

    if (models_scan(server->models, err) != STATUS_OK)
        return err->status;
    indexes = arena_alloc(call_arena(call), server->models->n_entries, sizeof(indexes[0]));
    response->models =
        arena_alloc(call_arena(call), server->models->n_entries, sizeof(response->models[0]));
    if (indexes == NULL || response->models == NULL)
        return error_no_memory(err, server->models->n_entries * sizeof(indexes[0]), "an index");
    for (struct link *l = list_first(entries); l != NULL; l = list_next(entries, l)) {
        const struct model_entry *e = container_of(l, struct model_entry, link);

        if (r->ready && e->state != MODEL_ENTRY_READY)
            continue;
        repository_service_describe(&indexes[response->n_models], e);
        response->models[response->n_models] = &indexes[response->n_models];
        response->n_models++;
    }
    return STATUS_OK;
}

static void repository_service_loaded(struct call *call)
{
    Inference__RepositoryModelLoadResponse response =
        INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;

    call_reply(call, &response.base);
}

static void repository_service_load(struct call *call,
                                    const Inference__RepositoryModelLoadRequest *r)
{
    struct error err;

    if (r->n_parameters > 0) {
        (void)error_because(&err, STATUS_UNIMPLEMENTED, REASON_NONE, "parameters",
                            "models are loaded as their files are: '%.60s' is not taken",
                            r->parameters[0]->key);
        call_finish(call, &err);
        return;
    }
    models_call_load(call, r->model_name, repository_service_loaded);
}

static void repository_service_unloaded(struct call *call)
{
    Inference__RepositoryModelUnloadResponse response =
        INFERENCE__REPOSITORY_MODEL_UNLOAD_RESPONSE__INIT;

    call_reply(call, &response.base);
}

/* Models have no dependents, so unload_dependents changes nothing. */
static void unload(struct call *call, const Inference__RepositoryModelUnloadRequest *r)
{
    models_call_unload(call, r->model_name, repository_service_unloaded);
}

#define REPOSITORY_SERVICE_METHODS(METHOD)                                                      \
    METHOD(ANSWER, KEY, "RepositoryIndex", repository_index_request, repository_index_response, \
           repository_index)                                                                    \
    METHOD(UNARY, ADMIN, "RepositoryModelLoad", repository_model_load_request,                  \
           repository_model_load_response, repository_service_load)                             \
    METHOD(UNARY, ADMIN, "RepositoryModelUnload", repository_model_unload_request,              \
           repository_model_unload_response, unload)

INFERENCE_TABLE(repository_service_methods, REPOSITORY_SERVICE_METHODS)
