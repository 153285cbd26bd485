/* The happy path: a poster puts its item on the list and, unless a wake is on its way, wakes the
 * loop; the loop takes the whole list with the lock held and delivers it with the lock released.
 * Wakes coalesce, hence the whole list. Nothing here fails but mailbox_open: links are the items'
 * own, and a wake that is lost in a closing mailbox finds nothing, because mailbox_close has
 * delivered all that its joined posters left. */
#include "base/mailbox.h"

#include <assert.h>
#include <stddef.h>

/* taken is the mailbox's own, not this call's: a delivery that closes the mailbox delivers the rest
 * from inside, in order, and the outer call then finds nothing left. */
static void drain(struct mailbox *m)
{
    struct link *item;

    uv_mutex_lock(&m->lock);
    m->woken = false;
    list_move(&m->items, &m->taken);
    uv_mutex_unlock(&m->lock);
    while ((item = list_pop(&m->taken)) != NULL)
        m->deliver(item, m->arg);
}

static void on_wake(uv_async_t *wake)
{
    drain(wake->data);
}

static void on_closed(uv_handle_t *wake)
{
    struct mailbox *m = wake->data;

    uv_mutex_destroy(&m->lock);
    m->wake.loop = NULL;
    if (m->closed != NULL)
        m->closed(m->arg);
}

enum status mailbox_open(struct mailbox *m, uv_loop_t *loop, mailbox_deliver_fn deliver, void *arg,
                         struct error *err)
{
    int rc;

    *m = (struct mailbox){.deliver = deliver, .arg = arg};
    list_init(&m->items);
    list_init(&m->taken);
    home_init(&m->home);
    rc = uv_mutex_init(&m->lock);
    if (rc != 0)
        return error_set(err, STATUS_EXHAUSTED, "cannot make a lock: %s", uv_strerror(rc));
    rc = uv_async_init(loop, &m->wake, on_wake);
    if (rc != 0) {
        uv_mutex_destroy(&m->lock);
        m->wake.loop = NULL;
        return error_set(err, STATUS_EXHAUSTED, "cannot make a wake: %s", uv_strerror(rc));
    }
    m->wake.data = m;
    return STATUS_OK;
}

void mailbox_post(struct mailbox *m, struct link *item)
{
    uv_mutex_lock(&m->lock);
    assert(!m->is_closing);
    list_push(&m->items, item);
    if (!m->woken) {
        m->woken = true;
        (void)uv_async_send(&m->wake); /* fails only for what is no async handle */
    }
    uv_mutex_unlock(&m->lock);
}

void mailbox_close(struct mailbox *m, mailbox_closed_fn closed)
{
    if (m == NULL || m->wake.loop == NULL)
        return;
    ASSERT_HOME(&m->home);
    do {
        drain(m); /* what is delivered may post once more */
        uv_mutex_lock(&m->lock);
        m->is_closing = list_is_empty(&m->items);
        uv_mutex_unlock(&m->lock);
    } while (!m->is_closing);
    m->closed = closed;
    uv_close((uv_handle_t *)&m->wake, on_closed);
}
