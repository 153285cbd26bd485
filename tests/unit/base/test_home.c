#include "base/home.h"

#include "tests/unit/base/suite.h"

static struct home elsewhere;

static void *settle_down(void *arg)
{
    home_init(arg);
    ASSERT_HOME((struct home *)arg);
    return NULL;
}

static void enter_elsewhere(void)
{
    ASSERT_HOME(&elsewhere);
}

/* A thread is at home where it was initialised. */
START_TEST(at_home)
{
    struct home here;

    home_init(&here);
    ASSERT_HOME(&here);
    ck_assert(pthread_equal(here.thread, pthread_self()));
}
END_TEST

/* Entering another thread's home is a bug of ours. */
START_TEST(elsewhere_aborts)
{
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, settle_down, &elsewhere), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(suite_aborts(enter_elsewhere));
}
END_TEST

SUITE_MAIN("home", at_home, elsewhere_aborts)
