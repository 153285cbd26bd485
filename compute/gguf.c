#include "compute/gguf.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "a file's sizes must fit a size_t");

enum {
    VERSION_MIN = 2,
    VERSION_MAX = 3,
    ALIGNMENT_DEFAULT = 32,
    ALIGNMENT_MULTIPLE = 8,
    DIMS_MAX = 4,
    TENSOR_NAME_MAX = 64,
    ARRAY_DEPTH_MAX = 4,
    KEYS_MAX = 1 << 16,
    TENSORS_MAX = 1 << 16,
    KEY_BYTES_MIN = 8 + 1 + 4 + 1,        /* length, name, type, value */
    TENSOR_BYTES_MIN = 8 + 1 + 4 + 4 + 8, /* length, name, dimensions, type, offset */
    SHOWN_NAME_MAX = 64,                  /* bytes of a name in an error */
    SHOWN_PATH_MAX = 80,
};

/* The values are the format's. */
enum value_type {
    VALUE_U8,
    VALUE_I8,
    VALUE_U16,
    VALUE_I16,
    VALUE_U32,
    VALUE_I32,
    VALUE_F32,
    VALUE_BOOL,
    VALUE_TEXT,
    VALUE_ARRAY,
    VALUE_U64,
    VALUE_I64,
    VALUE_F64,
    N_VALUE_TYPES,
};

static const struct {
    const char *name;
    size_t size_bytes; /* 0: it varies */
} value_types[N_VALUE_TYPES] = {
    [VALUE_U8] = {"u8", 1},       [VALUE_I8] = {"i8", 1},     [VALUE_U16] = {"u16", 2},
    [VALUE_I16] = {"i16", 2},     [VALUE_U32] = {"u32", 4},   [VALUE_I32] = {"i32", 4},
    [VALUE_F32] = {"f32", 4},     [VALUE_BOOL] = {"bool", 1}, [VALUE_TEXT] = {"text", 0},
    [VALUE_ARRAY] = {"array", 0}, [VALUE_U64] = {"u64", 8},   [VALUE_I64] = {"i64", 8},
    [VALUE_F64] = {"f64", 8},
};

/* Types of weights that other programs write and this one does not read: for the error alone. */
static const char *const foreign_types[] = {
    [10] = "Q2_K",    [11] = "Q3_K",  [15] = "Q8_K",   [16] = "IQ2_XXS", [17] = "IQ2_XS",
    [18] = "IQ3_XXS", [19] = "IQ1_S", [20] = "IQ4_NL", [21] = "IQ3_S",   [22] = "IQ2_S",
    [23] = "IQ4_XS",  [24] = "I8",    [25] = "I16",    [26] = "I32",     [27] = "I64",
    [28] = "F64",     [29] = "IQ1_M", [34] = "TQ1_0",  [35] = "TQ2_0",   [39] = "MXFP4",
};

struct key {
    const char *name; /* the file's, not NUL-ended */
    size_t name_len;
    enum value_type type;
    enum value_type item_type; /* of an array */
    size_t n_items;            /* of an array */
    const uint8_t *value;      /* the value, or an array's first item */
    const uint8_t **texts;     /* [n_items] where each begins; NULL until first asked for */
};

struct named_tensor {
    struct tensor tensor;
    uint64_t offset; /* from the start of the data, as the file says */
    size_t name_len;
    char name[TENSOR_NAME_MAX + 1];
};

/* From names to positions in an array: open addressing, at most half full. A slot holds the
 * position + 1, 0 is empty. */
struct table {
    uint32_t *slots;
    size_t mask;
};

struct gguf {
    char *path;
    const uint8_t *data;
    size_t size_bytes;
    bool is_mapped;
    struct key *keys;
    size_t n_keys;
    struct table key_table;
    struct named_tensor *tensors;
    size_t n_tensors;
    struct table tensor_table;
};

/* Reads forward; pos <= size_bytes always holds. */
struct reader {
    const uint8_t *data;
    size_t size_bytes, pos;
};

/* The tail of a path: where it is long, the end says more than the beginning. */
static const char *shown_path(const char *path)
{
    size_t len = strlen(path);

    return len > SHOWN_PATH_MAX ? path + len - SHOWN_PATH_MAX : path;
}

