/* What the hub says of a repository, and who asks. Any thread. */
#ifndef BASE_FETCH_HUB_LIST_H
#define BASE_FETCH_HUB_LIST_H

#include <stddef.h>

#include "base/status.h"

struct hub_files;
struct model_name;

enum { HUB_MAX_FILES = 2000 }; /* of a repository that is listed */

/* The hub's address without a slash at its end, and the caller's token; both for the caller to
 * free, *ret_token may become NULL. INVALID: HF_ENDPOINT or the token cannot be one. */
enum status hub_list_access(char **ret_endpoint, char **ret_token, struct error *err) MUST_CHECK;

/* The URLs of a repository's list and of a file; for the caller to free. */
char *hub_list_url(const char *endpoint, const struct model_name *name);
char *hub_list_file_url(const char *endpoint, const struct model_name *name, const char *commit,
                        const char *file);

/* Reads the list: the commit of its main branch, and its files with their sizes and hashes.
 * DATA_LOSS: it is none, or has more than HUB_MAX_FILES. */
enum status hub_list_read(char commit[41], struct hub_files *out, const char *json, size_t len,
                          struct error *err) MUST_CHECK;

#endif
