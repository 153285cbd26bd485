/* Happy path: model_start starts the thread and submits the load. on_loaded opens the batcher, and
 * then the thread runs its steps. model_stop closes the batcher, stops the thread, closes the
 * timers, and frees the model. A failed load leaves a model in MODEL_FAILED, which can only be
 * stopped. A stop waits for the running step; the agent aborts one that is computed elsewhere,
 * since it may never return. What the agent has to write before it is closed, the thread writes. */
#include "server/model/model.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/alloc.h"

enum { VACANT_RETRY_MS = 1000, MODEL_MAX_GROUP = 64 };

static const uint32_t model_moves[] = {
    [MODEL_LOADING] = 1u << MODEL_READY | 1u << MODEL_FAILED,
    [MODEL_READY] = 1u << MODEL_DRAINING | 1u << MODEL_STOPPING,
    [MODEL_DRAINING] = 1u << MODEL_STOPPING,
    [MODEL_FAILED] = 1u << MODEL_STOPPING,
    [MODEL_STOPPING] = 0,
};

static void model_move(struct model *m, enum model_state to)
{
    assert((model_moves[m->state] & 1u << to) != 0);
    m->state = to;
}

const char *model_state_name(enum model_state s)
{
    static const char *const names[] = {
        [MODEL_LOADING] = "loading", [MODEL_READY] = "ready",       [MODEL_DRAINING] = "unloading",
        [MODEL_FAILED] = "failed",   [MODEL_STOPPING] = "stopping",
    };

    return names[s];
}

enum status model_check_ready(const struct model *m, struct error *err)
{
    if (m->state == MODEL_READY && !m->is_vacant)
        return STATUS_OK;
    if (m->state == MODEL_READY) {
        (void)error_because(err, STATUS_UNAVAILABLE, REASON_MODEL_NOT_READY, "model",
                            "no worker of model '%s' is attached", m->name);
        err->retry_after_ms = VACANT_RETRY_MS;
        return err->status;
    }
    (void)error_because(err, STATUS_UNAVAILABLE, REASON_MODEL_NOT_READY, NULL, "model '%s' is %s",
                        m->name, model_state_name(m->state));
    err->retry_after_ms = m->state == MODEL_LOADING ? 200 : 0;
    return STATUS_UNAVAILABLE;
}

/* --- callbacks of the batcher --- */

static void run_step(struct job *job)
{
    struct model *m = container_of(job, struct model, job);

    agent_compute(m->agent, m->step->rows, m->step->n_rows);
}

static void model_count_step(struct model *m)
{
    struct batcher_stats stats;

    batcher_stats(m->batcher, &stats);
    statistics_step(&m->statistics, stats.last_rows, stats.n_cost - m->statistics.n_cost,
                    env_now_us(m->env) - m->step_us);
}

void model_tell_loss(struct model *m)
{
    if (m->agent->lost.status == STATUS_OK || m->on_lost == NULL)
        return;
    m->on_lost(m->lost_arg, m, &m->agent->lost);
    m->on_lost = NULL;
}

static void end_step(struct model *m)
{
    struct batch_step *step = m->step;

    model_count_step(m);
    m->step = NULL;
    model_tell_loss(m);
    step->done(step);
}

static void model_step_done(struct job *job)
{
    end_step(container_of(job, struct model, job));
}

/* The step no longer waits on the loop. */
static void model_take_inline(struct model *m)
{
    (void)uv_idle_stop(&m->inline_step); /* cannot fail */
    if (m->light_steps != NULL)
        list_remove(&m->light_link);
}

/* first, and those behind it whose steps can be computed with its own; none waits any more. */
static size_t model_take_group(struct model *first, struct model *ret_group[MODEL_MAX_GROUP])
{
    struct list *waiting = first->light_steps;
    const struct agent_type *type = first->agent->type;
    size_t n = 1;

    ret_group[0] = first;
    if (waiting != NULL && type->groups_with != NULL)
        for (struct link *l = list_first(waiting), *next; l != NULL && n < MODEL_MAX_GROUP;
             l = next) {
            struct model *m = container_of(l, struct model, light_link);

            next = list_next(waiting, l);
            if (m != first && m->agent->type == type && type->groups_with(first->agent, m->agent))
                ret_group[n++] = m;
        }
    for (size_t i = 0; i < n; i++)
        model_take_inline(ret_group[i]);
    return n;
}

/* Each step is told an equal part of the time, which its batcher learns from. What the end of one
 * begins or stops leaves the others as they are: their batchers wait for their ends. */
