/* Has a conversation in memory before it is looked for there (conversation_names_get), by the name
 * or the id that a client gave: reads it from the journal if it may be in that alone. Loop. */
#ifndef SERVER_CONVERSATION_NAMED_LOOKUP_H
#define SERVER_CONVERSATION_NAMED_LOOKUP_H

#include "server/conversation/lookup.h"
#include "server/conversation/names.h"

struct named_lookup;

/* err OK: what there is, is in memory, which may be nothing. */
typedef void (*named_lookup_done_fn)(struct named_lookup *l, const struct error *err);

/* A member of its owner's struct. */
struct named_lookup {
    struct lookup lookup;
    struct conversation_names *names;
    const char *text;
    named_lookup_done_fn done;
    bool is_by_name; /* the lookup that waits */
};

/* text lives until done is called. False: nothing is to be waited for. True: done is called later,
 * unless named_lookup_leave is. */
bool named_lookup_begin(struct named_lookup *l, struct conversation_names *names,
                        uint32_t principal, const char *text, named_lookup_done_fn done);
/* Nothing is to be called; fine when it does not wait. */
void named_lookup_leave(struct named_lookup *l);

#endif
