/* The happy path: training_run_start waits until rows 0 to n - 1 have workers. Each worker gets an
 * order, and its session is leased and recorded; env_worker_result takes the returns. After the
 * last result the agent learns on the compute thread from the completed rollouts, and the next
 * episode begins. After the last episode the parameters are saved if requested.
 *
 * Failure: a worker that detaches, fails, or whose session is replaced by another run leaves the
 * episode, which continues without it, in lock-step too; with no worker left nothing is learned.
 * The session of a rollout in learning is released only when the compute thread is done. */
#include "server/act/trainer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/model/model.h"

/* One row of a training run, for one episode. */
struct training_participant {
    struct act_training_run *run;
    struct env_worker *worker; /* NULL: detached */
    struct session_lease lease;
    float reward;
    bool is_open, is_done;
};

static const uint32_t training_run_moves[] = {
    [TRAINING_WAITING] = 1u << TRAINING_ROLLOUT | 1u << TRAINING_OVER,
    [TRAINING_ROLLOUT] = 1u << TRAINING_LEARNING | 1u << TRAINING_WAITING | 1u << TRAINING_SAVING |
                         1u << TRAINING_OVER,
    [TRAINING_LEARNING] = 1u << TRAINING_WAITING | 1u << TRAINING_SAVING | 1u << TRAINING_OVER,
    [TRAINING_SAVING] = 1u << TRAINING_OVER,
    [TRAINING_OVER] = 0,
};

static void training_run_move(struct act_training_run *t, enum training_state to)
{
    assert((training_run_moves[t->state] & 1u << to) != 0);
    t->state = to;
}

static struct act_training_run *training_run_of(const struct trainers *all,
                                                const struct model *model);

/* Refuses while a training run or an attached worker uses the model. */
static enum status refuse_unload(const struct model_user *u, const struct model *m,
                                 struct error *err)
{
    const struct trainers *all = container_of(u, const struct trainers, user);

    if (training_run_of(all, m) != NULL)
        return error_because(err, STATUS_PRECONDITION, REASON_MODEL_IN_TRAINING, NULL,
                             "model '%s' is being trained", m->name);
    for (struct link *l = list_first(&all->workers); l != NULL; l = list_next(&all->workers, l))
        if (container_of(l, struct env_worker, link)->model == m)
            return error_because(err, STATUS_PRECONDITION, REASON_MODEL_IN_TRAINING, NULL,
                                 "observers are attached to model '%s'", m->name);
    return STATUS_OK;
}

void trainers_init(struct trainers *all, struct sessions *sessions, uv_loop_t *loop)
{
    *all =
        (struct trainers){.sessions = sessions, .loop = loop, .user.refuse_unload = refuse_unload};
    list_init(&all->workers);
    list_init(&all->runs);
}

bool trainers_are_idle(const void *trainers)
{
    const struct trainers *all = trainers;

    return list_is_empty(&all->workers) && list_is_empty(&all->runs);
}

static void trainers_check_idle(struct trainers *all)
{
    if (trainers_are_idle(all) && all->on_idle != NULL)
        all->on_idle(all->idle_arg);
}

static struct env_worker *env_worker_of(struct link *l)
{
    return container_of(l, struct env_worker, link);
}

static struct act_training_run *training_run_of(const struct trainers *all,
                                                const struct model *model)
{
    for (struct link *l = list_first(&all->runs); l != NULL; l = list_next(&all->runs, l))
        if (container_of(l, struct act_training_run, link)->model == model)
            return container_of(l, struct act_training_run, link);
    return NULL;
}

bool trainers_are_training(const struct trainers *all, const struct model *m)
{
    return training_run_of(all, m) != NULL;
}

static enum status check_learns(const struct model *m, struct error *err)
{
    enum status rc = model_check_ready(m, err);

    if (rc == STATUS_OK && (m->agent->type->learning == NULL || !m->info.acting.has_logp ||
                            m->info.acting.n_actions == 0))
        rc = error_because(err, STATUS_PRECONDITION, REASON_MODEL_UNSUITABLE, "model",
                           "model '%s' is of kind '%s', which Train cannot train", m->name,
                           m->agent->type->name);
    return rc;
}

/* Lock-step must not wait for detached workers: the episode continues with the others. */
static void trainer_reduce_width(struct act_training_run *t)
{
    if (act_lockstep_n(&t->all->sessions->modes, t->model) != t->config.n_workers)
        return; /* other sessions share its batches */
    t->is_width_reduced = true;
    act_set_batch_width(&t->all->sessions->modes, t->model, (uint32_t)t->n_open);
}

