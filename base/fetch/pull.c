/* The stages follow each other: the list, then for each chosen file its lock, its download and its
 * link, then refs/main. pull_end is the one end, and waits until the loop has closed the handles.
 */
#include "base/fetch/pull.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/fetch/download.h"
#include "base/fetch/hub_cache.h"
#include "base/fetch/hub_cache_write.h"
#include "base/fetch/hub_files.h"
#include "base/fetch/hub_list.h"
#include "base/fetch/hub_path.h"
#include "base/fetch/retry.h"
#include "base/fetch/transfers.h"

/* The list is read on the loop. */
enum { LIST_MAX_BYTES = 8 << 20, LOCK_LOOK_MS = 200, MAX_FILES = 1000 };

struct pull {
    struct pull_config config;
    char *endpoint, *token, *folder; /* token may be NULL */
    struct transfers *transfers;
    uv_timer_t timer; /* the next try: of the list, or of a lock */
    struct fetch_retry retry;

    struct web_transfer *listing; /* NULL: none */
    struct buf list;
    bool is_list_too_long;
    struct hub_files files;
    char commit[HUB_COMMIT_CHARS + 1];

    size_t next;               /* of files, that was not looked at */
    struct hub_file *file;     /* that is fetched */
    char *url;                 /* of the file */
    int lock;                  /* its lock's descriptor; -1: none */
    struct download *download; /* NULL: none */

    struct pull_progress now;
    uint64_t others_done; /* of now.all_done, without the file's */
    bool is_cancelled;    /* no further file is begun */
    bool is_ending;
    struct error why;
};

static void pull_next_file(struct pull *p);

static void pull_tell(struct pull *p, enum pull_stage stage)
{
    p->now.stage = stage;
    p->now.file = p->file == NULL ? NULL : p->file->name;
    p->now.etag = p->file == NULL ? NULL : p->file->etag;
    p->now.all_done = p->others_done + (p->file == NULL ? 0 : p->now.file_done);
    p->config.progress(p->config.arg, &p->now);
}

/* --- the end --- */

static void on_pull_closed(uv_handle_t *handle)
{
    struct pull *p = handle->data;
    struct pull_config config = p->config;
    struct error why = p->why;
    char *path = NULL;

    if (why.status == STATUS_OK && hub_cache_find(&path, &p->config.name, &why) != STATUS_OK)
        path = NULL; /* another program has changed the cache meanwhile; why says it */
    if (p->lock >= 0)
        (void)close(p->lock); /* which unlocks it */
    hub_files_deinit(&p->files);
    buf_deinit(&p->list);
    free(p->endpoint);
    free(p->token);
    free(p->folder);
    free(p->url);
    free(p);
    config.done(config.arg, path, &why);
    free(path);
}

static void pull_end(struct pull *p)
{
    if (p->is_ending)
        return;
    assert(p->listing == NULL && p->download == NULL);
    p->is_ending = true;
    transfers_close(p->transfers);
    uv_close((uv_handle_t *)&p->timer, on_pull_closed);
}

static void pull_fail(struct pull *p, const struct error *err)
{
    p->why = *err;
    (void)error_prefix(&p->why, "hf:%.60s/%.80s", p->config.name.owner, p->config.name.repo);
    pull_end(p);
}

static void pull_end_cancelled(struct pull *p)
{
    struct error err;

    (void)error_set(&err, STATUS_CANCELLED, "interrupted; the next pull goes on from there");
    pull_fail(p, &err);
}

/* --- files --- */

static void pull_file_is_there(struct pull *p)
{
    p->others_done += p->file->size_bytes;
    p->now.n_files_done++;
    p->file = NULL;
    if (p->lock >= 0)
        (void)close(p->lock); /* which unlocks it */
    p->lock = -1;
    pull_next_file(p);
}

static bool pull_has_file(const struct pull *p)
{
    return hub_cache_has_file(p->folder, p->commit, p->file->name, p->file->size_bytes);
}

