/* Has a conversation in memory before it is looked for there: reads it from the journal if it may
 * be in that alone. Loop. */
#ifndef SERVER_CONVERSATION_LOOKUP_H
#define SERVER_CONVERSATION_LOOKUP_H

#include "server/conversation/conversations.h"
#include "server/journal/journal.h"

struct lookup;

/* err OK: what there is, is in memory, which may be nothing. */
typedef void (*lookup_done_fn)(struct lookup *l, const struct error *err);

/* A member of its owner's struct. */
struct lookup {
    struct journal_wait wait;
    struct conversations *all;
    uint32_t principal;
    lookup_done_fn done;
    bool is_found; /* at done: the journal has it, and it is in memory, with this id */
    struct conversation_id id;
};

/* By its id, by the request that opened it, or by its name. False: nothing is to be waited for.
 * True: done is called later, unless lookup_leave is. */
bool lookup_begin(struct lookup *l, struct conversations *all, enum journal_by by,
                  uint32_t principal, const char *text, lookup_done_fn done);
/* Nothing is to be called; fine when it does not wait. */
void lookup_leave(struct lookup *l);

#endif
