/* The agent attached:NAME: a participant of worlds that a server computes, by a worker that is
 * attached or by any other model of that name. A clone is a conversation at the server, from the
 * clone's first observation to the end of the episode. All rows of a step are asked at once, so
 * that the server computes them in batches. */
#ifndef WORLDS_VERBS_ATTACHED_AGENT_H
#define WORLDS_VERBS_ATTACHED_AGENT_H

#include "base/status.h"
#include "client/cli/connection.h"

struct participant;

/* The participant borrows the texts as long as it lives. */
struct attached_agent_config {
    const char *name;    /* of the model */
    const char *system;  /* NULL: the model's own */
    const char *opening; /* reply of a clone that observed nothing; NULL: an error */
    float temperature;   /* 0: greedy */
    uint32_t max_tokens; /* of a reply; 0: the model's */
    uint64_t seed;       /* of the run; each clone's own seed follows from it */
};

/* Connects to the server. Several threads may use the participant. */
enum status attached_agent_open(struct participant **out,
                                const struct connection_options *connection,
                                const struct attached_agent_config *config,
                                struct error *err) MUST_CHECK;

#endif
