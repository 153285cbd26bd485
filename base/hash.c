#include "base/hash.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"

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

/* --- SipHash-2-4 --- */

struct sip {
    uint64_t v0, v1, v2, v3;
};

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_round(struct sip *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 = rotate(s->v0, 32) + s->v3;
    s->v2 += s->v1;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v2 = rotate(s->v2, 32);
}

static void sip_word(struct sip *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    sip_round(s);
    s->v0 ^= word;
}

uint64_t hash_bytes(const struct hash *h, uint64_t before, const void *bytes, size_t len)
{
    const uint64_t k0 = h->key[0] ^ before, k1 = h->key[1];
    const unsigned char *at = bytes;
    uint64_t word, last = (uint64_t)len << 56;
    struct sip s = {
        k0 ^ UINT64_C(0x736f6d6570736575),
        k1 ^ UINT64_C(0x646f72616e646f6d),
        k0 ^ UINT64_C(0x6c7967656e657261),
        k1 ^ UINT64_C(0x7465646279746573),
    };

    for (size_t left = len / sizeof(word); left > 0; left--, at += sizeof(word)) {
        memcpy(&word, at, sizeof(word)); /* little-endian, as all supported machines are */
        sip_word(&s, word);
    }
    for (size_t i = 0; i < len % sizeof(word); i++)
        last |= (uint64_t)at[i] << 8 * i;
    sip_word(&s, last);
    s.v2 ^= 0xff;
    for (int i = 0; i < 4; i++)
        sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
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
