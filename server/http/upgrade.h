/* The opening handshake of WebSocket (RFC 6455, 4), for routes: GET over HTTP/1.1. Which pages may
 * connect is decided by origin.h before, as for any request. All functions are called on the loop.
 */
#ifndef SERVER_HTTP_UPGRADE_H
#define SERVER_HTTP_UPGRADE_H

#include <stdbool.h>

struct exchange;
struct websocket;
struct websocket_handler;

/* Whether the request offers this subprotocol. */
bool upgrade_offers(const struct exchange *x, const char *protocol);

/* Answers the exchange with 101, after which its connection is a WebSocket. The handler is static.
 * Returns NULL, and answers with what is wrong, if the request asks for no WebSocket or for one
 * that is not spoken here: 426, or 400. Then state is the caller's still, and on_close is not
 * called. */
struct websocket *upgrade_to_websocket(struct exchange *x, const struct websocket_handler *handler,
                                       void *state);

#endif
