/* Intrusive hash table: the node is a member of the item, so adding never allocates and never
 * fails. It grows with its nodes. Hashes are SipHash-2-4 (Aumasson, Bernstein, 2012) under a random
 * key, so a client cannot choose keys that share a chain. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct env;

enum { HASH_FIRST_HEADS = 16 };

struct hash_node {
    struct hash_node *next; /* in its chain */
    uint64_t hash;
};

struct hash {
    struct hash_node **heads; /* [n_heads], a power of two; NULL: first_heads */
    size_t n_heads;
    size_t n; /* nodes */
    uint64_t key[2];
    struct hash_node *first_heads[HASH_FIRST_HEADS];
};

/* env NULL: without a random key, for hashes that are random already, or for a test. */
void hash_init(struct hash *h, const struct env *env);
/* The table is empty, or was only zeroed. */
void hash_deinit(struct hash *h);

/* The hash of the bytes. For a key of several parts, before is the hash of the parts before, else
 * 0. */
uint64_t hash_bytes(const struct hash *h, uint64_t before, const void *bytes, size_t len);
uint64_t hash_text(const struct hash *h, uint64_t before, const char *text);

void hash_add(struct hash *h, struct hash_node *node, uint64_t hash);
void hash_remove(struct hash *h, struct hash_node *node);
/* Frees heads that the remaining nodes do not need. */
void hash_shrink(struct hash *h);

/* The nodes with this hash, one after the other; NULL after the last. */
struct hash_node *hash_first(const struct hash *h, uint64_t hash);
struct hash_node *hash_next(const struct hash_node *node);

/* Iterates over all nodes in no order: after NULL comes the first, after the last NULL. after must
 * still be in the table. */
struct hash_node *hash_each(const struct hash *h, const struct hash_node *after);

#endif
