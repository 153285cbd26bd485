#include "base/digest.h"

#include <string.h>

#include "base/env.h"
#include "tests/unit/base/suite.h"

static void count_bytes(void *self, void *out, size_t n_bytes)
{
    unsigned char *at = out;

    for (size_t i = 0; i < n_bytes; i++)
        at[i] = (unsigned char)i;
}

static const struct env counting = {.random = count_bytes};

static struct digest digest_of(const char *a, const char *b)
{
    struct digest_key key;
    struct digest_writer w;

    digest_key_init(&key, &counting);
    digest_start(&w, &key);
    digest_text(&w, a);
    if (b != NULL)
        digest_text(&w, b);
    return digest_end(&w);
}

/* The vectors of SipHash's authors for 128 bits, of up to two bytes: these are one word with the
 * length in its top byte. */
START_TEST(test_vectors)
{
    static const uint64_t inputs[] = {0, UINT64_C(1) << 56, UINT64_C(2) << 56 | 0x0100};
    static const struct digest outputs[] = {
        {{UINT64_C(0xe6a825ba047f81a3), UINT64_C(0x930255c71472f66d)}},
        {{UINT64_C(0x44af996bd8c187da), UINT64_C(0x45fc229b11597634)}},
        {{UINT64_C(0xc75da4a48d227781), UINT64_C(0xe4ff0af6de8ba3fc)}},
    };
    struct digest_key key;
    struct digest_writer w;

    digest_key_init(&key, &counting);
    for (size_t i = 0; i < 3; i++) {
        struct digest d;

        digest_start(&w, &key);
        digest_number(&w, inputs[i]);
        d = digest_end(&w);
        ck_assert_uint_eq(d.words[0], outputs[i].words[0]);
        ck_assert_uint_eq(d.words[1], outputs[i].words[1]);
    }
}
END_TEST

/* Equal pieces have equal digests; each byte and each border counts. */
START_TEST(test_pieces)
{
    static const char *const texts[][2] = {
        {"", NULL},       {"", ""},         {"a", NULL},         {"a", ""},         {"", "a"},
        {"abcdefgh", ""}, {"abcdefg", "h"}, {"abcdefghi", NULL}, {"abcdefgh", "i"},
    };
    const size_t n = sizeof(texts) / sizeof(texts[0]);

    for (size_t i = 0; i < n; i++) {
        struct digest one = digest_of(texts[i][0], texts[i][1]);

        for (size_t j = 0; j < n; j++) {
            struct digest other = digest_of(texts[j][0], texts[j][1]);

            ck_assert_int_eq(digest_is_equal(&one, &other), i == j);
        }
    }
}
END_TEST

/* A set has one digest in any order, and another without one of its members, or with one twice. */
START_TEST(test_set)
{
    struct digest a = digest_of("a", NULL), b = digest_of("b", NULL);
    struct digest sets[4] = {{{0}}};

    digest_join(&sets[0], a);
    digest_join(&sets[0], b);
    digest_join(&sets[1], b);
    digest_join(&sets[1], a);
    sets[2] = a;
    sets[3] = sets[0];
    digest_join(&sets[3], b);
    ck_assert(digest_is_equal(&sets[0], &sets[1]));
    ck_assert(!digest_is_equal(&sets[0], &sets[2]));
    ck_assert(!digest_is_equal(&sets[0], &sets[3]));
}
END_TEST

SUITE_MAIN("base/digest", test_vectors, test_pieces, test_set)
