#include "server/net/open_files.h"

#include <sys/resource.h>

enum { RAISED_MAX = 1 << 17 }; /* libwebsockets takes 16 bytes for each possible descriptor */

void open_files_raise(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max < RAISED_MAX ? limit.rlim_max : RAISED_MAX;
    (void)setrlimit(RLIMIT_NOFILE, &limit); /* on failure there are fewer connections */
}

size_t open_files_max(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return RAISED_MAX;
    return limit.rlim_cur;
}
