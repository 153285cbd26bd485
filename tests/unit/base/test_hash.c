#include "base/hash.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/env.h"
#include "base/list.h"
#include "tests/unit/base/suite.h"

enum { N_MANY = 5000 };

struct item {
    int value;
    struct hash_node node;
};

static struct item *item_of(struct hash_node *node)
{
    return node == NULL ? NULL : container_of(node, struct item, node);
}

static struct item *find(const struct hash *h, int value)
{
    struct hash_node *node = hash_first(h, hash_bytes(h, 0, &value, sizeof(value)));

    while (node != NULL && item_of(node)->value != value)
        node = hash_next(node);
    return item_of(node);
}

static void add(struct hash *h, struct item *item, int value)
{
    item->value = value;
    hash_add(h, &item->node, hash_bytes(h, 0, &value, sizeof(value)));
}

/* The reference's vectors: key 00 01 … 0f, bytes 00 01 …, of these lengths. */
START_TEST(vectors)
{
    static const struct {
        size_t len;
        uint64_t hash;
    } known[] = {
        {0, UINT64_C(0x726fdb47dd0e0e31)},
        {1, UINT64_C(0x74f839c593dc67fd)},
        {2, UINT64_C(0x0d6c8009d9a94f5a)},
        {15, UINT64_C(0xa129ca6149be45e5)},
    };
    unsigned char bytes[16];
    struct hash h;

    hash_init(&h, NULL);
    for (unsigned char i = 0; i < sizeof(bytes); i++)
        bytes[i] = i;
    memcpy(h.key, bytes, sizeof(h.key));
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        ck_assert_uint_eq(hash_bytes(&h, 0, bytes, known[i].len), known[i].hash);
    hash_deinit(&h);
}
END_TEST

/* Two tables have different hashes; a key of two parts differs from their joined text. */
START_TEST(salted)
{
    struct hash a, b;

    hash_init(&a, &env_real);
    hash_init(&b, &env_real);
    ck_assert_uint_ne(hash_text(&a, 0, "text"), hash_text(&b, 0, "text"));
    ck_assert_uint_ne(hash_text(&a, hash_text(&a, 0, "te"), "xt"), hash_text(&a, 0, "text"));
    ck_assert_uint_ne(hash_text(&a, hash_text(&a, 0, "te"), "xt"),
                      hash_text(&a, hash_text(&a, 0, "t"), "ext"));
    hash_deinit(&a);
    hash_deinit(&b);
}
END_TEST

/* Added nodes are found, also after the table has grown; removed ones are not. */
START_TEST(many)
{
    static struct item items[N_MANY];
    struct hash h;

    hash_init(&h, &env_real);
    for (int i = 0; i < N_MANY; i++) {
        ck_assert_ptr_null(find(&h, i));
        add(&h, &items[i], i);
    }
    ck_assert_uint_eq(h.n, N_MANY);
    ck_assert_uint_ge(h.n_heads, N_MANY);
    for (int i = 0; i < N_MANY; i += 2)
        hash_remove(&h, &items[i].node);
    for (int i = 0; i < N_MANY; i++)
        ck_assert_ptr_eq(find(&h, i), i % 2 == 0 ? NULL : &items[i]);
    for (int i = 1; i < N_MANY; i += 2)
        hash_remove(&h, &items[i].node);
    ck_assert_uint_eq(h.n, 0);
    hash_deinit(&h);
}
END_TEST

/* Heads that few nodes do not need are freed, and no node is lost. */
START_TEST(shrinks)
{
    static struct item items[N_MANY];
    struct hash h;

    hash_init(&h, &env_real);
    for (int i = 0; i < N_MANY; i++)
        add(&h, &items[i], i);
    for (int i = 100; i < N_MANY; i++)
        hash_remove(&h, &items[i].node);
    hash_shrink(&h);
    ck_assert_uint_eq(h.n_heads, 128);
    for (int i = 0; i < N_MANY; i++)
        ck_assert_ptr_eq(find(&h, i), i < 100 ? &items[i] : NULL);
    for (int i = 0; i < 100; i++)
        hash_remove(&h, &items[i].node);
    hash_deinit(&h);
}
END_TEST

/* All nodes of one hash are returned, for the owner to tell apart; others of the same chain are
 * not. */
START_TEST(same_hash)
{
    struct item items[4];
    struct hash h;
    unsigned n = 0;

    hash_init(&h, NULL);
    for (size_t i = 0; i < 4; i++)
        hash_add(&h, &items[i].node, i < 3 ? 5 : 5 + HASH_FIRST_HEADS);
    for (struct hash_node *node = hash_first(&h, 5); node != NULL; node = hash_next(node))
        n++;
    ck_assert_uint_eq(n, 3);
    ck_assert_ptr_eq(hash_first(&h, 5 + HASH_FIRST_HEADS), &items[3].node);
    ck_assert_ptr_null(hash_first(&h, 6));
    for (size_t i = 0; i < 4; i++)
        hash_remove(&h, &items[i].node);
    hash_deinit(&h);
}
END_TEST

/* Iteration gives each node once, and allows removal meanwhile. */
START_TEST(each)
{
    static struct item items[100];
    struct hash_node *node, *next;
    struct hash h;
    unsigned n = 0;

    hash_init(&h, &env_real);
    ck_assert_ptr_null(hash_each(&h, NULL));
    for (int i = 0; i < 100; i++)
        add(&h, &items[i], i);
    for (node = hash_each(&h, NULL); node != NULL; node = next) {
        next = hash_each(&h, node);
        item_of(node)->value += 1000;
        hash_remove(&h, node);
        n++;
    }
    ck_assert_uint_eq(n, 100);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(items[i].value, 1000 + i);
    hash_deinit(&h);
}
END_TEST

/* Without memory the table does not grow, and loses nothing. */
START_TEST(no_memory)
{
    static struct item items[1000];
    struct hash h;

    hash_init(&h, &env_real);
    for (int i = 0; i < 1000; i++) {
        fault_after = 0;
        add(&h, &items[i], i);
        fault_after = -1;
    }
    ck_assert_uint_eq(h.n_heads, HASH_FIRST_HEADS);
    for (int i = 0; i < 1000; i++) {
        ck_assert_ptr_eq(find(&h, i), &items[i]);
        hash_remove(&h, &items[i].node);
    }
    hash_deinit(&h);
}
END_TEST

SUITE_MAIN("base/hash", vectors, salted, many, shrinks, same_hash, each, no_memory)
