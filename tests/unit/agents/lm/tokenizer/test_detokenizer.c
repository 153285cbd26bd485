#include "agents/lm/tokenizer/detokenizer.h"

#include <check.h>
#include <string.h>

#include "base/utf8.h"
#include "tests/support/tiny_vocab.h"
#include "tests/unit/base/suite.h"

static const char *const merges[] = {"a b", "ab c", "b c", "\u00c3 \u00a9", "\u00e2 \u0124"};
enum { AB = TV_MERGED, ABC, BC, E_ACUTE, TWO_OF_EURO, END, N_MERGES = END - TV_MERGED };
#define B(c) (TV_BYTE + (unsigned char)(c))

static struct tiny_vocab file;
static struct vocab *vocab;
static struct error err;

/* Every test opens its own. */
static void open_vocab(void)
{
    const struct tiny_vocab_config config = {.merges = merges, .n_merges = N_MERGES};

    tiny_vocab_open(&file, &config);
    ck_assert_int_eq(vocab_open(&vocab, file.gguf, &err), STATUS_OK);
}

static void close_vocab(void)
{
    vocab_close(vocab);
    tiny_vocab_close(&file);
}

struct writing {
    struct detokenizer w;
    struct sampling s;
    struct text stops[SAMPLING_MAX_STOPS];
    struct buf text;
    bool is_stopped;
};

static void begin(struct writing *x, size_t n_stops, const char *const *stops)
{
    memset(x, 0, sizeof(*x));
    sampling_init(&x->s);
    for (size_t i = 0; i < n_stops; i++)
        x->stops[i] = (struct text){stops[i], strlen(stops[i])};
    x->s.stops = x->stops;
    x->s.n_stops = n_stops;
    buf_init(&x->text, SIZE_MAX);
    detokenizer_init(&x->w, vocab, &x->s, SIZE_MAX);
}

static void add(struct writing *x, int32_t id)
{
    ck_assert_int_eq(detokenizer_add(&x->w, id, &x->text, &x->is_stopped, &err), STATUS_OK);
    ck_assert(x->text.len == 0 || utf8_is_valid(x->text.data, x->text.len));
}

static void check_text(const struct writing *x, const char *text)
{
    ck_assert_str_eq(x->text.len == 0 ? "" : x->text.data, text);
}

static void finish(struct writing *x)
{
    ck_assert_int_eq(detokenizer_end(&x->w, &x->text, &err), STATUS_OK);
}

static void release(struct writing *x)
{
    detokenizer_deinit(&x->w);
    buf_deinit(&x->text);
}

#define BEGIN(x, ...) \
    begin(x, sizeof(const char *[]){__VA_ARGS__} / sizeof(char *), (const char *[]){__VA_ARGS__})

/* Text without stops is shown at once, a character only when it is complete. */
START_TEST(characters_stay_whole)
{
    struct writing x;

    open_vocab();
    begin(&x, 0, NULL);
    add(&x, ABC);
    check_text(&x, "abc");
    add(&x, B(0xC3));
    check_text(&x, "abc");
    add(&x, B(0xA9));
    check_text(&x, "abc\u00e9");
    add(&x, TWO_OF_EURO);
    check_text(&x, "abc\u00e9");
    add(&x, B(0xAC));
    check_text(&x, "abc\u00e9\u20ac");
    add(&x, TV_IM_END); /* has no text */
    check_text(&x, "abc\u00e9\u20ac");
    add(&x, TWO_OF_EURO);
    finish(&x);
    check_text(&x, "abc\u00e9\u20ac\uFFFD");
    finish(&x); /* nothing is held any more */
    check_text(&x, "abc\u00e9\u20ac\uFFFD");
    release(&x);
    close_vocab();
}
END_TEST

/* Invalid UTF-8 becomes U+FFFD as soon as no further byte can complete it. */
START_TEST(wrong_bytes_are_replaced)
{
    struct writing x;

    open_vocab();
    begin(&x, 0, NULL);
    add(&x, B(0xFF));
    check_text(&x, "\uFFFD");
    add(&x, B(0xE2));
    check_text(&x, "\uFFFD");
    add(&x, B('a'));
    check_text(&x, "\uFFFD\uFFFDa");
    add(&x, B(0xA9));
    check_text(&x, "\uFFFD\uFFFDa\uFFFD");
    release(&x);
    close_vocab();
}
END_TEST

/* A stop text is found across tokens, and text that could begin one is held. */
START_TEST(stops_are_found_across_tokens)
{
    struct writing x;

    open_vocab();
    BEGIN(&x, "bcd");
    add(&x, AB);
    check_text(&x, "a");
    add(&x, B('c'));
    check_text(&x, "a");
    ck_assert(!x.is_stopped);
    add(&x, B('d'));
    ck_assert(x.is_stopped);
    check_text(&x, "a");
    finish(&x);
    check_text(&x, "a");
    release(&x);

    BEGIN(&x, "bcd");
    add(&x, ABC);
    add(&x, BC); /* was no stop, but may begin one again */
    check_text(&x, "abc");
    finish(&x);
    check_text(&x, "abcbc");
    ck_assert(!x.is_stopped);
    release(&x);
    close_vocab();
}
END_TEST

