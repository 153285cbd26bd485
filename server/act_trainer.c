/* The happy path: training_start waits until there are observers in rows 0 to n - 1; each gets an
 * order, and its session is held and recorded; observer_result takes the returns; when the last is
 * in, the agent learns on the compute thread from those who are done, and the next episode begins.
 * After the last one the parameters are saved, if that is asked for.
 *
 * Failure: an observer that goes, fails, or whose session is taken by another run leaves the
 * episode, which goes on without it, in lock-step too; with none left nothing is learned. A session
 * that is learned from is let go only when compute is back. */
#include "server/act_trainer.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "server/model.h"

/* One place of a training, for one episode. */
struct participant {
    struct training *training;
    struct observer *observer; /* NULL: it has gone */
    struct session_hold hold;
    float reward;
    bool is_open, is_done;
};

static const uint32_t training_moves[] = {
    [TRAINING_WAITING] = 1u << TRAINING_ROLLOUT | 1u << TRAINING_OVER,
    [TRAINING_ROLLOUT] = 1u << TRAINING_LEARNING | 1u << TRAINING_WAITING | 1u << TRAINING_SAVING |
                         1u << TRAINING_OVER,
    [TRAINING_LEARNING] = 1u << TRAINING_WAITING | 1u << TRAINING_SAVING | 1u << TRAINING_OVER,
    [TRAINING_SAVING] = 1u << TRAINING_OVER,
    [TRAINING_OVER] = 0,
};

static void training_move(struct training *t, enum training_state to)
{
    assert((training_moves[t->state] & 1u << to) != 0);
    t->state = to;
}

void trainers_init(struct trainers *all, struct sessions *sessions)
{
    *all = (struct trainers){.sessions = sessions};
    list_init(&all->observers);
    list_init(&all->trainings);
}

bool trainers_are_idle(const struct trainers *all)
{
    return list_is_empty(&all->observers) && list_is_empty(&all->trainings);
}

static void maybe_quiet(struct trainers *all)
{
    if (trainers_are_idle(all) && all->quiet != NULL)
        all->quiet(all->quiet_arg);
}

static struct observer *observer_of(struct link *l)
{
    return container_of(l, struct observer, link);
}

static struct training *training_of(const struct trainers *all, const struct model *model)
{
    for (struct link *l = list_first(&all->trainings); l != NULL; l = list_next(&all->trainings, l))
        if (container_of(l, struct training, link)->model == model)
            return container_of(l, struct training, link);
    return NULL;
}

static enum status check_learns(const struct model *m, struct error *err)
{
    enum status rc = model_check_ready(m, err);

    if (rc == STATUS_OK && m->agent->type->learn == NULL)
        rc = error_set(err, STATUS_PRECONDITION, "model '%s' is of kind '%s', which does not learn",
                       m->name, m->agent->type->name);
    return rc;
}

/* Lock-step must not wait for those who are gone: the episode goes on with those who are in it. */
static void narrow(struct training *t)
{
    if (t->model->act.n != t->config.n_observers)
        return; /* others stand in its batches */
    t->is_narrow = true;
    act_narrow(t->model, (uint32_t)t->n_open);
}

static void widen(struct training *t)
{
    if (t->is_narrow)
        act_narrow(t->model, t->model->act.n);
    t->is_narrow = false;
}

/* --- the end of a training --- */

/* Whoever ran it may run another. */
static void leave(struct participant *p)
{
    if (p->observer != NULL)
        p->observer->participant = NULL;
    p->observer = NULL;
    p->is_open = false;
    session_let_go(&p->hold);
}

static void leave_all(struct training *t)
{
    for (size_t i = 0; i < t->config.n_observers; i++)
        leave(&t->participants[i]);
    t->n_open = t->n_done = 0;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct training *t = handle->data;
    struct trainers *all = t->all;

    free(t->participants);
    free(t->returns);
    free(t->clones);
    list_remove(&t->link);
    t->ended(t, &t->err);
    maybe_quiet(all);
}

static void finish(struct training *t)
{
    training_move(t, TRAINING_OVER);
    leave_all(t);
    widen(t);
    t->model->agent->type->train(t->model->agent, false);
    uv_close((uv_handle_t *)&t->timer, on_timer_closed);
}

static void finish_cancelled(struct training *t)
{
    (void)error_set(&t->err, STATUS_CANCELLED, "cancelled");
    finish(t);
}

void training_cancel(struct training *t)
{
    if (t->is_cancelled || t->state == TRAINING_OVER)
        return;
    t->is_cancelled = true;
    if (t->state == TRAINING_WAITING || t->state == TRAINING_ROLLOUT)
        finish_cancelled(t);
}

/* --- learning --- */

