#include "base/mailbox.h"

#include <pthread.h>

#include "tests/unit/base/suite.h"

enum { N_POSTERS = 4, N_ITEMS = 2000 };

struct item {
    struct link link;
    int poster, number;
};

struct poster {
    struct box *box;
    pthread_t thread;
    int name;
    struct item items[N_ITEMS];
};

/* A mailbox on a loop of its own, and the deliveries. */
struct box {
    uv_loop_t loop;
    struct mailbox mailbox;
    pthread_t home;
    int n_delivered, n_closed;
    int next[N_POSTERS];     /* the next number expected from each */
    int close_after;         /* delivery that closes the mailbox; 0: none does */
    struct item *post_after; /* posted by the next delivery, once; NULL: none */
};

static struct poster posters[N_POSTERS];

static void on_closed(void *arg)
{
    struct box *box = arg;

    ck_assert(pthread_equal(box->home, pthread_self()));
    box->n_closed++;
}

static void on_item(struct link *link, void *arg)
{
    struct item *item = container_of(link, struct item, link);
    struct box *box = arg;
    struct item *more = box->post_after;

    ck_assert(pthread_equal(box->home, pthread_self()));
    ck_assert(!link_is_on(link));
    ck_assert_int_eq(box->n_closed, 0);
    ck_assert_int_eq(item->number, box->next[item->poster]++);
    box->n_delivered++;
    if (more != NULL) {
        box->post_after = NULL;
        mailbox_post(&box->mailbox, &more->link);
    }
    if (box->n_delivered == box->close_after)
        mailbox_close(&box->mailbox, on_closed);
}

static void box_open(struct box *box)
{
    struct error err;

    *box = (struct box){.home = pthread_self()};
    ck_assert_int_eq(uv_loop_init(&box->loop), 0);
    ck_assert_int_eq(mailbox_open(&box->mailbox, &box->loop, on_item, box, &err), STATUS_OK);
    for (int i = 0; i < N_POSTERS; i++) {
        posters[i].box = box;
        posters[i].name = i;
        for (int k = 0; k < N_ITEMS; k++)
            posters[i].items[k] = (struct item){.poster = i, .number = k};
    }
}

