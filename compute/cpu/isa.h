/* The files of a set of kernels are compiled once for each instruction set, with -DISA=its name:
 * ISA_NAME(f) is f_avx2, …, so that each has its own. The functions of a set are declared here.
 * Those that compute with floats alone are of the set FLOAT_ISA, those of attention of ATTEND_ISA:
 * an instruction set that adds nothing for them has no copies. */
#ifndef COMPUTE_CPU_ISA_H
#define COMPUTE_CPU_ISA_H

#include "compute/cpu/kernels.h"

#define ISA_PASTE(name, isa) name##_##isa
#define ISA_EXPAND(name, isa) ISA_PASTE(name, isa)
#define ISA_NAME(name) ISA_EXPAND(name, ISA)
#define FLOAT_NAME(name) ISA_EXPAND(name, FLOAT_ISA)
#define ATTEND_NAME(name) ISA_EXPAND(name, ATTEND_ISA)
#define ISA_QUOTE(isa) #isa
#define ISA_STRING(isa) ISA_QUOTE(isa)

/* quant_*.c */
void ISA_NAME(quantise)(const struct act_slice *s);
void ISA_NAME(quant_product)(const struct quant_slice *s, size_t first, size_t last);
/* attend.c */
void ATTEND_NAME(attend)(const struct attend_block *b);
void ATTEND_NAME(attend_merge)(const struct attend_block *b);

/* dense.c */
void FLOAT_NAME(dense_product)(const struct dense_slice *s, size_t first, size_t last);
/* linear.c */
void FLOAT_NAME(linear)(const struct linear_slice *s, size_t first, size_t last);
void FLOAT_NAME(linear_pack)(const struct linear_slice *s, float *packed, size_t first,
                             size_t last);
void FLOAT_NAME(linear_to_input)(const struct linear_slice *s, size_t first, size_t last);
void FLOAT_NAME(linear_to_weight)(const struct linear_slice *s, size_t first, size_t last);
/* dropout.c */
void FLOAT_NAME(dropout)(const struct net_draw *d, uint32_t layer, float rate, size_t width,
                         float *x);
/* kv_store.c */
void FLOAT_NAME(kv_store)(const struct kv_view *kv, int32_t page, size_t slot, size_t head,
                          const float *k, const float *v);
/* float.c */
void FLOAT_NAME(rms_norm)(const float *in, const float *gain, float eps, size_t width, float *out);
void FLOAT_NAME(rope)(float *row, size_t n_heads, size_t head_dim, size_t n_rotated,
                      const float *cosines, const float *sines);
void FLOAT_NAME(rope_halves)(float *row, size_t n_heads, size_t head_dim, size_t n_rotated,
                             const float *cosines, const float *sines);
void FLOAT_NAME(swiglu)(float *gate, const float *up, size_t n);
void FLOAT_NAME(geglu)(float *gate, const float *up, size_t n);
void FLOAT_NAME(scale)(float *x, float factor, float cap, size_t n);
void FLOAT_NAME(add)(float *to, const float *from, float factor, size_t n);
/* float_gates.c */
void FLOAT_NAME(layer_norm)(const float *in, const float *gain, const float *bias, float eps,
                            size_t width, float *out);
void FLOAT_NAME(activate)(enum activation kind, float *x, const float *by, size_t n);
void FLOAT_NAME(add_tap)(const float *taps, size_t n_taps, size_t tap, const float *row,
                         size_t width, float *out);

/* float_states.c */
void FLOAT_NAME(recur)(const struct recur_block *b);

#endif
