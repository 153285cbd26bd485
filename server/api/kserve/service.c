/* inference.GRPCInferenceService without inference: metadata of the server and its models,
 * statistics, and the unsupported calls, each with an error text. */
#include <string.h>

#include "base/env.h"
#include "inference/grpc_service.pb-c.h"
#include "server/api/kserve/sequences.h"
#include "server/api/kserve/signature.h"
#include "server/api/services.h"
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

static void server_live(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    Inference__ServerLiveResponse response = INFERENCE__SERVER_LIVE_RESPONSE__INIT;

    (void)message;
    (void)server;
    response.live = 1;
    call_reply(call, &response.base);
}

static void server_ready(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    Inference__ServerReadyResponse response = INFERENCE__SERVER_READY_RESPONSE__INIT;

    (void)message;
    response.ready = server->state == SERVER_SERVING;
    call_reply(call, &response.base);
}

static void server_metadata(struct call *call, const ProtobufCMessage *message,
                            struct server *server)
{
    static const char *const extensions[] = {
        "sequence",   "sequence(string_id)", "model_repository", "schedule_policy",
        "statistics", "model_configuration", "parameters",       "binary_tensor_data",
    };
    Inference__ServerMetadataResponse response = INFERENCE__SERVER_METADATA_RESPONSE__INIT;

    (void)message;
    (void)server;
    response.name = (char *)"parleyd";
    response.version = (char *)PARLEY_VERSION;
    response.extensions = (char **)extensions;
    response.n_extensions = sizeof(extensions) / sizeof(extensions[0]);
    call_reply(call, &response.base);
}

/* --- a model --- */

