/* Shared by the vector files of quantised products: the choice of the kernel by form, which calls
 * `product`, defined by the including file, with the form's constants; and the scalar part of a
 * record. */
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

PRODUCT(product_q6_k, .bias = 32, .halves = true, .wide = true)
PRODUCT(product_q4_k, .nibbles = true, .wide = true, .has_min = true)
PRODUCT(product_q4_1, .nibbles = true, .has_min = true)
PRODUCT(product_q4_0, .bias = 8, .nibbles = true)
PRODUCT(product_q5_k, .wide = true, .has_min = true)
PRODUCT(product_q5_1, .has_min = true)
PRODUCT(product_q5_0, .bias = 16)
PRODUCT(product_q8_0, .bias = 128)

void ISA_NAME(quant_product)(const struct quant_slice *s, size_t first, size_t last)
{
    const struct block_form f = s->form;

    if (f.halves)
        product_q6_k(s, first, last);
    else if (f.nibbles && f.wide)
        product_q4_k(s, first, last);
    else if (f.nibbles && f.has_min)
        product_q4_1(s, first, last);
    else if (f.nibbles)
        product_q4_0(s, first, last);
    else if (f.wide)
        product_q5_k(s, first, last);
    else if (f.has_min)
        product_q5_1(s, first, last);
    else if (f.bias == 16)
        product_q5_0(s, first, last);
    else
        product_q8_0(s, first, last);
}

#endif
