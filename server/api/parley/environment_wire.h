/* The messages between Agents.Attach and a worker that hosts environments. */
#ifndef SERVER_API_PARLEY_ENVIRONMENT_WIRE_H
#define SERVER_API_PARLEY_ENVIRONMENT_WIRE_H

#include "base/arena.h"
#include "parley/v1/agents.pb-c.h"
#include "server/environment/host.h"

/* Fills out, an initialised message, whose parts lie in arena or are the order's. EXHAUSTED. */
enum status environment_wire_order(Parley__V1__AgentsAttachResponse *out,
                                   const struct environment_host *h, const struct host_order *o,
                                   struct arena *arena, struct error *err) MUST_CHECK;

/* Points into the message. INVALID names the field. */
enum status environment_wire_answer(struct host_answer *out, const Parley__V1__AgentEnvResult *m,
                                    struct arena *arena, struct error *err) MUST_CHECK;

/* The one tensor of a field, which must be set; it bears the field's name, a constant. */
enum status environment_wire_tensor(struct tensor_view *out, Parley__V1__Tensor *m,
                                    const char *field, struct arena *arena,
                                    struct error *err) MUST_CHECK;

#endif
