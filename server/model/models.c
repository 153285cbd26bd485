/* Load: an entry's model is started, and is among the loaded ones from then on; on_loaded makes it
 * READY, or removes it.
 *
 * Unload: the model drains (it takes nothing new), and its users retire. When nothing of it is in
 * flight, or at the time-out, they close their objects. When no user is busy the model is removed
 * from the loaded ones and stopped; then its entry is UNLOADED. The last step is not reported as
 * such, so a timer polls.
 *
 * With a bound on memory a load may need room: idle models are unloaded, least recently used first,
 * and the load begins when they are gone (models_go_on). Files are measured before the first load;
 * a model that then takes more than there is room for is unloaded again, with that error.
 *
 * models_stop stops all loaded models; removed ones are stopping already. It also stops a model
 * whose load failed after models_end. */
#include "server/model/models.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/name.h"
#include "base/shard_name.h"
#include "server/model/budget.h"

enum { LOOK_MS = 10, NAME_MAX_BYTES = 63, RETRY_MS = 100 };

static const uint32_t model_entry_moves[] = {
    [MODEL_ENTRY_UNLOADED] = 1u << MODEL_ENTRY_LOADING,
    [MODEL_ENTRY_LOADING] = 1u << MODEL_ENTRY_READY | 1u << MODEL_ENTRY_UNLOADED,
    [MODEL_ENTRY_READY] = 1u << MODEL_ENTRY_UNLOADING,
    [MODEL_ENTRY_UNLOADING] = 1u << MODEL_ENTRY_UNLOADED,
};

static void model_entry_move(struct model_entry *e, enum model_entry_state to)
{
    assert((model_entry_moves[e->state] & 1u << to) != 0);
    e->state = to;
}

void models_init(struct models *r, const struct models_config *config)
{
    *r = (struct models){.config = *config};
    list_init(&r->entries);
    list_init(&r->users);
    list_init(&r->light_steps);
    list_init(&r->pulls);
    r->config.model.light_steps = &r->light_steps;
    r->config.model.compiler = &r->compiler;
}

void models_open(struct models *r)
{
    (void)uv_timer_init(r->config.loop, &r->timer); /* cannot fail */
    r->timer.data = r;
    compiler_init(&r->compiler, r->config.loop);
}

void models_close(struct models *r)
{
    uv_close((uv_handle_t *)&r->timer, NULL);
    compiler_close(&r->compiler);
}

void models_add_user(struct models *r, struct model_user *u)
{
    list_push(&r->users, &u->link);
}

static struct model_user *user_of(struct link *l)
{
    return l == NULL ? NULL : container_of(l, struct model_user, link);
}

static struct model_user *first_user(const struct models *r)
{
    return user_of(list_first(&r->users));
}

static struct model_user *next_user(const struct models *r, const struct model_user *u)
{
    return user_of(list_next(&r->users, &u->link));
}

void models_tell_ready(const struct models *r, const struct model *m)
{
    struct error ignored;
    struct model_user *u;

    if (model_check_ready(m, &ignored) != STATUS_OK)
        return;
    for (u = first_user(r); u != NULL; u = next_user(r, u))
        if (u->ready != NULL)
            u->ready(u, m);
}

static bool is_busy(const struct models *r, const struct model *m)
{
    const struct model_user *u;

    for (u = first_user(r); u != NULL; u = next_user(r, u))
        if (u->is_busy != NULL && u->is_busy(u, m))
            return true;
    return false;
}

static void model_entry_free(struct models *r, struct model_entry *e)
{
    assert(list_is_empty(&e->waits) && list_is_empty(&e->wants));
    list_remove(&e->link);
    r->n_entries--;
    free(e->name);
    free(e->path);
    free(e->next_path);
    free(e);
}

void models_deinit(void *models)
{
    struct models *r = models;
    struct link *l;

    while ((l = list_first(&r->entries)) != NULL)
        model_entry_free(r, container_of(l, struct model_entry, link));
}

struct model_entry *models_find(const struct models *r, const char *name)
{
    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l)) {
        struct model_entry *e = container_of(l, struct model_entry, link);

        if (strcmp(e->name, name) == 0)
            return e;
    }
    return NULL;
}

/* Notes the use of a model; returns its name, also of the default. */
static const char *models_note_use(const struct models *r, const char *name)
{
    struct link *first = list_first(&r->entries);
    struct model_entry *e = name[0] != '\0' ? models_find(r, name)
                            : first == NULL ? NULL
                                            : container_of(first, struct model_entry, link);

    if (e == NULL)
        return name;
    e->used_us = env_now_us(r->config.env);
    return e->name;
}

