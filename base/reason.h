/* Why a call failed, in one stable word that a program may branch on: google.rpc.ErrorInfo's
 * reason, ErrorDetail's, parley_error's. A word is never renamed and never changes its meaning. */
#ifndef BASE_REASON_H
#define BASE_REASON_H

enum reason {
    REASON_NONE,              /* none of these: the word is INVALID_FIELD, or the status's name */
    REASON_INVALID_FIELD,     /* a field of the request is wrong whatever the server's state */
    REASON_REQUEST_TOO_LARGE, /* the request takes more memory than one may */

    REASON_QUEUE_FULL,    /* as many requests wait as may: come back after the delay */
    REASON_LIMIT_REACHED, /* there are as many of its kind as may be, until some are closed */
    REASON_OUT_OF_MEMORY, /* the server has no memory for it now */

    REASON_SERVER_LOADING,
    REASON_SERVER_DRAINING, /* it stops: ask another */
    REASON_METHOD_NOT_FOUND,
    REASON_SERVICE_NOT_FOUND, /* Health has none of that name */

    REASON_MODEL_NOT_FOUND,
    REASON_MODEL_NOT_READY,   /* it is being loaded or unloaded, is not loaded, or has failed */
    REASON_MODEL_IN_TRAINING, /* somebody trains it, or is attached to it for training */
    REASON_MODEL_UNSUITABLE,  /* its kind does not do what is asked */
    REASON_WORKER_LOST,       /* the process that computed the turn went away: ask again */

    REASON_CONVERSATION_NOT_FOUND, /* no open one has this id: closed, expired or unknown */
    REASON_CONVERSATION_BUSY,      /* a turn is in flight */
    REASON_CONVERSATION_FULL,      /* its turns or its transcript are at their limit */
    REASON_CONTEXT_EXCEEDED,       /* more tokens than the context or the conversation holds */
    REASON_REPLY_TOO_LONG,         /* its bytes pass their bound: ask for fewer tokens */
    REASON_TURN_BODY_DIFFERS,      /* the turn was given before, with another body */
    REASON_TURN_GAP,               /* a turn before it is missing */
    REASON_TURN_NOT_FOUND,         /* the conversation has fewer turns */
    REASON_CURSOR_NOT_FOUND,   /* the reply has no such place, or belongs to another generation */
    REASON_TURN_BEFORE_FAILED, /* it was not taken because one before it failed */

    REASON_SESSION_NOT_FOUND, /* of Act: it ended or expired */
    REASON_SESSION_REPLACED,  /* another run of the env_id, or another stream, took its place */
    REASON_SESSION_BUSY,      /* a step of it is in flight */
    REASON_SEQ_GAP,           /* the step is not the session's next */
    REASON_EPISODE_OVER,      /* the trainer has all the steps of this episode */
    REASON_ROW_TAKEN,         /* another has this row of the batch */
    REASON_BATCH_INCOMPLETE,  /* not all participants came within the time-out */

    REASON_PARAMS_NOT_FOUND,
    REASON_PARAMS_EXIST,
    REASON_PARAMS_NOT_READY,   /* their first values are not there yet */
    REASON_PARAMS_DELETED,     /* while the call was in flight */
    REASON_GRADIENT_TOO_OLD,   /* base_version: see have_version and want_version */
    REASON_GRADIENT_NOT_NEW,   /* step_id: it was counted before, or a later one was */
    REASON_PARAMS_RESTORED,    /* rounds were lost with a process: go on from want_version */
    REASON_ROUND_GIVEN_UP,     /* the round did not come about: send the gradient again */
    REASON_CHECKSUM_DIFFERS,   /* what came is not what was sent */
    REASON_SEQUENCE_NOT_FOUND, /* of KServe: its first request must start it */

    REASON_KEY_MISSING,  /* the call has no key, and the server wants one */
    REASON_KEY_INVALID,  /* no such key, or it was revoked, or it has expired */
    REASON_ROLE_MISSING, /* the key's principal has not the role that the call needs */

    REASON_JOURNAL_FAILING, /* it cannot be written or read now: nothing was promised, come back */
    REASON_QUOTA_EXCEEDED,  /* the principal has used up what it may: come back after the delay */
    N_REASONS
};

/* "QUEUE_FULL"; "" for REASON_NONE. */
const char *reason_name(enum reason reason);

#endif
