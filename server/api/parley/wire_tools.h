/* Tools of a turn, and what messages have of them. */
#ifndef SERVER_API_PARLEY_WIRE_TOOLS_H
#define SERVER_API_PARLEY_WIRE_TOOLS_H

#include "parley/v1/conversations.pb-c.h"

#include "base/arena.h"
#include "server/conversation/completed_turn.h"

struct reply_format;

/* The request's tools, their choice and its reasoning, for a reply of a model with this format
 * (NULL: none). A constraint that they need is put into out's overrides. */
enum status wire_tools(struct turn_request *out, const Parley__V1__TurnRequest *from,
                       const struct reply_format *format, struct arena *arena,
                       struct error *err) MUST_CHECK;

/* The extras of the request's i-th message. */
enum status wire_extras(struct message *out, const Parley__V1__TurnRequest *from, size_t i,
                        struct arena *arena, struct error *err) MUST_CHECK;

/* And back. EXHAUSTED without memory. */
enum status wire_fill_extras(Parley__V1__Message *out, const struct message *m,
                             struct arena *arena) MUST_CHECK;

#endif