enum status models_get(struct model **out, const struct models *r, const char *name,
                       struct error *err)
{
    char names[160] = "";
    const struct model_entry *e;
    size_t len = 0;

    if (r->config.memory_bytes != 0)
        name = models_note_use(r, name);
    if (name[0] == '\0' && r->n_loaded > 0) {
        *out = r->loaded[0];
        return STATUS_OK;
    }
    for (size_t i = 0; i < r->n_loaded; i++) {
        const char *served = r->loaded[i]->name;

        if (strcmp(served, name) == 0) {
            *out = r->loaded[i];
            return STATUS_OK;
        }
        if (len + strlen(served) + 3 < sizeof(names))
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", i > 0 ? ", " : "",
                                    served);
    }
    e = models_find(r, name);
    if (e != NULL) {
        (void)error_because(err, STATUS_UNAVAILABLE, REASON_MODEL_NOT_READY, "model",
                            "model '%s' is not loaded; there are: %s", name, names);
        if (r->config.memory_bytes != 0 && !e->is_kept_out)
            err->retry_after_ms = RETRY_MS;
        return err->status;
    }
    return error_because(err, STATUS_NOT_FOUND, REASON_MODEL_NOT_FOUND, "model",
                         "there is no model '%.40s', there are: %s", name, names);
}

static struct model_entry *make_known(struct models *r, const char *name, const char *path)
{
    struct model_entry *e = xalloc(sizeof(*e));

    e->models = r;
    e->name = xstrdup(name);
    e->path = path == NULL ? NULL : xstrdup(path);
    list_init(&e->waits);
    list_init(&e->wants);
    list_push(&r->entries, &e->link);
    r->n_entries++;
    return e;
}

/* --- waiters --- */

static void models_tell_all(struct list *all, const struct error *err)
{
    struct list waits;
    struct link *l;

    list_init(&waits);
    list_move(all, &waits);
    while ((l = list_pop(&waits)) != NULL) {
        struct models_wait *w = container_of(l, struct models_wait, link);

        w->done(w, err);
    }
}

static void models_tell(struct model_entry *e, const struct error *err)
{
    models_tell_all(&e->waits, err);
}

void models_leave(struct models_wait *w)
{
    if (link_is_on(&w->link))
        list_remove(&w->link);
}

/* --- the folder --- */

static bool is_model_name(const char *text, size_t len)
{
    return name_is_valid(text, len, NAME_MAX_BYTES, NAME_MARKS) && text[0] != '.';
}

enum status models_add_type(struct models *r, const char *name, const struct agent_type *type,
                            const void *spec, struct error *err)
{
    struct model_entry *e = models_find(r, name);

    if (e != NULL && e->type != type)
        return error_because(err, STATUS_EXISTS, REASON_NONE, "name",
                             "there is another model '%s' already", e->name);
    if (e != NULL)
        return STATUS_OK;
    if (!is_model_name(name, strlen(name)))
        return error_field(err, "name", "has 1 to %d letters, digits, '.', '_' and '-'",
                           NAME_MAX_BYTES);
    if (r->n_entries == MODELS_MAX_KNOWN)
        return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                             "%d models are known already", MODELS_MAX_KNOWN);
    e = make_known(r, name, NULL);
    e->type = type;
    e->spec = spec;
    return STATUS_OK;
}

enum status models_add_path(struct models *r, const char *name, const char *path, struct error *err)
{
    struct model_entry *e = models_find(r, name);

    if (e != NULL && !e->is_from_dir)
        return error_because(err, STATUS_EXISTS, REASON_NONE, "model",
                             "there is another model '%s' already", name);
    if (e == NULL && r->n_entries == MODELS_MAX_KNOWN)
        return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                             "%d models are known already", MODELS_MAX_KNOWN);
    if (e == NULL)
        e = make_known(r, name, path);
    e->is_from_dir = true;
    if (strcmp(e->path, path) == 0)
        return STATUS_OK;
    free(e->path); /* of a loaded one it is read when it is loaded again */
    e->path = xstrdup(path);
    e->bytes = 0;
    return STATUS_OK;
}

/* The length of the name in NAME.gguf, in NAME-00001-of-00003.gguf, a split model's first file, and
 * of a folder. 0 for other files. */
