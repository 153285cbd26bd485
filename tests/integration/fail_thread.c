/* Preloaded: the thread of number PARLEY_FAIL_THREAD, counted from 1, cannot be started. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef int (*create_fn)(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                         void *arg);

__attribute__((visibility("default"))) int
pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    static atomic_ulong n;
    const char *fail = getenv("PARLEY_FAIL_THREAD");
    void *found = dlsym(RTLD_NEXT, "pthread_create");
    create_fn real;

    if (fail != NULL && strtoul(fail, NULL, 10) == atomic_fetch_add(&n, 1) + 1)
        return EAGAIN;
    memcpy(&real, &found, sizeof(real));
    return real(thread, attr, run, arg);
}
