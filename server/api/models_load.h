/* A call of any service that waits for a model to be loaded or unloaded. */
#ifndef SERVER_API_MODELS_LOAD_H
#define SERVER_API_MODELS_LOAD_H

#include "server/call/call.h"

/* Each calls then when it is done, at once if it is so already, or ends the call with the error.
 * name lives as long as the call, which has no handler. A call that ends early does not stop what
 * it has begun. */
void models_call_load(struct call *call, const char *name, void (*then)(struct call *call));
void models_call_unload(struct call *call, const char *name, void (*then)(struct call *call));
/* The model is loaded for a call that names it (models_want). */
void models_call_want(struct call *call, const char *name, void (*then)(struct call *call));

#endif
