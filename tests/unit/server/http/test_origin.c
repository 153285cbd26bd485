#include "server/http/origin.h"

#include <arpa/inet.h>
#include <string.h>

#include "tests/unit/base/suite.h"

static const char *const allowed[] = {"https://app.example:8443", "null"};
static const char *const any[] = {"*"};
static const char *const patterns[] = {"http://app.example:*", "app://*"};
static const char *const preset[] = {"ollama"};

static const struct origin_rules loopback = {.is_loopback = true},
                                 loopback_and = {true, allowed, 2}, loopback_any = {true, any, 1},
                                 open_to_all = {.is_loopback = false},
                                 open_and = {false, allowed, 2}, open_any = {false, any, 1},
                                 open_patterns = {false, patterns, 2},
                                 open_preset = {false, preset, 1};

static const struct check {
    const struct origin_rules *rules;
    const char *host, *origin;
    bool is_fine;
} checks[] = {
    /* programs send no Origin */
    {&loopback, "", "", true},
    {&loopback, "127.0.0.1:8000", "", true},
    {&loopback, "127.9.8.7", "", true},
    {&loopback, "localhost", "", true},
    {&loopback, "LocalHost:8000", "", true},
    {&loopback, "[::1]:8000", "", true},
    {&loopback, "[::1]", "", true},
    {&loopback, "[::ffff:127.0.0.1]:1", "", true},
    /* foreign names that point to this host */
    {&loopback, "evil.example", "", false},
    {&loopback, "evil.example:8000", "", false},
    {&loopback, "localhost.evil.example", "", false},
    {&loopback, "127.0.0.1.evil.example", "", false},
    {&loopback, "evil-localhost", "", false},
    {&loopback, "localhost:8000:9", "", false},
    {&loopback, "localhost:evil", "", false},
    {&loopback, "localhost:123456", "", false},
    {&loopback, "localhos", "", false},
    {&loopback, "user@localhost", "", false},
    {&loopback, "128.0.0.1", "", false},
    {&loopback, "127.1", "", false},
    {&loopback, "0.0.0.0", "", false},
    {&loopback, "::1", "", false},
    {&loopback, "[::1", "", false},
    {&loopback, "[::2]", "", false},
    {&loopback, "[::1]x", "", false},
    {&loopback, "[]", "", false},
    {&loopback, "[", "", false},
    {&loopback, ":8000", "", false},
    {&loopback, "[1111:2222:3333:4444:5555:6666:7777:8888:9999:0000:1111:2222:3333]", "", false},
    /* pages of this host, and others */
    {&loopback, "127.0.0.1:8000", "http://localhost:3000", true},
    {&loopback, "127.0.0.1:8000", "https://[::1]", true},
    {&loopback, "127.0.0.1:8000", "http://evil.example", false},
    {&loopback, "127.0.0.1:8000", "http://localhost.evil.example", false},
    {&loopback, "127.0.0.1:8000", "http://localhost@evil.example", false},
    {&loopback, "127.0.0.1:8000", "null", false},
    {&loopback, "127.0.0.1:8000", "file://", false},
    {&loopback, "127.0.0.1:8000", "localhost", false},
    {&loopback, "evil.example", "http://evil.example", false},
    {&loopback, "evil.example", "http://localhost", false},
    /* allowed origins, exact but for case */
    {&loopback_and, "127.0.0.1:8000", "https://app.example:8443", true},
    {&loopback_and, "127.0.0.1:8000", "https://App.Example:8443", true},
    {&loopback_and, "127.0.0.1:8000", "https://app.example", false},
    {&loopback_and, "127.0.0.1:8000", "http://app.example:8443", false},
    {&loopback_and, "127.0.0.1:8000", "null", true},
    {&loopback_and, "app.example", "", true},
    {&loopback_and, "app.example:8443", "https://app.example:8443", true},
    {&loopback_and, "app.example.evil.example", "", false},
    {&loopback_and, "null", "", false},
    {&loopback_any, "evil.example", "http://evil.example", true},
    {&loopback_any, "127.0.0.1:8000", "null", true},
    /* without loopback any name is accepted, and a page of the same name */
    {&open_to_all, "parley.example:8000", "", true},
    {&open_to_all, "parley.example:8000", "http://parley.example:8000", true},
    {&open_to_all, "Parley.Example", "https://parley.example", true},
    {&open_to_all, "parley.example:8000", "http://parley.example", false},
    {&open_to_all, "parley.example:8000", "http://parley.example:8001", false},
    {&open_to_all, "parley.example:8000", "http://localhost", false},
    {&open_to_all, "parley.example:8000", "null", false},
    {&open_to_all, "", "null", false},
    {&open_to_all, "", "file://", false},
    {&open_and, "parley.example:8000", "https://app.example:8443", true},
    {&open_and, "parley.example:8000", "https://evil.example", false},
    {&open_any, "parley.example:8000", "https://evil.example", true},
    /* any port, any host */
    {&open_patterns, "parley.example", "http://app.example", true},
    {&open_patterns, "parley.example", "http://App.example:3000", true},
    {&open_patterns, "parley.example", "http://app.example:", false},
    {&open_patterns, "parley.example", "http://app.example:3x", false},
    {&open_patterns, "parley.example", "http://app.example.evil", false},
    {&open_patterns, "parley.example", "https://app.example", false},
    {&open_patterns, "parley.example", "app://obsidian.md", true},
    {&open_patterns, "parley.example", "apps://obsidian.md", false},
    /* what Ollama allows */
    {&open_preset, "parley.example", "http://localhost:3000", true},
    {&open_preset, "parley.example", "https://127.0.0.1", true},
    {&open_preset, "parley.example", "http://0.0.0.0:8080", true},
    {&open_preset, "parley.example", "vscode-webview://1a2b", true},
    {&open_preset, "parley.example", "tauri://localhost", true},
    {&open_preset, "parley.example", "file://", true},
    {&open_preset, "parley.example", "chrome-extension://abc", true},
    {&open_preset, "parley.example", "http://localhost.evil.example", false},
    {&open_preset, "parley.example", "https://evil.example", false},
    {&open_preset, "parley.example", "null", false},
};

