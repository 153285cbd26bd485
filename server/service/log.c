/* The log's two files. Lines are gathered in one buffer while libuv's pool writes another to the
 * end of the file, and the two change places when that is done. */
#include "server/service/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/json_writer.h"
#include "base/list.h"
#include "base/log.h"
#include "server/service/plan.h"

struct service_log {
    uv_loop_t *loop;
    int fd;
    char *path, *metadata_path;
    struct buf next, now; /* to be written; in the write that runs */
    uv_fs_t write;
    bool is_writing;
    bool is_losing; /* since something was written last, lines were lost */
    bool is_torn;   /* the file ends within a line: the next write begins with a line feed */
    char last;      /* the last byte that was written */
    void (*on_idle)(void *arg);
    void *arg;
};

/* --- the metadata --- */

/* Everybody who may speak, by the names that the lines have. */
static void write_speakers(struct json_writer *w, const struct service_plan *plan)
{
    json_begin_array(w, "speakers");
    for (size_t i = 0; i < plan->n_pools; i++) {
        const struct service_pool_plan *pool = &plan->pools[i];

        for (size_t k = 0; k < pool->n_roles; k++)
            if (pool->roles[k] != NULL)
                json_write_text(w, NULL, pool->roles[k]);
        if (pool->agent_name != NULL)
            json_write_text(w, NULL, pool->agent_name);
    }
    json_end_array(w);
}

static enum status metadata_text(struct buf *out, const struct service_plan *plan)
{
    const time_t now = time(NULL);
    char date[32] = "";
    struct json_writer w;
    struct tm t;

    if (gmtime_r(&now, &t) != NULL)
        (void)strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &t);
    w = json_writer_begin_spaced(out);
    json_begin_object(&w, NULL);
    json_write_text(&w, "date", date);
    json_begin_object(&w, "opt");
    json_write_text(&w, "task", plan->task_name);
    json_end_object(&w);
    json_write_bool(&w, "self_chat", false);
    write_speakers(&w, plan);
    json_write_text(&w, "version", "0.1");
    json_end_object(&w);
    return json_writer_end(&w);
}

static enum status service_log_write_metadata(const struct service_log *log,
                                              const struct service_plan *plan, struct error *err)
{
    const int fd = open(log->metadata_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    struct buf text;
    enum status rc = STATUS_OK;

    if (fd < 0)
        return error_set(err, STATUS_INVALID, "log: %.200s: %s", log->metadata_path,
                         strerror(errno));
    buf_init(&text, 1 << 20);
    if (metadata_text(&text, plan) != STATUS_OK)
        rc = error_no_memory(err, 0, "the log's metadata");
    else if (write(fd, text.data, text.len) != (ssize_t)text.len)
        rc = error_set(err, STATUS_INVALID, "log: %.200s cannot be written: %s", log->metadata_path,
                       strerror(errno));
    if (close(fd) != 0 && rc == STATUS_OK)
        rc = error_set(err, STATUS_INVALID, "log: %.200s cannot be written: %s", log->metadata_path,
                       strerror(errno));
    buf_deinit(&text);
    return rc;
}

/* NAME.metadata of NAME.jsonl, as ParlAI finds it: what is behind the last dot is replaced. */
static char *metadata_path_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    const char *slash = strrchr(path, '/');
    const size_t len =
        dot != NULL && (slash == NULL || dot > slash + 1) ? (size_t)(dot - path) : strlen(path);
    const size_t size = len + sizeof(".metadata");
    char *out = xalloc(size);

    (void)snprintf(out, size, "%.*s.metadata", (int)len, path);
    return out;
}

/* --- lines --- */

/* The last byte of the file; '\n' if it is empty, or no file that can be read. */
static char last_byte_of(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char last = '\n';
    off_t size;

    if (fd < 0)
        return last;
    size = lseek(fd, 0, SEEK_END);
    if (size <= 0 || pread(fd, &last, 1, size - 1) != 1)
        last = '\n';
    (void)close(fd);
    return last;
}

enum status service_log_open(struct service_log **out, const struct service_plan *plan,
                             struct error *err)
{
    struct service_log *log;
    enum status rc;

