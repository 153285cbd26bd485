#include "tests/support/fake_remote.h"

#include <assert.h>

#include "agents/turn.h"

struct remote {
    struct agent base;
    struct fake_remote *fake;
};

static struct fake_remote *fake_of(struct agent *a)
{
    return container_of(a, struct remote, base)->fake;
}

static enum status remote_open(struct agent *a, const struct agent_config *config,
                               struct error *err)
{
    container_of(a, struct remote, base)->fake = (struct fake_remote *)config->spec;
    return STATUS_OK;
}

static void remote_close(struct agent *a)
{
    assert(fake_of(a)->step == NULL);
}

static void remote_info(const struct agent *a, struct agent_info *out)
{
    *out = (struct agent_info){
        .name = a->name, .kind = "remote", .architecture = "", .backend = "", .version = "1"};
}

static void remote_batching(const struct agent *a, struct batcher_config *out)
{
    *out = (struct batcher_config){.policy = BATCH_CONTINUOUS, .max_rows = 4, .max_waiting = 8};
}

static enum status remote_clone_open(struct clone *c, const struct clone_config *config,
                                     struct error *err)
{
    return STATUS_OK;
}

static void remote_clone_close(struct clone *c)
{
}

static enum status remote_observe(struct clone *c, struct agent_turn *t, struct error *err)
{
    t->row.clone = c;
    return STATUS_OK;
}

static void remote_end(struct clone *c, struct agent_turn *t)
{
}

static void compute(struct row *row)
{
    const struct agent_turn *t = agent_turn_of(row);

    if (t->seen.reward < 0)
        (void)error_set(&row->err, STATUS_INTERNAL, "failed, as ordered");
    else
        row->outcome = t->reply.n_prefilled + 1 < t->seen.turn ? ROW_MORE : ROW_DONE;
}

/* The fake's thread. */
static void run(struct job *job)
{
    struct fake_remote *r = container_of(job, struct fake_remote, job);

    r->thread = pthread_self();
    for (size_t i = 0; !r->is_aborted && i < r->step->n_rows; i++)
        compute(r->step->rows[i]);
}

static void back(struct job *job)
{
    struct fake_remote *r = container_of(job, struct fake_remote, job);
    struct batch_step *step = r->step;

    r->step = NULL;
    r->is_away = false;
    step->done(step);
}

static void hand_over(struct fake_remote *r)
{
    r->is_away = true;
    r->job = (struct job){.run = run, .done = back};
    worker_submit(r->worker, &r->job);
}

static void remote_step_begin(struct agent *a, struct batch_step *step)
{
    struct fake_remote *r = fake_of(a);

    assert(r->step == NULL);
    r->step = step;
    r->is_aborted = false;
    r->n_rows = step->n_rows;
    r->n_begun++;
    if (!r->is_held)
        hand_over(r);
}

static void remote_step_abort(struct agent *a, struct batch_step *step)
{
    struct fake_remote *r = fake_of(a);

    assert(r->step == step);
    r->n_aborts++;
    if (r->is_away)
        return; /* the thread is computing it: it ends by itself */
    r->is_aborted = true;
    hand_over(r);
}

static void remote_stepped(struct agent *a, struct row *row)
{
    agent_turn_of(row)->reply.n_prefilled++;
}

static const struct agent_elsewhere fake_elsewhere = {
    .begin = remote_step_begin,
    .abort = remote_step_abort,
};

const struct agent_type fake_remote_agent = {
    .name = "remote",
    .agent_size = sizeof(struct remote),
    .clone_size = sizeof(struct clone),
    .open = remote_open,
    .close = remote_close,
    .info = remote_info,
    .batching = remote_batching,
    .clone_open = remote_clone_open,
    .clone_close = remote_clone_close,
    .observe = remote_observe,
    .self_observe = remote_end,
    .drop = remote_end,
    .elsewhere = &fake_elsewhere,
    .stepped = remote_stepped,
};

void fake_remote_open(struct fake_remote *r, uv_loop_t *loop)
{
    struct error err;
    enum status rc;

    *r = (struct fake_remote){0};
    rc = worker_start(&r->worker, loop, "fake-remote", &err);
    assert(rc == STATUS_OK);
}

static void on_stopped(void *arg)
{
    ((struct fake_remote *)arg)->is_stopped = true;
}

void fake_remote_close(struct fake_remote *r, uv_loop_t *loop)
{
    assert(r->step == NULL);
    worker_stop(r->worker, on_stopped, r);
    while (!r->is_stopped)
        (void)uv_run(loop, UV_RUN_ONCE);
}

void fake_remote_release(struct fake_remote *r)
{
    assert(r->is_held && r->step != NULL);
    r->is_held = false;
    hand_over(r);
}
