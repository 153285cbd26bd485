/* The id of a request, by which a client's log and the daemon's can be compared. */
#ifndef SERVER_HTTP_REQUEST_ID_H
#define SERVER_HTTP_REQUEST_ID_H

#include <stddef.h>

struct env;

enum { REQUEST_ID_MAX_BYTES = 128 };

struct request_id {
    char text[REQUEST_ID_MAX_BYTES + 2]; /* NUL-ended; room for one byte that makes it too long */
    size_t len;
};

/* Keeps the client's id where it is short, printable and without spaces. Otherwise draws an id. */
void request_id_settle(struct request_id *id, const struct env *env);

#endif
