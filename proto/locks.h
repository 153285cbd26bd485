/* How gRPC's own locks behave. */
#ifndef PROTO_LOCKS_H
#define PROTO_LOCKS_H

#include <stdbool.h>

/* Debian's Abseil is built with its assertions, and so looks for cycles among the locks that gRPC
 * takes, in a graph under one lock for the whole process: a tenth of what a call costs. This has it
 * look no more; false where that is not to be had. Any thread; before gRPC's threads are there. */
bool locks_unchecked(void);

#endif
