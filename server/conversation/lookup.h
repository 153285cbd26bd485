/* A lookup reads a conversation from the journal into memory, if only the journal may have the
 * conversation, before the conversation is looked for in memory. All functions are called on the
 * loop. */
#ifndef SERVER_CONVERSATION_LOOKUP_H
#define SERVER_CONVERSATION_LOOKUP_H

#include "server/conversation/conversations.h"
#include "server/journal/journal.h"

struct lookup;

/* What a lookup does about a conversation that another daemon has. */
enum lookup_how {
    LOOKUP_HERE,     /* waits until the other daemon gives the conversation up */
    LOOKUP_ANYWHERE, /* ends and names the other daemon, if that can be asked; else LOOKUP_HERE */
    LOOKUP_FREE,     /* does not find the conversation */
};

/* Called when the lookup has ended. With OK, the conversation is in memory if it exists. With
 * UNAVAILABLE, l->owner is the daemon that has the conversation, if l->owner.id is not "". */
typedef void (*lookup_done_fn)(struct lookup *l, const struct error *err);

/* A lookup is a member of its owner's struct. */
struct lookup {
    struct journal_wait wait;
    struct conversations *all;
    uint32_t principal;
    lookup_done_fn done;
    bool is_found; /* when done is called: the journal has the conversation, with this id */
    struct conversation_id id;
    struct journal_peer owner; /* when done is called, of LOOKUP_ANYWHERE */
};

/* Begins a lookup by the conversation's id, by the id of the request that opened it, or by its
 * name. Returns false if there is nothing to wait for, and true if done is called later, unless
 * lookup_leave comes before. */
bool lookup_begin(struct lookup *l, struct conversations *all, enum journal_by by,
                  enum lookup_how how, uint32_t principal, const char *text, lookup_done_fn done);
/* Says that a query has read a conversation, for whoever asks the journal without a lookup. Takes
 * the conversation out of memory if another process has had it meanwhile; else returns it, or NULL
 * where it is not in memory. */
struct conversation *lookup_has_read(struct conversations *all, const struct conversation_id *id,
                                     const struct journal_found *found);
/* Ends the lookup: done is not called. Does nothing if l does not wait. */
void lookup_leave(struct lookup *l);

#endif
