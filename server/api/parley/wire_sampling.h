/* Sampling parameters as parley.v1's message. */
#ifndef SERVER_API_PARLEY_WIRE_SAMPLING_H
#define SERVER_API_PARLEY_WIRE_SAMPLING_H

#include "parley/v1/sampling.pb-c.h"

#include "base/arena.h"
#include "server/conversation/sampling.h"

/* What a client gave. *out is NULL where from is; else *out borrows the message's texts and lies in
 * the arena. STATUS_INVALID names the field. */
enum status wire_sampling(const struct sampling_overrides **out, const Parley__V1__Sampling *from,
                          struct arena *arena, struct error *err) MUST_CHECK;

/* A message of the values whose bits are in given (of enum sampling_field); no other field is set.
 * The message lies in the arena, with copies of all texts. STATUS_EXHAUSTED without memory. */
enum status wire_sampling_message(Parley__V1__Sampling **out, const struct sampling *values,
                                  uint32_t given, struct arena *arena) MUST_CHECK;

#endif
