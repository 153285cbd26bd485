/* What the two halves of the GGUF reader share: gguf_read.c turns bytes into these, gguf.c answers
 * from them. */
#ifndef COMPUTE_GGUF_PARTS_H
#define COMPUTE_GGUF_PARTS_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "compute/gguf.h"

enum {
    GGUF_ALIGNMENT_MULTIPLE = 8,
    GGUF_TENSOR_NAME_MAX = 64,
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
    char name[GGUF_TENSOR_NAME_MAX + 1];
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

/* Fills g's keys and tensors from its data, after checking every one. On failure g is half filled,
 * and the text does not name the file. */
enum status gguf_read(struct gguf *g, struct error *err) MUST_CHECK;

/* The slot where a name stands, or is to stand: its content is then 0. */
uint32_t *gguf_key_slot(const struct gguf *g, const char *name, size_t len);
uint32_t *gguf_tensor_slot(const struct gguf *g, const char *name, size_t len);

static inline uint16_t gguf_load_u16(const uint8_t *at)
{
    uint16_t v;

    memcpy(&v, at, sizeof v);
    return le16toh(v);
}

static inline uint32_t gguf_load_u32(const uint8_t *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof v);
    return le32toh(v);
}

static inline uint64_t gguf_load_u64(const uint8_t *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof v);
    return le64toh(v);
}

#endif
