#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/siphash.h"

void hash_init(struct hash *h, const struct env *env)
{
    *h = (struct hash){.n_heads = HASH_FIRST_HEADS};
    if (env != NULL)
        env->random(env->self, h->key, sizeof(h->key));
}

void hash_deinit(struct hash *h)
{
    assert(h->n == 0);
    free(h->heads);
    h->heads = NULL;
}

uint64_t hash_bytes(const struct hash *h, uint64_t before, const void *bytes, size_t len)
{
    const unsigned char *at = bytes;
    uint64_t word, last = (uint64_t)len << 56;
    struct sip s = sip_start(h->key[0] ^ before, h->key[1]);

    for (size_t left = len / sizeof(word); left > 0; left--, at += sizeof(word)) {
        memcpy(&word, at, sizeof(word)); /* little-endian, as all supported machines are */
        sip_word(&s, word);
    }
    for (size_t i = 0; i < len % sizeof(word); i++)
        last |= (uint64_t)at[i] << 8 * i;
    sip_word(&s, last);
    s.v2 ^= 0xff;
    return sip_finish(&s);
}

uint64_t hash_text(const struct hash *h, uint64_t before, const char *text)
{
    return hash_bytes(h, before, text, strlen(text));
}

/* --- the table --- */

static struct hash_node **heads_of(const struct hash *h)
{
    return h->heads != NULL ? h->heads : (struct hash_node **)h->first_heads;
}

static struct hash_node **base_hash_head_of(const struct hash *h, uint64_t hash)
{
    return &heads_of(h)[hash & (h->n_heads - 1)];
}

/* Without memory the table keeps its size: longer chains do no harm. */
static void resize(struct hash *h, size_t n_heads)
{
    struct hash_node **old = heads_of(h), **heads = try_alloc(n_heads, sizeof(heads[0]));

    if (heads == NULL)
        return;
    for (size_t i = 0; i < h->n_heads; i++) {
        struct hash_node *node, *next;

        for (node = old[i]; node != NULL; node = next) {
            struct hash_node **head = &heads[node->hash & (n_heads - 1)];

            next = node->next;
            node->next = *head;
            *head = node;
        }
    }
    free(h->heads);
    h->heads = heads;
    h->n_heads = n_heads;
}

void hash_shrink(struct hash *h)
{
    size_t n_heads = HASH_FIRST_HEADS;

    while (n_heads < h->n)
        n_heads *= 2;
    if (n_heads < h->n_heads)
        resize(h, n_heads);
}

void hash_add(struct hash *h, struct hash_node *node, uint64_t hash)
{
    struct hash_node **head;

    if (h->n >= h->n_heads)
        resize(h, 2 * h->n_heads);
    head = base_hash_head_of(h, hash);
    node->hash = hash;
    node->next = *head;
    *head = node;
    h->n++;
}

void hash_remove(struct hash *h, struct hash_node *node)
{
    struct hash_node **at = base_hash_head_of(h, node->hash);

    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    h->n--;
}

static struct hash_node *with_hash(struct hash_node *node, uint64_t hash)
{
    while (node != NULL && node->hash != hash)
        node = node->next;
    return node;
}

struct hash_node *hash_first(const struct hash *h, uint64_t hash)
{
    return with_hash(*base_hash_head_of(h, hash), hash);
}

struct hash_node *hash_next(const struct hash_node *node)
{
    return with_hash(node->next, node->hash);
}

struct hash_node *hash_each(const struct hash *h, const struct hash_node *after)
{
    size_t i = 0;

    if (after != NULL) {
        if (after->next != NULL)
            return after->next;
        i = (after->hash & (h->n_heads - 1)) + 1;
    }
    for (; i < h->n_heads; i++)
        if (heads_of(h)[i] != NULL)
            return heads_of(h)[i];
    return NULL;
}
