/* The accounting of KV pages: which sequences use which pages, not their contents. It is owned by
 * the loop, like the clones, so that a fork or a close never waits for a running step. The contents
 * are owned by the compute thread and change only by what a step carries (page tables and copies).
 *
 * The rule that makes this safe: positions below a sharer's length never change. A sequence writes
 * only into pages that it alone holds; a shared page is first replaced by a copy (the step carries
 * the copy). A page freed while a step writes into it may be handed out again: the next step runs
 * after this one. */
#ifndef COMPUTE_KV_PAGES_H
#define COMPUTE_KV_PAGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/kv/copy.h"

struct kv_pages;

/* One sequence's pages. Plain data, 24 bytes: idle conversations are many. Zeroed, it is empty. */
struct kv_seq {
    int32_t *pages; /* [n_pages] */
    uint32_t n_pages, cap_pages;
    uint32_t n_tokens; /* positions whose keys and values are in the pages */
};

/* No sequence holds a free page; it may be cached all the same, until it is handed out. */
struct kv_usage {
    size_t n_pages, n_free, n_shared; /* n_shared: pages with more than one holder */
    size_t n_cached;                  /* held or free */
    uint64_t n_copies;                /* copies on write since the start */
    uint64_t n_evicted;               /* cached pages that were handed out since the start */
};

/* The page is evicted: the next step writes into it. */
typedef void (*kv_forget_fn)(void *arg, int32_t page);

/* On the loop; all other calls too. */
enum status kv_pages_open(struct kv_pages **out, size_t n_pages, struct error *err) MUST_CHECK;
void kv_pages_close(struct kv_pages *p); /* asserts that every page is free */

void kv_pages_usage(const struct kv_pages *p, struct kv_usage *out);

/* Sets fn, before the first page is cached; fn is called inside kv_seq_reserve, kv_seq_extend and
 * kv_pages_forget. */
void kv_pages_on_forget(struct kv_pages *p, kv_forget_fn fn, void *arg);

/* Marks a held, full page as cached: it keeps its contents when no sequence holds it any more. It
 * is then free, but is handed out after all pages that are not cached, the least recently released
 * first. It is evicted then, or when its only holder writes into it. */
void kv_page_cache(struct kv_pages *p, int32_t page);

/* Drops all cached pages, whose contents are lost. Every page must be free. */
void kv_pages_forget(struct kv_pages *p);

/* Makes room for positions n_tokens … n_tokens + n_more - 1: adds pages, and gives the last, partly
 * filled page a private copy if it is shared (*ret_copy, with ret_copy->from >= 0; else from = -1).
 * STATUS_EXHAUSTED when too few pages are free: nothing has changed then. n_tokens stays: the
 * caller adds to it once the positions are filled. The next step must carry out the copies, in the
 * order in which they were returned, even if it does not run the row that needed them. */
enum status kv_seq_reserve(struct kv_pages *p, struct kv_seq *s, size_t n_more,
                           struct kv_copy *ret_copy, struct error *err) MUST_CHECK;

/* child, empty before, shares the pages of the first n_tokens positions of parent, which has them.
 * Fails only for want of memory: child is empty then. */
enum status kv_seq_share(struct kv_pages *p, struct kv_seq *child, const struct kv_seq *parent,
                         size_t n_tokens, struct error *err) MUST_CHECK;

/* Appends a cached page to the full pages of s. Positions of a partly filled page and reserved
 * pages are dropped. Fails only for want of memory: s is as it was then. */
enum status kv_seq_adopt(struct kv_pages *p, struct kv_seq *s, int32_t page,
                         struct error *err) MUST_CHECK;

/* Appends a free page to the full pages of s, as kv_seq_adopt does a cached one; the caller fills
 * it. STATUS_EXHAUSTED when none is free. */
enum status kv_seq_extend(struct kv_pages *p, struct kv_seq *s, int32_t *ret_page,
                          struct error *err) MUST_CHECK;

/* Replaces the i-th page of s by a cached page with the same contents. */
void kv_seq_replace(struct kv_pages *p, struct kv_seq *s, size_t i, int32_t page);

/* Drops positions from n_tokens (at most its own) on. Frees their pages, and those that were
 * reserved and not filled. */
void kv_seq_cut(struct kv_pages *p, struct kv_seq *s, size_t n_tokens);

/* The number of its pages that other sequences hold, too. */
size_t kv_seq_n_shared(const struct kv_pages *p, const struct kv_seq *s);

/* Frees all its pages; s is zeroed. */
void kv_seq_free(struct kv_pages *p, struct kv_seq *s);

#endif
