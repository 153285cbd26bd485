#include "server/access/access.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "tests/unit/base/suite.h"

#define FOO "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"
#define BAR "fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9"

static char path[] = "/tmp/parley_access_XXXXXX";
static struct access *a;
static struct error err;
static uint64_t now_s;

static uint64_t clock_s(void)
{
    return now_s;
}

static void write_keys(const char *text)
{
    int fd = open(path, O_WRONLY | O_TRUNC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
}

static void open_with(const char *text)
{
    const struct access_config config = {.path = path, .env = &env_real, .unix_s = clock_s};
    int fd;

    now_s = 1000;
    memcpy(path, "/tmp/parley_access_XXXXXX", sizeof(path));
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    write_keys(text);
    ck_assert_int_eq(access_open(&a, &config, &err), STATUS_OK);
}

static void close_all(void)
{
    access_close(a);
    (void)unlink(path);
}

static enum status admit(const struct access_key **out, enum access_level level,
                         const char *authorization, const char *api_key)
{
    const struct access_proof proof = {
        .authorization = authorization,
        .authorization_len = authorization == NULL ? 0 : strlen(authorization),
        .api_key = api_key,
        .api_key_len = api_key == NULL ? 0 : strlen(api_key),
    };

    return access_admit(out, a, level, &proof, &err);
}

static const struct access_key *admit_key(const char *key)
{
    const struct access_key *out;

    ck_assert_int_eq(admit(&out, ACCESS_KEY, NULL, key), STATUS_OK);
    return out;
}

static uint32_t id_of(const char *key)
{
    return access_key_principal(admit_key(key))->id;
}

/* Both headers carry a key; the keys of a principal are the same principal. */
START_TEST(admits)
{
    const struct access_key *key;

    open_with("alice " FOO "\nbob " BAR "\n");
    ck_assert_int_eq(admit(&key, ACCESS_KEY, "Bearer foo", NULL), STATUS_OK);
    ck_assert_str_eq(access_key_principal(key)->name, "alice");
    ck_assert_uint_ne(access_key_principal(key)->id, 0);
    ck_assert_int_eq(admit(&key, ACCESS_KEY, "bearer  bar", "foo"), STATUS_OK);
    ck_assert_str_eq(access_key_principal(key)->name, "bob");
    ck_assert_int_eq(admit(&key, ACCESS_KEY, "Basic Zm9v", "foo"), STATUS_OK);
    ck_assert_str_eq(access_key_principal(key)->name, "alice");
    ck_assert_uint_ne(id_of("foo"), id_of("bar"));
    close_all();
}
END_TEST

/* Without a key, and with a wrong one, nothing is admitted but what is open. */
START_TEST(refuses)
{
    static const char *const wrong[] = {"Bearer fop", "Bearer fo", "Bearer foo ", ("Bearer " FOO),
                                        "foo"};
    const struct access_key *key = NULL;

    open_with("alice " FOO "\n");
    ck_assert_int_eq(admit(&key, ACCESS_KEY, NULL, NULL), STATUS_UNAUTHENTICATED);
    ck_assert_int_eq(err.reason, REASON_KEY_MISSING);
    ck_assert_int_eq(admit(&key, ACCESS_KEY, "Bearer ", NULL), STATUS_UNAUTHENTICATED);
    ck_assert_int_eq(err.reason, REASON_KEY_MISSING);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        ck_assert_int_eq(admit(&key, ACCESS_KEY, wrong[i], NULL), STATUS_UNAUTHENTICATED);
    ck_assert_int_eq(admit(&key, ACCESS_KEY, "Bearer fop", NULL), STATUS_UNAUTHENTICATED);
    ck_assert_int_eq(err.reason, REASON_KEY_INVALID);
    ck_assert_ptr_null(key);
    ck_assert_int_eq(admit(&key, ACCESS_OPEN, NULL, NULL), STATUS_OK);
    ck_assert_uint_ne(access_key_principal(key)->id, id_of("foo"));
    ck_assert_uint_ne(access_key_principal(key)->id, 0);
    close_all();
}
END_TEST

/* What is an administrator's is refused to the others, and a role can be given and taken. */
START_TEST(asks_for_role)
{
    const struct access_key *key;

    open_with("alice " FOO " attach\nroot " BAR " admin\n");
    ck_assert_int_eq(admit(&key, ACCESS_ATTACH, NULL, "foo"), STATUS_OK);
    ck_assert_int_eq(admit(&key, ACCESS_ATTACH, NULL, "bar"), STATUS_DENIED);
    ck_assert_int_eq(admit(&key, ACCESS_ADMIN, NULL, "foo"), STATUS_DENIED);
    ck_assert_int_eq(err.reason, REASON_ROLE_MISSING);
    ck_assert_int_eq(admit(&key, ACCESS_ADMIN, NULL, "bar"), STATUS_OK);
    ck_assert_int_eq(admit(&key, ACCESS_ADMIN, NULL, NULL), STATUS_UNAUTHENTICATED);
    write_keys("alice " FOO " admin\nroot " BAR "\n");
    ck_assert_int_eq(access_reload(a, &err), STATUS_OK);
    ck_assert_int_eq(admit(&key, ACCESS_ADMIN, NULL, "foo"), STATUS_OK);
    ck_assert_int_eq(admit(&key, ACCESS_ADMIN, NULL, "bar"), STATUS_DENIED);
    close_all();
}
END_TEST

/* A key that the file has no more is revoked; a new one of the principal is the same principal. */
START_TEST(rotates)
{
    const struct access_key *old, *key;
    uint32_t alice;

    open_with("alice " FOO "\n");
    old = admit_key("foo");
    alice = id_of("foo");
    write_keys("alice " FOO "\nalice " BAR "\n");
    ck_assert_int_eq(access_reload(a, &err), STATUS_OK);
    ck_assert(!access_key_is_revoked(a, old));
    ck_assert_ptr_eq(admit_key("foo"), old);
    ck_assert_uint_eq(id_of("bar"), alice);
    write_keys("alice " BAR "\n");
    ck_assert_int_eq(access_reload(a, &err), STATUS_OK);
    ck_assert(access_key_is_revoked(a, old));
    ck_assert_int_eq(admit(&key, ACCESS_KEY, NULL, "foo"), STATUS_UNAUTHENTICATED);
    ck_assert_uint_eq(id_of("bar"), alice);
    close_all();
}
END_TEST

/* A key that is given to another principal is revoked for the first one. */
START_TEST(gives_key_away)
{
    const struct access_key *old;
    uint32_t alice;

    open_with("alice " FOO "\n");
    old = admit_key("foo");
    alice = id_of("foo");
    write_keys("bob " FOO "\n");
    ck_assert_int_eq(access_reload(a, &err), STATUS_OK);
    ck_assert(access_key_is_revoked(a, old));
    ck_assert_uint_ne(id_of("foo"), alice);
    ck_assert_uint_eq(access_key_principal(old)->id, alice);
    write_keys("alice " FOO "\n");
    ck_assert_int_eq(access_reload(a, &err), STATUS_OK);
    ck_assert_uint_eq(id_of("foo"), alice);
    close_all();
}
END_TEST

/* The greatest weight of a principal's keys holds, as the file was last read. */
START_TEST(weighs)
{
    uint32_t alice;

    open_with("alice " FOO " weight=3\nalice " BAR " weight=5\n");
    alice = id_of("foo");
    ck_assert_uint_eq(access_weight(a, alice), 5);
    ck_assert_uint_eq(access_weight(a, alice + 1), 1);
    write_keys("alice " FOO "\n");
    ck_assert_int_eq(access_reload(a, &err), STATUS_OK);
    ck_assert_uint_eq(access_weight(a, alice), 1);
    close_all();
}
END_TEST

/* A file that cannot be read, or is wrong, changes nothing. */
START_TEST(keeps_on_failure)
{
    open_with("alice " FOO "\n");
    write_keys("alice " FOO "\nbob nonsense\n");
    ck_assert_int_eq(access_reload(a, &err), STATUS_INVALID);
    ck_assert_str_eq(access_key_principal(admit_key("foo"))->name, "alice");
    (void)unlink(path);
    ck_assert_int_eq(access_reload(a, &err), STATUS_NOT_FOUND);
    ck_assert_str_eq(access_key_principal(admit_key("foo"))->name, "alice");
    access_close(a);
}
END_TEST

/* A key is valid until its time. */
START_TEST(expires)
{
    const struct access_key *key, *old;

    open_with("alice " FOO " until=1970-01-02\n");
    now_s = 86399;
    old = admit_key("foo");
    ck_assert(!access_key_is_revoked(a, old));
    now_s = 86400;
    ck_assert_int_eq(admit(&key, ACCESS_KEY, NULL, "foo"), STATUS_UNAUTHENTICATED);
    ck_assert_int_eq(err.reason, REASON_KEY_INVALID);
    ck_assert(access_key_is_revoked(a, old));
    close_all();
}
END_TEST

/* Without keys everybody is the one principal, who may do all. */
START_TEST(needs_no_keys)
{
    const struct access_key *key;

    a = NULL;
    ck_assert_int_eq(admit(&key, ACCESS_ADMIN, "Bearer whatever", NULL), STATUS_OK);
    ck_assert_uint_eq(access_key_principal(key)->id, 0);
    ck_assert_str_eq(access_key_principal(key)->name, "");
    ck_assert(!access_key_is_revoked(a, key));
}
END_TEST

SUITE_MAIN("server/access", admits, refuses, asks_for_role, rotates, gives_key_away, weighs,
           keeps_on_failure, expires, needs_no_keys)
