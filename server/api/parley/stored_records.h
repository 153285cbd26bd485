/* The records of a conversation that the journal has, for the calls that need them as they are. All
 * functions are called on the loop. */
#ifndef SERVER_API_PARLEY_STORED_RECORDS_H
#define SERVER_API_PARLEY_STORED_RECORDS_H

#include "server/call/call.h"
#include "server/conversation/conversations.h"
#include "server/journal/journal.h"

/* A member of a call's state. */
struct stored_records {
    struct conversations *all;
    struct journal_wait wait;
    struct conversation_id id;
    bool is_read;
    struct journal_found found; /* once is_read */
    void (*done)(void *arg, const struct error *err);
    void *arg;
};

/* Reads the records of the caller's conversation of this id or name, which is in memory
 * (conversation_call_want). done is called once, later, unless stored_records_close comes before.
 * On failure nothing was begun: NOT_FOUND, or PRECONDITION for one that is not stored. */
enum status stored_records_read(struct stored_records *s, struct call *call, const char *text,
                                void (*done)(void *arg, const struct error *err), void *arg,
                                struct error *err) MUST_CHECK;
/* Ends the wait, and frees the records. */
void stored_records_close(struct stored_records *s);

#endif