static void widen(struct act_training_run *t)
{
    struct act_modes *modes = &t->all->sessions->modes;

    if (t->is_width_reduced)
        act_set_batch_width(modes, t->model, act_lockstep_n(modes, t->model));
    t->is_width_reduced = false;
}

/* --- the end of a training run --- */

/* The worker is free for another episode. */
static void leave(struct training_participant *p)
{
    if (p->worker != NULL)
        p->worker->participant = NULL;
    p->worker = NULL;
    p->is_open = false;
    session_release(&p->lease);
}

static void leave_all(struct act_training_run *t)
{
    for (size_t i = 0; i < t->config.n_workers; i++)
        leave(&t->participants[i]);
    t->n_open = t->n_done = 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct act_training_run *t = handle->data;
    struct trainers *all = t->all;

    free(t->participants);
    free(t->returns);
    free(t->clones);
    list_remove(&t->link);
    t->ended(t, &t->err);
    trainers_check_idle(all);
}

static void trainer_finish(struct act_training_run *t)
{
    training_run_move(t, TRAINING_OVER);
    leave_all(t);
    widen(t);
    t->model->agent->type->learning->train(t->model->agent, false);
    uv_close((uv_handle_t *)&t->timer, on_timer_closed);
}

static void finish_cancelled(struct act_training_run *t)
{
    (void)error_set(&t->err, STATUS_CANCELLED, "cancelled");
    trainer_finish(t);
}

void training_run_cancel(struct act_training_run *t)
{
    if (t->is_cancelled || t->state == TRAINING_OVER)
        return;
    t->is_cancelled = true;
    if (t->state == TRAINING_WAITING || t->state == TRAINING_ROLLOUT)
        finish_cancelled(t);
}

/* --- learning --- */

static void wait_for_workers(struct act_training_run *t);

static void save(struct job *job)
{
    struct act_training_run *t = container_of(job, struct act_training_run, job);

    (void)t->model->agent->type->learning->save(t->model->agent, t->config.save_path, &t->err);
}

static void saved(struct job *job)
{
    struct act_training_run *t = container_of(job, struct act_training_run, job);

    if (t->err.status != STATUS_OK)
        (void)error_prefix(&t->err, "save_path '%.80s'", t->config.save_path);
    trainer_finish(t);
}

static bool is_good_enough(const struct act_training_run *t)
{
    return t->config.until != 0 && t->event.running_reward >= t->config.until;
}

static void trainer_advance(struct act_training_run *t)
{
    if (t->is_cancelled) {
        finish_cancelled(t);
    } else if (t->event.episode < t->config.n_episodes && !is_good_enough(t)) {
        training_run_move(t, TRAINING_WAITING);
        wait_for_workers(t);
    } else if (t->config.save_path[0] != '\0') {
        training_run_move(t, TRAINING_SAVING);
        t->job = (struct job){.run = save, .done = saved};
        model_run(t->model, &t->job);
    } else {
        trainer_finish(t);
    }
}

static void trainer_end_episode(struct act_training_run *t)
{
    leave_all(t);
    t->tell(t, &t->event);
    if (t->state != TRAINING_OVER) /* not cancelled by tell */
        trainer_advance(t);
}

static void learn(struct job *job)
{
    struct act_training_run *t = container_of(job, struct act_training_run, job);
    struct agent *a = t->model->agent;

    (void)a->type->learning->learn(a, t->clones, t->n_done, t->returns, t->config.n_steps,
                                   &t->config.learn, &t->report, &t->err);
}

static void learned(struct job *job)
{
    struct act_training_run *t = container_of(job, struct act_training_run, job);

    model_tell_loss(t->model);
    if (t->err.status != STATUS_OK) {
        trainer_finish(t);
        return;
    }
    t->event.train_us = env_now_us(t->model->env) - t->begun_us - t->event.rollout_us;
    t->event.params_version = t->report.params_version;
    trainer_end_episode(t);
}

/* Collects the completed participants; their sessions take no step until the compute thread is
 * done. */
