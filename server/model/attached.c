/* Happy path: attached_open, attached_offer (the name becomes a model, which loads if it is not
 * loaded), attached_worker_join once it is, attached_close when the stream ends. An unload of the
 * model, a silent worker and the daemon's end close the worker and call ended. */
#include "server/model/attached.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "server/model/model.h"

static struct attached_worker *attached_worker_of(struct link *l)
{
    return container_of(l, struct attached_worker, link);
}

/* The alarm rings at the earliest time that was asked for. */
static void attached_arm(void *arg, uint64_t at_us)
{
    struct attached *a = arg;

    if (a->armed_us != 0 && a->armed_us <= at_us)
        return;
    a->armed_us = at_us;
    a->config.arm(a->config.arm_self, at_us);
}

static void attached_worker_end(struct attached_worker *w, const struct error *err)
{
    attached_close(w);
    w->ended(w, err);
}

/* Before the model is stopped, once nothing of it is in flight. */
static void attached_close_model(struct model_user *user, struct model *m)
{
    struct attached *a = container_of(user, struct attached, user);
    struct link *l, *next;
    struct error err;

    (void)error_because(&err, STATUS_UNAVAILABLE, REASON_MODEL_NOT_READY, NULL,
                        "model '%s' was unloaded", m->name);
    for (l = list_first(&a->workers); l != NULL; l = next) {
        next = list_next(&a->workers, l);
        if (attached_worker_of(l)->model == m)
            attached_worker_end(attached_worker_of(l), &err);
    }
}

void attached_init(struct attached *a, const struct attached_config *config)
{
    *a = (struct attached){
        .config = *config,
        .user = {.close = attached_close_model},
        .remote = {.silence_us = config->silence_us, .arm = attached_arm, .arg = a},
    };
    list_init(&a->workers);
    shared_limit_init(&a->limit, LIMIT_ATTACHED_WORKERS, ATTACHED_MAX_WORKERS);
}

void attached_deinit(struct attached *a)
{
    shared_limit_deinit(&a->limit);
}

void attached_end(struct attached *a)
{
    struct error err;
    struct link *l;

    (void)error_draining(&err);
    while ((l = list_first(&a->workers)) != NULL)
        attached_worker_end(attached_worker_of(l), &err);
    a->config.is_allowed = false;
}

static void attached_tick_offers(struct attached *a, uint64_t now_us)
{
    struct link *l, *next;
    struct error err;

    for (l = list_first(&a->workers); l != NULL; l = next) {
        struct attached_worker *w = attached_worker_of(l);

        next = list_next(&a->workers, l);
        if (w->due_us != 0 && w->due_us <= now_us) {
            (void)error_set(&err, STATUS_DEADLINE, "no offer came within %" PRIu64 " ms",
                            a->config.silence_us / 1000);
            attached_worker_end(w, &err);
        } else if (w->due_us != 0) {
            attached_arm(a, w->due_us);
        }
    }
}

void attached_tick(struct attached *a)
{
    const struct models *r = a->config.models;
    uint64_t now_us = env_now_us(a->config.env);

    a->armed_us = 0;
    attached_tick_offers(a, now_us);
    for (size_t i = 0; i < r->n_loaded; i++) {
        struct model *m = r->loaded[i];
        uint64_t due_us = 0;

        if (m->type == &remote_agent_type && m->agent != NULL)
            due_us = remote_agent_tick(m->agent, now_us);
        if (due_us != 0)
            attached_arm(a, due_us);
    }
}

enum status attached_open(struct attached_worker *w, struct attached *a, struct error *err)
{
    if (!a->config.is_allowed)
        return error_set(err, STATUS_DENIED,
                         "workers may not attach here: the server is reachable from other "
                         "machines and has no --keys, or was started with --attach off");
    if (shared_limit_take(&a->limit, w->principal, 1, err) != STATUS_OK)
        return err->status;
    w->attached = a;
    w->due_us = env_now_us(a->config.env) + a->config.silence_us;
    list_push(&a->workers, &w->link);
    attached_arm(a, w->due_us);
    return STATUS_OK;
}

