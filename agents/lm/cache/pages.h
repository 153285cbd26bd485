/* The KV pages of a model's clones: other clones find whole computed pages by their token ids, and
 * unused pages are evicted first. There may be host pages, to which cached pages are offloaded, and
 * a level on disk below (disk.h). Loop. */
#ifndef AGENTS_LM_CACHE_PAGES_H
#define AGENTS_LM_CACHE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agents/lm/cache/disk.h"
#include "agents/lm/cache/states.h"
#include "base/env.h"
#include "base/list.h"
#include "base/status.h"
#include "compute/kv/host_pages.h"
#include "compute/kv/pages.h"
#include "compute/kv/prefix.h"

/* A clone's pages: a member of the clone. */
struct lm_clone_pages {
    struct kv_seq kv;
    struct link unused, link; /* in the cache's idle or waiting; in its clones */
    uint64_t salt;     /* of the tenant: clones share pages only with clones of the same salt */
    int32_t state;     /* behind kv.n_tokens tokens: a slot of cache->states, which it holds */
    uint32_t junction; /* how many tokens lm_cache_find found the pages of, without a snapshot; 0 */
    /* How many of its ids had keys and values when its pages were evicted, until a step computes
     * them again; 0: none was evicted. */
    uint32_t n_evicted;
    bool reads_disk; /* its turn has begun to read pages */
};

/* Tokens that lm_cache_find found outside of the pages that hold them already. */
struct lm_found {
    uint32_t n_host, n_disk;
};

enum lm_cache_event {
    LM_CACHE_EVICTED,    /* a clone's pages */
    LM_CACHE_RECOMPUTED, /* a clone's evicted tokens, a page of them or more */
};

/* reason is a string constant. */
typedef void (*lm_cache_event_fn)(void *arg, struct lm_clone_pages *p, enum lm_cache_event what,
                                  const char *reason);

struct lm_cache {
    struct kv_pages *pages;
    struct kv_host_pages *host_pages; /* NULL: none */
    size_t n_pages;
    size_t n_state_slots;    /* 0: the model has no recurrent state */
    struct lm_states states; /* of the clones, and of pages */
    struct lm_disk disk;
    /* Entries of pages, followed by those of host pages; NULL: switched off. */
    struct prefix_cache *prefixes;
    struct list clones; /* all of them */
    /* idle: clones with pages and no turn, least recently used first. waiting: clones whose turn
     * has no place in a step yet; the last is evicted first. */
    struct list idle, waiting;
    uint64_t n_evictions, n_recomputes;
    uint64_t n_offloaded, n_reloaded; /* pages to the host, and back */
    /* Copies that the next step performs first, in this order. Between two steps the loop owns it
     * and adds to it only in reserve; during a step the compute thread owns and empties it. */
    struct kv_copy *copies; /* [cap_copies] */
    size_t n_copies, cap_copies;
    bool is_invalidating; /* the pages' contents are lost, so evicted pages are not offloaded */
    lm_cache_event_fn on_event;
    void *on_event_arg;
};

/* Call it before any other function; lm_cache_close may follow at once. */
void lm_cache_init(struct lm_cache *cache, lm_cache_event_fn on_event, void *arg);
/* Opens cache->n_pages pages, cache->n_state_slots slots of state and n_host_pages host pages.
 * has_prefixes false: clones find no pages of others. After a failure call lm_cache_close. */
enum status lm_cache_open(struct lm_cache *cache, bool has_prefixes, size_t n_host_pages,
                          const struct env *env, struct error *err) MUST_CHECK;
void lm_cache_close(struct lm_cache *cache); /* no clone may have pages */

void lm_clone_pages_init(struct lm_clone_pages *p, struct lm_cache *cache, uint64_t salt);
void lm_clone_pages_deinit(struct lm_clone_pages *p, struct lm_cache *cache);
/* Releases all pages; they do not count as evicted. */
void lm_clone_pages_reset(struct lm_clone_pages *p, struct lm_cache *cache);
/* Keeps the pages of the first n_tokens tokens; with recurrent state, of fewer: up to the last
 * snapshot that is there. */
void lm_clone_pages_cut(struct lm_clone_pages *p, struct lm_cache *cache, uint32_t n_tokens);

/* p, empty before, shares the pages of the first n_tokens tokens of parent, or with recurrent state
 * of fewer, as cut. Fails only for want of memory: p is empty then. */
enum status lm_clone_pages_share(struct lm_clone_pages *p, struct lm_cache *cache,
                                 const struct lm_clone_pages *parent, size_t n_tokens,
                                 struct error *err) MUST_CHECK;

/* Puts the clone, if it has pages, at the end of the idle ones. */
void lm_clone_pages_idle(struct lm_clone_pages *p, struct lm_cache *cache);
/* Puts the clone, if it has pages, among the waiting ones: at the front if is_next, else at the
 * end. */
void lm_clone_pages_wait(struct lm_clone_pages *p, struct lm_cache *cache, bool is_next);
/* Removes the clone from idle and waiting, so that its pages are not evicted. */
void lm_clone_pages_busy(struct lm_clone_pages *p);

/* Extends the clone's pages by published ones that hold its first n_ids ids, without the last id;
 * with recurrent state up to the last snapshot among them. Adds to found what lies behind the first
 * n_before tokens.
 * may_reload: host pages are reloaded, and pages read from disk are written, with the next step;
 * only in reserve. */
void lm_cache_find(struct lm_cache *cache, struct lm_clone_pages *p, const int32_t *ids,
                   size_t n_ids, bool may_reload, size_t n_before, struct lm_found *found);
/* Behind lm_cache_find, with its arguments: begins to read from disk what follows. Returns whether
 * it is being read. is_first: of the turn, which counts why the other pages are missing. */
bool lm_cache_read_ahead(struct lm_cache *cache, struct lm_clone_pages *p, const int32_t *ids,
                         size_t n_ids, bool is_first);
/* A step has gone on behind the clone's first n_tokens tokens, so that their pages are filled: they
 * are used on disk, too (lm_disk_used). */
void lm_cache_used(struct lm_cache *cache, const struct lm_clone_pages *p, size_t n_tokens);
/* The clone's turn is over: nobody waits for what was read for it. */
void lm_cache_end_reading(struct lm_cache *cache, struct lm_clone_pages *p);
/* Publishes whole pages of positions n_before … kv.n_tokens - 1, which are computed and will not
 * change. */
void lm_cache_publish(struct lm_cache *cache, struct lm_clone_pages *p, const int32_t *ids,
                      size_t n_before);
/* Makes room for two more copies; offloading an evicted page needs one. False without memory. */
bool lm_cache_grow_copies(struct lm_cache *cache);
/* Evicts the least recently used idle clone, else the last waiting one; false if there is none. */
bool lm_cache_evict_one(struct lm_cache *cache);
/* Takes the clone's pages, counts the eviction and reports it. reason is a string constant. */
void lm_cache_evict(struct lm_cache *cache, struct lm_clone_pages *p, const char *reason);
/* In reserve, once the clone has the step's pages: counts and reports whether the step recomputes
 * evicted tokens. */
void lm_cache_count_recompute(struct lm_cache *cache, struct lm_clone_pages *p);
/* Between two steps: all pages and host pages have lost their contents. */
void lm_cache_invalidate(struct lm_cache *cache);

#endif
