/* A named array of numbers on its way in or out of an agent: an observation, an action, a gradient.
 * Row-major; the numbers are little endian. The view borrows them. */
#ifndef AGENTS_TENSOR_H
#define AGENTS_TENSOR_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum tensor_type { TENSOR_F32, TENSOR_F64, TENSOR_I32, TENSOR_I64, TENSOR_U8, TENSOR_BOOL };

enum { TENSOR_MAX_DIMS = 8 };

struct tensor_view {
    const char *name;
    enum tensor_type type;
    size_t n_dims; /* 0: a scalar */
    int64_t dims[TENSOR_MAX_DIMS];
    const void *data; /* [size_bytes], aligned to its numbers */
    size_t size_bytes;
};

/* "f32", "f64", "i32", "i64", "u8", "bool". */
const char *tensor_type_name(enum tensor_type type);
size_t tensor_type_size(enum tensor_type type);

/* *ret_n: how many numbers; 1 for a scalar. STATUS_INVALID if a dim is negative, the product
 * overflows, or size_bytes does not match; the error names the tensor and its shape. */
enum status tensor_check(const struct tensor_view *t, size_t *ret_n, struct error *err) MUST_CHECK;

/* Checks that t has this type and shape (a dim of -1 stands for any); the error names the tensor
 * and both shapes. */
enum status tensor_expect(const struct tensor_view *t, enum tensor_type type, const int64_t *dims,
                          size_t n_dims, struct error *err) MUST_CHECK;

#endif
