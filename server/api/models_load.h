/* A call of any service that waits for a model to be loaded or unloaded. */
#ifndef SERVER_API_MODELS_LOAD_H
#define SERVER_API_MODELS_LOAD_H

#include "server/rpc/call.h"

/* Answers by reply once it is done, or ends the call with the error. name lives as long as the
 * call. A call that ends early does not stop the load or unload. */
typedef void (*models_reply_fn)(struct call *call, struct server *server, const char *name);

void models_call_load(struct call *call, struct server *server, const char *name,
                      models_reply_fn reply);
void models_call_unload(struct call *call, struct server *server, const char *name,
                        models_reply_fn reply);

#endif
