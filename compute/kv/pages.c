/* Counts the users of each page and keeps the free and the cached ones in lists. Growing a sequence
 * replaces a shared last page by a copy, which the next step carries out. */
#include "compute/kv/pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "compute/numerics/kv_type.h"

struct page {
    struct link link; /* in the list of cached, free pages */
    uint32_t n_holders;
    bool is_cached;
};

struct kv_pages {
    struct page *pages; /* [n_pages] */
    int32_t *blank;     /* [n_pages] a stack, the first n_blank are free and not cached */
    size_t n_blank;
    struct list idle; /* free and cached, the longest released first */
    kv_forget_fn forget;
    void *forget_arg;
    struct kv_usage usage;
};

static size_t kv_pages_for(size_t n_tokens)
{
    return n_tokens / KV_PAGE_TOKENS + (n_tokens % KV_PAGE_TOKENS != 0);
}

static void kv_pages_forget_page(struct kv_pages *p, int32_t page)
{
    p->pages[page].is_cached = false;
    p->usage.n_cached--;
    p->forget(p->forget_arg, page);
}

static int32_t take_page(struct kv_pages *p)
{
    int32_t page;

    p->usage.n_free--;
    if (p->n_blank > 0) {
        page = p->blank[--p->n_blank];
    } else {
        page = (int32_t)(container_of(list_pop(&p->idle), struct page, link) - p->pages);
        kv_pages_forget_page(p, page);
        p->usage.n_evicted++;
    }
    assert(p->pages[page].n_holders == 0);
    p->pages[page].n_holders = 1;
    return page;
}

static void share_page(struct kv_pages *p, int32_t page)
{
    struct page *at = &p->pages[page];

    if (at->n_holders == 0) {
        assert(at->is_cached);
        list_remove(&at->link);
        p->usage.n_free--;
    }
    if (++at->n_holders == 2)
        p->usage.n_shared++;
}

static void drop_page(struct kv_pages *p, int32_t page)
{
    struct page *at = &p->pages[page];

    assert(at->n_holders > 0);
    if (--at->n_holders == 1)
        p->usage.n_shared--;
    if (at->n_holders > 0)
        return;
    p->usage.n_free++;
    if (at->is_cached)
        list_push(&p->idle, &at->link);
    else
        p->blank[p->n_blank++] = page;
}

enum status kv_pages_open(struct kv_pages **out, size_t n_pages, struct error *err)
{
    struct kv_pages *p;

    if (n_pages > INT32_MAX)
        return error_set(err, STATUS_INVALID, "%zu KV pages are too many, there can be at most %d",
                         n_pages, INT32_MAX);
    p = xalloc(sizeof(*p));
    list_init(&p->idle);
    p->pages = try_alloc(n_pages, sizeof(*p->pages));
    p->blank = try_alloc(n_pages, sizeof(*p->blank));
    if (p->pages == NULL || p->blank == NULL) {
        kv_pages_close(p);
        return error_no_memory(err, n_pages * (sizeof(*p->pages) + sizeof(*p->blank)),
                               "the list of KV pages");
    }
    for (size_t i = 0; i < n_pages; i++) /* low pages are handed out first */
        p->blank[i] = (int32_t)(n_pages - 1 - i);
    p->usage.n_pages = p->usage.n_free = p->n_blank = n_pages;
    *out = p;
    return STATUS_OK;
}

void kv_pages_close(struct kv_pages *p)
{
    if (p == NULL)
        return;
    assert(p->usage.n_free == p->usage.n_pages);
    free(p->pages);
    free(p->blank);
    free(p);
}

void kv_pages_usage(const struct kv_pages *p, struct kv_usage *out)
{
    *out = p->usage;
}

void kv_pages_on_forget(struct kv_pages *p, kv_forget_fn fn, void *arg)
{
    p->forget = fn;
    p->forget_arg = arg;
}

void kv_page_cache(struct kv_pages *p, int32_t page)
{
    assert(p->forget != NULL && p->pages[page].n_holders > 0 && !p->pages[page].is_cached);
    p->pages[page].is_cached = true;
    p->usage.n_cached++;
}

void kv_pages_forget(struct kv_pages *p)
{
    struct link *l;

    assert(p->usage.n_free == p->usage.n_pages);
    while ((l = list_pop(&p->idle)) != NULL) {
        int32_t page = (int32_t)(container_of(l, struct page, link) - p->pages);

        kv_pages_forget_page(p, page);
        p->blank[p->n_blank++] = page;
    }
}

static enum status kv_pages_grow(struct kv_seq *s, size_t n_pages, struct error *err)
{
    size_t cap = n_pages > 2 * (size_t)s->cap_pages ? n_pages : 2 * (size_t)s->cap_pages;
    int32_t *pages;

    if (n_pages <= s->cap_pages)
        return STATUS_OK;
    pages = try_realloc(s->pages, cap, sizeof(*pages));
    if (pages == NULL)
        return error_no_memory(err, cap * sizeof(*pages), "a page table");
    s->pages = pages;
    s->cap_pages = (uint32_t)cap;
    return STATUS_OK;
}

