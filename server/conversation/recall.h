/* A conversation as it was, from what the journal has of it. Its agent takes in what it said then,
 * without computing. Loop. */
#ifndef SERVER_CONVERSATION_RECALL_H
#define SERVER_CONVERSATION_RECALL_H

#include "server/conversation/conversation.h"
#include "server/journal/store.h"

/* Opens the conversation that was found, for its principal. *out is NULL, and it is closed, if its
 * time has passed. UNAVAILABLE while its model is not loaded, DATA_LOSS if what was stored is not
 * correct. */
enum status conversation_recall(struct conversation **out, struct conversations *all,
                                uint32_t principal, const struct journal_found *found,
                                struct error *err) MUST_CHECK;

#endif
