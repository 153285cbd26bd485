/* One step of a policy's optimiser from steps that the caller has, on the compute thread. Knows
 * nothing of gRPC. Loop. */
#ifndef SERVER_ACT_LESSON_H
#define SERVER_ACT_LESSON_H

#include "agents/agent.h"
#include "base/arena.h"
#include "base/worker.h"

struct model;
struct trainers;

/* Zeroed but for what stands before job. Its arena holds all that it points to. */
struct act_lesson {
    struct model *model;
    struct learn_config config;
    bool is_of_transitions;
    struct learn_trajectories trajectories; /* one of both */
    struct learn_transitions transitions;
    const char *save_path; /* "": not saved */
    struct arena arena;
    /* Called once, later; then the lesson is the caller's again. */
    void (*done)(struct act_lesson *l, const struct error *err);

    struct job job;
    struct learn_report report; /* the compute thread's until the job is back, as err */
    struct error err;
};

/* INVALID names the field of ActLearnRequest; PRECONDITION for a model that does not learn so, or
 * is being trained; UNAVAILABLE. */
enum status act_lesson_start(struct act_lesson *l, const struct trainers *trainers,
                             struct error *err) MUST_CHECK;

#endif
