/* Runs the trials of --check in the order of their table, and stops at the first that fails. The
 * commands on a stopped daemon's data, --check-data, --init-data and --backup, begin here, too. */
#include "server/check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "agents/agent.h"
#include "agents/plugin/environment.h"
#include "agents/plugin/plugin.h"
#include "base/address_holder.h"
#include "base/env.h"
#include "base/log.h"
#include "server/access/access.h"
#include "server/check_folders.h"
#include "server/config/config.h"
#include "server/environment/plugged.h"
#include "server/environment/vectors.h"
#include "server/journal/postgres.h"
#include "server/net/listener.h"
#include "server/net/open_files.h"
#include "server/net/tls.h"
#include "server/service/plan.h"

/* type: NULL: by the file. */
static enum status check_agent(const struct config *config, const struct config_model *model,
                               const struct agent_type *type, struct error *err)
{
    const struct agent_config open = {
        .name = model->name, .path = model->path, .options = config->options, .env = &env_real};
    struct agent *a;
    enum status rc = STATUS_OK;

    if ((type == NULL ? agent_open(&a, NULL, &open, err) : agent_open_type(&a, type, &open, err)) !=
        STATUS_OK)
        return error_prefix(err, "model '%s'", model->name);
    if (a->type->text != NULL && a->type->text->check_template != NULL &&
        a->type->text->check_template(a, err) != STATUS_OK)
        rc = error_prefix(err, "model '%s': give another with --chat-template", model->name);
    agent_unref(a);
    return rc;
}

/* vectors: of the environments that were found so far. */
static enum status check_plugin(const struct config *config, const struct config_model *m,
                                struct vectors *vectors, struct error *err)
{
    struct plugin_environment *kind;
    bool has_agent;

    if (plugin_environment_open(&kind, &has_agent, m->path, err) != STATUS_OK)
        return err->status;
    if (kind != NULL && vectors_add_plugged(vectors, kind, err) != STATUS_OK)
        return error_prefix(err, "plug-in %.120s", m->path);
    return has_agent ? check_agent(config, m, &plugin_agent, err) : STATUS_OK;
}

static enum status check_plugins(const struct config *config, struct error *err)
{
    const struct vectors_config none = {.env = &env_real};
    enum status rc = STATUS_OK;
    struct vectors vectors;

    vectors_init(&vectors, &none);
    for (size_t i = 0; i < config->n_plugins && rc == STATUS_OK; i++)
        rc = check_plugin(config, &config->plugins[i], &vectors, err);
    vectors_deinit(&vectors);
    return rc;
}

static enum status check_models(const struct config *config, struct error *err)
{
    for (size_t i = 0; i < config->n_models; i++)
        if (check_agent(config, &config->models[i], NULL, err) != STATUS_OK)
            return err->status;
    return check_plugins(config, err);
}

/* The loop never runs while the socket listens. */
static void accept_none(void *arg, int fd)
{
    (void)close(fd);
}

/* A parleyd that runs already has the address: no mistake of the configuration. */
static bool is_held_by_parleyd(const char *address)
{
    struct address_holder by;

    if (!address_holder_find(&by, address) || !address_holder_is_like_us(&by))
        return false;
    log_info("check", "address=%s held_by=%s pid=%ld", address, by.name, by.pid);
    return true;
}

static enum status check_address(const char *address, struct error *err)
{
    const struct listener_config config = {
        .name = "check", .address = address, .max_descriptors = 1, .accepted = accept_none};
    struct listener *l;
    enum status rc;
    uv_loop_t loop;

    if (uv_loop_init(&loop) != 0)
        return error_set(err, STATUS_EXHAUSTED, "no descriptors are left for the loop");
    rc = listener_open(&l, &loop, &config, err);
    if (rc == STATUS_OK)
        listener_close(l);
    (void)uv_run(&loop, UV_RUN_DEFAULT); /* frees l */
    (void)uv_loop_close(&loop);          /* it is empty */
    return rc == STATUS_OK || is_held_by_parleyd(address) ? STATUS_OK : rc;
}

static enum status check_addresses(const struct config *config, struct error *err)
{
    for (size_t i = 0; i < config->n_listen; i++)
        if (check_address(config->listen[i], err) != STATUS_OK)
            return error_prefix(err, "--listen");
    if (config->listen_admin != NULL && check_address(config->listen_admin, err) != STATUS_OK)
        return error_prefix(err, "--listen-admin");
    /* A start does without the default address where it cannot be had. */
    if (config->http != NULL && config->is_http_given &&
        check_address(config->http, err) != STATUS_OK)
        return error_prefix(err, "--http");
    if (config->http_admin != NULL && check_address(config->http_admin, err) != STATUS_OK)
        return error_prefix(err, "--http-admin");
    return STATUS_OK;
}

static uint64_t check_unix_s(void)
{
    return (uint64_t)time(NULL);
}

static enum status try_keys(const struct config *config, struct error *err)
{
    const struct access_config keys = {
        .path = config->keys, .env = &env_real, .unix_s = check_unix_s};
    struct access *a;

    if (keys.path == NULL)
        return STATUS_OK;
    if (access_open(&a, &keys, err) != STATUS_OK)
        return error_prefix(err, "--keys");
    access_close(a);
    return STATUS_OK;
}

