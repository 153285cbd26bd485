/* Which conversation a client means: names that clients chose (X-Conversation-Id), and the
 * conversations whose replies may be gone on from (previous_response_id). Both are bounded: the
 * name that was used longest ago is forgotten, the oldest conversation that was kept is closed.
 * Loop. */
#ifndef SERVER_HTTP_MEMORY_H
#define SERVER_HTTP_MEMORY_H

#include "base/list.h"
#include "server/conversation.h"

enum { MEMORY_HEADS = 4096, MEMORY_MAX_NAMES = 16384, MEMORY_MAX_KEPT = 4096 };

struct memory_name;

struct memory {
    struct conversations *all;
    struct memory_name *heads[MEMORY_HEADS];
    struct list oldest_first;
    size_t n_names;
    struct conversation_id kept[MEMORY_MAX_KEPT]; /* a ring */
    size_t n_kept, at;                            /* at: where the next one is put */
};

void memory_init(struct memory *m, struct conversations *all);
void memory_deinit(struct memory *m);

/* NULL: the name is new, or its conversation is gone. A conversation's own id is a name of it. */
struct conversation *memory_find(struct memory *m, const char *name);
enum status memory_bind(struct memory *m, const char *name, const struct conversation_id *id,
                        struct error *err) MUST_CHECK;
void memory_keep(struct memory *m, const struct conversation_id *id);

#endif
