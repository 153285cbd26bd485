/* A call that is answered once a thing of the journal is kept: Checkpoint of Params, of Replay and
 * of Store. Loop. */
#ifndef SERVER_API_PARLEY_CHECKPOINT_CALL_H
#define SERVER_API_PARLEY_CHECKPOINT_CALL_H

#include "server/call/call.h"
#include "server/journal/keeper.h"

struct checkpoint_call {
    struct call *call;
    struct kept_wait wait;
    const ProtobufCMessage *response;
};

/* Makes the call wait. The caller gives the result's wait to the keeper of the thing. response is
 * the answer; it is static and has no fields. Without memory the call has ended, and the result is
 * NULL.
 */
struct checkpoint_call *checkpoint_call_make(struct call *call, const ProtobufCMessage *response);
/* Ends the call, with OK once the thing is kept, or with err. */
void checkpoint_call_end(struct checkpoint_call *c, const struct error *err);

#endif