static size_t name_len(const char *file, bool is_folder)
{
    size_t len = strlen(file);
    struct shard_name shard;

    if (!is_folder && (len < 6 || strcmp(file + len - 5, ".gguf") != 0))
        return 0;
    len -= is_folder ? 0 : 5;
    if (shard_name_parse(&shard, file, ".gguf"))
        len = shard.number == 1 ? shard.prefix_len : 0;
    return is_model_name(file, len) ? len : 0;
}

/* Whether the entry of the folder is a file, or a folder with safetensors; writes its path. */
static bool is_model(char *path, size_t size, const char *dir, const char *file, bool *ret_folder)
{
    char config[4096 + 16];
    struct stat st;

    if ((size_t)snprintf(path, size, "%s/%s", dir, file) >= size || stat(path, &st) != 0)
        return false;
    (void)snprintf(config, sizeof(config), "%s/config.json", path);
    *ret_folder = S_ISDIR(st.st_mode);
    return S_ISREG(st.st_mode) || (*ret_folder && access(config, F_OK) == 0);
}

static void models_take_file(struct models *r, const char *dir, const char *file)
{
    char name[NAME_MAX_BYTES + 1], path[4096];
    bool is_folder;
    size_t len;

    if (r->n_entries == MODELS_MAX_KNOWN || !is_model(path, sizeof(path), dir, file, &is_folder))
        return;
    len = name_len(file, is_folder);
    if (len == 0)
        return;
    memcpy(name, file, len);
    name[len] = '\0';
    if (models_find(r, name) == NULL)
        make_known(r, name, path)->is_from_dir = true;
}

static void forget_missing(struct models *r)
{
    struct link *l, *next;
    struct stat st;

    for (l = list_first(&r->entries); l != NULL; l = next) {
        struct model_entry *e = container_of(l, struct model_entry, link);

        next = list_next(&r->entries, l);
        if (e->is_from_dir && e->state == MODEL_ENTRY_UNLOADED && stat(e->path, &st) != 0)
            model_entry_free(r, e);
    }
}

enum status models_scan(struct models *r, struct error *err)
{
    const char *path = r->config.model_dir;
    struct dirent *file;
    DIR *dir;

    if (path == NULL)
        return STATUS_OK;
    dir = opendir(path);
    if (dir == NULL)
        return error_set(err, STATUS_UNAVAILABLE, "cannot read the folder %.100s: %s", path,
                         strerror(errno));
    forget_missing(r);
    while ((file = readdir(dir)) != NULL)
        models_take_file(r, path, file->d_name);
    (void)closedir(dir); /* only read */
    return STATUS_OK;
}

/* --- loading --- */

/* The index among the loaded ones, which have the order of the entries: the first is the
 * default. */
static size_t models_place_of(const struct models *r, const struct model_entry *e)
{
    size_t at = 0;

    for (struct link *l = list_first(&r->entries); l != &e->link; l = list_next(&r->entries, l)) {
        const struct model *m = container_of(l, struct model_entry, link)->model;

        for (size_t i = 0; i < r->n_loaded; i++)
            if (m != NULL && r->loaded[i] == m)
                at++;
    }
    return at;
}

static void models_take_out(struct models *r, const struct model *m)
{
    size_t at = 0;

    while (r->loaded[at] != m)
        at++;
    r->n_loaded--;
    memmove(r->loaded + at, r->loaded + at + 1, (r->n_loaded - at) * sizeof(r->loaded[0]));
}

static void model_entry_settle(struct model_entry *e);
static void models_go_on(struct models *r);

static void on_stopped(void *arg)
{
    struct model_entry *e = arg;
    struct models *r = e->models;

    e->model = NULL;
    model_entry_move(e, MODEL_ENTRY_UNLOADED);
    log_info("unloaded", "model=%s", e->name);
    models_tell(e, &e->why);
    r->n_running--;
    model_entry_settle(e); /* may free e */
    models_go_on(r);
    r->config.on_idle(r->config.arg);
}

/* Removes a model after a failed load, and notifies the waiters. */
static void models_drop(struct model_entry *e)
{
    e->why = e->model->err;
    log_warn("load", "model=%s error=\"%s\"", e->name, e->why.text);
    models_take_out(e->models, e->model);
    model_stop(e->model, on_stopped, e);
}

static bool models_keep(struct models *r, struct model_entry *e);

