/* The reply to a step of a session. It is immutable and reference-counted: the session answers a
 * repeated step with it, and calls send it. Loop. */
#ifndef SERVER_ACT_REPLY_H
#define SERVER_ACT_REPLY_H

#include "agents/agent.h"
#include "agents/turn.h"

enum { STEP_MAX_TENSORS = 64 };

/* Allocated as one block with its tensors. */
struct step_reply {
    size_t n_refs;
    uint64_t seq, params_version;
    uint32_t batch_rows, queue_us;
    size_t n_tensors;
    struct tensor_view tensors[]; /* [n_tensors] */
};

/* Copies the turn's reply, with one reference. The caller sets seq and queue_us. EXHAUSTED. */
enum status step_reply_make(struct step_reply **out, const struct reply *from,
                            struct error *err) MUST_CHECK;
/* Adds a reference, and returns r. */
struct step_reply *step_reply_ref(struct step_reply *r);
/* Drops a reference, and frees the reply with the last. r may be NULL. */
void step_reply_unref(struct step_reply *r);

#endif
