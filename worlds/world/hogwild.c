/* A hogwild world runs several threads, each with a world of its own over shares of the same
 * participants. The caller's thread orders the others to open, run, reset or stop, and waits until
 * all of them are idle. All are idle between two parleys, so the caller may then read anything. A
 * parley runs each thread for 20 ms, which makes the cost of waiting small.
 *
 * Each example is taken from the shared quota once its task has acted it, so the threads together
 * do exactly n_examples. A thread that fails goes idle, and the parley returns its error. */
#include <pthread.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/list.h"
#include "worlds/world/kinds.h"
#include "worlds/world/world.h"

static const uint64_t moment_us = 20 * 1000;

enum order { ORDER_OPEN, ORDER_RUN, ORDER_RESET, ORDER_STOP };

struct hogwild;

struct hogwild_thread {
    struct hogwild *hogwild;
    uint32_t thread;
    pthread_t id;
    bool is_started;
    /* Owned by the thread while it runs an order, by the caller while the thread is idle. */
    struct world *world;
    struct error err;
};

struct hogwild {
    struct world base;
    const struct world_config *config; /* valid only while the threads are being opened */
    open_thread_fn open_thread;
    struct quota quota;
    size_t n;
    struct hogwild_thread *workers; /* [n] */
    pthread_mutex_t lock;
    pthread_cond_t go, rested;
    /* Under lock. */
    enum order order;
    uint64_t n_orders; /* given so far */
    size_t n_busy;
};

static struct hogwild *hogwild_of(const struct world *w)
{
    return container_of((struct world *)(uintptr_t)w, struct hogwild, base);
}

static void hogwild_thread_parley(struct hogwild_thread *k)
{
    uint64_t until_us = env_now_us(&env_real) + moment_us;
    struct error err; /* set only after a failed call */

    while (!world_epoch_done(k->world) && env_now_us(&env_real) < until_us)
        if (world_parley(k->world, &err) != STATUS_OK) {
            k->err = err;
            return;
        }
}

static void hogwild_thread_run_order(struct hogwild_thread *k, enum order order)
{
    struct hogwild *h = k->hogwild;
    struct error err;

    k->err = (struct error){0};
    switch (order) {
    case ORDER_OPEN:
        if (h->open_thread(&k->world, h->config, k->thread, &h->quota, &err) != STATUS_OK) {
            k->world = NULL;
            k->err = err;
        }
        break;
    case ORDER_RUN:
        hogwild_thread_parley(k);
        break;
    case ORDER_RESET:
        k->world->type->reset(k->world);
        k->world->counters = (struct world_counters){0};
        break;
    case ORDER_STOP:
        world_close(k->world);
        k->world = NULL;
        break;
    }
}

static void *hogwild_thread_main(void *arg)
{
    struct hogwild_thread *k = arg;
    struct hogwild *h = k->hogwild;
    uint64_t n_seen = 0;
    enum order order;

    do {
        (void)pthread_mutex_lock(&h->lock);
        while (h->n_orders == n_seen)
            (void)pthread_cond_wait(&h->go, &h->lock);
        n_seen = h->n_orders;
        order = h->order;
        (void)pthread_mutex_unlock(&h->lock);
        hogwild_thread_run_order(k, order);
        (void)pthread_mutex_lock(&h->lock);
        if (--h->n_busy == 0)
            (void)pthread_cond_signal(&h->rested);
        (void)pthread_mutex_unlock(&h->lock);
    } while (order != ORDER_STOP);
    return NULL;
}

/* Gives the order to all started threads; returns when all are idle, with the first failure. */
static enum status hogwild_give_order(struct hogwild *h, enum order order, struct error *err)
{
    (void)pthread_mutex_lock(&h->lock);
    h->order = order;
    h->n_orders++;
    h->n_busy = 0;
    for (size_t i = 0; i < h->n; i++)
        h->n_busy += h->workers[i].is_started;
    (void)pthread_cond_broadcast(&h->go);
    while (h->n_busy > 0)
        (void)pthread_cond_wait(&h->rested, &h->lock);
    (void)pthread_mutex_unlock(&h->lock);
    for (size_t i = 0; i < h->n; i++) {
        if (h->workers[i].err.status != STATUS_OK) {
            *err = h->workers[i].err;
            return err->status;
        }
    }
    return STATUS_OK;
}

