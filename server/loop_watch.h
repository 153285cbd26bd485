/* How long the loop's thread computes without looking for events: while it does, nobody is
 * answered. Loop. */
#ifndef SERVER_LOOP_WATCH_H
#define SERVER_LOOP_WATCH_H

#include <stdint.h>
#include <time.h>
#include <uv.h>

struct loop_watch {
    uv_prepare_t prepare;
    uint64_t last_us;    /* the thread's processor time when it last looked for events */
    uint64_t longest_us; /* the most processor time between two looks, of one or more callbacks */
};

static inline uint64_t loop_watch_now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* cannot fail */
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static inline void loop_watch_look(uv_prepare_t *prepare)
{
    struct loop_watch *w = prepare->data;
    const uint64_t now_us = loop_watch_now_us();

    if (now_us - w->last_us > w->longest_us)
        w->longest_us = now_us - w->last_us;
    w->last_us = now_us;
}

static inline void loop_watch_open(struct loop_watch *w, uv_loop_t *loop)
{
    w->last_us = loop_watch_now_us();
    (void)uv_prepare_init(loop, &w->prepare); /* none of these can fail */
    w->prepare.data = w;
    (void)uv_prepare_start(&w->prepare, loop_watch_look);
    uv_unref((uv_handle_t *)&w->prepare);
}

/* Closed in the loop's next iteration. */
static inline void loop_watch_close(struct loop_watch *w)
{
    uv_close((uv_handle_t *)&w->prepare, NULL);
}

#endif
