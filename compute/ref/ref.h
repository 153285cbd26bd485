/* The reference backend: plain C, f32, one thread. It is the definition of every operator, and what
 * the fast backends are checked against. */
#ifndef COMPUTE_REF_REF_H
#define COMPUTE_REF_REF_H

#include "compute/backend/backend.h"

extern const struct backend_type ref_backend;

#endif
