/* A connection's interface to its socket. socket.c implements it over libwebsockets, which only it
 * and http.c include; tests have their own. Loop. */
#ifndef SERVER_HTTP_SOCKET_H
#define SERVER_HTTP_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

struct lws;

/* Data to write has this many bytes before it, which may be overwritten. */
enum { SOCKET_ROOM_BYTES = 32 };

/* Takes all bytes; what the kernel does not take is sent later. False: the socket has failed. */
bool socket_write(struct lws *s, char *data, size_t len);
/* Some of the written bytes are pending; once they are sent the exchange is notified. */
bool socket_is_choked(const struct lws *s);
/* Bytes of the peer are there that were not read. */
bool socket_has_unread(const struct lws *s);
/* Shuts our side for writing. */
void socket_shut(struct lws *s);
/* Closes the socket and calls connection_close. Not inside a call of the socket's own. */
void socket_close(struct lws *s);
void socket_pause(struct lws *s, bool on);

#endif