enum status kv_seq_reserve(struct kv_pages *p, struct kv_seq *s, size_t n_more,
                           struct kv_copy *ret_copy, struct error *err)
{
    size_t n_pages, n_new, last = s->n_tokens / KV_PAGE_TOKENS; /* where the next token goes */
    bool is_shared;
    enum status rc;

    if (n_more > p->usage.n_pages * KV_PAGE_TOKENS)
        return error_set(err, STATUS_EXHAUSTED, "%zu more tokens do not fit in %zu KV pages of %d",
                         n_more, p->usage.n_pages, KV_PAGE_TOKENS);
    n_pages = kv_pages_for(s->n_tokens + n_more);
    n_new = n_pages > s->n_pages ? n_pages - s->n_pages : 0;
    is_shared = n_more > 0 && last < s->n_pages && p->pages[s->pages[last]].n_holders > 1;
    if (n_new + is_shared > p->usage.n_free)
        return error_set(err, STATUS_EXHAUSTED,
                         "%zu more KV pages are needed, but only %zu are free", n_new + is_shared,
                         p->usage.n_free);
    rc = kv_pages_grow(s, n_pages, err);
    if (rc != STATUS_OK)
        return rc;

    *ret_copy = (struct kv_copy){.from = -1, .to = -1};
    if (is_shared) {
        *ret_copy = (struct kv_copy){.from = s->pages[last], .to = take_page(p)};
        drop_page(p, ret_copy->from);
        s->pages[last] = ret_copy->to;
        p->usage.n_copies++;
    } else if (n_more > 0 && last < s->n_pages && p->pages[s->pages[last]].is_cached) {
        kv_pages_forget_page(p, s->pages[last]);
    }
    while (s->n_pages < n_pages)
        s->pages[s->n_pages++] = take_page(p);
    return STATUS_OK;
}

enum status kv_seq_share(struct kv_pages *p, struct kv_seq *child, const struct kv_seq *parent,
                         size_t n_tokens, struct error *err)
{
    size_t n_pages = kv_pages_for(n_tokens);
    enum status rc;

    assert(child->n_pages == 0 && child->n_tokens == 0 && n_tokens <= parent->n_tokens);
    rc = kv_pages_grow(child, n_pages, err);
    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < n_pages; i++) {
        share_page(p, parent->pages[i]);
        child->pages[i] = parent->pages[i];
    }
    child->n_pages = (uint32_t)n_pages;
    child->n_tokens = (uint32_t)n_tokens;
    return STATUS_OK;
}

enum status kv_seq_adopt(struct kv_pages *p, struct kv_seq *s, int32_t page, struct error *err)
{
    size_t n_full = s->n_tokens / KV_PAGE_TOKENS;
    enum status rc = kv_pages_grow(s, n_full + 1, err);

    if (rc != STATUS_OK)
        return rc;
    share_page(p, page); /* first: the cut may free it */
    kv_seq_cut(p, s, n_full * KV_PAGE_TOKENS);
    s->pages[s->n_pages++] = page;
    s->n_tokens += KV_PAGE_TOKENS;
    return STATUS_OK;
}

enum status kv_seq_extend(struct kv_pages *p, struct kv_seq *s, int32_t *ret_page,
                          struct error *err)
{
    size_t n_full = s->n_tokens / KV_PAGE_TOKENS;
    enum status rc = kv_pages_grow(s, n_full + 1, err);

    if (rc != STATUS_OK)
        return rc;
    kv_seq_cut(p, s, n_full * KV_PAGE_TOKENS);
    if (p->usage.n_free == 0)
        return error_set(err, STATUS_EXHAUSTED, "no KV page is free");
    *ret_page = s->pages[s->n_pages++] = take_page(p);
    s->n_tokens += KV_PAGE_TOKENS;
    return STATUS_OK;
}

void kv_seq_replace(struct kv_pages *p, struct kv_seq *s, size_t i, int32_t page)
{
    assert(i < s->n_pages && p->pages[page].is_cached);
    share_page(p, page);
    drop_page(p, s->pages[i]);
    s->pages[i] = page;
}

void kv_seq_cut(struct kv_pages *p, struct kv_seq *s, size_t n_tokens)
{
    size_t n_pages = kv_pages_for(n_tokens);

    assert(n_tokens <= s->n_tokens);
    while (s->n_pages > n_pages)
        drop_page(p, s->pages[--s->n_pages]);
    s->n_tokens = (uint32_t)n_tokens;
}

void kv_seq_free(struct kv_pages *p, struct kv_seq *s)
{
    kv_seq_cut(p, s, 0);
    free(s->pages);
    *s = (struct kv_seq){0};
}

size_t kv_seq_n_shared(const struct kv_pages *p, const struct kv_seq *s)
{
    size_t n = 0;

    for (uint32_t i = 0; i < s->n_pages; i++)
        n += p->pages[s->pages[i]].n_holders > 1;
    return n;
}
