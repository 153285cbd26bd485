/* HTTP/2 on a connection whose peer began with HTTP/2's preface. libnghttp2 reads and writes the
 * frames. Each stream is an exchange, as is each request of HTTP/1.1. All functions are called on
 * the loop. */
#ifndef SERVER_HTTP_HTTP2_H
#define SERVER_HTTP_HTTP2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http2;
struct http_front;
struct lws;

/* A client that speaks HTTP/2 sends these bytes first. */
#define HTTP2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
enum { HTTP2_PREFACE_BYTES = sizeof(HTTP2_PREFACE) - 1 };

/* Makes the connection's HTTP/2. over is called when the caller must close the connection, but the
 * caller must not close it inside that call. Returns NULL if memory is short. */
struct http2 *http2_open(struct http_front *f, struct lws *wsi, bool is_admin,
                         void (*over)(void *arg), void *arg);
/* Closes h and its exchanges. NULL is fine. */
void http2_close(struct http2 *h);

/* Takes bytes, beginning with the preface. Returns false if the connection is over; the caller
 * closes it soon. */
bool http2_read(struct http2 *h, const char *data, size_t len);
/* Sends waiting frames until the socket is full. Returns false as http2_read does. Must not be
 * called inside an exchange's call. */
bool http2_flush(struct http2 *h);
/* Calls http2_flush for all connections that have something to send. */
void http2_flush_due(struct http_front *f);
/* Tells the peer to send no further requests. Requests that have come are answered. */
void http2_drain(struct http2 *h);
/* Ends the streams whose time-out has passed. Returns false if the peer reads nothing; then the
 * caller closes the connection. */
bool http2_sweep(struct http2 *h, uint64_t now_ms);
bool http2_is_idle(const struct http2 *h);

#endif