static void on_loaded(struct model *m, void *arg)
{
    struct model_entry *e = arg;
    struct models *r = e->models;

    r->n_loading--;
    if (m->state == MODEL_READY && !r->has_ended) {
        model_entry_move(e, MODEL_ENTRY_READY);
        e->bytes = m->info.weight_bytes + m->info.cache.pages * m->info.cache.page_bytes;
        e->used_us = env_now_us(r->config.env);
        if (m->info.cache.disk_unread > 0)
            log_warn("--kv-disk", "model=%s unreadable_files=%zu error=\"%s\"", e->name,
                     m->info.cache.disk_unread, m->info.cache.disk_unread_why);
        models_tell_ready(r, m);
        if (models_keep(r, e))
            models_tell(e, &e->why);
    }
    if (m->state != MODEL_DRAINING)
        r->config.on_change(r->config.arg, m); /* after a failure it may end the daemon */
    if (m->state == MODEL_FAILED && !r->has_ended)
        models_drop(e);
    r->config.on_idle(r->config.arg);
}

static enum status models_start_entry(struct models *r, struct model_entry *e, struct error *err)
{
    struct model_config config = r->config.model;
    size_t at = models_place_of(r, e);

    if (r->n_loaded == MODELS_MAX_LOADED)
        return error_because(err, STATUS_EXHAUSTED, REASON_LIMIT_REACHED, NULL,
                             "%d models are loaded already", MODELS_MAX_LOADED);
    config.name = e->name;
    config.path = e->path;
    config.type = e->type;
    config.spec = e->spec;
    if (model_start(&e->model, r->config.loop, &config, on_loaded, e, err) != STATUS_OK)
        return err->status;
    e->model->is_vacant = e->spec != NULL; /* until a worker joins */
    r->n_running++;
    r->n_loading++;
    model_entry_move(e, MODEL_ENTRY_LOADING);
    e->why = (struct error){0};
    memmove(r->loaded + at + 1, r->loaded + at, (r->n_loaded - at) * sizeof(r->loaded[0]));
    r->loaded[at] = e->model;
    r->n_loaded++;
    r->config.on_change(r->config.arg, e->model);
    return STATUS_OK;
}

enum status models_start(struct models *r, const char *name, const char *path,
                         const struct agent_type *type, struct error *err)
{
    struct model_entry *e = make_known(r, name, path);
    uint64_t memory_bytes = r->config.memory_bytes, n_bytes;

    e->type = type;
    n_bytes = budget_of(r, e);
    if (memory_bytes != 0 && n_bytes <= memory_bytes && budget_used(r) + n_bytes > memory_bytes) {
        log_info("not loaded", "model=%s reason=\"--memory is full; a request loads it\"", name);
        return STATUS_OK;
    }
    if (memory_bytes != 0 && n_bytes > memory_bytes)
        return error_set(err, STATUS_INVALID,
                         "model '%s' takes about %" PRIu64 " MiB of weights and pages, --memory is "
                         "%" PRIu64 " MiB",
                         name, n_bytes >> 20, memory_bytes >> 20);
    return models_start_entry(r, e, err);
}

static enum status not_known(const struct models *r, const char *name, struct error *err)
{
    return error_because(
        err, STATUS_NOT_FOUND, REASON_MODEL_NOT_FOUND, "name",
        r->config.model_dir != NULL
            ? "there is no model '%.60s', neither among those the daemon was started "
              "with nor in its --model-dir"
            : "there is no model '%.60s' among those the daemon was started with, and "
              "it has no --model-dir",
        name);
}

static enum status models_begin_load(struct models *r, struct model_entry *e, struct error *err);

enum status models_load(struct models *r, const char *name, struct models_wait *w, bool *ret_done,
                        struct error *err)
{
    enum status rc = r->config.check_serving(r->config.arg, err);
    struct model_entry *e;

    *ret_done = false;
    if (rc == STATUS_OK)
        rc = models_scan(r, err);
    if (rc != STATUS_OK)
        return rc;
    e = models_find(r, name);
    if (e == NULL)
        return not_known(r, name, err);
    switch (e->state) {
    case MODEL_ENTRY_READY:
        *ret_done = true;
        return STATUS_OK;
    case MODEL_ENTRY_UNLOADING:
        (void)error_because(err, STATUS_UNAVAILABLE, REASON_MODEL_NOT_READY, "name",
                            "model '%s' is being unloaded", name);
        err->retry_after_ms = RETRY_MS;
        return err->status;
    case MODEL_ENTRY_UNLOADED:
        e->is_kept_out = false;
        rc = models_begin_load(r, e, err);
        break;
    case MODEL_ENTRY_LOADING:
        break;
    }
    if (rc == STATUS_OK)
        list_push(e->state == MODEL_ENTRY_LOADING ? &e->waits : &e->wants, &w->link);
    return rc;
}

