/* Turns off checks of gRPC's own locks. */
#ifndef PROTO_LOCKS_H
#define PROTO_LOCKS_H

#include <stdbool.h>

/* Debian's Abseil is built with its assertions, and therefore looks for cycles among the locks that
 * gRPC takes, in a graph under one lock for the whole process: a tenth of what a call costs. This
 * turns the search off; false where that is not possible. Any thread; before gRPC starts its
 * threads. */
bool locks_unchecked(void);

#endif
