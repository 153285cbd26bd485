/* The table of a set of kernels. */
#include "compute/cpu/isa.h"

const struct kernels ISA_NAME(kernels) = {
    .name = ISA_STRING(ISA),
    .quantise = ISA_NAME(quantise),
    .quant_product = ISA_NAME(quant_product),
    .dense_product = FLOAT_NAME(dense_product),
    .linear = FLOAT_NAME(linear),
    .linear_pack = FLOAT_NAME(linear_pack),
    .linear_to_input = FLOAT_NAME(linear_to_input),
    .linear_to_weight = FLOAT_NAME(linear_to_weight),
    .dropout = FLOAT_NAME(dropout),
    .rms_norm = FLOAT_NAME(rms_norm),
    .rope = FLOAT_NAME(rope),
    .rope_halves = FLOAT_NAME(rope_halves),
    .swiglu = FLOAT_NAME(swiglu),
    .geglu = FLOAT_NAME(geglu),
    .scale = FLOAT_NAME(scale),
    .add = FLOAT_NAME(add),
    .layer_norm = FLOAT_NAME(layer_norm),
    .activate = FLOAT_NAME(activate),
    .add_tap = FLOAT_NAME(add_tap),
    .recur = FLOAT_NAME(recur),
    .kv_store = FLOAT_NAME(kv_store),
    .attend = ATTEND_NAME(attend),
    .attend_merge = ATTEND_NAME(attend_merge),
};
