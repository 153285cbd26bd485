/* Turns that were completed elsewhere become a conversation's. Loop. */
#ifndef SERVER_CONVERSATION_IMPORT_H
#define SERVER_CONVERSATION_IMPORT_H

#include "server/conversation/conversation.h"

struct imported_turn {
    struct turn_request request; /* is_observed: there is no reply */
    const char *reply;
    size_t reply_len;
    enum finish finish;
    struct usage usage;
};

/* Adds the turn behind those there are. Refused as a turn is; PRECONDITION also while one is in
 * flight, and STATUS_EXISTS or PRECONDITION naming the field if its number is not the next.
 * UNAVAILABLE: c may have left memory. */
enum status conversation_import(struct conversation *c, const struct imported_turn *t,
                                struct error *err) MUST_CHECK;

#endif
