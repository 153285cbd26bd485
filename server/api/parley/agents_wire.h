/* Converts the messages of Agents.Attach: orders to a worker, and the worker's answers. */
#ifndef SERVER_API_PARLEY_AGENTS_WIRE_H
#define SERVER_API_PARLEY_AGENTS_WIRE_H

#include "agents/remote/remote.h"
#include "base/arena.h"
#include "parley/v1/agents.pb-c.h"

/* Fills in an initialised message with an order. Its parts lie in the arena or are the order's.
 * EXHAUSTED without memory. */
enum status agents_wire_order(Parley__V1__AgentsAttachResponse *out, const struct remote_worker *w,
                              const struct remote_order *o, struct arena *arena,
                              struct error *err) MUST_CHECK;

/* Reads an offer, which then points into the message. INVALID names the field. */
enum status agents_wire_offer(struct remote_offer *out, const Parley__V1__AgentOffer *m,
                              struct error *err) MUST_CHECK;

/* Reads the answers of a step. *out [m->n_rows] lies in the arena and points into the message.
 * INVALID names the field; EXHAUSTED without memory. */
enum status agents_wire_result(struct remote_answer **out, const Parley__V1__AgentStepResult *m,
                               struct arena *arena, struct error *err) MUST_CHECK;

#endif
