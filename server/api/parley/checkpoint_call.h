/* A call that is answered once a thing of the journal is kept: Checkpoint of Params, Replay and
 * Store. */
#ifndef SERVER_API_PARLEY_CHECKPOINT_CALL_H
#define SERVER_API_PARLEY_CHECKPOINT_CALL_H

#include "server/call/call.h"
#include "server/journal/keeper.h"

struct checkpoint_call {
    struct call *call;
    struct kept_wait wait;
    const ProtobufCMessage *response;
};

/* Makes the call wait: its wait is to be given to what keeps the thing. response is sent then; it
 * has no fields, and is static. NULL: there is no memory, and the call has ended. */
struct checkpoint_call *checkpoint_call_make(struct call *call, const ProtobufCMessage *response);
/* Ends the call: what was asked for is kept, or failed. */
void checkpoint_call_end(struct checkpoint_call *c, const struct error *err);

#endif