static void run_group(struct model *const *group, size_t n)
{
    const struct env *env = group[0]->env;
    struct agent_step steps[MODEL_MAX_GROUP];
    uint64_t part_us = env_now_us(env);

    for (size_t i = 0; i < n; i++)
        steps[i] =
            (struct agent_step){group[i]->agent, group[i]->step->rows, group[i]->step->n_rows};
    group[0]->agent->type->group_act(steps, n);
    part_us = (env_now_us(env) - part_us) / n;
    for (size_t i = 0; i < n; i++) {
        group[i]->step->begun_us = env_now_us(env) - part_us;
        end_step(group[i]);
    }
}

static void on_inline_step(uv_idle_t *idle)
{
    struct model *m = idle->data, *group[MODEL_MAX_GROUP];
    size_t n = model_take_group(m, group);

    if (n > 1) {
        run_group(group, n);
        return;
    }
    m->step->begun_us = env_now_us(m->env); /* earlier work of the loop does not count */
    run_step(&m->job);
    end_step(m);
}

/* --- steps computed elsewhere --- */

static void on_ended_idle(uv_idle_t *idle)
{
    (void)uv_idle_stop(idle); /* cannot fail */
    end_step(idle->data);
}

static void on_elsewhere_done(struct batch_step *step)
{
    struct model *m = container_of(step, struct model, elsewhere);

    assert(m->step != NULL && !uv_is_active((uv_handle_t *)&m->ended));
    for (size_t i = 0; m->is_aborting && i < step->n_rows; i++) {
        struct row *row = step->rows[i];

        if (row->outcome == ROW_FAILED && row->err.status == STATUS_OK)
            (void)error_set(&row->err, STATUS_UNAVAILABLE, "the step was given up");
    }
    if (m->is_in_agent)
        (void)uv_idle_start(&m->ended, on_ended_idle); /* fails only without a callback */
    else
        end_step(m);
}

typedef void (*elsewhere_fn)(struct agent *a, struct batch_step *step);

/* The running step, unless it has ended already. */
static void model_call_agent(struct model *m, elsewhere_fn fn)
{
    if (m->step == NULL || fn == NULL || uv_is_active((uv_handle_t *)&m->ended))
        return;
    m->is_in_agent = true;
    fn(m->agent, &m->elsewhere);
    m->is_in_agent = false;
}

static void begin_elsewhere(struct model *m)
{
    m->elsewhere = *m->step;
    m->elsewhere.done = on_elsewhere_done;
    model_call_agent(m, m->agent->type->elsewhere->begin);
    if (m->is_aborting)
        model_call_agent(m, m->agent->type->elsewhere->abort);
}

static void model_interrupt_step(void *self)
{
    struct model *m = self;

    if (m->agent->type->elsewhere != NULL)
        model_call_agent(m, m->agent->type->elsewhere->interrupt);
}

void model_abort(struct model *m)
{
    if (m->is_aborting)
        return;
    m->is_aborting = true;
    if (m->state != MODEL_LOADING && m->agent != NULL && /* the loading thread's until then */
        m->agent->type->elsewhere != NULL)
        model_call_agent(m, m->agent->type->elsewhere->abort);
}

/* --- where a step runs --- */

/* A step on the loop runs before the loop sleeps again, so it includes all requests that came
 * meanwhile. */
static void model_begin_step(void *self, struct batch_step *step)
{
    struct model *m = self;

    assert(m->step == NULL);
    m->step = step;
    m->step_us = env_now_us(m->env);
    if (m->agent->type->elsewhere != NULL) {
        begin_elsewhere(m);
        return;
    }
    m->job = (struct job){.run = run_step, .done = model_step_done};
    prefault_notice(m->prefault);
    if (!m->info.is_light || !worker_is_idle(m->worker)) {
        worker_submit(m->worker, &m->job);
        return;
    }
    (void)uv_idle_start(&m->inline_step, on_inline_step); /* fails only without a callback */
    if (m->light_steps != NULL)
        list_push(m->light_steps, &m->light_link);
}

static void on_now(uv_timer_t *timer)
{
    struct model *m = timer->data;

    if (m->batcher != NULL)
        batcher_tick(m->batcher);
}

static void on_alarm(uv_poll_t *poll, int status, int events)
{
    struct model *m = poll->data;
    uint64_t n_expired;

    if (read(m->alarm_fd, &n_expired, sizeof(n_expired)) != (ssize_t)sizeof(n_expired))
        return; /* re-armed since */
    m->alarm_us = 0;
    if (m->batcher != NULL)
        batcher_tick(m->batcher);
}

