/* The pass of a call that a daemon passes on: who may write one, and who takes it. */
#include <stdio.h>
#include <string.h>

#include "server/access/pass.h"
#include "tests/unit/base/suite.h"

static const uint8_t secret[PASS_SECRET_BYTES] = {1, 2, 3};

static enum status takes(const char *pass, const char *self, char principal[PASS_PRINCIPAL_CHARS])
{
    struct error err = {0};

    return pass_read(principal, pass, strlen(pass), secret, self, &err);
}

/* The daemon that it names takes it, and learns the principal, whatever its name. */
START_TEST(test_taken)
{
    static const char *const names[] = {"", "anna", "a@b.c-d_e",
                                        "0123456789012345678901234567890123"};
    char pass[PASS_CHARS], principal[PASS_PRINCIPAL_CHARS];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        ck_assert(pass_write(pass, secret, "from", "to", names[i]));
        ck_assert_int_eq(takes(pass, "to", principal), STATUS_OK);
        ck_assert_str_eq(principal, names[i]);
        ck_assert_int_eq(takes(pass, "other", principal), STATUS_ABORTED);
    }
}
END_TEST

/* No byte of it may be another, none may be missing, and none may be added. */
START_TEST(test_forged)
{
    char pass[PASS_CHARS], forged[PASS_CHARS + 1], principal[PASS_PRINCIPAL_CHARS];
    struct error err = {0};
    size_t len;

    ck_assert(pass_write(pass, secret, "from", "to", "anna"));
    len = strlen(pass);
    for (size_t i = 0; i < len; i++) {
        memcpy(forged, pass, len + 1);
        forged[i] = (char)(forged[i] ^ 1);
        ck_assert_int_eq(takes(forged, "to", principal), STATUS_UNAUTHENTICATED);
        ck_assert_int_eq(pass_read(principal, pass, i, secret, "to", &err), STATUS_UNAUTHENTICATED);
    }
    (void)snprintf(forged, sizeof(forged), "%.*sx", (int)len, pass);
    ck_assert_int_eq(takes(forged, "to", principal), STATUS_UNAUTHENTICATED);
    ck_assert_int_eq(pass_read(principal, pass, len + 1, secret, "to", &err),
                     STATUS_UNAUTHENTICATED); /* with the NUL behind it */
    ck_assert_int_eq(
        pass_read(principal, pass, len, (const uint8_t[PASS_SECRET_BYTES]){1}, "to", &err),
        STATUS_UNAUTHENTICATED);
    ck_assert_int_eq(err.reason, REASON_KEY_INVALID);
}
END_TEST

/* Names that are too long make no pass. */
START_TEST(test_too_long)
{
    static char name[2 * PASS_CHARS];
    char pass[PASS_CHARS];

    memset(name, 'a', sizeof(name) - 1);
    ck_assert(!pass_write(pass, secret, "from", "to", name));
    name[PASS_CHARS / 2] = '\0';
    ck_assert(pass_write(pass, secret, "from", "to", name));
    ck_assert_int_eq(takes(pass, "to", (char[PASS_PRINCIPAL_CHARS]){0}), STATUS_UNAUTHENTICATED);
}
END_TEST

SUITE_MAIN("server/access/pass", test_taken, test_forged, test_too_long)
