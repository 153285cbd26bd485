/* How clients refer to conversations: by names that they chose (X-Conversation-Id), and by replies
 * that may be continued (previous_response_id). Both are bounded. The least recently used name is
 * evicted. The oldest conversation of a reply is closed, unless it is stored. A principal that has
 * half of the names or replies evicts its own. All functions are called on the loop. */
#ifndef SERVER_CONVERSATION_NAMES_H
#define SERVER_CONVERSATION_NAMES_H

#include "base/hash.h"
#include "base/list.h"
#include "base/shared_limit.h"
#include "server/access/owner_lists.h"
#include "server/conversation/conversation.h"

enum { CONVERSATION_NAMES_MAX = 16384, CONVERSATION_NAMES_MAX_KEPT = 4096 };
enum { CONVERSATION_NAME_MAX_BYTES = 64 };

/* Returns whether text may be a name: it consists of letters, digits, '.', '_' and '-'. */
bool conversation_name_is_valid(const char *text);

struct conversation_names {
    struct conversations *all;
    struct hash by_name;
    struct list oldest_first;             /* names, the least recently used first */
    struct list kept;                     /* of struct conversation_kept, the oldest first */
    struct owner_lists names_of, kept_of; /* the same of each principal */
    struct shared_limit names_limit, kept_limit;
};

void conversation_names_init(struct conversation_names *m, struct conversations *all,
                             const struct env *env);
void conversation_names_deinit(void *names);

/* Returns the conversation that a principal means by name: each principal has names of its own, and
 * the id of one of its conversations is a name, too. NULL: the name is new, or its conversation is
 * closed. */
struct conversation *conversation_names_find(struct conversation_names *m, uint32_t principal,
                                             const char *name);
/* The same for a caller that needs the conversation. NOT_FOUND names the field "conversation". */
enum status conversation_names_get(struct conversation **out, struct conversation_names *m,
                                   uint32_t principal, const char *name,
                                   struct error *err) MUST_CHECK;
/* Finds the id of the conversation that name means; the conversation may be closed. Returns false
 * if name is neither a name of the principal nor an id. */
bool conversation_names_resolve(struct conversation_id *out, const struct conversation_names *m,
                                uint32_t principal, const char *name);
enum status conversation_names_bind(struct conversation_names *m, uint32_t principal,
                                    const char *name, const struct conversation_id *id,
                                    struct error *err) MUST_CHECK;
void conversation_names_keep(struct conversation_names *m, uint32_t principal,
                             const struct conversation_id *id);

#endif
