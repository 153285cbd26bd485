/* A call that waits for a model to be loaded or unloaded, whichever service it came by. */
#ifndef SERVER_REPOSITORY_CALL_H
#define SERVER_REPOSITORY_CALL_H

#include "server/call.h"

/* Answers by reply once it is done, or ends the call with what went wrong. name lives as long as
 * the call. A call that goes away changes nothing of what was begun. */
typedef void (*repository_reply_fn)(struct call *call, struct daemon *d, const char *name);

void repository_call_load(struct call *call, struct daemon *d, const char *name,
                          repository_reply_fn reply);
void repository_call_unload(struct call *call, struct daemon *d, const char *name,
                            repository_reply_fn reply);

#endif
