/* Load: an entry's model is started, among the daemon's models from the first; repository_loaded
 * makes it READY, or takes it out again.
 *
 * Unload: the model drains (nothing new is taken), its sequences are retired; when nothing of it is
 * in flight any more, or the time is up, its conversations and sessions are closed; when they are
 * gone the model leaves the daemon's models and is stopped; then its entry is UNLOADED. The last of
 * its steps tells nobody that it was the last, so a timer looks.
 *
 * When the daemon ends, it stops all models that are among its own; those that had left already
 * come to their end by themselves. */
#include "server/repository.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/log.h"
#include "server/daemon.h"

enum { LOOK_MS = 10, NAME_MAX_BYTES = 63, RETRY_MS = 100 };

static const uint32_t entry_moves[] = {
    [ENTRY_UNLOADED] = 1u << ENTRY_LOADING,
    [ENTRY_LOADING] = 1u << ENTRY_READY | 1u << ENTRY_UNLOADED,
    [ENTRY_READY] = 1u << ENTRY_UNLOADING,
    [ENTRY_UNLOADING] = 1u << ENTRY_UNLOADED,
};

static void entry_move(struct entry *e, enum entry_state to)
{
    assert((entry_moves[e->state] & 1u << to) != 0);
    e->state = to;
}

void repository_init(struct repository *r, struct daemon *d)
{
    *r = (struct repository){.daemon = d};
    list_init(&r->entries);
}

static void free_entry(struct repository *r, struct entry *e)
{
    assert(list_is_empty(&e->waits));
    list_remove(&e->link);
    r->n_entries--;
    free(e->name);
    free(e->path);
    free(e);
}

void repository_deinit(struct repository *r)
{
    struct link *l;

    while ((l = list_first(&r->entries)) != NULL)
        free_entry(r, container_of(l, struct entry, link));
}

struct entry *repository_find(const struct repository *r, const char *name)
{
    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l)) {
        struct entry *e = container_of(l, struct entry, link);

        if (strcmp(e->name, name) == 0)
            return e;
    }
    return NULL;
}

static struct entry *make_known(struct repository *r, const char *name, const char *path)
{
    struct entry *e = xalloc(sizeof(*e));

    e->daemon = r->daemon;
    e->name = xstrdup(name);
    e->path = path == NULL ? NULL : xstrdup(path);
    list_init(&e->waits);
    list_push(&r->entries, &e->link);
    r->n_entries++;
    return e;
}

static struct entry *entry_of(const struct repository *r, const struct model *m)
{
    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l)) {
        struct entry *e = container_of(l, struct entry, link);

        if (e->model == m)
            return e;
    }
    return NULL;
}

/* --- who waits --- */

static void tell(struct entry *e, const struct error *err)
{
    struct list waits;
    struct link *l;

    list_init(&waits);
    list_move(&e->waits, &waits);
    while ((l = list_pop(&waits)) != NULL) {
        struct repository_wait *w = container_of(l, struct repository_wait, link);

        w->done(w, err);
    }
}

void repository_leave(struct repository_wait *w)
{
    if (link_is_on(&w->link))
        list_remove(&w->link);
}

/* --- the folder --- */

/* The length of the name in NAME.gguf, 0 for other files. */
static size_t name_len(const char *file)
{
    size_t len = strlen(file);

    if (len < 6 || strcmp(file + len - 5, ".gguf") != 0 || len - 5 > NAME_MAX_BYTES ||
        file[0] == '.')
        return 0;
    for (size_t i = 0; i < len - 5; i++)
        if (!isalnum((unsigned char)file[i]) && strchr("._-", file[i]) == NULL)
            return 0;
    return len - 5;
}