static void wait_for_observers(struct training *t);

static void save(struct job *job)
{
    struct training *t = container_of(job, struct training, job);

    (void)t->model->agent->type->save_original(t->model->agent, t->config.save_path, &t->err);
}

static void saved(struct job *job)
{
    struct training *t = container_of(job, struct training, job);

    if (t->err.status != STATUS_OK)
        (void)error_prefix(&t->err, "save_path '%.80s'", t->config.save_path);
    finish(t);
}

static bool is_good_enough(const struct training *t)
{
    return t->config.until > 0 && t->event.running_reward >= t->config.until;
}

static void go_on(struct training *t)
{
    if (t->is_cancelled) {
        finish_cancelled(t);
    } else if (t->event.episode < t->config.n_episodes && !is_good_enough(t)) {
        training_move(t, TRAINING_WAITING);
        wait_for_observers(t);
    } else if (t->config.save_path[0] != '\0') {
        training_move(t, TRAINING_SAVING);
        t->job = (struct job){.run = save, .done = saved};
        model_run(t->model, &t->job);
    } else {
        finish(t);
    }
}

static void end_episode(struct training *t)
{
    leave_all(t);
    t->tell(t, &t->event);
    if (t->state != TRAINING_OVER) /* it was told that nobody listens */
        go_on(t);
}

static void learn(struct job *job)
{
    struct training *t = container_of(job, struct training, job);
    struct agent *a = t->model->agent;

    (void)a->type->learn(a, t->clones, t->n_done, t->returns, t->config.n_steps, &t->config.learn,
                         &t->report, &t->err);
}

static void learned(struct job *job)
{
    struct training *t = container_of(job, struct training, job);

    if (t->err.status != STATUS_OK) {
        finish(t);
        return;
    }
    t->event.train_us = env_now_us(t->model->env) - t->begun_us - t->event.rollout_us;
    t->event.params_version = t->report.params_version;
    end_episode(t);
}

/* Those who are done move together; their sessions take no step until compute is back. */
static void gather(struct training *t)
{
    size_t n = t->config.n_steps;
    double sum = 0;

    t->n_done = 0;
    for (size_t i = 0; i < t->config.n_observers; i++) {
        struct participant *p = &t->participants[i];

        if (!p->is_done)
            continue;
        memmove(t->returns + t->n_done * n, t->returns + i * n, n * sizeof(t->returns[0]));
        t->clones[t->n_done++] = session_clone(p->hold.session);
        p->hold.is_frozen = true;
        sum += p->reward;
    }
    t->event.n_observers = (uint32_t)t->n_done;
    if (t->n_done == 0)
        return;
    t->event.mean_reward = (float)(sum / (double)t->n_done);
    t->event.running_reward = 0.5f * t->event.mean_reward + 0.5f * t->event.running_reward;
}

static void finish_rollout(struct training *t)
{
    struct batcher_stats stats;

    batcher_stats(t->model->batcher, &stats);
    t->event.rollout_us = env_now_us(t->model->env) - t->begun_us;
    t->event.train_us = 0;
    t->event.n_actions = stats.n_done - t->n_actions_before;
    t->event.n_forwards = stats.n_steps - t->n_forwards_before;
    gather(t);
    if (t->n_done == 0) {
        t->event.mean_reward = 0;
        end_episode(t);
        return;
    }
    training_move(t, TRAINING_LEARNING);
    t->job = (struct job){.run = learn, .done = learned};
    model_run(t->model, &t->job);
}

/* --- an episode --- */

static void close_participant(struct participant *p, bool is_done)
{
    struct training *t = p->training;

    if (!p->is_open)
        return;
    p->is_open = false;
    p->is_done = is_done;
    if (!is_done)
        leave(p);
    if (--t->n_open == 0)
        finish_rollout(t);
    else if (!is_done || t->is_narrow)
        narrow(t);
}

/* Another run has taken its session's place. While it is learned from, that has to wait. */
static void on_lost(struct session_hold *h)
{
    struct participant *p = container_of(h, struct participant, hold);

    if (p->is_open) {
        close_participant(p, false);
    } else if (p->training->state == TRAINING_ROLLOUT) {
        p->is_done = false;
        leave(p);
    }
}

static enum status take_part(struct training *t, struct observer *o, struct error *err)
{
    struct participant *p = &t->participants[o->row];
    enum status rc;

    *p = (struct participant){.training = t, .hold.lost = on_lost};
    rc = sessions_hold(t->all->sessions, t->model, o->env_id, o->run_id, t->config.seed, &p->hold,
                       err);
    if (rc == STATUS_OK)
        rc = t->model->agent->type->record(session_clone(p->hold.session), t->config.n_steps, err);
    if (rc != STATUS_OK) {
        session_let_go(&p->hold);
        return rc;
    }
    p->observer = o;
    p->is_open = true;
    o->participant = p;
    t->n_open++;
    return STATUS_OK;
}

