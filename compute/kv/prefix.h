/* The prefix cache: which KV page holds the keys and values of which token ids. A page's key is its
 * token ids and the page before it, so a chain of pages from the root is a prefix, of any
 * conversation. A hit is compared id for id, and the page before it by a number that is never used
 * twice: two prefixes with one hash are still two. Tenants with different salts have different
 * roots. Loop. */
#ifndef COMPUTE_KV_PREFIX_H
#define COMPUTE_KV_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/env.h"
#include "base/status.h"

struct prefix_cache;

/* For pages 0 … n_pages - 1. */
enum status prefix_cache_open(struct prefix_cache **out, size_t n_pages, const struct env *env,
                              struct error *err) MUST_CHECK;
void prefix_cache_close(struct prefix_cache *p);

/* The page that holds ids[KV_PAGE_TOKENS] after the page parent (-1: the root), or -1. */
int32_t prefix_cache_find(const struct prefix_cache *p, int32_t parent, uint64_t salt,
                          const int32_t *ids);

/* Adds page, which is not in the cache, under a key that prefix_cache_find did not find. */
void prefix_cache_add(struct prefix_cache *p, int32_t parent, uint64_t salt, const int32_t *ids,
                      int32_t page);

bool prefix_cache_has(const struct prefix_cache *p, int32_t page);

/* Gives the key of page from to page to, which is not in the cache yet. Pages after it are found as
 * before. */
void prefix_cache_move(struct prefix_cache *p, int32_t from, int32_t to);

/* Removes a page of the cache, whose contents change. Pages after it are not found any more. */
void prefix_cache_remove(struct prefix_cache *p, int32_t page);

#endif
