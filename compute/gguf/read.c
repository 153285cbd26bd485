/* Reads the head of a GGUF file: its keys and the names, types, shapes and places of its tensors.
 * Every length is checked against the file's size before it is used, and no two tensors may
 * overlap. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/parts.h"

enum {
    VERSION_MIN = 2,
    VERSION_MAX = 3,
    ALIGNMENT_DEFAULT = 32,
    DIMS_MAX = 4,
    ARRAY_DEPTH_MAX = 4,
    KEYS_MAX = 1 << 16,
    KEY_BYTES_MIN = 8 + 1 + 4 + 1,        /* length, name, type, value */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 4 + 8, /* length, name, dimensions, type, offset */
    SHOWN_NAME_MAX = 64,                  /* bytes of a name in an error */
};

/* Types of weights that other programs write and this one does not read: named in errors only. */
static const char *const foreign_types[] = {
    [10] = "Q2_K",    [11] = "Q3_K",  [15] = "Q8_K",   [16] = "IQ2_XXS", [17] = "IQ2_XS",
    [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",   [22] = "IQ2_S",
    [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",    [26] = "I32",     [27] = "I64",
    [28] = "F64",     [29] = "IQ1_M", [34] = "TQ1_0",  [35] = "TQ2_0",   [39] = "MXFP4",
};

/* Reads forward; pos <= the file's size always holds. */
struct gguf_reader {
    struct gguf *g;
    size_t pos;
};

static int shown_len(size_t name_len)
{
    return (int)(name_len < SHOWN_NAME_MAX ? name_len : SHOWN_NAME_MAX);
}

static enum status truncated(struct error *err, uint64_t needed, uint64_t left)
{
    (void)error_set(err, STATUS_DATA_LOSS,
                    "truncated: %" PRIu64 " bytes are needed, %" PRIu64 " are left, %" PRIu64
                    " are missing",
                    needed, left, needed - left);
    return STATUS_DATA_LOSS; /* a constant, since the compiler warns of unset variables otherwise */
}

static enum status gguf_reader_take(struct gguf_reader *r, uint64_t n_bytes, const uint8_t **ret,
                                    struct error *err)
{
    size_t left = r->g->size_bytes - r->pos;
    enum status rc;

    if (n_bytes > left)
        return truncated(err, n_bytes, left);
    rc = gguf_read_on(r->g, r->pos + n_bytes, err);
    if (rc != STATUS_OK)
        return rc;
    *ret = r->g->data + r->pos;
    r->pos += n_bytes;
    return STATUS_OK;
}

static enum status take_u32(struct gguf_reader *r, uint32_t *ret, struct error *err)
{
    const uint8_t *at;
    enum status rc = gguf_reader_take(r, 4, &at, err);

    if (rc == STATUS_OK)
        *ret = gguf_load_u32(at);
    return rc;
}

static enum status take_u64(struct gguf_reader *r, uint64_t *ret, struct error *err)
{
    const uint8_t *at;
    enum status rc = gguf_reader_take(r, 8, &at, err);

    if (rc == STATUS_OK)
        *ret = gguf_load_u64(at);
    return rc;
}

static enum status gguf_reader_take_text(struct gguf_reader *r, const char **ret_text,
                                         size_t *ret_len, struct error *err)
{
    const uint8_t *at;
    uint64_t len;
    enum status rc = take_u64(r, &len, err);

    if (rc == STATUS_OK)
        rc = gguf_reader_take(r, len, &at, err);
    if (rc != STATUS_OK)
        return rc;
    *ret_text = (const char *)at;
    *ret_len = len;
    return STATUS_OK;
}

static enum status take_type(struct gguf_reader *r, enum value_type *ret, struct error *err)
{
    uint32_t type;
    enum status rc = take_u32(r, &type, err);

    if (rc != STATUS_OK)
        return rc;
    if (type >= N_VALUE_TYPES) {
        (void)error_set(err, STATUS_DATA_LOSS, "%" PRIu32 " is not a type of values", type);
        return STATUS_DATA_LOSS;
    }
    *ret = (enum value_type)type;
    return STATUS_OK;
}

static enum status take_array_head(struct gguf_reader *r, enum value_type *ret_type,
                                   uint64_t *ret_n, struct error *err)
{
    enum status rc = take_type(r, ret_type, err);

    return rc == STATUS_OK ? take_u64(r, ret_n, err) : rc;
}

static enum status skip_fixed(struct gguf_reader *r, enum value_type type, uint64_t n,
                              struct error *err)
{
    uint64_t size_bytes;
    const uint8_t *at;
    enum status rc;

    if (__builtin_mul_overflow(n, value_kinds[type].size_bytes, &size_bytes))
        size_bytes = UINT64_MAX; /* more than any file has */
    rc = gguf_reader_take(r, size_bytes, &at, err);
    if (rc != STATUS_OK || type != VALUE_BOOL)
        return rc;
    for (uint64_t i = 0; i < n; i++)
        if (at[i] > 1)
            return error_set(err, STATUS_DATA_LOSS, "%u is not a bool", at[i]);
    return STATUS_OK;
}

/* Checks n values and skips them. Every item of a varying size takes bytes of the file, so the
 * loops end for any n; the depth bounds the stack. */
static enum status skip_values(struct gguf_reader *r, enum value_type type, uint64_t n, int depth,
                               struct error *err)
{
    enum status rc = STATUS_OK;

    if (value_kinds[type].size_bytes != 0)
        return skip_fixed(r, type, n, err);
    if (type == VALUE_ARRAY && depth == ARRAY_DEPTH_MAX)
        return error_set(err, STATUS_DATA_LOSS, "arrays are nested more than %d deep",
                         ARRAY_DEPTH_MAX);
    for (uint64_t i = 0; i < n && rc == STATUS_OK; i++) {
        enum value_type item_type;
        uint64_t n_items;
        const char *text;
        size_t len;

        if (type == VALUE_TEXT) {
            rc = gguf_reader_take_text(r, &text, &len, err);
        } else {
            rc = take_array_head(r, &item_type, &n_items, err);
            if (rc == STATUS_OK)
                rc = skip_values(r, item_type, n_items, depth + 1, err);
        }
    }
    return rc;
}

static enum status take_value(struct gguf_reader *r, struct gguf_key *k, struct error *err)
{
    uint64_t n = 1;
    enum value_type type;
    enum status rc = take_type(r, &k->type, err);

    if (rc != STATUS_OK)
        return rc;
    type = k->type;
    if (type == VALUE_ARRAY) {
        rc = take_array_head(r, &k->item_type, &n, err);
        if (rc != STATUS_OK)
            return rc;
        type = k->item_type;
        k->n_items = n;
    }
    k->value = r->g->data + r->pos;
    return skip_values(r, type, n, type == VALUE_ARRAY ? 1 : 0, err);
}

static enum status gguf_read_keys(struct gguf *g, struct gguf_reader *r, uint64_t n,
                                  struct error *err)
{
    enum status rc;

    if (n > KEYS_MAX)
        return error_set(err, STATUS_UNIMPLEMENTED, "%" PRIu64 " keys, there can be at most %d", n,
                         KEYS_MAX);
    if (n * KEY_BYTES_MIN > r->g->size_bytes - r->pos) {
        (void)truncated(err, n * KEY_BYTES_MIN, r->g->size_bytes - r->pos);
        return error_prefix(err, "its %" PRIu64 " keys", n);
    }
    g->keys = try_alloc(n, sizeof(*g->keys));
    if (g->keys == NULL)
        return error_no_memory(err, n * sizeof(*g->keys), "its keys");
    rc = gguf_table_open(&g->key_table, n, err);
    if (rc != STATUS_OK)
        return rc;
    for (; g->n_keys < n; g->n_keys++) {
        struct gguf_key *k = &g->keys[g->n_keys];
        uint32_t *slot;

        if (gguf_reader_take_text(r, &k->name, &k->name_len, err) != STATUS_OK)
            return error_prefix(err, "key %zu of %" PRIu64, g->n_keys + 1, n);
        rc = take_value(r, k, err);
        slot = gguf_key_slot(g, k->name, k->name_len);
        if (rc == STATUS_OK && k->name_len == 0)
            rc = error_set(err, STATUS_DATA_LOSS, "has no name");
        if (rc == STATUS_OK && *slot != 0)
            rc = error_set(err, STATUS_DATA_LOSS, "is in the file twice");
        if (rc != STATUS_OK)
            return error_prefix(err, "key '%.*s'", shown_len(k->name_len), k->name);
        *slot = (uint32_t)g->n_keys + 1;
    }
    return STATUS_OK;
}

static enum status take_name(struct gguf_reader *r, struct named_tensor *t, struct error *err)
{
    const char *name;
    enum status rc = gguf_reader_take_text(r, &name, &t->name_len, err);

    if (rc != STATUS_OK)
        return rc;
    if (t->name_len == 0 || t->name_len > GGUF_TENSOR_NAME_MAX ||
        memchr(name, 0, t->name_len) != NULL)
        return error_set(err, STATUS_DATA_LOSS,
                         "its name of %zu bytes is empty, longer than %d or holds a NUL",
                         t->name_len, GGUF_TENSOR_NAME_MAX);
    memcpy(t->name, name, t->name_len);
    t->tensor.name = t->name;
    return STATUS_OK;
}

static enum status take_type_of_weights(struct gguf_reader *r, enum dtype *ret, struct error *err)
{
    uint32_t type;
    enum status rc = take_u32(r, &type, err);
    const char *foreign = NULL;

    if (rc != STATUS_OK)
        return rc;
    if (dtype_name((enum dtype)type) == NULL) {
        if (type < sizeof(foreign_types) / sizeof(foreign_types[0]))
            foreign = foreign_types[type];
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "is of type %" PRIu32 " (%s), which this program does not read", type,
                         foreign != NULL ? foreign : "unknown");
    }
    *ret = (enum dtype)type;
    return STATUS_OK;
}

/* Everything of a tensor but its name. */
static enum status take_shape(struct gguf_reader *r, struct named_tensor *t, struct error *err)
{
    struct tensor *w = &t->tensor;
    uint64_t dims[DIMS_MAX] = {1, 1, 1, 1};
    uint32_t n_dims;
    bool is_huge = false;
    enum status rc = take_u32(r, &n_dims, err);

    if (rc != STATUS_OK)
        return rc;
    if (n_dims > DIMS_MAX)
        return error_set(err, STATUS_DATA_LOSS, "has %" PRIu32 " dimensions, more than %d", n_dims,
                         DIMS_MAX);
    for (uint32_t i = 0; i < n_dims && rc == STATUS_OK; i++)
        rc = take_u64(r, &dims[i], err);
    if (rc == STATUS_OK)
        rc = take_type_of_weights(r, &w->type, err);
    if (rc == STATUS_OK)
        rc = take_u64(r, &t->offset, err);
    if (rc != STATUS_OK)
        return rc;

    w->n_cols = dims[0];
    w->n_rows = 1;
    for (int i = 1; i < DIMS_MAX; i++)
        is_huge |= __builtin_mul_overflow(w->n_rows, dims[i], &w->n_rows);
    if (w->n_cols % dtype_block_values(w->type) != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "has rows of %zu values, not a multiple of the %zu in a block of %s",
                         w->n_cols, dtype_block_values(w->type), dtype_name(w->type));
    is_huge |= __builtin_mul_overflow(w->n_cols / dtype_block_values(w->type),
                                      dtype_block_bytes(w->type), &w->size_bytes);
    is_huge |= __builtin_mul_overflow(w->size_bytes, w->n_rows, &w->size_bytes);
    if (is_huge)
        return error_set(err, STATUS_DATA_LOSS, "has a size that no file can have");
    if (w->size_bytes == 0)
        return error_set(err, STATUS_DATA_LOSS, "has no values");
    return STATUS_OK;
}

static enum status read_tensors(struct gguf *g, struct gguf_reader *r, uint64_t n,
                                struct error *err)
{
    enum status rc;

    if (n > GGUF_TENSORS_MAX)
        return error_set(err, STATUS_UNIMPLEMENTED, "%" PRIu64 " tensors, there can be at most %d",
                         n, GGUF_TENSORS_MAX);
    if (n * TENSOR_BYTES_MIN > r->g->size_bytes - r->pos) {
        (void)truncated(err, n * TENSOR_BYTES_MIN, r->g->size_bytes - r->pos);
        return error_prefix(err, "its list of %" PRIu64 " tensors", n);
    }
    rc = gguf_tensors_reserve(g, n, err);
    if (rc != STATUS_OK)
        return rc;
    for (; g->n_tensors < n; g->n_tensors++) {
        struct named_tensor *t = &g->tensors[g->n_tensors];
        uint32_t *slot;

        if (take_name(r, t, err) != STATUS_OK)
            return error_prefix(err, "tensor %zu of %" PRIu64, g->n_tensors + 1, n);
        rc = take_shape(r, t, err);
        slot = gguf_tensor_slot(g, t->name, t->name_len);
        if (rc == STATUS_OK && *slot != 0)
            rc = error_set(err, STATUS_DATA_LOSS, "is in the file twice");
        if (rc != STATUS_OK)
            return error_prefix(err, "tensor '%s'", t->name);
        *slot = (uint32_t)g->n_tensors + 1;
    }
    return STATUS_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct named_tensor *x = *(const struct named_tensor *const *)a;
    const struct named_tensor *y = *(const struct named_tensor *const *)b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Refuses tensors that share bytes: such a file is broken, and a small one could otherwise take any
 * amount of memory once its weights are prepared. */
static enum status check_overlaps(const struct gguf *g, struct error *err)
{
    const struct named_tensor **sorted = try_alloc(g->n_tensors, sizeof(*sorted));
    enum status rc = STATUS_OK;

    if (sorted == NULL)
        return error_no_memory(err, g->n_tensors * sizeof(*sorted), "its list of tensors");
    for (size_t i = 0; i < g->n_tensors; i++)
        sorted[i] = &g->tensors[i];
    qsort(sorted, g->n_tensors, sizeof(*sorted), by_place);
    for (size_t i = 1; i < g->n_tensors && rc == STATUS_OK; i++) {
        const struct named_tensor *before = sorted[i - 1];

        if (sorted[i]->offset - before->offset < before->tensor.size_bytes)
            rc = error_set(err, STATUS_DATA_LOSS, "tensor '%s' overlaps tensor '%s'",
                           sorted[i]->name, before->name);
    }
    free(sorted);
    return rc;
}

static enum status read_alignment(const struct gguf *g, uint64_t *ret, struct error *err)
{
    enum status rc = gguf_get_u64(g, "general.alignment", ret, err);

    if (rc == STATUS_NOT_FOUND) {
        *ret = ALIGNMENT_DEFAULT;
        return STATUS_OK;
    }
    if (rc != STATUS_OK || *ret == 0 || *ret % GGUF_ALIGNMENT_MULTIPLE != 0 ||
        (*ret & (*ret - 1)) != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "key 'general.alignment' is not a power of two of at least %d",
                         GGUF_ALIGNMENT_MULTIPLE);
    return STATUS_OK;
}

/* Finds each tensor's bytes; the data begin at the first aligned byte from pos on. */
static enum status place_tensors(struct gguf *g, size_t pos, struct error *err)
{
    const struct named_tensor *last = NULL;
    uint64_t alignment, start, last_end = 0;
    enum status rc = read_alignment(g, &alignment, err);

    if (rc != STATUS_OK || g->n_tensors == 0)
        return rc;
    if (__builtin_add_overflow(pos, (alignment - pos % alignment) % alignment, &start))
        start = UINT64_MAX;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct named_tensor *t = &g->tensors[i];
        uint64_t end;

        if (t->offset % alignment != 0)
            return error_set(err, STATUS_DATA_LOSS,
                             "tensor '%s' is at offset %" PRIu64
                             ", which is not a multiple of %" PRIu64,
                             t->name, t->offset, alignment);
        if (__builtin_add_overflow(t->offset, start, &end) ||
            __builtin_add_overflow(end, t->tensor.size_bytes, &end))
            return error_set(err, STATUS_DATA_LOSS,
                             "tensor '%s' has an offset that no file can have", t->name);
        if (end > last_end) {
            last_end = end;
            last = t;
        }
    }
    if (last_end > g->size_bytes)
        return error_set(err, STATUS_DATA_LOSS,
                         "truncated: %zu bytes, but tensor '%s' ends at %" PRIu64 ", so %" PRIu64
                         " are missing",
                         g->size_bytes, last->name, last_end, last_end - g->size_bytes);
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct tensor *t = &g->tensors[i].tensor;

        t->file = g;
        t->file_at = start + g->tensors[i].offset;
        t->data = g->fd < 0 ? g->data + t->file_at : NULL;
    }
    return check_overlaps(g, err);
}

