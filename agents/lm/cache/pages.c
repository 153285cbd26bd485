/* Keeps the pages of clones in a table by the token ids that they hold, so that other clones adopt
 * a page in place of computing it. Where pages are short, the clone that has been idle longest
 * gives up its own. */
#include "agents/lm/cache/pages.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/numerics/kv_type.h"

static void on_page_evicted(void *arg, int32_t page);

void lm_cache_init(struct lm_cache *cache, lm_cache_event_fn on_event, void *arg)
{
    *cache = (struct lm_cache){.on_event = on_event, .on_event_arg = arg};
    list_init(&cache->clones);
    list_init(&cache->idle);
    list_init(&cache->waiting);
}

enum status lm_cache_open(struct lm_cache *cache, bool has_prefixes, size_t n_host_pages,
                          const struct env *env, struct error *err)
{
    enum status rc = kv_pages_open(&cache->pages, cache->n_pages, err);

    if (rc == STATUS_OK)
        rc = lm_states_open(&cache->states, cache->n_state_slots, cache->n_pages, err);
    if (rc != STATUS_OK || !has_prefixes)
        return rc;
    kv_pages_on_forget(cache->pages, on_page_evicted, cache);
    if (n_host_pages > 0)
        rc = kv_host_pages_open(&cache->host_pages, n_host_pages, err);
    if (rc != STATUS_OK)
        return rc;
    return prefix_cache_open(&cache->prefixes, cache->n_pages + n_host_pages, env, err);
}

void lm_cache_close(struct lm_cache *cache)
{
    assert(list_is_empty(&cache->idle) && list_is_empty(&cache->waiting));
    lm_disk_close(&cache->disk);
    lm_states_close(&cache->states);
    prefix_cache_close(cache->prefixes);
    kv_host_pages_close(cache->host_pages);
    kv_pages_close(cache->pages);
    free(cache->copies);
}

void lm_clone_pages_init(struct lm_clone_pages *p, struct lm_cache *cache, uint64_t salt)
{
    p->salt = salt;
    p->state = KV_NO_SLOT;
    link_init(&p->unused);
    link_init(&p->link);
    list_push(&cache->clones, &p->link);
}

static void clone_drop_state(struct lm_clone_pages *p, struct lm_cache *cache)
{
    if (lm_states_are_kept(&cache->states))
        kv_slot_drop(cache->states.slots, p->state);
    p->state = KV_NO_SLOT;
    p->junction = 0;
}

void lm_clone_pages_deinit(struct lm_clone_pages *p, struct lm_cache *cache)
{
    lm_clone_pages_busy(p);
    list_remove(&p->link);
    clone_drop_state(p, cache);
    kv_seq_free(cache->pages, &p->kv);
}

void lm_clone_pages_reset(struct lm_clone_pages *p, struct lm_cache *cache)
{
    lm_clone_pages_busy(p);
    clone_drop_state(p, cache);
    kv_seq_free(cache->pages, &p->kv);
    p->n_evicted = 0;
}

/* Goes back to the last snapshot within n_tokens tokens. */
static void clone_go_back(struct lm_clone_pages *p, struct lm_cache *cache, size_t n_tokens)
{
    n_tokens = lm_states_resume_point(&cache->states, &p->kv, n_tokens);
    clone_drop_state(p, cache);
    if (n_tokens > 0)
        p->state = lm_states_begin_at(&cache->states, p->kv.pages[n_tokens / KV_PAGE_TOKENS - 1]);
    kv_seq_cut(cache->pages, &p->kv, n_tokens);
}

void lm_clone_pages_cut(struct lm_clone_pages *p, struct lm_cache *cache, uint32_t n_tokens)
{
    if (p->kv.n_tokens > n_tokens && lm_states_are_kept(&cache->states))
        clone_go_back(p, cache, n_tokens);
    else if (p->kv.n_tokens > n_tokens)
        kv_seq_cut(cache->pages, &p->kv, n_tokens);
    if (p->n_evicted > n_tokens)
        p->n_evicted = n_tokens;
}

enum status lm_clone_pages_share(struct lm_clone_pages *p, struct lm_cache *cache,
                                 const struct lm_clone_pages *parent, size_t n_tokens,
                                 struct error *err)
{
    struct lm_states *states = &cache->states;
    int32_t state = KV_NO_SLOT;
    enum status rc;