static struct observer *at_row(const struct training *t, uint32_t row)
{
    for (struct link *l = list_first(&t->all->observers); l != NULL;
         l = list_next(&t->all->observers, l)) {
        struct observer *o = observer_of(l);

        if (o->model == t->model && o->row == row && !o->must_go)
            return o;
    }
    return NULL;
}

static void send_away(struct observer *o, const struct error *err)
{
    o->must_go = true;
    o->err = *err;
    o->wake(o);
}

static void begin_episode(struct training *t)
{
    struct error err;

    for (uint32_t row = 0; row < t->config.n_observers; row++) {
        struct observer *o = at_row(t, row);

        if (take_part(t, o, &err) == STATUS_OK)
            continue;
        send_away(o, &err);
        leave_all(t);
        return;
    }
    training_move(t, TRAINING_ROLLOUT);
    widen(t);
    (void)uv_timer_stop(&t->timer); /* cannot fail */
    t->begun_us = env_now_us(t->model->env);
    t->event.episode++;
    for (size_t i = 0; i < t->config.n_observers; i++) {
        struct observer *o = t->participants[i].observer;

        o->episode = ++t->all->n_episodes;
        o->order = (struct episode_order){
            .episode = o->episode,
            .n_steps = t->config.n_steps,
            .gamma = t->config.gamma,
            .seed = t->config.seed,
        };
        o->has_order = true;
        o->wake(o);
    }
}

/* Begins if every row has an idle observer. */
static void look_for_observers(struct training *t)
{
    if (t == NULL || t->state != TRAINING_WAITING)
        return;
    for (uint32_t row = 0; row < t->config.n_observers; row++) {
        const struct observer *o = at_row(t, row);

        if (o == NULL || o->episode != 0)
            return;
    }
    begin_episode(t);
}

static void on_timer(uv_timer_t *timer)
{
    struct training *t = timer->data;
    uint32_t n = 0;

    for (uint32_t row = 0; row < t->config.n_observers; row++)
        n += at_row(t, row) != NULL;
    (void)error_set(&t->err, STATUS_DEADLINE, "%u of %u observers were attached within %u ms", n,
                    t->config.n_observers, t->config.timeout_ms);
    finish(t);
}

static void wait_for_observers(struct training *t)
{
    (void)uv_timer_start(&t->timer, on_timer, t->config.timeout_ms,
                         0); /* fails only when closing */
    look_for_observers(t);
}

/* --- the start of a training --- */

/* Whoever may connect may train, but writes only policies, and only beside the one that is served.
 */
static enum status check_save_path(const struct model *m, const char *path, struct error *err)
{
    const char *end = m->path != NULL ? strrchr(m->path, '/') : NULL;
    size_t folder = end != NULL ? (size_t)(end + 1 - m->path) : 0, len = strlen(path);

    if (path[0] == '\0')
        return STATUS_OK;
    if (m->agent->type->save_original == NULL)
        return error_field(err, "save_path", "is given, and the model cannot be saved");
    if (strncmp(path, m->path, folder) != 0 || strchr(path + folder, '/') != NULL ||
        len < folder + sizeof ".gguf" || strcmp(path + len - 5, ".gguf") != 0) {
        (void)error_field(err, "save_path",
                          "is '%.80s', it must be a .gguf file beside the model's own, in '%.*s'",
                          path, (int)folder, folder > 0 ? m->path : "./");
        return err->status = STATUS_DENIED;
    }
    return STATUS_OK;
}

static enum status check_config(const struct training *t, struct error *err)
{
    const struct training_config *c = &t->config;
    size_t most = t->model->batching.max_rows;

    if (c->n_observers == 0 || c->n_observers > most)
        return error_field(err, "observers", "is %u, it must be 1 to %zu, a batch's rows",
                           c->n_observers, most);
    if (c->n_episodes == 0 || c->n_episodes > EPISODES_MAX)
        return error_field(err, "episodes", "is %u, it must be 1 to %d", c->n_episodes,
                           EPISODES_MAX);
    if (c->n_steps == 0 || c->n_steps > EPISODE_MAX_STEPS)
        return error_field(err, "n_steps", "is %u, it must be 1 to %d", c->n_steps,
                           EPISODE_MAX_STEPS);
    if (!(c->gamma > 0 && c->gamma <= 1))
        return error_field(err, "gamma", "is %g, it must be above 0 and at most 1",
                           (double)c->gamma);
    if (!(c->learn.learning_rate > 0 && c->learn.learning_rate < INFINITY))
        return error_field(err, "learning_rate", "is %g, it must be above 0",
                           (double)c->learn.learning_rate);
    return check_save_path(t->model, c->save_path, err);
}

