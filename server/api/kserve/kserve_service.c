/* inference.GRPCInferenceService without inference: metadata of the server and its models,
 * statistics, and the unsupported calls, each with an error text. */
#include <string.h>

#include "base/env.h"
#include "inference/grpc_service.pb-c.h"
#include "server/api/kserve/methods.h"
#include "server/api/kserve/sequences.h"
#include "server/api/kserve/signature.h"
#include "server/conversation/conversations.h"
#include "server/model/model.h"
#include "server/model/models.h"
#include "server/server.h"

/* All texts of the metadata are static or the model's. */
static enum status kserve_service_find_model(struct model **out, struct server *server,
                                             const char *name, const char *version,
                                             struct error *err)
{
    enum status rc = models_get(out, server->models, name, err);

    if (rc != STATUS_OK)
        return error_name_field(err, "name");
    if (version[0] != '\0' && strcmp(version, KSERVE_VERSION) != 0)
        rc = error_because(err, STATUS_NOT_FOUND, REASON_MODEL_NOT_FOUND, "version",
                           "model '%.40s' has no version '%.20s', there is: " KSERVE_VERSION,
                           (*out)->name, version);
    return rc;
}

static enum status find_ready(struct model **out, struct server *server, const char *name,
                              const char *version, struct error *err)
{
    enum status rc = kserve_service_find_model(out, server, name, version, err);

    return rc == STATUS_OK ? model_check_ready(*out, err) : rc;
}

/* --- the server --- */

static enum status server_live(struct call *call, const Inference__ServerLiveRequest *request,
                               Inference__ServerLiveResponse *response, struct error *err)
{
    response->live = 1;
    return STATUS_OK;
}

static enum status server_ready(struct call *call, const Inference__ServerReadyRequest *request,
                                Inference__ServerReadyResponse *response, struct error *err)
{
    struct server *server = call_server(call);

    response->ready = server->state == SERVER_SERVING;
    return STATUS_OK;
}

static enum status server_metadata(struct call *call,
                                   const Inference__ServerMetadataRequest *request,
                                   Inference__ServerMetadataResponse *response, struct error *err)
{
    static const char *const extensions[] = {
        "sequence",   "sequence(string_id)", "model_repository", "schedule_policy",
        "statistics", "model_configuration", "parameters",       "binary_tensor_data",
    };

    response->name = (char *)"parleyd";
    response->version = (char *)PARLEY_VERSION;
    response->extensions = (char **)extensions;
    response->n_extensions = sizeof(extensions) / sizeof(extensions[0]);
    return STATUS_OK;
}

/* --- a model --- */

static enum status model_ready(struct call *call, const Inference__ModelReadyRequest *r,
                               Inference__ModelReadyResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    struct model *m;

    /* A known but unloaded model is not ready; that is no failure. */
    if (kserve_service_find_model(&m, server, r->name, r->version, err) == STATUS_OK) {
        response->ready = model_check_ready(m, err) == STATUS_OK;
    } else if (err->status != STATUS_UNAVAILABLE)
        return err->status;
    return STATUS_OK;
}

typedef Inference__ModelMetadataResponse__TensorMetadata tensor_metadata;

static void tensor_describe(tensor_metadata *out, int64_t shape[2], const struct kserve_tensor *t)
{
    inference__model_metadata_response__tensor_metadata__init(out);
    out->name = (char *)t->name;
    out->datatype = (char *)t->datatype;
    out->n_shape = kserve_tensor_shape(shape, t);
    out->shape = shape;
}

/* The parts of a model's metadata. */
struct metadata_parts {
    tensor_metadata inputs[KSERVE_MAX_INPUTS], *input_list[KSERVE_MAX_INPUTS];
    tensor_metadata outputs[KSERVE_MAX_OUTPUTS], *output_list[KSERVE_MAX_OUTPUTS];
    int64_t input_shapes[KSERVE_MAX_INPUTS][2], output_shapes[KSERVE_MAX_OUTPUTS][2];
};

