#include "compute/kv/pages.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/counter_rng.h"
#include "compute/numerics/kv_type.h"
#include "tests/unit/base/suite.h"

static struct error err;

static struct kv_pages *open_pages(size_t n)
{
    struct kv_pages *p = NULL;

    ck_assert_int_eq(kv_pages_open(&p, n, &err), STATUS_OK);
    return p;
}

/* Reserves and fills n_more positions. */
static struct kv_copy extend(struct kv_pages *p, struct kv_seq *s, size_t n_more)
{
    struct kv_copy copy;

    ck_assert_int_eq(kv_seq_reserve(p, s, n_more, &copy, &err), STATUS_OK);
    s->n_tokens += (uint32_t)n_more;
    return copy;
}

static void share(struct kv_pages *p, struct kv_seq *child, const struct kv_seq *parent,
                  size_t n_tokens)
{
    ck_assert_int_eq(kv_seq_share(p, child, parent, n_tokens, &err), STATUS_OK);
}

static void expect_usage(const struct kv_pages *p, size_t n_free, size_t n_shared,
                         uint64_t n_copies)
{
    struct kv_usage u;

    kv_pages_usage(p, &u);
    ck_assert_uint_eq(u.n_free, n_free);
    ck_assert_uint_eq(u.n_shared, n_shared);
    ck_assert_uint_eq(u.n_copies, n_copies);
}

/* A sequence takes a page for each sixteen positions, only when it needs it. */
START_TEST(pages_come_as_needed)
{
    struct kv_pages *p = open_pages(4);
    struct kv_seq s = {0};

    ck_assert_uint_eq(sizeof(s), 24);
    (void)extend(p, &s, 0);
    ck_assert_uint_eq(s.n_pages, 0);
    (void)extend(p, &s, 1);
    ck_assert_uint_eq(s.n_pages, 1);
    (void)extend(p, &s, 15);
    ck_assert_uint_eq(s.n_pages, 1);
    (void)extend(p, &s, 17);
    ck_assert_uint_eq(s.n_pages, 3);
    expect_usage(p, 1, 0, 0);
    kv_seq_free(p, &s);
    ck_assert(s.pages == NULL && s.n_pages == 0 && s.cap_pages == 0 && s.n_tokens == 0);
    expect_usage(p, 4, 0, 0);
    kv_pages_close(p);
    kv_pages_close(NULL);
}
END_TEST

/* Reserving the same positions twice takes pages once, and a cut frees those that were not
 * filled. */
START_TEST(room_is_taken_once)
{
    struct kv_pages *p = open_pages(4);
    struct kv_seq s = {0};
    struct kv_copy copy;

    (void)extend(p, &s, 10);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(kv_seq_reserve(p, &s, 30, &copy, &err), STATUS_OK);
        ck_assert_int_eq(copy.from, -1);
        ck_assert_uint_eq(s.n_pages, 3);
        ck_assert_uint_eq(s.n_tokens, 10);
    }
    kv_seq_cut(p, &s, 10);
    ck_assert_uint_eq(s.n_pages, 1);
    expect_usage(p, 3, 0, 0);
    kv_seq_free(p, &s);
    kv_pages_close(p);
}
END_TEST