enum status models_want(struct models *r, const char *name, struct models_wait *w, bool *ret_done,
                        struct error *err)
{
    struct error ignored;
    struct model_entry *e;

    *ret_done = true;
    if (r->config.memory_bytes == 0 ||
        r->config.check_serving(r->config.arg, &ignored) != STATUS_OK)
        return STATUS_OK;
    e = models_find(r, models_note_use(r, name));
    if (e == NULL || e->is_kept_out || e->state == MODEL_ENTRY_READY)
        return STATUS_OK;
    *ret_done = false;
    if (e->state == MODEL_ENTRY_UNLOADED && models_begin_load(r, e, err) != STATUS_OK)
        return err->status;
    list_push(e->state == MODEL_ENTRY_LOADING ? &e->waits : &e->wants, &w->link);
    return STATUS_OK;
}

static void on_own_wait(struct models_wait *w, const struct error *err)
{
}

void models_request(struct models *r, const char *name)
{
    struct model_entry *e = models_find(r, models_note_use(r, name));
    struct error err;
    bool is_done;

    if (r->config.memory_bytes == 0 || e == NULL || link_is_on(&e->own.link))
        return;
    e->own.done = on_own_wait;
    if (models_want(r, name, &e->own, &is_done, &err) != STATUS_OK)
        log_info("not loaded", "model=%s error=\"%s\"", e->name, err.text);
}

/* --- unloading --- */

static bool model_is_idle(const struct model *m)
{
    return m->statistics.n_open == 0;
}

/* Advances an unload as far as possible. */
static void models_advance(struct models *r, struct model_entry *e)
{
    struct model *m = e->model;
    struct model_user *u;

    if (!e->is_stopping) {
        if (!model_is_idle(m) && env_now_us(r->config.env) < e->drain_until_us)
            return;
        e->is_stopping = true;
        for (u = first_user(r); u != NULL; u = next_user(r, u))
            if (u->close != NULL)
                u->close(u, m);
        model_abort(m);
    }
    if (!model_is_idle(m) || m->n_holders > 0 || is_busy(r, m))
        return;
    models_take_out(r, m);
    model_stop(m, on_stopped, e);
}

/* Draining, and still among the loaded ones. */
static bool is_leaving(const struct model_entry *e)
{
    return e->state == MODEL_ENTRY_UNLOADING && e->model->state == MODEL_DRAINING;
}

static void on_look(uv_timer_t *timer)
{
    struct models *r = timer->data;
    bool is_done = true;

    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l)) {
        struct model_entry *e = container_of(l, struct model_entry, link);

        if (is_leaving(e))
            models_advance(r, e);
        if (is_leaving(e))
            is_done = false;
    }
    if (is_done)
        (void)uv_timer_stop(timer); /* cannot fail */
}

/* From now on the model takes nothing new. */
static void begin_unload(struct models *r, struct model_entry *e)
{
    struct model_user *u;

    model_entry_move(e, MODEL_ENTRY_UNLOADING);
    e->is_stopping = false;
    e->drain_until_us = env_now_us(r->config.env) + r->config.drain_timeout_ms * 1000;
    model_drain(e->model);
    r->config.on_change(r->config.arg, e->model);
    for (u = first_user(r); u != NULL; u = next_user(r, u))
        if (u->retire != NULL)
            u->retire(u, e->model);
    (void)uv_timer_start(&r->timer, on_look, 0, LOOK_MS); /* fails only when closing */
}

static enum status check_unload(const struct models *r, const struct model *m, struct error *err)
{
    const struct model_user *u;
    enum status rc = STATUS_OK;

    for (u = first_user(r); u != NULL && rc == STATUS_OK; u = next_user(r, u))
        if (u->refuse_unload != NULL)
            rc = u->refuse_unload(u, m, err);
    return rc;
}

/* --- room --- */

static bool may_go(const struct models *r, const struct model_entry *e)
{
    struct error ignored;

    return model_is_idle(e->model) && e->model->n_holders == 0 && !is_busy(r, e->model) &&
           check_unload(r, e->model, &ignored) == STATUS_OK;
}

