#include "agents/lm/known_logprobs.h"

#include <check.h>

#include "agents/turn.h"
#include "base/env.h"
#include "compute/kv/pages.h"
#include "tests/unit/base/suite.h"

enum { N_TOPS = 2 };

static struct known_logprobs *k;

/* The name of a page whose ids are all id, behind the page before. */
static struct digest name_of(const struct digest *before, uint64_t salt, int32_t id)
{
    int32_t ids[KV_PAGE_TOKENS];

    for (int i = 0; i < KV_PAGE_TOKENS; i++)
        ids[i] = id;
    return known_logprobs_name(k, before, salt, ids);
}

static void put(const struct digest *page, int32_t id, uint32_t n_tops)
{
    struct top_logprob tops[N_TOPS] = {{id, -1.0f}, {id + 1, -2.0f}};
    struct prompt_token tokens[KV_PAGE_TOKENS];

    for (int i = 0; i < KV_PAGE_TOKENS; i++)
        tokens[i] = (struct prompt_token){
            .id = id, .rank = 1, .logprob = (float)-id, .n_top = n_tops, .top = tops};
    known_logprobs_put(k, page, tokens, n_tops);
}

static void open_with(size_t max_bytes)
{
    struct error err;

    ck_assert_int_eq(known_logprobs_open(&k, max_bytes, &env_real, &err), STATUS_OK);
}

/* A page is found by its ids, what is before it, and its tenant, and only with enough alternatives;
 * what is kept is a copy. */
START_TEST(pages_are_found_by_all_before_them)
{
    struct digest first, second, other, tenant;
    const struct prompt_token *got;

    open_with(1 << 20);
    first = name_of(NULL, 0, 5);
    second = name_of(&first, 0, 5);
    tenant = name_of(NULL, 1, 5);
    other = name_of(NULL, 0, 6);
    put(&first, 3, N_TOPS);
    ck_assert_ptr_null(known_logprobs_find(k, &second, 0));
    ck_assert_ptr_null(known_logprobs_find(k, &tenant, 0));
    ck_assert_ptr_null(known_logprobs_find(k, &other, 0));
    ck_assert_ptr_null(known_logprobs_find(k, &first, N_TOPS + 1));
    put(&first, 9, 1); /* fewer alternatives replace nothing */
    got = known_logprobs_find(k, &first, N_TOPS);
    ck_assert_ptr_nonnull(got);
    for (int i = 0; i < KV_PAGE_TOKENS; i++) {
        ck_assert_int_eq(got[i].id, 3);
        ck_assert_float_eq(got[i].logprob, -3.0f);
        ck_assert_int_eq(got[i].top[1].id, 4);
    }
    known_logprobs_close(k);
}
END_TEST

/* Within the bound the least recently used page goes first; a page that is larger than the bound is
 * not kept. */
START_TEST(the_bound_holds)
{
    struct digest names[64];
    size_t n_known = 0;

    open_with(4096);
    for (int32_t i = 0; i < 64; i++) {
        names[i] = name_of(NULL, 0, i);
        put(&names[i], i, N_TOPS);
        ck_assert_ptr_nonnull(known_logprobs_find(k, &names[0], N_TOPS)); /* is used each time */
        ck_assert_ptr_nonnull(known_logprobs_find(k, &names[i], N_TOPS));
    }
    for (int32_t i = 0; i < 64; i++)
        n_known += known_logprobs_find(k, &names[i], 0) != NULL;
    ck_assert_uint_ge(n_known, 2);
    ck_assert_uint_le(n_known * KV_PAGE_TOKENS * (sizeof(struct prompt_token) + N_TOPS * 8), 4096);
    known_logprobs_close(k);
    open_with(64);
    put(&names[0], 0, 0);
    ck_assert_ptr_null(known_logprobs_find(k, &names[0], 0));
    known_logprobs_close(k);
}
END_TEST

SUITE_MAIN("agents_lm_known_logprobs", pages_are_found_by_all_before_them, the_bound_holds)
