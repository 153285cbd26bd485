/* A connection's interface to its socket. socket.c implements the interface over libwebsockets,
 * whose headers only socket.c and http.c include. Tests have implementations of their own. All
 * functions are called on the loop. */
#ifndef SERVER_HTTP_SOCKET_H
#define SERVER_HTTP_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

struct lws;

/* In front of data to write there is room of this many bytes, which may be overwritten. */
enum { SOCKET_ROOM_BYTES = 32 };

/* Takes all bytes. Bytes that the kernel does not take now are sent later. Returns false if the
 * socket has failed. */
bool socket_write(struct lws *s, char *data, size_t len);
/* Returns whether some written bytes are pending. Once they are sent, the exchange is notified. */
bool socket_is_choked(const struct lws *s);
/* Returns whether the peer has sent bytes that were not read. */
bool socket_has_unread(const struct lws *s);
/* Shuts our side for writing. */
void socket_shut(struct lws *s);
/* Closes the socket and calls connection_close. Must not be called inside a call of the socket. */
void socket_close(struct lws *s);
void socket_pause(struct lws *s, bool on);

#endif
