/* The messages between Agents.Attach and a worker that hosts environments. */
#ifndef SERVER_API_PARLEY_ENVIRONMENT_WIRE_H
#define SERVER_API_PARLEY_ENVIRONMENT_WIRE_H

#include "base/arena.h"
#include "parley/v1/agents.pb-c.h"
#include "server/environment/host.h"

/* Fills in an initialised message with an order to a host. Its parts lie in the arena or are the
 * order's. EXHAUSTED without memory. */
enum status environment_wire_order(Parley__V1__AgentsAttachResponse *out,
                                   const struct environment_host *h, const struct host_order *o,
                                   struct arena *arena, struct error *err) MUST_CHECK;

/* Reads a host's answer, which then points into the message. INVALID names the field. */
enum status environment_wire_answer(struct host_answer *out, const Parley__V1__AgentEnvResult *m,
                                    struct arena *arena, struct error *err) MUST_CHECK;

/* Reads the one tensor of a field. INVALID where the field is not set. The view's name is field, a
 * constant text. */
enum status environment_wire_tensor(struct tensor_view *out, Parley__V1__Tensor *m,
                                    const char *field, struct arena *arena,
                                    struct error *err) MUST_CHECK;

#endif
