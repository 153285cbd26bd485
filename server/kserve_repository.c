/* inference.GRPCInferenceService, the repository: its index, and models loaded and unloaded by
 * name. */
#include <string.h>

#include "inference/grpc_service.pb-c.h"
#include "server/daemon.h"
#include "server/kserve_signature.h"
#include "server/repository_call.h"
#include "server/services.h"

typedef Inference__RepositoryIndexResponse__ModelIndex model_index;

static void describe(model_index *out, const struct entry *e)
{
    static const char *const names[] = {
        [ENTRY_UNLOADED] = "UNAVAILABLE",
        [ENTRY_LOADING] = "LOADING",
        [ENTRY_READY] = "READY",
        [ENTRY_UNLOADING] = "UNLOADING",
    };

    inference__repository_index_response__model_index__init(out);
    out->name = e->name;
    out->version = (char *)KSERVE_VERSION;
    out->state = (char *)names[e->state];
    if (e->state == ENTRY_UNLOADED)
        out->reason = (char *)(e->why.status == STATUS_OK ? "unloaded" : e->why.text);
}

static void repository_index(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    const Inference__RepositoryIndexRequest *r = (const Inference__RepositoryIndexRequest *)message;
    Inference__RepositoryIndexResponse response = INFERENCE__REPOSITORY_INDEX_RESPONSE__INIT;
    const struct list *entries = &d->repository.entries;
    model_index *indexes;
    struct error err;

    if (repository_scan(&d->repository, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    indexes = arena_alloc(call_arena(call), d->repository.n_entries, sizeof(indexes[0]));
    response.models =
        arena_alloc(call_arena(call), d->repository.n_entries, sizeof(response.models[0]));
    if (indexes == NULL || response.models == NULL) {
        (void)error_no_memory(&err, d->repository.n_entries * sizeof(indexes[0]), "an index");
        call_finish(call, &err);
        return;
    }
    for (struct link *l = list_first(entries); l != NULL; l = list_next(entries, l)) {
        const struct entry *e = container_of(l, struct entry, link);

        if (r->ready && e->state != ENTRY_READY)
            continue;
        describe(&indexes[response.n_models], e);
        response.models[response.n_models] = &indexes[response.n_models];
        response.n_models++;
    }
    call_reply(call, &response.base);
}

static void reply_load(struct call *call, struct daemon *d, const char *name)
{
    Inference__RepositoryModelLoadResponse response =
        INFERENCE__REPOSITORY_MODEL_LOAD_RESPONSE__INIT;

    (void)d;
    (void)name;
    call_reply(call, &response.base);
}

static void load(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    const Inference__RepositoryModelLoadRequest *r =
        (const Inference__RepositoryModelLoadRequest *)message;
    struct error err;

    if (r->n_parameters > 0) {
        (void)error_set(&err, STATUS_UNIMPLEMENTED,
                        "models are loaded as their files are: '%.60s' is not taken",
                        r->parameters[0]->key);
        call_finish(call, &err);
        return;
    }
    repository_call_load(call, d, r->model_name, reply_load);
}

static void reply_unload(struct call *call, struct daemon *d, const char *name)
{
    Inference__RepositoryModelUnloadResponse response =
        INFERENCE__REPOSITORY_MODEL_UNLOAD_RESPONSE__INIT;

    (void)d;
    (void)name;
    call_reply(call, &response.base);
}

/* No model depends on another, so unload_dependents changes nothing. */
static void unload(struct call *call, const ProtobufCMessage *message, struct daemon *d)
{
    const Inference__RepositoryModelUnloadRequest *r =
        (const Inference__RepositoryModelUnloadRequest *)message;

    repository_call_unload(call, d, r->model_name, reply_unload);
}

const struct rpc kserve_repository_rpcs[N_KSERVE_REPOSITORY_RPCS] = {
    {"/inference.GRPCInferenceService/RepositoryIndex", RPC_UNARY,
     &inference__repository_index_request__descriptor,
     &inference__repository_index_response__descriptor, repository_index},
    {"/inference.GRPCInferenceService/RepositoryModelLoad", RPC_UNARY,
     &inference__repository_model_load_request__descriptor,
     &inference__repository_model_load_response__descriptor, load},
    {"/inference.GRPCInferenceService/RepositoryModelUnload", RPC_UNARY,
     &inference__repository_model_unload_request__descriptor,
     &inference__repository_model_unload_response__descriptor, unload},
};
