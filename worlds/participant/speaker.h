/* A speaker is an agent that takes messages and answers with text (echo, or a plug-in), as a
 * participant of worlds. A clone is one conversation. The text of each observation is a message of
 * the user; the messages that a clone hears between two of its own acts make one turn. The agent
 * keeps its state until the episode is over. It has no tokens, so it scores no labels. */
#ifndef WORLDS_PARTICIPANT_SPEAKER_H
#define WORLDS_PARTICIPANT_SPEAKER_H

#include "agents/agent.h"
#include "worlds/participant/participant.h"

struct speaker_config {
    const struct agent_type *type;
    struct agent_config agent; /* its texts are borrowed as long as the participant lives */
    const char *system;        /* system prompt; NULL: none */
    bool hears_names;          /* the name of who said it stands before a message */
    bool learns;               /* the agent gets an act's labels */
    const char *opening;       /* reply of a clone that has observed nothing; NULL: it fails */
    struct sampling sampling;  /* each clone draws by a seed of its own: this one plus its index */
};

/* Returns the agent; borrowed. p was made by speaker_open. */
struct agent *speaker_agent(struct participant *p);
/* Opens the agent. In a world of several threads each thread but the first opens an agent of its
 * own. Errors are those of agent_open_type. */
enum status speaker_open(struct participant **out, const struct speaker_config *config,
                         struct error *err) MUST_CHECK;

#endif
