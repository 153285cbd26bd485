/* A backend: a const table of operators over opaque buffers. `ref` is plain C and the definition,
 * `cpu` and `cuda` are checked against it. Only the compute thread calls it, and a step calls its
 * operators one after the other; they may run later, but in that order.
 *
 * Operators return nothing: a device fails long after the call. The first failure since the last
 * sync sticks: later operators have no defined result, and sync returns it. Callers sync before
 * they read results. EXHAUSTED: an operator had no memory; nothing else is lost. INTERNAL: the
 * device has failed, and its memory is lost: the caller closes everything that was opened on it,
 * which never fails, and then calls backend_restart.
 *
 * All activations are f32 [n][width], row-major; n is the number of tokens of the step, each token
 * a row. Every operator computes a row from that row alone, in an order that does not depend on n:
 * that is what makes a batched reply equal to an unbatched one, bit for bit. */
#ifndef COMPUTE_BACKEND_BACKEND_H
#define COMPUTE_BACKEND_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "compute/backend/rope.h"
#include "compute/gguf/gguf.h"
#include "compute/numerics/draw.h"
#include "compute/numerics/kv_type.h"

struct backend;
struct buffer; /* memory of the device; each backend has its own */
struct weight; /* a matrix, prepared for matmul and embed */
struct kv;     /* pages of keys and values for all layers */
struct net_ops;
struct state_ops;

/* What pages hold of a layer. */
struct kv_layer {
    size_t n_kv_heads, head_dim;
    size_t row_width; /* f32 numbers of each position that kv_store_rows writes; 0: none */
};

struct kv_shape {
    size_t n_layers, n_kv_heads, head_dim;
    size_t n_pages;
    enum kv_type type;
    size_t n_slots; /* pages of the host's memory that kv_offload writes; 0 where there is none */
    /* [n_layers] where layers are unlike, of a type that has_unlike_layers; borrowed until kv_open
     * returns. NULL: all are as said above, without rows */
    const struct kv_layer *layers;
};

/* Of layer i. */
static inline struct kv_layer kv_layer_of(const struct kv_shape *s, size_t i)
{
    return s->layers != NULL ? s->layers[i] : (struct kv_layer){s->n_kv_heads, s->head_dim, 0};
}

/* One sequence's part in a step: n_tokens queries at positions pos … pos + n_tokens - 1, that see
 * every position up to their own and, of this row's, up to n_ahead behind it. Position p lives in
 * page pages[p / KV_PAGE_TOKENS]. Rows whose tables begin alike share those pages, and a backend
 * may read them once for all. Rows and tables stay as they are until the next backend_sync. */
struct attend_row {
    size_t first; /* row of its first token in the step's activations */
    size_t n_tokens;
    size_t pos;
    const int32_t *pages; /* host memory */
    size_t n_ahead;       /* not 0 only where the type attends_ahead */
};

/* The first position that is seen where `own` are there, up to a token's own: those of its window
 * are, or of its chunk, where windows are chunks of the context. window 0: all are. */
static inline size_t attend_first(size_t own, size_t window, bool is_chunk)
{
    if (window == 0)
        return 0;
    if (is_chunk)
        return (own - 1) / window * window;
    return own > window ? own - window : 0;
}

/* The position behind the last that the row's token t sees. */
static inline size_t attend_row_end(const struct attend_row *r, size_t t)
{
    size_t n_behind = r->n_tokens - t - 1;

    return r->pos + t + 1 + (r->n_ahead < n_behind ? r->n_ahead : n_behind);
}

/* How queries attend to keys. Scores are the products of a query and the keys, times scale, then
 * capped: cap * tanh(score / cap). */
struct attention {
    size_t n_heads;
    float scale;   /* 0: 1/sqrt(head_dim) */
    float cap;     /* 0: none */
    size_t window; /* positions up to its own that a token sees, that included; 0: all of them */
    /* The window does not move with the token: it sees those of its own of the chunks of so many;
     * only where the type attends_in_chunks. */
    bool window_is_chunk;
    /* [n_heads] a further score of each head, neither scaled nor capped, whose value is 0; only
     * where the type attends_to_sinks. NULL: none */
    const struct weight *sinks;
};