enum status gguf_read(struct gguf *g, struct error *err)
{
    struct gguf_reader r = {g, 0};
    const uint8_t *magic;
    uint32_t version;
    uint64_t n_tensors, n_keys;
    enum status rc;

    if (g->size_bytes == 0)
        return error_set(err, STATUS_DATA_LOSS, "the file is empty");
    rc = g->size_bytes < 4 ? STATUS_DATA_LOSS : gguf_reader_take(&r, 4, &magic, err);
    if (g->size_bytes < 4 || (rc == STATUS_OK && memcmp(magic, "GGUF", 4) != 0))
        return gguf_refuse_foreign(g->data, g->n_read, err);
    if (rc == STATUS_OK)
        rc = take_u32(&r, &version, err);
    if (rc != STATUS_OK)
        return error_prefix(err, "its head");
    if (version < VERSION_MIN || version > VERSION_MAX)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "GGUF version %" PRIu32 "%s, this program reads %d to %d", version,
                         (version & 0xffff) == 0 ? " (big-endian?)" : "", VERSION_MIN, VERSION_MAX);
    rc = take_u64(&r, &n_tensors, err);
    if (rc == STATUS_OK)
        rc = take_u64(&r, &n_keys, err);
    if (rc != STATUS_OK)
        return error_prefix(err, "its head");
    rc = gguf_read_keys(g, &r, n_keys, err);
    if (rc == STATUS_OK)
        rc = read_tensors(g, &r, n_tensors, err);
    if (rc == STATUS_OK)
        rc = place_tensors(g, r.pos, err);
    return rc;
}