/* The loop ends by itself once the mailbox is closed, and leaves nothing behind. */
static void box_check_gone(struct box *box)
{
    ck_assert_int_eq(uv_run(&box->loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(box->n_closed, 1);
    ck_assert_int_eq(uv_loop_close(&box->loop), 0);
}

static void *post_all(void *arg)
{
    struct poster *p = arg;

    for (int i = 0; i < N_ITEMS; i++)
        mailbox_post(&p->box->mailbox, &p->items[i].link);
    return NULL;
}

static void posters_start(void)
{
    for (int i = 0; i < N_POSTERS; i++)
        ck_assert_int_eq(pthread_create(&posters[i].thread, NULL, post_all, &posters[i]), 0);
}

static void posters_join(void)
{
    for (int i = 0; i < N_POSTERS; i++)
        ck_assert_int_eq(pthread_join(posters[i].thread, NULL), 0);
}

/* All items of several threads arrive on the loop, once, each thread's in order. */
START_TEST(threads_post)
{
    struct box box;

    box_open(&box);
    posters_start();
    while (box.n_delivered < N_POSTERS * N_ITEMS)
        (void)uv_run(&box.loop, UV_RUN_ONCE);
    posters_join();
    ck_assert_int_eq(box.n_delivered, N_POSTERS * N_ITEMS);
    mailbox_close(&box.mailbox, on_closed);
    box_check_gone(&box);
    ck_assert_int_eq(box.n_delivered, N_POSTERS * N_ITEMS);
}
END_TEST

/* The loop may close the mailbox on the last item while its poster is still in mailbox_post. */
START_TEST(last_item_closes)
{
    for (int round = 0; round < 10; round++) {
        struct box box;

        box_open(&box);
        box.close_after = N_POSTERS * N_ITEMS;
        posters_start();
        ck_assert_int_eq(uv_run(&box.loop, UV_RUN_DEFAULT), 0);
        posters_join();
        box_check_gone(&box);
        ck_assert_int_eq(box.n_delivered, N_POSTERS * N_ITEMS);
    }
}
END_TEST

/* Wakes coalesce: one iteration of the loop delivers all that was posted before it. */
START_TEST(one_wake_delivers_all)
{
    struct box box;

    box_open(&box);
    (void)post_all(&posters[0]);
    ck_assert_int_eq(box.n_delivered, 0); /* never inside the post */
    (void)uv_run(&box.loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(box.n_delivered, N_ITEMS);
    (void)post_all(&posters[1]); /* and the next post wakes again */
    (void)uv_run(&box.loop, UV_RUN_NOWAIT);
    ck_assert_int_eq(box.n_delivered, 2 * N_ITEMS);
    mailbox_close(&box.mailbox, on_closed);
    box_check_gone(&box);
}
END_TEST

/* A delivery may post: the lock is released, and the item arrives later, not inside. */
START_TEST(delivery_posts)
{
    struct box box;

    box_open(&box);
    box.post_after = &posters[0].items[1];
    mailbox_post(&box.mailbox, &posters[0].items[0].link);
    while (box.n_delivered < 2)
        (void)uv_run(&box.loop, UV_RUN_ONCE);
    mailbox_close(&box.mailbox, on_closed);
    box_check_gone(&box);
}
END_TEST

/* Closing delivers what is left, also what is posted meanwhile; closed is called later. */
START_TEST(close_delivers_the_rest)
{
    struct box box;

    box_open(&box);
    mailbox_post(&box.mailbox, &posters[0].items[0].link);
    mailbox_post(&box.mailbox, &posters[0].items[1].link);
    box.post_after = &posters[0].items[2];
    mailbox_close(&box.mailbox, on_closed);
    ck_assert_int_eq(box.n_delivered, 3);
    ck_assert_int_eq(box.n_closed, 0);
    box_check_gone(&box);
    ck_assert_int_eq(box.n_delivered, 3);
}
END_TEST

/* Closed in the middle of a delivery, the rest still arrives in order. */
START_TEST(close_inside_a_delivery)
{
    struct box box;

    box_open(&box);
    box.close_after = 2;
    for (int i = 0; i < 5; i++)
        mailbox_post(&box.mailbox, &posters[0].items[i].link);
    box.post_after = &posters[0].items[5];
    box_check_gone(&box);
    ck_assert_int_eq(box.n_delivered, 6);
}
END_TEST

/* Closing NULL, a mailbox never opened, or a closed one does nothing. */
START_TEST(close_of_nothing)
{
    struct mailbox never = {.arg = NULL};
    struct box box;

    mailbox_close(NULL, on_closed);
    mailbox_close(&never, on_closed);
    box_open(&box);
    mailbox_close(&box.mailbox, NULL);
    ck_assert_int_eq(uv_run(&box.loop, UV_RUN_DEFAULT), 0);
    mailbox_close(&box.mailbox, on_closed);
    ck_assert_int_eq(box.n_closed, 0);
    ck_assert_int_eq(uv_loop_close(&box.loop), 0);
}
END_TEST

static void post_after_close(void)
{
    struct box box;

    box_open(&box);
    mailbox_close(&box.mailbox, on_closed);
    mailbox_post(&box.mailbox, &posters[0].items[0].link);
}

/* A post to a closed mailbox would be lost, so it aborts. */
START_TEST(post_after_close_aborts)
{
    ck_assert(suite_aborts(post_after_close));
}
END_TEST

static struct box foreign;

static void *open_foreign(void *arg)
{
    box_open(&foreign);
    return NULL;
}

static void close_foreign(void)
{
    mailbox_close(&foreign.mailbox, on_closed);
}

/* Only the loop's own thread may close. */
START_TEST(close_elsewhere_aborts)
{
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, open_foreign, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(suite_aborts(close_foreign));
    foreign.home = foreign.mailbox.owner.thread = pthread_self(); /* its thread is gone */
    mailbox_close(&foreign.mailbox, on_closed);
    box_check_gone(&foreign);
}
END_TEST

SUITE_MAIN("mailbox", threads_post, last_item_closes, one_wake_delivers_all, delivery_posts,
           close_delivers_the_rest, close_inside_a_delivery, close_of_nothing,
           post_after_close_aborts, close_elsewhere_aborts)
