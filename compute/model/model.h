/* The llama architecture: RMSNorm, RoPE, grouped-query attention, SwiGLU, head tied or not. Weights
 * from a GGUF file, operators from a backend, one ragged batch a call: any mix of prompts' chunks
 * and single tokens, nothing padded. */
#ifndef COMPUTE_MODEL_MODEL_H
#define COMPUTE_MODEL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/backend/backend.h"
#include "compute/gguf/gguf.h"
#include "compute/kv/copy.h"
#include "compute/model/config.h"
#include "compute/model/row.h"
#include "compute/model/shape.h"

struct llama;

/* Borrows b and g until llama_close. UNAVAILABLE where the file is written to meanwhile. */
enum status llama_open(struct llama **out, struct backend *b, const struct gguf *g,
                       const struct llama_config *config, struct error *err) MUST_CHECK;
void llama_close(struct llama *m);

const struct llama_shape *llama_shape(const struct llama *m);
/* Bytes of weights as the backend holds them, and of one KV page. */
size_t llama_weight_bytes(const struct llama *m);
size_t llama_page_bytes(const struct llama *m);

/* Whether the device draws tokens; whether it has slots beside its pages. */
bool llama_can_draw(const struct llama *m);
bool llama_can_offload(const struct backend *b);

/* Copies pages first, in the order given, then runs all rows. Sums over rows stay within the
 * config's bounds (asserted). On failure no row has run, and the pages and slots that this call
 * writes hold nothing of use. INTERNAL: the device has failed; only llama_restart or llama_close
 * may follow. */
enum status llama_forward(struct llama *m, const struct llama_row *rows, size_t n_rows,
                          const struct kv_copy *copies, size_t n_copies,
                          struct error *err) MUST_CHECK;

/* Prefaults some memory of pages, for milliseconds (base/prefault.h); returns whether some is left.
 * One thread, concurrently with any of the above but llama_restart. */
bool llama_prefault(struct llama *m, bool is_busy);

/* After an INTERNAL failure: closes all on the device, reopens the device, and opens all again;
 * weights are read from the file again, pages and slots hold nothing. On failure only this and
 * llama_close may follow. PRECONDITION where weights are shared: nothing has changed then.
 * UNAVAILABLE where the file has been written to since it was opened. */
enum status llama_restart(struct llama *m, const struct backend_config *config,
                          struct error *err) MUST_CHECK;

#endif
