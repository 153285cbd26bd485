/* The happy path: worker_submit puts the job on the list and signals; the thread takes it, calls
 * run with the lock released, and posts it to the mailbox, whose delivery calls done on the loop. A
 * stop lets the thread empty the list first, so that every job's done is called; only then, with
 * the one poster joined, is the mailbox closed. Only worker_start can fail. */
#include "base/worker.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/mailbox.h"

struct worker {
    struct owner_thread loop;
    pthread_t thread;
    char thread_name[16]; /* the system's limit */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct list jobs; /* guarded by lock */
    bool is_stopping; /* guarded by lock */
    struct mailbox back;
    size_t n_away; /* the loop's: jobs submitted whose done was not called yet */
    void (*stopped)(void *arg);
    void *stopped_arg;
};

/* NULL when the worker is stopping and no job is left. */
static struct job *wait_for_job(struct worker *w)
{
    struct link *item;

    pthread_mutex_lock(&w->lock);
    while (list_is_empty(&w->jobs) && !w->is_stopping)
        pthread_cond_wait(&w->wake, &w->lock);
    item = list_pop(&w->jobs);
    pthread_mutex_unlock(&w->lock);
    return item != NULL ? container_of(item, struct job, link) : NULL;
}

static void *worker_work(void *arg)
{
    struct worker *w = arg;
    struct job *job;

    (void)pthread_setname_np(pthread_self(), w->thread_name); /* for ps and top */
    while ((job = wait_for_job(w)) != NULL) {
        job->run(job);
        mailbox_post(&w->back, &job->link);
    }
    return NULL;
}

static void worker_join(struct worker *w)
{
    pthread_mutex_lock(&w->lock);
    w->is_stopping = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL); /* cannot fail for a thread that was started */
}

static void free_worker(struct worker *w)
{
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static void on_job_back(struct link *item, void *arg)
{
    struct job *job = container_of(item, struct job, link);
    struct worker *w = arg;

    w->n_away--;
    job->done(job);
}

static void on_closed(void *arg)
{
    struct worker *w = arg;
    void (*stopped)(void *) = w->stopped;
    void *stopped_arg = w->stopped_arg;

    free_worker(w);
    stopped(stopped_arg);
}

enum status worker_start(struct worker **out, uv_loop_t *loop, const char *thread_name,
                         struct error *err)
{
    struct worker *w = xalloc(sizeof(*w));
    enum status rc;
    int failed;

    owner_thread_init(&w->loop);
    list_init(&w->jobs);
    strncpy(w->thread_name, thread_name, sizeof(w->thread_name) - 1);
    (void)pthread_mutex_init(&w->lock, NULL); /* neither can fail with default attributes */
    (void)pthread_cond_init(&w->wake, NULL);

    /* The thread is started first: on failure it can be joined at once, while a mailbox needs the
     * loop to close. */
    failed = fault_now() ? EAGAIN : pthread_create(&w->thread, NULL, worker_work, w);
    if (failed != 0) {
        free_worker(w);
        return error_set(err, STATUS_EXHAUSTED, "cannot start thread '%s': %s", thread_name,
                         strerror(failed));
    }
    rc = mailbox_open(&w->back, loop, on_job_back, w, err);
    if (rc != STATUS_OK) {
        worker_join(w);
        free_worker(w);
        return rc;
    }
    *out = w;
    return STATUS_OK;
}

void worker_submit(struct worker *w, struct job *job)
{
    ASSERT_OWNER(&w->loop);
    pthread_mutex_lock(&w->lock);
    assert(!w->is_stopping);
    w->n_away++;
    list_push(&w->jobs, &job->link);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void worker_stop(struct worker *w, void (*stopped)(void *arg), void *arg)
{
    ASSERT_OWNER(&w->loop);
    w->stopped = stopped;
    w->stopped_arg = arg;
    worker_join(w);
    mailbox_close(&w->back, on_closed);
}

bool worker_is_idle(const struct worker *w)
{
    ASSERT_OWNER(&w->loop);
    return w->n_away == 0;
}

int worker_is_current(const struct worker *w)
{
    return pthread_equal(w->thread, pthread_self()) != 0;
}
