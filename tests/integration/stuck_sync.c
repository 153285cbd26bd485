/* Preloaded: while the file of PARLEY_STUCK_SYNC exists, a sync does not return, as on a disk that
 * has stopped; it renames the file to say that it has come so far. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*sync_fn)(int fd);

static int sync_or_stick(const char *name, int fd)
{
    const char *file = getenv("PARLEY_STUCK_SYNC");
    void *found = dlsym(RTLD_NEXT, name);
    char reached[4096];
    sync_fn real;

    if (file != NULL && snprintf(reached, sizeof(reached), "%s.reached", file) > 0 &&
        rename(file, reached) == 0)
        for (;;)
            (void)pause(); /* returns behind a signal's handler, too */
    memcpy(&real, &found, sizeof(real));
    return real(fd);
}

__attribute__((visibility("default"))) int fsync(int fd)
{
    return sync_or_stick("fsync", fd);
}

__attribute__((visibility("default"))) int fdatasync(int fd)
{
    return sync_or_stick("fdatasync", fd);
}
