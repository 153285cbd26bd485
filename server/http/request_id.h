/* The id of a request, by which a client's log and ours can be compared. Pure. */
#ifndef SERVER_HTTP_REQUEST_ID_H
#define SERVER_HTTP_REQUEST_ID_H

#include <stddef.h>

struct env;

enum { REQUEST_ID_MAX_BYTES = 128 };

struct request_id {
    char text[REQUEST_ID_MAX_BYTES + 2]; /* NUL-ended; one byte more than the longest: too long */
    size_t len;
};

/* Keeps the client's id if it is short and printable, without spaces; else draws one. */
void request_id_settle(struct request_id *id, const struct env *env);

#endif
