/* A transport that carries a call in memory: what the methods of services are given and what they
 * answer, without gRPC and without a network. */
#ifndef TESTS_UNIT_SERVER_CALL_MEMORY_CALL_H
#define TESTS_UNIT_SERVER_CALL_MEMORY_CALL_H

#include "server/call/transport.h"

enum { MEMORY_MAX_MESSAGES = 16 };

struct memory_call {
    struct call base;
    struct owner_thread owner;
    size_t n_unawaited;
    ProtobufCMessage *messages[MEMORY_MAX_MESSAGES]; /* [n_messages] that were written, decoded */
    size_t n_messages;
    bool is_full; /* it takes no message: its reader is slow */
    bool is_notified, is_reading, is_read_behind, is_finished;
    struct error err; /* of the end */
    const char *header_key, *header_value;
};

/* Starts the method of this path, which must be in the table; request, unless NULL, is kept. */
void memory_call_start(struct memory_call *m, const struct call_table *table, const char *path,
                       const void *request);
/* The transport has room: on_write_ready is called if the call has asked for it. */
void memory_call_pull(struct memory_call *m);
/* A message of the client; NULL: it has half-closed. */
void memory_call_send(struct memory_call *m, const ProtobufCMessage *message);
/* The last that the handler hears; frees what was written. */
void memory_call_close(struct memory_call *m, enum status why);

#endif
