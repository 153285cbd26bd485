/* Converts between wire tensors and the domain's views without copying: decoded views point into
 * the message, encoded tensors into the views. */
#ifndef SERVER_API_PARLEY_WIRE_TENSOR_H
#define SERVER_API_PARLEY_WIRE_TENSOR_H

#include "parley/v1/tensor.pb-c.h"

#include "agents/tensor.h"
#include "base/arena.h"

/* Reads a type. INVALID, with the field "dtype", for a type that is missing or unknown. */
enum status wire_tensor_type(enum tensor_type *out, Parley__V1__DType from,
                             struct error *err) MUST_CHECK;

/* Makes n views of the list, in the arena. INVALID for more than max tensors, for an invalid type
 * or shape, and for bytes that do not fit the shape; the error's field is as "observation[2]",
 * where list_name is "observation". EXHAUSTED without memory. */
enum status wire_tensors(const struct tensor_view **out, Parley__V1__Tensor *const *list, size_t n,
                         size_t max, const char *list_name, struct arena *arena,
                         struct error *err) MUST_CHECK;

/* Fills in the wire's tensor, which then points into t. */
void wire_tensor(Parley__V1__Tensor *out, const struct tensor_view *t);

#endif
