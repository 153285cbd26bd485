/* inference.GRPCInferenceService, the repository: its index, and loading and unloading of models by
 * name. */
#include <string.h>

#include "base/list.h"
#include "inference/grpc_service.pb-c.h"
#include "server/api/kserve/signature.h"
#include "server/api/models_load.h"
#include "server/api/services.h"
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

static void repository_index(struct call *call, const ProtobufCMessage *message,
                             struct server *server)
{
    const Inference__RepositoryIndexRequest *r = (const Inference__RepositoryIndexRequest *)message;
    Inference__RepositoryIndexResponse response = INFERENCE__REPOSITORY_INDEX_RESPONSE__INIT;
    const struct list *entries = &server->models->entries;
    model_index *indexes;
    struct error err;

    if (models_scan(server->models, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    indexes = arena_alloc(call_arena(call), server->models->n_entries, sizeof(indexes[0]));
    response.models =
        arena_alloc(call_arena(call), server->models->n_entries, sizeof(response.models[0]));
    if (indexes == NULL || response.models == NULL) {
        (void)error_no_memory(&err, server->models->n_entries * sizeof(indexes[0]), "an index");
        call_finish(call, &err);
        return;
    }
    for (struct link *l = list_first(entries); l != NULL; l = list_next(entries, l)) {
        const struct model_entry *e = container_of(l, struct model_entry, link);

        if (r->ready && e->state != MODEL_ENTRY_READY)
            continue;
        repository_service_describe(&indexes[response.n_models], e);
        response.models[response.n_models] = &indexes[response.n_models];
        response.n_models++;
    }
    call_reply(call, &response.base);
}

static void repository_service_reply_load(struct call *call, struct server *server,
                                          const char *name)
{
    Inference__RepositoryModelLoadResponse response =
        INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;

    (void)server;
    (void)name;
    call_reply(call, &response.base);
}

static void repository_service_load(struct call *call, const ProtobufCMessage *message,
                                    struct server *server)
{
    const Inference__RepositoryModelLoadRequest *r =
        (const Inference__RepositoryModelLoadRequest *)message;
    struct error err;

    if (r->n_parameters > 0) {
        (void)error_because(&err, STATUS_UNIMPLEMENTED, REASON_NONE, "parameters",
                            "models are loaded as their files are: '%.60s' is not taken",
                            r->parameters[0]->key);
        call_finish(call, &err);
        return;
    }
    models_call_load(call, server, r->model_name, repository_service_reply_load);
}

static void repository_service_reply_unload(struct call *call, struct server *server,
                                            const char *name)
{
    Inference__RepositoryModelUnloadResponse response =
        INFERENCE__REPOSITORY_MODEL_UNLOAD_RESPONSE__INIT;

    (void)server;
    (void)name;
    call_reply(call, &response.base);
}

/* Models have no dependents, so unload_dependents changes nothing. */
static void unload(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Inference__RepositoryModelUnloadRequest *r =
        (const Inference__RepositoryModelUnloadRequest *)message;

    models_call_unload(call, server, r->model_name, repository_service_reply_unload);
}

static const struct rpc rows[] = {
    {"/inference.GRPCInferenceService/RepositoryIndex", RPC_UNARY,
     &inference__repository_index_request__descriptor,
     &inference__repository_index_response__descriptor, repository_index, ACCESS_KEY},
    {"/inference.GRPCInferenceService/RepositoryModelLoad", RPC_UNARY,
     &inference__repository_model_load_request__descriptor,
     &inference__repository_model_load_response__descriptor, repository_service_load, ACCESS_ADMIN},
    {"/inference.GRPCInferenceService/RepositoryModelUnload", RPC_UNARY,
     &inference__repository_model_unload_request__descriptor,
     &inference__repository_model_unload_response__descriptor, unload, ACCESS_ADMIN},
};

const struct rpc_table kserve_repository_rpcs = {rows, sizeof(rows) / sizeof(rows[0])};
