/* Between tensors of the wire and the domain's views of them. Nothing is copied: what is decoded
 * points into the message, what is encoded into the views. */
#ifndef SERVER_WIRE_TENSOR_H
#define SERVER_WIRE_TENSOR_H

#include "parley/v1/tensor.pb-c.h"

#include "agents/tensor.h"
#include "base/arena.h"

/* [n] views, in arena, of what list holds. INVALID, with the field "observation[2]" where that is
 * the list's name: a type or a shape that is none, bytes that do not fit. EXHAUSTED: more than max,
 * no memory. */
enum status wire_tensors(const struct tensor_view **out, Parley__V1__Tensor *const *list, size_t n,
                         size_t max, const char *list_name, struct arena *arena,
                         struct error *err) MUST_CHECK;

/* Points into t. */
void wire_tensor(Parley__V1__Tensor *out, const struct tensor_view *t);

#endif
