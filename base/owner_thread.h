/* The thread that owns a struct: its functions assert that they run on this thread. */
#ifndef BASE_OWNER_THREAD_H
#define BASE_OWNER_THREAD_H

#include <assert.h>
#include <pthread.h>

struct owner_thread {
    pthread_t thread;
};

/* The calling thread is the owner. */
static inline void owner_thread_init(struct owner_thread *o)
{
    o->thread = pthread_self();
}

#define ASSERT_OWNER(o) assert(pthread_equal((o)->thread, pthread_self()))

#endif