/* What a product reads: rows of x [n][n_cols of the weight], each first divided by its root mean
 * square where gain is given: x / sqrt(mean(x^2) + eps) * gain. */
struct input {
    const struct buffer *x;
    const struct weight *gain; /* of one row; NULL: x as it is */
    float eps;
};

/* A weight that an input is multiplied with, and where the result goes: [n][n_rows of the
 * weight]. With fast_math rows behind them are undefined afterwards. */
struct product {
    const struct weight *w;
    struct buffer *out;
};

/* What `activate` does to a number a, beside which b stands; GELU in its approximation by tanh. The
 * fused ffn has the first two. */
enum activation {
    ACTIVATION_SILU,     /* a * sigmoid(a) * b */
    ACTIVATION_GELU,     /* GELU(a) * b */
    ACTIVATION_PRODUCT,  /* a * b */
    ACTIVATION_SIGMOID,  /* sigmoid(a) * b */
    ACTIVATION_CLAMPED,  /* g * sigmoid(1.702 g) * (u + 1): g is a, at most 7, u is b in [-7, 7] */
    ACTIVATION_GELU_ERF, /* GELU(a) * b, by the error function */
    ACTIVATION_SQUARE,   /* a^2 * b where a is above 0, else 0 */
    N_ACTIVATIONS,
};

/* A norm that is not that of struct input: of x less its mean, divided by its standard deviation;
 * then multiplied by gain, plus bias where that is not NULL. */
struct layer_norm {
    const struct weight *gain, *bias;
    float eps;
};

/* A gated feed-forward network. */
struct ffn {
    const struct weight *gate, *up; /* [hidden][width] */
    const struct weight *down;      /* [width][hidden] */
    enum activation activation;
    bool stores; /* writes its output to out, else adds it */
};

struct backend_config {
    size_t n_threads; /* 0: the physical cores */
    /* Many rows may be multiplied in another way than few, if it is faster: a row's bits then
     * depend on the number of rows. INVALID for types without has_fast_math. */
    bool fast_math;
    size_t fast_math_from; /* the least number of rows that are many; 0: the backend's own */
};

enum { BACKEND_PRODUCTS_MAX = 160 };

/* For logs and metrics. */
struct backend_statistics {
    char products[BACKEND_PRODUCTS_MAX]; /* how it multiplies, in words */
    size_t n_graphs;                     /* command lists that are launched as one */
    uint64_t n_lists, n_replays;         /* lists that ran; of those, as graphs */
};

struct backend_type {
    const char *name;
    size_t size; /* of the backend's struct, whose first member is struct backend */
    bool has_fast_math;
    bool attends_to_sinks, has_unlike_layers, attends_ahead, attends_in_chunks;

    /* Optional: this type has only a name; load finds the whole type in a library, which may be
     * missing. Any thread. */
    enum status (*load)(const struct backend_type **out, struct error *err);

    enum status (*open)(struct backend *b, const struct backend_config *config, struct error *err);
    void (*close)(struct backend *b);

    enum status (*sync)(struct backend *b, struct error *err);

    /* Optional, both or none: the threads that compute, the caller among them. each calls fn(arg,
     * i) for i = 0 … n - 1 on the free ones, in parallel, and returns when all is done; meanwhile
     * only the memory of the backend may be used. */
    size_t (*n_threads)(const struct backend *b);
    void (*each)(struct backend *b, size_t n, void (*fn)(void *arg, size_t i), void *arg);

    /* Memory. */
    struct buffer *(*buffer_open)(struct backend *b, size_t size_bytes); /* NULL: none left */
    void (*buffer_close)(struct backend *b, struct buffer *m);
    void (*upload)(struct backend *b, struct buffer *to, const void *from, size_t size_bytes);
    void (*download)(struct backend *b, void *to, const struct buffer *from, size_t size_bytes);
    /* Optional: a buffer over the caller's memory, for a device that can write there as it does
     * to its own. Borrows host until buffer_close. NULL: use download. */
    struct buffer *(*buffer_over)(struct backend *b, void *host, size_t size_bytes);