static void on_worker_fault(struct remote_worker *remote, const struct error *err)
{
    attached_worker_end(container_of(remote, struct attached_worker, remote), err);
}

/* Lets the batcher have as many rows in flight as the workers take. */
static void model_follow_workers(struct model *m)
{
    struct batcher_config config = m->batching;
    struct error err;

    config.max_rows = remote_agent_capacity(m->agent);
    if (config.max_rows > 0 && m->state == MODEL_READY &&
        batcher_configure(m->batcher, &config, &err) != STATUS_OK)
        log_warn("attach", "model=%s error=\"%s\"", m->name, err.text);
}

static void model_set_vacant(struct attached *a, struct model *m, bool is_vacant)
{
    if (m->is_vacant == is_vacant)
        return;
    m->is_vacant = is_vacant;
    a->config.on_change(a->config.arg, m);
    models_tell_ready(a->config.models, m);
}

/* The model of its name is loaded. */
static enum status attached_worker_join(struct attached_worker *w, struct error *err)
{
    struct attached *a = w->attached;
    struct model *m;
    enum status rc = models_get(&m, a->config.models, w->name, err);

    if (rc != STATUS_OK)
        return rc;
    if (m->state != MODEL_READY)
        return model_check_ready(m, err);
    assert(m->type == &remote_agent_type);
    w->remote.fail = on_worker_fault;
    rc = remote_worker_open(&w->remote, m->agent, &w->offer, err);
    if (rc != STATUS_OK)
        return rc;
    w->model = m;
    m->agent->type->info(m->agent, &m->info);
    model_follow_workers(m);
    model_set_vacant(a, m, false);
    log_info("attached", "model=%s version=%s workers=%zu", m->name, m->info.version,
             remote_agent_n_workers(m->agent));
    w->joined(w);
    return STATUS_OK;
}

static void on_wait_done(struct models_wait *wait, const struct error *err)
{
    struct attached_worker *w = container_of(wait, struct attached_worker, wait);
    struct error why = *err;

    if (why.status != STATUS_OK || attached_worker_join(w, &why) != STATUS_OK)
        attached_worker_end(w, &why);
}

enum status attached_offer(struct attached_worker *w, const char *name,
                           const struct remote_offer *offer, struct error *err)
{
    struct attached *a = w->attached;
    bool is_loaded = false;
    enum status rc;

    if (strlen(name) >= sizeof(w->name) || strlen(offer->version) >= sizeof(w->version))
        return error_field(err, "offer", "has a name or version of more than %zu bytes",
                           sizeof(w->name) - 1);
    memcpy(w->name, name, strlen(name) + 1);
    memcpy(w->version, offer->version, strlen(offer->version) + 1);
    w->offer = *offer;
    w->offer.version = w->version;
    w->due_us = 0;
    w->wait.done = on_wait_done;
    rc = models_add_type(a->config.models, w->name, &remote_agent_type, &a->remote, err);
    if (rc == STATUS_OK)
        rc = models_load(a->config.models, w->name, &w->wait, &is_loaded, err);
    if (rc == STATUS_OK && is_loaded)
        rc = attached_worker_join(w, err);
    return rc;
}

void attached_close(struct attached_worker *w)
{
    struct attached *a = w->attached;

    if (a == NULL)
        return;
    w->attached = NULL;
    models_leave(&w->wait);
    list_remove(&w->link);
    shared_limit_give(&a->limit, w->principal, 1);
    if (w->model == NULL)
        return;
    remote_worker_close(&w->remote);
    log_info("detached", "model=%s workers=%zu", w->model->name,
             remote_agent_n_workers(w->model->agent));
    model_set_vacant(a, w->model, remote_agent_n_workers(w->model->agent) == 0);
    model_follow_workers(w->model);
}
