/* The language model's kernels, as the backend calls them. A launcher puts its kernel on the stream
 * and returns. A failed launch is the runtime's last error; a failure of the kernel itself is
 * reported by a later call on the stream. All pointers are to device memory, which has to stay
 * until the kernel has run, and are aligned to 16 bytes unless said otherwise. Activations are f32
 * [rows][width].
 *
 * Bits: a row's do not depend on the other rows or their number. Products with quantised weights,
 * the norm, rope, the gate and attention give those of the cpu backend; products with float weights
 * those of `ref`. */
#ifndef COMPUTE_CUDA_KERNELS_H
#define COMPUTE_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/numerics/attend_units.h"
#include "compute/numerics/kv_type.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "compute/numerics/dtype.h" /* its functions are C */

struct CUstream_st; /* a cudaStream_t is a pointer to it */

/* The number of rows, which is read on the device, so that a recorded graph can run again with
 * another *n. */
struct cuda_count {
    const uint32_t *n; /* aligned to 4; NULL: most */
    uint32_t most;     /* the number that the grid is made for; not 0 */
};

/* Activations in int8 by row and group of 32: value * scale. */
struct cuda_group {
    float scale, sum;  /* sum: scale * (low + high) */
    int32_t low, high; /* the sums of values 0 … 15 and 16 … 31 */
};

/* An activation that its group leaves out, as compute/cpu/kernels.h says. */
struct cuda_outlier {
    float value;
    uint32_t column; /* UINT32_MAX: there is none */
};

struct cuda_acts {
    int8_t *values;                /* [rows][width]; width is a multiple of 32 */
    struct cuda_group *groups;     /* [rows][width / 32] */
    struct cuda_outlier *outliers; /* [rows][width / 32]: each row's in order, then none */
};

/* A weight [n_rows][n_cols], repacked in panels of 8 of its rows, the last filled up with zeros.
 * Per group of 32 columns and row of the panel:
 *
 * codes   [panels][groups][8][16] bytes: byte i is code i and, in its upper half, code 16 + i;
 *         Q8_0: [panels][groups][2][8][16], the values 0 … 15 and 16 … 31
 * high    the bits of codes above the fourth. Q5: [panels][groups][8] u32: in byte b, bit w is of
 *         code 4w + b and bit 4 + w of code 16 + 4w + b. Q6: [panels][groups][8][2] u32: in byte b
 *         of word h, bits 2w and 2w + 1 are of code 16h + 4w + b.
 * scales  [panels][groups][8] of f16; of f16 scale and min (Q4_1, Q5_1); of u8 scale and u8 min
 *         (Q4_K, Q5_K); of two i8 scales (Q6_K)
 * supers  [panels][groups / 8][8] of f16 scale and min that those multiply (Q4_K, Q5_K), of f16
 *         scale (Q6_K)
 *
 * Float weights: codes is [n_rows][pieces][16 lanes][16 bytes], lane l of a piece having the next
 * columns of those whose number is l modulo 16; the last piece is filled up with zeros. */
struct cuda_matrix {
    enum dtype type;
    uint32_t n_rows, n_cols;
    uint8_t *codes, *high, *scales, *supers;
};

enum { CUDA_PANEL_ROWS = 8 };

/* Lays out a matrix at `at`, aligned to 256; returns its bytes. With NULL it only counts. */
size_t cuda_matrix_lay_out(struct cuda_matrix *out, enum dtype type, size_t n_rows, size_t n_cols,
                           uint8_t *at);

/* Fills rows first … first + n - 1 from n rows in the file's format, aligned to 4. first is a
 * multiple of CUDA_PANEL_ROWS, and n too unless the weight ends there. */
void cuda_repack(const struct cuda_matrix *to, const void *rows, uint32_t first, uint32_t n,
                 struct CUstream_st *stream);

/* out[i] = the weight's row ids[i], decoded as dtype_decode does; ids aligned to 4. */
void cuda_embed(const struct cuda_matrix *table, const int32_t *ids, struct cuda_count n,
                float *out, struct CUstream_st *stream);

/* out[i] = in[rows[i]]; rows aligned to 4. */
void cuda_gather(const float *in, const uint32_t *rows, struct cuda_count n, uint32_t width,
                 float *out, struct CUstream_st *stream);

