/* What the vector files of quantised products share: the choice of the kernel by form, whose
 * constants then meet `product`, which the including file defines; and the scalar part of a
 * record. */
#ifndef COMPUTE_CPU_FORMS_H
#define COMPUTE_CPU_FORMS_H

#include "compute/cpu/isa.h"

void ISA_NAME(quant_product)(const struct quant_slice *s, size_t first, size_t last)
{
    const struct block_form f = s->form;

    if (f.halves) /* Q6_K */
        product(s, (struct block_form){.bias = 32, .halves = true, .wide = true}, first, last);
    else if (f.nibbles && f.wide) /* Q4_K */
        product(s, (struct block_form){.nibbles = true, .wide = true, .has_min = true}, first,
                last);
    else if (f.nibbles && f.has_min) /* Q4_1 */
        product(s, (struct block_form){.nibbles = true, .has_min = true}, first, last);
    else if (f.nibbles) /* Q4_0 */
        product(s, (struct block_form){.bias = 8, .nibbles = true}, first, last);
    else if (f.wide) /* Q5_K */
        product(s, (struct block_form){.wide = true, .has_min = true}, first, last);
    else if (f.has_min) /* Q5_1 */
        product(s, (struct block_form){.has_min = true}, first, last);
    else if (f.bias == 16) /* Q5_0 */
        product(s, (struct block_form){.bias = 16}, first, last);
    else /* Q8_0 */
        product(s, (struct block_form){.bias = 128}, first, last);
}

#endif
