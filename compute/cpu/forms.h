/* Shared by the vector files of quantised products: the choice of the kernel by type, which calls
 * `product`, defined by the including file, with the constants of the type's form. */
#ifndef COMPUTE_CPU_FORMS_H
#define COMPUTE_CPU_FORMS_H

#include "compute/cpu/isa.h"

/* Each is a function of its own: compilers take twice as long over one that holds them all. */
#define PRODUCT(type, ...)                                                            \
    static __attribute__((noinline)) void product_##type(const struct quant_slice *s, \
                                                         size_t first, size_t last)   \
    {                                                                                 \
        product(s, (struct block_form){__VA_ARGS__}, first, last);                    \
    }

#define PRODUCT_OF(type, ...) [DTYPE_##type] = product_##type,

BLOCK_FORMS(PRODUCT)

void ISA_NAME(quant_product)(const struct quant_slice *s, size_t first, size_t last)
{
    static void (*const products[])(const struct quant_slice *s, size_t first,
                                    size_t last) = {BLOCK_FORMS(PRODUCT_OF)};

    products[s->type](s, first, last);
}

#endif
