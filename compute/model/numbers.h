/* Reads single numbers of a model's metadata, within bounds. Private to compute/model/. */
#ifndef COMPUTE_MODEL_NUMBERS_H
#define COMPUTE_MODEL_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct arch;
struct gguf;

/* The architecture's key of that name. NOT_FOUND where it is absent. */
enum status numbers_read_size(size_t *out, const struct gguf *g, const struct arch *a,
                              const char *name, uint64_t max, struct error *err) MUST_CHECK;
/* An absent key leaves *out as it is. */
enum status numbers_read_optional_size(size_t *out, const struct gguf *g, const struct arch *a,
                                       const char *name, uint64_t max,
                                       struct error *err) MUST_CHECK;

/* The same from 0 on. */
enum status numbers_read_optional_count(size_t *out, const struct gguf *g, const struct arch *a,
                                        const char *name, uint64_t max,
                                        struct error *err) MUST_CHECK;

/* The greatest number of a key that has one for each of n layers, or one for all; NOT_FOUND where
 * it is absent. numbers_of_layer: that of one layer, of a key that was read. */
enum status numbers_read_greatest(size_t *out, const struct gguf *g, const struct arch *a,
                                  const char *name, size_t n, uint64_t min, uint64_t max,
                                  struct error *err) MUST_CHECK;
size_t numbers_of_layer(const struct gguf *g, const struct arch *a, const char *name, size_t layer,
                        size_t otherwise);

/* A float or an integer within min and max; an absent key leaves *out as it is. */
enum status numbers_read_optional(double *out, const struct gguf *g, const struct arch *a,
                                  const char *name, double min, double max,
                                  struct error *err) MUST_CHECK;
enum status numbers_read(double *out, const struct gguf *g, const char *key,
                         struct error *err) MUST_CHECK;

#endif