static void models_evict(struct models *r, struct model_entry *const *victims, size_t n,
                         const struct model_entry *of)
{
    for (size_t i = 0; i < n; i++) {
        log_info("evicted", "model=%s for=%s", victims[i]->name, of->name);
        r->n_evicted++;
        begin_unload(r, victims[i]);
    }
}

/* Starts the load of an unloaded model, or unloads others for it: then it stays UNLOADED until they
 * are gone. */
static enum status models_begin_load(struct models *r, struct model_entry *e, struct error *err)
{
    struct model_entry *victims[MODELS_MAX_LOADED];
    uint64_t n_bytes = budget_of(r, e);
    size_t n = 0;
    enum status rc = budget_make_room(victims, &n, r, e, n_bytes, may_go, err);

    if (rc != STATUS_OK)
        return rc;
    models_evict(r, victims, n, e);
    if (r->config.memory_bytes != 0 && budget_used(r) + n_bytes > r->config.memory_bytes)
        return STATUS_OK;
    rc = models_start_entry(r, e, err);
    if (rc == STATUS_OK)
        list_move(&e->wants, &e->waits);
    return rc;
}

/* A model has gone: loads that wait for its room, or for itself. */
static void models_go_on(struct models *r)
{
    struct error err;

    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l)) {
        struct model_entry *e = container_of(l, struct model_entry, link);

        if (e->state == MODEL_ENTRY_UNLOADED && !list_is_empty(&e->wants) && !r->has_ended &&
            models_begin_load(r, e, &err) != STATUS_OK)
            models_tell_all(&e->wants, &err);
    }
}

/* A model that is loaded is measured: if there is no room for it, others go, or else it does. */
static bool models_keep(struct models *r, struct model_entry *e)
{
    struct model_entry *victims[MODELS_MAX_LOADED];
    size_t n = 0;

    if (budget_make_room(victims, &n, r, e, e->bytes, may_go, &e->why) == STATUS_OK) {
        e->why = (struct error){0};
        models_evict(r, victims, n, e);
        return true;
    }
    log_warn("load", "model=%s error=\"%s\"", e->name, e->why.text);
    begin_unload(r, e);
    return false;
}

enum status models_unload(struct models *r, const char *name, struct models_wait *w, bool *ret_done,
                          struct error *err)
{
    struct model_entry *e = models_find(r, name);
    enum status rc = r->config.check_serving(r->config.arg, err);

    *ret_done = false;
    if (rc != STATUS_OK)
        return rc;
    if (e == NULL)
        return not_known(r, name, err);
    switch (e->state) {
    case MODEL_ENTRY_UNLOADED:
        e->is_kept_out = true;
        *ret_done = true;
        return STATUS_OK;
    case MODEL_ENTRY_LOADING:
        (void)error_because(err, STATUS_UNAVAILABLE, REASON_MODEL_NOT_READY, "name",
                            "model '%s' is being loaded", name);
        err->retry_after_ms = RETRY_MS;
        return err->status;
    case MODEL_ENTRY_READY:
        rc = check_unload(r, e->model, err);
        if (rc != STATUS_OK)
            return rc;
        e->is_kept_out = true;
        begin_unload(r, e);
        break;
    case MODEL_ENTRY_UNLOADING:
        break;
    }
    list_push(&e->waits, &w->link);
    return STATUS_OK;
}

bool models_release(struct models *r, const char *name)
{
    struct model_entry *e = models_find(r, name);

    if (r->has_ended || r->config.memory_bytes == 0 || e == NULL || e->state != MODEL_ENTRY_READY ||
        !may_go(r, e))
        return false;
    log_info("released", "model=%s", e->name);
    begin_unload(r, e);
    return true;
}

/* --- another configuration --- */

/* An unloaded entry that the configuration has changed goes, or is loaded from its new path. */
static void model_entry_settle(struct model_entry *e)
{
    struct error err;

    if (e->models->has_ended)
        return;
    if (e->is_forgotten) {
        (void)not_known(e->models, e->name, &err);
        models_tell_all(&e->wants, &err);
        model_entry_free(e->models, e);
        return;
    }
    if (e->next_path == NULL)
        return;
    free(e->path);
    e->path = e->next_path;
    e->next_path = NULL;
    e->bytes = 0;
    if (models_begin_load(e->models, e, &err) == STATUS_OK)
        return;
    models_tell_all(&e->wants, &err);
    log_warn("load", "model=%s error=\"%s\"", e->name, err.text);
}

