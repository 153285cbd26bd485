/* Instructions of Responses: a conversation's own, or a message of the system that a turn has
 * before its input. Loop. */
#ifndef SERVER_API_OPENAI_INSTRUCTIONS_H
#define SERVER_API_OPENAI_INSTRUCTIONS_H

#include "agents/message.h"

struct completed_turn;
struct conversation;

/* The message of the system that comes first, borrowed; len 0: another comes first. */
struct text instructions_head(const struct message *messages, size_t n);

/* Those that hold behind the turn newest (NULL: before the first), borrowed: of the last turn that
 * has such a message, else the conversation's own. is_of_named: requests have named the
 * conversation. Else the first turn's instructions are the conversation's own, and a message of the
 * system that comes first there is input. */
struct text instructions_behind(const struct conversation *c, const struct completed_turn *newest,
                                bool is_of_named);

#endif