/* Foreign pages are refused, programs and our own pages are not. */
START_TEST(pages_are_told_apart)
{
    for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
        const struct check *c = &checks[i];
        struct error err = {0};
        enum status rc = origin_check(c->rules, c->host, c->origin, &err);

        ck_assert_msg(rc == (c->is_fine ? STATUS_OK : STATUS_DENIED), "row %zu: host '%s', '%s'", i,
                      c->host, c->origin);
        ck_assert(rc == STATUS_OK || strstr(err.text, "--http-origin") != NULL);
    }
}
END_TEST

/* A configured origin must have the form that a browser sends. */
START_TEST(configured_origins)
{
    static const char *const good[] = {"*",
                                       "null",
                                       "http://localhost:3000",
                                       "https://a.example",
                                       "http://[::1]:80",
                                       "chrome-extension://abcdef",
                                       "app://x",
                                       "app://*",
                                       "http://localhost:*",
                                       "http://[::1]:*",
                                       "ollama"};
    static const char *const bad[] = {"",
                                      "a.example",
                                      "https://",
                                      "https://a.example/",
                                      "https://a.example/x",
                                      "https://a.example:x",
                                      "https://u@a.example",
                                      "https://a b",
                                      "://a",
                                      "ht tp://a",
                                      "https://a.*:*/",
                                      "https://a:1:*",
                                      "https://*:*",
                                      "**"};
    char longest[ORIGIN_MAX_BYTES + 2] = "https://";
    struct error err;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert_msg(origin_parse(good[i], &err) == STATUS_OK, "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(origin_parse(bad[i], &err) == STATUS_INVALID, "%s", bad[i]);
    memset(longest + 8, 'a', sizeof(longest) - 9);
    ck_assert_int_eq(origin_parse(longest, &err), STATUS_INVALID);
    longest[ORIGIN_MAX_BYTES] = '\0';
    ck_assert_int_eq(origin_parse(longest, &err), STATUS_OK);
}
END_TEST

START_TEST(loopback_addresses)
{
    static const struct {
        const char *text;
        bool is_loopback;
    } cases[] = {{"127.0.0.1", true},
                 {"127.1.2.3", true},
                 {"0.0.0.0", false},
                 {"10.0.0.1", false},
                 {"::1", true},
                 {"::", false},
                 {"fe80::1", false},
                 {"::ffff:127.0.0.1", true},
                 {"::ffff:10.0.0.1", false}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sockaddr_in four = {.sin_family = AF_INET};
        struct sockaddr_in6 six = {.sin6_family = AF_INET6};
        bool is_four = inet_pton(AF_INET, cases[i].text, &four.sin_addr) == 1;

        ck_assert(is_four || inet_pton(AF_INET6, cases[i].text, &six.sin6_addr) == 1);
        ck_assert_msg(origin_is_loopback(is_four ? (const struct sockaddr *)&four
                                                 : (const struct sockaddr *)&six) ==
                          cases[i].is_loopback,
                      "%s", cases[i].text);
    }
}
END_TEST

SUITE_MAIN("server/http/origin", pages_are_told_apart, configured_origins, loopback_addresses)