    *out = NULL;
    if (plan->log == NULL)
        return STATUS_OK;
    log = xalloc(sizeof(*log));
    log->path = xstrdup(plan->log);
    log->metadata_path = metadata_path_of(plan->log);
    buf_init(&log->next, SERVICE_LOG_UNWRITTEN_MAX_BYTES);
    buf_init(&log->now, SERVICE_LOG_UNWRITTEN_MAX_BYTES);
    log->fd = open(log->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (log->fd < 0)
        rc = error_set(err, STATUS_INVALID, "log: %.200s: %s", log->path, strerror(errno));
    else
        rc = service_log_write_metadata(log, plan, err);
    log->last = last_byte_of(log->path);
    log->is_torn = log->last != '\n'; /* a process was killed */
    if (rc == STATUS_OK) {
        *out = log;
        log = NULL; /* given away */
    }
    service_log_close(log);
    return rc;
}

void service_log_begin(struct service_log *log, struct uv_loop_s *loop, void (*on_idle)(void *arg),
                       void *arg)
{
    log->loop = loop;
    log->on_idle = on_idle;
    log->arg = arg;
}

static void service_log_write(struct service_log *log);

/* Once for each time that lines were written before. */
static void service_log_lose(struct service_log *log, const char *why)
{
    if (!log->is_losing)
        log_error("service", "log=%s error=\"%s\" lines=lost", log->path, why);
    log->is_losing = true;
}

/* Gives up what was to be written. A part of a line may be in the file. */
static void service_log_drop(struct service_log *log, const char *why)
{
    service_log_lose(log, why);
    buf_clear(&log->now);
    log->is_torn = log->last != '\n';
}

static void service_log_took(struct service_log *log, size_t n)
{
    if (log->is_torn)
        n--; /* the line feed */
    log->last = n == 0 ? '\n' : log->now.data[n - 1];
    log->is_losing = log->is_torn = false;
    buf_consume(&log->now, n);
}

static void on_log_written(uv_fs_t *request)
{
    struct service_log *log = container_of(request, struct service_log, write);
    const ssize_t n = request->result;

    uv_fs_req_cleanup(request);
    log->is_writing = false;
    if (n > 0)
        service_log_took(log, (size_t)n);
    else
        service_log_drop(log, n < 0 ? uv_strerror((int)n) : "nothing was written");
    service_log_write(log);
}

static void service_log_write(struct service_log *log)
{
    static char line_feed[] = "\n";
    uv_buf_t bytes[2];
    int rc;

    if (log->is_writing)
        return;
    if (log->now.len == 0) {
        const struct buf empty = log->now;

        log->now = log->next;
        log->next = empty;
    }
    if (log->now.len == 0) {
        log->on_idle(log->arg);
        return;
    }
    bytes[0] = uv_buf_init(line_feed, log->is_torn ? 1 : 0);
    bytes[1] = uv_buf_init(log->now.data, (unsigned)log->now.len);
    rc = uv_fs_write(log->loop, &log->write, log->fd, bytes, 2, -1, on_log_written);
    log->is_writing = rc == 0;
    if (rc != 0)
        service_log_drop(log, uv_strerror(rc));
}

void service_log_line(void *log, const char *line, size_t len)
{
    struct service_log *l = log;

    if (buf_append(&l->next, line, len) != STATUS_OK)
        service_log_lose(l, "the disk is too slow, or there is no memory");
    service_log_write(l);
}

bool service_log_is_idle(const struct service_log *log)
{
    return log == NULL || (!log->is_writing && log->now.len == 0 && log->next.len == 0);
}

const char *service_log_metadata_path(const struct service_log *log)
{
    return log == NULL ? NULL : log->metadata_path;
}

void service_log_close(struct service_log *log)
{
    if (log == NULL)
        return;
    if (log->fd >= 0)
        (void)close(log->fd); /* what was written was reported */
    buf_deinit(&log->next);
    buf_deinit(&log->now);
    free(log->path);
    free(log->metadata_path);
    free(log);
}
