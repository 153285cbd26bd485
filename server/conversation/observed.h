/* Turns without a reply. Their messages wait in the chain of completed turns. In the next turn with
 * a reply the agent observes the waiting messages before the turn's own messages. So the prompt is
 * the same, token for token, as the prompt of one turn with all messages. The clone has only turns
 * with replies. All functions are called on the loop. */
#ifndef SERVER_CONVERSATION_OBSERVED_H
#define SERVER_CONVERSATION_OBSERVED_H

#include "server/conversation/completed_turn.h"

/* The most messages that may wait for a turn with a reply, since that turn observes them on the
 * loop.
 */
enum { OBSERVED_MAX_MESSAGES = 4096 };

/* Makes, as completed_turn_open does, a completed turn without a reply behind newest; NULL: the
 * chain is empty. PRECONDITION if too many messages wait. */
enum status observed_keep(struct completed_turn **out, struct completed_turn *newest,
                          struct stored_request *request, struct error *err) MUST_CHECK;

/* Sets the messages of seen to the messages that wait at newest and the messages of the request.
 * They lie in arena and in the turns. PRECONDITION for a raw prompt behind messages that wait. */
enum status observed_gather(struct observation *seen, const struct completed_turn *newest,
                            const struct stored_request *request, struct arena *arena,
                            struct error *err) MUST_CHECK;

/* Returns how many turns up to newest have a reply, which is the number of turns of the clone.
 * newest may be NULL. */
uint32_t observed_n_acted(const struct completed_turn *newest);

#endif
