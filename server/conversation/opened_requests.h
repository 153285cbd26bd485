/* Which conversation a request opened, by the id that the client gave the request: as long as the
 * conversation is open, the same request returns it again. Loop. */
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
    struct digest digest; /* of the whole request */
    uint32_t principal;   /* whose request it is */
    uint32_t n_turns;     /* that the conversation began with */
    char id[];            /* NUL-ended */
};

struct opened_requests {
    struct hash by_id;
    struct digest_key key;
};

void opened_requests_init(struct opened_requests *all, const struct env *env);
/* All are forgotten; all may be zeroed memory. */
void opened_requests_deinit(struct opened_requests *all);

/* *out is NULL where the id is new to the principal. STATUS_INVALID for an id that is empty or too
 * long, EXISTS where another request had it. */
enum status opened_requests_find(const struct opened_request **out,
                                 const struct opened_requests *all, uint32_t principal,
                                 const char *id, const struct digest *digest,
                                 struct error *err) MUST_CHECK;

/* Not in the table yet; it is freed by free() until then. */
enum status opened_request_make(struct opened_request **out, uint32_t principal, const char *id,
                                const struct digest *digest, struct error *err) MUST_CHECK;
/* Takes r, whose conversation is set and whose id is new. */
void opened_requests_add(struct opened_requests *all, struct opened_request *r);
/* Frees r, which may be NULL. */
void opened_requests_forget(struct opened_requests *all, struct opened_request *r);

#endif