static void model_ready(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Inference__ModelReadyRequest *r = (const Inference__ModelReadyRequest *)message;
    Inference__ModelReadyResponse response = INFERENCE__MODEL_READY_RESPONSE__INIT;
    struct model *m;
    struct error err;

    /* A known but unloaded model is not ready; that is no failure. */
    if (kserve_service_find_model(&m, server, r->name, r->version, &err) == STATUS_OK) {
        response.ready = model_check_ready(m, &err) == STATUS_OK;
    } else if (err.status != STATUS_UNAVAILABLE) {
        call_finish(call, &err);
        return;
    }
    call_reply(call, &response.base);
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

static void model_metadata(struct call *call, const ProtobufCMessage *message,
                           struct server *server)
{
    const Inference__ModelMetadataRequest *r = (const Inference__ModelMetadataRequest *)message;
    Inference__ModelMetadataResponse response = INFERENCE__MODEL_METADATA_RESPONSE__INIT;
    tensor_metadata inputs[KSERVE_MAX_INPUTS], *input_list[KSERVE_MAX_INPUTS];
    tensor_metadata outputs[KSERVE_MAX_OUTPUTS], *output_list[KSERVE_MAX_OUTPUTS];
    int64_t input_shapes[KSERVE_MAX_INPUTS][2], output_shapes[KSERVE_MAX_OUTPUTS][2];
    char *version = (char *)KSERVE_VERSION;
    struct kserve_signature sig;
    struct model *m;
    struct error err;

    if (find_ready(&m, server, r->name, r->version, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    kserve_signature(&sig, &m->info);
    for (size_t i = 0; i < sig.n_declared; i++) {
        tensor_describe(&inputs[i], input_shapes[i], &sig.inputs[i]);
        input_list[i] = &inputs[i];
    }
    for (size_t i = 0; i < sig.n_outputs; i++) {
        tensor_describe(&outputs[i], output_shapes[i], &sig.outputs[i]);
        output_list[i] = &outputs[i];
    }
    response.name = m->name;
    response.versions = &version;
    response.n_versions = 1;
    response.platform = (char *)sig.platform;
    response.inputs = input_list;
    response.n_inputs = sig.n_declared;
    response.outputs = output_list;
    response.n_outputs = sig.n_outputs;
    call_reply(call, &response.base);
}

/* The parts of a model's configuration. */
struct config_message {
    Inference__ModelConfigResponse response;
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

static void model_config(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Inference__ModelConfigRequest *r = (const Inference__ModelConfigRequest *)message;
    struct config_message c;
    struct model *m;
    struct error err;

    if (find_ready(&m, server, r->name, r->version, &err) != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    inference__model_config_response__init(&c.response);
    inference__model_config__init(&c.config);
    kserve_signature(&c.sig, &m->info);
    c.config.name = m->name;
    c.config.platform = (char *)c.sig.platform;
    c.config.backend = (char *)c.sig.backend;
    config_tensors(&c);
    config_scheduling(&c, server);
    c.response.config = &c.config;
    call_reply(call, &c.response.base);
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
    usage->byte_size = m->info.weight_bytes + m->info.kv_pages * m->info.kv_page_bytes;
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

static void model_statistics(struct call *call, const ProtobufCMessage *message,
                             struct server *server)
{
    const Inference__ModelStatisticsRequest *r = (const Inference__ModelStatisticsRequest *)message;
    Inference__ModelStatisticsResponse response = INFERENCE__MODEL_STATISTICS_RESPONSE__INIT;
    Inference__ModelStatistics *list[MODELS_MAX_LOADED];
    struct model *one = NULL;
    struct error err;
    enum status rc = STATUS_OK;

    if (r->name[0] != '\0')
        rc = kserve_service_find_model(&one, server, r->name, r->version, &err);
    for (size_t i = 0; i < server->models->n_loaded && rc == STATUS_OK; i++)
        if (one == NULL || one == server->models->loaded[i])
            rc = take_statistics(&list[response.n_model_stats++], server->models->loaded[i], server,
                                 call_arena(call), &err);
    if (rc != STATUS_OK) {
        call_finish(call, &err);
        return;
    }
    response.model_stats = list;
    call_reply(call, &response.base);
}

/* --- unsupported calls --- */

static void kserve_service_refuse(struct call *call, const char *what)
{
    struct error err;

    (void)error_set(&err, STATUS_UNIMPLEMENTED, "%s", what);
    call_finish(call, &err);
}

static void no_shared_memory(struct call *call, const ProtobufCMessage *message,
                             struct server *server)
{
    (void)message;
    (void)server;
    kserve_service_refuse(call, "shared memory is not served: tensors come with their request");
}

/* Reading the settings returns none; setting one is refused. */
static void trace_setting(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Inference__TraceSettingRequest *r = (const Inference__TraceSettingRequest *)message;
    Inference__TraceSettingResponse response = INFERENCE__TRACE_SETTING_RESPONSE__INIT;

    (void)server;
    if (r->n_settings > 0)
        kserve_service_refuse(call, "tracing is not served: there are no settings to change");
    else
        call_reply(call, &response.base);
}

static void log_settings(struct call *call, const ProtobufCMessage *message, struct server *server)
{
    const Inference__LogSettingsRequest *r = (const Inference__LogSettingsRequest *)message;
    Inference__LogSettingsResponse response = INFERENCE__LOG_SETTINGS_RESPONSE__INIT;

    (void)server;
    if (r->n_settings > 0)
        kserve_service_refuse(call, "the log is set up when the daemon starts, by --log-level");
    else
        call_reply(call, &response.base);
}

#define ROW(name, of, then) ROW_FOR(name, of, then, ACCESS_KEY)
#define ROW_FOR(name, of, then, access)                                                            \
    {                                                                                              \
        "/inference.GRPCInferenceService/" name, RPC_UNARY,                                        \
            &inference__##of##_request__descriptor, &inference__##of##_response__descriptor, then, \
            access                                                                                 \
    }

static const struct rpc rows[] = {
    ROW_FOR("ServerLive", server_live, server_live, ACCESS_OPEN),
    ROW_FOR("ServerReady", server_ready, server_ready, ACCESS_OPEN),
    ROW("ServerMetadata", server_metadata, server_metadata),
    ROW("ModelReady", model_ready, model_ready),
    ROW("ModelMetadata", model_metadata, model_metadata),
    ROW("ModelConfig", model_config, model_config),
    ROW_FOR("ModelStatistics", model_statistics, model_statistics, ACCESS_ADMIN),
    ROW("SystemSharedMemoryStatus", system_shared_memory_status, no_shared_memory),
    ROW("SystemSharedMemoryRegister", system_shared_memory_register, no_shared_memory),
    ROW("SystemSharedMemoryUnregister", system_shared_memory_unregister, no_shared_memory),
    ROW("CudaSharedMemoryStatus", cuda_shared_memory_status, no_shared_memory),
    ROW("CudaSharedMemoryRegister", cuda_shared_memory_register, no_shared_memory),
    ROW("CudaSharedMemoryUnregister", cuda_shared_memory_unregister, no_shared_memory),
    ROW("TraceSetting", trace_setting, trace_setting),
    ROW("LogSettings", log_settings, log_settings),
};

const struct rpc_table kserve_rpcs = {rows, sizeof(rows) / sizeof(rows[0])};
