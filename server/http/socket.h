/* What a connection needs of its socket. socket.c has libwebsockets do it, and is the only file but
 * http.c that sees it; tests have their own. Loop. */
#ifndef SERVER_HTTP_SOCKET_H
#define SERVER_HTTP_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

struct lws;

/* What is written has so many bytes before it, which may be overwritten. */
enum { SOCKET_ROOM_BYTES = 32 };

/* Takes all of it: what the kernel does not, later. False: the socket has failed. */
bool socket_write(struct lws *s, char *data, size_t len);
/* Something is left of what was written; when it is gone the exchange is woken. */
bool socket_is_choked(const struct lws *s);
/* Our side says no more. */
void socket_shut(struct lws *s);
/* Closed, and connection_close called. Not inside a call of the socket's own. */
void socket_close(struct lws *s);
void socket_pause(struct lws *s, bool on);

#endif
