/* Turns without a reply: their messages wait in the chain of completed turns. In the next turn with
 * a reply the agent observes them before the turn's own messages, so the prompt is the same, token
 * for token, as that of one turn with all messages. The clone has only turns with replies. Loop. */
#ifndef SERVER_CONVERSATION_OBSERVED_H
#define SERVER_CONVERSATION_OBSERVED_H

#include "server/conversation/completed_turn.h"

/* Messages that may wait for a turn that acts: one observes them on the loop. */
enum { OBSERVED_MAX_MESSAGES = 4096 };

/* Completes a turn without a reply, the one after newest (NULL: none). As completed_turn_open.
 * STATUS_PRECONDITION if too many messages wait. */
enum status observed_keep(struct completed_turn **out, struct completed_turn *newest,
                          struct stored_request *request, struct error *err) MUST_CHECK;

/* Sets the messages of seen: those that wait at newest, and the request's. They lie in arena and in
 * the turns. STATUS_PRECONDITION for a raw prompt behind messages that wait. */
enum status observed_gather(struct observation *seen, const struct completed_turn *newest,
                            const struct stored_request *request, struct arena *arena,
                            struct error *err) MUST_CHECK;

/* How many of the turns up to newest (NULL: none) acted: what the clone counts. */
uint32_t observed_n_acted(const struct completed_turn *newest);

#endif
