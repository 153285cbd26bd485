/* A conversation of a verb with a program that is attached to a server: an agent that takes acts, a
 * data set, a world. Turns have numbers, so that one which failed for want of a worker, or because
 * the server is full, is asked again and is answered once. */
#ifndef WORLDS_VERBS_ATTACHED_SESSION_H
#define WORLDS_VERBS_ATTACHED_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "client/cli/connection.h"
#include "client/lib/parley.h"

enum { ATTACHED_LOST_MS = 60000, ATTACHED_RETRY_MS = 200 }; /* how long to wait for a lost worker */

/* Zeroed, it is a session without a conversation. One thread. */
struct attached_session {
    struct parley_channel *channel; /* borrowed */
    char conversation[33];          /* "": none is open */
    uint32_t n_turns;
    size_t n_bytes;              /* of all turns; the server keeps them */
    uint32_t max_tokens;         /* of the next replies; 0: the model's own bound */
    struct parley_future *reply; /* the last; NULL: none */
};

/* Opens a channel to the server by connection_open, which prints why it cannot. INVALID, with
 * "--server" as the field: the options are at fault; UNAVAILABLE: no server is connected. */
enum status attached_connect(struct parley_channel **out,
                             const struct connection_options *connection,
                             struct error *err) MUST_CHECK;

/* Opens a conversation with that system prompt. No other may be open. */
enum status attached_session_begin(struct attached_session *s, const char *model,
                                   const char *system, struct error *err) MUST_CHECK;
/* Sends the message as the next turn, and returns its result, which is valid until the next call.
 * DATA_LOSS: the reply was cut short. After an error the turn may have happened at the server. */
enum status attached_session_ask(struct attached_session *s, const char *message,
                                 const struct parley_result **out, struct error *err) MUST_CHECK;
/* Closes the conversation, if there is one. */
void attached_session_leave(struct attached_session *s);

#endif
