/* A clone's pages and those of all others: what is computed once is found by its ids, and what
 * nobody uses gives way first. */
#include "agents/lm/lm.h"
#include "base/alloc.h"

static struct lm *lm_of(const struct lm_clone *c)
{
    return container_of(c->base.agent, struct lm, base);
}

void lm_clone_busy(struct lm_clone *c)
{
    if (link_is_on(&c->unused))
        list_remove(&c->unused);
}

void lm_clone_idle(struct lm_clone *c)
{
    lm_clone_busy(c);
    if (c->kv.n_pages != 0)
        list_push(&lm_of(c)->idle, &c->unused);
}

void lm_clone_waits(struct lm_clone *c, bool is_next)
{
    struct list *waiting = &lm_of(c)->waiting;

    lm_clone_busy(c);
    if (c->kv.n_pages == 0)
        return;
    if (is_next)
        list_push_front(waiting, &c->unused);
    else
        list_push(waiting, &c->unused);
}

bool lm_evict_one(struct lm *m)
{
    struct link *l = list_is_empty(&m->idle) ? list_last(&m->waiting) : list_first(&m->idle);
    struct lm_clone *c;

    if (l == NULL)
        return false;
    c = container_of(l, struct lm_clone, unused);
    lm_clone_busy(c);
    kv_seq_free(m->pages, &c->kv);
    c->is_evicted = true;
    m->n_evictions++;
    if (m->base.on_event != NULL)
        m->base.on_event(m->base.on_event_arg, &c->base, CLONE_EVICTED, "out of KV pages");
    return true;
}

/* The clone's page before its i-th, if others may find it: what comes behind can be found then. */
static bool has_parent(const struct lm *m, const struct lm_clone *c, size_t i, int32_t *ret_parent)
{
    *ret_parent = i == 0 ? -1 : c->kv.pages[i - 1];
    return i == 0 || prefix_cache_has(m->prefixes, *ret_parent);
}

bool lm_copies_grow(struct lm *m)
{
    size_t cap = m->cap_copies == 0 ? 64 : 2 * m->cap_copies;
    struct kv_copy *copies;

    if (m->n_copies + 2 <= m->cap_copies)
        return true;
    copies = try_realloc(m->copies, cap, sizeof *copies);
    if (copies == NULL)
        return false;
    m->copies = copies;
    m->cap_copies = cap;
    return true;
}

static int32_t entry_of(const struct lm *m, int32_t slot)
{
    return (int32_t)m->n_pages + slot;
}

void lm_page_forget(void *arg, int32_t page)
{
    struct lm *m = arg;
    int32_t slot = -1;
    bool was_full;

    if (m->slots != NULL && !m->is_losing && lm_copies_grow(m))
        slot = kv_slots_take(m->slots, &was_full);
    if (slot < 0) {
        prefix_cache_remove(m->prefixes, page);
        return;
    }
    if (was_full)
        prefix_cache_remove(m->prefixes, entry_of(m, slot));
    prefix_cache_move(m->prefixes, page, entry_of(m, slot));
    m->copies[m->n_copies++] = (struct kv_copy){.from = page, .to = slot, .way = KV_SPILL};
    m->n_spilled++;
}

/* The page in the slot comes behind the clone's full pages. False: it cannot. */
static bool fill(struct lm *m, struct lm_clone *c, int32_t slot)
{
    struct error ignored;
    enum status rc;
    int32_t page;

    kv_slots_hold(m->slots, slot); /* a page that is forgotten here looks for a slot */
    do
        rc = kv_seq_extend(m->pages, &c->kv, &page, &ignored);
    while (rc == STATUS_EXHAUSTED && lm_evict_one(m));
    if (rc == STATUS_OK && !lm_copies_grow(m)) {
        kv_seq_cut(m->pages, &c->kv, c->kv.n_tokens - KV_PAGE_TOKENS);
        rc = STATUS_EXHAUSTED;
    }
    kv_slots_let_go(m->slots, slot, rc != STATUS_OK);
    if (rc != STATUS_OK)
        return false;
    prefix_cache_move(m->prefixes, entry_of(m, slot), page);
    kv_page_cache(m->pages, page);
    m->copies[m->n_copies++] = (struct kv_copy){.from = slot, .to = page, .way = KV_FILL};
    m->n_filled++;
    return true;
}