    if (lm_states_are_kept(states) && n_tokens < parent->kv.n_tokens) {
        n_tokens = lm_states_resume_point(states, &parent->kv, n_tokens);
        if (n_tokens > 0)
            state = lm_states_begin_at(states, parent->kv.pages[n_tokens / KV_PAGE_TOKENS - 1]);
    } else if (parent->state >= 0) {
        state = kv_slot_share(states->slots, parent->state);
    }
    rc = n_tokens == 0 ? STATUS_OK : kv_seq_share(cache->pages, &p->kv, &parent->kv, n_tokens, err);
    if (rc == STATUS_OK)
        p->state = state;
    else if (lm_states_are_kept(states))
        kv_slot_drop(states->slots, state);
    return rc;
}

void lm_clone_pages_busy(struct lm_clone_pages *p)
{
    if (link_is_on(&p->unused))
        list_remove(&p->unused);
}

void lm_clone_pages_idle(struct lm_clone_pages *p, struct lm_cache *cache)
{
    lm_clone_pages_busy(p);
    if (p->kv.n_pages != 0)
        list_push(&cache->idle, &p->unused);
}

void lm_clone_pages_wait(struct lm_clone_pages *p, struct lm_cache *cache, bool is_next)
{
    lm_clone_pages_busy(p);
    if (p->kv.n_pages == 0)
        return;
    if (is_next)
        list_push_front(&cache->waiting, &p->unused);
    else
        list_push(&cache->waiting, &p->unused);
}

void lm_cache_evict(struct lm_cache *cache, struct lm_clone_pages *p, const char *reason)
{
    lm_clone_pages_busy(p);
    if (p->n_evicted < p->kv.n_tokens)
        p->n_evicted = p->kv.n_tokens;
    clone_drop_state(p, cache);
    kv_seq_free(cache->pages, &p->kv);
    cache->n_evictions++;
    cache->on_event(cache->on_event_arg, p, LM_CACHE_EVICTED, reason);
}

void lm_cache_count_recompute(struct lm_cache *cache, struct lm_clone_pages *p)
{
    /* Less than a page does not count: it is never found in the cache, so it is computed in any
     * case. */
    if (p->kv.n_tokens + KV_PAGE_TOKENS <= p->n_evicted) {
        cache->n_recomputes++;
        cache->on_event(cache->on_event_arg, p, LM_CACHE_RECOMPUTED, "its KV pages were evicted");
    }
    p->n_evicted = 0;
}

bool lm_cache_evict_one(struct lm_cache *cache)
{
    struct link *l =
        list_is_empty(&cache->idle) ? list_last(&cache->waiting) : list_first(&cache->idle);

    if (l == NULL)
        return false;
    lm_cache_evict(cache, container_of(l, struct lm_clone_pages, unused), "out of KV pages");
    return true;
}

/* *ret_parent: the page before the i-th, -1 for the first. False if it is not published; then the
 * i-th page cannot be published either. */
static bool cache_has_parent(const struct lm_cache *cache, const struct lm_clone_pages *p, size_t i,
                             int32_t *ret_parent)
{
    *ret_parent = i == 0 ? -1 : p->kv.pages[i - 1];
    return i == 0 || prefix_cache_has(cache->prefixes, *ret_parent);
}

bool lm_cache_grow_copies(struct lm_cache *cache)
{
    size_t cap = cache->cap_copies == 0 ? 64 : 2 * cache->cap_copies;
    struct kv_copy *copies;

    if (cache->n_copies + 2 <= cache->cap_copies)
        return true;
    copies = try_realloc(cache->copies, cap, sizeof(*copies));
    if (copies == NULL)
        return false;
    cache->copies = copies;
    cache->cap_copies = cap;
    return true;
}

/* The prefix cache numbers host pages from n_pages on. */
static int32_t cache_entry_of(const struct lm_cache *cache, int32_t host_page)
{
    return (int32_t)cache->n_pages + host_page;
}

