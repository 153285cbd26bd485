#include "client/cli/bench/prompts.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"

static size_t n_words(const struct buf *text)
{
    size_t n = 1;

    for (size_t i = 0; i < text->len; i++)
        n += text->data[i] == ' ';
    return n;
}

static const char *text_of(const struct prompts *p, uint32_t c, uint32_t turn, uint32_t n_tokens,
                           struct buf *out)
{
    ck_assert_int_eq(prompts_text(p, c, turn, n_tokens, out), STATUS_OK);
    return out->data;
}

/* A text has the words that make up its tokens beside the overhead; it is the same for the same
 * seed, conversation and turn, and another for others. */
START_TEST(texts)
{
    struct prompts p, other;
    struct buf a, b;

    prompts_init(&p, 7);
    prompts_init(&other, 8);
    p.overhead[0] = other.overhead[0] = 10;
    p.overhead[1] = 3;
    buf_init(&a, 1 << 20);
    buf_init(&b, 1 << 20);
    (void)text_of(&p, 5, 1, 40, &a);
    ck_assert_uint_eq(n_words(&a), 1 + 30); /* the word that each begins with is overhead */
    ck_assert_str_eq(a.data, text_of(&p, 5, 1, 40, &b));
    ck_assert_str_ne(a.data, text_of(&p, 6, 1, 40, &b));
    ck_assert_str_ne(a.data, text_of(&other, 5, 1, 40, &b));
    (void)text_of(&p, 5, 2, 33, &b);
    ck_assert_uint_eq(n_words(&b), 1 + 30);
    ck_assert_str_ne(a.data, b.data);
    (void)text_of(&p, 5, 1, 4, &b);
    ck_assert_uint_eq(n_words(&b), 1);
    buf_deinit(&a);
    buf_deinit(&b);
    prompts_deinit(&p);
    prompts_deinit(&other);
}
END_TEST

/* System prompts are each conversation's own, unless they are to be shared. */
START_TEST(system_prompts)
{
    struct prompts p;
    struct buf a, b;

    prompts_init(&p, 1);
    buf_init(&a, 1 << 20);
    buf_init(&b, 1 << 20);
    p.n_system = 50;
    ck_assert_int_eq(prompts_system(&p, 1, &a), STATUS_OK);
    ck_assert_int_eq(prompts_system(&p, 2, &b), STATUS_OK);
    ck_assert_uint_eq(n_words(&a), 51);
    ck_assert_str_ne(a.data, b.data);
    p.shares_system = true;
    ck_assert_int_eq(prompts_system(&p, 1, &a), STATUS_OK);
    ck_assert_int_eq(prompts_system(&p, 2, &b), STATUS_OK);
    ck_assert_str_eq(a.data, b.data);
    buf_deinit(&a);
    buf_deinit(&b);
    prompts_deinit(&p);
}
END_TEST

/* A share of the conversations begins with the shared one, the others each with their own. */
START_TEST(shared)
{
    struct buf a, b, common;
    struct prompts p;
    unsigned n = 0;

    prompts_init(&p, 7);
    buf_init(&a, 1 << 16);
    buf_init(&b, 1 << 16);
    buf_init(&common, 1 << 16);
    p.n_system = 50;
    p.shares_system = true;
    ck_assert_int_eq(prompts_system(&p, 0, &common), STATUS_OK);
    p.shared = 0.25;
    for (uint32_t c = 0; c < 400; c++) {
        ck_assert_int_eq(prompts_system(&p, c, &a), STATUS_OK);
        n += strcmp(a.data, common.data) == 0;
        ck_assert_int_eq(prompts_system(&p, c + 1, &b), STATUS_OK);
        ck_assert(strcmp(a.data, b.data) != 0 || strcmp(a.data, common.data) == 0);
    }
    ck_assert_uint_ge(n, 70);
    ck_assert_uint_le(n, 130);
    buf_deinit(&a);
    buf_deinit(&b);
    buf_deinit(&common);
    prompts_deinit(&p);
}
END_TEST

/* The lines of a file are said in turn; a file that is not there or has none is refused. */
START_TEST(lines)
{
    char path[] = "/tmp/parley-prompts-XXXXXX";
    int fd = mkstemp(path);
    struct prompts p;
    struct error err;
    struct buf out;

    ck_assert_int_ge(fd, 0);
    prompts_init(&p, 1);
    ck_assert_int_eq(prompts_read(&p, path, &err), STATUS_INVALID);
    ck_assert_int_eq(write(fd, "one\n\ntwo", 8), 8);
    ck_assert_int_eq(prompts_read(&p, path, &err), STATUS_OK);
    buf_init(&out, 1 << 20);
    ck_assert_str_eq(text_of(&p, 0, 1, 64, &out), "one");
    ck_assert_str_eq(text_of(&p, 0, 2, 64, &out), "two");
    ck_assert_str_eq(text_of(&p, 2, 1, 64, &out), "one");
    ck_assert_int_eq(prompts_system(&p, 0, &out), STATUS_OK);
    ck_assert_uint_eq(out.len, 0);
    buf_deinit(&out);
    prompts_deinit(&p);
    (void)close(fd);
    (void)unlink(path);
    prompts_init(&p, 1);
    ck_assert_int_eq(prompts_read(&p, path, &err), STATUS_NOT_FOUND);
    prompts_deinit(&p);
}
END_TEST

SUITE_MAIN("client/cli/bench/prompts", texts, system_prompts, lines, shared)
