#include "server/act/lesson.h"

#include "server/act/trainer.h"
#include "server/model/model.h"

static void lesson_learn(struct job *job)
{
    struct act_lesson *l = container_of(job, struct act_lesson, job);
    struct agent *a = l->model->agent;

    if (l->is_of_transitions)
        (void)a->type->learning->learn_transitions(a, &l->transitions, &l->config, &l->report,
                                                   &l->err);
    else
        (void)a->type->learning->learn_trajectories(a, &l->trajectories, &l->config, &l->report,
                                                    &l->err);
    if (l->err.status != STATUS_OK || l->save_path[0] == '\0')
        return;
    if (a->type->learning->save(a, l->save_path, &l->err) != STATUS_OK)
        (void)error_prefix(&l->err, "save_path '%.80s'", l->save_path);
}

static void lesson_learned(struct job *job)
{
    struct act_lesson *l = container_of(job, struct act_lesson, job);

    model_tell_loss(l->model);
    model_release(l->model);
    l->done(l, &l->err);
}

enum status act_lesson_start(struct act_lesson *l, const struct trainers *trainers,
                             struct error *err)
{
    struct model *m = l->model;

    if (model_check_ready(m, err) != STATUS_OK)
        return err->status;
    if (m->agent->type->learning == NULL || m->agent->type->learning->learn_trajectories == NULL)
        return error_because(err, STATUS_PRECONDITION, REASON_MODEL_UNSUITABLE, "model",
                             "model '%s' is of kind '%s', which cannot be trained", m->name,
                             m->agent->type->name);
    if (trainers_are_training(trainers, m))
        return error_because(err, STATUS_PRECONDITION, REASON_MODEL_IN_TRAINING, "model",
                             "model '%s' is being trained", m->name);
    if (trainers_check_save_path(m, l->save_path, err) != STATUS_OK)
        return err->status;
    model_hold(m);
    l->job = (struct job){.run = lesson_learn, .done = lesson_learned};
    model_run(m, &l->job);
    return STATUS_OK;
}