/* Offloads the page with the next step, if there are host pages. */
static void on_page_evicted(void *arg, int32_t page)
{
    struct lm_cache *cache = arg;
    int32_t host_page = -1;
    bool was_full;

    lm_states_detach(&cache->states, page);
    lm_disk_forgotten(&cache->disk, page, !cache->is_invalidating);
    if (cache->host_pages != NULL && !cache->is_invalidating && lm_cache_grow_copies(cache))
        host_page = kv_host_pages_take(cache->host_pages, &was_full);
    if (host_page < 0) {
        prefix_cache_remove(cache->prefixes, page);
        return;
    }
    if (was_full)
        prefix_cache_remove(cache->prefixes, cache_entry_of(cache, host_page));
    prefix_cache_move(cache->prefixes, page, cache_entry_of(cache, host_page));
    lm_disk_moved(&cache->disk, page, cache_entry_of(cache, host_page));
    cache->copies[cache->n_copies++] =
        (struct kv_copy){.from = page, .to = host_page, .way = KV_OFFLOAD};
    cache->n_offloaded++;
}

/* Appends a page to the clone's full pages, which the next step fills by a copy. False if no page
 * is free, or without memory. */
static bool cache_extend(struct lm_cache *cache, struct lm_clone_pages *p, int32_t *ret_page)
{
    struct error ignored;
    enum status rc;

    do
        rc = kv_seq_extend(cache->pages, &p->kv, ret_page, &ignored);
    while (rc == STATUS_EXHAUSTED && lm_cache_evict_one(cache));
    if (rc == STATUS_OK && !lm_cache_grow_copies(cache)) {
        kv_seq_cut(cache->pages, &p->kv, p->kv.n_tokens - KV_PAGE_TOKENS);
        rc = STATUS_EXHAUSTED;
    }
    return rc == STATUS_OK;
}

/* Reloads the host page after the clone's full pages. */
static bool cache_reload(struct lm_cache *cache, struct lm_clone_pages *p, int32_t host_page)
{
    int32_t page;
    bool is_extended;

    kv_host_pages_hold(cache->host_pages,
                       host_page); /* so that a page evicted here does not take it */
    is_extended = cache_extend(cache, p, &page);
    kv_host_pages_release(cache->host_pages, host_page, !is_extended);
    if (!is_extended)
        return false;
    prefix_cache_move(cache->prefixes, cache_entry_of(cache, host_page), page);
    lm_disk_moved(&cache->disk, cache_entry_of(cache, host_page), page);
    kv_page_cache(cache->pages, page);
    cache->copies[cache->n_copies++] =
        (struct kv_copy){.from = host_page, .to = page, .way = KV_RELOAD};
    cache->n_reloaded++;
    return true;
}

/* Writes the page with these ids, which was read from disk, after the clone's full pages; parent is
 * the last of them. */
static bool cache_write(struct lm_cache *cache, struct lm_clone_pages *p, int32_t parent,
                        const int32_t *ids)
{
    struct lm_disk_page read;
    const void *image;
    int32_t page;

    if (!lm_disk_has_read(&read, &cache->disk, parent, p->salt, ids) ||
        !cache_extend(cache, p, &page))
        return false;
    prefix_cache_add(cache->prefixes, parent, p->salt, ids, page);
    image = lm_disk_take(&cache->disk, &read, page);
    kv_page_cache(cache->pages, page);
    cache->copies[cache->n_copies++] =
        (struct kv_copy){.from = -1, .to = page, .way = KV_WRITE, .image = image};
    return true;
}

/* The clone's page has the host page's contents: moves the prefix cache's entry to the page. */
static void cache_publish_instead(struct lm_cache *cache, int32_t host_page, int32_t page)
{
    kv_host_pages_hold(cache->host_pages, host_page);
    kv_host_pages_release(cache->host_pages, host_page, false);
    prefix_cache_move(cache->prefixes, cache_entry_of(cache, host_page), page);
    lm_disk_moved(&cache->disk, cache_entry_of(cache, host_page), page);
    kv_page_cache(cache->pages, page);
}

/* Takes a clone's pages, whose contents are lost. */
static void clone_pages_invalidate(struct lm_clone_pages *p, struct lm_cache *cache)
{
    if (p->kv.n_tokens > 0) {
        lm_cache_evict(cache, p, "the device failed");
        return;
    }
    clone_drop_state(p, cache);
    kv_seq_free(cache->pages, &p->kv);
    lm_clone_pages_busy(p);
}

