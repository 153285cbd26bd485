/* The backend `cpu`: kernels for block-quantised and float weights, chosen at open by the
 * processor's instruction sets; all of them return the same bits.
 * PARLEY_CPU=generic|avx2|vnni256|avx512 in the environment forces one, on 64-bit Arm
 * generic|neon|dotprod|i8mm. */
#ifndef COMPUTE_CPU_CPU_H
#define COMPUTE_CPU_CPU_H

#include "compute/backend/backend.h"

extern const struct backend_type cpu_backend;

#endif
