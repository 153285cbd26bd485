#include "cli/output/out.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"

/* What out_foreign writes for a text to a terminal of the test's own, into shown, which is large
 * enough; the text has no stop, which is written after it to know its end. Nothing may be asserted
 * meanwhile, since nobody would see it. */
static bool show(char *shown, size_t size, const char *text)
{
    const int master = posix_openpt(O_RDWR | O_NOCTTY), saved = dup(STDOUT_FILENO);
    size_t len = 0;
    bool is_good;
    int slave;

    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0)
        return false;
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    (void)dup2(slave, STDOUT_FILENO);
    is_good = out_foreign(text, strlen(text)) && out_text(".", 1) && out_flush();
    while (is_good && len < size && (len == 0 || shown[len - 1] != '.'))
        is_good = read(master, shown + len++, 1) == 1;
    (void)dup2(saved, STDOUT_FILENO);
    (void)close(saved);
    (void)close(slave);
    (void)close(master);
    if (is_good)
        shown[len - 1] = '\0';
    return is_good;
}

/* What peers send neither steers a terminal nor reorders its line; other text stays. */
START_TEST(test_foreign)
{
    static const struct {
        const char *text, *shown;
    } rows[] = {
        {"a\tb \xc3\xa9 \xf0\x9f\x99\x82", "a\tb \xc3\xa9 \xf0\x9f\x99\x82"},
        {"\033[2J\x7f\xc2\x9b", "\ufffd[2J\ufffd\ufffd"},
        {"\u2029\u202a\u202b\u202c\u202d\u202e\u202f",
         "\u2029\ufffd\ufffd\ufffd\ufffd\ufffd\u202f"},
        {"\u061b\u061c\u061d \u200d\u200e\u200f\u2010",
         "\u061b\ufffd\u061d \u200d\ufffd\ufffd\u2010"},
        {"\u2065\u2066\u2067\u2068\u2069\u206a", "\u2065\ufffd\ufffd\ufffd\ufffd\u206a"},
    };
    char shown[64];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ck_assert(show(shown, sizeof(shown), rows[i].text));
        ck_assert_str_eq(shown, rows[i].shown);
    }
}
END_TEST

SUITE_MAIN("cli/output/out", test_foreign)
