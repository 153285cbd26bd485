/* What workers of agents and hosts of environments share: an Agents.Attach stream, the things that
 * the server names by numbers (clones, environments), and being attached again. */
#ifndef CLIENT_LIB_ATTACHMENT_H
#define CLIENT_LIB_ATTACHMENT_H

#include "base/hash.h"
#include "client/lib/parts.h"
#include "parley/v1/agents.pb-c.h"

struct attachment;

struct attachment_kind {
    const char *noun; /* of a thing: "clone" */
    /* On the channel's thread. An order that cannot be done is the server's fault, and a failure
     * ends the call. */
    enum status (*take)(struct attachment *a, const Parley__V1__AgentsAttachResponse *m,
                        struct arena *arena, struct error *err);
    /* The thing is gone. */
    void (*drop)(struct attachment *a, void *thing);
    /* The last, once nothing is left. */
    void (*end)(struct attachment *a, const struct parley_error *err);
};

/* The first member of each kind's call. The table belongs to the thread of the callbacks. */
struct attachment {
    struct parley_call base;
    const struct attachment_kind *kind;
    struct hash things;    /* of struct attachment_thing */
    struct waiter *waiter; /* of attachment_run; NULL: none */
    bool was_accepted;     /* set by take */
};

/* A zeroed call; NULL without memory. */
struct attachment *attachment_make(size_t size_bytes, const struct attachment_kind *kind,
                                   struct waiter *waiter);
/* Starts it, with the offer first. */
void attachment_start(struct attachment *a, struct parley_channel *channel,
                      Parley__V1__AgentOffer *offer);

/* NULL without memory. */
typedef struct attachment *(*attachment_begin_fn)(struct parley_channel *channel, const void *offer,
                                                  const void *events, struct waiter *waiter);
/* Begins again whenever the server was lost, and waits. Not on the channel's thread. */
enum parley_status attachment_run(struct parley_channel *channel, attachment_begin_fn begin,
                                  const void *offer, const void *events,
                                  struct parley_error *ret_err);

/* STATUS_INTERNAL: no such thing is there. */
enum status attachment_find(void **out, const struct attachment *a, uint64_t number,
                            struct error *err) MUST_CHECK;
/* NULL: there is none. */
void *attachment_look_up(const struct attachment *a, uint64_t number);
/* Takes thing; NULL: it could not be made. */
enum status attachment_add(struct attachment *a, uint64_t number, void *thing,
                           struct error *err) MUST_CHECK;
/* STATUS_INTERNAL: no such thing is there. */
enum status attachment_remove(struct attachment *a, uint64_t number, struct error *err) MUST_CHECK;

/* A tensor of the message that says it; texts and data stay the caller's. */
void attachment_fill_tensor(Parley__V1__Tensor *out, const struct parley_tensor *from);
/* The text, or "". protobuf-c's members are not const; it is only read. */
char *attachment_text(const char *text);

#endif