static void pull_link(struct pull *p)
{
    struct error err = {0};

    /* On a disk without links another program may have moved the blob there meanwhile. */
    if (hub_cache_link(p->folder, p->commit, p->file->name, p->file->etag, &err) == STATUS_OK ||
        pull_has_file(p))
        pull_file_is_there(p);
    else
        pull_fail(p, &err);
}

static void on_file_progress(void *arg, uint64_t n_bytes)
{
    struct pull *p = arg;

    p->now.file_done = n_bytes;
    pull_tell(p, PULL_FETCHING);
}

static void on_file_checking(void *arg)
{
    pull_tell(arg, PULL_CHECKING);
}

static void on_file_done(void *arg, const struct error *err)
{
    struct pull *p = arg;
    struct error why = *err;

    p->download = NULL;
    if (err->status == STATUS_OK) {
        pull_link(p);
        return;
    }
    if (err->status != STATUS_CANCELLED)
        (void)error_prefix(&why, "%.80s", p->file->name);
    pull_fail(p, &why);
}

static void pull_begin_file(struct pull *p, struct error *err)
{
    const struct download_config config = {
        .loop = p->config.loop,
        .transfers = p->transfers,
        .url = p->url,
        .token = p->token,
        .folder = p->folder,
        .etag = p->file->etag,
        .size_bytes = p->file->size_bytes,
        .n_connections = p->config.n_connections,
        .progress = on_file_progress,
        .checking = on_file_checking,
        .done = on_file_done,
        .arg = p,
    };

    if (download_start(&p->download, &config, err) != STATUS_OK)
        pull_fail(p, err);
}

static void on_lock_timer(uv_timer_t *timer);

/* Another program may fetch the file: then it is there once the lock is free. */
static void pull_lock_file(struct pull *p)
{
    struct error err = {0};
    enum status rc = STATUS_OK;

    if (pull_has_file(p)) {
        pull_file_is_there(p);
        return;
    }
    if (!hub_cache_has_blob(p->folder, p->file->etag))
        rc = hub_cache_lock(&p->lock, p->folder, p->file->etag, &err);
    if (rc == STATUS_EXISTS) {
        pull_tell(p, PULL_WAITING);
        (void)uv_timer_start(&p->timer, on_lock_timer, LOCK_LOOK_MS, 0); /* it is open */
    } else if (rc != STATUS_OK) {
        pull_fail(p, &err);
    } else if (pull_has_file(p)) { /* since before the lock */
        pull_file_is_there(p);
    } else if (hub_cache_has_blob(p->folder, p->file->etag)) {
        pull_link(p);
    } else if (p->lock < 0) { /* another program would write to the same file */
        (void)error_set(&err, STATUS_DENIED,
                        "the disk of %.120s has no locks: set HF_HUB_CACHE to a folder of a disk "
                        "that has them",
                        p->folder);
        pull_fail(p, &err);
    } else {
        pull_begin_file(p, &err);
    }
}

static void on_lock_timer(uv_timer_t *timer)
{
    pull_lock_file(timer->data);
}

static void pull_finish(struct pull *p)
{
    struct error err = {0};

    pull_tell(p, PULL_LINKING);
    if (hub_cache_set_main(p->folder, p->commit, &err) != STATUS_OK)
        pull_fail(p, &err);
    else
        pull_end(p);
}

/* A file that is there is linked inside, so this calls itself once a file, of a few thousand. */
static void pull_next_file(struct pull *p)
{
    if (p->is_cancelled) { /* while a file that was all there was checked */
        pull_end_cancelled(p);
        return;
    }
    while (p->next < p->files.n && !p->files.all[p->next].is_chosen)
        p->next++;
    if (p->next == p->files.n) {
        pull_finish(p);
        return;
    }
    p->file = &p->files.all[p->next++];
    p->now.file_bytes = p->file->size_bytes;
    p->now.file_done = 0;
    free(p->url);
    p->url = hub_list_file_url(p->endpoint, &p->config.name, p->commit, p->file->name);
    pull_lock_file(p);
}

