/* Requests to open or to fork that a client may send again. Under a request id, the same request
 * returns the conversation that it opened before, as long as that conversation is open. All
 * functions are called on the loop. */
#ifndef SERVER_CONVERSATION_OPENING_H
#define SERVER_CONVERSATION_OPENING_H

#include "server/conversation/conversation.h"

struct fork_request {
    uint32_t principal; /* the owner of the parent and of the fork */
    const char *parent; /* the parent's id */
    bool has_at_turn;   /* false: the fork has all complete turns of the parent */
    uint32_t at_turn;
    const struct pair *metadata; /* [n_metadata] */
    size_t n_metadata;
};

/* Opens a conversation as conversation_open does. With request_id "" the request has no id. EXISTS,
 * with the field request_id, if another request had this id. The order of metadata and biases does
 * not matter. */
enum status opening_open(struct conversation **out, struct conversations *all, struct model *model,
                         const char *request_id, const struct open_request *r,
                         struct error *err) MUST_CHECK;

/* Forks a conversation as conversation_fork does. NOT_FOUND if there is no such parent; a repeated
 * request does not need the parent any more. *ret_turns is the number of turns that the fork began
 * with. */
enum status opening_fork(struct conversation **out, uint32_t *ret_turns, struct conversations *all,
                         const char *request_id, const struct fork_request *r,
                         struct error *err) MUST_CHECK;

#endif
