/* A lesson is one step of a policy's optimiser, on the compute thread, with steps of environments
 * that the caller sends. This module knows nothing of gRPC. All functions are called on the loop.
 */
#ifndef SERVER_ACT_LESSON_H
#define SERVER_ACT_LESSON_H

#include "agents/agent.h"
#include "base/arena.h"
#include "base/worker.h"

struct model;
struct trainers;

/* A lesson. The caller zeroes the lesson and fills the members before job. The arena holds
 * everything that the lesson points to. */
struct act_lesson {
    struct model *model;
    struct learn_config config;
    bool is_of_transitions;
    struct learn_trajectories trajectories; /* what is learned from, unless is_of_transitions */
    struct learn_transitions transitions;   /* what is learned from with is_of_transitions */
    const char *save_path;                  /* "": the policy is not saved */
    struct arena arena;
    /* Called once, later. From then on the lesson is the caller's again. */
    void (*done)(struct act_lesson *l, const struct error *err);

    struct job job;
    struct learn_report report; /* as err, the compute thread's until the job is back */
    struct error err;
};

/* Starts the lesson. INVALID names the field of ActLearnRequest that is at fault; PRECONDITION if
 * the model does not learn from such steps, or is being trained; UNAVAILABLE. */
enum status act_lesson_start(struct act_lesson *l, const struct trainers *trainers,
                             struct error *err) MUST_CHECK;

#endif
