#include "cli/output/prompt.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/output/interrupt.h"
#include "tests/unit/base/suite.h"

/* Stdin, stdout and stderr are a terminal of the test's own until terminal_close: nothing may be
 * asserted in between, since nobody would see it. */
struct terminal {
    int master, saved[3];
};

static bool terminal_open(struct terminal *t)
{
    int slave;

    t->master = posix_openpt(O_RDWR | O_NOCTTY);
    if (t->master < 0 || grantpt(t->master) != 0 || unlockpt(t->master) != 0)
        return false;
    slave = open(ptsname(t->master), O_RDWR | O_NOCTTY);
    for (int fd = 0; fd < 3; fd++) {
        t->saved[fd] = dup(fd);
        (void)dup2(slave, fd);
    }
    (void)close(slave);
    (void)setenv("TERM", "xterm", 1);
    interrupt_catch();
    return slave >= 0;
}

static void terminal_close(struct terminal *t)
{
    interrupt_release();
    for (int fd = 0; fd < 3; fd++) {
        (void)dup2(t->saved[fd], fd);
        (void)close(t->saved[fd]);
    }
    (void)close(t->master);
}

static void *raise_term(void *term)
{
    (void)pthread_sigmask(SIG_UNBLOCK, term, NULL);
    (void)raise(SIGTERM);
    return NULL;
}

/* A signal that ends the program, and comes to some other thread, is the main thread's: it sets the
 * terminal, and restores it. Here it blocks the signal, which therefore waits. */
START_TEST(main_thread_leaves)
{
    struct line_prompt *prompt = NULL;
    struct terminal terminal;
    struct error err;
    sigset_t term, waiting;
    pthread_t other;
    bool is_open, has_joined = false;

    ck_assert(terminal_open(&terminal));
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    (void)sigemptyset(&waiting);
    is_open = prompt_open(&prompt, &err) == STATUS_OK;
    (void)pthread_sigmask(SIG_BLOCK, &term, NULL);
    if (is_open && pthread_create(&other, NULL, raise_term, &term) == 0)
        has_joined = pthread_join(other, NULL) == 0;
    (void)sigpending(&waiting);
    (void)signal(SIGTERM, SIG_IGN); /* drops it */
    (void)pthread_sigmask(SIG_UNBLOCK, &term, NULL);
    (void)signal(SIGTERM, SIG_DFL);
    prompt_close(prompt);
    terminal_close(&terminal);
    ck_assert(is_open && has_joined);
    ck_assert_int_eq(sigismember(&waiting, SIGTERM), 1);
}
END_TEST

/* Reads what is shown until the prompt was in it. */
static void await_prompt(int master)
{
    char shown[256];
    ssize_t n;

    do
        n = read(master, shown, sizeof(shown) - 1);
    while (n > 0 && memchr(shown, '>', (size_t)n) == NULL);
}

static void *continue_twice(void *arg)
{
    int master = *(const int *)arg;

    await_prompt(master);
    for (int i = 0; i < 2; i++) {
        (void)raise(SIGCONT);
        await_prompt(master);
    }
    (void)!write(master, "\x04", 1); /* else the test takes too long */
    return NULL;
}

/* A program that continues, or whose window has another size, shows the prompt again, whichever
 * thread is told so. (ThreadSanitizer sees that handler and prompt share nothing unguarded.) */
START_TEST(any_thread_continues)
{
    struct line_prompt *prompt = NULL;
    enum prompt_end end = PROMPT_TEXT;
    struct terminal terminal;
    struct error err;
    const char *text;
    pthread_t other;

    ck_assert(terminal_open(&terminal));
    if (prompt_open(&prompt, &err) == STATUS_OK &&
        pthread_create(&other, NULL, continue_twice, &terminal.master) == 0) {
        end = prompt_read(prompt, &text);
        (void)pthread_join(other, NULL);
    }
    prompt_close(prompt);
    terminal_close(&terminal);
    ck_assert_int_eq(end, PROMPT_QUIT);
}
END_TEST

SUITE_MAIN("client/cli/output/prompt", main_thread_leaves, any_thread_continues)