/* Prepares rows for products: divides them by their root mean square and multiplies with gain
 * [width], unless that is NULL; then rounds to int8. The second leaves them floats. */
void cuda_norm_quantise(const float *x, const float *gain, float eps, struct cuda_count n,
                        uint32_t width, const struct cuda_acts *out, struct CUstream_st *stream);
void cuda_norm(const float *x, const float *gain, float eps, struct cuda_count n, uint32_t width,
               float *out, struct CUstream_st *stream);
/* In half precision; a finite number beyond it becomes the largest that there is. */
void cuda_norm_f16(const float *x, const float *gain, float eps, struct cuda_count n,
                   uint32_t width, uint16_t *out, struct CUstream_st *stream);

/* silu(gate) * up, or gelu(gate) * up, in int8 or as floats; out may be gate. */
struct cuda_gate_rows {
    const float *gate, *up; /* [n][width] */
    struct cuda_count n;
    uint32_t width;
    bool gelu;
};

void cuda_gate_quantise(const struct cuda_gate_rows *rows, const struct cuda_acts *out,
                        struct CUstream_st *stream);
void cuda_gate(const struct cuda_gate_rows *rows, float *out, struct CUstream_st *stream);
void cuda_gate_f16(const struct cuda_gate_rows *rows, uint16_t *out, struct CUstream_st *stream);

/* x[i] += factor * from[i]; with is_row, from is one row [width]. */
void cuda_add(float *x, const float *from, float factor, bool is_row, struct cuda_count n,
              uint32_t width, struct CUstream_st *stream);
/* x[rows[i]] += factors[i] * from[i]; rows, all different, and factors aligned to 4. */
void cuda_scatter(float *x, const float *from, const uint32_t *rows, const float *factors,
                  struct cuda_count n, uint32_t width, struct CUstream_st *stream);
/* Each number as scalar_scaled; factors [n], aligned to 4, stand for factor, or NULL. */
void cuda_scale(float *x, const float *factors, float factor, float cap, struct cuda_count n,
                uint32_t width, struct CUstream_st *stream);

/* out[i][r] (+)= the weight's row r · in's row i, out [n][n_rows of the weight]. */
struct cuda_product {
    struct cuda_matrix w;
    float *out;
};

enum { CUDA_MAX_PRODUCTS = 4 };

/* Products of one input in one launch: their weights are of one type and have as many columns;
 * n_products is at most CUDA_MAX_PRODUCTS. _few is by dp4a and reads the weights once for 8 rows,
 * _many by tensor cores and reads them once for 64; both take any number of rows and give the same
 * bits. */
void cuda_products_few(const struct cuda_product *products, size_t n_products,
                       const struct cuda_acts *in, struct cuda_count n, bool adds,
                       struct CUstream_st *stream);
void cuda_products_many(const struct cuda_product *products, size_t n_products,
                        const struct cuda_acts *in, struct cuda_count n, bool adds,
                        struct CUstream_st *stream);
/* The last part of both: adds what the outliers of the input make. */
void cuda_add_outliers(const struct cuda_product *products, size_t n_products,
                       const struct cuda_acts *in, struct cuda_count n, struct CUstream_st *stream);
/* With float weights. */
void cuda_products_float(const struct cuda_product *products, size_t n_products, const float *in,
                         struct cuda_count n, bool adds, struct CUstream_st *stream);

/* Rows first … first + n - 1 of a weight as f16 [n][n_cols], for a library's product. Rounds. */
void cuda_matrix_f16(const struct cuda_matrix *from, uint32_t first, uint32_t n, uint16_t *to,
                     struct CUstream_st *stream);

/* Keys and values, page by page: [n_pages][n_layers][n_kv_heads] of
 *     keys    [padded_dim / piece][16 positions][piece], a piece being 16 bytes
 *     values  [16 positions][padded_dim]
 * both followed by f32 [16 positions], of q8 the positions' scales, of other types the greatest
 * magnitude at each, NaN where a number is NaN. */
struct cuda_kv {
    uint8_t *pages;
    size_t page_bytes;
    uint32_t layer_bytes, head_bytes, values_at;
    uint32_t n_kv_heads, head_dim, padded_dim; /* head_dim is even and at most 256 */
    enum kv_type type;
};

