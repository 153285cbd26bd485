/* HTTP/2 on a connection whose peer began it by prior knowledge: libnghttp2 reads and writes the
 * frames, each stream is an exchange as a request of HTTP/1.1 is. Loop. */
#ifndef SERVER_HTTP_HTTP2_H
#define SERVER_HTTP_HTTP2_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http2;
struct http_front;
struct lws;

/* What a client that speaks HTTP/2 sends first. */
#define HTTP2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
enum { HTTP2_PREFACE_BYTES = sizeof(HTTP2_PREFACE) - 1 };

/* over: the connection is to be closed, but not inside that call. NULL: no memory. */
struct http2 *http2_open(struct http_front *f, struct lws *wsi, bool is_admin,
                         void (*over)(void *arg), void *arg);
/* Closes its exchanges. NULL is fine. */
void http2_close(struct http2 *h);

/* Takes bytes, from the preface on. False: the connection is over, close it soon. */
bool http2_read(struct http2 *h, const char *data, size_t len);
/* Sends waiting frames until the socket is full; false as before. Not inside an exchange's call.
 */
bool http2_flush(struct http2 *h);
/* The same of all connections that have something due. */
void http2_flush_due(struct http_front *f);
/* Tells the peer to send no further requests; those that are there are answered. */
void http2_drain(struct http2 *h);
/* Ends the streams whose time-out has passed. False: the peer reads nothing, close it. */
bool http2_sweep(struct http2 *h, uint64_t now_ms);
bool http2_is_idle(const struct http2 *h);

#endif
