/* What the files of libparley share. */
#ifndef CLIENT_LIB_PARTS_H
#define CLIENT_LIB_PARTS_H

#include <grpc/grpc.h>
#include <grpc/support/time.h>
#include <protobuf-c/protobuf-c.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/list.h"
#include "base/status.h"
#include "client/lib/parley.h"
#include "parley/v1/conversations.pb-c.h"
#include "parley/v1/error.pb-c.h"
#include "proto/words.h"

struct parley_channel {
    char *address;                 /* as gRPC takes it */
    struct parley_error malformed; /* the failure of every call, if the address or a PEM is */
    bool is_tls;
    grpc_metadata key; /* sent with each call */
    size_t n_keys;     /* 0: there is none */
    grpc_channel *core;
    grpc_completion_queue *queue;
    pthread_t thread; /* polls queue; every callback comes from it */
    pthread_mutex_t lock;
    pthread_cond_t is_empty;
    pthread_cond_t is_settled; /* a future of this channel; with the monotonic clock */
    struct list live;          /* guarded by lock: calls that have not ended */
    /* A channel that its user polls: the thread hands over what the queue gave, and the callbacks
     * run in parley_channel_dispatch. */
    int fd;              /* an eventfd; -1: callbacks run on the thread */
    struct list back;    /* of call_op; guarded by lock; fd is readable while it is not empty */
    bool is_in_dispatch; /* the dispatching thread's */
    atomic_uint patience_ms;
    atomic_bool
        is_reached; /* a server has answered, once; it guards nothing, so relaxed is enough */
};

/* Whether this thread may wait for a call of the channel: not in a callback. */
bool channel_may_wait(const struct parley_channel *channel);
/* Of a channel that is polled: waits for events, at most timeout_ms (-1: no bound), and runs their
 * callbacks. */
void channel_dispatch_next(struct parley_channel *channel, int timeout_ms);

/* How a kind of call handles its messages and its end. On the channel's thread. */
struct call_kind {
    bool is_stream; /* more than one message may come */
    /* A message's bytes, the call's own. A failure ends the call with it. */
    enum status (*message)(struct parley_call *call, const void *data, size_t len,
                           struct error *err);
    void (*end)(struct parley_call *call, const struct parley_error *err);
    /* Before the last reference frees the call; may be NULL. */
    void (*free)(struct parley_call *call);
};

/* The tag of a completion queue event. Atomic because ThreadSanitizer does not see gRPC's own
 * ordering: the thread that starts an operation releases, the channel's thread acquires. */
struct call_op {
    struct parley_call *call;
    atomic_bool is_out;
    struct link link; /* in the channel's back, with: */
    bool ok;
};

/* How to begin a call. */
struct call_start {
    const char *method;
    const ProtobufCMessage *request; /* or else: */
    const void *bytes;               /* [len] */
    size_t len;
    uint32_t deadline_ms;  /* of all attempts together; 0: none */
    bool is_bidi;          /* nothing is sent at first, and parley_call_send later */
    bool waits_for_server; /* instead of failing at once when no server listens */
    /* Sending it twice does no harm: it is sent again while its failure may pass, as long as the
     * channel is patient. method must then outlive the call. */
    bool is_repeatable;
};

/* The first member of every kind of call. Fields without a lock are the starter's until
 * parley_call_start and the channel's thread's after. */
struct parley_call {
    struct link link; /* channel->live */
    struct parley_channel *channel;
    const struct call_kind *kind;
    atomic_uint n_refs; /* the user's and, until the end, the channel's */
    pthread_mutex_t lock;
    grpc_call *core; /* guarded by lock; NULL after the end */
    struct call_op read, finish, write;
    unsigned n_out; /* guarded by lock: operations in flight, of the three */
    /* Messages to send on a bidirectional stream; guarded by lock. */
    struct list outgoing;
    bool is_writing, wants_half_close, is_half_closed;
    bool is_over; /* nothing more is sent */
    struct call_start how;
    gpr_timespec deadline;
    unsigned n_attempts;
    grpc_slice request; /* of a call that is not bidirectional; empty if it is not repeatable */
    /* What another attempt's request has behind the first one's bytes; the caller unrefs it. NULL:
     * nothing. */
    grpc_slice (*amend)(struct parley_call *call);
    bool is_cancelled, is_paused; /* guarded by lock; is_paused: between two attempts, core stays */
    struct call_op pause;
    atomic_bool is_lost; /* from a failure that is tried again until the server answers; it guards
                            nothing, so relaxed is enough */
    uint64_t due_ms;     /* the pause's end */
    uint32_t pause_ms;   /* the next one; 0: the first */
    uint64_t give_up_ms; /* 0: nothing has failed since something new came */
    grpc_metadata_array headers, trailers;
    grpc_byte_buffer *in;
    grpc_status_code status;
    grpc_slice details;
    struct error failure; /* found by the client, on a call that gRPC completed */
};

/* The message's bytes; the caller unrefs them. */
grpc_slice call_encode(const ProtobufCMessage *message);
/* A zeroed call of size_bytes with one reference; NULL without memory. */
struct parley_call *parley_call_make(size_t size_bytes, const struct call_kind *kind);
/* From now on kind's functions are called; end always, and last. */
void parley_call_start(struct parley_channel *channel, struct parley_call *call,
                       const struct call_start *how);
/* An event of the queue: one of the operations has completed. */
void parley_call_op_back(struct call_op *op, bool ok);
/* Bidi: sends after the messages sent before. False when the call is over, or without memory. Any
 * thread. */
