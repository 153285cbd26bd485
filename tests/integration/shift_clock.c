/* Preloaded: the machine's clock is ahead by PARLEY_CLOCK_AHEAD seconds, which may be negative. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int (*read_fn)(clockid_t clock, struct timespec *out);

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out)
{
    const char *ahead = getenv("PARLEY_CLOCK_AHEAD");
    void *found = dlsym(RTLD_NEXT, "clock_gettime");
    read_fn real;
    int rc;

    memcpy(&real, &found, sizeof(real));
    rc = real(clock, out);
    if (rc == 0 && clock == CLOCK_REALTIME && ahead != NULL)
        out->tv_sec += strtol(ahead, NULL, 10);
    return rc;
}