enum status training_start(struct training *t, struct trainers *all, uv_loop_t *loop,
                           struct error *err)
{
    size_t n = t->config.n_observers;
    struct batcher_stats stats;
    enum status rc = check_learns(t->model, err);

    if (rc == STATUS_OK)
        rc = check_config(t, err);
    if (rc != STATUS_OK)
        return rc;
    if (training_of(all, t->model) != NULL)
        return error_set(err, STATUS_PRECONDITION, "model '%s' is being trained already",
                         t->model->name);
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
    list_push(&all->trainings, &t->link);
    (void)uv_timer_init(loop, &t->timer); /* cannot fail */
    t->timer.data = t;
    batcher_stats(t->model->batcher, &stats);
    t->n_actions_before = stats.n_done;
    t->n_forwards_before = stats.n_steps;
    t->model->agent->type->train(t->model->agent, true);
    wait_for_observers(t);
    return STATUS_OK;
}

/* --- observers --- */

static uint32_t free_row(const struct trainers *all, const struct model *model)
{
    uint32_t row = 0;
    struct link *l = list_first(&all->observers);

    while (l != NULL) {
        const struct observer *o = observer_of(l);

        l = list_next(&all->observers, l);
        if (o->model == model && o->row == row && !o->must_go) {
            row++;
            l = list_first(&all->observers);
        }
    }
    return row;
}

enum status observer_open(struct observer *o, struct trainers *all, struct error *err)
{
    enum status rc = check_learns(o->model, err);
    struct error taken;

    if (rc == STATUS_OK && o->env_id[0] == '\0')
        rc = error_field(err, "env_id", "is empty");
    if (rc == STATUS_OK && strlen(o->env_id) > ENV_ID_MAX_BYTES)
        rc = error_field(err, "env_id", "is longer than %d bytes", ENV_ID_MAX_BYTES);
    if (rc != STATUS_OK)
        return rc;
    for (struct link *l = list_first(&all->observers); l != NULL;
         l = list_next(&all->observers, l)) {
        struct observer *before = observer_of(l);

        if (before->model != o->model || before->must_go || strcmp(before->env_id, o->env_id) != 0)
            continue;
        (void)error_set(&taken, STATUS_ABORTED, "env_id '%.64s' has attached again", o->env_id);
        send_away(before, &taken);
    }
    o->all = all;
    o->row = free_row(all, o->model);
    list_push(&all->observers, &o->link);
    look_for_observers(training_of(all, o->model));
    return STATUS_OK;
}

static enum status check_result(const struct observer *o, const struct episode_result *r,
                                struct error *err)
{
    const struct participant *p = o->participant;
    size_t n_steps = p->training->config.n_steps;
    struct clone *c = session_clone(p->hold.session);
    struct clone_info info = {0};

    if (r->n_returns != n_steps)
        return error_field(err, "returns", "has %zu numbers for %zu steps", r->n_returns, n_steps);
    for (size_t i = 0; i < n_steps; i++)
        if (!isfinite(r->returns[i]))
            return error_field(err, "returns", "[%zu] is no number", i);
    if (!isfinite(r->reward))
        return error_field(err, "reward", "is no number");
    c->agent->type->clone_info(c, &info);
    if (info.n_recorded != n_steps || session_is_asking(p->hold.session))
        return error_field(err, "returns", "came after %zu of %zu steps", info.n_recorded, n_steps);
    return STATUS_OK;
}

enum status observer_result(struct observer *o, const struct episode_result *r, struct error *err)
{
    struct participant *p = o->participant;
    enum status rc;

    if (o->episode == 0 || r->episode != o->episode)
        return error_field(err, "episode", "is %llu, the one that was asked for is %llu",
                           (unsigned long long)r->episode, (unsigned long long)o->episode);
    if (p != NULL && !r->has_failed) {
        rc = check_result(o, r, err);
        if (rc != STATUS_OK)
            return rc;
        memcpy(p->training->returns + o->row * p->training->config.n_steps, r->returns,
               r->n_returns * sizeof(r->returns[0]));
        p->reward = r->reward;
    }
    o->episode = 0;
    if (p != NULL)
        close_participant(p, !r->has_failed);
    else
        look_for_observers(training_of(o->all, o->model));
    return STATUS_OK;
}

void observer_close(struct observer *o)
{
    struct trainers *all = o->all;

    list_remove(&o->link);
    if (o->participant != NULL) {
        struct participant *p = o->participant;

        p->observer = NULL;
        o->participant = NULL;
        close_participant(p, false);
    }
    maybe_quiet(all);
}
