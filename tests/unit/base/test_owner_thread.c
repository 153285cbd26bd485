#include "base/owner_thread.h"

#include "tests/unit/base/suite.h"

static struct owner_thread elsewhere;

static void *take_ownership(void *arg)
{
    owner_thread_init(arg);
    ASSERT_OWNER((struct owner_thread *)arg);
    return NULL;
}

static void call_elsewhere(void)
{
    ASSERT_OWNER(&elsewhere);
}

/* The thread that initialises it is the owner. */
START_TEST(the_owner_passes)
{
    struct owner_thread here;

    owner_thread_init(&here);
    ASSERT_OWNER(&here);
    ck_assert(pthread_equal(here.thread, pthread_self()));
}
END_TEST

/* A call on another thread aborts. */
START_TEST(another_thread_aborts)
{
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, take_ownership, &elsewhere), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(suite_aborts(call_elsewhere));
}
END_TEST

SUITE_MAIN("owner_thread", the_owner_passes, another_thread_aborts)
