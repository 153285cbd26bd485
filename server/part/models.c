/* The models, and the workers that compute agents. The daemon serves once all models of its start
 * are loaded, and fails where one of them does not load. */
#include "server/model/models.h"

#include "agents/plugin/environment.h"
#include "agents/plugin/plugin.h"
#include "base/log.h"
#include "server/call/health.h"
#include "server/config/config.h"
#include "server/conversation/conversations.h"
#include "server/environment/plugged.h"
#include "server/environment/vectors.h"
#include "server/model/attached.h"
#include "server/model/model.h"
#include "server/model/pulls.h"
#include "server/part.h"
#include "server/server.h"
#include "server/stop_signal.h"
#include "server/watchdog.h"

enum { MODEL_KV_SHARE = 8 /* of --memory, for the pages of one model */, LOADING_RETRY_MS = 100 };

static void on_clone_event(void *arg, struct clone *c, enum clone_event what, const char *reason)
{
    conversations_clone_event(c, what == CLONE_EVICTED ? WATCH_EVICTED : WATCH_RECOMPUTED, reason);
}

static void model_tell_health(void *host, struct model *m)
{
    const struct part_host *h = host;

    health_set(h->health, m->name, m->is_vacant ? HEALTH_NOT_SERVING : HEALTH_SERVING);
}

static void model_note_ready(struct part_host *host, struct model *m)
{
    char text[2 * BACKEND_PRODUCTS_MAX];

    m->agent->on_event = on_clone_event;
    log_info("loaded", "model=%s kind=%s backend=%s version=%.12s context=%zu%s%s", m->name,
             m->info.kind, m->info.backend[0] == '\0' ? "none" : m->info.backend, m->info.version,
             m->info.text.context, m->info.products[0] == '\0' ? "" : " products=",
             m->info.products[0] == '\0' ? "" : log_quote(text, sizeof(text), m->info.products));
    if (host->server->state > SERVER_SERVING)
        return;
    model_tell_health(host, m);
    if (host->server->state == SERVER_LOADING && host->server->models->n_loading == 0)
        host->loaded(host);
}

static void on_model_change(void *arg, struct model *m)
{
    struct part_host *host = arg;

    if (m->state == MODEL_READY)
        model_note_ready(host, m);
    else if (m->state != MODEL_FAILED)
        health_set(host->health, m->name, HEALTH_NOT_SERVING);
    else if (host->server->state == SERVER_LOADING)
        host->fail(host, &m->err);
}

/* A supervisor starts the daemon anew: this process cannot use its device again. */
static void on_model_lost(void *arg, const struct model *m, const struct error *why)
{
    struct part_host *host = arg;
    struct error err = *why;

    (void)error_prefix(&err, "model '%s'", m->name);
    host->fail(host, &err);
}

static enum status check_serving(void *arg, struct error *err)
{
    const struct part_host *host = arg;

    if (host->server->state == SERVER_SERVING)
        return STATUS_OK;
    if (host->server->state != SERVER_LOADING)
        return error_draining(err);
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_SERVER_LOADING, NULL,
                        "the server is loading");
    err->retry_after_ms = LOADING_RETRY_MS;
    return err->status;
}

/* Principals with keys have names; the only one without keys is "". */
static const char *model_owner_name(void *host, uint64_t salt)
{
    const char *name = part_principal_name(host, (uint32_t)salt);

    return salt == 0 || *name != '\0' ? name : NULL;
}

static void models_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    const struct config *c = host->config;
    struct models_config config = {
        .loop = host->loop,
        .env = host->env,
        .model_dir = c->model_dir,
        .is_offline = c->is_offline,
        .drain_timeout_ms = c->drain_timeout_ms,
        .memory_bytes = c->memory_bytes,
        .model =
            {
                .options = c->options,
                .env = host->env,
                .weight_of = part_weight,
                .weight_arg = host,
                .owner_name = model_owner_name,
                .owner_arg = host,
                .on_lost = on_model_lost,
                .lost_arg = host,
            },
        .check_serving = check_serving,
        .on_change = on_model_change,
        .on_idle = host->go_on,
        .arg = host,
    };

    if (config.memory_bytes != 0 && config.model.options.kv_bytes == 0)
        config.model.options.kv_bytes = config.memory_bytes / MODEL_KV_SHARE;
    models_init(self, &config);
    models_open(self);
}

static void models_part_end(void *self)
{
    models_end(self);
    model_pulls_end(self);
}

static bool models_part_is_idle(const void *self)
{
    const struct models *models = self;

    return models->n_loading == 0 && models->n_pulls == 0;
}

static bool models_part_stop(void *self)
{
    struct models *models = self;

    if (!models->is_stopping)
        stop_signal_allow(WATCHED_MS);
    if (!models_stop(models))
        return false;
    models_close(models);
    return true;
}

const struct part models_part = {
    .size_bytes = sizeof(struct models),
    .init = models_part_init,
    .end = models_part_end,
    .is_idle = models_part_is_idle,
    .stop = models_part_stop,
    .deinit = models_deinit,
};

/* An object may have an environment, an agent, or both. */
static enum status load_plugin(struct server *s, const struct config_model *m, struct error *err)
{
    struct plugin_environment *kind;
    bool has_agent;

    if (plugin_environment_open(&kind, &has_agent, m->path, err) != STATUS_OK)
        return err->status;
    if (kind != NULL && vectors_add_plugged(s->vectors, kind, err) != STATUS_OK)
        return error_prefix(err, "plug-in %.120s", m->path);
    return has_agent ? models_start(s->models, m->name, m->path, &plugin_agent, err) : STATUS_OK;
}

enum status part_load_models(struct part_host *host, struct error *err)
{
    const struct config *c = host->config;
    struct models *models = host->server->models;
    enum status rc = STATUS_OK;

    for (size_t i = 0; i < c->n_models && rc == STATUS_OK; i++)
        rc = models_start(models, c->models[i].name, c->models[i].path, NULL, err);
    for (size_t i = 0; i < c->n_plugins && rc == STATUS_OK; i++)
        rc = load_plugin(host->server, &c->plugins[i], err);
    if (rc == STATUS_OK)
        rc = models_start(models, "echo", NULL, NULL, err);
    return rc == STATUS_OK ? models_scan(models, err) : rc;
}

/* --- workers --- */

static void attached_part_init(void *self, struct part_host *host, struct alarm *alarm)
{
    struct attached *attached = self;
    const struct attached_config config = {
        .models = host->server->models,
        .env = host->env,
        .silence_us = host->config->attach_timeout_ms * 1000,
        .is_allowed = part_may_attach(host),
        .alarm = alarm,
        .on_change = model_tell_health,
        .arg = host,
    };

    attached_init(attached, &config);
    models_add_user(host->server->models, &attached->user);
}

/* Steps that are computed elsewhere are aborted first. */
static void attached_part_end(void *self)
{
    const struct models *models = ((struct attached *)self)->config.models;

    for (size_t i = 0; i < models->n_loaded; i++)
        model_abort(models->loaded[i]);
    attached_end(self);
}

const struct part attached_part = {
    .size_bytes = sizeof(struct attached),
    .init = attached_part_init,
    .tick = attached_tick,
    .end = attached_part_end,
    .deinit = attached_deinit,
};
