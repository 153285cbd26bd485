/* The conversations that requests with an id of the client's opened. As long as such a conversation
 * is open, the same request returns the conversation again. All functions are called on the loop.
 */
#ifndef SERVER_CONVERSATION_OPENED_REQUESTS_H
#define SERVER_CONVERSATION_OPENED_REQUESTS_H

#include <stdint.h>

#include "base/digest.h"
#include "base/hash.h"
#include "base/status.h"

struct conversation;
struct env;

enum { REQUEST_ID_MAX_BYTES = 128 };

struct opened_request {
    struct hash_node by_id;
    struct conversation *conversation;
    struct digest digest; /* the digest of the whole request */
    uint32_t principal;   /* the principal that sent the request */
    uint32_t n_turns;     /* how many turns the conversation began with */
    char id[];            /* NUL-ended */
};

struct opened_requests {
    struct hash by_id;
    struct digest_key key;
};

void opened_requests_init(struct opened_requests *all, const struct env *env);
/* Frees the table, from which every request was removed. all may be zeroed memory. */
void opened_requests_deinit(struct opened_requests *all);

/* Finds the request with this id. *out is NULL if the id is new to the principal. INVALID for an id
 * that is empty or too long; EXISTS if another request of the principal has the id. */
enum status opened_requests_find(const struct opened_request **out,
                                 const struct opened_requests *all, uint32_t principal,
                                 const char *id, const struct digest *digest,
                                 struct error *err) MUST_CHECK;

/* Makes a request that is not in the table yet. Until opened_requests_add, free() frees it. */
enum status opened_request_make(struct opened_request **out, uint32_t principal, const char *id,
                                const struct digest *digest, struct error *err) MUST_CHECK;
/* Adds r, whose conversation is set and whose id is new. The table owns r. */
void opened_requests_add(struct opened_requests *all, struct opened_request *r);
/* Removes and frees r, which may be NULL. */
void opened_requests_forget(struct opened_requests *all, struct opened_request *r);

#endif