/* --- the list --- */

static enum status pull_choose(struct pull *p, struct error *err)
{
    const char *file;

    if (hub_list_read(p->commit, &p->files, p->list.data, p->list.len, err) != STATUS_OK ||
        hub_files_choose(&p->files, p->config.name.part, &file, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < p->files.n; i++) {
        const struct hub_file *f = &p->files.all[i];

        if (f->is_chosen && f->etag[0] == '\0')
            return error_set(err, STATUS_DATA_LOSS, "the hub gives no hash and size of %.80s",
                             f->name);
        if (f->is_chosen && f->size_bytes > UINT64_C(1) << 44)
            return error_set(err, STATUS_DATA_LOSS, "%.80s would have more than 16 TiB", f->name);
        p->now.n_files += f->is_chosen;
        if (p->now.n_files > MAX_FILES)
            return error_set(err, STATUS_DATA_LOSS, "the model has more than %d files", MAX_FILES);
        p->now.all_bytes += f->is_chosen ? f->size_bytes : 0;
    }
    return STATUS_OK;
}

/* A repository without snapshots is an error to the hub's programs. */
static enum status pull_make_snapshot(const struct pull *p, struct error *err)
{
    char *path = hub_path("%s/snapshots/%s/", p->folder, p->commit);
    enum status rc = hub_cache_make_folders(path, err);

    free(path);
    return rc;
}

static enum transfer_verdict on_list_data(void *arg, const void *data, size_t len)
{
    struct pull *p = arg;

    p->is_list_too_long = len > LIST_MAX_BYTES - p->list.len;
    return buf_append(&p->list, data, len) == STATUS_OK ? TRANSFER_TAKEN : TRANSFER_STOP;
}

static void on_list_timer(uv_timer_t *timer);

static void on_list_end(void *arg, const struct web_transfer *t, const struct error *err)
{
    const struct transfer_answer *answer = transfer_answer(t);
    struct pull *p = arg;
    struct error why = *err;
    uint64_t delay_ms;

    p->listing = NULL;
    if (p->is_list_too_long) {
        (void)error_set(&why, STATUS_DATA_LOSS,
                        "the list of its files has more than %d MB: fetch them otherwise",
                        LIST_MAX_BYTES >> 20);
    } else if (err->status == STATUS_OK && pull_choose(p, &why) == STATUS_OK &&
               pull_make_snapshot(p, &why) == STATUS_OK) {
        pull_next_file(p);
        return;
    }
    if (err->status != STATUS_OK && answer->http_status != 0 &&
        fetch_retry_again(&p->retry, err, answer->retry_after_s, &delay_ms)) {
        (void)uv_timer_start(&p->timer, on_list_timer, delay_ms, 0); /* it is open */
        return;
    }
    if (err->status != STATUS_OK && answer->http_status == 0)
        (void)error_set(&why, STATUS_UNAVAILABLE, "%.80s does not answer: %.120s", p->endpoint,
                        err->text);
    pull_fail(p, &why);
}

static void pull_list(struct pull *p)
{
    char *url = hub_list_url(p->endpoint, &p->config.name);
    const struct transfer_request request = {
        .url = url, .token = p->token, .on_data = on_list_data, .on_end = on_list_end, .arg = p};
    struct error err = {0};

    buf_clear(&p->list);
    if (transfer_start(&p->listing, p->transfers, &request, &err) != STATUS_OK)
        pull_fail(p, &err);
    free(url);
}

static void on_list_timer(uv_timer_t *timer)
{
    struct pull *p = timer->data;

    pull_tell(p, PULL_LISTING);
    pull_list(p);
}

/* --- the beginning --- */

static bool is_offline(void)
{
    static const char *const words[] = {"1", "ON", "YES", "TRUE"};
    const char *value = getenv("HF_HUB_OFFLINE");

    for (size_t i = 0; value != NULL && i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(value, words[i]) == 0)
            return true;
    return false;
}

enum status pull_start(struct pull **out, const struct pull_config *config, struct error *err)
{
    struct pull *p;

