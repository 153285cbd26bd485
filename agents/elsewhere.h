/* The facet of kinds of agents whose steps are computed elsewhere, for example by another process.
 * It stands in place of act and batch_act. Such a kind does not learn, since learning needs a
 * compute thread that is free of steps. All functions run on the loop, and each may call the step's
 * done before it returns. */
#ifndef AGENTS_ELSEWHERE_H
#define AGENTS_ELSEWHERE_H

struct agent;
struct batch_step;

struct agent_elsewhere {
    /* Starts to compute the step. step->done(step) is called once, when the step ends. */
    void (*begin)(struct agent *a, struct batch_step *step);
    /* Optional: a turn of the running step was cancelled. The step may end soon, with ROW_MORE for
     * the rows that are not finished. */
    void (*interrupt)(struct agent *a, struct batch_step *step);
    /* Ends the running step early: done is called soon, with the outcomes so far. */
    void (*abort)(struct agent *a, struct batch_step *step);
};

#endif