static int shown_len(size_t name_len)
{
    return (int)(name_len < SHOWN_NAME_MAX ? name_len : SHOWN_NAME_MAX);
}

/* --- bytes ------------------------------------------------------------------------------------ */

static uint16_t load_u16(const uint8_t *at)
{
    uint16_t v;

    memcpy(&v, at, sizeof v);
    return le16toh(v);
}

static uint32_t load_u32(const uint8_t *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof v);
    return le32toh(v);
}

static uint64_t load_u64(const uint8_t *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof v);
    return le64toh(v);
}

static enum status truncated(struct error *err, uint64_t needed, uint64_t left)
{
    (void)error_set(err, STATUS_DATA_LOSS,
                    "truncated: %" PRIu64 " bytes are needed, %" PRIu64 " are left, %" PRIu64
                    " are missing",
                    needed, left, needed - left);
    return STATUS_DATA_LOSS; /* said outright for the compiler, which fears for what stays unset */
}

static enum status take(struct reader *r, uint64_t n_bytes, const uint8_t **ret, struct error *err)
{
    size_t left = r->size_bytes - r->pos;

    if (n_bytes > left)
        return truncated(err, n_bytes, left);
    *ret = r->data + r->pos;
    r->pos += n_bytes;
    return STATUS_OK;
}

static enum status take_u32(struct reader *r, uint32_t *ret, struct error *err)
{
    const uint8_t *at;
    enum status rc = take(r, 4, &at, err);

    if (rc == STATUS_OK)
        *ret = load_u32(at);
    return rc;
}

static enum status take_u64(struct reader *r, uint64_t *ret, struct error *err)
{
    const uint8_t *at;
    enum status rc = take(r, 8, &at, err);

    if (rc == STATUS_OK)
        *ret = load_u64(at);
    return rc;
}

static enum status take_text(struct reader *r, const char **ret_text, size_t *ret_len,
                             struct error *err)
{
    const uint8_t *at;
    uint64_t len;
    enum status rc = take_u64(r, &len, err);

    if (rc == STATUS_OK)
        rc = take(r, len, &at, err);
    if (rc != STATUS_OK)
        return rc;
    *ret_text = (const char *)at;
    *ret_len = len;
    return STATUS_OK;
}

/* --- names ------------------------------------------------------------------------------------ */

static uint64_t hash_name(const char *name, size_t len)
{
    uint64_t h = 0xcbf29ce484222325; /* FNV-1a */

    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)name[i]) * 0x100000001b3;
    return h ^ h >> 32;
}

static enum status table_open(struct table *t, size_t n, struct error *err)
{
    size_t n_slots = 16;

    while (n_slots < n * 2)
        n_slots *= 2;
    t->slots = try_alloc(n_slots, sizeof *t->slots);
    if (t->slots == NULL)
        return error_no_memory(err, n_slots * sizeof *t->slots, "its table of names");
    t->mask = n_slots - 1;
    return STATUS_OK;
}

static uint32_t *key_slot(const struct gguf *g, const char *name, size_t len)
{
    size_t i = hash_name(name, len) & g->key_table.mask;

    for (;; i = (i + 1) & g->key_table.mask) {
        uint32_t *slot = &g->key_table.slots[i];
        const struct key *k;

        if (*slot == 0)
            return slot;
        k = &g->keys[*slot - 1];
        if (k->name_len == len && memcmp(k->name, name, len) == 0)
            return slot;
    }
}

static uint32_t *tensor_slot(const struct gguf *g, const char *name, size_t len)
{
    size_t i = hash_name(name, len) & g->tensor_table.mask;

    for (;; i = (i + 1) & g->tensor_table.mask) {
        uint32_t *slot = &g->tensor_table.slots[i];
        const struct named_tensor *t;

        if (*slot == 0)
            return slot;
        t = &g->tensors[*slot - 1];
        if (t->name_len == len && memcmp(t->name, name, len) == 0)
            return slot;
    }
}

/* --- keys ------------------------------------------------------------------------------------- */

static enum status take_type(struct reader *r, enum value_type *ret, struct error *err)
{
    uint32_t type;
    enum status rc = take_u32(r, &type, err);

