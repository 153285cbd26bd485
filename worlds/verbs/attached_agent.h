/* An agent that a server serves, as a participant of worlds (the agent attached:NAME): a worker
 * that is attached, or any other model of that name. A clone is a conversation there, from its
 * first observation to the end of the episode. All rows of a step are asked at once, so that the
 * server computes them in batches. */
#ifndef WORLDS_VERBS_ATTACHED_AGENT_H
#define WORLDS_VERBS_ATTACHED_AGENT_H

#include "base/status.h"
#include "client/cli/connection.h"

struct participant;

/* Texts are borrowed as long as the participant lives. */
struct attached_agent_config {
    const char *name;    /* of the model */
    const char *system;  /* NULL: the model's own */
    const char *opening; /* reply of a clone that heard nothing; NULL: an error */
    float temperature;   /* 0: greedy */
    uint32_t max_tokens; /* of a reply; 0: the model's */
    uint64_t seed;       /* each clone draws by one of its own */
};

/* Connects. Threads share the participant. */
enum status attached_agent_open(struct participant **out,
                                const struct connection_options *connection,
                                const struct attached_agent_config *config,
                                struct error *err) MUST_CHECK;

#endif
