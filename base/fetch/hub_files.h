/* The files of a model's repository, and which of them make the model that is asked for. Any
 * thread. */
#ifndef BASE_FETCH_HUB_FILES_H
#define BASE_FETCH_HUB_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { HUB_ETAG_MAX = 64 };

struct hub_file {
    char *name; /* its path in the repository, with '/'; no step of it leads out */
    uint64_t size_bytes;
    char etag[HUB_ETAG_MAX + 1]; /* sha256 in hex, or git's sha1 of small files; "": not known */
    bool is_chosen;
};

struct hub_files {
    struct hub_file *all; /* [n], owned */
    size_t n, room;
};

/* Adds a file; copies name. Returns NULL, and adds nothing, where the name would lead out of a
 * folder. */
struct hub_file *hub_files_add(struct hub_files *f, const char *name);
void hub_files_deinit(struct hub_files *f); /* as {0} afterwards */
struct hub_file *hub_files_find(const struct hub_files *f, const char *name);

/* Chooses the files of a model: one GGUF file or all files of a split one, or the weights and texts
 * of a folder of safetensors. part is a quantization, a file's name, "safetensors", or "": then the
 * only GGUF file, or else Q4_K_M, or else safetensors. *ret_main is the name of the file to open,
 * in f, or "" for the folder. NOT_FOUND lists what there is. */
enum status hub_files_choose(struct hub_files *f, const char *part, const char **ret_main,
                             struct error *err) MUST_CHECK;

#endif