    /* A weight [n_rows][n_cols]. It copies the tensor and keeps only its name: the file may change
     * later. Errors are also tensor_read's. */
    enum status (*weight_open)(struct backend *b, const struct tensor *t, struct weight **out,
                               struct error *err);
    void (*weight_close)(struct backend *b, struct weight *w);

    /* Keys and values. kv_copy copies a whole page in all layers. */
    enum status (*kv_open)(struct backend *b, const struct kv_shape *shape, struct kv **out,
                           struct error *err);
    void (*kv_close)(struct backend *b, struct kv *kv);
    void (*kv_copy)(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page);
    /* Optional: prefaults some memory of pages that were never written, beyond the highest one
     * written, for milliseconds; while steps run (is_busy), only what they need soon. Returns
     * whether some is left. Called on a thread of its own: the first touch of a page takes longer
     * than writing it. */
    bool (*kv_prepare)(struct backend *b, struct kv *kv, bool is_busy);
    /* Optional, both or none: copy a whole page in all layers to a slot of the host's memory, and
     * back. */
    void (*kv_offload)(struct backend *b, struct kv *kv, int32_t page, int32_t slot);
    void (*kv_reload)(struct backend *b, struct kv *kv, int32_t slot, int32_t page);
    /* Optional, all or none, of a backend whose pages are in the host's memory: a page in all
     * layers as bytes, in this type's own form. kv_read runs on any one thread, also while a step
     * runs that does not write the page. */
    size_t (*kv_image_bytes)(const struct kv *kv);
    void (*kv_read)(const struct kv *kv, int32_t page, void *out);
    void (*kv_write)(struct backend *b, struct kv *kv, int32_t page, const void *image);

    /* out[i] = table row ids[i]; ids is host memory. */
    void (*embed)(struct backend *b, const struct weight *table, const int32_t *ids, size_t n,
                  struct buffer *out);
    /* out[i][r] = sum over c of w[r][c] * in[i][c], for products of one input: a backend may run
     * them together. */
    void (*matmul)(struct backend *b, const struct input *in, size_t n,
                   const struct product *products, size_t n_products);
    /* The same of one product, added to what out holds. */
    void (*matmul_add)(struct backend *b, const struct input *in, size_t n,
                       const struct product *product);
    /* out += down · (activation(g) * u), g and u being the products of gate and up with in. */
    void (*ffn)(struct backend *b, const struct input *in, size_t n, const struct ffn *f,
                struct buffer *out);
    /* Rotates pairs of each head, in place: (a, b) becomes (a cos - b sin, a sin + b cos) at the
     * angle that r has for the pair and the row's position. positions is host memory [n]. n 0, x
     * NULL: prepares r->n_positions, if that takes time, before there is a step. */
    void (*rope)(struct backend *b, const struct rope *r, const uint32_t *positions, size_t n,
                 struct buffer *x);
    /* Stores k and v [n][n_kv_heads * head_dim] of the step's tokens at their positions. */
    void (*kv_store)(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                     const struct buffer *v, const struct attend_row *rows, size_t n_rows);
    /* Softmax attention; q and out, two buffers, are [n][n_heads * head_dim]. */
    void (*attend)(struct backend *b, const struct kv *kv, size_t layer,
                   const struct attention *how, const struct buffer *q,
                   const struct attend_row *rows, size_t n_rows, struct buffer *out);

    /* Operators on rows [n][width] that only some architectures need. */

    /* out = the rows of in as a product reads them; out may be in's x. A row may be a head. */
    void (*norm)(struct backend *b, const struct input *in, size_t n, size_t width,
                 struct buffer *out);
    /* out += factor * in, two buffers */
    void (*add)(struct backend *b, const struct buffer *in, float factor, size_t n, size_t width,
                struct buffer *out);
    /* x[i] += the weight's row 0, in place */
    void (*add_bias)(struct backend *b, const struct weight *bias, size_t n, struct buffer *x);
    /* x *= factor, then x = cap * tanh(x / cap) where cap is not 0; in place */
    void (*scale)(struct backend *b, float factor, float cap, size_t n, size_t width,
                  struct buffer *x);
    /* out[rows[i]] += factors[i] * in[i], two buffers; rows, all different, and factors are host
     * memory [n] */
    void (*scatter_add)(struct backend *b, const struct buffer *in, const uint32_t *rows,
                        const float *factors, size_t n, size_t width, struct buffer *out);
    /* x[i] *= factors[i], in place; factors is host memory [n] */
    void (*scale_rows)(struct backend *b, const float *factors, size_t n, size_t width,
                       struct buffer *x);

