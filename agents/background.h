/* A thread for long work that is no step: jobs run one after the other, in order. */
#ifndef AGENTS_BACKGROUND_H
#define AGENTS_BACKGROUND_H

#include "base/status.h"

struct job;

struct agent_background {
    /* job->done is called once on the loop, never inside this call. On failure nothing has
     * happened. Loop. */
    enum status (*submit)(void *self, struct job *job, struct error *err);
    void *self;
};

#endif