static enum status model_metadata(struct call *call, const Inference__ModelMetadataRequest *r,
                                  Inference__ModelMetadataResponse *response, struct error *err)
{
    static const char *const versions[] = {KSERVE_VERSION};
    struct metadata_parts *p = arena_alloc(call_arena(call), 1, sizeof(*p));
    struct kserve_signature sig;
    struct model *m;

    if (find_ready(&m, call_server(call), r->name, r->version, err) != STATUS_OK)
        return err->status;
    if (p == NULL)
        return error_no_memory(err, sizeof(*p), "metadata");
    kserve_signature(&sig, &m->info);
    for (size_t i = 0; i < sig.n_declared; i++) {
        tensor_describe(&p->inputs[i], p->input_shapes[i], &sig.inputs[i]);
        p->input_list[i] = &p->inputs[i];
    }
    for (size_t i = 0; i < sig.n_outputs; i++) {
        tensor_describe(&p->outputs[i], p->output_shapes[i], &sig.outputs[i]);
        p->output_list[i] = &p->outputs[i];
    }
    response->name = m->name;
    response->versions = (char **)versions;
    response->n_versions = 1;
    response->platform = (char *)sig.platform;
    response->inputs = p->input_list;
    response->n_inputs = sig.n_declared;
    response->outputs = p->output_list;
    response->n_outputs = sig.n_outputs;
    return STATUS_OK;
}

/* The parts of a model's configuration. */
struct config_message {
    Inference__ModelConfig config;
    Inference__ModelInput inputs[KSERVE_MAX_INPUTS], *input_list[KSERVE_MAX_INPUTS];
    Inference__ModelOutput outputs[KSERVE_MAX_OUTPUTS], *output_list[KSERVE_MAX_OUTPUTS];
    Inference__ModelSequenceBatching sequences;
    Inference__ModelSequenceBatching__StrategyOldest oldest;
    Inference__ModelDynamicBatching batching;
    Inference__ModelTransactionPolicy transactions;
    struct kserve_signature sig;
    int64_t output_shapes[KSERVE_MAX_OUTPUTS][2];
};

static void config_tensors(struct config_message *c)
{
    for (size_t i = 0; i < c->sig.n_declared; i++) {
        inference__model_input__init(&c->inputs[i]);
        c->inputs[i].name = (char *)c->sig.inputs[i].name;
        c->inputs[i].data_type = c->sig.inputs[i].type;
        c->inputs[i].dims = &c->sig.inputs[i].dim;
        c->inputs[i].n_dims = 1;
        c->inputs[i].optional = c->sig.inputs[i].is_optional;
        c->input_list[i] = &c->inputs[i];
    }
    for (size_t i = 0; i < c->sig.n_outputs; i++) {
        inference__model_output__init(&c->outputs[i]);
        c->outputs[i].name = (char *)c->sig.outputs[i].name;
        c->outputs[i].data_type = c->sig.outputs[i].type;
        c->outputs[i].n_dims = kserve_tensor_shape(c->output_shapes[i], &c->sig.outputs[i]);
        c->outputs[i].dims = c->output_shapes[i];
        c->output_list[i] = &c->outputs[i];
    }
    c->config.input = c->input_list;
    c->config.n_input = c->sig.n_declared;
    c->config.output = c->output_list;
    c->config.n_output = c->sig.n_outputs;
}

/* A request is one item (max_batch_size 0): the batcher makes batches of requests. */
static void config_scheduling(struct config_message *c, const struct server *server)
{
    if (c->sig.is_stateful) {
        inference__model_sequence_batching__init(&c->sequences);
        inference__model_sequence_batching__strategy_oldest__init(&c->oldest);
        c->oldest.max_candidate_sequences = (int32_t)server->sequences->config.max_sequences;
        c->sequences.max_sequence_idle_microseconds = server->sequences->config.idle_ms * 1000;
        c->sequences.strategy_choice_case =
            INFERENCE__MODEL_SEQUENCE_BATCHING__STRATEGY_CHOICE_OLDEST;
        c->sequences.oldest = &c->oldest;
        c->config.scheduling_choice_case =
            INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_SEQUENCE_BATCHING;
        c->config.sequence_batching = &c->sequences;
    } else {
        inference__model_dynamic_batching__init(&c->batching);
        c->config.scheduling_choice_case =
            INFERENCE__MODEL_CONFIG__SCHEDULING_CHOICE_DYNAMIC_BATCHING;
        c->config.dynamic_batching = &c->batching;
    }
    inference__model_transaction_policy__init(&c->transactions);
    c->transactions.decoupled = c->sig.is_decoupled;
    c->config.model_transaction_policy = &c->transactions;
}

static enum status model_config(struct call *call, const Inference__ModelConfigRequest *r,
                                Inference__ModelConfigResponse *response, struct error *err)
{
    struct config_message *c = arena_alloc(call_arena(call), 1, sizeof(*c));
    struct model *m;

    if (find_ready(&m, call_server(call), r->name, r->version, err) != STATUS_OK)
        return err->status;
    if (c == NULL)
        return error_no_memory(err, sizeof(*c), "a configuration");
    inference__model_config__init(&c->config);
    kserve_signature(&c->sig, &m->info);
    c->config.name = m->name;
    c->config.platform = (char *)c->sig.platform;
    c->config.backend = (char *)c->sig.backend;
    config_tensors(c);
    config_scheduling(c, call_server(call));
    response->config = &c->config;
    return STATUS_OK;
}