static enum status try_tls(const struct config *config, struct error *err)
{
    const struct tls_config files = {config->tls_cert, config->tls_key, config->tls_client_ca};
    struct tls *t;
    enum status rc;
    uv_loop_t loop;

    if (files.certificate == NULL && files.private_key == NULL && files.client_ca == NULL)
        return STATUS_OK;
    if (uv_loop_init(&loop) != 0)
        return error_set(err, STATUS_EXHAUSTED, "no descriptors are left for the loop");
    rc = tls_open(&t, &loop, &files, err);
    if (rc == STATUS_OK)
        tls_close(t);
    (void)uv_run(&loop, UV_RUN_DEFAULT); /* frees t */
    (void)uv_loop_close(&loop);          /* it is empty */
    return rc == STATUS_OK ? rc : error_prefix(err, "TLS");
}

enum status check_service(const struct service_plan *plan, const struct config *config,
                          const struct access *access, struct error *err)
{
    if (config->http == NULL)
        return error_set(err, STATUS_INVALID, "--service: its people come to --http, which is off");
    if (config->keys == NULL && plan->principal != NULL)
        return error_set(err, STATUS_INVALID,
                         "--service: %.100s: principal: there are no principals without --keys: "
                         "remove it",
                         plan->path);
    if (config->keys != NULL && plan->principal == NULL)
        return error_set(err, STATUS_INVALID,
                         "--service: %.100s: with --keys, the key 'principal' must name the "
                         "principal whose quota the agents use: add it",
                         plan->path);
    if (config->keys != NULL && access_principal(access, plan->principal) == NULL)
        return error_set(err, STATUS_INVALID,
                         "--service: %.100s: principal: no key of --keys is '%.60s''s", plan->path,
                         plan->principal);
    return STATUS_OK;
}

static enum status try_service(const struct config *config, struct error *err)
{
    const struct access_config keys = {
        .path = config->keys, .env = &env_real, .unix_s = check_unix_s};
    struct service_plan *plan = NULL;
    struct access *a = NULL;
    enum status rc = STATUS_OK;

    if (config->service == NULL)
        return STATUS_OK;
    if (service_plan_open(&plan, config->service, err) != STATUS_OK)
        return error_prefix(err, "--service");
    if (keys.path != NULL && access_open(&a, &keys, err) != STATUS_OK)
        rc = error_prefix(err, "--keys");
    if (rc == STATUS_OK)
        rc = check_service(plan, config, a, err);
    service_plan_close(plan);
    access_close(a);
    return rc;
}

enum status check_open_files(struct error *err)
{
    size_t n;

    open_files_raise();
    n = open_files_max();
    if (n < OPEN_FILES_MIN)
        return error_set(err, STATUS_EXHAUSTED,
                         "%zu open files are allowed, at least %d are needed ('ulimit -H -n')", n,
                         OPEN_FILES_MIN);
    return STATUS_OK;
}

static enum status check_descriptors(const struct config *config, struct error *err)
{
    return check_open_files(err);
}

static enum status (*const checks[])(const struct config *config, struct error *err) = {
    check_descriptors, config_check_files, try_keys,        try_tls,      try_service,
    check_addresses,   check_data_folder,  check_model_dir, check_models, /* last: it takes long */
};

enum status check_config(const struct config *config, struct error *err)
{
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
        if (checks[i](config, err) != STATUS_OK)
            return err->status;
    return STATUS_OK;
}

enum status check_init_data(const struct config *config, struct error *err)
{
    if (config->data == NULL || !postgres_is_url(config->data))
        return error_set(err, STATUS_INVALID,
                         "--init-data: --data is to be the URL of a PostgreSQL database");
    if (postgres_init_data(config->data, err) == STATUS_OK)
        return STATUS_OK;
    return error_prefix(err, "--init-data");
}

enum status check_backup(const struct config *config, struct error *err)
{
    if (config->data == NULL)
        return error_set(err, STATUS_INVALID, "--backup: --data does not say of what");
    if (journal_type_of(config->data)->backup(config->data, config->backup, err) == STATUS_OK)
        return STATUS_OK;
    return error_prefix(err, "--backup");
}

enum status check_data(const struct config *config, uint64_t *ret_conversations,
                       uint64_t *ret_turns, struct error *err)
{
    const struct journal_store_type *type;
    struct journal_store *store;
    enum status rc;

    if (config->data == NULL)
        return error_set(err, STATUS_INVALID, "--check-data: --data does not say of what");
    type = journal_type_of(config->data);
    if (type == &journal_sqlite && access(config->data, F_OK) != 0) /* else it would be made */
        return error_set(err, STATUS_NOT_FOUND, "--data: there is no %s", config->data);
    if (!type->is_there(config->data))
        return error_set(err, STATUS_NOT_FOUND, "--data: nothing is kept in %s", config->data);
    rc = type->open(&store, config->data, err);
    if (rc == STATUS_OK) {
        rc = store->type->check(store, ret_conversations, ret_turns, err);
        store->type->close(store);
    }
    return rc == STATUS_OK ? rc : error_prefix(err, "--data");
}
