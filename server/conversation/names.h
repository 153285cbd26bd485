/* How clients refer to conversations: by names that they chose (X-Conversation-Id), and by replies
 * that may be continued (previous_response_id). Both are bounded: the least recently used name is
 * evicted, the oldest kept conversation is closed. Loop. */
#ifndef SERVER_CONVERSATION_NAMES_H
#define SERVER_CONVERSATION_NAMES_H

#include "base/hash.h"
#include "base/list.h"
#include "server/conversation/conversation.h"

enum { CONVERSATION_NAMES_MAX = 16384, CONVERSATION_NAMES_MAX_KEPT = 4096 };

struct conversation_names {
    struct conversations *all;
    struct hash by_name;
    struct list oldest_first;
    struct conversation_id kept[CONVERSATION_NAMES_MAX_KEPT]; /* a ring */
    size_t n_kept, at;                                        /* at: index of the next one */
};

void conversation_names_init(struct conversation_names *m, struct conversations *all,
                             const struct env *env);
void conversation_names_deinit(struct conversation_names *m);

/* Each principal has names of its own. NULL: the name is new, or its conversation is closed. A
 * conversation's own id also names it, to its principal. */
struct conversation *conversation_names_find(struct conversation_names *m, uint32_t principal,
                                             const char *name);
enum status conversation_names_bind(struct conversation_names *m, uint32_t principal,
                                    const char *name, const struct conversation_id *id,
                                    struct error *err) MUST_CHECK;
void conversation_names_keep(struct conversation_names *m, const struct conversation_id *id);

#endif
