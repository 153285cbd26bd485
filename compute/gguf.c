#include "compute/gguf.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "compute/gguf_parts.h"

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "a file's sizes must fit a size_t");

enum { SHOWN_PATH_MAX = 80 };

/* The tail of a path: where it is long, the end says more than the beginning. */
static const char *shown_path(const char *path)
{
    size_t len = strlen(path);

    return len > SHOWN_PATH_MAX ? path + len - SHOWN_PATH_MAX : path;
}

static enum status map_file(struct gguf *g, struct error *err)
{
    struct stat st;
    void *data;
    enum status rc = STATUS_OK;
    /* not blocking: a pipe is refused, not waited for */
    int fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &st) != 0) {
        rc = error_set(err,
                       errno == ENOENT || errno == ENOTDIR ? STATUS_NOT_FOUND
                       : errno == EACCES                   ? STATUS_DENIED
                                                           : STATUS_UNAVAILABLE,
                       "%s", strerror(errno));
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = error_set(err, STATUS_INVALID, "not a regular file");
        goto out;
    }
    if (st.st_size == 0) /* which mmap refuses, and gguf_read reports */
        goto out;
    data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        rc = error_set(err, STATUS_UNAVAILABLE, "cannot be mapped: %s", strerror(errno));
        goto out;
    }
    g->data = data;
    g->size_bytes = (size_t)st.st_size;
    g->is_mapped = true;
out:
    if (fd >= 0)
        (void)close(fd); /* only read from */
    return rc;
}

enum status gguf_open(struct gguf **out, const char *path, struct error *err)
{
    struct gguf *g = xalloc(sizeof *g);
    enum status rc;

    g->path = xstrdup(path);
    rc = map_file(g, err);
    if (rc == STATUS_OK)
        rc = gguf_read(g, err);
    if (rc != STATUS_OK) {
        gguf_close(g);
        return error_prefix(err, "%s", shown_path(path));
    }
    *out = g;
    return STATUS_OK;
}

enum status gguf_open_bytes(struct gguf **out, const void *data, size_t size_bytes,
                            const char *name, struct error *err)
{
    struct gguf *g = xalloc(sizeof *g);

    assert((uintptr_t)data % GGUF_ALIGNMENT_MULTIPLE == 0);
    g->path = xstrdup(name);
    g->data = data;
    g->size_bytes = size_bytes;
    if (gguf_read(g, err) != STATUS_OK) {
        gguf_close(g);
        return error_prefix(err, "%s", shown_path(name));
    }
    *out = g;
    return STATUS_OK;
}

void gguf_close(struct gguf *g)
{
    if (g == NULL)
        return;
    for (size_t i = 0; i < g->n_keys; i++)
        free(g->keys[i].texts);
    free(g->keys);
    free(g->key_table.slots);
    free(g->tensors);
    free(g->tensor_table.slots);
    if (g->is_mapped)
        (void)munmap((void *)(uintptr_t)g->data, g->size_bytes); /* cannot fail on what mmap gave */
    free(g->path);
    free(g);
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

const void *gguf_bytes(const struct gguf *g, size_t *ret_size_bytes)
{
    *ret_size_bytes = g->size_bytes;
    return g->data;
}

/* NULL with *err filled when there is none. */
static struct key *find_key(const struct gguf *g, const char *name, struct error *err)
{
    uint32_t slot = *gguf_key_slot(g, name, strlen(name));

    if (slot == 0) {
        (void)error_set(err, STATUS_NOT_FOUND, "%s: key '%s' is absent", shown_path(g->path), name);
        return NULL;
    }
    return &g->keys[slot - 1];
}

static enum status wrong_type(const struct gguf *g, const char *name, enum value_type type,
                              const char *wanted, struct error *err)
{
    return error_set(err, STATUS_DATA_LOSS, "%s: key '%s' holds %s where %s is needed",
                     shown_path(g->path), name, value_kinds[type].name, wanted);
}

/* The integer as 64 bits, sign-extended. False when the type is not an integer's. */
static bool load_integer(enum value_type type, const uint8_t *at, uint64_t *ret_bits,
                         bool *ret_negative)
{
    int64_t v;

    *ret_negative = false;
    switch (type) {
    case VALUE_U8:
        *ret_bits = *at;
        return true;
    case VALUE_U16:
        *ret_bits = gguf_load_u16(at);
        return true;
    case VALUE_U32:
        *ret_bits = gguf_load_u32(at);
        return true;
    case VALUE_U64:
        *ret_bits = gguf_load_u64(at);
        return true;
    case VALUE_I8:
        v = (int8_t)*at;
        break;
    case VALUE_I16:
        v = (int16_t)gguf_load_u16(at);
        break;
    case VALUE_I32:
        v = (int32_t)gguf_load_u32(at);
        break;
    case VALUE_I64:
        v = (int64_t)gguf_load_u64(at);
        break;
    default:
        return false;
    }
    *ret_bits = (uint64_t)v;
    *ret_negative = v < 0;
    return true;
}

enum status gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct error *err)
{
    const struct key *k = find_key(g, key, err);
    uint64_t bits;
    bool is_negative;