    if (is_offline())
        return error_set(err, STATUS_PRECONDITION,
                         "HF_HUB_OFFLINE is set: nothing is fetched from the hub");
    p = xalloc(sizeof(*p));
    p->config = *config;
    p->lock = -1;
    buf_init(&p->list, LIST_MAX_BYTES);
    if (hub_list_access(&p->endpoint, &p->token, err) != STATUS_OK ||
        hub_cache_folder(&p->folder, &config->name, err) != STATUS_OK ||
        transfers_open(&p->transfers, config->loop, err) != STATUS_OK) {
        free(p->endpoint);
        free(p->token);
        free(p->folder);
        free(p);
        return err->status;
    }
    (void)uv_timer_init(config->loop, &p->timer); /* cannot fail */
    p->timer.data = p;
    (void)uv_timer_start(&p->timer, on_list_timer, 0, 0);
    *out = p;
    return STATUS_OK;
}

void pull_cancel(struct pull *p)
{
    p->is_cancelled = true;
    if (p->download != NULL) {
        download_cancel(p->download);
        return;
    }
    if (p->listing != NULL)
        transfer_cancel(p->listing);
    p->listing = NULL;
    if (!p->is_ending)
        pull_end_cancelled(p);
}

/* --- on a loop of its own --- */

struct pull_listener {
    void (*progress)(void *arg, const struct pull_progress *now);
    void *arg;
    char *path; /* NULL: err says why */
    struct error err;
    struct pull *pull;
    uv_signal_t interrupt, terminate; /* SIGTERM: the first process of a container has no other */
};

static void on_run_progress(void *arg, const struct pull_progress *now)
{
    const struct pull_listener *l = arg;

    l->progress(l->arg, now);
}

static void on_listener_done(void *arg, const char *path, const struct error *err)
{
    struct pull_listener *l = arg;

    l->path = path == NULL ? NULL : xstrdup(path);
    l->err = *err;
    uv_close((uv_handle_t *)&l->interrupt, NULL);
    uv_close((uv_handle_t *)&l->terminate, NULL);
}

static void on_listener_interrupted(uv_signal_t *signal, int number)
{
    struct pull_listener *l = signal->data;

    (void)uv_signal_stop(signal); /* cannot fail; the next one ends the process */
    pull_cancel(l->pull);
}

static void pull_listener_watch(struct pull_listener *l, uv_loop_t *loop, uv_signal_t *signal,
                                int number)
{
    (void)uv_signal_init(loop, signal); /* neither can fail */
    (void)uv_signal_start(signal, on_listener_interrupted, number);
    signal->data = l;
}

enum status pull_run(char **out, const struct model_name *name, size_t n_connections,
                     void (*progress)(void *arg, const struct pull_progress *now), void *arg,
                     struct error *err)
{
    struct pull_listener listener = {.progress = progress, .arg = arg};
    struct pull_config config = {.name = *name,
                                 .n_connections = n_connections,
                                 .progress = on_run_progress,
                                 .done = on_listener_done,
                                 .arg = &listener};
    uv_loop_t loop;
    enum status rc;

    if (uv_loop_init(&loop) != 0)
        return error_set(err, STATUS_EXHAUSTED, "no descriptors are left for the loop");
    config.loop = &loop;
    rc = pull_start(&listener.pull, &config, err);
    if (rc == STATUS_OK) {
        pull_listener_watch(&listener, &loop, &listener.interrupt, SIGINT);
        pull_listener_watch(&listener, &loop, &listener.terminate, SIGTERM);
        (void)uv_run(&loop, UV_RUN_DEFAULT); /* until all handles are closed */
    }
    (void)uv_loop_close(&loop); /* it is empty */
    if (rc != STATUS_OK)
        return rc;
    *err = listener.err;
    *out = listener.path;
    return err->status;
}