/* The page holds what the slot does. */
static void forget_slot(struct lm *m, int32_t slot, int32_t page)
{
    kv_slots_hold(m->slots, slot);
    kv_slots_let_go(m->slots, slot, false);
    prefix_cache_move(m->prefixes, entry_of(m, slot), page);
    kv_page_cache(m->pages, page);
}

/* Takes what a clone has of pages, which hold nothing any more. */
static void lose(struct lm *m, struct lm_clone *c)
{
    if (c->kv.n_tokens > 0) {
        c->is_evicted = true;
        m->n_evictions++;
        if (m->base.on_event != NULL)
            m->base.on_event(m->base.on_event_arg, &c->base, CLONE_EVICTED, "the device failed");
    }
    kv_seq_free(m->pages, &c->kv);
    lm_clone_busy(c);
}

void lm_read_figures(struct lm *m)
{
    if (m->backend->type->figures != NULL)
        m->backend->type->figures(m->backend, &m->figures);
}

void lm_pages_notice(struct lm *m)
{
    int32_t slot;

    lm_read_figures(m);
    if (m->n_losses_seen == m->n_losses)
        return;
    m->n_losses_seen = m->n_losses;
    m->is_losing = true;
    for (struct link *l = list_first(&m->clones); l != NULL; l = list_next(&m->clones, l))
        lose(m, container_of(l, struct lm_clone, link));
    kv_pages_forget(m->pages);
    while (m->slots != NULL && (slot = kv_slots_empty_one(m->slots)) >= 0)
        prefix_cache_remove(m->prefixes, entry_of(m, slot));
    m->is_losing = false;
}

void lm_pages_find(struct lm *m, struct lm_clone *c, size_t n_ids, bool may_fill)
{
    struct error ignored;
    int32_t parent, page;
    size_t i;

    while (m->prefixes != NULL) {
        i = c->kv.n_tokens / KV_PAGE_TOKENS;
        if ((i + 1) * KV_PAGE_TOKENS >= n_ids || !has_parent(m, c, i, &parent))
            return; /* one id at least is computed: its logits are wanted */
        page = prefix_cache_find(m->prefixes, parent, c->salt, c->ids + i * KV_PAGE_TOKENS);
        if (page >= (int32_t)m->n_pages) {
            if (!may_fill || !fill(m, c, page - (int32_t)m->n_pages))
                return;
            continue;
        }
        if (page < 0 || kv_seq_adopt(m->pages, &c->kv, page, &ignored) != STATUS_OK)
            return; /* without memory for a page table it is computed again */
    }
}

void lm_pages_learn(struct lm *m, struct lm_clone *c, size_t n_before)
{
    int32_t parent, page;
    const int32_t *ids;

    for (size_t i = n_before / KV_PAGE_TOKENS; i < c->kv.n_tokens / KV_PAGE_TOKENS; i++) {
        if (m->prefixes == NULL || !has_parent(m, c, i, &parent))
            return;
        if (prefix_cache_has(m->prefixes, c->kv.pages[i]))
            continue;
        ids = c->ids + i * KV_PAGE_TOKENS;
        page = prefix_cache_find(m->prefixes, parent, c->salt, ids);
        if (page >= (int32_t)m->n_pages) {
            forget_slot(m, page - (int32_t)m->n_pages, c->kv.pages[i]);
            continue;
        }
        if (page >= 0) { /* a neighbour computed the same meanwhile */
            kv_seq_replace(m->pages, &c->kv, i, page);
            continue;
        }
        prefix_cache_add(m->prefixes, parent, c->salt, ids, c->kv.pages[i]);
        kv_page_cache(m->pages, c->kv.pages[i]);
    }
}