/* Sets everything but pages. */
void cuda_kv_lay_out(struct cuda_kv *out, enum kv_type type, size_t n_layers, size_t n_kv_heads,
                     size_t head_dim);

/* pairs [n][2], aligned to 4: page pairs[i][0] is copied to pairs[i][1] in all layers. No page that
 * is written is in another pair. */
void cuda_kv_copy(const struct cuda_kv *kv, const int32_t *pairs, uint32_t n,
                  struct CUstream_st *stream);

/* A step's tokens. All [n], aligned to 4. */
struct cuda_tokens {
    struct cuda_count n;
    const uint32_t *positions;
    const int32_t *pages; /* the page of each position; below 0: none, so it is not stored */
};

/* Cosine and sine of the angle of each pair of a head at each position; 0: no rope. */
struct cuda_turns {
    const float *turns; /* [positions][n_rotated / 2][2] */
    uint32_t head_dim;
    uint32_t n_rotated; /* the first numbers of a head */
    bool halves;        /* pairs are (j, j + n_rotated / 2), else (2j, 2j + 1) */
};

/* Rotates x [n][n_heads * head_dim] in place. */
void cuda_rope(const struct cuda_turns *r, const struct cuda_tokens *tokens, uint32_t n_heads,
               float *x, struct CUstream_st *stream);
/* Stores k and v [n][n_kv_heads * head_dim] in their pages. */
void cuda_kv_store(const struct cuda_kv *kv, uint32_t layer, const struct cuda_tokens *tokens,
                   const float *k, const float *v, struct CUstream_st *stream);
/* cuda_rope of q and of k, then cuda_kv_store, in one launch; not of halves. */
void cuda_rope_kv_store(const struct cuda_turns *r, const struct cuda_kv *kv, uint32_t layer,
                        const struct cuda_tokens *tokens, uint32_t n_heads, float *q, float *k,
                        const float *v, struct CUstream_st *stream);

/* A piece of attention: the queries of a few tokens of one sequence, one after the other in the
 * step, over the spans of CUDA_SPAN positions first_span … end_span - 1. An item that has all spans
 * of its tokens writes their outputs; where items share tokens, the one that ends last does. */
enum { CUDA_SPAN = ATTEND_SPAN };

struct cuda_attend_item {
    uint32_t row, n_tokens; /* of the step's activations */
    uint32_t pos;           /* of the first token */
    uint32_t table;         /* where the sequence's pages begin in tables */
    uint32_t first_span, end_span, n_spans;
    uint32_t partial; /* where the tokens' results begin in partials, in tokens */
    uint32_t counter; /* of the items that share the tokens */
};

/* A step's plan of attention. */
struct cuda_attention {
    struct cuda_count n_items;
    const struct cuda_attend_item *items; /* [n_items], aligned to 4 */
    const int32_t *tables;                /* page ids, aligned to 4 */
    float *partials;                      /* [plan's n_partials][n_heads][head_dim + 2] */
    uint32_t *counters; /* [plan's n_counters][n_heads], zeros, and zeroed again by the run */
    uint32_t n_heads;   /* a multiple of the keys' */
    uint32_t window;    /* positions that a token sees; 0: all up to its own */
    float factor;       /* attend_factor */
    float cap;          /* of scores, times log2 e; 0: none */
};

/* Softmax attention; q and out [n][n_heads * head_dim]. */
void cuda_attend(const struct cuda_kv *kv, uint32_t layer, const struct cuda_attention *a,
                 const float *q, float *out, struct CUstream_st *stream);

/* The memory that a plan of attention needs. */
struct cuda_attend_sizes {
    size_t n_items, n_partials, n_counters;
};

struct attend_row; /* backend.h */

/* Makes the items of rows. The caller lays their page tables one after the other, each with as many
 * pages as the row's last position needs. The spans of a token are split among items while there
 * would otherwise be fewer than `enough` items. With items NULL it only counts. */
void cuda_attend_plan(struct cuda_attend_sizes *ret_sizes, struct cuda_attend_item *items,
                      const struct attend_row *rows, size_t n_rows, size_t n_sharing,
                      size_t enough);

#ifdef __cplusplus
}
#endif

#endif