/* An earlier alarm stays armed: it ticks too early, which is harmless, and costs less than a system
 * call for each batch. */
static void arm_timer(void *self, uint64_t at_us)
{
    struct model *m = self;
    uint64_t now_us = env_now_us(m->env);
    struct itimerspec after = {0};

    (void)uv_timer_stop(&m->now_timer); /* cannot fail */
    if (at_us == 0)
        return;
    if (at_us <= now_us) {
        (void)uv_timer_start(&m->now_timer, on_now, 0, 0); /* fails only when closing */
        return;
    }
    if (m->alarm_us != 0 && m->alarm_us <= at_us)
        return;
    m->alarm_us = at_us;
    after.it_value.tv_sec = (time_t)((at_us - now_us) / 1000000);
    after.it_value.tv_nsec = (long)((at_us - now_us) % 1000000) * 1000;
    (void)timerfd_settime(m->alarm_fd, 0, &after, NULL); /* fails only for an invalid time */
}

/* --- work in the background --- */

static enum status model_work_long(void *self, struct job *job, struct error *err)
{
    struct model *m = self;

    if (m->background == NULL &&
        worker_start(&m->background, m->loop, "parley-grammar", err) != STATUS_OK)
        return err->status;
    worker_submit(m->background, job);
    return STATUS_OK;
}

/* --- what the agent is woken for --- */

/* On a thread of the agent's. */
static void model_wake(void *arg)
{
    (void)uv_async_send(&((struct model *)arg)->wake); /* cannot fail */
}

static void on_wake(uv_async_t *wake)
{
    struct model *m = wake->data;

    if (m->batcher != NULL) /* else it is being opened or closed */
        m->agent->type->woken(m->agent);
}

/* --- loading --- */

static bool work_ahead(void *arg, bool is_busy)
{
    struct agent *a = arg;

    return a->type->work_ahead(a, is_busy);
}

static void model_load(struct job *job)
{
    struct model *m = container_of(job, struct model, job);

    m->load_status = m->type == NULL ? agent_open(&m->agent, NULL, &m->config, &m->err)
                                     : agent_open_type(&m->agent, m->type, &m->config, &m->err);
}

static enum status open_batcher(struct model *m, struct error *err)
{
    struct batch_compute compute = {
        .begin = model_begin_step, .interrupt = model_interrupt_step, .self = m};
    struct batch_timer timer = {.arm = arm_timer, .self = m};
    const struct agent_options *options = &m->config.options;
    struct batch_agent agent;

    agent_describe(m->agent, &m->info);
    agent_batching(m->agent, &m->batching);
    if (options->max_waiting != 0)
        m->batching.max_waiting = options->max_waiting;
    if (options->max_itl_us != 0)
        m->batching.max_itl_us = options->max_itl_us;
    agent_batch_adapter(m->agent, &agent);
    return batcher_open(&m->batcher, &m->batching, &agent, &compute, &timer, m->env, err);
}

static void on_loaded(struct job *job)
{
    struct model *m = container_of(job, struct model, job);
    enum status rc = m->load_status;

    if (rc == STATUS_OK)
        rc = open_batcher(m, &m->err);
    if (rc != STATUS_OK)
        (void)error_prefix(&m->err, "model '%s'", m->name);
    else if (m->agent->type->work_ahead != NULL)
        m->prefault = prefault_start(work_ahead, m->agent);
    model_move(m, rc == STATUS_OK ? MODEL_READY : MODEL_FAILED);
    m->loaded(m, m->loaded_arg);
}

static void free_model(struct model *m)
{
    if (m->alarm_fd >= 0)
        (void)close(m->alarm_fd); /* no data to lose */
    compiler_user_close(m->compiler);
    statistics_deinit(&m->statistics);
    tenants_deinit(&m->tenants);
    free(m->name);
    free(m->path);
    free(m->backend);
    free(m);
}

static void model_open_handles(struct model *m, uv_loop_t *loop)
{
    (void)uv_async_init(loop, &m->wake, on_wake); /* the worker's mailbox made what can fail */
    (void)uv_timer_init(loop, &m->now_timer);     /* none can fail: the descriptor can be polled */
    (void)uv_idle_init(loop, &m->inline_step);
    (void)uv_idle_init(loop, &m->ended);
    (void)uv_poll_init(loop, &m->alarm, m->alarm_fd);
    m->now_timer.data = m->inline_step.data = m->ended.data = m->alarm.data = m->wake.data = m;
    (void)uv_poll_start(&m->alarm, UV_READABLE, on_alarm);
    m->n_handles = 5;
}

