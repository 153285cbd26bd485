/* The one table of the sampling parameters that are a number each. The members of struct sampling,
 * the bits of sampling_overrides, JSON's names, the messages of parley.v1, libparley and the bodies
 * of the journal's records are all made from it. Stop texts, biases and constraints are no numbers
 * and have no row. This header includes nothing of the tree, since libparley knows no engine. */
#ifndef PROTO_SAMPLING_FIELDS_H
#define PROTO_SAMPLING_FIELDS_H

#include <float.h>
#include <stdbool.h>
#include <stdint.h>

/* ROW(name, NAME, kind, number, neutral, least, most, bounds, since):
 *   name         the member's name in each struct, the message's field, JSON's field, in errors
 *   NAME         the end of its bits' names: SAMPLING_NAME in the engine, PARLEY_NAME in libparley
 *   kind         float, u32, u64 or bool; SAMPLING_TYPE_kind is its type
 *   number       of the field in sampling.proto; its bit in stored overrides is 1 << (number - 1)
 *   neutral      the value that changes nothing
 *   least, most  the bounds, both allowed; a number that is not finite is never allowed
 *   bounds       what an error says of them, after "it must be"
 *   since        the version of the journal's bodies that has the parameter first
 * The order is that of the journal's bodies: a new row goes last. */
#define SAMPLING_TYPE_float float
#define SAMPLING_TYPE_u32 uint32_t
#define SAMPLING_TYPE_u64 uint64_t
#define SAMPLING_TYPE_bool bool

/* clang-format off */
#define SAMPLING_FIELDS(ROW) \
    ROW(temperature,        TEMPERATURE,        float, 1,  1, 0,       FLT_MAX, "0 or above",               1) \
    ROW(top_p,              TOP_P,              float, 3,  1, 0,       1,       "from 0 to 1",              1) \
    ROW(min_p,              MIN_P,              float, 4,  0, 0,       1,       "from 0 to 1",              1) \
    ROW(top_k,              TOP_K,              u32,   2,  0, 0,       FLT_MAX, "0 (all) or above",         1) \
    ROW(repetition_penalty, REPETITION_PENALTY, float, 5,  1, FLT_MIN, FLT_MAX, "above 0",                  1) \
    ROW(presence_penalty,   PRESENCE_PENALTY,   float, 6,  0, -2,      2,       "from -2 to 2",             1) \
    ROW(frequency_penalty,  FREQUENCY_PENALTY,  float, 7,  0, -2,      2,       "from -2 to 2",             1) \
    ROW(max_tokens,         MAX_TOKENS,         u32,   11, 0, 0,       FLT_MAX, "0 (no bound) or above",    1) \
    ROW(min_tokens,         MIN_TOKENS,         u32,   12, 0, 0,       FLT_MAX, "0 or above",               1) \
    ROW(seed,               SEED,               u64,   9,  0, 0,       FLT_MAX, "0 or above",               1) \
    ROW(ignore_eos,         IGNORE_EOS,         bool,  13, 0, 0,       1,       "true or false",            1)
/* clang-format on */

#endif
