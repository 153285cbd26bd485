/* Opens and forks that may be sent again: under a request id, the same request returns the
 * conversation that it opened, as long as that is open. Loop. */
#ifndef SERVER_CONVERSATION_OPENING_H
#define SERVER_CONVERSATION_OPENING_H

#include "server/conversation/conversation.h"

struct fork_request {
    uint32_t principal; /* whose the parent is, and the fork will be */
    const char *parent; /* its id */
    bool has_at_turn;   /* else all turns that are complete */
    uint32_t at_turn;
    const struct pair *metadata; /* [n_metadata] */
    size_t n_metadata;
};

/* As conversation_open. request_id "": none. STATUS_EXISTS with the field request_id where another
 * request had that id. The order of metadata and biases does not matter. */
enum status opening_open(struct conversation **out, struct conversations *all, struct model *model,
                         const char *request_id, const struct open_request *r,
                         struct error *err) MUST_CHECK;

/* As conversation_fork; NOT_FOUND without the parent, which a repeated request does not need.
 * *ret_turns: the turns that the fork began with. */
enum status opening_fork(struct conversation **out, uint32_t *ret_turns, struct conversations *all,
                         const char *request_id, const struct fork_request *r,
                         struct error *err) MUST_CHECK;

#endif