    if (rc != STATUS_OK)
        return rc;
    if (type >= N_VALUE_TYPES) {
        (void)error_set(err, STATUS_DATA_LOSS, "%" PRIu32 " is no type of a value", type);
        return STATUS_DATA_LOSS;
    }
    *ret = (enum value_type)type;
    return STATUS_OK;
}

static enum status skip_values(struct reader *r, enum value_type type, uint64_t n, int depth,
                               struct error *err);

static enum status take_array_head(struct reader *r, enum value_type *ret_type, uint64_t *ret_n,
                                   struct error *err)
{
    enum status rc = take_type(r, ret_type, err);

    return rc == STATUS_OK ? take_u64(r, ret_n, err) : rc;
}

static enum status skip_fixed(struct reader *r, enum value_type type, uint64_t n, struct error *err)
{
    uint64_t size_bytes;
    const uint8_t *at;
    enum status rc;

    if (__builtin_mul_overflow(n, value_types[type].size_bytes, &size_bytes))
        size_bytes = UINT64_MAX; /* more than any file has */
    rc = take(r, size_bytes, &at, err);
    if (rc != STATUS_OK || type != VALUE_BOOL)
        return rc;
    for (uint64_t i = 0; i < n; i++)
        if (at[i] > 1)
            return error_set(err, STATUS_DATA_LOSS, "%u is no bool", at[i]);
    return STATUS_OK;
}

/* Checks n values and goes past them. Every item of a varying size takes bytes of the file, so the
 * loops end however large n is; the depth bounds the stack. */
static enum status skip_values(struct reader *r, enum value_type type, uint64_t n, int depth,
                               struct error *err)
{
    enum status rc = STATUS_OK;

    if (value_types[type].size_bytes != 0)
        return skip_fixed(r, type, n, err);
    if (depth == ARRAY_DEPTH_MAX)
        return error_set(err, STATUS_DATA_LOSS, "arrays lie in one another more than %d deep",
                         ARRAY_DEPTH_MAX);
    for (uint64_t i = 0; i < n && rc == STATUS_OK; i++) {
        enum value_type item_type;
        uint64_t n_items;
        const char *text;
        size_t len;

        if (type == VALUE_TEXT) {
            rc = take_text(r, &text, &len, err);
        } else {
            rc = take_array_head(r, &item_type, &n_items, err);
            if (rc == STATUS_OK)
                rc = skip_values(r, item_type, n_items, depth + 1, err);
        }
    }
    return rc;
}

static enum status take_value(struct reader *r, struct key *k, struct error *err)
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
    k->value = r->data + r->pos;
    return skip_values(r, type, n, type == VALUE_ARRAY ? 1 : 0, err);
}

static enum status read_keys(struct gguf *g, struct reader *r, uint64_t n, struct error *err)
{
    enum status rc;

    if (n > KEYS_MAX)
        return error_set(err, STATUS_EXHAUSTED, "%" PRIu64 " keys, more than the %d we read", n,
                         KEYS_MAX);
    if (n * KEY_BYTES_MIN > r->size_bytes - r->pos) {
        (void)truncated(err, n * KEY_BYTES_MIN, r->size_bytes - r->pos);
        return error_prefix(err, "its %" PRIu64 " keys", n);
    }
    g->keys = try_alloc(n, sizeof *g->keys);
    if (g->keys == NULL)
        return error_no_memory(err, n * sizeof *g->keys, "its keys");
    rc = table_open(&g->key_table, n, err);
    if (rc != STATUS_OK)
        return rc;
    for (; g->n_keys < n; g->n_keys++) {
        struct key *k = &g->keys[g->n_keys];
        uint32_t *slot;

        if (take_text(r, &k->name, &k->name_len, err) != STATUS_OK)
            return error_prefix(err, "key %zu of %" PRIu64, g->n_keys + 1, n);
        rc = take_value(r, k, err);
        slot = key_slot(g, k->name, k->name_len);
        if (rc == STATUS_OK && k->name_len == 0)
            rc = error_set(err, STATUS_DATA_LOSS, "has no name");
        if (rc == STATUS_OK && *slot != 0)
            rc = error_set(err, STATUS_DATA_LOSS, "stands twice in the file");
        if (rc != STATUS_OK)
            return error_prefix(err, "key '%.*s'", shown_len(k->name_len), k->name);
        *slot = (uint32_t)g->n_keys + 1;
    }
    return STATUS_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static enum status take_name(struct reader *r, struct named_tensor *t, struct error *err)
{
    const char *name;
    enum status rc = take_text(r, &name, &t->name_len, err);

    if (rc != STATUS_OK)
        return rc;
    if (t->name_len == 0 || t->name_len > TENSOR_NAME_MAX || memchr(name, 0, t->name_len) != NULL)
        return error_set(err, STATUS_DATA_LOSS,
                         "its name of %zu bytes is empty, longer than %d or holds a NUL",
                         t->name_len, TENSOR_NAME_MAX);
    memcpy(t->name, name, t->name_len);
    t->tensor.name = t->name;
    return STATUS_OK;
}

static enum status take_type_of_weights(struct reader *r, enum dtype *ret, struct error *err)
{
    uint32_t type;
    enum status rc = take_u32(r, &type, err);
    const char *foreign = NULL;