/* --- statistics --- */

static void duration(Inference__StatisticDuration *out, const struct duration *from)
{
    inference__statistic_duration__init(out);
    out->count = from->n;
    out->ns = from->us * 1000;
}

struct statistics_message {
    Inference__ModelStatistics message;
    Inference__InferStatistics infer;
    Inference__StatisticDuration success, fail, queue, input, compute, output, hit, miss;
};

/* Statistics of steps by their rows. Only the whole step is timed: requests are observed one by
 * one. */
static enum status batches(Inference__ModelStatistics *out, const struct statistics *s,
                           struct arena *arena, struct error *err)
{
    Inference__InferBatchStatistics *batch;
    Inference__StatisticDuration *compute;

    out->batch_stats = arena_alloc(arena, s->n_by_rows, sizeof(out->batch_stats[0]));
    batch = arena_alloc(arena, s->n_by_rows, sizeof(*batch));
    compute = arena_alloc(arena, s->n_by_rows, sizeof(*compute));
    if (s->n_by_rows > 0 && (out->batch_stats == NULL || batch == NULL || compute == NULL))
        return error_no_memory(err, s->n_by_rows * sizeof(*batch), "statistics");
    for (size_t i = 0; i < s->n_by_rows; i++) {
        if (s->by_rows[i].n == 0)
            continue;
        inference__infer_batch_statistics__init(&batch[i]);
        duration(&compute[i], &s->by_rows[i]);
        batch[i].batch_size = i + 1;
        batch[i].compute_infer = &compute[i];
        out->batch_stats[out->n_batch_stats++] = &batch[i];
    }
    return STATUS_OK;
}

static enum status memory(Inference__ModelStatistics *out, const struct model *m,
                          struct arena *arena, struct error *err)
{
    Inference__MemoryUsage **list = arena_alloc(arena, 1, sizeof(*list));
    Inference__MemoryUsage *usage = arena_alloc(arena, 1, sizeof(*usage));

    if (list == NULL || usage == NULL)
        return error_no_memory(err, sizeof(*usage), "statistics");
    inference__memory_usage__init(usage);
    usage->type = (char *)"CPU";
    usage->byte_size = m->info.weight_bytes + m->info.cache.pages * m->info.cache.page_bytes;
    list[0] = usage;
    out->memory_usage = list;
    out->n_memory_usage = 1;
    return STATUS_OK;
}

static enum status take_statistics(Inference__ModelStatistics **out, const struct model *m,
                                   const struct server *server, struct arena *arena,
                                   struct error *err)
{
    static const struct duration none;
    const struct statistics *s = &m->statistics;
    struct statistics_message *w = arena_alloc(arena, 1, sizeof(*w));
    enum status rc;

    if (w == NULL)
        return error_no_memory(err, sizeof(*w), "statistics");
    inference__model_statistics__init(&w->message);
    inference__infer_statistics__init(&w->infer);
    duration(&w->success, &s->success);
    duration(&w->fail, &s->fail);
    duration(&w->queue, &s->queue);
    duration(&w->input, &s->input);
    duration(&w->compute, &s->infer);
    duration(&w->output, &s->output);
    duration(&w->hit, &none);
    duration(&w->miss, &none);
    w->infer.success = &w->success;
    w->infer.fail = &w->fail;
    w->infer.queue = &w->queue;
    w->infer.compute_input = &w->input;
    w->infer.compute_infer = &w->compute;
    w->infer.compute_output = &w->output;
    w->infer.cache_hit = &w->hit;
    w->infer.cache_miss = &w->miss;
    w->message.name = m->name;
    w->message.version = (char *)KSERVE_VERSION;
    w->message.inference_count = s->success.n;
    w->message.execution_count = s->n_steps;
    w->message.inference_stats = &w->infer;
    if (s->last_us != 0)
        w->message.last_inference = conversations_unix_ms(server->conversations) -
                                    (env_now_us(server->env) - s->last_us) / 1000;
    rc = batches(&w->message, s, arena, err);
    if (rc == STATUS_OK)
        rc = memory(&w->message, m, arena, err);
    if (rc == STATUS_OK)
        *out = &w->message;
    return rc;
}

