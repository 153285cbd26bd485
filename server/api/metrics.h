/* The daemon's metrics as text for Prometheus (exposition format 0.0.4). Names of Triton's family
 * nv_inference_ are used where the meaning is the same, our own begin with parley_. Loop. */
#ifndef SERVER_API_METRICS_H
#define SERVER_API_METRICS_H

#include "base/buf.h"

struct server;

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Upper bound of a full daemon's page: the limit to give the buffer. */
enum { METRICS_MAX_BYTES = 4 << 20 };

/* Appends the page. Lines that do not fit in the buffer are left out as a whole. */
void metrics_render(struct server *server, struct buf *out);

#endif
