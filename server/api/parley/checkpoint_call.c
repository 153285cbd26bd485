#include "server/api/parley/checkpoint_call.h"

#include <stdlib.h>

static void on_checkpoint_kept(struct kept_wait *w, const struct error *err)
{
    checkpoint_call_end(container_of(w, struct checkpoint_call, wait), err);
}

static void checkpoint_call_on_close(struct call *call, void *state, enum status why)
{
    struct checkpoint_call *c = state;

    kept_leave(&c->wait);
    free(c);
}

struct checkpoint_call *checkpoint_call_make(struct call *call, const ProtobufCMessage *response)
{
    static const struct call_handler handler = {.on_close = checkpoint_call_on_close};
    struct checkpoint_call *c = call_state(call, sizeof(*c));

    if (c == NULL)
        return NULL;
    c->call = call;
    c->wait.done = on_checkpoint_kept;
    c->response = response;
    call_set_handler(call, &handler, c);
    return c;
}

void checkpoint_call_end(struct checkpoint_call *c, const struct error *err)
{
    if (err->status != STATUS_OK)
        call_finish(c->call, err);
    else
        call_reply(c->call, c->response);
}
