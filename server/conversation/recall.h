/* Restores a conversation from the journal. Its agent takes in the stored replies without computing
 * them. Loop. */
#ifndef SERVER_CONVERSATION_RECALL_H
#define SERVER_CONVERSATION_RECALL_H

#include "server/conversation/body.h"
#include "server/conversation/conversation.h"
#include "server/journal/store.h"

/* Opens the conversation that was found, for its principal. Where its model is not ready it has a
 * stand-in until that is. DATA_LOSS if what was stored is not correct. */
enum status conversation_recall(struct conversation **out, struct conversations *all,
                                uint32_t principal, const struct journal_found *found,
                                struct error *err) MUST_CHECK;

/* For import.c. The clone observes the turn, and takes in its reply. */
enum status recall_turn(struct turn_host *h, const struct stored_request *request,
                        const struct body_finish *finish, struct error *err) MUST_CHECK;
/* For another model the ids that were generated mean nothing: its own ids of the reply's text, in
 * the arena, for an agent that has tokens. Kinds without them have a trace that is not the model's,
 * e.g. the text itself. */
enum status recall_retrace(struct body_finish *finish, const struct agent *a, struct arena *arena,
                           struct error *err) MUST_CHECK;

#endif
