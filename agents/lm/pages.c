/* A clone's pages and those of all others: what is computed once is found by its ids, and what
 * nobody uses gives way first. */
#include "agents/lm/lm.h"

static struct lm *lm_of(const struct lm_clone *c)
{
    return container_of(c->base.agent, struct lm, base);
}

void lm_clone_busy(struct lm_clone *c)
{
    if (link_is_on(&c->idle))
        list_remove(&c->idle);
}

void lm_clone_idle(struct lm_clone *c)
{
    lm_clone_busy(c);
    if (c->kv.n_pages != 0)
        list_push(&lm_of(c)->idle, &c->idle);
}

bool lm_evict_one(struct lm *m)
{
    struct link *l = list_pop(&m->idle);
    struct lm_clone *c;

    if (l == NULL)
        return false;
    c = container_of(l, struct lm_clone, idle);
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

void lm_pages_find(struct lm *m, struct lm_clone *c, size_t n_ids)
{
    struct error ignored;
    int32_t parent, page;
    size_t i;

    while (m->prefixes != NULL) {
        i = c->kv.n_tokens / KV_PAGE_TOKENS;
        if ((i + 1) * KV_PAGE_TOKENS >= n_ids || !has_parent(m, c, i, &parent))
            return; /* one id at least is computed: its logits are wanted */
        page = prefix_cache_find(m->prefixes, parent, c->salt, c->ids + i * KV_PAGE_TOKENS);
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
        if (page >= 0) { /* a neighbour computed the same meanwhile */
            kv_seq_replace(m->pages, &c->kv, i, page);
            continue;
        }
        prefix_cache_add(m->prefixes, parent, c->salt, ids, c->kv.pages[i]);
        kv_page_cache(m->pages, c->kv.pages[i]);
    }
}
