/* Has a keyed reply in memory before it is looked for there: what the journal has of it, with its
 * conversations. Loop. */
#ifndef SERVER_CONVERSATION_KEYED_LOOKUP_H
#define SERVER_CONVERSATION_KEYED_LOOKUP_H

#include "server/conversation/keyed_replies.h"
#include "server/conversation/lookup.h"

struct keyed_lookup;

/* err OK: what there is, is in memory until the call returns, which may be nothing. */
typedef void (*keyed_lookup_done_fn)(struct keyed_lookup *l, const struct error *err);

/* A member of its owner's struct. */
struct keyed_lookup {
    struct journal_wait wait;
    struct lookup lookup; /* of the conversation of the part at */
    struct keyed_replies *all;
    uint32_t principal;
    const char *key;
    struct list parts; /* of struct journal_event */
    struct link *at;   /* NULL: all are there */
    keyed_lookup_done_fn done;
};

/* Borrows key until the end. False: nothing is to be waited for. True: done is called later, unless
 * keyed_lookup_leave is. */
bool keyed_lookup_begin(struct keyed_lookup *l, struct keyed_replies *all, uint32_t principal,
                        const char *key, keyed_lookup_done_fn done);
/* Nothing is to be called. */
void keyed_lookup_leave(struct keyed_lookup *l);

#endif
