/* How many descriptors the process may have open. */
#ifndef SERVER_NET_OPEN_FILES_H
#define SERVER_NET_OPEN_FILES_H

#include <stddef.h>

/* The daemon needs about twenty before any client connects; libraries abort without descriptors. */
enum { OPEN_FILES_MIN = 64 };

/* Sets the soft limit to the hard limit, at most 131,072. */
void open_files_raise(void);
size_t open_files_max(void);

/* Each kind of connection leaves descriptors for the other, and for files. */
static inline size_t open_files_for_grpc(void)
{
    return open_files_max() / 4 * 3;
}

static inline size_t open_files_for_http(void)
{
    return open_files_max() / 8 * 7;
}

#endif
