/* An agent that takes messages and answers with text, as a participant of worlds: echo, or a
 * plug-in. A clone is one conversation: each observation's text is a message of the user's, what it
 * hears between two of its acts is one turn, and the agent keeps its state until the episode is
 * over. It has no tokens, so it gives no scores. */
#ifndef WORLDS_PARTICIPANT_SPEAKER_H
#define WORLDS_PARTICIPANT_SPEAKER_H

#include "agents/agent.h"
#include "worlds/participant/participant.h"

struct speaker_config {
    const struct agent_type *type;
    struct agent_config agent; /* texts are borrowed as long as the participant lives */
    const char *system;        /* NULL: none */
    const char *opening;       /* reply of a clone that observed nothing; NULL: an error */
    struct sampling sampling;  /* each clone draws by a seed of its own */
};

/* Each thread but the first of a world opens an agent of its own. */
enum status speaker_open(struct participant **out, const struct speaker_config *config,
                         struct error *err) MUST_CHECK;

#endif
