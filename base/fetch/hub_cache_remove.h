/* Removing from the hub's cache (hub_cache.h). Any thread. */
#ifndef BASE_FETCH_HUB_CACHE_REMOVE_H
#define BASE_FETCH_HUB_CACHE_REMOVE_H

#include <stdint.h>

#include "base/status.h"

struct model_name;

/* Removes the model's files from all snapshots of its repository, and the blobs to which no link
 * leads any more; the whole repository, with what was fetched in part, where the name has no part
 * or nothing would be left. *ret_bytes are those of the removed blobs. NOT_FOUND; UNAVAILABLE, with
 * nothing removed, while a program fetches one of them, and with the rest left where one begins to
 * meanwhile; DENIED where something cannot be read or removed. */
enum status hub_cache_remove(uint64_t *ret_bytes, const struct model_name *name,
                             struct error *err) MUST_CHECK;

#endif
