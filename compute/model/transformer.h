/* A transformer: the decoder-only language model of a GGUF file, run on a backend. Which operations
 * its layers compute is data (compute/model/arch/arch.h). One call runs one ragged batch, which may
 * mix chunks of prompts with single tokens; nothing is padded. */
#ifndef COMPUTE_MODEL_TRANSFORMER_H
#define COMPUTE_MODEL_TRANSFORMER_H

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

struct transformer;

/* Borrows b and g until transformer_close. UNAVAILABLE where the file is written to meanwhile. */
enum status transformer_open(struct transformer **out, struct backend *b, const struct gguf *g,
                             const struct transformer_config *config, struct error *err) MUST_CHECK;
void transformer_close(struct transformer *m);

const struct transformer_shape *transformer_shape(const struct transformer *m);
/* Bytes of weights as the backend holds them, and of one KV page. */
size_t transformer_weight_bytes(const struct transformer *m);
size_t transformer_page_bytes(const struct transformer *m);

/* Bytes of a slot of recurrent state; 0: the model has none. */
size_t transformer_slot_bytes(const struct transformer *m);

/* Whether the device draws tokens; whether it has slots beside its pages. */
bool transformer_can_draw(const struct transformer *m);
bool transformer_can_offload(const struct backend *b);

/* Bytes of a page as transformer_read_page gives it; 0: the backend does not give its pages. */
size_t transformer_image_bytes(const struct transformer *m);
/* The page as KV_WRITE takes it back, on a backend of the same type and model. Any one thread, also
 * during a call that does not write the page. */
void transformer_read_page(const struct transformer *m, int32_t page, void *out);
/* The same of a slot of recurrent state [transformer_slot_bytes], as KV_WRITE_STATE takes it back.
 */
void transformer_read_slot(const struct transformer *m, int32_t slot, void *out);

/* Copies pages first, in the order given, then runs all rows. Sums over rows stay within the
 * config's bounds (asserted). On failure no row has run, and the pages and slots that this call
 * writes hold nothing of use. INTERNAL: the device has failed; only transformer_restart or
 * transformer_close may follow. */
enum status transformer_forward(struct transformer *m, const struct transformer_row *rows,
                                size_t n_rows, const struct kv_copy *copies, size_t n_copies,
                                struct error *err) MUST_CHECK;

/* Directly after a forward that succeeded, once, with its rows and their n_accepted: runs the
 * states of recurrent layers over accepted drafts, from the inputs that the forward kept. Failures
 * are as above; the slots of rows with accepted drafts hold nothing of use then. */
enum status transformer_accept(struct transformer *m, const struct transformer_row *rows,
                               size_t n_rows, struct error *err) MUST_CHECK;

/* Prefaults some memory of pages, for milliseconds (base/prefault.h); returns whether some is left.
 * One thread, concurrently with any of the above but transformer_restart. */
bool transformer_prefault(struct transformer *m, bool is_busy);

/* After an INTERNAL failure: closes all on the device, reopens the device, and opens all again;
 * weights are read from the file again, pages and slots hold nothing. On failure only this and
 * transformer_close may follow. PRECONDITION where weights are shared: nothing has changed then.
 * UNAVAILABLE where the file has been written to since it was opened. */
enum status transformer_restart(struct transformer *m, const struct backend_config *config,
                                struct error *err) MUST_CHECK;

#endif
