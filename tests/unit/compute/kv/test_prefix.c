#include "compute/kv/prefix.h"

#include <check.h>

#include "base/counter_rng.h"
#include "compute/backend/backend.h"
#include "tests/unit/base/suite.h"

enum { N_PAGES = 50 };

static struct prefix_cache *open_cache(size_t n_pages)
{
    struct prefix_cache *p;
    struct error err;

    ck_assert_int_eq(prefix_cache_open(&p, n_pages, &env_real, &err), STATUS_OK);
    return p;
}

static void fill(int32_t ids[KV_PAGE_TOKENS], int32_t value)
{
    for (int i = 0; i < KV_PAGE_TOKENS; i++)
        ids[i] = value;
}

/* A page is found only by its ids, the page before it and the tenant together. */
START_TEST(found_by_all_that_it_depends_on)
{
    struct prefix_cache *p = open_cache(8);
    int32_t one[KV_PAGE_TOKENS], two[KV_PAGE_TOKENS];

    fill(one, 1);
    fill(two, 2);
    ck_assert_int_eq(prefix_cache_find(p, -1, 0, one), -1);
    prefix_cache_add(p, -1, 0, one, 5);
    prefix_cache_add(p, 5, 0, two, 3);
    ck_assert_int_eq(prefix_cache_find(p, -1, 0, one), 5);
    ck_assert_int_eq(prefix_cache_find(p, 5, 0, two), 3);
    ck_assert_int_eq(prefix_cache_find(p, -1, 0, two), -1);
    ck_assert_int_eq(prefix_cache_find(p, 5, 0, one), -1);
    ck_assert_int_eq(prefix_cache_find(p, 3, 0, two), -1);
    ck_assert_int_eq(prefix_cache_find(p, -1, 7, one), -1);
    ck_assert(prefix_cache_has(p, 5) && !prefix_cache_has(p, 4));
    for (int i = 0; i < KV_PAGE_TOKENS; i++) {
        one[i] = 9;
        ck_assert_int_eq(prefix_cache_find(p, -1, 0, one), -1);
        one[i] = 1;
    }
    prefix_cache_close(p);
    prefix_cache_close(NULL);
}
END_TEST

/* Pages after a page that was rewritten are not found after it any more, even if it has the same
 * contents again. */
START_TEST(nothing_is_found_behind_a_page_that_changed)
{
    struct prefix_cache *p = open_cache(8);
    int32_t one[KV_PAGE_TOKENS], two[KV_PAGE_TOKENS], three[KV_PAGE_TOKENS];

    fill(one, 1);
    fill(two, 2);
    fill(three, 3);
    prefix_cache_add(p, -1, 0, one, 5);
    prefix_cache_add(p, 5, 0, two, 3);
    prefix_cache_remove(p, 5);
    ck_assert(!prefix_cache_has(p, 5) && prefix_cache_has(p, 3));
    ck_assert_int_eq(prefix_cache_find(p, -1, 0, one), -1);
    prefix_cache_add(p, -1, 0, three, 5);
    ck_assert_int_eq(prefix_cache_find(p, 5, 0, two), -1);
    prefix_cache_remove(p, 5);
    prefix_cache_add(p, -1, 0, one, 5);
    ck_assert_int_eq(prefix_cache_find(p, 5, 0, two), -1);
    prefix_cache_close(p);
}
END_TEST

struct held {
    bool is_in;
    int32_t parent, id;
    uint64_t number, parent_number; /* given when it was added */
};

static int32_t find_plain(const struct held *all, int32_t parent, int32_t id)
{
    for (int32_t i = 0; i < N_PAGES; i++)
        if (all[i].is_in && all[i].id == id && all[i].parent == parent &&
            all[i].parent_number == (parent < 0 ? 0 : all[parent].number))
            return i;
    return -1;
}

/* With pages added and removed, the cache finds the same pages as a plain list. */
START_TEST(as_a_plain_list_would)
{
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct prefix_cache *p = open_cache(N_PAGES);
        struct held all[N_PAGES] = {0};
        uint64_t n_added = 0;
        uint32_t n_draws = 0;
        size_t n_found = 0;

        for (int step = 0; step < 20000; step++) {
            int32_t page =
                (int32_t)(counter_rng_uniform(seed, 0, 0, n_draws++) * N_PAGES) % N_PAGES;
            int32_t parent =
                (int32_t)(counter_rng_uniform(seed, 0, 0, n_draws++) * N_PAGES) % N_PAGES;
            int32_t id = (int32_t)(counter_rng_uniform(seed, 0, 0, n_draws++) * 5), found;
            int32_t ids[KV_PAGE_TOKENS];

            if (!all[parent].is_in || parent == page)
                parent = -1;
            fill(ids, id);
            found = prefix_cache_find(p, parent, 0, ids);
            ck_assert_msg(found == find_plain(all, parent, id), "seed %d", (int)seed);
            n_found += found >= 0;
            if (all[page].is_in) {
                prefix_cache_remove(p, page);
                all[page].is_in = false;
            } else if (found < 0) {
                prefix_cache_add(p, parent, 0, ids, page);
                all[page] = (struct held){.is_in = true,
                                          .parent = parent,
                                          .id = id,
                                          .number = ++n_added,
                                          .parent_number = parent < 0 ? 0 : all[parent].number};
            }
            ck_assert(prefix_cache_has(p, page) == all[page].is_in);
        }
        ck_assert_uint_gt(n_found, 1000);
        prefix_cache_close(p);
    }
}
END_TEST

SUITE_MAIN("agents/lm/prefix", found_by_all_that_it_depends_on,
           nothing_is_found_behind_a_page_that_changed, as_a_plain_list_would)