/* With too few pages nothing changes, and the text says how many are needed and free. */
START_TEST(too_few_pages_change_nothing)
{
    struct kv_pages *p = open_pages(4);
    struct kv_seq a = {0}, b = {0}, before;
    struct kv_copy copy = {.from = 7, .to = 7};

    (void)extend(p, &a, 40);
    share(p, &b, &a, 40);
    before = b;
    /* one page is free; b needs a copy of the shared last page and a new one */
    ck_assert_int_eq(kv_seq_reserve(p, &b, 9, &copy, &err), STATUS_EXHAUSTED);
    ck_assert_str_eq(err.text, "2 more KV pages are needed, but only 1 are free");
    ck_assert(b.pages == before.pages && b.n_pages == 3 && b.n_tokens == 40);
    ck_assert(copy.from == 7 && copy.to == 7);
    expect_usage(p, 1, 3, 0);
    ck_assert_int_eq(kv_seq_reserve(p, &b, SIZE_MAX, &copy, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(kv_seq_reserve(p, &b, 8, &copy, &err), STATUS_OK);
    ck_assert_int_eq(copy.from, a.pages[2]);
    kv_seq_free(p, &a);
    kv_seq_free(p, &b);
    kv_pages_close(p);
}
END_TEST

/* A fork of 4,000 tokens takes no page and copies none; the first token of either branch copies the
 * one page that both would write, and the other branch then holds the old one alone. */
START_TEST(forks_copy_nothing)
{
    struct kv_pages *p = open_pages(300);
    struct kv_seq parent = {0}, child = {0};
    struct kv_copy copy;

    (void)extend(p, &parent, 4008);
    expect_usage(p, 300 - 251, 0, 0);
    share(p, &child, &parent, 4008);
    expect_usage(p, 300 - 251, 251, 0);
    copy = extend(p, &child, 1);
    ck_assert_int_eq(copy.from, parent.pages[250]);
    ck_assert_int_eq(copy.to, child.pages[250]);
    ck_assert_int_ne(copy.from, copy.to);
    expect_usage(p, 300 - 252, 250, 1);
    copy = extend(p, &parent, 1);
    ck_assert_int_eq(copy.from, -1);
    expect_usage(p, 300 - 252, 250, 1);
    kv_seq_free(p, &parent);
    expect_usage(p, 300 - 251, 0, 1);
    kv_seq_free(p, &child);
    kv_pages_close(p);
}
END_TEST

/* A share that ends at a page's edge never copies: both branches continue in pages of their own. */
START_TEST(full_pages_are_never_copied)
{
    struct kv_pages *p = open_pages(10);
    struct kv_seq parent = {0}, child = {0};

    (void)extend(p, &parent, 40);
    share(p, &child, &parent, 32);
    ck_assert_uint_eq(child.n_pages, 2);
    ck_assert_int_eq(extend(p, &child, 5).from, -1);
    ck_assert_int_eq(extend(p, &parent, 5).from, -1);
    ck_assert_int_ne(child.pages[2], parent.pages[2]);
    expect_usage(p, 6, 2, 0);
    kv_seq_free(p, &child);
    kv_seq_free(p, &parent);
    kv_pages_close(p);
}
END_TEST

/* A cut into a shared page leaves it unchanged for the others: the next write goes into a copy. */
START_TEST(cuts_leave_the_others_whole)
{
    struct kv_pages *p = open_pages(10);
    struct kv_seq parent = {0}, child = {0};
    struct kv_copy copy;

    (void)extend(p, &parent, 64);
    share(p, &child, &parent, 64);
    kv_seq_cut(p, &parent, 20);
    ck_assert_uint_eq(parent.n_pages, 2);
    expect_usage(p, 6, 2, 0);
    copy = extend(p, &parent, 1);
    ck_assert_int_eq(copy.from, child.pages[1]);
    ck_assert_int_eq(copy.to, parent.pages[1]);
    ck_assert_int_ne(copy.to, child.pages[1]);
    share(p, &(struct kv_seq){0}, &parent, 0); /* shares no position, so nothing is to be freed */
    kv_seq_free(p, &parent);
    kv_seq_free(p, &child);
    expect_usage(p, 10, 0, 1);
    kv_pages_close(p);
}
END_TEST

static void note_page(void *arg, int32_t page)
{
    *(int32_t *)arg = page;
}

/* A cached page is free when no sequence holds it, is handed out after all other free pages,
 * beginning with the tail of the sequence released longest ago. */
START_TEST(cached_pages_are_handed_out_last)
{
    struct kv_pages *p = open_pages(6);
    struct kv_seq a = {0}, b = {0}, c = {0};
    int32_t a_pages[2], b_page, forgotten = -1;
    struct kv_usage u;

    kv_pages_on_forget(p, note_page, &forgotten);
    (void)extend(p, &a, 32);
    (void)extend(p, &b, 20);
    memcpy(a_pages, a.pages, sizeof(a_pages));
    b_page = b.pages[0];
    kv_page_cache(p, a_pages[0]);
    kv_page_cache(p, a_pages[1]);
    kv_page_cache(p, b_page);
    kv_seq_free(p, &a);
    kv_seq_free(p, &b);
    expect_usage(p, 6, 0, 0);
    (void)extend(p, &c, 3 * KV_PAGE_TOKENS);
    ck_assert_int_eq(forgotten, -1);
    (void)extend(p, &c, 1);
    ck_assert_int_eq(forgotten, a_pages[1]);
    (void)extend(p, &c, KV_PAGE_TOKENS);
    ck_assert_int_eq(forgotten, a_pages[0]);
    (void)extend(p, &c, KV_PAGE_TOKENS);
    ck_assert_int_eq(forgotten, b_page);
    kv_pages_usage(p, &u);
    ck_assert(u.n_cached == 0 && u.n_evicted == 3 && u.n_free == 0);
    kv_seq_free(p, &c);
    kv_pages_close(p);
}
END_TEST

/* A sequence that adopts a cached page holds it: it is not handed out until it is released. */
START_TEST(cached_pages_come_back)
{
    struct kv_pages *p = open_pages(4);
    struct kv_seq a = {0}, b = {0};
    struct kv_copy copy;
    int32_t first, second, forgotten = -1;

    kv_pages_on_forget(p, note_page, &forgotten);
    (void)extend(p, &a, 40);
    first = a.pages[0];
    second = a.pages[1];
    kv_page_cache(p, first);
    kv_page_cache(p, second);
    kv_seq_free(p, &a);
    (void)extend(p, &b, 5); /* dropped, with the pages reserved after it */
    ck_assert_int_eq(kv_seq_reserve(p, &b, 20, &copy, &err), STATUS_OK);
    ck_assert_int_eq(kv_seq_adopt(p, &b, first, &err), STATUS_OK);
    ck_assert_int_eq(kv_seq_adopt(p, &b, second, &err), STATUS_OK);
    ck_assert(b.n_tokens == 32 && b.n_pages == 2 && b.pages[0] == first && b.pages[1] == second);
    expect_usage(p, 2, 0, 0);
    ck_assert_int_eq(kv_seq_reserve(p, &b, 33, &copy, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(forgotten, -1);
    kv_seq_free(p, &b);
    expect_usage(p, 4, 0, 0);
    kv_pages_close(p);
}
END_TEST

/* The only holder of a cached page that cuts into it writes in place, and the page is evicted;
 * where others hold it, too, it is unchanged, and the writer has a copy. */
START_TEST(writing_into_a_cached_page)
{
    struct kv_pages *p = open_pages(4);
    struct kv_seq a = {0}, b = {0};
    int32_t forgotten = -1, page;

    kv_pages_on_forget(p, note_page, &forgotten);
    (void)extend(p, &a, 16);
    page = a.pages[0];
    kv_page_cache(p, page);
    ck_assert_int_eq(kv_seq_adopt(p, &b, page, &err), STATUS_OK);
    kv_seq_cut(p, &b, 10);
    ck_assert_int_eq(extend(p, &b, 1).from, page);
    ck_assert_int_eq(forgotten, -1);
    kv_seq_cut(p, &a, 10);
    ck_assert_int_eq(extend(p, &a, 1).from, -1);
    ck_assert_int_eq(forgotten, page);
    kv_seq_free(p, &a);
    kv_seq_free(p, &b);
    kv_pages_close(p);
}
END_TEST

static void close_with_a_page_out(void)
{
    struct kv_pages *p = open_pages(2);
    struct kv_seq s = {0};

    (void)extend(p, &s, 1);
    kv_pages_close(p);
}

/* A page that is never freed makes kv_pages_close abort. */
START_TEST(a_lost_page_is_found)
{
    ck_assert(suite_aborts(close_with_a_page_out));
}
END_TEST

/* --- the model ----------------------------------------------------------------------------------
 * The model keeps the expected contents of each sequence and those of the pages, as numbers: each
 * write has a value of its own. */

enum { N_SEQS = 12, N_PAGES = 40, MAX_TOKENS = 300, N_STEPS = 4000 };

struct model {
    struct kv_pages *pages;
    struct kv_seq seqs[N_SEQS];
    uint64_t want[N_SEQS][MAX_TOKENS];
    uint64_t held[N_PAGES][KV_PAGE_TOKENS];
    uint64_t kept[N_PAGES][KV_PAGE_TOKENS]; /* what was cached */
    bool is_kept[N_PAGES];
    size_t n_adopted;
    uint64_t n_writes, seed, n_copies;
    uint32_t n_draws;
};

static size_t draw(struct model *m, size_t below)
{
    return (size_t)(counter_rng_uniform(m->seed, 0, 0, m->n_draws++) * (float)below) % below;
}

static void model_extend(struct model *m, size_t i)
{
    struct kv_seq *s = &m->seqs[i];
    size_t n_more = draw(m, draw(m, 4) == 0 ? 60 : 3);
    struct kv_copy copy;

    if (s->n_tokens + n_more > MAX_TOKENS ||
        kv_seq_reserve(m->pages, s, n_more, &copy, &err) != STATUS_OK)
        return;
    if (copy.from >= 0) {
        memcpy(m->held[copy.to], m->held[copy.from], sizeof(m->held[0]));
        m->n_copies++;
    }
    for (size_t n = 0; n < n_more; n++) {
        size_t at = s->n_tokens + n;

        m->want[i][at] = ++m->n_writes;
        m->held[s->pages[at / KV_PAGE_TOKENS]][at % KV_PAGE_TOKENS] = m->n_writes;
    }
    if (draw(m, 8) != 0) /* else the step failed: pages stay reserved, and n_tokens stays */
        s->n_tokens += (uint32_t)n_more;
}

static void model_forget(void *arg, int32_t page)
{
    struct model *m = arg;

    ck_assert(m->is_kept[page]);
    m->is_kept[page] = false;
}

/* Caches all full pages of the sequence. */
static void model_cache(struct model *m, const struct kv_seq *s)
{
    for (size_t i = 0; i < s->n_tokens / KV_PAGE_TOKENS; i++) {
        int32_t page = s->pages[i];

        if (m->is_kept[page])
            continue;
        kv_page_cache(m->pages, page);
        memcpy(m->kept[page], m->held[page], sizeof(m->kept[page]));
        m->is_kept[page] = true;
    }
}

/* Adopts a cached page, or replaces its last full page by a cached one. */
static void model_adopt(struct model *m, size_t i)
{
    struct kv_seq *s = &m->seqs[i];
    size_t page = draw(m, N_PAGES), at = s->n_tokens / KV_PAGE_TOKENS * KV_PAGE_TOKENS;

    if (!m->is_kept[page] || at + KV_PAGE_TOKENS > MAX_TOKENS)
        return;
    if (at != 0 && draw(m, 2) == 0) {
        at -= KV_PAGE_TOKENS;
        kv_seq_replace(m->pages, s, at / KV_PAGE_TOKENS, (int32_t)page);
    } else {
        ck_assert_int_eq(kv_seq_adopt(m->pages, s, (int32_t)page, &err), STATUS_OK);
    }
    memcpy(&m->want[i][at], m->kept[page], sizeof(m->kept[page]));
    m->n_adopted++;
}

static void model_step(struct model *m)
{
    size_t i = draw(m, N_SEQS), from = draw(m, N_SEQS), n;

    switch (draw(m, 10)) {
    case 0:
        kv_seq_free(m->pages, &m->seqs[i]);
        break;
    case 1:
        kv_seq_cut(m->pages, &m->seqs[i], draw(m, m->seqs[i].n_tokens + 1));
        break;
    case 2:
        n = draw(m, m->seqs[from].n_tokens + 1);
        n = draw(m, 2) == 0 ? m->seqs[from].n_tokens : n;
        if (i == from)
            break;
        kv_seq_free(m->pages, &m->seqs[i]);
        share(m->pages, &m->seqs[i], &m->seqs[from], n);
        memcpy(m->want[i], m->want[from], n * sizeof(m->want[0][0]));
        break;
    case 3:
        model_cache(m, &m->seqs[i]);
        break;
    case 4:
        model_adopt(m, i);
        break;
    default:
        model_extend(m, i);
    }
}

/* Checks that every position reads back what was written there, and that every page has the right
 * holders. */
static void model_check(const struct model *m)
{
    unsigned n_holders[N_PAGES] = {0};
    size_t n_used = 0, n_shared = 0, n_kept = 0;
    struct kv_usage u;

    for (size_t i = 0; i < N_SEQS; i++) {
        const struct kv_seq *s = &m->seqs[i];

        for (size_t n = 0; n < s->n_pages; n++) {
            ck_assert(s->pages[n] >= 0 && s->pages[n] < N_PAGES);
            n_holders[s->pages[n]]++;
        }
        for (size_t at = 0; at < s->n_tokens; at++)
            if (m->held[s->pages[at / KV_PAGE_TOKENS]][at % KV_PAGE_TOKENS] != m->want[i][at])
                ck_abort_msg("seed %llu: sequence %zu lost position %zu",
                             (unsigned long long)m->seed, i, at);
    }
    for (size_t n = 0; n < N_PAGES; n++) {
        n_used += n_holders[n] > 0;
        n_shared += n_holders[n] > 1;
        n_kept += m->is_kept[n];
        if (m->is_kept[n])
            ck_assert_mem_eq(m->held[n], m->kept[n], sizeof(m->kept[n]));
    }
    kv_pages_usage(m->pages, &u);
    if (u.n_free != N_PAGES - n_used || u.n_shared != n_shared || u.n_copies != m->n_copies ||
        u.n_cached != n_kept)
        ck_abort_msg("seed %llu: %zu free, %zu shared", (unsigned long long)m->seed, u.n_free,
                     u.n_shared);
}

/* After any operations on shared pages, each sequence reads back what it wrote, cached pages keep
 * their contents, and no page is lost or wrongly shared. */
START_TEST(no_page_is_lost_or_overwritten)
{
    static struct model m;

    for (uint64_t seed = 1; seed <= 5; seed++) {
        m = (struct model){.seed = seed};
        m.pages = open_pages(N_PAGES);
        kv_pages_on_forget(m.pages, model_forget, &m);
        for (int step = 0; step < N_STEPS; step++) {
            model_step(&m);
            model_check(&m);
        }
        printf("seed %llu: %llu writes, %llu copies, %zu adopted\n", (unsigned long long)seed,
               (unsigned long long)m.n_writes, (unsigned long long)m.n_copies, m.n_adopted);
        ck_assert_uint_gt(m.n_copies, 50);
        ck_assert_uint_gt(m.n_adopted, 50);
        for (size_t i = 0; i < N_SEQS; i++)
            kv_seq_free(m.pages, &m.seqs[i]);
        kv_pages_close(m.pages);
    }
}
END_TEST

SUITE_MAIN("compute/kv_pages", pages_come_as_needed, room_is_taken_once,
           too_few_pages_change_nothing, forks_copy_nothing, full_pages_are_never_copied,
           cuts_leave_the_others_whole, cached_pages_are_handed_out_last, cached_pages_come_back,
           writing_into_a_cached_page, a_lost_page_is_found, no_page_is_lost_or_overwritten)
