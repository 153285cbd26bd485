/* Joins attached workers to their models. attached_offer makes the offered name a model, and loads
 * it; attached_worker_join joins the worker once the model is loaded. */
#include "server/model/attached.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "base/alarm.h"
#include "base/log.h"
#include "server/model/model.h"

static const struct limit_kind kind_of_attached_workers = {"attached workers", NULL, NULL};

static const struct attached_worker *attached_worker_of(const struct peer *p)
{
    return container_of(p, const struct attached_worker, remote.peer);
}

static struct attached *attached_of(const struct attached_worker *w)
{
    return container_of(w->remote.peer.all, struct attached, peers);
}

/* Before the model is stopped, once nothing of it is in flight. */
static void attached_close_model(struct model_user *user, struct model *m)
{
    struct attached *a = container_of(user, struct attached, user);
    struct link *l, *next;
    struct error err;

    (void)error_because(&err, STATUS_UNAVAILABLE, REASON_MODEL_NOT_READY, NULL,
                        "model '%s' was unloaded", m->name);
    for (l = list_first(&a->peers.list); l != NULL; l = next) {
        struct peer *p = container_of(l, struct peer, link);

        next = list_next(&a->peers.list, l);
        if (attached_worker_of(p)->model == m)
            p->ended(p, &err);
    }
}

static void attached_say_silent(const struct peer *p, struct error *err)
{
    if (p->must_speak)
        (void)error_set(err, STATUS_DEADLINE, "no offer came within %" PRIu64 " ms",
                        p->all->silence_us / 1000);
    else
        remote_worker_say_silent(&attached_worker_of(p)->remote, err);
}

void attached_init(struct attached *a, const struct attached_config *config)
{
    *a = (struct attached){
        .config = *config,
        .user = {.close = attached_close_model},
        .peers = {.env = config->env,
                  .silence_us = config->silence_us,
                  .max_orders = REMOTE_MAX_ORDERS,
                  .alarm = config->alarm,
                  .say_silent = attached_say_silent},
    };
    peers_init(&a->peers);
    shared_limit_init(&a->limit, &kind_of_attached_workers, ATTACHED_MAX_WORKERS);
}

void attached_deinit(void *attached)
{
    struct attached *a = attached;

    shared_limit_deinit(&a->limit);
}

void attached_end(void *attached)
{
    struct attached *a = attached;

    peers_end(&a->peers);
    a->config.is_allowed = false;
}

void attached_tick(void *attached)
{
    struct attached *a = attached;
    const struct models *r = a->config.models;
    uint64_t now_us = env_now_us(a->config.env);

    peers_tick(&a->peers);
    for (size_t i = 0; i < r->n_loaded; i++)
        if (r->loaded[i]->type == &remote_agent_type && r->loaded[i]->agent != NULL)
            remote_agent_tick(r->loaded[i]->agent, now_us);
}

enum status attached_open(struct attached_worker *w, struct attached *a, struct error *err)
{
    if (!a->config.is_allowed)
        return error_set(err, STATUS_DENIED,
                         "workers may not attach here: the server is reachable from other "
                         "machines and has no --keys, or was started with --attach off");
    if (shared_limit_take(&a->limit, w->principal, 1, err) != STATUS_OK)
        return err->status;
    peer_open(&w->remote.peer, &a->peers, true);
    return STATUS_OK;
}

void attached_follow_workers(struct model *m)
{
    struct batcher_config config = m->batching;
    struct error err;

    if (m->is_gathered)
        return;
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
    struct attached *a = attached_of(w);
    struct model *m;
    enum status rc = models_get(&m, a->config.models, w->name, err);

    if (rc != STATUS_OK)
        return rc;
    if (m->state != MODEL_READY)
        return model_check_ready(m, err);
    assert(m->type == &remote_agent_type);
    rc = remote_worker_open(&w->remote, m->agent, &w->offer, err);
    if (rc != STATUS_OK)
        return rc;
    w->model = m;
    agent_describe(m->agent, &m->info);
    attached_follow_workers(m);
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
        w->remote.peer.ended(&w->remote.peer, &why);
}

enum status attached_offer(struct attached_worker *w, const char *name,
                           const struct remote_offer *offer, struct error *err)
{
    struct attached *a = attached_of(w);
    bool is_loaded = false;
    enum status rc;

    if (strlen(name) >= sizeof(w->name) || strlen(offer->version) >= sizeof(w->version))
        return error_field(err, "offer", "has a name or version of more than %zu bytes",
                           sizeof(w->name) - 1);
    memcpy(w->name, name, strlen(name) + 1);
    memcpy(w->version, offer->version, strlen(offer->version) + 1);
    w->offer = *offer;
    w->offer.version = w->version;
    w->remote.peer.must_speak = false;
    w->wait.done = on_wait_done;
    rc = models_add_type(a->config.models, w->name, &remote_agent_type, &a->peers, err);
    if (rc == STATUS_OK)
        rc = models_load(a->config.models, w->name, &w->wait, &is_loaded, err);
    if (rc == STATUS_OK && is_loaded)
        rc = attached_worker_join(w, err);
    return rc;
}

void attached_close(struct attached_worker *w)
{
    struct attached *a;

    if (!peer_is_open(&w->remote.peer))
        return;
    a = attached_of(w);
    peer_close(&w->remote.peer);
    models_leave(&w->wait);
    shared_limit_give(&a->limit, w->principal, 1);
    if (w->model == NULL)
        return;
    remote_worker_close(&w->remote);
    log_info("detached", "model=%s workers=%zu", w->model->name,
             remote_agent_n_workers(w->model->agent));
    model_set_vacant(a, w->model, remote_agent_n_workers(w->model->agent) == 0);
    attached_follow_workers(w->model);
}
