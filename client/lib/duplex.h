/* A bidirectional stream whose messages come by callbacks, for the programs of this tree. It does
 * not begin again: its caller opens another one, and knows where it goes on. */
#ifndef CLIENT_LIB_DUPLEX_H
#define CLIENT_LIB_DUPLEX_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/lib/parley.h"

/* On the channel's thread. A message is read once the one before it has been taken, so a function
 * that waits lets the server wait. */
struct duplex_events {
    void (*message)(void *arg, const void *data, size_t len); /* data is valid until it returns */
    void (*end)(void *arg, const struct parley_error *err);   /* the last */
    void *arg;
};

/* Begins the stream, which waits for a server that does not listen yet; parley_call_cancel ends it.
 * method is static. The caller calls parley_call_unref. NULL: there is no memory. */
struct parley_call *duplex_start(struct parley_channel *channel, const char *method,
                                 const struct duplex_events *events);
/* Sends a message after those before it. False: the stream is over, or there is no memory. Any
 * thread. */
bool duplex_send(struct parley_call *call, const ProtobufCMessage *message);

#endif
