/* An import adds turns that were completed elsewhere to a conversation. All functions are called on
 * the loop. */
#ifndef SERVER_CONVERSATION_IMPORT_H
#define SERVER_CONVERSATION_IMPORT_H

#include "server/conversation/conversation.h"

struct imported_turn {
    struct turn_request request; /* with is_observed, the turn has no reply */
    const char *reply;
    size_t reply_len;
    enum finish finish;
    struct usage usage;
    struct timings timings; /* zeros: not known */
    /* Of a turn that stands for a dropped one of the same number: that turn's. generation 0: the
     * turn is new. */
    struct turn_origin origin;
};

/* Adds the turn behind the conversation's turns. The refusals are those of conversation_turn.
 * PRECONDITION also while a turn is in flight; EXISTS or PRECONDITION, naming the field, if the
 * turn's number is not the next number; after UNAVAILABLE c may have left memory. */
enum status conversation_import(struct conversation *c, const struct imported_turn *t,
                                struct error *err) MUST_CHECK;

#endif
