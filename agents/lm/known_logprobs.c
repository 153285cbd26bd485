#include "agents/lm/known_logprobs.h"

#include <stdlib.h>
#include <string.h>

#include "agents/turn.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "base/list.h"
#include "compute/kv/pages.h"

struct known_page {
    struct hash_node node;
    struct link used; /* least recently used first */
    struct digest name;
    uint32_t n_tops;
    size_t size_bytes;
    struct prompt_token tokens[KV_PAGE_TOKENS];
    struct top_logprob tops[]; /* of all tokens */
};

struct known_logprobs {
    struct digest_key key;
    struct hash pages; /* by name; names are random, so they need no further hash */
    struct list used;
    size_t n_bytes, max_bytes;
};

enum status known_logprobs_open(struct known_logprobs **out, size_t max_bytes,
                                const struct env *env, struct error *err)
{
    struct known_logprobs *k = try_alloc(1, sizeof(*k));

    if (k == NULL)
        return error_no_memory(err, sizeof(*k), "known log-probabilities");
    k->max_bytes = max_bytes;
    digest_key_init(&k->key, env);
    hash_init(&k->pages, NULL);
    list_init(&k->used);
    *out = k;
    return STATUS_OK;
}

static void known_page_close(struct known_logprobs *k, struct known_page *p)
{
    hash_remove(&k->pages, &p->node);
    list_remove(&p->used);
    k->n_bytes -= p->size_bytes;
    free(p);
}

void known_logprobs_close(struct known_logprobs *k)
{
    if (k == NULL)
        return;
    while (!list_is_empty(&k->used))
        known_page_close(k, container_of(list_first(&k->used), struct known_page, used));
    hash_deinit(&k->pages);
    free(k);
}

struct digest known_logprobs_name(const struct known_logprobs *k, const struct digest *before,
                                  uint64_t salt, const int32_t *ids)
{
    struct digest_writer w;

    digest_start(&w, &k->key);
    digest_number(&w, salt);
    if (before != NULL)
        digest_bytes(&w, before->words, sizeof(before->words));
    digest_bytes(&w, ids, KV_PAGE_TOKENS * sizeof(*ids));
    return digest_end(&w);
}

static struct known_page *known_page_of(const struct known_logprobs *k, const struct digest *name)
{
    struct hash_node *at = hash_first(&k->pages, name->words[0]);

    for (; at != NULL; at = hash_next(at)) {
        struct known_page *p = container_of(at, struct known_page, node);

        if (digest_is_equal(&p->name, name))
            return p;
    }
    return NULL;
}

static void known_page_use(struct known_logprobs *k, struct known_page *p)
{
    list_remove(&p->used);
    list_push(&k->used, &p->used);
}

const struct prompt_token *known_logprobs_find(struct known_logprobs *k, const struct digest *page,
                                               uint32_t n_tops)
{
    struct known_page *p = known_page_of(k, page);

    if (p == NULL || p->n_tops < n_tops)
        return NULL;
    known_page_use(k, p);
    return p->tokens;
}

static void known_page_copy(struct known_page *p, const struct prompt_token *tokens)
{
    size_t n_tops = 0;

    for (size_t i = 0; i < KV_PAGE_TOKENS; i++) {
        p->tokens[i] = tokens[i];
        p->tokens[i].top = p->tops + n_tops;
        if (tokens[i].n_top > 0)
            memcpy(p->tops + n_tops, tokens[i].top, tokens[i].n_top * sizeof(*p->tops));
        n_tops += tokens[i].n_top;
    }
}

void known_logprobs_put(struct known_logprobs *k, const struct digest *page,
                        const struct prompt_token *tokens, uint32_t n_tops)
{
    size_t size_bytes =
        sizeof(struct known_page) + (size_t)KV_PAGE_TOKENS * n_tops * sizeof(struct top_logprob);
    struct known_page *p = known_page_of(k, page);

    if (p != NULL && p->n_tops >= n_tops) {
        known_page_use(k, p);
        return;
    }
    if (p != NULL)
        known_page_close(k, p);
    p = size_bytes <= k->max_bytes ? try_alloc(1, size_bytes) : NULL;
    if (p == NULL)
        return;
    while (k->n_bytes + size_bytes > k->max_bytes)
        known_page_close(k, container_of(list_first(&k->used), struct known_page, used));
    p->name = *page;
    p->n_tops = n_tops;
    p->size_bytes = size_bytes;
    known_page_copy(p, tokens);
    hash_add(&k->pages, &p->node, page->words[0]);
    list_push(&k->used, &p->used);
    k->n_bytes += size_bytes;
}