static void take_file(struct repository *r, const char *dir, const char *file)
{
    char name[NAME_MAX_BYTES + 1], path[4096];
    size_t len = name_len(file);
    struct stat st;

    if (len == 0 || r->n_entries == REPOSITORY_MAX_MODELS)
        return;
    memcpy(name, file, len);
    name[len] = '\0';
    if (repository_find(r, name) != NULL ||
        (size_t)snprintf(path, sizeof(path), "%s/%s", dir, file) >= sizeof(path) ||
        stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    make_known(r, name, path)->is_from_dir = true;
}

static void forget_gone(struct repository *r)
{
    struct link *l, *next;
    struct stat st;

    for (l = list_first(&r->entries); l != NULL; l = next) {
        struct entry *e = container_of(l, struct entry, link);

        next = list_next(&r->entries, l);
        if (e->is_from_dir && e->state == ENTRY_UNLOADED && stat(e->path, &st) != 0)
            free_entry(r, e);
    }
}

enum status repository_scan(struct repository *r, struct error *err)
{
    const char *path = r->daemon->config.model_dir;
    struct dirent *file;
    DIR *dir;

    if (path == NULL)
        return STATUS_OK;
    dir = opendir(path);
    if (dir == NULL)
        return error_set(err, STATUS_UNAVAILABLE, "cannot read the folder %.100s: %s", path,
                         strerror(errno));
    forget_gone(r);
    while ((file = readdir(dir)) != NULL)
        take_file(r, path, file->d_name);
    (void)closedir(dir); /* was only read */
    return STATUS_OK;
}

/* --- loading --- */

/* Among those that are loaded, in the order of the entries: the first is the default. */
static size_t place_of(const struct repository *r, const struct entry *e)
{
    size_t at = 0;

    for (struct link *l = list_first(&r->entries); l != &e->link; l = list_next(&r->entries, l)) {
        const struct model *m = container_of(l, struct entry, link)->model;

        for (size_t i = 0; i < r->daemon->n_models; i++)
            if (m != NULL && r->daemon->models[i] == m)
                at++;
    }
    return at;
}

static enum status start(struct repository *r, struct entry *e, struct error *err)
{
    struct daemon *d = r->daemon;
    size_t at = place_of(r, e);

    if (d->n_models == DAEMON_MAX_MODELS)
        return error_set(err, STATUS_EXHAUSTED, "%d models are loaded already", DAEMON_MAX_MODELS);
    if (daemon_start_model(&e->model, d, e->name, e->path, err) != STATUS_OK)
        return err->status;
    entry_move(e, ENTRY_LOADING);
    e->why = (struct error){0};
    memmove(d->models + at + 1, d->models + at, (d->n_models - at) * sizeof(d->models[0]));
    d->models[at] = e->model;
    d->n_models++;
    health_set(&d->health, e->name, HEALTH_NOT_SERVING);
    return STATUS_OK;
}

static void take_out(struct daemon *d, const struct model *m)
{
    size_t at = 0;

    while (d->models[at] != m)
        at++;
    d->n_models--;
    memmove(d->models + at, d->models + at + 1, (d->n_models - at) * sizeof(d->models[0]));
}

enum status repository_start(struct repository *r, const char *name, const char *path,
                             struct error *err)
{
    return start(r, make_known(r, name, path), err);
}

static void on_stopped(void *arg)
{
    struct entry *e = arg;
    struct daemon *d = e->daemon;

    e->model = NULL;
    entry_move(e, ENTRY_UNLOADED);
    log_info("unloaded", "model=%s", e->name);
    tell(e, &e->why);
    daemon_model_stopped(d);
}

/* A load that failed: what there is of it goes, then it is told. */
static void drop(struct entry *e)
{
    e->why = e->model->err;
    log_warn("load", "model=%s error=\"%s\"", e->name, e->why.text);
    take_out(e->daemon, e->model);
    model_stop(e->model, on_stopped, e);
}

void repository_loaded(struct repository *r, struct model *m)
{
    struct entry *e = entry_of(r, m);

    if (m->state == MODEL_FAILED) {
        drop(e);
        return;
    }
    entry_move(e, ENTRY_READY);
    tell(e, &e->why);
}

static enum status not_known(const struct repository *r, const char *name, struct error *err)
{
    return error_set(err, STATUS_NOT_FOUND,
                     r->daemon->config.model_dir != NULL
                         ? "there is no model '%.60s', neither among those the daemon was started "
                           "with nor in its --model-dir"
                         : "there is no model '%.60s' among those the daemon was started with, and "
                           "it has no --model-dir",
                     name);
}

static enum status check_serving(const struct daemon *d, struct error *err)
{
    if (d->state == DAEMON_SERVING)
        return STATUS_OK;
    (void)error_set(err, STATUS_UNAVAILABLE, "the server is %s", daemon_state_name(d));
    err->retry_after_ms = d->state == DAEMON_LOADING ? RETRY_MS : 0;
    return err->status;
}

enum status repository_load(struct repository *r, const char *name, struct repository_wait *w,
                            bool *ret_done, struct error *err)
{
    enum status rc = check_serving(r->daemon, err);
    struct entry *e;

    *ret_done = false;
    if (rc == STATUS_OK)
        rc = repository_scan(r, err);
    if (rc != STATUS_OK)
        return rc;
    e = repository_find(r, name);
    if (e == NULL)
        return not_known(r, name, err);
    switch (e->state) {
    case ENTRY_READY:
        *ret_done = true;
        return STATUS_OK;
    case ENTRY_UNLOADING:
        (void)error_set(err, STATUS_UNAVAILABLE, "model '%s' is being unloaded", name);
        err->retry_after_ms = RETRY_MS;
        return err->status;
    case ENTRY_UNLOADED:
        rc = start(r, e, err);
        break;
    case ENTRY_LOADING:
        break;
    }
    if (rc == STATUS_OK)
        list_push(&e->waits, &w->link);
    return rc;
}

/* --- unloading --- */

static bool is_quiet(const struct model *m)
{
    return m->statistics.n_open == 0;
}

/* Goes on with an unload as far as it can. */
static void go_on(struct repository *r, struct entry *e)
{
    struct daemon *d = r->daemon;
    struct model *m = e->model;

    if (!e->is_stopping) {
        if (!is_quiet(m) && env_now_us(&d->env) < e->drain_until_us)
            return;
        e->is_stopping = true;
        conversations_close_all(&d->conversations, m, "its model was unloaded");
        sessions_close_all(&d->sessions, m);
    }
    if (!is_quiet(m) || m->n_conversations > 0 || m->n_holders > 0)
        return;
    take_out(d, m);
    model_stop(m, on_stopped, e);
}

/* Still among the daemon's models, and on its way out. */
static bool is_leaving(const struct entry *e)
{
    return e->state == ENTRY_UNLOADING && e->model->state == MODEL_DRAINING;
}

static void on_look(uv_timer_t *timer)
{
    struct repository *r = timer->data;
    bool is_done = true;

    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l)) {
        struct entry *e = container_of(l, struct entry, link);

        if (is_leaving(e))
            go_on(r, e);
        if (is_leaving(e))
            is_done = false;
    }
    if (is_done)
        (void)uv_timer_stop(timer); /* cannot fail */
}