    if (rc != STATUS_OK)
        return rc;
    if (dtype_name((enum dtype)type) == NULL) {
        if (type < sizeof foreign_types / sizeof foreign_types[0])
            foreign = foreign_types[type];
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "is of type %" PRIu32 " (%s), which this program does not read", type,
                         foreign != NULL ? foreign : "unknown");
    }
    *ret = (enum dtype)type;
    return STATUS_OK;
}

/* Everything of a tensor but its name. */
static enum status take_shape(struct reader *r, struct named_tensor *t, struct error *err)
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
        return error_set(err, STATUS_DATA_LOSS, "claims more bytes than any file has");
    if (w->size_bytes == 0)
        return error_set(err, STATUS_DATA_LOSS, "has no values");
    return STATUS_OK;
}

static enum status read_tensors(struct gguf *g, struct reader *r, uint64_t n, struct error *err)
{
    enum status rc;

    if (n > TENSORS_MAX)
        return error_set(err, STATUS_EXHAUSTED, "%" PRIu64 " tensors, more than the %d we read", n,
                         TENSORS_MAX);
    if (n * TENSOR_BYTES_MIN > r->size_bytes - r->pos) {
        (void)truncated(err, n * TENSOR_BYTES_MIN, r->size_bytes - r->pos);
        return error_prefix(err, "its list of %" PRIu64 " tensors", n);
    }
    g->tensors = try_alloc(n, sizeof *g->tensors);
    if (g->tensors == NULL)
        return error_no_memory(err, n * sizeof *g->tensors, "its list of tensors");
    rc = table_open(&g->tensor_table, n, err);
    if (rc != STATUS_OK)
        return rc;
    for (; g->n_tensors < n; g->n_tensors++) {
        struct named_tensor *t = &g->tensors[g->n_tensors];
        uint32_t *slot;

        if (take_name(r, t, err) != STATUS_OK)
            return error_prefix(err, "tensor %zu of %" PRIu64, g->n_tensors + 1, n);
        rc = take_shape(r, t, err);
        slot = tensor_slot(g, t->name, t->name_len);
        if (rc == STATUS_OK && *slot != 0)
            rc = error_set(err, STATUS_DATA_LOSS, "stands twice in the file");
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

/* No byte belongs to two tensors: a file that says so is broken, and one small file could otherwise
 * ask for any amount of memory once its weights are prepared. */
static enum status check_overlaps(const struct gguf *g, struct error *err)
{
    const struct named_tensor **sorted = try_alloc(g->n_tensors, sizeof *sorted);
    enum status rc = STATUS_OK;

    if (sorted == NULL)
        return error_no_memory(err, g->n_tensors * sizeof *sorted, "its list of tensors");
    for (size_t i = 0; i < g->n_tensors; i++)
        sorted[i] = &g->tensors[i];
    qsort(sorted, g->n_tensors, sizeof *sorted, by_place);
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
    if (rc != STATUS_OK || *ret == 0 || *ret % ALIGNMENT_MULTIPLE != 0 || (*ret & (*ret - 1)) != 0)
        return error_set(err, STATUS_DATA_LOSS,
                         "key 'general.alignment' is no power of two from %d on",
                         ALIGNMENT_MULTIPLE);
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
                             "tensor '%s' lies at offset %" PRIu64 ", not aligned to %" PRIu64,
                             t->name, t->offset, alignment);
        if (__builtin_add_overflow(t->offset, start, &end) ||
            __builtin_add_overflow(end, t->tensor.size_bytes, &end))
            return error_set(err, STATUS_DATA_LOSS, "tensor '%s' lies beyond any file's end",
                             t->name);
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
    for (size_t i = 0; i < g->n_tensors; i++)
        g->tensors[i].tensor.data = g->data + start + g->tensors[i].offset;
    return check_overlaps(g, err);
}

/* --- the file --------------------------------------------------------------------------------- */

static enum status read_file(struct gguf *g, struct error *err)
{
    struct reader r = {g->data, g->size_bytes, 0};
    const uint8_t *magic;
    uint32_t version;
    uint64_t n_tensors, n_keys;
    enum status rc;

