#include "compute/kv_pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

struct kv_pages {
    uint32_t *n_holders; /* [n_pages] */
    int32_t *free;       /* [n_pages] a stack, the first n_free are free pages */
    struct kv_usage usage;
};

static size_t pages_for(size_t n_tokens)
{
    return n_tokens / KV_PAGE_TOKENS + (n_tokens % KV_PAGE_TOKENS != 0);
}

static int32_t take_page(struct kv_pages *p)
{
    int32_t page = p->free[--p->usage.n_free];

    assert(p->n_holders[page] == 0);
    p->n_holders[page] = 1;
    return page;
}

static void share_page(struct kv_pages *p, int32_t page)
{
    assert(p->n_holders[page] > 0);
    if (++p->n_holders[page] == 2)
        p->usage.n_shared++;
}

static void drop_page(struct kv_pages *p, int32_t page)
{
    uint32_t n_left = --p->n_holders[page];

    assert(n_left != UINT32_MAX);
    if (n_left == 1)
        p->usage.n_shared--;
    else if (n_left == 0)
        p->free[p->usage.n_free++] = page;
}

enum status kv_pages_open(struct kv_pages **out, size_t n_pages, struct error *err)
{
    struct kv_pages *p;

    if (n_pages > INT32_MAX)
        return error_set(err, STATUS_INVALID, "%zu KV pages, more than the %d there can be",
                         n_pages, INT32_MAX);
    p = xalloc(sizeof *p);
    p->n_holders = try_alloc(n_pages, sizeof *p->n_holders);
    p->free = try_alloc(n_pages, sizeof *p->free);
    if (p->n_holders == NULL || p->free == NULL) {
        kv_pages_close(p);
        return error_no_memory(err, n_pages * (sizeof *p->n_holders + sizeof *p->free),
                               "the list of KV pages");
    }
    for (size_t i = 0; i < n_pages; i++) /* low pages are handed out first */
        p->free[i] = (int32_t)(n_pages - 1 - i);
    p->usage.n_pages = p->usage.n_free = n_pages;
    *out = p;
    return STATUS_OK;
}

void kv_pages_close(struct kv_pages *p)
{
    if (p == NULL)
        return;
    assert(p->usage.n_free == p->usage.n_pages);
    free(p->n_holders);
    free(p->free);
    free(p);
}

void kv_pages_usage(const struct kv_pages *p, struct kv_usage *out)
{
    *out = p->usage;
}

static enum status grow(struct kv_seq *s, size_t n_pages, struct error *err)
{
    size_t cap = n_pages > 2 * (size_t)s->cap_pages ? n_pages : 2 * (size_t)s->cap_pages;
    int32_t *pages;

    if (n_pages <= s->cap_pages)
        return STATUS_OK;
    pages = try_realloc(s->pages, cap, sizeof *pages);
    if (pages == NULL)
        return error_no_memory(err, cap * sizeof *pages, "a page table");
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
    n_pages = pages_for(s->n_tokens + n_more);
    n_new = n_pages > s->n_pages ? n_pages - s->n_pages : 0;
    is_shared = n_more > 0 && last < s->n_pages && p->n_holders[s->pages[last]] > 1;
    if (n_new + is_shared > p->usage.n_free)
        return error_set(err, STATUS_EXHAUSTED, "%zu more KV pages are needed, %zu are free",
                         n_new + is_shared, p->usage.n_free);
    rc = grow(s, n_pages, err);
    if (rc != STATUS_OK)
        return rc;

    *ret_copy = (struct kv_copy){.from = -1, .to = -1};
    if (is_shared) {
        *ret_copy = (struct kv_copy){.from = s->pages[last], .to = take_page(p)};
        drop_page(p, ret_copy->from);
        s->pages[last] = ret_copy->to;
        p->usage.n_copies++;
    }
    while (s->n_pages < n_pages)
        s->pages[s->n_pages++] = take_page(p);
    return STATUS_OK;
}

enum status kv_seq_share(struct kv_pages *p, struct kv_seq *child, const struct kv_seq *parent,
                         size_t n_tokens, struct error *err)
{
    size_t n_pages = pages_for(n_tokens);
    enum status rc;

    assert(child->n_pages == 0 && child->n_tokens == 0 && n_tokens <= parent->n_tokens);
    rc = grow(child, n_pages, err);
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

void kv_seq_cut(struct kv_pages *p, struct kv_seq *s, size_t n_tokens)
{
    size_t n_pages = pages_for(n_tokens);

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
        n += p->n_holders[s->pages[i]] > 1;
    return n;
}