static void trainer_gather(struct act_training_run *t)
{
    size_t n = t->config.n_steps;
    double sum = 0;

    t->n_done = 0;
    for (size_t i = 0; i < t->config.n_workers; i++) {
        struct training_participant *p = &t->participants[i];

        if (!p->is_done)
            continue;
        memmove(t->returns + t->n_done * n, t->returns + i * n, n * sizeof(t->returns[0]));
        t->clones[t->n_done++] = session_clone(p->lease.session);
        p->lease.is_frozen = true;
        sum += p->reward;
    }
    t->event.n_workers = (uint32_t)t->n_done;
    if (t->n_done == 0)
        return;
    t->event.mean_reward = (float)(sum / (double)t->n_done);
    t->event.running_reward = 0.5f * t->event.mean_reward + 0.5f * t->event.running_reward;
}

static void finish_rollout(struct act_training_run *t)
{
    struct batcher_stats stats;

    batcher_stats(t->model->batcher, &stats);
    t->event.rollout_us = env_now_us(t->model->env) - t->begun_us;
    t->event.train_us = 0;
    t->event.n_actions = stats.n_done - t->n_actions_before;
    t->event.n_forwards = stats.n_steps - t->n_forwards_before;
    trainer_gather(t);
    if (t->n_done == 0) {
        t->event.mean_reward = 0;
        trainer_end_episode(t);
        return;
    }
    training_run_move(t, TRAINING_LEARNING);
    t->job = (struct job){.run = learn, .done = learned};
    model_run(t->model, &t->job);
}

/* --- an episode --- */

static void close_participant(struct training_participant *p, bool is_done)
{
    struct act_training_run *t = p->run;

    if (!p->is_open)
        return;
    p->is_open = false;
    p->is_done = is_done;
    if (!is_done)
        leave(p);
    if (--t->n_open == 0)
        finish_rollout(t);
    else if (!is_done || t->is_width_reduced)
        trainer_reduce_width(t);
}

/* Another run has replaced the session. While the agent learns from it, the lease stays. */
static void on_lost(struct session_lease *h)
{
    struct training_participant *p = container_of(h, struct training_participant, lease);

    if (p->is_open) {
        close_participant(p, false);
    } else if (p->run->state == TRAINING_ROLLOUT) {
        p->is_done = false;
        leave(p);
    }
}

static enum status trainer_take_part(struct act_training_run *t, struct env_worker *o,
                                     struct error *err)
{
    struct training_participant *p = &t->participants[o->row];
    enum status rc;

    *p = (struct training_participant){.run = t, .lease.lost = on_lost};
    rc = sessions_lease(t->all->sessions, o->principal, t->model, o->env_id, o->run_id,
                        t->config.seed, &p->lease, err);
    if (rc == STATUS_OK)
        rc = t->model->agent->type->learning->record(session_clone(p->lease.session),
                                                     t->config.n_steps, err);
    if (rc != STATUS_OK) {
        session_release(&p->lease);
        return rc;
    }
    p->worker = o;
    p->is_open = true;
    o->participant = p;
    t->n_open++;
    return STATUS_OK;
}

static struct env_worker *at_row(const struct act_training_run *t, uint32_t row)
{
    for (struct link *l = list_first(&t->all->workers); l != NULL;
         l = list_next(&t->all->workers, l)) {
        struct env_worker *o = env_worker_of(l);

        if (o->model == t->model && o->row == row && !o->must_go)
            return o;
    }
    return NULL;
}

static void send_away(struct env_worker *o, const struct error *err)
{
    o->must_go = true;
    o->err = *err;
    o->notify(o);
}

static void begin_episode(struct act_training_run *t)
{
    struct error err;

    for (uint32_t row = 0; row < t->config.n_workers; row++) {
        struct env_worker *o = at_row(t, row);

        if (trainer_take_part(t, o, &err) == STATUS_OK)
            continue;
        send_away(o, &err);
        leave_all(t);
        return;
    }
    training_run_move(t, TRAINING_ROLLOUT);
    widen(t);
    (void)uv_timer_stop(&t->timer); /* cannot fail */
    t->begun_us = env_now_us(t->model->env);
    t->event.episode++;
    for (size_t i = 0; i < t->config.n_workers; i++) {
        struct env_worker *o = t->participants[i].worker;

        o->episode = ++t->all->n_episodes;
        o->order = (struct episode_order){
            .episode = o->episode,
            .n_steps = t->config.n_steps,
            .gamma = t->config.gamma,
            .seed = t->config.seed,
        };
        o->has_order = true;
        o->notify(o);
    }
}

/* Begins the episode if every row has an idle worker. */
static void look_for_workers(struct act_training_run *t)
{
    if (t == NULL || t->state != TRAINING_WAITING)
        return;
    for (uint32_t row = 0; row < t->config.n_workers; row++) {
        const struct env_worker *o = at_row(t, row);

        if (o == NULL || o->episode != 0)
            return;
    }
    begin_episode(t);
}

