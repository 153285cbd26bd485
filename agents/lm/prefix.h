/* The prefix cache: which KV page holds the keys and values of which token ids. A page is known by
 * what it holds and by the page before it, so a chain of pages from the root is a prefix, whoever
 * computed it. A hit is compared id for id, and the page before it by a number that is never used
 * twice: two prefixes with one hash are still two. Tenants with different salts have different
 * roots. Loop. */
#ifndef AGENTS_LM_PREFIX_H
#define AGENTS_LM_PREFIX_H

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

/* The page that holds ids[KV_PAGE_TOKENS] behind the page parent, -1 for the root: or -1. */
int32_t prefix_cache_find(const struct prefix_cache *p, int32_t parent, uint64_t salt,
                          const int32_t *ids);

/* page, not there yet, holds what prefix_cache_find did not find. */
void prefix_cache_add(struct prefix_cache *p, int32_t parent, uint64_t salt, const int32_t *ids,
                      int32_t page);

bool prefix_cache_has(const struct prefix_cache *p, int32_t page);

/* What from is known by, to is known by instead; to is not there yet. What comes behind it is found
 * as before. */
void prefix_cache_move(struct prefix_cache *p, int32_t from, int32_t to);

/* The page, which is there, is written anew. What came behind it is not found any more. */
void prefix_cache_remove(struct prefix_cache *p, int32_t page);

#endif
