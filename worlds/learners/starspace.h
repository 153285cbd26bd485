/* Starspace (agents/starspace/) as a participant of worlds. From an act with `labels` it learns,
 * and replies with the loss and the label's rank among wrong labels (mean_rank). Any other act it
 * answers with a ranking of the act's label_candidates, or of its own candidates if the act has
 * none. All threads of a world learn on the same vectors. */
#ifndef WORLDS_LEARNERS_STARSPACE_H
#define WORLDS_LEARNERS_STARSPACE_H

#include "agents/starspace/starspace.h"
#include "worlds/participant/listener.h"
#include "worlds/participant/participant.h"

struct starspace_participant_config {
    struct dialogue_listener_config listener; /* starspace_participant_open fills in the coder */
    bool learns;                              /* false: labels are ignored */
    struct starspace_learn_config learn;      /* used if it learns; each thread gets its number */
    const char *opening; /* reply of a clone that has observed nothing; NULL: such a turn fails */
};

/* Sets ParlAI's defaults: rate 0.1, margin 0.1, 10 negatives, a cache of 1000; learns is false. */
void starspace_participant_config_init(struct starspace_participant_config *c);

/* Takes s, also on failure. STATUS_INVALID names the number that is out of bounds; EXHAUSTED. */
enum status starspace_participant_open(struct participant **out, struct starspace *s,
                                       const struct starspace_participant_config *config,
                                       struct error *err) MUST_CHECK;
/* Return the original, and the learner of the first thread (NULL: it does not learn); borrowed. p
 * was made by starspace_participant_open. */
struct starspace *starspace_participant_space(const struct participant *p);
struct starspace_learner *starspace_participant_learner(const struct participant *p);
/* While paused, the participant observes acts with `labels` but does not learn from them, in any
 * thread, and its replies to them have neither text nor metrics. Call it between two parleys. */
void starspace_participant_pause(struct participant *p, bool is_paused);

#endif