    if (g->size_bytes == 0)
        return error_set(err, STATUS_DATA_LOSS, "the file is empty");
    if (g->size_bytes < 4 || memcmp(g->data, "GGUF", 4) != 0)
        return error_set(err, STATUS_DATA_LOSS, "not a GGUF file: it does not begin with 'GGUF'");
    rc = take(&r, 4, &magic, err);
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
    rc = read_keys(g, &r, n_keys, err);
    if (rc == STATUS_OK)
        rc = read_tensors(g, &r, n_tensors, err);
    if (rc == STATUS_OK)
        rc = place_tensors(g, r.pos, err);
    return rc;
}

static enum status map_file(struct gguf *g, struct error *err)
{
    struct stat st;
    void *data;
    enum status rc = STATUS_OK;
    int fd = open(g->path, O_RDONLY | O_CLOEXEC);

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
    if (st.st_size == 0) /* which mmap refuses, and read_file reports */
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
        rc = read_file(g, err);
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

    assert((uintptr_t)data % ALIGNMENT_MULTIPLE == 0);
    g->path = xstrdup(name);
    g->data = data;
    g->size_bytes = size_bytes;
    if (read_file(g, err) != STATUS_OK) {
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

/* --- asking ----------------------------------------------------------------------------------- */

/* NULL with *err filled when there is none. */
static struct key *find_key(const struct gguf *g, const char *name, struct error *err)
{
    uint32_t slot = *key_slot(g, name, strlen(name));

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
                     shown_path(g->path), name, value_types[type].name, wanted);
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
        *ret_bits = load_u16(at);
        return true;
    case VALUE_U32:
        *ret_bits = load_u32(at);
        return true;
    case VALUE_U64:
        *ret_bits = load_u64(at);
        return true;
    case VALUE_I8:
        v = (int8_t)*at;
        break;
    case VALUE_I16:
        v = (int16_t)load_u16(at);
        break;
    case VALUE_I32:
        v = (int32_t)load_u32(at);
        break;
    case VALUE_I64:
        v = (int64_t)load_u64(at);
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
        uint32_t bits = load_u32(k->value);
        float f;

        memcpy(&f, &bits, sizeof f);
        *out = (double)f;
    } else if (k->type == VALUE_F64) {
        uint64_t bits = load_u64(k->value);

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
    *ret_len = load_u64(at);
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
        return wrong_type(g, key, k->item_type, "text in its array", err);
    if (k->texts == NULL) {
        const uint8_t *at = k->value;

        k->texts = try_alloc(k->n_items, sizeof *k->texts);
        if (k->texts == NULL)
            return error_no_memory(err, k->n_items * sizeof *k->texts, key);
        for (size_t n = 0; n < k->n_items; n++) { /* the lengths were checked when it was opened */
            k->texts[n] = at;
            at += 8 + load_u64(at);
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
    if (!load_integer(k->item_type, k->value + i * value_types[k->item_type].size_bytes, &bits,
                      &is_negative))
        return wrong_type(g, key, k->item_type, "integers in its array", err);
    if (!is_negative && bits > INT64_MAX)
        return error_set(err, STATUS_DATA_LOSS, "%s: key '%s': entry %zu is above %" PRId64,
                         shown_path(g->path), key, i, INT64_MAX);
    *out = (int64_t)bits;
    return STATUS_OK;
}

enum status gguf_tensor(const struct gguf *g, const char *name, const struct tensor **out,
                        struct error *err)
{
    uint32_t slot = *tensor_slot(g, name, strlen(name));

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
