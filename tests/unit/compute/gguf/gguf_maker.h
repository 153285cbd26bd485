/* Writes GGUF bytes piece by piece, valid or not as the test needs. */
#ifndef TESTS_UNIT_COMPUTE_GGUF_GGUF_MAKER_H
#define TESTS_UNIT_COMPUTE_GGUF_GGUF_MAKER_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum gguf_value { /* the format's numbers */
                  GGUF_U8,
                  GGUF_I8,
                  GGUF_U16,
                  GGUF_I16,
                  GGUF_U32,
                  GGUF_I32,
                  GGUF_F32,
                  GGUF_BOOL,
                  GGUF_TEXT,
                  GGUF_ARRAY,
                  GGUF_U64,
                  GGUF_I64,
                  GGUF_F64,
};

struct gguf_maker {
    _Alignas(16) uint8_t bytes[1 << 21];
    size_t len;
};

static inline void make_bytes(struct gguf_maker *m, const void *bytes, size_t len)
{
    assert(len <= sizeof(m->bytes) - m->len);
    memcpy(m->bytes + m->len, bytes, len);
    m->len += len;
}

static inline void make_zeros(struct gguf_maker *m, size_t len)
{
    assert(len <= sizeof(m->bytes) - m->len);
    memset(m->bytes + m->len, 0, len);
    m->len += len;
}

/* An integer of n_bytes, little endian. */
static inline void make_int(struct gguf_maker *m, uint64_t v, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        make_bytes(m, &(uint8_t){(uint8_t)(v >> 8 * i)}, 1);
}

static inline void make_text(struct gguf_maker *m, const char *text)
{
    make_int(m, strlen(text), 8);
    make_bytes(m, text, strlen(text));
}

static inline void make_head(struct gguf_maker *m, uint32_t version, uint64_t n_tensors,
                             uint64_t n_keys)
{
    m->len = 0;
    make_bytes(m, "GGUF", 4);
    make_int(m, version, 4);
    make_int(m, n_tensors, 8);
    make_int(m, n_keys, 8);
}

/* A key's name and type; the value is to follow. */
static inline void make_key(struct gguf_maker *m, const char *name, uint32_t type)
{
    make_text(m, name);
    make_int(m, type, 4);
}

static inline void make_key_int(struct gguf_maker *m, const char *name, uint32_t type, uint64_t v,
                                size_t n_bytes)
{
    make_key(m, name, type);
    make_int(m, v, n_bytes);
}

static inline void make_key_text(struct gguf_maker *m, const char *name, const char *text)
{
    make_key(m, name, GGUF_TEXT);
    make_text(m, text);
}

/* An array's head; its items are to follow. */
static inline void make_key_array(struct gguf_maker *m, const char *name, uint32_t item_type,
                                  uint64_t n_items)
{
    make_key(m, name, GGUF_ARRAY);
    make_int(m, item_type, 4);
    make_int(m, n_items, 8);
}

/* A tensor of two dimensions: n_cols values per row. */
static inline void make_tensor(struct gguf_maker *m, const char *name, uint32_t type,
                               uint64_t n_cols, uint64_t n_rows, uint64_t offset)
{
    make_text(m, name);
    make_int(m, 2, 4);
    make_int(m, n_cols, 8);
    make_int(m, n_rows, 8);
    make_int(m, type, 4);
    make_int(m, offset, 8);
}

static inline void make_padding(struct gguf_maker *m, size_t alignment)
{
    make_zeros(m, (alignment - m->len % alignment) % alignment);
}

/* A small file with a key of each type, arrays of several, and three tensors: 'f32' [2][4] holding
 * 0, 1, … 7, 'q8' [1][32] (scale 0.5, values 0 … 31), and 'vector', f16 [1][3] with one dimension.
 */
static inline void make_good(struct gguf_maker *m)
{
    make_head(m, 3, 3, 19);
    make_key_int(m, "u8", GGUF_U8, 200, 1);
    make_key_int(m, "i8", GGUF_I8, (uint8_t)-3, 1);
    make_key_int(m, "u16", GGUF_U16, 60000, 2);
    make_key_int(m, "i16", GGUF_I16, 300, 2);
    make_key_int(m, "u32", GGUF_U32, 4000000000, 4);
    make_key_int(m, "i32", GGUF_I32, 70000, 4);
    make_key_int(m, "f32", GGUF_F32, 0x3fc00000, 4); /* 1.5 */
    make_key_int(m, "yes", GGUF_BOOL, 1, 1);
    make_key_int(m, "no", GGUF_BOOL, 0, 1);
    make_key_text(m, "text", "words");
    make_key_text(m, "none", "");
    make_key_int(m, "u64", GGUF_U64, UINT64_MAX, 8);
    make_key_int(m, "i64", GGUF_I64, (uint64_t)-1, 8);
    make_key_int(m, "f64", GGUF_F64, 0xc004000000000000, 8); /* -2.5 */
    make_key_array(m, "texts", GGUF_TEXT, 3);
    make_text(m, "one");
    make_text(m, "");
    make_text(m, "three");
    make_key_array(m, "shorts", GGUF_I16, 3);
    make_int(m, 1, 2);
    make_int(m, (uint16_t)-2, 2);
    make_int(m, 3, 2);
    make_key_array(m, "longs", GGUF_U64, 2);
    make_int(m, INT64_MAX, 8);
    make_int(m, UINT64_MAX, 8);
    make_key_array(m, "empty", GGUF_F32, 0);
    make_key_array(m, "nested", GGUF_ARRAY, 2);
    make_int(m, GGUF_BOOL, 4);
    make_int(m, 1, 8);
    make_int(m, 1, 1);
    make_int(m, GGUF_TEXT, 4);
    make_int(m, 1, 8);
    make_text(m, "deep");
    make_tensor(m, "f32", 0, 4, 2, 0);
    make_tensor(m, "q8", 8, 32, 1, 64);
    make_text(m, "vector");
    make_int(m, 1, 4);
    make_int(m, 3, 8);
    make_int(m, 1, 4); /* f16 */
    make_int(m, 32, 8);
    make_padding(m, 32);
    for (int i = 0; i < 8; i++)
        make_bytes(m, &(float){(float)i}, 4);
    make_int(m, 0x3c00, 2); /* 1, 2, 3 as halves */
    make_int(m, 0x4000, 2);
    make_int(m, 0x4200, 2);
    make_padding(m, 32);
    make_int(m, 0x3800, 2); /* 0.5 */
    for (int i = 0; i < 32; i++)
        make_int(m, (uint64_t)i, 1);
}

#endif
