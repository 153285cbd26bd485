/* Opens a model file: a GGUF file with the further files of a split, a folder of safetensors, or
 * bytes in memory. */
#include <assert.h>

#include "base/alloc.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/parts.h"

enum status gguf_open(struct gguf **out, const char *path, struct error *err)
{
    struct gguf *g = NULL;
    enum status rc;

    if (gguf_is_safetensors(path))
        return gguf_open_safetensors(out, path, err);
    rc = gguf_file_read(&g, path, err);
    if (rc == STATUS_OK)
        rc = gguf_split_open(g, err);
    if (rc != STATUS_OK) {
        gguf_close(g);
        return error_prefix(err, "%s", gguf_shown_path(path));
    }
    *out = g;
    return STATUS_OK;
}

enum status gguf_open_bytes(struct gguf **out, const void *data, size_t size_bytes,
                            const char *name, struct error *err)
{
    struct gguf *g = xalloc(sizeof(*g));

    assert((uintptr_t)data % GGUF_ALIGNMENT_MULTIPLE == 0);
    g->path = xstrdup(name);
    g->fd = -1;
    g->data = data;
    g->n_read = g->size_bytes = size_bytes;
    if (gguf_read(g, err) != STATUS_OK || gguf_split_refuse(g, err) != STATUS_OK) {
        gguf_close(g);
        return error_prefix(err, "%s", gguf_shown_path(name));
    }
    *out = g;
    return STATUS_OK;
}
