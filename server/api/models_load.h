/* A call of any service that waits for a model to be loaded or unloaded. */
#ifndef SERVER_API_MODELS_LOAD_H
#define SERVER_API_MODELS_LOAD_H

#include "server/call/call.h"

/* Answers by reply once it is done, or ends the call with the error. name lives as long as the
 * call. A call that ends early does not stop the load or unload. */
typedef void (*models_reply_fn)(struct call *call, struct server *server, const char *name);

void models_call_load(struct call *call, struct server *server, const char *name,
                      models_reply_fn reply);
void models_call_unload(struct call *call, struct server *server, const char *name,
                        models_reply_fn reply);

/* For a call that names a model: then, with its message, at once or when the model has been loaded
 * for it (models_want); or the call ends with the error. For calls that set no handler. */
typedef void (*models_then_fn)(struct call *call, const ProtobufCMessage *message,
                               struct server *server);

void models_call_want(struct call *call, struct server *server, const char *name,
                      const ProtobufCMessage *message, models_then_fn then);

#endif
