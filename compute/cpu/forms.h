/* Shared by the vector files of quantised products: the choice of the kernel by type, which calls
 * `product`, defined by the including file, with the constants of the type's form; and the scalar
 * part of a record. */
#ifndef COMPUTE_CPU_FORMS_H
#define COMPUTE_CPU_FORMS_H

#include "compute/cpu/isa.h"

/* Each is a function of its own: compilers take twice as long over one that holds them all. */
#define PRODUCT(name, ...)                                                                \
    static __attribute__((noinline)) void name(const struct quant_slice *s, size_t first, \
                                               size_t last)                               \
    {                                                                                     \
        product(s, (struct block_form){__VA_ARGS__}, first, last);                        \
    }

PRODUCT(product_q4_0, .bias = 8, .bits = 4)
PRODUCT(product_q4_1, .bits = 4, .has_min = true)
PRODUCT(product_q5_0, .bias = 16, .bits = 5)
PRODUCT(product_q5_1, .bits = 5, .has_min = true)
PRODUCT(product_q8_0, .bias = 128, .bits = 8)
PRODUCT(product_q4_k, .bits = 4, .has_min = true, .scale = SCALE_STEPS)
PRODUCT(product_q5_k, .bits = 5, .has_min = true, .scale = SCALE_STEPS)
PRODUCT(product_q6_k, .bias = 32, .bits = 6, .halves = true, .scale = SCALE_STEPS)
PRODUCT(product_q2_k, .bits = 2, .halves = true, .has_min = true, .scale = SCALE_STEPS)
PRODUCT(product_q3_k, .bias = 4, .bits = 3, .halves = true, .scale = SCALE_STEPS)
PRODUCT(product_iq4_nl, .bias = 128, .bits = 4, .codes = CODE_IQ4)
PRODUCT(product_iq4_xs, .bias = 128, .bits = 4, .scale = SCALE_STEPS, .codes = CODE_IQ4)
PRODUCT(product_mxfp4, .bias = 12, .bits = 4, .scale = SCALE_POWER, .codes = CODE_E2M1)

void ISA_NAME(quant_product)(const struct quant_slice *s, size_t first, size_t last)
{
    static void (*const products[])(const struct quant_slice *s, size_t first, size_t last) = {
        [DTYPE_Q4_0] = product_q4_0,     [DTYPE_Q4_1] = product_q4_1,
        [DTYPE_Q5_0] = product_q5_0,     [DTYPE_Q5_1] = product_q5_1,
        [DTYPE_Q8_0] = product_q8_0,     [DTYPE_Q4_K] = product_q4_k,
        [DTYPE_Q5_K] = product_q5_k,     [DTYPE_Q6_K] = product_q6_k,
        [DTYPE_Q2_K] = product_q2_k,     [DTYPE_Q3_K] = product_q3_k,
        [DTYPE_IQ4_NL] = product_iq4_nl, [DTYPE_IQ4_XS] = product_iq4_xs,
        [DTYPE_MXFP4] = product_mxfp4,
    };

    products[s->type](s, first, last);
}

#endif