static void on_timer(uv_timer_t *timer)
{
    struct act_training_run *t = timer->data;
    uint32_t n = 0;

    for (uint32_t row = 0; row < t->config.n_workers; row++)
        n += at_row(t, row) != NULL;
    (void)error_set(&t->err, STATUS_DEADLINE, "%u of %u observers were attached within %u ms", n,
                    t->config.n_workers, t->config.timeout_ms);
    trainer_finish(t);
}

static void wait_for_workers(struct act_training_run *t)
{
    (void)uv_timer_start(&t->timer, on_timer, t->config.timeout_ms,
                         0); /* fails only when closing */
    look_for_workers(t);
}

/* --- the start of a training run --- */

enum status trainers_check_save_path(const struct model *m, const char *path, struct error *err)
{
    const char *end = m->path != NULL ? strrchr(m->path, '/') : NULL;
    size_t folder = end != NULL ? (size_t)(end + 1 - m->path) : 0, len = strlen(path);

    if (path[0] == '\0')
        return STATUS_OK;
    if (m->agent->type->learning == NULL || m->agent->type->learning->save == NULL)
        return error_field(err, "save_path", "is given, and the model cannot be saved");
    if (strncmp(path, m->path, folder) != 0 || strchr(path + folder, '/') != NULL ||
        len < folder + sizeof(".gguf") || strcmp(path + len - 5, ".gguf") != 0) {
        (void)error_field(err, "save_path",
                          "is '%.80s', it must be a .gguf file beside the model's own, in '%.*s'",
                          path, (int)folder, folder > 0 ? m->path : "./");
        return err->status = STATUS_DENIED;
    }
    return STATUS_OK;
}

static enum status trainer_check_config(const struct act_training_run *t, struct error *err)
{
    const struct training_config *c = &t->config;
    size_t most = t->model->batching.max_rows;

    if (c->n_workers == 0 || c->n_workers > most)
        return error_field(err, "observers", "is %u, it must be 1 to %zu, a batch's rows",
                           c->n_workers, most);
    if (c->n_episodes == 0 || c->n_episodes > EPISODES_MAX)
        return error_field(err, "episodes", "is %u, it must be 1 to %d", c->n_episodes,
                           EPISODES_MAX);
    if (c->n_steps == 0 || c->n_steps > EPISODE_MAX_STEPS)
        return error_field(err, "n_steps", "is %u, it must be 1 to %d", c->n_steps,
                           EPISODE_MAX_STEPS);
    if (!(c->gamma >= 0 && c->gamma <= 1))
        return error_field(err, "gamma", "is %g, it must be from 0 to 1", (double)c->gamma);
    if (!(c->learn.learning_rate >= 0 && c->learn.learning_rate < INFINITY))
        return error_field(err, "learning_rate", "is %g, it must be 0 or above",
                           (double)c->learn.learning_rate);
    if (c->learn.value_weight != 0 && !t->model->info.acting.has_value)
        return error_because(err, STATUS_PRECONDITION, REASON_MODEL_UNSUITABLE, "value_weight",
                             "value_weight is %g, but the policy has no value head",
                             (double)c->learn.value_weight);
    if (!(c->learn.value_weight >= 0 && c->learn.value_weight < INFINITY))
        return error_field(err, "value_weight", "is %g, it must be 0 or above",
                           (double)c->learn.value_weight);
    if (!(c->learn.entropy_weight >= 0 && c->learn.entropy_weight < INFINITY))
        return error_field(err, "entropy_weight", "is %g, it must be 0 or above",
                           (double)c->learn.entropy_weight);
    return trainers_check_save_path(t->model, c->save_path, err);
}

enum status training_run_start(struct act_training_run *t, struct trainers *all, struct error *err)
{
    size_t n = t->config.n_workers;
    struct batcher_stats stats;
    enum status rc = check_learns(t->model, err);

