#include <string.h>

#include "compute/gguf/hf_parts.h"

enum { KEYS_MAX_BYTES = 256 << 20 };

static void hf_put(struct hf_keys *k, const void *bytes, size_t n)
{
    if (!k->has_failed && buf_append(&k->bytes, bytes, n) != STATUS_OK)
        k->has_failed = true;
}

/* Little endian, as all of GGUF. */
static void hf_put_int(struct hf_keys *k, uint64_t v, size_t n_bytes)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(v >> 8 * i);
    hf_put(k, bytes, n_bytes);
}

static void hf_put_head(struct hf_keys *k)
{
    hf_put(k, "GGUF", 4);
    hf_put_int(k, 3, 4);
    hf_put_int(k, 0, 8); /* tensors */
    hf_put_int(k, 0, 8); /* keys: set at the end */
}

void hf_keys_init(struct hf_keys *k)
{
    *k = (struct hf_keys){.prefix = ""};
    buf_init(&k->bytes, KEYS_MAX_BYTES);
    hf_put_head(k);
}

void hf_keys_deinit(struct hf_keys *k)
{
    buf_deinit(&k->bytes);
}

static void hf_put_key(struct hf_keys *k, const char *name, enum value_type type)
{
    size_t n_prefix = name[0] == '.' ? strlen(k->prefix) : 0;

    hf_put_int(k, n_prefix + strlen(name), 8);
    hf_put(k, k->prefix, n_prefix);
    hf_put(k, name, strlen(name));
    hf_put_int(k, type, 4);
    k->n++;
}

void hf_item_text(struct hf_keys *k, const char *text, size_t len)
{
    hf_put_int(k, len, 8);
    hf_put(k, text, len);
}

void hf_item_number(struct hf_keys *k, uint32_t number)
{
    hf_put_int(k, number, 4);
}

void hf_key_text(struct hf_keys *k, const char *name, const char *text, size_t len)
{
    hf_put_key(k, name, VALUE_TEXT);
    hf_item_text(k, text, len);
}

void hf_key_u64(struct hf_keys *k, const char *name, uint64_t value)
{
    hf_put_key(k, name, VALUE_U64);
    hf_put_int(k, value, 8);
}

void hf_key_f32(struct hf_keys *k, const char *name, double value)
{
    float f = (float)value;
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    hf_put_key(k, name, VALUE_F32);
    hf_put_int(k, bits, 4);
}

void hf_key_bool(struct hf_keys *k, const char *name, bool value)
{
    hf_put_key(k, name, VALUE_BOOL);
    hf_put_int(k, value, 1);
}

static void hf_put_array(struct hf_keys *k, const char *name, enum value_type type, uint64_t n)
{
    hf_put_key(k, name, VALUE_ARRAY);
    hf_put_int(k, type, 4);
    hf_put_int(k, n, 8);
}

void hf_key_texts(struct hf_keys *k, const char *name, uint64_t n)
{
    hf_put_array(k, name, VALUE_TEXT, n);
}

void hf_key_numbers(struct hf_keys *k, const char *name, uint64_t n)
{
    hf_put_array(k, name, VALUE_U32, n);
}

void hf_key_floats(struct hf_keys *k, const char *name, uint64_t n)
{
    hf_put_array(k, name, VALUE_F32, n);
}

void hf_item_float(struct hf_keys *k, double number)
{
    float f = (float)number;
    uint32_t bits;

    memcpy(&bits, &f, sizeof(bits));
    hf_put_int(k, bits, 4);
}

void hf_key_bools(struct hf_keys *k, const char *name, const bool *values, uint64_t n)
{
    hf_put_array(k, name, VALUE_BOOL, n);
    for (uint64_t i = 0; i < n; i++)
        hf_put_int(k, values[i], 1);
}

enum status hf_keys_take(struct hf_keys *k, void **ret, size_t *ret_len, struct error *err)
{
    uint64_t n = htole64(k->n);

    if (k->has_failed)
        return error_no_memory(err, 0, "the model's keys");
    memcpy(k->bytes.data + 16, &n, sizeof(n));
    *ret = k->bytes.data;
    *ret_len = k->bytes.len;
    buf_init(&k->bytes, KEYS_MAX_BYTES); /* its memory is the caller's now */
    return STATUS_OK;
}