static const char *thread_name(const struct model *m)
{
    if (m->type != NULL)
        return "parley-made";
    return m->path == NULL ? "parley-echo" : "parley-compute";
}

enum status model_start(struct model **out, uv_loop_t *loop, const struct model_config *config,
                        model_fn loaded, void *arg, struct error *err)
{
    struct model *m = xalloc(sizeof(*m));
    enum status rc = STATUS_OK;

    m->name = xstrdup(config->name);
    m->path = config->path == NULL ? NULL : xstrdup(config->path);
    m->type = config->type;
    m->backend = xstrdup(config->options.backend);
    m->env = config->env;
    m->tenants = (struct tenants){.weight_of = config->weight_of, .arg = config->weight_arg};
    m->on_lost = config->on_lost;
    m->lost_arg = config->lost_arg;
    m->light_steps = config->light_steps;
    m->loaded = loaded;
    m->loaded_arg = arg;
    m->config = (struct agent_config){
        .name = m->name,
        .path = m->path,
        .spec = config->spec,
        .options = config->options,
        .env = m->env,
        .wake = model_wake,
        .wake_arg = m,
        .owner_name = config->owner_name,
        .owner_arg = config->owner_arg,
    };
    m->config.options.backend = m->backend;
    m->loop = loop;
    m->long_work = (struct agent_background){model_work_long, m};
    m->config.background = &m->long_work;
    m->alarm_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (m->alarm_fd < 0)
        rc = error_set(err, STATUS_EXHAUSTED, "cannot make a timer: %s", strerror(errno));
    if (rc == STATUS_OK && config->compiler != NULL)
        rc = compiler_user_open(&m->compiler, config->compiler, err);
    if (m->compiler != NULL)
        m->config.compiler = compiler_user_agents(m->compiler);
    if (rc == STATUS_OK)
        rc = worker_start(&m->worker, loop, thread_name(m), err);
    if (rc != STATUS_OK) {
        free_model(m);
        return rc;
    }
    model_open_handles(m, loop);
    m->job = (struct job){.run = model_load, .done = on_loaded};
    worker_submit(m->worker, &m->job);
    *out = m;
    return STATUS_OK;
}

void model_run(struct model *m, struct job *job)
{
    assert(m->state != MODEL_STOPPING);
    if (uv_is_active((uv_handle_t *)&m->inline_step)) { /* the step was first */
        model_take_inline(m);
        worker_submit(m->worker, &m->job);
    }
    worker_submit(m->worker, job);
}

/* --- stopping --- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct model *m = handle->data;
    void (*stopped)(void *arg) = m->stopped;
    void *arg = m->stopped_arg;

    if (--m->n_handles > 0)
        return;
    free_model(m);
    stopped(arg);
}

static void on_worker_stopped(void *arg)
{
    struct model *m = arg;

    agent_unref(m->agent);
    m->agent = NULL;
    uv_close((uv_handle_t *)&m->now_timer, on_handle_closed);
    uv_close((uv_handle_t *)&m->inline_step, on_handle_closed);
    uv_close((uv_handle_t *)&m->ended, on_handle_closed);
    uv_close((uv_handle_t *)&m->alarm, on_handle_closed);
    uv_close((uv_handle_t *)&m->wake, on_handle_closed);
}

static void run_settle(struct job *job)
{
    struct agent *a = container_of(job, struct model, job)->agent;

    a->type->settle(a);
}

static void on_settled(struct job *job)
{
    struct model *m = container_of(job, struct model, job);

    worker_stop(m->worker, on_worker_stopped, m);
}

/* From here on only the job, if there is one, uses the agent. */
static void on_background_stopped(void *arg)
{
    struct model *m = arg;

    m->job = (struct job){.run = run_settle, .done = on_settled};
    if (m->agent != NULL && m->agent->type->settle != NULL)
        worker_submit(m->worker, &m->job);
    else
        on_settled(&m->job);
}

static void on_batcher_closed(void *arg)
{
    struct model *m = arg;

    m->batcher = NULL;
    prefault_stop(m->prefault);
    if (m->background != NULL)
        worker_stop(m->background, on_background_stopped, m);
    else
        on_background_stopped(m);
}

void model_drain(struct model *m)
{
    model_move(m, MODEL_DRAINING);
}

void model_stop(struct model *m, void (*stopped)(void *arg), void *arg)
{
    model_move(m, MODEL_STOPPING);
    m->stopped = stopped;
    m->stopped_arg = arg;
    model_abort(m);
    if (m->batcher != NULL)
        batcher_close(m->batcher, on_batcher_closed, m);
    else
        on_batcher_closed(m);
}
