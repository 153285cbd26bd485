#include "server/access/keys_file.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/access/access.h"
#include "tests/unit/base/suite.h"

#define FOO "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
#define BAR "fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9"

static struct keys_line *keys;
static size_t n_keys;
static struct error err;

static enum status parse(const char *text)
{
    return keys_file_parse(&keys, &n_keys, text, strlen(text), &err);
}

/* A line names a principal, the hash of a key, its role and its end. */
START_TEST(reads_lines)
{
    ck_assert_int_eq(
        parse("# keys\n\nalice " FOO "\nalice\t" BAR
              " admin attach weight=1000 until=2027-01-31 requests=1 tokens=1000000000 "
              "in-flight=3 conversations=4 # end\r\n"),
        STATUS_OK);
    ck_assert_uint_eq(n_keys, 2);
    ck_assert_str_eq(keys[0].principal, "alice");
    ck_assert_uint_eq(keys[0].digest[0], 0x2c);
    ck_assert_uint_eq(keys[0].digest[31], 0xae);
    ck_assert_uint_eq(keys[0].roles, 0);
    ck_assert_uint_eq(keys[0].until_s, 0);
    ck_assert_uint_eq(keys[0].weight, 1);
    ck_assert_uint_eq(keys[1].weight, 1000);
    ck_assert_uint_eq(keys[0].quota.requests_per_minute, 0);
    ck_assert_uint_eq(keys[1].quota.requests_per_minute, 1);
    ck_assert_uint_eq(keys[1].quota.tokens_per_minute, 1000000000);
    ck_assert_uint_eq(keys[1].quota.tokens_in_flight, 3);
    ck_assert_uint_eq(keys[1].quota.conversations, 4);
    ck_assert_uint_eq(keys[1].roles, ACCESS_ROLE_ADMIN | ACCESS_ROLE_ATTACH);
    ck_assert_uint_eq(keys[1].until_s, 1801353600);
    free(keys);
}
END_TEST

/* A time of day ends a key within its day. */
START_TEST(reads_time)
{
    ck_assert_int_eq(parse("a " FOO " until=1970-01-02T00:00:07Z"), STATUS_OK);
    ck_assert_uint_eq(keys[0].until_s, 86407);
    free(keys);
}
END_TEST

/* What is wrong is refused with its line's number; the line, which may hold a key, is not shown. */
START_TEST(refuses)
{
    static const char *const wrong[] = {
        "alice",
        "alice sk-secret",
        "alice " FOO " requests=0",
        "alice " FOO " tokens=1000000001",
        "alice " FOO " in-flight",
        "alice " FOO " conversations=-1",
        "alice " FOO "0",
        "al:ice " FOO,
        "alice " FOO " root",
        "alice " FOO " until=2027-02-30",
        "alice " FOO " until=2027-01-01T24:00:00Z",
        "alice " FOO " until=1960-01-01",
        "alice " FOO " until=tomorrow",
        "alice " FOO " weight=0",
        "alice " FOO " weight=1001",
        "alice " FOO " weight=-1",
        "alice " FOO " weight=2x",
        "alice " FOO " weight=",
        "alice " FOO " admin attach until=2027-01-01 x",
        "bob " FOO "\nalice " FOO,
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char text[400];

        (void)snprintf(text, sizeof(text), "\n%s", wrong[i]);
        ck_assert_msg(parse(text) == STATUS_INVALID, "%s", wrong[i]);
        ck_assert_msg(
            strncmp(err.text, strchr(wrong[i], '\n') != NULL ? "line 3: " : "line 2: ", 8) == 0,
            "%s", err.text);
        ck_assert_ptr_null(strstr(err.text, "secret"));
        ck_assert_ptr_null(strstr(err.text, FOO));
    }
}
END_TEST

/* One key more than the bound is refused. */
START_TEST(refuses_too_many)
{
    size_t size = (KEYS_FILE_MAX_KEYS + 1) * 80, len = 0;
    char *text = malloc(size);

    for (unsigned i = 0; i <= KEYS_FILE_MAX_KEYS; i++) {
        if (i == KEYS_FILE_MAX_KEYS) {
            ck_assert_int_eq(keys_file_parse(&keys, &n_keys, text, len, &err), STATUS_OK);
            ck_assert_uint_eq(n_keys, KEYS_FILE_MAX_KEYS);
            free(keys);
        }
        len += (size_t)snprintf(text + len, size - len, "a %064x\n", i);
    }
    ck_assert_int_eq(keys_file_parse(&keys, &n_keys, text, len, &err), STATUS_INVALID);
    free(text);
}
END_TEST

/* A file that others may read, or that the group may write, is refused; so is none. */
START_TEST(checks_mode)
{
    static const struct {
        mode_t mode;
        enum status status;
    } cases[] = {{0600, STATUS_OK},
                 {0640, STATUS_OK},
                 {0644, STATUS_INVALID},
                 {0660, STATUS_INVALID},
                 {0602, STATUS_INVALID}};
    char path[] = "/tmp/parley_keys_XXXXXX";
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, "a " FOO, 66), 66);
    (void)close(fd);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(chmod(path, cases[i].mode), 0);
        ck_assert_int_eq(keys_file_read(&keys, &n_keys, path, &err), cases[i].status);
        if (cases[i].status == STATUS_OK)
            free(keys);
        else
            ck_assert_ptr_nonnull(strstr(err.text, path));
    }
    (void)unlink(path);
    ck_assert_int_eq(keys_file_read(&keys, &n_keys, path, &err), STATUS_NOT_FOUND);
}
END_TEST

SUITE_MAIN("server/keys_file", reads_lines, reads_time, refuses, refuses_too_many, checks_mode)