void lm_cache_invalidate(struct lm_cache *cache)
{
    int32_t host_page;

    cache->is_invalidating = true;
    for (struct link *l = list_first(&cache->clones); l != NULL; l = list_next(&cache->clones, l))
        clone_pages_invalidate(container_of(l, struct lm_clone_pages, link), cache);
    kv_pages_forget(cache->pages);
    while (cache->host_pages != NULL &&
           (host_page = kv_host_pages_empty_one(cache->host_pages)) >= 0)
        prefix_cache_remove(cache->prefixes, cache_entry_of(cache, host_page));
    cache->is_invalidating = false;
}

/* Where a clone of a model with recurrent state goes on: behind pages in memory, then pages from
 * disk, up to the last snapshot. All are numbers of pages. */
struct state_plan {
    size_t begin, n_memory; /* the clone's, and with those in memory */
    size_t n_taken;         /* up to the snapshot; begin: there is none */
    int32_t parent;         /* the last page in memory; -1: there is none */
    int32_t holder;         /* the page of the snapshot in memory; -1: it is on disk */
    struct lm_disk_page at; /* else the page of the snapshot on disk */
};

enum plan_disk { PLAN_NO_DISK, PLAN_READ, PLAN_STORED }; /* what counts as there: what was read */

static bool plan_has(enum kv_disk_state state, enum plan_disk disk)
{
    return state == KV_DISK_READ ||
           (disk == PLAN_STORED && (state == KV_DISK_STORED || state == KV_DISK_READING));
}

/* Goes on where pages in memory end. No more pages than may be on their way at once. */
static void plan_from_disk(struct state_plan *plan, const struct lm_cache *cache,
                           const struct lm_clone_pages *p, const int32_t *ids, size_t n_ids,
                           enum plan_disk disk)
{
    const struct lm_disk *d = &cache->disk;
    struct lm_disk_page at = lm_disk_before(d, plan->parent, p->salt);

    for (size_t i = plan->n_memory; (i + 1) * KV_PAGE_TOKENS < n_ids; i++) {
        at = lm_disk_behind(d, &at, ids + i * KV_PAGE_TOKENS);
        if (i - plan->n_memory == d->config.store.n_reads || !plan_has(lm_disk_look(d, &at), disk))
            break;
        if (!plan_has(lm_disk_look_state(d, &at), disk))
            continue;
        plan->n_taken = i + 1;
        plan->holder = -1;
        plan->at = at;
    }
}

/* False: nothing can be found behind the clone's pages. */
static bool plan_states(struct state_plan *plan, const struct lm_cache *cache,
                        const struct lm_clone_pages *p, const int32_t *ids, size_t n_ids,
                        enum plan_disk disk)
{
    size_t i = p->kv.n_tokens / KV_PAGE_TOKENS;
    int32_t page;

    *plan = (struct state_plan){.begin = i, .n_taken = i, .holder = -1};
    if (cache->prefixes == NULL || !cache_has_parent(cache, p, i, &plan->parent))
        return false;
    if (!lm_disk_is_open(&cache->disk))
        disk = PLAN_NO_DISK;
    for (; (i + 1) * KV_PAGE_TOKENS < n_ids; i++, plan->parent = page) {
        page = prefix_cache_find(cache->prefixes, plan->parent, p->salt, ids + i * KV_PAGE_TOKENS);
        if (page < 0)
            break;
        if (cache->states.of_pages[page] >= 0) {
            plan->n_taken = i + 1;
            plan->holder = page;
        } else if (disk != PLAN_NO_DISK &&
                   plan_has(lm_disk_look_state(&cache->disk, &cache->disk.pages[page]), disk)) {
            plan->n_taken = i + 1;
            plan->holder = -1;
            plan->at = cache->disk.pages[page];
        }
    }
    plan->n_memory = i;
    if (disk != PLAN_NO_DISK)
        plan_from_disk(plan, cache, p, ids, n_ids, disk);
    return true;
}

/* The next step writes the snapshot, which was read from disk, to the slot, which the caller holds.
 * It becomes that of the clone's last page. */
static bool cache_write_state(struct lm_cache *cache, const struct lm_clone_pages *p,
                              const struct lm_disk_page *read, int32_t slot)
{
    const size_t n = p->kv.n_tokens / KV_PAGE_TOKENS;

    if (!lm_cache_grow_copies(cache))
        return false;
    cache->copies[cache->n_copies++] =
        (struct kv_copy){.from = -1,
                         .to = slot,
                         .way = KV_WRITE_STATE,
                         .image = lm_disk_take_state(&cache->disk, read)};
    lm_states_attach(
        &cache->states, p->kv.pages[n - 1], slot,
        (uint32_t)(n * KV_PAGE_TOKENS -
                   lm_states_resume_point(&cache->states, &p->kv, (n - 1) * KV_PAGE_TOKENS)));
    cache->states.n_begun++;
    return true;
}

