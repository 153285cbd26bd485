/* The keys of a GGUF file, by name. */
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/parts.h"

const struct value_kind value_kinds[N_VALUE_TYPES] = {
    [VALUE_U8] = {"u8", 1},       [VALUE_I8] = {"i8", 1},     [VALUE_U16] = {"u16", 2},
    [VALUE_I16] = {"i16", 2},     [VALUE_U32] = {"u32", 4},   [VALUE_I32] = {"i32", 4},
    [VALUE_F32] = {"f32", 4},     [VALUE_BOOL] = {"bool", 1}, [VALUE_TEXT] = {"text", 0},
    [VALUE_ARRAY] = {"array", 0}, [VALUE_U64] = {"u64", 8},   [VALUE_I64] = {"i64", 8},
    [VALUE_F64] = {"f64", 8},
};

/* NULL with *err filled when there is none. */
static struct gguf_key *find_key(const struct gguf *g, const char *name, struct error *err)
{
    uint32_t slot = *gguf_key_slot(g, name, strlen(name));

    if (slot == 0) {
        (void)error_set(err, STATUS_NOT_FOUND, "%s: key '%s' is absent", gguf_shown_path(g->path),
                        name);
        return NULL;
    }
    return &g->keys[slot - 1];
}

static enum status wrong_type(const struct gguf *g, const char *name, enum value_type type,
                              const char *wanted, struct error *err)
{
    return error_set(err, STATUS_DATA_LOSS, "%s: key '%s' has the type %s, it must be %s",
                     gguf_shown_path(g->path), name, value_kinds[type].name, wanted);
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
    const struct gguf_key *k = find_key(g, key, err);
    uint64_t bits;
    bool is_negative;

    if (k == NULL)
        return err->status;
    if (!load_integer(k->type, k->value, &bits, &is_negative))
        return wrong_type(g, key, k->type, "an integer", err);
    if (is_negative)
        return error_set(err, STATUS_DATA_LOSS, "%s: key '%s' is negative",
                         gguf_shown_path(g->path), key);
    *out = bits;
    return STATUS_OK;
}

static bool load_float(enum value_type type, const uint8_t *at, double *out)
{
    if (type == VALUE_F32) {
        uint32_t bits = gguf_load_u32(at);
        float f;

        memcpy(&f, &bits, sizeof(f));
        *out = (double)f;
    } else if (type == VALUE_F64) {
        uint64_t bits = gguf_load_u64(at);

        memcpy(out, &bits, sizeof(*out));
    }
    return type == VALUE_F32 || type == VALUE_F64;
}

enum status gguf_get_f64(const struct gguf *g, const char *key, double *out, struct error *err)
{
    const struct gguf_key *k = find_key(g, key, err);

    if (k == NULL)
        return err->status;
    return load_float(k->type, k->value, out) ? STATUS_OK
                                              : wrong_type(g, key, k->type, "a float", err);
}

enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct error *err)
{
    const struct gguf_key *k = find_key(g, key, err);

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
    const struct gguf_key *k = find_key(g, key, err);

    if (k == NULL)
        return err->status;
    if (k->type != VALUE_TEXT)
        return wrong_type(g, key, k->type, "text", err);
    load_text(k->value, ret_text, ret_len);
    return STATUS_OK;
}

static struct gguf_key *find_array(const struct gguf *g, const char *name, struct error *err)
{
    struct gguf_key *k = find_key(g, name, err);

    if (k != NULL && k->type != VALUE_ARRAY) {
        (void)wrong_type(g, name, k->type, "an array", err);
        return NULL;
    }
    return k;
}

/* Finds the array, and checks that it has an entry i. */
static struct gguf_key *find_entry(const struct gguf *g, const char *name, size_t i,
                                   struct error *err)
{
    struct gguf_key *k = find_array(g, name, err);

    if (k != NULL && i >= k->n_items) {
        (void)error_set(err, STATUS_DATA_LOSS,
                        "%s: key '%s' has %zu entries, so there is no entry %zu",
                        gguf_shown_path(g->path), name, k->n_items, i);
        return NULL;
    }
    return k;
}

enum status gguf_array_len(const struct gguf *g, const char *key, size_t *out, struct error *err)
{
    const struct gguf_key *k = find_array(g, key, err);

    if (k == NULL)
        return err->status;
    *out = k->n_items;
    return STATUS_OK;
}

enum status gguf_array_text(struct gguf *g, const char *key, size_t i, const char **ret_text,
                            size_t *ret_len, struct error *err)
{
    struct gguf_key *k = find_entry(g, key, i, err);

    if (k == NULL)
        return err->status;
    if (k->item_type != VALUE_TEXT)
        return wrong_type(g, key, k->item_type, "an array of text", err);
    if (k->texts == NULL) {
        const uint8_t *at = k->value;

        k->texts = try_alloc(k->n_items, sizeof(*k->texts));
        if (k->texts == NULL)
            return error_no_memory(err, k->n_items * sizeof(*k->texts), key);
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
    const struct gguf_key *k = find_entry(g, key, i, err);
    uint64_t bits;
    bool is_negative;

    if (k == NULL)
        return err->status;
    if (!load_integer(k->item_type, k->value + i * value_kinds[k->item_type].size_bytes, &bits,
                      &is_negative))
        return wrong_type(g, key, k->item_type, "an array of integers", err);
    if (!is_negative && bits > INT64_MAX)
        return error_set(err, STATUS_DATA_LOSS, "%s: key '%s': entry %zu is above %" PRId64,
                         gguf_shown_path(g->path), key, i, INT64_MAX);
    *out = (int64_t)bits;
    return STATUS_OK;
}

enum status gguf_array_bool(const struct gguf *g, const char *key, size_t i, bool *out,
                            struct error *err)
{
    const struct gguf_key *k = find_entry(g, key, i, err);

    if (k == NULL)
        return err->status;
    if (k->item_type != VALUE_BOOL)
        return wrong_type(g, key, k->item_type, "an array of bools", err);
    *out = k->value[i] != 0;
    return STATUS_OK;
}

enum status gguf_array_f64(const struct gguf *g, const char *key, size_t i, double *out,
                           struct error *err)
{
    const struct gguf_key *k = find_entry(g, key, i, err);

    if (k == NULL)
        return err->status;
    if (!load_float(k->item_type, k->value + i * value_kinds[k->item_type].size_bytes, out))
        return wrong_type(g, key, k->item_type, "an array of floats", err);
    return STATUS_OK;
}

size_t gguf_n_keys(const struct gguf *g)
{
    return g->n_keys;
}

const char *gguf_key_at(const struct gguf *g, size_t i, size_t *ret_len)
{
    assert(i < g->n_keys);
    *ret_len = g->keys[i].name_len;
    return g->keys[i].name;
}
