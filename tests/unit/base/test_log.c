#include "base/log.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/utf8.h"
#include "tests/unit/base/suite.h"

enum { LINE_SIZE = 8192 };

/* While a test listens, stderr is a datagram socket: one write is one datagram. */
static int stderr_kept;
static int listening[2];

static void listen_start(void)
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, listening), 0);
    stderr_kept = dup(STDERR_FILENO);
    ck_assert_int_ge(stderr_kept, 0);
    ck_assert_int_ge(dup2(listening[1], STDERR_FILENO), 0);
}

static void listen_stop(void)
{
    ck_assert_int_ge(dup2(stderr_kept, STDERR_FILENO), 0);
    (void)close(stderr_kept);
    (void)close(listening[0]);
    (void)close(listening[1]);
}

/* Reads the next write, without its newline; returns 0 when there was none. Checks that it has one
 * newline, at its end. */
static int next_line(char line[LINE_SIZE], int flags)
{
    ssize_t n = recv(listening[0], line, LINE_SIZE - 1, flags);

    if (n < 0)
        return 0;
    ck_assert_int_gt(n, 0);
    line[n] = '\0';
    ck_assert_uint_eq(strlen(line), (size_t)n);
    ck_assert_ptr_eq(strchr(line, '\n'), line + n - 1);
    line[n - 1] = '\0';
    return 1;
}

/* The text after the time stamp and its space. */
static const char *after_time(const char *line)
{
    static const char shape[] = "0000-00-00T00:00:00.000Z ";

    for (size_t i = 0; i < sizeof(shape) - 1; i++) {
        if (shape[i] == '0')
            ck_assert(isdigit((unsigned char)line[i]));
        else
            ck_assert_int_eq(line[i], shape[i]);
    }
    return line + sizeof(shape) - 1;
}

/* A line is time, level, event and the values, in one write. */
START_TEST(line_is_one_write)
{
    char line[LINE_SIZE];

    listen_start();
    log_info("started", "port=%d name=%s", 8001, "x");
    ck_assert(next_line(line, MSG_DONTWAIT));
    ck_assert_str_eq(after_time(line), "info started port=8001 name=x");
    log_error("stopped", "%s", "");
    ck_assert(next_line(line, MSG_DONTWAIT));
    ck_assert_str_eq(after_time(line), "error stopped ");
    ck_assert(!next_line(line, MSG_DONTWAIT));
    listen_stop();
}
END_TEST

/* The time is now, in UTC, whatever the time zone. */
START_TEST(time_is_utc)
{
    char line[LINE_SIZE], before[32], after[32];
    time_t now;
    struct tm utc;

    ck_assert_int_eq(setenv("TZ", "Asia/Kathmandu", 1), 0);
    tzset();
    listen_start();
    now = time(NULL);
    (void)strftime(before, sizeof(before), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now, &utc));
    log_warn("tick", "n=%d", 1);
    now = time(NULL) + 1; /* time() may lag behind the precise clock by a tick */
    (void)strftime(after, sizeof(after), "%Y-%m-%dT%H:%M:%S", gmtime_r(&now, &utc));
    ck_assert(next_line(line, MSG_DONTWAIT));
    ck_assert_str_eq(after_time(line), "warn tick n=1");
    line[19] = '\0';
    ck_assert_str_ge(line, before);
    ck_assert_str_le(line, after);
    listen_stop();
}
END_TEST

/* Lines below the level are not written, nor are their values computed. */
START_TEST(level_is_kept)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    char line[LINE_SIZE];
    int n_computed = 0;

    listen_start();
    for (int level = LOG_DEBUG; level <= LOG_ERROR; level++) {
        log_set_level((enum log_level)level);
        n_computed = 0;
        log_debug("e", "n=%d", ++n_computed);
        log_info("e", "n=%d", ++n_computed);
        log_warn("e", "n=%d", ++n_computed);
        log_error("e", "n=%d", ++n_computed);
        ck_assert_int_eq(n_computed, LOG_ERROR - level + 1);
        for (int i = 0; i < n_computed; i++) {
            char want[32];

            ck_assert(next_line(line, MSG_DONTWAIT));
            (void)snprintf(want, sizeof(want), "%s e n=%d", names[level + i], i + 1);
            ck_assert_str_eq(after_time(line), want);
        }
        ck_assert(!next_line(line, MSG_DONTWAIT));
    }
    log_write(LOG_WARN, "e", "below %s", "error");
    ck_assert(!next_line(line, MSG_DONTWAIT));
    log_set_level(LOG_INFO);
    listen_stop();
}
END_TEST

/* Level names are read back; another name is an error that lists the known ones. */
START_TEST(level_is_parsed)
{
    enum log_level level = LOG_WARN;
    struct error err;

    ck_assert_int_eq(log_level_parse(&level, "debug", &err), STATUS_OK);
    ck_assert_int_eq(level, LOG_DEBUG);
    ck_assert_int_eq(log_level_parse(&level, "error", &err), STATUS_OK);
    ck_assert_int_eq(level, LOG_ERROR);
    ck_assert_int_eq(log_level_parse(&level, "loud", &err), STATUS_INVALID);
    ck_assert_int_eq(level, LOG_ERROR);
    ck_assert_str_eq(err.text, "'loud' is not a log level, it must be debug, info, warn or error");
}
END_TEST

