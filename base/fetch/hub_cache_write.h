/* Writing to the hub's cache (hub_cache.h). A blob is complete before a link names it, and
 * refs/main comes last, so a program that is killed in between leaves a cache that is whole. folder
 * is that of a repository. Any thread. */
#ifndef BASE_FETCH_HUB_CACHE_WRITE_H
#define BASE_FETCH_HUB_CACHE_WRITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Makes the folder of a file that is written, if need be. */
enum status hub_cache_make_folders(const char *path, struct error *err) MUST_CHECK;
/* Locks a blob against other programs that fetch it; the descriptor's close unlocks. EXISTS while
 * another holds the lock. On failure *ret_fd is -1. Where the disk has no locks nothing is locked,
 * and *ret_fd is -1, too. */
enum status hub_cache_lock(int *ret_fd, const char *folder, const char *etag,
                           struct error *err) MUST_CHECK;
/* The path blobs/ETAG of a repository's folder, with suffix behind it; for the caller to free. */
char *hub_cache_blob(const char *folder, const char *etag, const char *suffix);
/* Whether the blob is there. */
bool hub_cache_has_blob(const char *folder, const char *etag);
/* Whether snapshots/COMMIT/FILE is no link but the file itself, of this size: so other programs
 * write it where a disk has no links. */
bool hub_cache_has_file(const char *folder, const char *commit, const char *file,
                        uint64_t size_bytes);
/* Links snapshots/COMMIT/FILE to the blob, in place of another link. On a disk without links the
 * blob becomes the file. */
enum status hub_cache_link(const char *folder, const char *commit, const char *file,
                           const char *etag, struct error *err) MUST_CHECK;
/* Writes refs/main. */
enum status hub_cache_set_main(const char *folder, const char *commit,
                               struct error *err) MUST_CHECK;

#endif
