/* The accounting of KV pages: who uses which, nothing of what is in them. It lives with the clones,
 * on the loop, so that a fork or a close never waits for a step that runs; the contents live on the
 * compute thread and move only by what a step carries (page tables and copies).
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
#include "compute/llama.h"

struct kv_pages;

/* One sequence's pages. Plain data, 24 bytes: idle conversations are many. Zeroed, it is empty. */
struct kv_seq {
    int32_t *pages; /* [n_pages] */
    uint32_t n_pages, cap_pages;
    uint32_t n_tokens; /* positions whose keys and values are in the pages */
};

/* Nobody holds a free page; it may be cached all the same, until it is handed out. */
struct kv_usage {
    size_t n_pages, n_free, n_shared; /* n_shared: pages with more than one holder */
    size_t n_cached;                  /* held or free */
    uint64_t n_copies;                /* copies on write since the start */
    uint64_t n_evicted;               /* cached pages that were handed out since the start */
};

/* The page is cached no more: it is about to be written anew, by what the next step carries or
 * computes. */
typedef void (*kv_forget_fn)(void *arg, int32_t page);

/* Its thread, the loop's, is then the only one to call any of these. */
enum status kv_pages_open(struct kv_pages **out, size_t n_pages, struct error *err) MUST_CHECK;
void kv_pages_close(struct kv_pages *p); /* asserts that every page is free */

void kv_pages_usage(const struct kv_pages *p, struct kv_usage *out);

/* Before the first page is cached; called inside kv_seq_reserve, kv_seq_extend and
 * kv_pages_forget. */
void kv_pages_on_forget(struct kv_pages *p, kv_forget_fn fn, void *arg);

/* The page, held and full, keeps its contents for whoever may want them: once nobody holds it, it
 * is free, but handed out after all that are not cached, the one released longest ago first. It is
 * forgotten then, or when the one sequence that holds it writes into it. */
void kv_page_cache(struct kv_pages *p, int32_t page);

/* Every page is free, and what they held is lost: none is cached any more. */
void kv_pages_forget(struct kv_pages *p);

/* Makes room for positions n_tokens … n_tokens + n_more - 1: adds pages, and gives the last, partly
 * filled page a private copy if it is shared (*ret_copy, with ret_copy->from >= 0; else from = -1).
 * STATUS_EXHAUSTED when too few pages are free: nothing has changed then. n_tokens stays: who fills
 * the positions moves it on. A copy that was asked for must be carried out, in the order in which
 * they were asked for, by the next step, even if the row that wanted it is not in that step. */
enum status kv_seq_reserve(struct kv_pages *p, struct kv_seq *s, size_t n_more,
                           struct kv_copy *ret_copy, struct error *err) MUST_CHECK;

/* child, empty before, shares the pages of the first n_tokens positions of parent, which has them.
 * Fails only for want of memory: child is empty then. */
enum status kv_seq_share(struct kv_pages *p, struct kv_seq *child, const struct kv_seq *parent,
                         size_t n_tokens, struct error *err) MUST_CHECK;

/* Puts a cached page behind the full pages of s: positions from the last page's edge on, and what
 * was reserved, give way to it. Fails only for want of memory: s is as it was then. */
enum status kv_seq_adopt(struct kv_pages *p, struct kv_seq *s, int32_t page,
                         struct error *err) MUST_CHECK;

/* Puts a free page behind the full pages of s, as kv_seq_adopt does a cached one: whoever asks
 * fills it. STATUS_EXHAUSTED when none is free. */
enum status kv_seq_extend(struct kv_pages *p, struct kv_seq *s, int32_t *ret_page,
                          struct error *err) MUST_CHECK;

/* Holds a cached page with the same contents instead of its own i-th. */
void kv_seq_replace(struct kv_pages *p, struct kv_seq *s, size_t i, int32_t page);

/* Forgets positions from n_tokens (at most its own) on, and gives their pages back, and those that
 * were reserved and not filled. */
void kv_seq_cut(struct kv_pages *p, struct kv_seq *s, size_t n_tokens);

/* How many of its pages others hold too. */
size_t kv_seq_n_shared(const struct kv_pages *p, const struct kv_seq *s);

/* Gives all back; s is zeroed. */
void kv_seq_free(struct kv_pages *p, struct kv_seq *s);

#endif
