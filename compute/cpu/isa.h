/* The files of a set of kernels are compiled once for each instruction set, with -DISA=its name:
 * ISA_NAME(f) is f_avx2, …, so that each has its own. parts of a set meet here. */
#ifndef COMPUTE_CPU_ISA_H
#define COMPUTE_CPU_ISA_H

#include "compute/cpu/kernels.h"

#define ISA_PASTE(name, isa) name##_##isa
#define ISA_EXPAND(name, isa) ISA_PASTE(name, isa)
#define ISA_NAME(name) ISA_EXPAND(name, ISA)
#define ISA_QUOTE(isa) #isa
#define ISA_STRING(isa) ISA_QUOTE(isa)

/* quant_*.c */
void ISA_NAME(quantise)(const struct act_slice *s);
void ISA_NAME(quant_product)(const struct quant_slice *s, size_t first, size_t last);
/* dense.c */
void ISA_NAME(dense_product)(const struct dense_slice *s, size_t first, size_t last);
/* linear.c */
void ISA_NAME(linear)(const struct linear_slice *s, size_t first, size_t last);
void ISA_NAME(linear_pack)(const struct linear_slice *s, float *packed, size_t first, size_t last);
void ISA_NAME(linear_to_input)(const struct linear_slice *s, size_t first, size_t last);
void ISA_NAME(linear_to_weight)(const struct linear_slice *s, size_t first, size_t last);
/* dropout.c */
void ISA_NAME(dropout)(const struct net_draw *d, uint32_t layer, float rate, size_t width,
                       float *x);
/* kv_store.c */
void ISA_NAME(kv_store)(const struct kv_view *kv, int32_t page, size_t slot, size_t head,
                        const float *k, const float *v);
/* attend.c */
void ISA_NAME(attend)(const struct attend_block *b);
void ISA_NAME(attend_merge)(const struct attend_block *b);

#endif
