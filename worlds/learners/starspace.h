/* Starspace (agents/starspace/) as a participant of worlds. What it hears with `labels` it learns,
 * each thread on the shared vectors, and replies with its loss and the label's rank among wrong
 * ones; otherwise it ranks the act's label_candidates, or its own. */
#ifndef WORLDS_LEARNERS_STARSPACE_H
#define WORLDS_LEARNERS_STARSPACE_H

#include "agents/starspace/starspace.h"
#include "worlds/participant/listener.h"
#include "worlds/participant/participant.h"

struct starspace_participant_config {
    struct dialogue_listener_config listener; /* its coder is filled in here */
    bool learns;                              /* false: labels are ignored */
    struct starspace_learn_config learn;
    const char *opening; /* reply of a clone without an observation; NULL: an error */
};

/* ParlAI's defaults. */
void starspace_participant_config_init(struct starspace_participant_config *c);

/* Takes s, also on failure. STATUS_INVALID names the number that is out of bounds. */
enum status starspace_participant_open(struct participant **out, struct starspace *s,
                                       const struct starspace_participant_config *config,
                                       struct error *err) MUST_CHECK;
struct starspace *starspace_participant_space(const struct participant *p);
/* Its first thread's; NULL unless it learns. */
struct starspace_learner *starspace_participant_learner(const struct participant *p);
/* Hears what has labels, and learns nothing from it, in all its threads; between two parleys. */
void starspace_participant_pause(struct participant *p, bool is_paused);

#endif
