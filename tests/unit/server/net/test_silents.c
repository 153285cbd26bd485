/* Peers are the other ends of socket pairs. */
#include "server/net/silents.h"

#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"

enum { TIMEOUT_MS = 600 };

static uv_loop_t loop;
static struct silents *silents;
static int spoken[8];
static size_t n_spoken;
static uint64_t n_dropped;

static void spoke(void *arg, int fd)
{
    ck_assert_ptr_eq(arg, &loop);
    spoken[n_spoken++] = fd;
}

static void open_with(size_t n_first, const char *preface)
{
    const struct silents_config config = {.timeout_ms = TIMEOUT_MS,
                                          .n_first = n_first,
                                          .preface = preface,
                                          .spoke = spoke,
                                          .arg = &loop,
                                          .n_dropped = &n_dropped};

    n_spoken = 0;
    n_dropped = 0;
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    silents = silents_open(&loop, &config);
}

static void close_all(void)
{
    silents_close(silents);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
}

/* A peer that has said first; its own end. */
static int add(const char *first)
{
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    ck_assert_int_eq(send(fds[1], first, strlen(first), 0), (ssize_t)strlen(first));
    silents_add(silents, fds[0]);
    return fds[1];
}

static void say(int peer, const char *text)
{
    ck_assert_int_eq(send(peer, text, strlen(text), 0), (ssize_t)strlen(text));
}

static bool is_closed(int peer)
{
    char byte;

    return recv(peer, &byte, 1, 0) == 0 || errno == ECONNRESET; /* which it had not read */
}

/* Runs the loop until n have spoken. */
static void expect_spoken(size_t n)
{
    while (n_spoken < n)
        ck_assert_int_ne(uv_run(&loop, UV_RUN_ONCE), 0);
}

static void hear(int fd, const char *text)
{
    char said[64];

    ck_assert_int_eq(recv(fd, said, sizeof(said), 0), (ssize_t)strlen(text));
    ck_assert_int_eq(memcmp(said, text, strlen(text)), 0);
    (void)close(fd);
}

/* A peer is handed over with its first byte, unread: at once, or when it comes. */
START_TEST(one_byte_does)
{
    int early, late;

    open_with(1, NULL);
    early = add("a");
    ck_assert_uint_eq(n_spoken, 1);
    late = add("");
    ck_assert_uint_eq(silents_n(silents), 1);
    (void)uv_run(&loop, UV_RUN_NOWAIT);
    ck_assert_uint_eq(n_spoken, 1);
    say(late, "bc");
    expect_spoken(2);
    hear(spoken[0], "a");
    hear(spoken[1], "bc");
    ck_assert_uint_eq(silents_n(silents), 0);
    close_all();
    ck_assert(is_closed(early) && is_closed(late));
    (void)close(early);
    (void)close(late);
}
END_TEST

/* With a preface all of the first bytes are awaited, in however many parts; what cannot become it
 * is handed over early. */
START_TEST(a_preface_is_awaited)
{
    int parts, other;

    open_with(6, "PRI*");
    parts = add("PR");
    other = add("PX");
    ck_assert_uint_eq(n_spoken, 1);
    say(parts, "I");
    (void)uv_run(&loop, UV_RUN_ONCE);
    say(parts, "*12");
    expect_spoken(2);
    hear(spoken[0], "PX");
    hear(spoken[1], "PRI*12");
    (void)close(parts);
    (void)close(other);
    close_all();
}
END_TEST

/* Who says nothing, or a part, is closed after the time-out; who leaves, at once, and is not
 * counted. */
START_TEST(silence_ends)
{
    int nothing, part, gone;
    uint64_t began_ms;

    open_with(6, "PRI*");
    began_ms = uv_now(&loop);
    nothing = add("");
    part = add("PR");
    gone = add("");
    ck_assert(silents_has_newer(silents, 1));
    (void)close(gone);
    (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_eq(silents_n(silents), 2);
    while (silents_n(silents) > 0)
        (void)uv_run(&loop, UV_RUN_ONCE);
    ck_assert_uint_ge(uv_now(&loop) - began_ms, TIMEOUT_MS);
    ck_assert(is_closed(nothing) && is_closed(part));
    ck_assert_uint_eq(n_dropped, 2);
    ck_assert_uint_eq(n_spoken, 0);
    (void)close(nothing);
    (void)close(part);
    close_all();
}
END_TEST

/* The oldest is dropped for another, and its descriptor is free at once. */
START_TEST(the_oldest_makes_room)
{
    int peers[2], fd;

    open_with(1, NULL);
    ck_assert(!silents_drop_oldest(silents));
    peers[0] = add("");
    peers[1] = add("");
    ck_assert(silents_drop_oldest(silents));
    ck_assert(is_closed(peers[0]));
    fd = dup(peers[1]);
    ck_assert_int_lt(fd, peers[1]);
    (void)close(fd);
    say(peers[1], "a");
    expect_spoken(1);
    hear(spoken[0], "a");
    for (size_t i = 0; i < 2; i++)
        (void)close(peers[i]);
    peers[0] = add("");
    close_all(); /* with one that is silent */
    ck_assert(is_closed(peers[0]));
    (void)close(peers[0]);
}
END_TEST

SUITE_MAIN("server/silents", one_byte_does, a_preface_is_awaited, silence_ends,
           the_oldest_makes_room)
