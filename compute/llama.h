/* The llama architecture: RMSNorm, RoPE, grouped-query attention, SwiGLU, head tied or not. Weights
 * from a GGUF file, operators from a backend, one ragged batch a call: any mix of prompts' chunks
 * and single tokens, nothing padded. */
#ifndef COMPUTE_LLAMA_H
#define COMPUTE_LLAMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/backend.h"
#include "compute/gguf.h"

struct llama;

struct llama_shape {
    size_t n_layers, width, n_heads, n_kv_heads, head_dim, ffn_width, n_vocab, context;
    float norm_eps, rope_base;
};

struct llama_config {
    size_t max_tokens; /* of one call, all rows together */
    size_t max_logits; /* rows of logits of one call */
    size_t n_kv_pages;
    enum kv_type kv_type;
    size_t n_kv_slots;   /* pages of the host's memory beside them; only where llama_can_spill */
    const int32_t *ends; /* [n_ends] tokens that a draw may ban; borrowed */
    size_t n_ends;
    /* Whose weights it takes instead of preparing its own: of the same file, on a backend of the
     * same type, on any thread. It outlives this one. NULL: none. */
    struct llama *weights_of;
};

/* One sequence's part in a call. */
struct llama_row {
    const int32_t *ids; /* [n_tokens] the tokens to run, each < n_vocab */
    size_t n_tokens;
    size_t pos;           /* position of ids[0]; all before it are in the pages already */
    const int32_t *pages; /* [(pos + n_tokens) / KV_PAGE_TOKENS, rounded up] */
    size_t n_logits;      /* of the last n_logits tokens; 0 for a chunk that is not the last */
    float *logits;        /* [n_logits][n_vocab], the caller's */
    /* Where the device is to draw the tokens itself (llama_can_draw), else NULL. A logits row is
     * then written only where drawn has an id < 0. */
    const struct draw *draws; /* [n_logits] but for their row */
    struct drawn *drawn;      /* [n_logits] */
};

enum kv_way {
    KV_COPY,  /* from page to page */
    KV_SPILL, /* from a page to a slot */
    KV_FILL,  /* from a slot to a page */
};

struct kv_copy {
    int32_t from, to;
    enum kv_way way;
};

/* The shape that a file's metadata states, checked against the tensors. An architecture we do not
 * run is UNIMPLEMENTED and names it. Any thread. */
enum status llama_read_shape(struct llama_shape *out, const struct gguf *g,
                             struct error *err) MUST_CHECK;

/* Borrows b and g until llama_close. */
enum status llama_open(struct llama **out, struct backend *b, const struct gguf *g,
                       const struct llama_config *config, struct error *err) MUST_CHECK;
void llama_close(struct llama *m);

const struct llama_shape *llama_shape(const struct llama *m);
/* Bytes of weights as the backend holds them, and of one KV page. */
size_t llama_weight_bytes(const struct llama *m);
size_t llama_page_bytes(const struct llama *m);

/* Whether the device draws tokens; whether it has slots beside its pages. */
bool llama_can_draw(const struct llama *m);
bool llama_can_spill(const struct backend *b);

/* Copies pages first, in the order given, then runs all rows. Sums over rows stay within the
 * config's bounds (asserted). On failure no row has run, and the pages and slots that this call
 * writes hold nothing of use. INTERNAL: the device has failed; llama_restart is what can follow. */
enum status llama_forward(struct llama *m, const struct llama_row *rows, size_t n_rows,
                          const struct kv_copy *copies, size_t n_copies,
                          struct error *err) MUST_CHECK;

/* Takes some of the memory that pages will need, milliseconds' worth, see ahead.h; true: there is
 * more to take. One thread, beside any of the above but llama_restart. */
bool llama_work_ahead(struct llama *m, bool is_busy);

/* After an INTERNAL failure: closes all on the device, opens the device again, and all anew on it;
 * weights come from the file again, pages and slots hold nothing. On failure only this and
 * llama_close may follow. PRECONDITION where weights are shared: nothing has changed then. */
enum status llama_restart(struct llama *m, const struct backend_config *config,
                          struct error *err) MUST_CHECK;

#endif
