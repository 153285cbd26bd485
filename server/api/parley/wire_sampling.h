/* Converts between sampling parameters and parley.v1's message of them. */
#ifndef SERVER_API_PARLEY_WIRE_SAMPLING_H
#define SERVER_API_PARLEY_WIRE_SAMPLING_H

#include "parley/v1/sampling.pb-c.h"

#include "base/arena.h"
#include "server/conversation/sampling.h"

/* Reads what a client gave. *out is NULL where from is NULL; otherwise *out lies in the arena and
 * borrows the message's texts. INVALID names the field. */
enum status wire_sampling(const struct sampling_overrides **out, const Parley__V1__Sampling *from,
                          struct arena *arena, struct error *err) MUST_CHECK;

/* Makes a message of the values whose bits, of enum sampling_field, are in given. No other field is
 * set. The message lies in the arena, with copies of all texts. EXHAUSTED without memory. */
enum status wire_sampling_message(Parley__V1__Sampling **out, const struct sampling *values,
                                  uint32_t given, struct arena *arena) MUST_CHECK;

#endif
