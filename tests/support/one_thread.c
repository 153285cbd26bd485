/* Preloaded to the tests of the suite unit, about which ThreadSanitizer is not asked: none of them
 * may start a thread. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((visibility("default"))) int
pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    (void)fputs("a test of the suite unit starts a thread: its suite is threads\n", stderr);
    abort();
}
