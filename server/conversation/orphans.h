/* Orphans are conversations with a turn that did not end and that no daemon goes on with, because
 * its daemon has ended. This daemon takes them over and goes on, though nobody asks. All functions
 * are called on the loop. */
#ifndef SERVER_CONVERSATION_ORPHANS_H
#define SERVER_CONVERSATION_ORPHANS_H

#include "server/conversation/conversations.h"
#include "server/journal/store.h"

/* Begins to read the orphan, unless it is being read, and then goes on with its turn. conversations
 * is a struct conversations: the function is orphan of struct journal_sharing. */
void orphans_take(void *conversations, const struct journal_orphan *orphan);
/* Ends all that orphans_take began. */
void orphans_leave(struct conversations *all);

#endif
