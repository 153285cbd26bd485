/* Brings a conversation into memory before it is looked for there (conversation_names_get), by the
 * name or the id that a client gave. The conversation is read from the journal if only the journal
 * may have it. All functions are called on the loop. */
#ifndef SERVER_CONVERSATION_NAMED_LOOKUP_H
#define SERVER_CONVERSATION_NAMED_LOOKUP_H

#include "server/conversation/lookup.h"
#include "server/conversation/names.h"

struct named_lookup;

/* Tells that the lookup has ended. With an err of OK the conversation is in memory if it exists. */
typedef void (*named_lookup_done_fn)(struct named_lookup *l, const struct error *err);

/* A lookup. It lies in its owner's struct. */
struct named_lookup {
    struct lookup lookup;
    struct conversation_names *names;
    const char *text;
    named_lookup_done_fn done;
    enum lookup_how how;
    bool is_by_name; /* the lookup under way is by name, else by id */
};

/* Begins a lookup. text must stay valid until done is called. Returns false if there is nothing to
 * wait for; then done is not called. Returns true if done will be called later, unless
 * named_lookup_leave comes first. */
bool named_lookup_begin(struct named_lookup *l, struct conversation_names *names,
                        enum lookup_how how, uint32_t principal, const char *text,
                        named_lookup_done_fn done);
/* Ends the wait: done is not called. Does nothing if the lookup does not wait. */
void named_lookup_leave(struct named_lookup *l);

#endif
