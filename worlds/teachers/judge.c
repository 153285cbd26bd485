#include "worlds/teachers/judge.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/name.h"
#include "worlds/message/act.h"
#include "worlds/metrics/metrics.h"
#include "worlds/teachers/config.h"

enum { JUDGE_BYTES = 256 << 10, JUDGE_MAX_BYTES = 64 << 20 }; /* of the lines of one request */

struct judge {
    const struct attached_data *attached;
    struct metrics *metrics;
    void *opened;
    pthread_mutex_t lock; /* guards what follows */
    struct buf lines;     /* replies that are not judged yet */
    size_t n_lines;
};

enum status judge_open(struct judge **out, const struct attached_data *attached, const char *task,
                       const char *fold, struct metrics *metrics, struct error *err)
{
    const size_t len = strcspn(task, ":");
    char name[64];
    void *opened;

    *out = NULL;
    if (attached->judge_open == NULL || len >= sizeof(name))
        return STATUS_OK;
    memcpy(name, task, len);
    name[len] = '\0';
    if (attached->judge_open(&opened, attached->arg, name, fold,
                             task[len] == ':' ? task + len + 1 : "", err) != STATUS_OK)
        return error_prefix(err, "attached:%s", name);
    if (opened == NULL)
        return STATUS_OK;
    *out = xalloc(sizeof(**out));
    (*out)->attached = attached;
    (*out)->metrics = metrics;
    (*out)->opened = opened;
    buf_init(&(*out)->lines, JUDGE_MAX_BYTES);
    (void)pthread_mutex_init(&(*out)->lock, NULL); /* cannot fail with default attributes */
    return STATUS_OK;
}

void judge_close(struct judge *j)
{
    if (j == NULL)
        return;
    j->attached->close(j->opened);
    buf_deinit(&j->lines);
    (void)pthread_mutex_destroy(&j->lock);
    free(j);
}

/* Counts the metrics of one line. */
static enum status judge_count(struct judge *j, struct text line, struct error *err)
{
    struct arena arena;
    struct metric_list list;
    struct act reply;
    enum status rc;

    arena_init(&arena, JUDGE_MAX_BYTES);
    act_init(&reply, &arena);
    rc = metric_list_read(&list, line, &arena, err);
    if (rc == STATUS_OK)
        rc = act_set(&reply, ACT_METRICS, value_metrics(&list), err);
    if (rc == STATUS_OK)
        rc = metrics_evaluate(j->metrics, 0, NULL, &reply, err);
    arena_deinit(&arena);
    return rc;
}

static enum status judge_count_all(struct judge *j, const char *text, size_t len, struct error *err)
{
    size_t n = 0;

    while (len > 0) {
        const char *end = memchr(text, '\n', len);
        const size_t size = end == NULL ? len : (size_t)(end - text);

        if (size > 0 && judge_count(j, (struct text){text, size}, err) != STATUS_OK)
            return err->status;
        n += size > 0;
        text += size + (end != NULL);
        len -= size + (end != NULL);
    }
    if (n != j->n_lines)
        return error_set(err, STATUS_INVALID, "the teacher judged %zu of %zu replies", n,
                         j->n_lines);
    return STATUS_OK;
}

static enum status judge_settle_locked(struct judge *j, struct error *err)
{
    const char *text = NULL;
    size_t len = 0;
    enum status rc = STATUS_OK;

    if (j->n_lines == 0)
        return STATUS_OK;
    rc = j->attached->judge(j->opened, j->lines.data, &text, &len, err);
    if (rc == STATUS_OK)
        rc = judge_count_all(j, text, len, err);
    buf_clear(&j->lines);
    j->n_lines = 0;
    return rc;
}

/* The lock is initialised and not destroyed while in use: locking cannot fail. */
enum status judge_settle(struct judge *j, struct error *err)
{
    enum status rc;

    (void)pthread_mutex_lock(&j->lock);
    rc = judge_settle_locked(j, err);
    (void)pthread_mutex_unlock(&j->lock);
    return rc;
}

static enum status judge_write(struct buf *lines, const struct act *act, const struct value *labels,
                               const struct act *reply, struct error *err)
{
    const size_t before = lines->len;
    struct json_writer w = json_writer_begin(lines);

    json_begin_object(&w, NULL);
    json_write_name(&w, "act", 3);
    act_write_json(act, &w);
    json_begin_array(&w, "labels");
    for (size_t i = 0; i < labels->list.n; i++)
        json_write_string(&w, NULL, labels->list.items[i].text, labels->list.items[i].len);
    json_end_array(&w);
    json_write_name(&w, "reply", 5);
    act_write_json(reply, &w);
    json_end_object(&w);
    if (json_writer_end(&w) == STATUS_OK && buf_append(lines, "\n", 1) == STATUS_OK)
        return STATUS_OK;
    lines->len = before;
    return error_no_memory(err, before, "replies to judge");
}

enum status judge_add(struct judge *j, const struct act *act, const struct value *labels,
                      const struct act *reply, struct error *err)
{
    enum status rc;

    (void)pthread_mutex_lock(&j->lock);
    rc = judge_write(&j->lines, act, labels, reply, err);
    j->n_lines += rc == STATUS_OK;
    if (rc == STATUS_OK && j->lines.len >= JUDGE_BYTES)
        rc = judge_settle_locked(j, err);
    (void)pthread_mutex_unlock(&j->lock);
    return rc;
}

void judge_reset(struct judge *j)
{
    (void)pthread_mutex_lock(&j->lock);
    buf_clear(&j->lines);
    j->n_lines = 0;
    (void)pthread_mutex_unlock(&j->lock);
}
