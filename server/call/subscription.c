#include "server/call/subscription.h"

void subscription_start(struct subscription *s, struct call *call,
                        const struct call_handler *handler)
{
    s->call = call;
    call_set_handler(call, handler, s);
    call_notify(call);
}

void subscription_end(struct subscription *s, const struct error *err)
{
    if (!s->is_over)
        call_finish(s->call, err);
    s->is_over = true;
}

void subscription_drain(struct call *call, void *state)
{
    struct error err;

    (void)error_draining(&err);
    subscription_end(state, &err);
}
