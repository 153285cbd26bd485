/* Which experts a token uses, from the router's scores. Private to compute/model/. */
#ifndef COMPUTE_MODEL_ROUTING_H
#define COMPUTE_MODEL_ROUTING_H

#include <stdint.h>

struct transformer_shape;

/* scores [n_experts] are one token's, and are overwritten; bias [n_experts] or NULL is added to
 * what experts are chosen by; chosen and shares [n_experts_used]. */
void routing_choose(const struct transformer_shape *s, const float *bias, float *scores,
                    uint32_t *chosen, float *shares);

#endif