/* As lm_cache_find, of a model with recurrent state: pages are taken only up to the last snapshot.
 * How far they went beyond it is remembered, since the clone leaves a snapshot there. */
static void cache_find_state(struct lm_cache *cache, struct lm_clone_pages *p, const int32_t *ids,
                             size_t n_ids, bool may_reload, size_t n_before, struct lm_found *found)
{
    const uint32_t n_own = p->kv.n_tokens;
    struct error ignored;
    struct state_plan plan;
    uint32_t n_disk = 0;
    int32_t parent, page, slot;
    bool is_taken = true;
    size_t i;

    if (!plan_states(&plan, cache, p, ids, n_ids,
                     may_reload && cache->disk.n_readers > 0 ? PLAN_READ : PLAN_NO_DISK))
        return;
    if (plan.n_memory > plan.n_taken && plan.n_memory * KV_PAGE_TOKENS > p->kv.n_tokens)
        p->junction = (uint32_t)(plan.n_memory * KV_PAGE_TOKENS);
    if (plan.n_taken == plan.begin)
        return;
    slot = plan.holder >= 0 ? lm_states_begin_at(&cache->states, plan.holder)
                            : lm_states_take(&cache->states); /* held before pages are taken */
    if (slot < 0)
        return;
    for (i = plan.begin; i < plan.n_taken && is_taken; i++) {
        (void)cache_has_parent(cache, p, i, &parent);
        page = prefix_cache_find(cache->prefixes, parent, p->salt, ids + i * KV_PAGE_TOKENS);
        if (page >= 0) {
            is_taken = kv_seq_adopt(cache->pages, &p->kv, page, &ignored) == STATUS_OK;
        } else {
            is_taken = cache_write(cache, p, parent, ids + i * KV_PAGE_TOKENS);
            n_disk += i * KV_PAGE_TOKENS >= n_before ? KV_PAGE_TOKENS : 0;
        }
    }
    if (is_taken && plan.holder < 0)
        is_taken = cache_write_state(cache, p, &plan.at, slot);
    if (!is_taken) { /* no memory, or no page is free */
        kv_slot_drop(cache->states.slots, slot);
        if (p->kv.n_tokens != n_own) /* else it is as it was */
            clone_go_back(p, cache, p->kv.n_tokens);
        return;
    }
    found->n_disk += n_disk;
    kv_slot_drop(cache->states.slots, p->state);
    p->state = slot;
}

void lm_cache_find(struct lm_cache *cache, struct lm_clone_pages *p, const int32_t *ids,
                   size_t n_ids, bool may_reload, size_t n_before, struct lm_found *found)
{
    struct error ignored;
    int32_t parent, page;
    uint32_t n_counts;
    size_t i;

    if (lm_states_are_kept(&cache->states)) {
        cache_find_state(cache, p, ids, n_ids, may_reload, n_before, found);
        return;
    }
    while (cache->prefixes != NULL) {
        i = p->kv.n_tokens / KV_PAGE_TOKENS;
        n_counts = i * KV_PAGE_TOKENS >= n_before ? KV_PAGE_TOKENS : 0;
        if ((i + 1) * KV_PAGE_TOKENS >= n_ids || !cache_has_parent(cache, p, i, &parent))
            return; /* at least one id must be computed, for its logits */
        page = prefix_cache_find(cache->prefixes, parent, p->salt, ids + i * KV_PAGE_TOKENS);
        if (page >= (int32_t)cache->n_pages) {
            if (!may_reload || !cache_reload(cache, p, page - (int32_t)cache->n_pages))
                return;
            found->n_host += n_counts;
            continue;
        }
        if (page < 0 && may_reload && cache_write(cache, p, parent, ids + i * KV_PAGE_TOKENS)) {
            found->n_disk += n_counts;
            continue;
        }
        if (page < 0 || kv_seq_adopt(cache->pages, &p->kv, page, &ignored) != STATUS_OK)
            return; /* without memory for the page table the step computes it */
    }
}

/* As lm_cache_read_ahead, of a model with recurrent state: the pages up to the last snapshot, and
 * that. *ret_n, *ret_parent: what is in memory. */
