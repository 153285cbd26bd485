#include "tests/support/fake_actor.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"

/* --- the agent --- */

struct actor_clone {
    struct clone base;
    uint32_t n_steps;
    size_t n_recorded;
};

/* A row's answer, in the turn's arena. */
struct actor_turn {
    float action;
    struct tensor_view out;
};

static struct actor_clone *actor_of(struct clone *c)
{
    return container_of(c, struct actor_clone, base);
}

static enum status actor_open(struct agent *a, const struct agent_config *config, struct error *err)
{
    return STATUS_OK;
}

static void actor_close(struct agent *a)
{
}

static void actor_info(const struct agent *a, struct agent_info *out)
{
    *out = (struct agent_info){
        .name = a->name,
        .kind = "actor",
        .architecture = "",
        .backend = "",
        .version = "1",
        .acting = {.n_observations = 1, .n_actions = 2, .has_logp = true},
    };
}

static void actor_batching(const struct agent *a, struct batcher_config *out)
{
    *out = (struct batcher_config){
        .policy = BATCH_CONTINUOUS, .max_rows = ACTOR_MAX_ROWS, .max_waiting = 8};
}

static enum status actor_clone_open(struct clone *c, const struct clone_config *config,
                                    struct error *err)
{
    return STATUS_OK;
}

static void actor_clone_close(struct clone *c)
{
}

static void actor_reset(struct clone *c)
{
    actor_of(c)->n_steps = 0;
}

static void actor_clone_info(const struct clone *c, struct clone_info *out)
{
    *out = (struct clone_info){.n_recorded =
                                   container_of(c, const struct actor_clone, base)->n_recorded};
}

static enum status actor_observe(struct clone *c, struct agent_turn *turn, struct error *err)
{
    const float *seen = turn->seen.tensors[0].data;
    struct actor_turn *t;

    if (seen[0] < 0)
        return error_field(err, "observation", "is %g", (double)seen[0]);
    t = arena_alloc(turn->arena, 1, sizeof(*t));
    if (t == NULL)
        return error_no_memory(err, sizeof(*t), "a turn");
    turn->row.clone = c;
    turn->row.turn = t;
    return STATUS_OK;
}

static void actor_self_observe(struct clone *c, struct agent_turn *turn)
{
    actor_of(c)->n_steps++;
    actor_of(c)->n_recorded++;
}

static void actor_drop(struct clone *c, struct agent_turn *turn)
{
}

static void actor_batch_act(struct agent *a, struct row *const *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct agent_turn *turn = agent_turn_of(rows[i]);
        const float *seen = turn->seen.tensors[0].data;
        struct actor_turn *t = rows[i]->turn;

        t->action = seen[0] + seen[1] + (float)actor_of(rows[i]->clone)->n_steps;
        t->out = (struct tensor_view){.name = "action",
                                      .type = TENSOR_F32,
                                      .data = &t->action,
                                      .size_bytes = sizeof(t->action)};
        rows[i]->outcome = isfinite(t->action) ? ROW_DONE : ROW_FAILED;
        if (rows[i]->outcome == ROW_FAILED)
            (void)error_set(&rows[i]->err, STATUS_INVALID, "no number");
        turn->reply.batch_rows = (uint32_t)n;
    }
}

static void actor_stepped(struct agent *a, struct row *row)
{
    struct agent_turn *turn = agent_turn_of(row);
    const struct actor_turn *t = row->turn;

    turn->reply.tensors = &t->out;
    turn->reply.n_tensors = 1;
}

static void actor_train(struct agent *a, bool on)
{
}

static enum status actor_record(struct clone *c, size_t max_steps, struct error *err)
{
    actor_of(c)->n_recorded = 0;
    return STATUS_OK;
}

static enum status actor_learn(struct agent *a, struct clone *const *clones, size_t n,
                               const float *returns, size_t n_steps,
                               const struct learn_config *config, struct learn_report *out,
                               struct error *err)
{
    *out = (struct learn_report){.params_version = n};
    return STATUS_OK;
}

static const struct agent_learning actor_learning = {
    .train = actor_train,
    .record = actor_record,
    .learn = actor_learn,
};

static const struct agent_type actor_agent = {
    .name = "actor",
    .agent_size = sizeof(struct agent),
    .clone_size = sizeof(struct actor_clone),
    .open = actor_open,
    .close = actor_close,
    .info = actor_info,
    .batching = actor_batching,
    .clone_open = actor_clone_open,
    .clone_close = actor_clone_close,
    .clone_info = actor_clone_info,
    .reset = actor_reset,
    .observe = actor_observe,
    .self_observe = actor_self_observe,
    .drop = actor_drop,
    .batch_act = actor_batch_act,
    .stepped = actor_stepped,
    .learning = &actor_learning,
};

/* --- clock, timers, compute --- */

static uint64_t now_us(void *self)
{
    return ((struct fake_actor *)self)->now_us;
}

static void no_random(void *self, void *out, size_t n_bytes)
{
    memset(out, 0, n_bytes);
}