    if (rc == STATUS_OK)
        rc = trainer_check_config(t, err);
    if (rc != STATUS_OK)
        return rc;
    if (training_run_of(all, t->model) != NULL)
        return error_because(err, STATUS_PRECONDITION, REASON_MODEL_IN_TRAINING, "model",
                             "model '%s' is being trained already", t->model->name);
    t->participants = try_alloc(n, sizeof(t->participants[0]));
    t->clones = try_alloc(n, sizeof(t->clones[0]));
    t->returns = try_alloc(n * t->config.n_steps, sizeof(t->returns[0]));
    if (t->participants == NULL || t->clones == NULL || t->returns == NULL) {
        free(t->participants);
        free(t->clones);
        free(t->returns);
        return error_no_memory(err, n * t->config.n_steps * sizeof(t->returns[0]), "returns");
    }
    t->all = all;
    list_push(&all->runs, &t->link);
    (void)uv_timer_init(all->loop, &t->timer); /* cannot fail */
    t->timer.data = t;
    batcher_stats(t->model->batcher, &stats);
    t->n_actions_before = stats.n_done;
    t->n_forwards_before = stats.n_steps;
    t->model->agent->type->learning->train(t->model->agent, true);
    wait_for_workers(t);
    return STATUS_OK;
}

/* --- environment workers --- */

static uint32_t free_row(const struct trainers *all, const struct model *model)
{
    uint32_t row = 0;
    struct link *l = list_first(&all->workers);

    while (l != NULL) {
        const struct env_worker *o = env_worker_of(l);

        l = list_next(&all->workers, l);
        if (o->model == model && o->row == row && !o->must_go) {
            row++;
            l = list_first(&all->workers);
        }
    }
    return row;
}

enum status env_worker_open(struct env_worker *o, struct trainers *all, struct error *err)
{
    enum status rc = check_learns(o->model, err);
    struct error taken;

    if (rc == STATUS_OK && o->env_id[0] == '\0')
        rc = error_field(err, "env_id", "is empty");
    if (rc == STATUS_OK && strlen(o->env_id) > ENV_ID_MAX_BYTES)
        rc = error_field(err, "env_id", "is longer than %d bytes", ENV_ID_MAX_BYTES);
    if (rc != STATUS_OK)
        return rc;
    for (struct link *l = list_first(&all->workers); l != NULL; l = list_next(&all->workers, l)) {
        struct env_worker *before = env_worker_of(l);

        if (before->model != o->model || before->must_go || strcmp(before->env_id, o->env_id) != 0)
            continue;
        (void)error_because(&taken, STATUS_ABORTED, REASON_SESSION_REPLACED, "env_id",
                            "env_id '%.64s' has attached again", o->env_id);
        send_away(before, &taken);
    }
    o->all = all;
    o->row = free_row(all, o->model);
    list_push(&all->workers, &o->link);
    look_for_workers(training_run_of(all, o->model));
    return STATUS_OK;
}

static enum status check_result(const struct env_worker *o, const struct episode_result *r,
                                struct error *err)
{
    const struct training_participant *p = o->participant;
    size_t n_steps = p->run->config.n_steps;
    struct clone *c = session_clone(p->lease.session);
    struct clone_info info = {0};

    if (r->n_returns != n_steps)
        return error_field(err, "returns", "has %zu numbers for %zu steps", r->n_returns, n_steps);
    for (size_t i = 0; i < n_steps; i++)
        if (!isfinite(r->returns[i]))
            return error_field(err, "returns", "[%zu] is no number", i);
    if (!isfinite(r->reward))
        return error_field(err, "reward", "is no number");
    clone_describe(c, &info);
    if (info.n_recorded != n_steps || session_is_asking(p->lease.session))
        return error_field(err, "returns", "arrived after %zu of %zu steps", info.n_recorded,
                           n_steps);
    return STATUS_OK;
}

enum status env_worker_result(struct env_worker *o, const struct episode_result *r,
                              struct error *err)
{
    struct training_participant *p = o->participant;
    enum status rc;

    if (o->episode == 0 || r->episode != o->episode)
        return error_field(err, "episode", "is %llu, the one that was asked for is %llu",
                           (unsigned long long)r->episode, (unsigned long long)o->episode);
    if (p != NULL && !r->has_failed) {
        rc = check_result(o, r, err);
        if (rc != STATUS_OK)
            return rc;
        memcpy(p->run->returns + o->row * p->run->config.n_steps, r->returns,
               r->n_returns * sizeof(r->returns[0]));
        p->reward = r->reward;
    }
    o->episode = 0;
    if (p != NULL)
        close_participant(p, !r->has_failed);
    else
        look_for_workers(training_run_of(o->all, o->model));
    return STATUS_OK;
}

void env_worker_close(struct env_worker *o)
{
    struct trainers *all = o->all;

    list_remove(&o->link);
    if (o->participant != NULL) {
        struct training_participant *p = o->participant;

        p->worker = NULL;
        o->participant = NULL;
        close_participant(p, false);
    }
    trainers_check_idle(all);
}
