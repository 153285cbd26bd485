/* What a conversation costs without the wire: time and memory to open one with echo, time to fork
 * one, by its length, and to take a turn. One JSON line. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/support/fake_server.h"

enum { N_CONVERSATIONS = 100000, N_FORKS = 20000, N_TURNS = 1000 };

/* This thread's processor time, so that other load on the machine does not count. */
static double now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* cannot fail with this clock */
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static size_t used_bytes(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

/* Time to fork c and close the fork again. */
static double fork_us(struct conversation *c)
{
    struct conversation *f;
    struct error err;
    double start = now_us();

    for (size_t i = 0; i < N_FORKS; i++) {
        if (conversation_fork(&f, c, c->host.n_turns, NULL, 0, &err) != STATUS_OK)
            return -1;
        conversation_close(f, WATCH_CLOSED, "");
    }
    return (now_us() - start) / N_FORKS;
}

static double turn_us(struct fake_server *s, struct conversation *c, size_t n)
{
    double start = now_us();

    for (size_t i = 0; i < n; i++)
        fake_turn_whole(s, c, 0, "hello", FINISH_STOP, "hello");
    return (now_us() - start) / (double)n;
}

int main(void)
{
    static struct fake_server s;
    struct conversation *c;
    double open, fork_short, fork_long, turn;
    size_t bytes;

    fake_server_open(&s, "echo", 0, NULL);
    s.all.config.env = &env_real; /* ids as drawn in a real server */
    bytes = used_bytes();
    open = now_us();
    for (size_t i = 0; i < N_CONVERSATIONS; i++)
        (void)fake_conversation(&s);
    open = (now_us() - open) / N_CONVERSATIONS;
    bytes = (used_bytes() - bytes) / N_CONVERSATIONS;
    c = fake_conversation(&s);
    (void)turn_us(&s, c, 1);
    fork_short = fork_us(c);
    turn = turn_us(&s, c, N_TURNS);
    fork_long = fork_us(c);
    (void)printf("{\"open_us\": %.2f, \"idle_bytes\": %zu, \"turn_us\": %.2f, "
                 "\"fork_us\": {\"after_1\": %.2f, \"after_%d\": %.2f}}\n",
                 open, bytes, turn, fork_short, N_TURNS + 1, fork_long);
    fake_server_close(&s);
    return open <= 5 && bytes <= 2048 ? EXIT_SUCCESS : EXIT_FAILURE;
}
