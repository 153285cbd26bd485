/* Converts the tools of a turn, and the calls and results of tools in messages. */
#ifndef SERVER_API_PARLEY_WIRE_TOOLS_H
#define SERVER_API_PARLEY_WIRE_TOOLS_H

#include "parley/v1/conversations.pb-c.h"

#include "base/arena.h"
#include "server/conversation/completed_turn.h"

struct reply_format;

/* Reads the request's tools, their choice and the reasoning that is asked for. format is the reply
 * format of the model, or NULL where the model has none. A constraint that the tools need is put
 * into out's overrides. */
enum status wire_tools(struct turn_request *out, const Parley__V1__TurnRequest *from,
                       const struct reply_format *format, struct arena *arena,
                       struct error *err) MUST_CHECK;

/* Reads the extras of the request's i-th message. */
enum status wire_extras(struct message *out, const Parley__V1__TurnRequest *from, size_t i,
                        struct arena *arena, struct error *err) MUST_CHECK;

/* Puts a message's extras into the wire's message. EXHAUSTED without memory. */
enum status wire_fill_extras(Parley__V1__Message *out, const struct message *m,
                             struct arena *arena) MUST_CHECK;

#endif
