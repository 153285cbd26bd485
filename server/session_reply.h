/* What a step of a session was answered. It never changes, so that it is shared: by the session,
 * which answers the same step with it again, and by those who have yet to send it. Loop. */
#ifndef SERVER_SESSION_REPLY_H
#define SERVER_SESSION_REPLY_H

#include "agents/agent.h"

enum { STEP_MAX_TENSORS = 64 };

/* One block, its tensors too. */
struct step_reply {
    size_t n_refs;
    uint64_t seq, params_version;
    uint32_t batch_rows, queue_us;
    size_t n_tensors;
    struct tensor_view tensors[]; /* [n_tensors] */
};

/* Copies the turn's reply; seq and queue_us are the caller's to fill. STATUS_EXHAUSTED. */
enum status step_reply_make(struct step_reply **out, const struct reply *from,
                            struct error *err) MUST_CHECK;
struct step_reply *step_reply_ref(struct step_reply *r);
void step_reply_unref(struct step_reply *r); /* NULL is fine */

#endif
