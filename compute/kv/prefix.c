#include "compute/kv/prefix.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/numerics/kv_type.h"

struct prefix_entry {
    uint64_t number; /* 1, 2, …; 0: the page is not cached */
    uint64_t parent; /* number of the page before it, 0: the root */
    uint64_t salt;
    int32_t ids[KV_PAGE_TOKENS];
    int32_t next; /* with the same hash, -1: the last */
};

struct prefix_cache {
    struct prefix_entry *entries; /* [n_pages] */
    int32_t *heads;               /* [mask + 1] the first page with that hash, or -1 */
    size_t mask;
    uint64_t seed; /* so that a client cannot choose texts with one hash */
    uint64_t n_numbered;
};

enum status prefix_cache_open(struct prefix_cache **out, size_t n_pages, const struct env *env,
                              struct error *err)
{
    struct prefix_cache *p = xalloc(sizeof(*p));
    size_t n_heads = 1;

    while (n_heads < n_pages)
        n_heads *= 2;
    p->mask = n_heads - 1;
    p->entries = try_alloc(n_pages, sizeof(*p->entries));
    p->heads = try_alloc(n_heads, sizeof(*p->heads));
    if (p->entries == NULL || p->heads == NULL) {
        prefix_cache_close(p);
        return error_no_memory(err, n_pages * sizeof(*p->entries) + n_heads * sizeof(*p->heads),
                               "the prefix cache");
    }
    for (size_t i = 0; i < n_heads; i++)
        p->heads[i] = -1;
    env->random(env->self, &p->seed, sizeof(p->seed));
    *out = p;
    return STATUS_OK;
}

void prefix_cache_close(struct prefix_cache *p)
{
    if (p == NULL)
        return;
    free(p->entries);
    free(p->heads);
    free(p);
}

static uint64_t prefix_mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static int32_t *prefix_cache_head_of(const struct prefix_cache *p, const struct prefix_entry *e)
{
    uint64_t hash = prefix_mix(prefix_mix(p->seed, e->parent), e->salt);

    for (size_t i = 0; i < KV_PAGE_TOKENS; i++)
        hash = prefix_mix(hash, (uint32_t)e->ids[i]);
    return &p->heads[hash & p->mask];
}

/* An entry with the key of these arguments, without a number. */
static struct prefix_entry prefix_cache_key_of(const struct prefix_cache *p, int32_t parent,
                                               uint64_t salt, const int32_t *ids)
{
    struct prefix_entry key = {.salt = salt};

    if (parent >= 0) {
        key.parent = p->entries[parent].number;
        assert(key.parent != 0);
    }
    memcpy(key.ids, ids, sizeof(key.ids));
    return key;
}

int32_t prefix_cache_find(const struct prefix_cache *p, int32_t parent, uint64_t salt,
                          const int32_t *ids)
{
    struct prefix_entry key = prefix_cache_key_of(p, parent, salt, ids);

    for (int32_t i = *prefix_cache_head_of(p, &key); i >= 0; i = p->entries[i].next) {
        const struct prefix_entry *e = &p->entries[i];

        if (e->parent == key.parent && e->salt == salt && memcmp(e->ids, ids, sizeof(e->ids)) == 0)
            return i;
    }
    return -1;
}

void prefix_cache_add(struct prefix_cache *p, int32_t parent, uint64_t salt, const int32_t *ids,
                      int32_t page)
{
    struct prefix_entry *e = &p->entries[page];
    int32_t *head;

    assert(e->number == 0);
    *e = prefix_cache_key_of(p, parent, salt, ids);
    e->number = ++p->n_numbered;
    head = prefix_cache_head_of(p, e);
    e->next = *head;
    *head = page;
}

bool prefix_cache_has(const struct prefix_cache *p, int32_t page)
{
    return p->entries[page].number != 0;
}

void prefix_cache_move(struct prefix_cache *p, int32_t from, int32_t to)
{
    int32_t *at = prefix_cache_head_of(p, &p->entries[from]);

    assert(p->entries[from].number != 0 && p->entries[to].number == 0);
    while (*at != from)
        at = &p->entries[*at].next;
    *at = to;
    p->entries[to] = p->entries[from];
    p->entries[from].number = 0;
}

void prefix_cache_remove(struct prefix_cache *p, int32_t page)
{
    int32_t *at = prefix_cache_head_of(p, &p->entries[page]);

    assert(p->entries[page].number != 0);
    while (*at != page)
        at = &p->entries[*at].next;
    *at = p->entries[page].next;
    p->entries[page].number = 0;
}
