/* Models that are fetched from the hub while the daemon serves. What was fetched is known to the
 * daemon from then on, and is not loaded. All functions are called on the loop. */
#ifndef SERVER_MODEL_PULLS_H
#define SERVER_MODEL_PULLS_H

#include "base/fetch/pull.h"
#include "base/status.h"

struct model_pull_job;
struct models;

enum { MODEL_PULLS_MAX = 4 };

/* A wait for a pull, in the caller's memory until done is called, or model_pull_leave is. */
struct model_pull {
    struct model_pull_job *job;
    /* Called often, never inside a function of this header; may not leave. */
    void (*progress)(struct model_pull *w, const struct pull_progress *now);
    /* Called once, never inside model_pull_start. served is the name under which the model can be
     * loaded; NULL with an error. */
    void (*done)(struct model_pull *w, const char *served, const struct error *err);
};

/* Begins to fetch the model of a name of the hub (base/fetch/model_name.h). EXISTS where a model
 * that is not of the same repository has the name that it would be served by; EXHAUSTED while
 * MODEL_PULLS_MAX are fetched; PRECONDITION with --offline. */
enum status model_pull_start(struct model_pull *w, struct models *r, const char *text,
                             struct error *err) MUST_CHECK;
/* Ends the pull: done is called soon, with CANCELLED unless it is over by then. What was received
 * is kept in the cache. This and the next do nothing if w does not wait. */
void model_pull_cancel(struct model_pull *w);
/* The same, and done is not called. */
void model_pull_leave(struct model_pull *w);

/* Ends all pulls, with CANCELLED. models->n_pulls is 0 once they are over, which on_idle tells. */
void model_pulls_end(struct models *r);

#endif