    /* Optional, of architectures beyond the first ones: backend_lacks names one that is missing. */

    /* out = the rows of x, normed; out may be x */
    void (*layer_norm)(struct backend *b, const struct layer_norm *how, const struct buffer *x,
                       size_t n, size_t width, struct buffer *out);
    /* x = activation(x, by), in place; by NULL: of ones (not of the clamped one) */
    void (*activate)(struct backend *b, enum activation kind, const struct buffer *by, size_t n,
                     size_t width, struct buffer *x);
    /* out[i][out_at + c] = in[i][in_at + c] for c < width, rows being in_stride and out_stride
     * apart; two buffers */
    void (*copy_columns)(struct backend *b, const struct buffer *in, size_t in_stride, size_t in_at,
                         size_t n, size_t width, struct buffer *out, size_t out_stride,
                         size_t out_at);
    /* Stores the rows x [n][row_width] of the step's tokens at their positions, then
     * out[i][c] = the sum over t < n_taps of taps[c][t] * row[position - n_taps + 1 + t][c], in
     * rising order of t, where rows before position 0 are 0. taps is a weight of one row. */
    void (*kv_conv)(struct backend *b, struct kv *kv, size_t layer, const struct weight *taps,
                    size_t n_taps, const struct buffer *x, const struct attend_row *rows,
                    size_t n_rows, struct buffer *out);
    /* x = what of it lies above its row's mean + times * its standard deviation, else 0 */
    void (*cut)(struct backend *b, float times, size_t n, size_t width, struct buffer *x);
    /* x = value */
    void (*fill)(struct backend *b, float value, size_t n, size_t width, struct buffer *x);

    /* out[i] = in[rows[i]]; rows is host memory */
    void (*gather)(struct backend *b, const struct buffer *in, const uint32_t *rows, size_t n,
                   size_t width, struct buffer *out);

    /* Optional: draws list->n tokens from logits [n][n_vocab], each the one that the host's sampler
     * would choose. out [list->n] is host memory, written by the next sync. NULL: the host
     * draws. */
    void (*sample)(struct backend *b, const struct buffer *logits, size_t n_vocab,
                   const struct draw_list *list, struct drawn *out);

    /* Optional, of a device with its own memory (backend_is_device): how much of it is free. */
    size_t (*memory_free)(struct backend *b);
    /* Optional: the product of f16 matrices [n][n_cols] and [n_rows][n_cols] by the vendor's own
     * library, on scratch memory: the reference for a measured rate. False: the library is not
     * there, or does not support the shape. */
    bool (*vendor_matmul)(struct backend *b, size_t n, size_t n_rows, size_t n_cols);
    /* Optional, of a device. */
    void (*statistics)(const struct backend *b, struct backend_statistics *out);

    const struct state_ops *state; /* recurrent state (compute/backend/states.h); NULL: none */
    const struct net_ops *net; /* small networks that learn (compute/backend/net.h); NULL: none */
};

struct backend {
    const struct backend_type *type;
    bool is_down; /* closed by backend_restart, which could not open it again */
};

/* True for a backend with memory of its own, which is lost when it fails. */
static inline bool backend_is_device(const struct backend *b)
{
    return b->type->memory_free != NULL;
}

enum status backend_open_type(struct backend **out, const struct backend_type *type,
                              const struct backend_config *config, struct error *err) MUST_CHECK;
void backend_close(struct backend *b);
/* After a sync that returned INTERNAL, with everything closed that was opened on b: closes and
 * opens the device, in the same place. On failure only this and backend_close may be called;
 * INTERNAL: this process cannot use the device again. */
enum status backend_restart(struct backend *b, const struct backend_config *config,
                            struct error *err) MUST_CHECK;

#endif