    if (k == NULL)
        return err->status;
    if (!load_integer(k->type, k->value, &bits, &is_negative))
        return wrong_type(g, key, k->type, "an integer", err);
    if (is_negative)
        return error_set(err, STATUS_DATA_LOSS, "%s: key '%s' is negative", shown_path(g->path),
                         key);
    *out = bits;
    return STATUS_OK;
}

enum status gguf_get_f64(const struct gguf *g, const char *key, double *out, struct error *err)
{
    const struct key *k = find_key(g, key, err);

    if (k == NULL)
        return err->status;
    if (k->type == VALUE_F32) {
        uint32_t bits = gguf_load_u32(k->value);
        float f;

        memcpy(&f, &bits, sizeof f);
        *out = (double)f;
    } else if (k->type == VALUE_F64) {
        uint64_t bits = gguf_load_u64(k->value);

        memcpy(out, &bits, sizeof *out);
    } else {
        return wrong_type(g, key, k->type, "a float", err);
    }
    return STATUS_OK;
}

enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *err)
{
    const struct key *k = find_key(g, key, err);

    if (k == NULL)
        return err->status;
    if (k->type != VALUE_BOOL)
        return wrong_type(g, key, k->type, "a bool", err);
    *out = *k->value != 0;
    return STATUS_OK;
}

static void load_text(const uint8_t *at, const char **ret_text, size_t *ret_len)
{
    *ret_text = (const char *)at + 8;
    *ret_len = gguf_load_u64(at);
}

enum status gguf_get_text(const struct gguf *g, const char *key, const char **ret_text,
                          size_t *ret_len, struct error *err)
{
    const struct key *k = find_key(g, key, err);

    if (k == NULL)
        return err->status;
    if (k->type != VALUE_TEXT)
        return wrong_type(g, key, k->type, "text", err);
    load_text(k->value, ret_text, ret_len);
    return STATUS_OK;
}

static struct key *find_array(const struct gguf *g, const char *name, struct error *err)
{
    struct key *k = find_key(g, name, err);

    if (k != NULL && k->type != VALUE_ARRAY) {
        (void)wrong_type(g, name, k->type, "an array", err);
        return NULL;
    }
    return k;
}

/* The array, which has an entry i. */
static struct key *find_entry(const struct gguf *g, const char *name, size_t i, struct error *err)
{
    struct key *k = find_array(g, name, err);

    if (k != NULL && i >= k->n_items) {
        (void)error_set(err, STATUS_DATA_LOSS, "%s: key '%s' has %zu entries, none numbered %zu",
                        shown_path(g->path), name, k->n_items, i);
        return NULL;
    }
    return k;
}

enum status gguf_array_len(const struct gguf *g, const char *key, size_t *out, struct error *err)
{
    const struct key *k = find_array(g, key, err);

    if (k == NULL)
        return err->status;
    *out = k->n_items;
    return STATUS_OK;
}

enum status gguf_array_text(struct gguf *g, const char *key, size_t i, const char **ret_text,
                            size_t *ret_len, struct error *err)
{
    struct key *k = find_entry(g, key, i, err);

    if (k == NULL)
        return err->status;
    if (k->item_type != VALUE_TEXT)
        return wrong_type(g, key, k->item_type, "an array of text", err);
    if (k->texts == NULL) {
        const uint8_t *at = k->value;

        k->texts = try_alloc(k->n_items, sizeof *k->texts);
        if (k->texts == NULL)
            return error_no_memory(err, k->n_items * sizeof *k->texts, key);
        for (size_t n = 0; n < k->n_items; n++) { /* the lengths were checked when it was opened */
            k->texts[n] = at;
            at += 8 + gguf_load_u64(at);
        }
    }
    load_text(k->texts[i], ret_text, ret_len);
    return STATUS_OK;
}

enum status gguf_array_i64(const struct gguf *g, const char *key, size_t i, int64_t *out,
                           struct error *err)
{
    const struct key *k = find_entry(g, key, i, err);
    uint64_t bits;
    bool is_negative;

    if (k == NULL)
        return err->status;
    if (!load_integer(k->item_type, k->value + i * value_kinds[k->item_type].size_bytes, &bits,
                      &is_negative))
        return wrong_type(g, key, k->item_type, "an array of integers", err);
    if (!is_negative && bits > INT64_MAX)
        return error_set(err, STATUS_DATA_LOSS, "%s: key '%s': entry %zu is above %" PRId64,
                         shown_path(g->path), key, i, INT64_MAX);
    *out = (int64_t)bits;
    return STATUS_OK;
}

enum status gguf_tensor(const struct gguf *g, const char *name, const struct tensor **out,
                        struct error *err)
{
    uint32_t slot = *gguf_tensor_slot(g, name, strlen(name));

    if (slot == 0)
        return error_set(err, STATUS_NOT_FOUND, "%s: tensor '%s' is absent", shown_path(g->path),
                         name);
    *out = &g->tensors[slot - 1].tensor;
    return STATUS_OK;
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    assert(i < g->n_tensors);
    return &g->tensors[i].tensor;
}
