#include "worlds/verbs/world_log.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json_writer.h"
#include "cli/output/out.h"
#include "worlds/message/act.h"

enum { MAX_EPISODE_BYTES = 1 << 30 };

/* An episode as JSON, up to its last turn; an empty text: no episode is open. */
struct logged_episode {
    struct buf text;
    struct json_writer w;
};

/* The conversations of one thread's world, by slot. */
struct thread_log {
    struct logged_episode *episodes; /* [n] */
    size_t n;
};

struct world_log {
    char *path;
    FILE *out;
    pthread_mutex_t lock;       /* of all below */
    struct thread_log *threads; /* [n_threads] */
    size_t n_threads;
    bool has_failed;
    struct error err;
};

enum status world_log_open(struct world_log **out, const char *path, struct error *err)
{
    struct world_log *log;
    FILE *file = out_file_open(path);

    if (file == NULL)
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    log = xalloc(sizeof(*log));
    log->path = xstrdup(path);
    log->out = file;
    (void)pthread_mutex_init(&log->lock, NULL);
    *out = log;
    return STATUS_OK;
}

static enum status episode_of(struct world_log *log, uint32_t thread, size_t slot,
                              struct logged_episode **out, struct error *err)
{
    struct thread_log *t;

    if (thread >= log->n_threads) {
        log->threads = xrealloc(log->threads, (thread + 1) * sizeof(*log->threads));
        memset(log->threads + log->n_threads, 0,
               (thread + 1 - log->n_threads) * sizeof(*log->threads));
        log->n_threads = thread + 1;
    }
    t = &log->threads[thread];
    if (slot >= t->n) {
        size_t n = 2 * (slot + 1);
        struct logged_episode *episodes = try_realloc(t->episodes, n, sizeof(*episodes));

        if (episodes == NULL)
            return error_no_memory(err, n * sizeof(*episodes), "logs");
        t->episodes = episodes;
        for (; t->n < n; t->n++)
            buf_init(&t->episodes[t->n].text, MAX_EPISODE_BYTES);
    }
    *out = &t->episodes[slot];
    return STATUS_OK;
}

static enum status episode_check(const struct logged_episode *e, struct error *err)
{
    if (e->w.rc == STATUS_OK)
        return STATUS_OK;
    return e->text.is_full ? error_set(err, e->w.rc, "an episode is too long for the log")
                           : error_no_memory(err, e->text.len, "an episode");
}

static enum status world_log_end_episode(struct world_log *log, struct logged_episode *e,
                                         struct error *err)
{
    if (e->text.len == 0)
        return STATUS_OK;
    e->w.out = &e->text;
    json_end_array(&e->w);
    json_end_object(&e->w);
    json_write_around(&e->w, "\n");
    if (json_writer_end(&e->w) != STATUS_OK)
        return episode_check(e, err);
    if (fwrite(e->text.data, 1, e->text.len, log->out) != e->text.len)
        return error_set(err, STATUS_DATA_LOSS, "%s: %s", log->path, strerror(errno));
    buf_deinit(&e->text);
    return STATUS_OK;
}

static enum status add_turn(struct logged_episode *e, const struct world_row *row,
                            struct error *err)
{
    if (e->text.len == 0) {
        e->w = json_writer_begin(&e->text);
        json_begin_object(&e->w, NULL);
        json_begin_array(&e->w, "dialog");
    }
    e->w.out = &e->text; /* the episodes may have moved */
    json_begin_array(&e->w, NULL);
    for (size_t i = 0; i < row->n_acts; i++)
        act_write_json(&row->acts[i], &e->w);
    json_end_array(&e->w);
    return episode_check(e, err);
}

static enum status add_row(struct world_log *log, uint32_t thread, const struct world_row *row,
                           struct error *err)
{
    struct logged_episode *episode = NULL;
    enum status rc = episode_of(log, thread, row->slot, &episode, err);

    if (rc == STATUS_OK && row->n_acts > 0 && !act_is_padding(&row->acts[0]))
        rc = add_turn(episode, row, err);
    if (rc == STATUS_OK && (row->ends_episode || (row->n_acts > 0 && row->speakers == NULL &&
                                                  act_is(&row->acts[0], ACT_EPISODE_DONE))))
        rc = world_log_end_episode(log, episode, err);
    return rc;
}

void world_log_watch(void *arg, const struct world *w, uint32_t thread)
{
    struct world_log *log = arg;

    pthread_mutex_lock(&log->lock);
    for (size_t i = 0; !log->has_failed && i < world_n_rows(w); i++) {
        struct world_row row;

        world_row(w, i, &row);
        log->has_failed = add_row(log, thread, &row, &log->err) != STATUS_OK;
    }
    pthread_mutex_unlock(&log->lock);
}

void world_log_end(struct world_log *log)
{
    if (log == NULL)
        return;
    pthread_mutex_lock(&log->lock);
    for (size_t t = 0; t < log->n_threads; t++)
        for (size_t i = 0; !log->has_failed && i < log->threads[t].n; i++)
            log->has_failed =
                world_log_end_episode(log, &log->threads[t].episodes[i], &log->err) != STATUS_OK;
    pthread_mutex_unlock(&log->lock);
}

enum status world_log_close(struct world_log *log, struct error *err)
{
    enum status rc;

    if (log == NULL)
        return STATUS_OK;
    world_log_end(log);
    for (size_t t = 0; t < log->n_threads; t++) {
        for (size_t i = 0; i < log->threads[t].n; i++)
            buf_deinit(&log->threads[t].episodes[i].text);
        free(log->threads[t].episodes);
    }
    if (fclose(log->out) != 0 && !log->has_failed) {
        log->has_failed = true;
        (void)error_set(&log->err, STATUS_DATA_LOSS, "%s: %s", log->path, strerror(errno));
    }
    rc = log->has_failed ? log->err.status : STATUS_OK;
    if (log->has_failed)
        *err = log->err;
    (void)pthread_mutex_destroy(&log->lock);
    free(log->threads);
    free(log->path);
    free(log);
    return rc;
}