/* A value that should have been quoted cannot forge a line, nor send control characters to the
 * terminal. */
START_TEST(values_forge_no_line)
{
    char line[LINE_SIZE];

    listen_start();
    log_info("e", "v=%s", "a\nb\rc\x1b[31m\x7f");
    ck_assert(next_line(line, MSG_DONTWAIT));
    ck_assert_str_eq(after_time(line), "info e v=a?b?c?[31m?");
    ck_assert(!next_line(line, MSG_DONTWAIT));
    listen_stop();
}
END_TEST

/* A line that is too long is cut, between characters, and is still one write with its newline. */
START_TEST(long_line_is_cut)
{
    static char text[6001];
    char line[LINE_SIZE];

    for (size_t i = 0; i < 2000; i++)
        memcpy(text + 3 * i, "€", 3);
    listen_start();
    for (int shift = 0; shift < 3; shift++) {
        log_info("e", "%.*s%s", shift, "xx", text);
        ck_assert(next_line(line, MSG_DONTWAIT));
        ck_assert(utf8_is_valid(line, strlen(line)));
        ck_assert_uint_gt(strlen(line), 4090);
        ck_assert_uint_le(strlen(line), 4095);
    }
    ck_assert(!next_line(line, MSG_DONTWAIT));
    listen_stop();
}
END_TEST

enum { N_THREADS = 4, N_LINES = 500 };

static void *write_lines(void *arg)
{
    for (int i = 0; i < N_LINES; i++)
        log_info("e", "thread=%d line=%d", *(int *)arg, i);
    return NULL;
}

/* Lines of several threads arrive whole, and each thread's in order. */
START_TEST(threads_do_not_mix)
{
    pthread_t threads[N_THREADS];
    int names[N_THREADS];
    int next[N_THREADS] = {0};
    char line[LINE_SIZE];

    listen_start();
    for (int i = 0; i < N_THREADS; i++) {
        names[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_lines, &names[i]), 0);
    }
    for (int n = 0; n < N_THREADS * N_LINES;
         n++) { /* while they write, because a socket holds only a few */
        int thread, number, end = 0;

        ck_assert(next_line(line, 0));
        ck_assert_int_eq(
            sscanf(after_time(line), "info e thread=%d line=%d%n", &thread, &number, &end), 2);
        ck_assert_int_eq(after_time(line)[end], '\0');
        ck_assert(thread >= 0 && thread < N_THREADS);
        ck_assert_int_eq(number, next[thread]++);
    }
    for (int i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    listen_stop();
}
END_TEST

/* A log line does not fail when nothing reads stderr. */
START_TEST(closed_stderr_is_no_failure)
{
    listen_start();
    (void)close(STDERR_FILENO);
    log_info("e", "n=%d", 1);
    listen_stop();
}
END_TEST

static void check_quote(const char *text, const char *want)
{
    char out[64];

    ck_assert_ptr_eq(log_quote(out, sizeof(out), text), out);
    ck_assert_str_eq(out, want);
}

/* Any text becomes one quoted value that can be read back. */
START_TEST(quote_escapes)
{
    check_quote("", "\"\"");
    check_quote("two words", "\"two words\"");
    check_quote("a\"b\\c", "\"a\\\"b\\\\c\"");
    check_quote("a\nb\x7f", "\"a\\x0ab\\x7f\"");
    check_quote("é€😀", "\"é€😀\"");
    check_quote("\xff\xe2\x82", "\"\\xff\\xe2\\x82\"");
    check_quote("\xc2\x85", "\"\\xc2\\x85\""); /* a line's end to some programs */
}
END_TEST

/* In a buffer of any size a value keeps both quotes and loses only whole characters and escapes. */
START_TEST(quote_fits)
{
    static const char want[] = "\"a\\x0a\\\\€z\"";
    char out[32];

    for (size_t size = 3; size < sizeof(out); size++) {
        size_t len;

        memset(out, '#', sizeof(out));
        (void)log_quote(out, size, "a\n\\€z");
        len = strlen(out);
        ck_assert_uint_lt(len, size);
        if (size < sizeof(out))
            ck_assert_int_eq(out[size], '#');
        ck_assert_int_eq(out[len - 1], '"');
        ck_assert_mem_eq(out, want, len - 1);
        /* Cut only where a piece of the whole ends: after `"`, `a`, `\x0a`, `\\`, `€` or `z`. */
        ck_assert(len == 2 || len == 3 || len == 7 || len == 9 || len == 12 || len == 13);
    }
    ck_assert_str_eq(out, want);
}
END_TEST

SUITE_MAIN("log", line_is_one_write, time_is_utc, level_is_kept, level_is_parsed,
           values_forge_no_line, long_line_is_cut, threads_do_not_mix, closed_stderr_is_no_failure,
           quote_escapes, quote_fits)
