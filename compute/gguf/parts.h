/* What the files of the GGUF reader share: file.c reads bytes, table.c finds names, keys.c returns
 * values, read.c parses the file with them, split.c finds a model's other files, and gguf.c opens
 * and closes it. */
#ifndef COMPUTE_GGUF_PARTS_H
#define COMPUTE_GGUF_PARTS_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "base/status.h"
#include "compute/gguf/tensor.h"

enum {
    GGUF_ALIGNMENT_MULTIPLE = 8,
    GGUF_TENSOR_NAME_MAX = 64,
    GGUF_TENSORS_MAX = 1 << 16,
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

/* By value_type. */
extern const struct value_kind {
    const char *name;
    size_t size_bytes; /* 0: it varies */
} value_kinds[N_VALUE_TYPES];

struct gguf_key {
    const char *name; /* the file's, not NUL-ended */
    size_t name_len;
    enum value_type type;
    enum value_type item_type; /* of an array */
    size_t n_items;            /* of an array */
    const uint8_t *value;      /* the value, or an array's first item */
    const uint8_t **texts;     /* [n_items] where each begins; NULL until first used */
};

struct named_tensor {
    struct tensor tensor;
    uint64_t offset; /* from the start of the data, as the file says */
    size_t name_len;
    char name[GGUF_TENSOR_NAME_MAX + 1];
};

/* From names to positions in an array: open addressing, at most half full. A slot holds the
 * position + 1, 0 is empty. */
struct gguf_table {
    uint32_t *slots;
    size_t mask;
};

struct gguf {
    char *path;
    const uint8_t *data; /* the first n_read bytes; never moves */
    size_t n_read;
    size_t size_bytes; /* of all */
    int fd;            /* -1: all bytes are in data */
    struct stat stat;  /* of the file, when it was opened */
    uint8_t *room;     /* [room_bytes] pages that data is read to, or NULL */
    size_t room_bytes;
    struct gguf_key *keys;
    size_t n_keys;
    struct gguf_table key_table;
    struct named_tensor *tensors;
    size_t n_tensors;
    struct gguf_table tensor_table;
    struct gguf **others; /* [n_others] the model's other files, which tensors may lie in */
    size_t n_others;
    /* Of a model that is translated from another format: the GGUF bytes of its keys, and weights
     * that no file holds. */
    void *own_bytes;
    float *own_weights;
    struct tensor_part *own_parts;
};

/* Whether its keys were made from other files, and are in no file themselves. */
static inline bool gguf_is_made(const struct gguf *g)
{
    return g->own_bytes != NULL;
}

/* file.c */

/* The tail of a path: the end of a long one says more than its beginning. */
const char *gguf_shown_path(const char *path);

/* Opens g's path, and reserves addresses for its metadata; gguf_file_close follows in any case. */
enum status gguf_file_open(struct gguf *g, struct error *err) MUST_CHECK;
/* Unmaps the reserved addresses after the bytes that were read. */
void gguf_file_trim(struct gguf *g);
void gguf_file_close(struct gguf *g);

/* Reads on until the first n bytes are in data; n <= size_bytes. */
enum status gguf_read_on(struct gguf *g, size_t n, struct error *err) MUST_CHECK;

/* Copies n bytes of the file from its byte `at` on. */
enum status gguf_copy(const struct gguf *g, uint64_t at, size_t n, void *to,
                      struct error *err) MUST_CHECK;

/* foreign.c */

/* Says what a file is that does not begin with 'GGUF', by its first bytes: DATA_LOSS, or
 * UNIMPLEMENTED for another format. */
enum status gguf_refuse_foreign(const uint8_t *data, size_t len, struct error *err);
/* DATA_LOSS where the file is a pointer of Git LFS. */
enum status gguf_refuse_pointer(const struct gguf *g, struct error *err) MUST_CHECK;

/* table.c */

enum status gguf_table_open(struct gguf_table *t, size_t n, struct error *err) MUST_CHECK;

/* The slot of a name; where the name is absent, a free slot for it, whose content is 0. */
uint32_t *gguf_key_slot(const struct gguf *g, const char *name, size_t len);
uint32_t *gguf_tensor_slot(const struct gguf *g, const char *name, size_t len);

/* Makes room for n tensors and their names; g has none. */
enum status gguf_tensors_reserve(struct gguf *g, size_t n, struct error *err) MUST_CHECK;
/* Adds copies of a file's tensors, for which there is room. DATA_LOSS for a name that g has. */
enum status gguf_tensors_join(struct gguf *g, const struct gguf *from,
                              struct error *err) MUST_CHECK;

/* Drops all tensors. */
void gguf_tensors_clear(struct gguf *g);
/* Adds a copy of a tensor, for which there is room. DATA_LOSS for a name that g has. */
enum status gguf_tensors_add(struct gguf *g, const struct named_tensor *t,
                             struct error *err) MUST_CHECK;

/* tensor_form.c */

/* tensor_read of a tensor that is not TENSOR_PLAIN, without its checks. */
enum status gguf_copy_formed(const struct tensor *t, size_t first, size_t n, void *to,
                             struct error *err) MUST_CHECK;

/* safetensors.c */

/* Whether the path is a folder, or a file of such a folder by its name. */
bool gguf_is_safetensors(const char *path);
/* As gguf_open. */
enum status gguf_open_safetensors(struct gguf **out, const char *path,
                                  struct error *err) MUST_CHECK;

/* gguf.c */

/* One file, without the others of its model. The text of a failure does not name it. */
enum status gguf_file_read(struct gguf **out, const char *path, struct error *err) MUST_CHECK;

/* split.c */

/* Opens the other files of a split model and takes their tensors. On failure g is to be closed. */
enum status gguf_split_open(struct gguf *g, struct error *err) MUST_CHECK;
/* UNIMPLEMENTED for one of several files. */
enum status gguf_split_refuse(const struct gguf *g, struct error *err) MUST_CHECK;

/* read.c */

/* Fills g's keys and tensors from its data, after checking every one. On failure g is half filled,
 * and the text does not name the file. */
enum status gguf_read(struct gguf *g, struct error *err) MUST_CHECK;

static inline uint16_t gguf_load_u16(const uint8_t *at)
{
    uint16_t v;

    memcpy(&v, at, sizeof(v));
    return le16toh(v);
}

static inline uint32_t gguf_load_u32(const uint8_t *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof(v));
    return le32toh(v);
}

static inline uint64_t gguf_load_u64(const uint8_t *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof(v));
    return le64toh(v);
}

#endif
