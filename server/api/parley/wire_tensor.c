#include "server/api/parley/wire_tensor.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)PARLEY__V1__DTYPE__DTYPE_BOOL == (int)TENSOR_BOOL + 1, "an offset maps");
_Static_assert((int)PARLEY__V1__DTYPE__DTYPE_I32 == (int)TENSOR_I32 + 1, "an offset maps");

enum status wire_tensor_type(enum tensor_type *out, Parley__V1__DType from, struct error *err)
{
    if (from == PARLEY__V1__DTYPE__DTYPE_UNSPECIFIED)
        return error_field(err, "dtype", "is missing");
    if ((int)from < 0 || (int)from > (int)TENSOR_BOOL + 1)
        return error_field(err, "dtype", "is %d, which is not a type", (int)from);
    *out = (enum tensor_type)((int)from - 1);
    return STATUS_OK;
}

static enum status wire_tensor_take(struct tensor_view *out, const Parley__V1__Tensor *from,
                                    struct error *err)
{
    size_t ignored;

    if (wire_tensor_type(&out->type, from->dtype, err) != STATUS_OK)
        return err->status;
    if (from->n_shape > TENSOR_MAX_DIMS)
        return error_set(err, STATUS_INVALID, "has %zu dimensions, at most %d are read",
                         from->n_shape, TENSOR_MAX_DIMS);
    out->name = from->name;
    out->n_dims = from->n_shape;
    for (size_t i = 0; i < from->n_shape; i++)
        out->dims[i] = from->shape[i];
    out->data = from->data.data;
    out->size_bytes = from->data.len;
    return tensor_check(out, &ignored, err);
}

enum status wire_tensors(const struct tensor_view **out, Parley__V1__Tensor *const *list, size_t n,
                         size_t max, const char *list_name, struct arena *arena, struct error *err)
{
    struct tensor_view *views;

    if (n > max)
        return error_field(err, list_name, "has %zu tensors, at most %zu are taken", n, max);
    views = arena_alloc(arena, n, sizeof(views[0]));
    if (views == NULL)
        return error_no_memory(err, n * sizeof(views[0]), "tensors");
    for (size_t i = 0; i < n; i++) {
        if (wire_tensor_take(&views[i], list[i], err) != STATUS_OK) {
            char field[sizeof(err->field)];

            (void)snprintf(field, sizeof(field), "%s[%zu]", list_name, i);
            (void)error_prefix(err, "%s", field);
            return error_name_field(err, field);
        }
    }
    *out = views;
    return STATUS_OK;
}

void wire_tensor(Parley__V1__Tensor *out, const struct tensor_view *t)
{
    parley__v1__tensor__init(out);
    out->name = (char *)t->name;
    out->dtype = (Parley__V1__DType)((int)t->type + 1);
    out->shape = (int64_t *)t->dims;
    out->n_shape = t->n_dims;
    out->data.data = (uint8_t *)t->data;
    out->data.len = t->size_bytes;
}
