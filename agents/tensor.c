#include "agents/tensor.h"

#include <stdbool.h>
#include <stdio.h>

static const struct {
    const char *name;
    size_t size;
} types[] = {
    [TENSOR_F32] = {"f32", 4}, [TENSOR_F64] = {"f64", 8}, [TENSOR_I32] = {"i32", 4},
    [TENSOR_I64] = {"i64", 8}, [TENSOR_U8] = {"u8", 1},   [TENSOR_BOOL] = {"bool", 1},
};

const char *tensor_type_name(enum tensor_type type)
{
    return types[type].name;
}

size_t tensor_type_size(enum tensor_type type)
{
    return types[type].size;
}

enum { SHAPE_TEXT_MAX = 80 };

/* "f32[3,-1]", cut when it is too long. */
static void tensor_shape_text(enum tensor_type type, const int64_t *dims, size_t n_dims,
                              char out[SHAPE_TEXT_MAX])
{
    size_t len = (size_t)snprintf(out, SHAPE_TEXT_MAX, "%s[", tensor_type_name(type));

    for (size_t i = 0; i < n_dims && len < SHAPE_TEXT_MAX - 1; i++)
        len += (size_t)snprintf(out + len, SHAPE_TEXT_MAX - len, "%s%lld", i > 0 ? "," : "",
                                (long long)dims[i]);
    if (len < SHAPE_TEXT_MAX - 1)
        (void)snprintf(out + len, SHAPE_TEXT_MAX - len, "]"); /* fits */
}

enum status tensor_check(const struct tensor_view *t, size_t *ret_n, struct error *err)
{
    char shape[SHAPE_TEXT_MAX];
    size_t n = 1;
    bool is_bad = t->n_dims > TENSOR_MAX_DIMS;

    for (size_t i = 0; i < t->n_dims && !is_bad; i++)
        is_bad = t->dims[i] < 0 || __builtin_mul_overflow(n, (size_t)t->dims[i], &n);
    if (t->n_dims > TENSOR_MAX_DIMS)
        return error_field(err, t->name, "has %zu dimensions, it may have at most %d", t->n_dims,
                           TENSOR_MAX_DIMS);
    tensor_shape_text(t->type, t->dims, t->n_dims, shape);
    if (is_bad)
        return error_field(err, t->name, "has the impossible shape %s", shape);
    if (n > SIZE_MAX / 8 || n * tensor_type_size(t->type) != t->size_bytes)
        return error_field(err, t->name, "has %zu bytes, but its shape %s needs %zu", t->size_bytes,
                           shape, n > SIZE_MAX / 8 ? SIZE_MAX : n * tensor_type_size(t->type));
    *ret_n = n;
    return STATUS_OK;
}

enum status tensor_expect(const struct tensor_view *t, enum tensor_type type, const int64_t *dims,
                          size_t n_dims, struct error *err)
{
    bool is_same = t->type == type && t->n_dims == n_dims;
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    size_t n;

    for (size_t i = 0; i < n_dims && is_same; i++)
        is_same = dims[i] == -1 || dims[i] == t->dims[i];
    if (is_same)
        return tensor_check(t, &n, err);
    tensor_shape_text(t->type, t->dims, t->n_dims < TENSOR_MAX_DIMS ? t->n_dims : TENSOR_MAX_DIMS,
                      have);
    tensor_shape_text(type, dims, n_dims, want);
    return error_field(err, t->name, "is %s, it must be %s", have, want);
}
