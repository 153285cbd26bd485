#include "client/lib/duplex.h"

#include "client/lib/parts.h"

struct duplex {
    struct parley_call base;
    struct duplex_events events;
};

static enum status on_duplex_message(struct parley_call *call, const void *data, size_t len,
                                     struct error *err)
{
    const struct duplex *d = (const struct duplex *)call;

    d->events.message(d->events.arg, data, len);
    return STATUS_OK;
}

static void on_duplex_end(struct parley_call *call, const struct parley_error *err)
{
    const struct duplex *d = (const struct duplex *)call;

    d->events.end(d->events.arg, err);
}

struct parley_call *duplex_start(struct parley_channel *channel, const char *method,
                                 const struct duplex_events *events)
{
    static const struct call_kind kind = {true, on_duplex_message, on_duplex_end, NULL};
    const struct call_start how = {.method = method, .is_bidi = true, .waits_for_server = true};
    struct duplex *d = (struct duplex *)parley_call_make(sizeof(*d), &kind);

    if (d == NULL)
        return NULL;
    d->events = *events;
    parley_call_start(channel, &d->base, &how);
    return &d->base;
}

bool duplex_send(struct parley_call *call, const ProtobufCMessage *message)
{
    return parley_call_send(call, message);
}
