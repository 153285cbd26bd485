/* The daemon's figures as text for Prometheus (exposition format 0.0.4). Names of Triton's family
 * nv_inference_ stand where the meaning is the same, our own are parley_. Loop. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include "base/buf.h"

struct daemon;

#define METRICS_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* What a page of a full daemon stays below: the limit to give the buffer. */
enum { METRICS_MAX_BYTES = 4 << 20 };

/* Appends the page. What the buffer has no room for is left out, in whole lines. */
void metrics_render(struct daemon *d, struct buf *out);

#endif
