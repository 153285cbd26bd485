/* A peer that sends a part of its first bytes would wake the loop again and again, since they are
 * not read here: it is then looked at by the sweep only. All have the same time-out, so the oldest
 * is the first whose time is over. */
#include "server/net/silents.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/list.h"

enum { SWEEP_MS = 250 };

struct silent {
    struct link link; /* of all, in order of arrival */
    struct silents *of;
    uv_poll_t poll;
    int fd;
    uint64_t since_ms;
    bool is_partial; /* looked at by the sweep */
};

struct silents {
    struct silents_config config;
    struct list all;
    size_t n;
    size_t n_closing; /* handles that the loop still has to close, the timer's too */
    uv_timer_t sweep;
    bool is_closing;
};

static void silents_maybe_free(struct silents *s)
{
    if (s->is_closing && s->n_closing == 0)
        free(s);
}

static void on_silent_closed(uv_handle_t *handle)
{
    struct silent *one = handle->data;
    struct silents *s = one->of;

    free(one);
    s->n_closing--;
    silents_maybe_free(s);
}

/* The descriptor is the caller's from now on. */
static int silent_leave(struct silent *one)
{
    struct silents *s = one->of;

    list_remove(&one->link);
    s->n--;
    s->n_closing++;
    uv_close((uv_handle_t *)&one->poll, on_silent_closed); /* it is not watched any more */
    return one->fd;
}

static void silent_drop(struct silent *one)
{
    struct silents *s = one->of;

    (void)close(silent_leave(one)); /* nothing was sent */
    if (s->config.n_dropped != NULL)
        ++*s->config.n_dropped;
}

static void on_first(uv_poll_t *poll, int status, int events);

/* Waits for the next sweep, or for an event. */
static void silent_wait(struct silent *one, bool is_partial)
{
    one->is_partial = is_partial;
    if (is_partial)
        (void)uv_poll_stop(&one->poll); /* cannot fail */
    else
        (void)uv_poll_start(&one->poll, UV_READABLE, on_first); /* nor can this */
}

static void silent_look(struct silent *one)
{
    const struct silents_config *c = &one->of->config;
    char first[SILENTS_FIRST_MAX];
    ssize_t n = recv(one->fd, first, c->n_first, MSG_PEEK | MSG_DONTWAIT);
    size_t len = c->preface == NULL ? 0 : strlen(c->preface);

    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        silent_wait(one, false);
    } else if (n <= 0) {
        (void)close(silent_leave(one)); /* its peer has gone */
    } else if ((size_t)n < c->n_first &&
               memcmp(first, c->preface, (size_t)n < len ? (size_t)n : len) == 0) {
        silent_wait(one, true);
    } else {
        c->spoke(c->arg, silent_leave(one));
    }
}

static void on_first(uv_poll_t *poll, int status, int events)
{
    silent_look(poll->data);
}

static void on_silents_sweep(uv_timer_t *timer)
{
    struct silents *s = timer->data;
    struct link *at = list_first(&s->all), *next;

    for (; at != NULL; at = next) {
        struct silent *one = container_of(at, struct silent, link);

        next = list_next(&s->all, at);
        if (uv_now(timer->loop) - one->since_ms >= s->config.timeout_ms)
            silent_drop(one);
        else if (one->is_partial)
            silent_look(one);
    }
    if (list_is_empty(&s->all))
        (void)uv_timer_stop(timer); /* cannot fail */
}

struct silents *silents_open(uv_loop_t *loop, const struct silents_config *config)
{
    struct silents *s = xalloc(sizeof(*s));

    assert(config->n_first > 0 && config->n_first <= SILENTS_FIRST_MAX);
    assert(config->n_first == 1 || config->preface != NULL);
    s->config = *config;
    list_init(&s->all);
    (void)uv_timer_init(loop, &s->sweep); /* cannot fail */
    s->sweep.data = s;
    return s;
}

static void on_sweep_closed(uv_handle_t *handle)
{
    struct silents *s = handle->data;

    s->n_closing--;
    silents_maybe_free(s);
}

void silents_close(struct silents *s)
{
    struct link *at;

    if (s == NULL)
        return;
    while ((at = list_first(&s->all)) != NULL)
        (void)close(silent_leave(container_of(at, struct silent, link))); /* nothing was sent */
    s->is_closing = true;
    s->n_closing++;
    uv_close((uv_handle_t *)&s->sweep, on_sweep_closed);
}

void silents_add(struct silents *s, int fd)
{
    struct silent *one = s->is_closing ? NULL : try_alloc(1, sizeof(*one));

    if (one == NULL || uv_poll_init(s->sweep.loop, &one->poll, fd) != 0) {
        free(one);
        (void)close(fd); /* nothing was sent */
        return;
    }
    one->of = s;
    one->fd = fd;
    one->poll.data = one;
    one->since_ms = uv_now(s->sweep.loop);
    list_push(&s->all, &one->link);
    s->n++;
    silent_look(one); /* it may have come with its first bytes */
    if (!list_is_empty(&s->all) && !uv_is_active((uv_handle_t *)&s->sweep))
        (void)uv_timer_start(&s->sweep, on_silents_sweep, SWEEP_MS, SWEEP_MS); /* nor this */
}

bool silents_drop_oldest(struct silents *s)
{
    if (list_is_empty(&s->all))
        return false;
    silent_drop(container_of(list_first(&s->all), struct silent, link));
    return true;
}

size_t silents_n(const struct silents *s)
{
    return s->n;
}

bool silents_has_newer(const struct silents *s, uint64_t ms)
{
    const struct link *last = list_last(&s->all);

    return last != NULL &&
           uv_now(s->sweep.loop) - container_of(last, const struct silent, link)->since_ms <= ms;
}
