#include "base/address.h"

#include <check.h>
#include <string.h>

#include "tests/unit/base/suite.h"

/* Host and port are split; an IPv6 host is in brackets. */
START_TEST(splits)
{
    char host[ADDRESS_HOST_MAX + 1], port[6];
    struct error err;

    ck_assert_int_eq(address_split(host, port, "127.0.0.1:8001", &err), STATUS_OK);
    ck_assert_str_eq(host, "127.0.0.1");
    ck_assert_str_eq(port, "8001");
    ck_assert_int_eq(address_split(host, port, "[::1]:0", &err), STATUS_OK);
    ck_assert_str_eq(host, "::1");
    ck_assert_str_eq(port, "0");
}
END_TEST

/* Text that is no address is refused; a path's length is bounded. */
START_TEST(checks)
{
    static const char *const bad[] = {"",           "host",    "host:",   ":80",
                                      "host:65536", "host:1x", "host:-1", "::1:80",
                                      "[::1]",      "unix:",   "host: 1", "host:00001x"};
    char path[200] = "unix:/";
    struct error err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(address_check(bad[i], &err) == STATUS_INVALID, "%s", bad[i]);
    ck_assert_int_eq(address_check("host:65535", &err), STATUS_OK);
    ck_assert_int_eq(address_check("unix:/tmp/s", &err), STATUS_OK);
    ck_assert_str_eq(address_unix_path("unix:/tmp/s"), "/tmp/s");
    ck_assert_ptr_null(address_unix_path("host:1"));
    memset(path + 6, 'x', sizeof(path) - 7);
    ck_assert_int_eq(address_check(path, &err), STATUS_INVALID);
}
END_TEST

/* An address is local if no other machine can reach it. */
START_TEST(is_local)
{
    static const char *const local[] = {"unix:/tmp/s", "localhost:1", "127.0.0.1:1", "127.9.9.9:0",
                                        "[::1]:1"};
    static const char *const others[] = {"0.0.0.0:1",         "[::]:1",   "10.0.0.1:1", "host:1",
                                         "127.example.org:1", "localhost"};

    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        ck_assert_msg(address_is_local(local[i]), "%s", local[i]);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        ck_assert_msg(!address_is_local(others[i]), "%s", others[i]);
}
END_TEST

SUITE_MAIN("base/address", splits, checks, is_local)
