/* The snapshot at the beginning of a watch: the principal's conversations in memory, newest first.
 * The snapshot is read one conversation at a time, and is never in memory as a whole. A
 * conversation that closes before the snapshot reaches it is left out. A conversation that opens
 * meanwhile is in the events behind the snapshot. All functions are called on the loop. */
#ifndef SERVER_CONVERSATION_SNAPSHOT_H
#define SERVER_CONVERSATION_SNAPSHOT_H

#include "server/conversation/conversations.h"

/* Finds where the snapshot of a watcher goes on, by the watcher's place. Called once, after
 * watcher_open. A place inside a snapshot is looked for among the newer conversations. */
void snapshot_begin(const struct conversations *all, struct watcher *w);

/* Returns the next conversation, and moves the watcher's place. NULL if there is no further one. */
const struct conversation *snapshot_next(struct watcher *w);

/* Says that the snapshot is complete: the watcher is synced. */
void snapshot_end(struct watcher *w);

#endif
