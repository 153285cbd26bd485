/* The happy path: a poster puts its item on the list and, unless a wake is pending, wakes the loop;
 * the loop takes the whole list with the lock held and delivers it with the lock released. Wakes
 * coalesce, hence the whole list. Only mailbox_open can fail: links are members of the items, and a
 * wake may be lost in a closing mailbox, because mailbox_close has delivered all that its joined
 * posters posted. */
#include "base/mailbox.h"

#include <assert.h>
#include <stddef.h>

/* taken is a member of the mailbox, not a local: a delivery that closes the mailbox delivers the
 * rest from inside, in order, and the outer call then finds an empty list. */
static void mailbox_drain(struct mailbox *m)
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
    mailbox_drain(wake->data);
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
    owner_thread_init(&m->owner);
    rc = uv_mutex_init(&m->lock);
    if (rc != 0)
        return error_set(err, STATUS_EXHAUSTED, "cannot make a lock: %s", uv_strerror(rc));
    rc = uv_async_init(loop, &m->wake, on_wake);
    if (rc != 0) {
        uv_mutex_destroy(&m->lock);
        m->wake.loop = NULL;
        return error_set(err, STATUS_EXHAUSTED, "cannot make a wake-up handle: %s",
                         uv_strerror(rc));
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
        (void)uv_async_send(&m->wake); /* cannot fail for an async handle */
    }
    uv_mutex_unlock(&m->lock);
}

void mailbox_close(struct mailbox *m, mailbox_closed_fn closed)
{
    if (m == NULL || m->wake.loop == NULL)
        return;
    ASSERT_OWNER(&m->owner);
    do {
        mailbox_drain(m); /* an item that is delivered may post another one */
        uv_mutex_lock(&m->lock);
        m->is_closing = list_is_empty(&m->items);
        uv_mutex_unlock(&m->lock);
    } while (!m->is_closing);
    m->closed = closed;
    uv_close((uv_handle_t *)&m->wake, on_closed);
}