static void begin_step(void *self, struct batch_step *step)
{
    struct fake_actor *f = self;

    assert(f->step == NULL);
    f->step = step;
}

static void arm_tick(void *self, uint64_t at_us)
{
    ((struct fake_actor *)self)->tick_at_us = at_us;
}

static void on_idle(void *arg)
{
    ((struct fake_actor *)arg)->n_idle++;
}

enum status fake_actor_open(struct fake_actor *f, const struct sessions_config *config,
                            struct error *err)
{
    const struct batch_compute compute = {.begin = begin_step, .self = f};
    const struct batch_timer timer = {.arm = arm_tick, .self = f};
    const struct agent_config agent_config = {.name = "actor", .env = &f->env};
    struct sessions_config c = *config;
    struct batch_agent adapter;
    enum status rc;

    *f =
        (struct fake_actor){.now_us = 1000000, .expiry = {.tick = sessions_tick, .owner = &f->all}};
    f->env = (struct env){.now_us = now_us, .random = no_random, .self = f};
    c.env = &f->env;
    c.alarm = &f->expiry;
    c.on_idle = on_idle;
    c.idle_arg = f;
    sessions_init(&f->all, &c);
    rc = agent_open_type(&f->model.agent, &actor_agent, &agent_config, err);
    if (rc != STATUS_OK) {
        sessions_deinit(&f->all);
        return rc;
    }
    f->model.name = f->model.agent->name;
    f->model.state = MODEL_READY;
    f->model.env = &f->env;
    agent_describe(f->model.agent, &f->model.info);
    agent_batching(f->model.agent, &f->model.batching);
    agent_batch_adapter(f->model.agent, &adapter);
    rc = batcher_open(&f->model.batcher, &f->model.batching, &adapter, &compute, &timer, &f->env,
                      err);
    if (rc != STATUS_OK) {
        agent_unref(f->model.agent);
        sessions_deinit(&f->all);
    }
    return rc;
}

void fake_actor_run(struct fake_actor *f)
{
    for (;;) {
        struct batch_step *step = f->step;

        if (step != NULL) {
            f->step = NULL;
            agent_compute(f->model.agent, step->rows, step->n_rows);
            step->done(step);
        } else if (f->tick_at_us != 0 && f->tick_at_us <= f->now_us) {
            f->tick_at_us = 0;
            batcher_tick(f->model.batcher);
        } else {
            return;
        }
    }
}

static void on_closed(void *arg)
{
    ((struct fake_actor *)arg)->is_closed = true;
}

void fake_actor_close(struct fake_actor *f)
{
    sessions_close_all(&f->all, NULL);
    fake_actor_run(f);
    assert(f->all.limit.held == 0 && f->all.n_asking == 0);
    sessions_deinit(&f->all);
    batcher_close(f->model.batcher, on_closed, f);
    fake_actor_run(f);
    assert(f->is_closed);
    agent_unref(f->model.agent);
}

/* --- steps --- */

static void take(struct fake_step *s, const struct step_reply *reply)
{
    s->n_done++;
    s->seq = reply->seq;
    s->batch_rows = reply->batch_rows;
    assert(reply->n_tensors == 1 && strcmp(reply->tensors[0].name, "action") == 0);
    memcpy(&s->action, reply->tensors[0].data, sizeof(s->action));
}

static void on_done(struct step_wait *w, struct step_reply *reply, const struct error *err)
{
    struct fake_step *s = container_of(w, struct fake_step, wait);

    s->err = *err;
    if (reply != NULL)
        take(s, reply);
    else
        s->n_done++;
}

enum status fake_step(struct fake_actor *f, struct fake_step *s, const struct fake_request *r,
                      struct error *err)
{
    struct step_request request = {
        .model = &f->model,
        .env_id = r->env_id,
        .run_id = r->run_id,
        .seq = r->seq,
        .n_observation = 1,
        .reward = r->reward,
        .done = r->done,
        .row = r->row,
        .deadline_us = r->deadline_us,
    };
    struct step_reply *stored;
    struct tensor_view *view;
    struct arena arena;
    enum status rc;
    float *seen;

    *s = (struct fake_step){.wait.done = on_done};
    arena_init(&arena, 1 << 16);
    view = arena_alloc(&arena, 1, sizeof(*view));
    seen = arena_alloc(&arena, 2, sizeof(*seen));
    if (view == NULL || seen == NULL) {
        arena_deinit(&arena);
        return error_no_memory(err, sizeof(*view), "an observation");
    }
    seen[0] = r->a;
    seen[1] = r->b;
    *view = (struct tensor_view){.name = "observation",
                                 .type = TENSOR_F32,
                                 .n_dims = 1,
                                 .dims = {2},
                                 .data = seen,
                                 .size_bytes = 2 * sizeof(*seen)};
    request.observation = view;
    rc = sessions_step(&f->all, &request, &arena, &s->wait, &stored, err);
    if (rc == STATUS_OK && stored != NULL)
        take(s, stored);
    arena_deinit(&arena); /* empty if sessions_step took it */
    return rc;
}
