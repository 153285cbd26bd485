#include "server/model/pulls.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fetch/hub_cache.h"
#include "base/fetch/hub_path.h"
#include "base/log.h"
#include "server/model/models.h"

enum { RETRY_MS = 5000 };

struct model_pull_job {
    struct link link; /* of models->pulls */
    struct models *models;
    struct pull *pull;
    struct model_pull *wait; /* NULL: nobody waits any more */
    char *name;              /* of the repository, "hf:OWNER/REPO" */
    char *folder;            /* of the repository in the cache */
    char served[MODEL_NAME_SERVED_MAX + 1];
};

static void model_pull_free(struct model_pull_job *job)
{
    free(job->name);
    free(job->folder);
    free(job);
}

/* Another part of the same repository may take the name. */
static enum status model_pull_check_name(const struct model_pull_job *job, struct error *err)
{
    const struct model_entry *e = models_find(job->models, job->served);
    size_t len = strlen(job->folder);

    if (e == NULL ||
        (e->is_from_dir && strncmp(e->path, job->folder, len) == 0 && e->path[len] == '/'))
        return STATUS_OK;
    return error_because(err, STATUS_EXISTS, REASON_NONE, "model",
                         "there is another model '%s' already; to serve %.200s beside it, start "
                         "parleyd with --model NAME=%.200s",
                         job->served, job->name, job->name);
}

static void on_pull_progress(void *arg, const struct pull_progress *now)
{
    struct model_pull_job *job = arg;

    if (job->wait != NULL)
        job->wait->progress(job->wait, now);
}

static void on_pull_done(void *arg, const char *path, const struct error *err)
{
    struct model_pull_job *job = arg;
    struct models *r = job->models;
    struct error why = *err;

    if (err->status == STATUS_OK && model_pull_check_name(job, &why) == STATUS_OK &&
        models_add_path(r, job->served, path, &why) == STATUS_OK)
        log_info("pulled", "model=%s", job->served);
    else
        log_warn("pull", "model=%s error=\"%s\"", job->served, why.text);
    list_remove(&job->link);
    r->n_pulls--;
    if (job->wait != NULL)
        job->wait->job = NULL;
    if (job->wait != NULL)
        job->wait->done(job->wait, why.status == STATUS_OK ? job->served : NULL, &why);
    model_pull_free(job);
    r->config.on_idle(r->config.arg);
}

static enum status model_pull_check(const struct model_pull_job *job, struct error *err)
{
    const struct models *r = job->models;

    if (r->config.is_offline)
        return error_set(err, STATUS_PRECONDITION, "--offline is set: nothing is fetched");
    if (model_pull_check_name(job, err) != STATUS_OK)
        return err->status;
    if (r->n_pulls < MODEL_PULLS_MAX)
        return r->config.check_serving(r->config.arg, err);
    (void)error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                        "%d models are being fetched already", MODEL_PULLS_MAX);
    err->retry_after_ms = RETRY_MS;
    return err->status;
}

enum status model_pull_start(struct model_pull *w, struct models *r, const char *text,
                             struct error *err)
{
    struct model_pull_job *job = xalloc(sizeof(*job));
    struct pull_config config = {
        .loop = r->config.loop,
        .n_connections = PULL_CONNECTIONS,
        .progress = on_pull_progress,
        .done = on_pull_done,
        .arg = job,
    };

    job->models = r;
    model_name_served(job->served, text);
    if (model_name_parse(&config.name, text, err) != STATUS_OK ||
        hub_cache_folder(&job->folder, &config.name, err) != STATUS_OK) {
        model_pull_free(job);
        return err->status;
    }
    job->name = hub_path("hf:%s/%s", config.name.owner, config.name.repo);
    if (model_pull_check(job, err) != STATUS_OK ||
        pull_start(&job->pull, &config, err) != STATUS_OK) {
        model_pull_free(job);
        return err->status;
    }
    job->wait = w;
    w->job = job;
    list_push(&r->pulls, &job->link);
    r->n_pulls++;
    return STATUS_OK;
}

void model_pull_cancel(struct model_pull *w)
{
    if (w->job != NULL)
        pull_cancel(w->job->pull);
}

void model_pull_leave(struct model_pull *w)
{
    struct model_pull_job *job = w->job;

    if (job == NULL)
        return;
    w->job = NULL;
    job->wait = NULL;
    pull_cancel(job->pull);
}

void model_pulls_end(struct models *r)
{
    for (struct link *l = list_first(&r->pulls); l != NULL; l = list_next(&r->pulls, l))
        pull_cancel(container_of(l, struct model_pull_job, link)->pull);
}
