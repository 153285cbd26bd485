/* A keyed lookup reads a keyed reply and its conversations from the journal into memory, before the
 * reply is looked for there. All functions are called on the loop. */
#ifndef SERVER_CONVERSATION_KEYED_LOOKUP_H
#define SERVER_CONVERSATION_KEYED_LOOKUP_H

#include "server/conversation/keyed_replies.h"
#include "server/conversation/lookup.h"

struct keyed_lookup;

/* Called when the lookup has ended. With OK, everything that the journal has of the reply is in
 * memory until the call returns; that may be nothing. */
typedef void (*keyed_lookup_done_fn)(struct keyed_lookup *l, const struct error *err);

/* A lookup is a member of its owner's struct. */
struct keyed_lookup {
    struct journal_wait wait;
    struct lookup lookup; /* the lookup of the conversation of part at */
    struct keyed_replies *all;
    uint32_t principal;
    const char *key;
    enum lookup_how how;
    struct list parts; /* of struct journal_event */
    struct link *at;   /* the part that is looked up; NULL: all parts are in memory */
    bool is_gone;      /* the conversation of a part is not there any more */
    keyed_lookup_done_fn done;
};

/* Begins a lookup, which borrows key until its end. Returns false if there is nothing to wait for,
 * and true if done is called later, unless keyed_lookup_leave comes before. */
bool keyed_lookup_begin(struct keyed_lookup *l, struct keyed_replies *all, enum lookup_how how,
                        uint32_t principal, const char *key, keyed_lookup_done_fn done);
/* Ends the lookup: done is not called. */
void keyed_lookup_leave(struct keyed_lookup *l);

#endif