/* Of several stops the first complete one counts, and of those the longest. */
START_TEST(the_first_whole_stop_counts)
{
    struct writing x;

    open_vocab();
    BEGIN(&x, "abcx", "bc");
    add(&x, ABC);
    ck_assert(x.is_stopped);
    check_text(&x, "a");
    release(&x);
    BEGIN(&x, "c", "bc", "abc");
    add(&x, B('x'));
    add(&x, ABC);
    ck_assert(x.is_stopped);
    check_text(&x, "x");
    release(&x);
    BEGIN(&x, "\u00e9");
    add(&x, B('a'));
    add(&x, B(0xC3));
    add(&x, B(0xA9));
    ck_assert(x.is_stopped);
    check_text(&x, "a");
    release(&x);
    BEGIN(&x, "b");
    add(&x, TWO_OF_EURO); /* cut short by the stop */
    add(&x, B('b'));
    ck_assert(x.is_stopped);
    check_text(&x, "\uFFFD");
    release(&x);
    close_vocab();
}
END_TEST

/* Until the reply has min_tokens, stops are text. */
START_TEST(stops_wait_for_min_tokens)
{
    struct writing x;

    open_vocab();
    BEGIN(&x, "bc");
    x.s.min_tokens = 3;
    add(&x, ABC);
    add(&x, BC);
    ck_assert(!x.is_stopped);
    check_text(&x, "abcbc");
    add(&x, ABC);
    ck_assert(x.is_stopped);
    check_text(&x, "abcbca");
    release(&x);
    close_vocab();
}
END_TEST

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* The text up to the first complete stop, as a reference; false if there is none. */
static bool cut_plainly(const char *text, const char *const *stops, size_t n_stops, size_t *ret_len)
{
    for (size_t end = 1; end <= strlen(text); end++) {
        size_t longest = 0;

        for (size_t i = 0; i < n_stops; i++) {
            size_t len = strlen(stops[i]);

            if (len <= end && len > longest && memcmp(text + end - len, stops[i], len) == 0)
                longest = len;
        }
        if (longest > 0) {
            *ret_len = end - longest;
            return true;
        }
    }
    return false;
}

/* The shown text does not depend on how it is split into tokens, and is a prefix of it at any time.
 */
START_TEST(cuts_do_not_matter)
{
    static const char *const all_stops[] = {"ab",       "abab",    "bca",          "cc",
                                            "aaab",     "b\u00e9", "\u00e9\u00e9", "abcabcabcab",
                                            "c\u00e9a", "bb"};
    static const int32_t ids[] = {B('a'), B('b'), B('c'), AB, ABC, BC, E_ACUTE, B(0xC3)};

    open_vocab();
    for (uint32_t seed = 1; seed <= 3000; seed++) {
        uint32_t state = seed;
        const char *stops[3];
        size_t n_stops = next_random(&state) % 4, shown_len;
        struct writing x;
        char text[128] = "";

        for (size_t i = 0; i < n_stops; i++)
            stops[i] = all_stops[next_random(&state) % 10];
        begin(&x, n_stops, stops);
        for (size_t i = 0; i < 30 && !x.is_stopped; i++) {
            int32_t id = ids[next_random(&state) % 8];
            const char *bytes;
            size_t len;

            if (id == B(0xC3)) { /* the letter in two tokens */
                add(&x, id);
                ck_assert(!x.is_stopped);
                strncat(text, "\xC3", 2);
                id = B(0xA9);
            }
            ck_assert_int_eq(vocab_bytes(vocab, id, false, &bytes, &len, &err), STATUS_OK);
            strncat(text, bytes, len);
            add(&x, id);
            ck_assert(x.text.len == 0 || strncmp(text, x.text.data, x.text.len) == 0);
        }
        if (!x.is_stopped)
            finish(&x);
        shown_len = strlen(text);
        ck_assert_msg(cut_plainly(text, stops, n_stops, &shown_len) == x.is_stopped, "seed %u",
                      seed);
        text[shown_len] = '\0';
        check_text(&x, text);
        release(&x);
    }
    close_vocab();
}
END_TEST

/* A full text reports it, and takes nothing of the piece. */
START_TEST(limits_hold)
{
    struct writing x;

    open_vocab();
    begin(&x, 0, NULL);
    buf_init(&x.text, 4);
    add(&x, ABC);
    ck_assert_int_eq(detokenizer_add(&x.w, AB, &x.text, &x.is_stopped, &err), STATUS_RANGE);
    ck_assert_str_eq(error_reason(&err), "REPLY_TOO_LONG");
    ck_assert_str_eq(err.text, "the reply's text is longer than 4 bytes");
    check_text(&x, "abc");
    ck_assert_int_eq(detokenizer_add(&x.w, -1, &x.text, &x.is_stopped, &err), STATUS_INVALID);
    release(&x);
    close_vocab();
}
END_TEST

SUITE_MAIN("agents/lm/writer", characters_stay_whole, wrong_bytes_are_replaced,
           stops_are_found_across_tokens, the_first_whole_stop_counts, stops_wait_for_min_tokens,
           cuts_do_not_matter, limits_hold)