static const struct models_wanted *find_wanted(const struct model_entry *e,
                                               const struct models_wanted *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(wanted[i].name, e->name) == 0)
            return &wanted[i];
    return NULL;
}

/* The model that is loaded now, or will be, is to be another. */
static bool model_entry_must_go(const struct model_entry *e, const struct models_wanted *to)
{
    const char *path = e->next_path != NULL ? e->next_path : e->path;

    if (e->path == NULL || e->type != NULL || (to == NULL && (e->is_from_dir || e->is_forgotten)))
        return false;
    return to == NULL || strcmp(path, to->path) != 0;
}

enum status models_check(const struct models *r, const struct models_wanted *wanted, size_t n,
                         struct error *err)
{
    size_t n_new = 0;

    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l)) {
        const struct model_entry *e = container_of(l, struct model_entry, link);

        if (!model_entry_must_go(e, find_wanted(e, wanted, n)))
            continue;
        if (e->state == MODEL_ENTRY_LOADING)
            return error_set(err, STATUS_UNAVAILABLE, "model '%s' is being loaded", e->name);
        if (e->state == MODEL_ENTRY_READY && check_unload(r, e->model, err) != STATUS_OK)
            return err->status;
    }
    for (size_t i = 0; i < n; i++)
        n_new += models_find(r, wanted[i].name) == NULL;
    if (n_new > MODELS_MAX_LOADED - r->n_loaded)
        return error_set(err, STATUS_EXHAUSTED, "at most %d models are loaded", MODELS_MAX_LOADED);
    return STATUS_OK;
}

static void model_entry_change(struct model_entry *e, const struct models_wanted *to)
{
    free(e->next_path);
    e->next_path = to != NULL ? xstrdup(to->path) : NULL;
    e->is_forgotten = to == NULL;
    if (e->state == MODEL_ENTRY_READY)
        begin_unload(e->models, e);
    else if (e->state == MODEL_ENTRY_UNLOADED)
        model_entry_settle(e);
}

static void models_add(struct models *r, const struct models_wanted *one)
{
    struct error err;

    if (models_start(r, one->name, one->path, NULL, &err) != STATUS_OK)
        log_warn("load", "model=%s error=\"%s\"", one->name, err.text);
}

void models_configure(struct models *r, const struct models_wanted *wanted, size_t n)
{
    struct link *l, *next;

    for (l = list_first(&r->entries); l != NULL; l = next) {
        struct model_entry *e = container_of(l, struct model_entry, link);
        const struct models_wanted *to = find_wanted(e, wanted, n);

        next = list_next(&r->entries, l);
        if (to != NULL && e->is_forgotten) /* it still unloads: load it afterwards */
            e->next_path = xstrdup("");
        if (to != NULL)
            e->is_from_dir = e->is_forgotten = false;
        if (model_entry_must_go(e, to))
            model_entry_change(e, to);
    }
    for (size_t i = 0; i < n; i++)
        if (models_find(r, wanted[i].name) == NULL)
            models_add(r, &wanted[i]);
}

void models_end(void *models)
{
    struct models *r = models;
    struct error err;

    r->has_ended = true;
    (void)uv_timer_stop(&r->timer); /* cannot fail */
    (void)error_draining(&err);
    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l)) {
        models_tell(container_of(l, struct model_entry, link), &err);
        models_tell_all(&container_of(l, struct model_entry, link)->wants, &err);
    }
}

/* The entry keeps its state: nothing reads it any more. */
static void on_ended(void *arg)
{
    struct models *r = arg;

    r->n_running--;
    r->config.on_idle(r->config.arg);
}

bool models_stop(struct models *r)
{
    assert(r->has_ended && r->n_loading == 0);
    for (size_t i = 0; i < r->n_loaded && !r->is_stopping; i++) {
        assert(!is_busy(r, r->loaded[i]));
        model_stop(r->loaded[i], on_ended, r);
    }
    r->is_stopping = true;
    return r->n_running == 0;
}

void models_reweigh(struct models *r)
{
    for (struct link *l = list_first(&r->entries); l != NULL; l = list_next(&r->entries, l)) {
        struct model_entry *e = container_of(l, struct model_entry, link);

        if (e->model != NULL)
            tenants_reweigh(&e->model->tenants);
    }
}
