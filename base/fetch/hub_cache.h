/* The cache of the Hugging Face hub's programs on this machine, as its Python library lays it out:
 *
 *     models--OWNER--REPO/refs/main             the commit
 *     models--OWNER--REPO/snapshots/COMMIT/…    the repository's files: links to blobs
 *     models--OWNER--REPO/blobs/ETAG            their bytes, once
 *     .locks/models--OWNER--REPO/ETAG.lock      locked (flock) while the blob is written
 *
 * Models are read in place, and other programs find what is written. Any thread. */
#ifndef BASE_FETCH_HUB_CACHE_H
#define BASE_FETCH_HUB_CACHE_H

#include "base/status.h"

struct hub_files;
struct model_name;

enum { HUB_COMMIT_CHARS = 40 };

/* The folder of a repository in the cache, for the caller to free: below HF_HUB_CACHE, else
 * HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub. PRECONDITION
 * where none of them is set and there is no HOME. */
enum status hub_cache_folder(char **out, const struct model_name *name,
                             struct error *err) MUST_CHECK;

/* The path of a model that the cache holds whole, for the caller to free: of a file, or of the
 * snapshot's folder. NOT_FOUND says what is missing. */
enum status hub_cache_find(char **out, const struct model_name *name, struct error *err) MUST_CHECK;

/* Lists the files of the snapshot that refs/main names, and chooses those of part
 * (hub_files_choose). *out is {0}, and the caller deinits it also after a failure. */
enum status hub_cache_choose(struct hub_files *out, const char *folder, const char *part,
                             struct error *err) MUST_CHECK;

#endif
