/* A call by Connect, from its request to its answer, and what calls and the registry of their
 * deadlines know of each other. */
#ifndef SERVER_API_CONNECT_CONNECT_PARTS_H
#define SERVER_API_CONNECT_CONNECT_PARTS_H

#include "base/list.h"
#include "server/api/connect/envelope.h"
#include "server/call/transport.h"

struct connect_calls;
struct exchange;

/* How messages are written. */
struct connect_codec {
    const char *unary_type, *stream_type; /* Content-Type */
    const char *name;                     /* in a GET's query */
    bool is_json;
};

/* A call's deadline, while it is in the registry. */
struct connect_deadline {
    struct link link;
    uint64_t at_us;
};

static inline struct connect_deadline *connect_deadline_of(struct link *link)
{
    return container_of(link, struct connect_deadline, link);
}

struct connect_call {
    struct call base;
    struct owner_thread owner;
    struct connect_deadline deadline;
    struct exchange *x;
    const struct connect_codec *codec;
    bool is_stream; /* messages are in envelopes */
    bool is_write_ready_due, is_read_due;
    bool is_finishing; /* ended by the handler or here, with err */
    bool is_abandoned; /* ended here: the handler's own end is dropped */
    bool is_answered;  /* the exchange has the end */
    bool is_counted;   /* in the limit of calls in flight */
    struct error err;
    struct buf out; /* messages that the exchange has not yet; the answer of a unary method */
    struct envelope_reader in;
    struct arena in_arena; /* of one message of a client's stream */
    size_t n_unawaited;
};

/* EXHAUSTED: no memory, or as many calls as there may be are in flight. The exchange has no handler
 * yet, and c is not freed before it has. */
enum status connect_call_open(struct connect_call **out, struct exchange *x,
                              const struct call_method *method, const struct connect_codec *codec,
                              struct error *err) MUST_CHECK;
/* The exchange is the call's from now on. */
void connect_call_adopt(struct connect_call *c);
/* Decodes a message of the client's. */
enum status connect_call_decode(ProtobufCMessage **out, const struct connect_call *c,
                                const char *data, size_t len, struct arena *arena,
                                struct error *err) MUST_CHECK;
/* Ends the call from here, whatever its handler does. */
void connect_call_abandon(struct connect_call *c, const struct error *err);

void connect_calls_add(struct connect_calls *c, struct connect_deadline *d);
/* It has passed; d is in the registry no more. */
void connect_call_expire(struct connect_deadline *d);

#endif
