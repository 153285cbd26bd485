/* The snapshot at the beginning of a watch: the principal's open conversations, newest first, one
 * at a time, never all in memory. Conversations that close before they are reached are left out.
 * Those that open meanwhile are in the events that follow. Loop. */
#ifndef SERVER_CONVERSATION_SNAPSHOT_H
#define SERVER_CONVERSATION_SNAPSHOT_H

#include "server/conversation/conversations.h"

/* Finds where the snapshot of a watcher goes on, by its place; once, after watcher_open. A place
 * inside a snapshot is looked for among the newer conversations. */
void snapshot_begin(const struct conversations *all, struct watcher *w);

/* The next conversation; NULL when the snapshot is complete, and then the watcher is synced. Moves
 * the watcher's place. */
const struct conversation *snapshot_next(struct watcher *w);

#endif
