/* The agent attached:NAME: a participant of worlds that a server computes, by a worker that is
 * attached or by any other model of that name. A worker that takes whole acts gets a world's batch
 * at once (attached_acts.h). For all others a clone is a conversation at the server, from the
 * clone's first observation to the end of the episode; all rows of a step are asked at once, so
 * that the server computes them in batches, and they get texts alone. */
#ifndef WORLDS_VERBS_ATTACHED_AGENT_H
#define WORLDS_VERBS_ATTACHED_AGENT_H

#include "worlds/verbs/attached_acts.h"

/* Connects to the server. Several threads may use the participant. */
enum status attached_agent_open(struct participant **out,
                                const struct connection_options *connection,
                                const struct attached_agent_config *config,
                                struct error *err) MUST_CHECK;

#endif
