#include "server/service/log.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#include "server/service/plan.h"
#include "tests/unit/base/suite.h"

static uv_loop_t loop;
static struct service_log *talks;
static char folder[] = "/tmp/test-log-XXXXXX", path[64];

static void on_idle(void *arg)
{
}

static void say(const char *line)
{
    service_log_line(talks, line, strlen(line));
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(service_log_is_idle(talks));
}

static void expect_file(const char *wanted)
{
    char text[256];
    FILE *f = fopen(path, "re");

    ck_assert_ptr_nonnull(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    (void)fclose(f);
    ck_assert_str_eq(text, wanted);
}

/* No file may become longer; RLIM_INFINITY: any may. */
static void limit_files(rlim_t size)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = size < limit.rlim_max ? size : limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A line that a full disk, or the end of an earlier process, has cut off stays a line of its own:
 * what comes behind it is whole. */
START_TEST(torn_lines_stay_alone)
{
    static struct service_plan plan = {.task_name = "test", .log = path};
    char metadata[80];
    struct error err;
    FILE *f;

    (void)signal(SIGXFSZ, SIG_IGN); /* a write fails instead */
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/talks.jsonl", folder);
    (void)snprintf(metadata, sizeof(metadata), "%s/talks.metadata", folder);
    f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(fputs("killed", f), 0);
    (void)fclose(f);
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert_int_eq(service_log_open(&talks, &plan, &err), STATUS_OK);
    ck_assert_str_eq(service_log_metadata_path(talks), metadata);
    service_log_begin(talks, &loop, on_idle, NULL);
    say("one\n");
    expect_file("killed\none\n");
    say("two\n");
    expect_file("killed\none\ntwo\n");
    limit_files(strlen("killed\none\ntwo\nthr"));
    say("three\n");
    say("lost\n");
    expect_file("killed\none\ntwo\nthr");
    limit_files(RLIM_INFINITY);
    say("four\n");
    expect_file("killed\none\ntwo\nthr\nfour\n");
    limit_files(strlen("killed\none\ntwo\nthr\nfour\n")); /* nothing is torn */
    say("lost\n");
    limit_files(RLIM_INFINITY);
    say("five\n");
    expect_file("killed\none\ntwo\nthr\nfour\nfive\n");
    service_log_close(talks);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    (void)unlink(path);
    (void)unlink(metadata);
    (void)rmdir(folder);
}
END_TEST

SUITE_MAIN("server/service/log", torn_lines_stay_alone)