/* Those who watch what it does would be left with nothing. */
static enum status check_watched(const struct daemon *d, const struct model *m, struct error *err)
{
    struct link *l;

    for (l = list_first(&d->trainers.trainings); l != NULL;
         l = list_next(&d->trainers.trainings, l))
        if (container_of(l, struct training, link)->model == m)
            return error_set(err, STATUS_PRECONDITION, "model '%s' is being trained", m->name);
    for (l = list_first(&d->trainers.observers); l != NULL;
         l = list_next(&d->trainers.observers, l))
        if (container_of(l, struct observer, link)->model == m)
            return error_set(err, STATUS_PRECONDITION, "observers are attached to model '%s'",
                             m->name);
    return STATUS_OK;
}

enum status repository_unload(struct repository *r, const char *name, struct repository_wait *w,
                              bool *ret_done, struct error *err)
{
    struct daemon *d = r->daemon;
    struct entry *e = repository_find(r, name);
    enum status rc = check_serving(d, err);

    *ret_done = false;
    if (rc != STATUS_OK)
        return rc;
    if (e == NULL)
        return not_known(r, name, err);
    switch (e->state) {
    case ENTRY_UNLOADED:
        *ret_done = true;
        return STATUS_OK;
    case ENTRY_LOADING:
        (void)error_set(err, STATUS_UNAVAILABLE, "model '%s' is being loaded", name);
        err->retry_after_ms = RETRY_MS;
        return err->status;
    case ENTRY_READY:
        rc = check_watched(d, e->model, err);
        if (rc != STATUS_OK)
            return rc;
        entry_move(e, ENTRY_UNLOADING);
        e->is_stopping = false;
        e->drain_until_us = env_now_us(&d->env) + d->config.drain_timeout_ms * 1000;
        model_drain(e->model);
        health_set(&d->health, e->name, HEALTH_NOT_SERVING);
        sequences_retire(&d->sequences, e->model);
        (void)uv_timer_start(&r->timer, on_look, 0, LOOK_MS); /* fails only when closing */
        break;
    case ENTRY_UNLOADING:
        break;
    }
    list_push(&e->waits, &w->link);
    return STATUS_OK;
}

void repository_end(struct repository *r)
{
    struct error err;

    (void)uv_timer_stop(&r->timer); /* cannot fail */
    (void)error_set(&err, STATUS_UNAVAILABLE, "the server is stopping");
    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l))
        tell(container_of(l, struct entry, link), &err);
}
