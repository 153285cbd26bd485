/* What a reload of the configuration (SIGHUP) changes: a table of rows, each of which checks the
 * new configuration and applies its part of it. reload.c reads the configuration and walks the
 * table. */
#include "base/buf.h"
#include "base/log.h"
#include "server/access/access.h"
#include "server/daemon_state.h"
#include "server/http/http.h"
#include "server/model/models.h"
#include "server/net/tls.h"
#include "server/stop_signal.h"
#include "server/watchdog.h"

static size_t daemon_wanted_models(const struct config *to, struct models_wanted *out)
{
    for (size_t i = 0; i < to->n_models; i++)
        out[i] = (struct models_wanted){to->models[i].name, to->models[i].path};
    return to->n_models;
}

static enum status check_new_models(void *self, const struct config *to, struct error *err)
{
    const struct daemon *d = self;
    struct models_wanted wanted[CONFIG_MAX_MODELS];
    size_t n = daemon_wanted_models(to, wanted);

    if (config_check_files(to, err) != STATUS_OK)
        return err->status;
    if (models_check(d->server.models, wanted, n, err) != STATUS_OK)
        return config_blame(to, "models", err);
    return STATUS_OK;
}

static void apply_models(void *self, const struct config *to)
{
    struct daemon *d = self;
    struct models_wanted wanted[CONFIG_MAX_MODELS];

    d->server.models->config.drain_timeout_ms = d->config.drain_timeout_ms = to->drain_timeout_ms;
    stop_signal_set_patience(to->drain_timeout_ms + WATCHED_MS);
    models_configure(d->server.models, wanted, daemon_wanted_models(to, wanted));
}

/* Those that live and turns that run keep what they began with. */
static void apply_limits(void *self, const struct config *to)
{
    struct daemon *d = self;

    part_list_configure(&d->parts, to);
}

static void apply_http(void *self, const struct config *to)
{
    struct daemon *d = self;

    if (d->ports.http != NULL)
        http_configure(d->ports.http, to->http_timeout_ms, to->http_origins, to->n_http_origins);
}

static void apply_log(void *self, const struct config *to)
{
    log_set_level(to->log_level);
}

static enum status check_keys(void *self, const struct config *to, struct error *err)
{
    struct daemon *d = self;

    return d->access == NULL ? STATUS_OK : access_prepare(d->access, err);
}

/* Revoked keys start nothing more, and what they have started ends. */
static void apply_keys(void *self, const struct config *to)
{
    struct daemon *d = self;

    if (d->access == NULL)
        return;
    access_commit(d->access);
    models_reweigh(d->server.models);
    ports_check_keys(&d->ports);
}

static void drop_keys(void *self)
{
    struct daemon *d = self;

    if (d->access != NULL)
        access_discard(d->access);
}

static void say_keys(void *self, struct buf *names, struct buf *more)
{
    const struct daemon *d = self;
    struct access_changes changes;

    if (d->access == NULL)
        return;
    changes = access_changed(d->access);
    if (changes.n_added == 0 && changes.n_revoked == 0 && changes.n_altered == 0)
        return;
    reload_add_name(names, "keys");
    (void)!buf_printf(more, " keys_added=%zu keys_revoked=%zu keys_altered=%zu", changes.n_added,
                      changes.n_revoked, changes.n_altered); /* it has room */
}

static enum status check_tls(void *self, const struct config *to, struct error *err)
{
    struct daemon *d = self;

    return d->ports.tls == NULL ? STATUS_OK : tls_prepare(d->ports.tls, err);
}

static void apply_tls(void *self, const struct config *to)
{
    struct daemon *d = self;

    if (d->ports.tls != NULL)
        tls_commit(d->ports.tls);
}

static void drop_tls(void *self)
{
    struct daemon *d = self;

    if (d->ports.tls != NULL)
        tls_discard(d->ports.tls);
}

static void say_tls(void *self, struct buf *names, struct buf *more)
{
    const struct daemon *d = self;
    const unsigned changes = d->ports.tls == NULL ? 0 : tls_changes(d->ports.tls);

    if ((changes & TLS_CHANGED_CERTIFICATE) != 0) {
        reload_add_name(names, "tls_cert");
        (void)!buf_printf(more, " certificate_until=%s",
                          tls_valid_until(d->ports.tls)); /* likewise */
    }
    if ((changes & TLS_CHANGED_KEY) != 0)
        reload_add_name(names, "tls_key");
    if ((changes & TLS_CHANGED_CLIENT_CA) != 0)
        reload_add_name(names, "tls_client_ca");
}

static const struct reload_row reload_rows[] = {
    {.name = "tls", .check = check_tls, .apply = apply_tls, .drop = drop_tls, .say = say_tls},
    {.name = "keys", .check = check_keys, .apply = apply_keys, .drop = drop_keys, .say = say_keys},
    {.name = "log", .apply = apply_log},
    {.name = "limits", .apply = apply_limits},
    {.name = "http", .apply = apply_http},
    {.name = "models", .check = check_new_models, .apply = apply_models},
};

void daemon_init_reload(struct daemon *d, const struct config *start)
{
    reload_init(&d->reload, start, reload_rows, sizeof(reload_rows) / sizeof(reload_rows[0]), d);
}

void daemon_reload(struct daemon *d)
{
    char text[2 * ERROR_TEXT_MAX];
    struct error err;

    if (d->server.state == SERVER_LOADING) {
        d->is_reload_due = true;
        return;
    }
    d->is_reload_due = false;
    if (d->server.state != SERVER_SERVING)
        return;
    notifier_send(&d->notifier, "RELOADING=1\nMONOTONIC_USEC=%llu",
                  (unsigned long long)env_now_us(&d->env));
    if (reload_run(&d->reload, &err) == STATUS_OK) {
        notifier_send(&d->notifier, "READY=1\nSTATUS=serves the configuration as read again");
        d->server.n_reloads_done++;
        return;
    }
    notifier_send(&d->notifier, "READY=1\nSTATUS=keeps the old configuration: %s", err.text);
    d->server.n_reloads_failed++;
    log_error("reload", "kept=all error=%s", log_quote(text, sizeof(text), err.text));
}
