/* Passes items to a libuv loop: any thread posts an item, the loop delivers it. Posting hands the
 * item over; the sender does not touch it again. */
#ifndef BASE_MAILBOX_H
#define BASE_MAILBOX_H

#include <stdbool.h>
#include <uv.h>

#include "base/list.h"
#include "base/owner_thread.h"
#include "base/status.h"

typedef void (*mailbox_deliver_fn)(struct link *item, void *arg); /* on the loop, lock released */
typedef void (*mailbox_closed_fn)(void *arg);                     /* on the loop */

struct mailbox {
    uv_async_t wake;
    uv_mutex_t lock;
    struct list items; /* guarded by lock */
    bool woken;        /* guarded by lock: a wake is pending, no second one is needed */
    bool is_closing;   /* guarded by lock */
    struct list taken; /* the loop's: being delivered */
    mailbox_deliver_fn deliver;
    mailbox_closed_fn closed;
    void *arg;
    struct owner_thread owner;
};

/* On the loop's thread. STATUS_EXHAUSTED without descriptors. The mailbox keeps the loop alive
 * until it is closed. */
enum status mailbox_open(struct mailbox *m, uv_loop_t *loop, mailbox_deliver_fn deliver, void *arg,
                         struct error *err) MUST_CHECK;

/* Any thread. The wake is sent with the lock held: otherwise the loop could see the item, finish
 * and close while the sender is still inside uv_async_send. */
void mailbox_post(struct mailbox *m, struct link *item);

/* On the loop, after every poster is joined: delivers what is left, then calls closed later, when
 * the handle is gone. Does nothing, and calls nothing, if m is NULL or is not open. */
void mailbox_close(struct mailbox *m, mailbox_closed_fn closed);

#endif
