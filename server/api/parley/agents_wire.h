/* Agents.Attach's messages: orders to a worker as messages, its answers as structs. */
#ifndef SERVER_API_PARLEY_AGENTS_WIRE_H
#define SERVER_API_PARLEY_AGENTS_WIRE_H

#include "agents/remote/remote.h"
#include "base/arena.h"
#include "parley/v1/agents.pb-c.h"

/* Fills out, an initialised message, whose parts lie in arena or are the order's. EXHAUSTED. */
enum status agents_wire_order(Parley__V1__AgentsAttachResponse *out, const struct remote_worker *w,
                              const struct remote_order *o, struct arena *arena,
                              struct error *err) MUST_CHECK;

/* Points into the message. INVALID names the field. */
enum status agents_wire_offer(struct remote_offer *out, const Parley__V1__AgentOffer *m,
                              struct error *err) MUST_CHECK;

/* *out[m->n_rows] lies in arena and points into the message. INVALID, EXHAUSTED. */
enum status agents_wire_result(struct remote_answer **out, const Parley__V1__AgentStepResult *m,
                               struct arena *arena, struct error *err) MUST_CHECK;

#endif
