/* How the methods Turn, Ask and Chat begin a turn. */
#ifndef SERVER_API_PARLEY_TURN_BEGIN_H
#define SERVER_API_PARLEY_TURN_BEGIN_H

#include "parley/v1/conversations.pb-c.h"

#include "base/arena.h"
#include "server/conversation/conversations.h"

struct call;
struct turn_parts;
struct turn_reader;

/* Queues the request's turn in its conversation, as conversation_turn does, and fails as that does.
 * call is the call that the request came on; the decoded request lies in the arena. Sets *out to
 * the conversation, and parts to how the reply's text is divided. */
enum status turn_begin(struct conversation **out, struct call *call,
                       const Parley__V1__TurnRequest *request, struct arena *arena,
                       struct turn_reader *reader, struct turn_parts *parts,
                       struct error *err) MUST_CHECK;

#endif
