#include "worlds/task.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "worlds/participant.h"
#include "worlds/teacher.h"

struct task {
    struct participant base;
    struct teacher *teacher;
};

struct task_clone {
    struct participant_clone base;
    struct teacher_clone own;
};

static struct task_clone *clone_of(struct participant_clone *c)
{
    return container_of(c, struct task_clone, base);
}

static void close_task(struct participant *p)
{
    struct task *t = container_of(p, struct task, base);

    teacher_close(t->teacher);
    free(t);
}

struct teacher *task_teacher(const struct participant *p)
{
    return container_of(p, const struct task, base)->teacher;
}

static void reset_shared(struct participant *p)
{
    teacher_reset(task_teacher(p));
}

static enum status report(struct report *out, struct participant *p, struct error *err)
{
    return teacher_report(out, task_teacher(p), err);
}

static size_t n_examples(const struct participant *p)
{
    return teacher_n_examples(task_teacher(p));
}

static size_t n_episodes(const struct participant *p)
{
    return teacher_n_episodes(task_teacher(p));
}

static enum status clone_init(struct participant_clone *c, const struct place *place,
                              struct error *err)
{
    (void)err;
    teacher_clone_init(&clone_of(c)->own, task_teacher(c->original), place->thread);
    return STATUS_OK;
}

static void clone_deinit(struct participant_clone *c)
{
    teacher_clone_deinit(&clone_of(c)->own);
}

static void reset(struct participant_clone *c)
{
    teacher_clone_reset(&clone_of(c)->own);
}

/* What it hears is the reply to its last act. */
static enum status observe(struct participant_clone *c, const struct act *reply,
                           const struct act **out, struct error *err)
{
    *out = reply;
    return teacher_observe(&clone_of(c)->own, reply, err);
}

static enum status act(struct participant_clone *c, struct act *out, struct error *err)
{
    const struct act *said;
    enum status rc = teacher_act(&clone_of(c)->own, &said, err);

    if (rc == STATUS_OK)
        act_share(out, said, out->arena);
    return rc;
}

static bool use_batch_act(const struct participant *p)
{
    return teacher_has_batch_act(task_teacher(p));
}

static void batch_act(struct participant *p, struct participant_row *rows, size_t n)
{
    struct teacher_clone **clones = try_alloc(n, sizeof *clones);
    struct error err;
    enum status rc;

    if (clones == NULL) {
        rc = error_no_memory(&err, n * sizeof *clones, "a batch");
    } else {
        for (size_t i = 0; i < n; i++)
            clones[i] = &clone_of(rows[i].clone)->own;
        rc = teacher_batch_act(task_teacher(p), clones, n, &err);
    }
    for (size_t i = 0; i < n; i++) {
        rows[i].failed = rc != STATUS_OK;
        if (rc != STATUS_OK)
            rows[i].err = err;
        else
            act_share(rows[i].out, &clones[i]->act, rows[i].out->arena);
    }
    free(clones);
}

static bool episode_done(const struct participant_clone *c)
{
    return teacher_episode_done(&container_of(c, const struct task_clone, base)->own);
}

static bool epoch_done(const struct participant_clone *c)
{
    return teacher_epoch_done(&container_of(c, const struct task_clone, base)->own);
}

static const struct participant_type task_participant = {
    .name = "teacher",
    .clone_size = sizeof(struct task_clone),
    .close = close_task,
    .reset_shared = reset_shared,
    .report = report,
    .n_examples = n_examples,
    .n_episodes = n_episodes,
    .clone_init = clone_init,
    .clone_deinit = clone_deinit,
    .reset = reset,
    .observe = observe,
    .act = act,
    .batch_act = batch_act,
    .use_batch_act = use_batch_act,
    .episode_done = episode_done,
    .epoch_done = epoch_done,
};

enum status task_open(struct participant **out, struct teacher *teacher, struct error *err)
{
    struct task *t = try_alloc(1, sizeof *t);

    if (t == NULL) {
        teacher_close(teacher);
        return error_no_memory(err, sizeof *t, "a task");
    }
    participant_init(&t->base, &task_participant);
    t->teacher = teacher;
    *out = &t->base;
    return STATUS_OK;
}
