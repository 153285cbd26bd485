/* A thread's home: entry points assert that they run in theirs. */
#ifndef BASE_HOME_H
#define BASE_HOME_H

#include <assert.h>
#include <pthread.h>

struct home {
    pthread_t thread;
};

static inline void home_init(struct home *h)
{
    h->thread = pthread_self();
}

#define ASSERT_HOME(h) assert(pthread_equal((h)->thread, pthread_self()))

#endif