bool parley_call_send(struct parley_call *call, const ProtobufCMessage *message);

/* A server has answered. Any thread. */
void channel_is_reached(struct parley_channel *channel);
/* The call has brought something new: what fails after it is another failure. On the channel's
 * thread, like the next. */
void call_got_on(struct parley_call *call);
/* The server has answered the call, with something new or not. */
void call_is_back(struct parley_call *call);
/* After an attempt that ended with err: true if there will be another one, before which the call
 * pauses. False: the call ends with *err. On the channel's thread. */
bool call_repeats(struct parley_call *call, struct parley_error *err);
/* The pause is over. False: by a cancel, and there is no other attempt. */
bool call_pause_ended(struct parley_call *call);
/* Calls that pause. The channel's polling thread owns the list: it pushes each that the queue
 * gives (call_op_is_pause), and takes those whose pause is over. */
bool call_op_is_pause(const struct call_op *op);
struct call_op *pauses_take_over(struct list *pauses); /* NULL: none */
gpr_timespec pauses_next_end(struct list *pauses);     /* without any: never */

/* Waits for the end of a call or a turn. */
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t is_over_now;
    bool is_over;            /* guarded by lock */
    struct parley_error err; /* guarded by lock */
};

void waiter_init(struct waiter *w);
void waiter_tell(struct waiter *w, const struct parley_error *err); /* any thread */
/* Waits for the end, then deinits w; ret_err may be NULL. */
enum parley_status waiter_wait(struct waiter *w, struct parley_channel *channel,
                               struct parley_error *ret_err);

typedef enum status (*request_message_fn)(void *arg, const void *data, size_t len,
                                          struct error *err);
/* Starts a call and waits for its end. message is called on the channel's thread. Not from there.
 */
enum parley_status request_wait(struct parley_channel *channel, const struct call_start *how,
                                bool is_stream, request_message_fn message, void *arg,
                                struct parley_error *ret_err);

/* A unary call with a future. A server that accepts calls but never answers must not block the
 * caller for ever: such calls, of which none waits for a model, have this deadline. */
enum { REQUEST_DEADLINE_MS = 60000 };

struct future_kind {
    const char *method; /* "/parley.v1.Conversations/Fork" */
    const ProtobufCMessageDescriptor *response;
    /* Fills in the result; may be NULL. */
    enum status (*take)(struct parley_future *f, const ProtobufCMessage *response,
                        struct error *err);
    /* What a second attempt fails with if the first one succeeded; PARLEY_OK: with nothing. */
    enum parley_status done_before;
};

struct parley_future {
    struct parley_call base;
    const struct future_kind *kind;
    atomic_bool is_settled; /* set once all of result is there, with base.lock held */
    struct list thens;      /* guarded by base.lock; empty once it is settled */
    bool has_response;
    struct parley_result result;
    char finish_reason[WORD_CHARS];
    char *text; /* the result's; owned */
};

/* is_repeatable: as of call_start. NULL without memory. */
struct parley_future *future_start(struct parley_channel *channel, const struct future_kind *kind,
                                   const ProtobufCMessage *request, uint32_t deadline_ms,
                                   bool is_repeatable);
/* Takes the future, which may be NULL: waits for its end. ret_result, ret_err: may be NULL;
 * *ret_result only if it succeeded, without its text. */
enum parley_status future_finish(struct parley_future *f, struct parley_result *ret_result,
                                 struct parley_error *ret_err);

/* How a call ended: from its status and trailers, or from the client's own failure. */
void outcome_of_call(struct parley_error *out, const struct parley_call *call);
void outcome_of_failure(struct parley_error *out, const struct error *err);
/* An error inside a stream; a code that there is not is PARLEY_UNKNOWN. */
void outcome_of_detail(struct parley_error *out, const Parley__V1__ErrorDetail *detail);

/* Of turns. Everything that the request (initialised) points to is the turn's, in arena, or
 * sampling (initialised). STATUS_EXHAUSTED. */
enum status turn_fill(Parley__V1__TurnRequest *request, Parley__V1__Sampling *sampling,
                      const struct parley_turn *turn, struct arena *arena,
                      struct error *err) MUST_CHECK;
/* The event that the message is; e's functions may be NULL. */
enum status turn_tell_piece(const struct parley_turn_events *e, const Parley__V1__TurnPiece *piece,
                            struct arena *arena, struct error *err) MUST_CHECK;
void turn_tell_accepted(const struct parley_turn_events *e, const Parley__V1__TurnAccepted *from);
void turn_tell_progress(const struct parley_turn_events *e, const Parley__V1__TurnProgress *from);
void turn_tell_done(const struct parley_turn_events *e, const Parley__V1__TurnDone *from);

/* Fills m (initialised) from s, in arena; its texts stay the caller's. STATUS_EXHAUSTED. */
enum status sampling_fill(Parley__V1__Sampling *m, const struct parley_sampling *s,
                          struct arena *arena, struct error *err) MUST_CHECK;
/* The other way; m may be NULL. Texts and the arrays are m's, or in arena. STATUS_EXHAUSTED. */
enum status sampling_take(struct parley_sampling *out, const Parley__V1__Sampling *m,
                          struct arena *arena, struct error *err) MUST_CHECK;

/* Bound on a decoded message from the server. */
#define DECODED_MAX_BYTES ((size_t)1 << 30)

#endif