static void hogwild_sum_counters(struct hogwild *h)
{
    uint64_t n_parleys = h->base.counters.n_parleys;

    h->base.counters = (struct world_counters){.n_parleys = n_parleys};
    for (size_t i = 0; i < h->n; i++) {
        const struct world_counters *c = &h->workers[i].world->counters;

        h->base.counters.n_examples += c->n_examples;
        h->base.counters.n_batches += c->n_batches;
        h->base.counters.n_rows += c->n_rows;
        h->base.counters.n_padded += c->n_padded;
        h->base.counters.n_cells += c->n_cells;
        h->base.counters.n_words += c->n_words;
    }
}

static enum status hogwild_parley(struct world *w, struct error *err)
{
    struct hogwild *h = hogwild_of(w);
    enum status rc = hogwild_give_order(h, ORDER_RUN, err);

    hogwild_sum_counters(h);
    return rc;
}

static void hogwild_reset(struct world *w)
{
    struct error none;

    (void)hogwild_give_order(hogwild_of(w), ORDER_RESET, &none); /* cannot fail */
}

static bool hogwild_episode_done(const struct world *w)
{
    return false;
}

static bool hogwild_epoch_done(const struct world *w)
{
    const struct hogwild *h = hogwild_of(w);

    for (size_t i = 0; i < h->n; i++)
        if (!world_epoch_done(h->workers[i].world))
            return false;
    return true;
}

static size_t hogwild_n_rows(const struct world *w)
{
    return 0;
}

static void hogwild_close(struct world *w)
{
    struct hogwild *h = hogwild_of(w);
    struct error none;

    (void)hogwild_give_order(h, ORDER_STOP, &none); /* cannot fail */
    for (size_t i = 0; i < h->n; i++)
        if (h->workers[i].is_started)
            (void)pthread_join(h->workers[i].id, NULL);
    (void)pthread_cond_destroy(&h->rested);
    (void)pthread_cond_destroy(&h->go);
    (void)pthread_mutex_destroy(&h->lock);
    free(h->workers);
    free(h);
}

static const struct world_type hogwild_world = {
    .name = "hogwild",
    .parley = hogwild_parley,
    .reset = hogwild_reset,
    .episode_done = hogwild_episode_done,
    .epoch_done = hogwild_epoch_done,
    .n_rows = hogwild_n_rows,
    .close = hogwild_close,
};

static enum status hogwild_start(struct hogwild *h, struct error *err)
{
    for (size_t i = 0; i < h->n; i++) {
        struct hogwild_thread *k = &h->workers[i];

        k->hogwild = h;
        k->thread = (uint32_t)i;
        if (fault_now() || pthread_create(&k->id, NULL, hogwild_thread_main, k) != 0)
            return error_set(err, STATUS_EXHAUSTED, "thread %zu of %zu could not be started", i + 1,
                             h->n);
        k->is_started = true;
    }
    return hogwild_give_order(h, ORDER_OPEN, err);
}

enum status hogwild_open(struct world **out, const struct world_config *config,
                         open_thread_fn open_thread, struct error *err)
{
    struct hogwild *h = xalloc(sizeof(*h));
    enum status rc;

    h->base.type = &hogwild_world;
    h->config = config;
    h->open_thread = open_thread;
    quota_init(&h->quota, config->n_examples);
    (void)pthread_mutex_init(&h->lock, NULL); /* cannot fail here */
    (void)pthread_cond_init(&h->go, NULL);
    (void)pthread_cond_init(&h->rested, NULL);
    h->n = config->n_threads;
    h->workers = try_alloc(h->n, sizeof(h->workers[0]));
    if (h->workers == NULL) {
        rc = error_no_memory(err, (uint64_t)h->n * sizeof(h->workers[0]), "threads");
        h->n = 0;
    } else {
        rc = hogwild_start(h, err);
    }
    h->config = NULL;
    if (rc != STATUS_OK) {
        hogwild_close(&h->base);
        return rc;
    }
    h->base.participants =
        h->workers[0].world->participants; /* any thread's view of the shared participants */
    *out = &h->base;
    return STATUS_OK;
}