static enum status model_statistics(struct call *call, const Inference__ModelStatisticsRequest *r,
                                    Inference__ModelStatisticsResponse *response, struct error *err)
{
    struct server *server = call_server(call);
    Inference__ModelStatistics **list =
        arena_alloc(call_arena(call), MODELS_MAX_LOADED, sizeof(list[0]));
    struct model *one = NULL;
    enum status rc = list == NULL ? error_no_memory(err, sizeof(list[0]), "statistics") : STATUS_OK;

    if (r->name[0] != '\0' && rc == STATUS_OK)
        rc = kserve_service_find_model(&one, server, r->name, r->version, err);
    for (size_t i = 0; i < server->models->n_loaded && rc == STATUS_OK; i++)
        if (one == NULL || one == server->models->loaded[i])
            rc = take_statistics(&list[response->n_model_stats++], server->models->loaded[i],
                                 server, call_arena(call), err);
    if (rc != STATUS_OK)
        return rc;
    response->model_stats = list;
    return STATUS_OK;
}

/* --- unsupported calls --- */

/* Reading the settings returns none; setting one is refused. */
static enum status trace_setting(struct call *call, const Inference__TraceSettingRequest *r,
                                 Inference__TraceSettingResponse *response, struct error *err)
{
    if (r->n_settings > 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "tracing is not served: there are no settings to change");
    return STATUS_OK;
}

static enum status log_settings(struct call *call, const Inference__LogSettingsRequest *r,
                                Inference__LogSettingsResponse *response, struct error *err)
{
    if (r->n_settings > 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "the log is set up when the daemon starts, by --log-level");
    return STATUS_OK;
}

static void no_shared_memory(struct call *call)
{
    struct error err;

    (void)error_set(&err, STATUS_UNIMPLEMENTED,
                    "shared memory is not served: tensors come with their request");
    call_finish(call, &err);
}

/* The function of a row of this form is only a name: the messages are not looked at. */
#define CALL_KIND_NO_MEMORY CALL_UNARY
#define CALL_START_NO_MEMORY(start, request, response, f) \
    static void start(struct call *call)                  \
    {                                                     \
        no_shared_memory(call);                           \
    }

#define KSERVE_SERVICE_METHODS(METHOD)                                                             \
    METHOD(ANSWER, OPEN, "ServerLive", server_live_request, server_live_response, server_live)     \
    METHOD(ANSWER, OPEN, "ServerReady", server_ready_request, server_ready_response, server_ready) \
    METHOD(ANSWER, KEY, "ServerMetadata", server_metadata_request, server_metadata_response,       \
           server_metadata)                                                                        \
    METHOD(ANSWER, KEY, "ModelReady", model_ready_request, model_ready_response, model_ready)      \
    METHOD(ANSWER, KEY, "ModelMetadata", model_metadata_request, model_metadata_response,          \
           model_metadata)                                                                         \
    METHOD(ANSWER, KEY, "ModelConfig", model_config_request, model_config_response, model_config)  \
    METHOD(ANSWER, ADMIN, "ModelStatistics", model_statistics_request, model_statistics_response,  \
           model_statistics)                                                                       \
    METHOD(NO_MEMORY, KEY, "SystemSharedMemoryStatus", system_shared_memory_status_request,        \
           system_shared_memory_status_response, system_shared_memory_status)                      \
    METHOD(NO_MEMORY, KEY, "SystemSharedMemoryRegister", system_shared_memory_register_request,    \
           system_shared_memory_register_response, system_shared_memory_register)                  \
    METHOD(NO_MEMORY, KEY, "SystemSharedMemoryUnregister",                                         \
           system_shared_memory_unregister_request, system_shared_memory_unregister_response,      \
           system_shared_memory_unregister)                                                        \
    METHOD(NO_MEMORY, KEY, "CudaSharedMemoryStatus", cuda_shared_memory_status_request,            \
           cuda_shared_memory_status_response, cuda_shared_memory_status)                          \
    METHOD(NO_MEMORY, KEY, "CudaSharedMemoryRegister", cuda_shared_memory_register_request,        \
           cuda_shared_memory_register_response, cuda_shared_memory_register)                      \
    METHOD(NO_MEMORY, KEY, "CudaSharedMemoryUnregister", cuda_shared_memory_unregister_request,    \
           cuda_shared_memory_unregister_response, cuda_shared_memory_unregister)                  \
    METHOD(ANSWER, KEY, "TraceSetting", trace_setting_request, trace_setting_response,             \
           trace_setting)                                                                          \
    METHOD(ANSWER, KEY, "LogSettings", log_settings_request, log_settings_response, log_settings)

INFERENCE_TABLE(kserve_service_methods, KSERVE_SERVICE_METHODS)
