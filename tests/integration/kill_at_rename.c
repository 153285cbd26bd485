/* Preloaded: the process is killed with -9 at its rename of number PARLEY_KILL_AT_RENAME, counted
 * from 1, before anything is renamed. */
#include <dlfcn.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*rename_fn)(const char *from, const char *to);

__attribute__((visibility("default"))) int rename(const char *from, const char *to)
{
    static atomic_ulong n;
    const char *at = getenv("PARLEY_KILL_AT_RENAME");
    void *found = dlsym(RTLD_NEXT, "rename");
    rename_fn real;

    if (at != NULL && strtoul(at, NULL, 10) == atomic_fetch_add(&n, 1) + 1)
        (void)raise(SIGKILL);
    memcpy(&real, &found, sizeof(real));
    return real(from, to);
}
