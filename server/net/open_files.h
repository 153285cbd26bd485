/* The bound on the process's open descriptors, and its shares by kind of connection. */
#ifndef SERVER_NET_OPEN_FILES_H
#define SERVER_NET_OPEN_FILES_H

#include <stddef.h>

/* The daemon needs about twenty before any client connects; libraries abort without descriptors. */
enum { OPEN_FILES_MIN = 64 };

/* Sets the soft limit to the hard limit, at most 131,072. */
void open_files_raise(void);
/* Returns the soft limit. */
size_t open_files_max(void);

/* The system assigns the lowest free number, so a bound on numbers is one on all that is open. Each
 * kind of connection may take descriptors below its bound, which leaves the rest to the kinds
 * behind it: the public gRPC port, the public HTTP port, those of administration, files (the
 * journal's, models' and others). */
static inline size_t open_files_for_grpc(void)
{
    return open_files_max() / 16 * 12;
}

static inline size_t open_files_for_http(void)
{
    return open_files_max() / 16 * 13;
}

static inline size_t open_files_for_admin(void)
{
    return open_files_max() / 16 * 14;
}

#endif
