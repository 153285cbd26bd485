/* The daemon's metrics as text for Prometheus (exposition format 0.0.4). Names of Triton's family
 * nv_inference_ are used where the meaning is the same, our own begin with parley_. Loop. */
#ifndef SERVER_API_METRICS_H
#define SERVER_API_METRICS_H

#include "base/buf.h"

struct server;

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* The most bytes of a page, also of a daemon with as much as it may have. A buffer for the page has
 * this bound. */
enum { METRICS_MAX_BYTES = 4 << 20 };

/* Appends the page. Lines that do not fit in the buffer are left out as a whole. */
void metrics_render(struct server *server, struct buf *out);

#endif