static bool cache_read_state_ahead(struct lm_cache *cache, const struct lm_clone_pages *p,
                                   const int32_t *ids, size_t n_ids, size_t *ret_n,
                                   int32_t *ret_parent)
{
    struct state_plan plan;
    bool is_reading = false;

    if (!plan_states(&plan, cache, p, ids, n_ids, PLAN_STORED))
        return false;
    *ret_n = plan.n_memory;
    *ret_parent = plan.parent;
    if (plan.n_taken == plan.begin || plan.holder >= 0)
        return false;
    if (plan.n_taken > plan.n_memory)
        is_reading =
            lm_disk_read_ahead(&cache->disk, plan.parent, p->salt,
                               ids + plan.n_memory * KV_PAGE_TOKENS, plan.n_taken - plan.n_memory);
    return lm_disk_read_state(&cache->disk, &plan.at) || is_reading;
}

bool lm_cache_read_ahead(struct lm_cache *cache, struct lm_clone_pages *p, const int32_t *ids,
                         size_t n_ids, bool is_first)
{
    size_t i = p->kv.n_tokens / KV_PAGE_TOKENS, n;
    int32_t parent, page;
    bool is_reading;

    if (!lm_disk_is_open(&cache->disk) || n_ids == 0 || !cache_has_parent(cache, p, i, &parent))
        return false;
    n = (n_ids - 1) / KV_PAGE_TOKENS;
    if (lm_states_are_kept(&cache->states)) {
        is_reading = cache_read_state_ahead(cache, p, ids, n_ids, &i, &parent);
    } else {
        /* host pages, which reserve reloads */
        for (; i < n; i++, parent = page) {
            page = prefix_cache_find(cache->prefixes, parent, p->salt, ids + i * KV_PAGE_TOKENS);
            if (page < 0)
                break;
        }
        is_reading = i < n && lm_disk_read_ahead(&cache->disk, parent, p->salt,
                                                 ids + i * KV_PAGE_TOKENS, n - i);
    }
    if (is_first && i < n)
        lm_disk_count_misses(&cache->disk, parent, p->salt, ids + i * KV_PAGE_TOKENS, n - i);
    if (is_reading && !p->reads_disk) {
        p->reads_disk = true;
        cache->disk.n_readers++;
    }
    return is_reading;
}

void lm_cache_used(struct lm_cache *cache, const struct lm_clone_pages *p, size_t n_tokens)
{
    if (!lm_disk_is_open(&cache->disk))
        return;
    for (size_t i = n_tokens / KV_PAGE_TOKENS; i-- > 0;) /* the end makes room first */
        if (prefix_cache_has(cache->prefixes, p->kv.pages[i]))
            lm_disk_used(&cache->disk, p->kv.pages[i]);
}

void lm_cache_end_reading(struct lm_cache *cache, struct lm_clone_pages *p)
{
    if (!p->reads_disk)
        return;
    p->reads_disk = false;
    if (--cache->disk.n_readers == 0)
        lm_disk_forget_reads(&cache->disk);
}

void lm_cache_publish(struct lm_cache *cache, struct lm_clone_pages *p, const int32_t *ids,
                      size_t n_before)
{
    int32_t parent, page;

    for (size_t i = n_before / KV_PAGE_TOKENS; i < p->kv.n_tokens / KV_PAGE_TOKENS; i++) {
        const int32_t *page_ids = ids + i * KV_PAGE_TOKENS;

        if (cache->prefixes == NULL || !cache_has_parent(cache, p, i, &parent))
            return;
        if (prefix_cache_has(cache->prefixes, p->kv.pages[i]))
            continue;
        page = prefix_cache_find(cache->prefixes, parent, p->salt, page_ids);
        if (page >= (int32_t)cache->n_pages) {
            cache_publish_instead(cache, page - (int32_t)cache->n_pages, p->kv.pages[i]);
            continue;
        }
        if (page >= 0) { /* another row has published the same page meanwhile */
            kv_seq_replace(cache->pages, &p->kv, i, page);
            continue;
        }
        prefix_cache_add(cache->prefixes, parent, p->salt, page_ids, p->kv.pages[i]);
        lm_disk_published(&cache->disk, parent, p->salt, page_ids, p->kv.pages[i]);
        kv_page_cache(cache->pages, p->kv.pages[i]);
    }
}
