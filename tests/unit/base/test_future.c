#include "base/future.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "tests/unit/base/suite.h"

struct ask {
    struct future reply;
    struct error err;
};

static int n_called;
static enum status seen_status;
static char seen_text[ERROR_TEXT_MAX];

static void on_reply(struct future *f, const struct error *err, void *arg)
{
    struct ask *ask = container_of(f, struct ask, reply);

    ck_assert_ptr_eq(arg, &n_called);
    ck_assert(f->is_settled);
    n_called++;
    seen_status = err->status;
    memcpy(seen_text, err->text, sizeof(seen_text));
    free(ask);
}

/* Settling calls the continuation once, with the result; the request may be freed by it. */
START_TEST(settle_calls_then)
{
    struct ask *ask = xalloc(sizeof(*ask));

    n_called = 0;
    future_init(&ask->reply, on_reply, &n_called);
    ck_assert(!ask->reply.is_settled);
    ck_assert_int_eq(n_called, 0);
    (void)error_set(&ask->err, STATUS_ABORTED, "gone");
    future_settle(&ask->reply, &ask->err);
    ck_assert_int_eq(n_called, 1);
    ck_assert_int_eq(seen_status, STATUS_ABORTED);
    ck_assert_str_eq(seen_text, "gone");
}
END_TEST

static void on_nothing(struct future *f, const struct error *err, void *arg)
{
}

/* A future may be used again after future_init. */
START_TEST(init_makes_it_pending)
{
    const struct error ok = {.status = STATUS_OK};
    struct future f;

    for (int round = 0; round < 2; round++) {
        future_init(&f, on_nothing, NULL);
        ck_assert(!f.is_settled);
        future_settle(&f, &ok);
        ck_assert(f.is_settled);
    }
}
END_TEST

static void settle_twice(void)
{
    const struct error ok = {.status = STATUS_OK};
    struct future f;

    future_init(&f, on_nothing, NULL);
    future_settle(&f, &ok);
    future_settle(&f, &ok);
}

/* Settling twice aborts. */
START_TEST(settle_twice_aborts)
{
    ck_assert(suite_aborts(settle_twice));
}
END_TEST

SUITE_MAIN("future", settle_calls_then, init_makes_it_pending, settle_twice_aborts)
