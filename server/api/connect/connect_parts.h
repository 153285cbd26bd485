/* A call by Connect, from its request to its answer, and the part of a call that the registry of
 * deadlines knows. Loop. */
#ifndef SERVER_API_CONNECT_CONNECT_PARTS_H
#define SERVER_API_CONNECT_CONNECT_PARTS_H

#include "base/list.h"
#include "server/api/connect/envelope.h"
#include "server/call/transport.h"

struct connect_calls;
struct exchange;

/* A codec: how messages are written. */
struct connect_codec {
    const char *unary_type, *stream_type; /* values of Content-Type */
    const char *name;                     /* the codec's name in the query of a GET */
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
    bool is_finishing; /* the handler or connect_call_abandon has ended the call, with err */
    bool is_abandoned; /* connect_call_abandon has ended the call: the handler's end is dropped */
    bool is_answered;  /* the exchange has the end of the answer */
    bool is_counted;   /* the call counts in the limit of calls in flight */
    struct error err;
    struct buf out; /* messages for the exchange; the answer of a unary method */
    struct envelope_reader in;
    struct arena in_arena; /* for one message of a client's stream */
    size_t n_unawaited;
};

/* Opens a call of the method. The exchange has no handler yet; once it has one, the exchange's end
 * frees the call. EXHAUSTED without memory, and where as many calls as there may be are in flight.
 */
enum status connect_call_open(struct connect_call **out, struct exchange *x,
                              const struct call_method *method, const struct connect_codec *codec,
                              struct error *err) MUST_CHECK;
/* Makes the call the exchange's handler. */
void connect_call_adopt(struct connect_call *c);
/* Decodes a message of the client's, in the arena. INVALID says what is wrong with it. */
enum status connect_call_decode(ProtobufCMessage **out, const struct connect_call *c,
                                const char *data, size_t len, struct arena *arena,
                                struct error *err) MUST_CHECK;
/* Ends the call with err, whatever its handler does. */
void connect_call_abandon(struct connect_call *c, const struct error *err);

/* Adds a deadline to the registry. */
void connect_calls_add(struct connect_calls *c, struct connect_deadline *d);
/* Ends the call whose deadline has passed. d has left the registry. */
void connect_call_expire(struct connect_deadline *d);

#endif
