/* The kernels of one instruction set. A set's files are compiled with its compiler flags, and
 * reached only through its table; all sets give the same bits, and `generic` is plain C and defines
 * them. */
#ifndef COMPUTE_CPU_KERNELS_H
#define COMPUTE_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/backend/backend.h"
#include "compute/cpu/blocks.h"
#include "compute/numerics/dtype.h"
#include "compute/numerics/scalar.h"

/* Activations for a product with a quantised weight, int8 by row and group of 32, interleaved by
 * blocks of up to 16 rows: [blocks][groups][rows of the block] records; each block but the last has
 * ACT_ROWS rows.
 *
 * With amax the greatest magnitude of the group: scale is amax / 127, rounded up to 16 significant
 * bits, and value[i] = x[i] / scale (by a reciprocal), rounded to nearest, even. amax < 2^-100
 * counts as 0; amax >= 2^100, infinite or NaN makes scale NaN and all values 0. A product of the
 * group's integer dot d with a weight's codes is then
 *     t = d * scale (one rounding), y = fma(t, weight scale, y), y = fma(weight min, sum, y)
 * in the order of groups; halves come one after the other, and then their mins.
 *
 * A dot is summed up from `start`, the bits of float 1.5 * 2^23 (whose last place is 1) less the
 * amount that the format's bias adds: as_float(sum) is 1.5 * 2^23 + d, and fma(that, scale, back)
 * is t, exactly rounded, for 1.5 * 2^23 * scale has few enough bits to be exact. */
enum {
    ACT_ROWS = 16,
    ACT_START = 0x4b400000,
};
#define ACT_MAGIC 12582912.0f

struct act_record {
    int8_t value[GROUP_VALUES];
    float scale, back; /* back = -1.5 * 2^23 * scale */
    union {
        float sum;           /* scale * the sum of the values; of the lower half, with halves */
        int32_t start_upper; /* with halves and a bias: of values 16 … 31 */
    };
    union {
        int32_t start;
        float sum_upper; /* with halves and no bias: scale * the sum of values 16 … 31 */
    };
};

/* An activation that is far greater than the others of its group. It is left out of the group,
 * which is rounded as if it were 0, so that the others are rounded as finely as they are small.
 * Each is multiplied as a float: when all groups are added, and the sum has been added to the
 * output or stored there, output = fma(value, the weight's number in its column, output) in the
 * order of columns. */
struct act_outlier {
    float value;
    uint32_t column; /* its column's place in the block's list of columns */
};

/* How many outliers a block of rows has. */
struct act_outlier_counts {
    uint32_t n_columns; /* that have one in some row */
    uint32_t of_row[ACT_ROWS];
};

/* The outliers of a block of rows. */
struct act_outliers {
    const struct act_outlier_counts *counts;
    const uint32_t *columns; /* [n_columns], in the order of groups; each stands there once */
    const struct act_outlier
        *rows; /* [n_rows][n_groups], each row's first, in the order of columns */
};

enum { ACT_NONE = GROUP_VALUES /* an outlier's place in a group that has none */ };

/* The fields of a record that depend on the format. */
struct act_form {
    int bias;
    bool halves;
};

/* A slice of a product: panels first … last - 1 against a block of rows. */
struct quant_slice {
    enum dtype type; /* a block type */
    struct block_form form;
    const uint8_t *panels; /* panel 0 */
    size_t n_groups;
    const struct act_record *acts; /* [groups][n_rows] */
    size_t n_rows;                 /* at most ACT_ROWS */
    float *out;                    /* [n_rows][stride], column 0 */
    size_t n_columns, stride;
    bool adds;                    /* adds to out, else stores */
    struct act_outliers outliers; /* are added, too */
};

struct dense_slice {
    enum dtype type; /* a float type */
    const uint8_t *panels;
    size_t n_inputs;
    const float *in; /* [n_rows][n_inputs] */
    size_t n_rows;   /* any */
    float *out;
    size_t n_columns, stride;
    bool adds;
};

/* A layer of a small network (net.h), whose weights [n_out][n_in] are used in place.
 *
 * Long inputs of several rows are packed, by blocks of up to LINEAR_ROWS rows: [blocks][vectors of
 * inputs][rows of the block][LINEAR_VECTOR], the last vector filled up with zeros. Unpacked rows
 * are often a power of two apart, and then share few sets of the L1 cache with one another and with
 * the weights. */
enum {
    LINEAR_ROWS = 12,
    LINEAR_INS = 256, /* inputs processed at a time, whole vectors of them */
    LINEAR_VECTOR = 16,
};

struct linear_slice {
    size_t n, n_in, n_out;
    const float *in;     /* [n][n_in]; not of linear_to_input */
    const float *packed; /* of linear, where linear_packs */
    const float *w;      /* not of linear_to_weight */
    const float *bias;   /* [n_out], of linear */
    const float *dout;   /* [n][n_out], of the gradients */
    float *out;          /* linear: [n][n_out]; to_input: [n][n_in]; to_weight: [n_out][n_in] */
};

static inline bool linear_packs(size_t n, size_t n_in)
{
    return n > 1 && n_in > LINEAR_INS;
}

/* Numbers of a packed row. */
static inline size_t linear_packed_width(size_t n_in)
{
    return (n_in + LINEAR_VECTOR - 1) / LINEAR_VECTOR * LINEAR_VECTOR;
}

/* Keys and values of one page, layer and head: K [head_dim][KV_PAGE_TOKENS], then V
 * [KV_PAGE_TOKENS][padded_dim]; after each, f32 [KV_PAGE_TOKENS], of q8 the positions' scales, of
 * other types the greatest magnitude at each, NaN where a number is NaN. */
struct kv_view {
    uint8_t *base;     /* of page 0, in the layer, head 0 */
    size_t page_bytes; /* from a page to the next */
    size_t head_bytes; /* from a head to the next */
    size_t values_at;  /* bytes from a head's keys to its values */
    size_t head_dim, padded_dim;
    enum kv_type type;
};

/* A token of a step, of any sequence. */
struct attend_token {
    const int32_t *pages;
    size_t n;   /* positions up to the last that it sees */
    size_t own; /* positions up to its own, from which windows reach back */
    size_t row; /* in the step's activations */
};

/* Tokens whose queries of one key head are computed together: pages that they share are read once.
 * Of each row of q and out, the first n_sharing * head_dim are used.
 *
 * A block may be one of several, which have the same queries and other positions. Each span's
 * results for a query are then written to `spans`, and attend_merge makes `out` of them when all
 * are there. */
struct attend_block {
    struct kv_view kv;
    size_t head; /* of keys and values */
    size_t n_sharing, n_tokens;
    const struct attend_token *tokens;
    size_t begin, end; /* positions, in whole spans; those that a token does not see are ignored */
    size_t window;     /* positions up to its own that a token sees; 0: all of them */
    bool window_is_chunk; /* as of struct attention */
    float factor;         /* attend_factor */
    float cap;            /* of scores, times log2 e; 0: none */
    const float *sinks;   /* [n_sharing] as struct attention's, of these heads; NULL: none */
    const float *q;       /* row 0 */
    float *out;
    size_t stride; /* of a row */
    float *spans;  /* NULL, or [n_tokens * n_sharing][n_spans][attend_span_floats] */
    size_t n_spans;
    /* The first tokens of the next block: a hint to prefetch. */
    const struct attend_token *next;
    size_t next_head;
};

/* Rows to be rounded, all within one block of records. */
struct act_slice {
    const float *in; /* [n_rows][n_groups * 32], stride floats from row to row */
    size_t n_rows, n_groups, stride;
    struct act_form form;
    float above;            /* activation_outlier_above */
    struct act_record *out; /* row r's group g is out[g * step + r] */
    size_t step;            /* rows of the block */
    /* Row r's group g: places[g * step + r] is where its outlier stands in it, or ACT_NONE, and
     * outliers[r * outlier_stride + g] has its value; without an outlier that is any. */
    uint8_t *places;
    struct act_outlier *outliers;
    size_t outlier_stride;
};

enum { KERNELS_HEAD_DIM = 576 }; /* the widest heads: latent keys of 512, and 64 that are rotated */
enum { ATTEND_QUERIES = 192 };   /* n_tokens * n_sharing of a block, at most */

/* A span's results for a query: its outputs, then its greatest score and the sum of its weights. */
static inline size_t attend_span_floats(const struct kv_view *kv)
{
    return kv->padded_dim + SCALAR_LANES;
}

struct net_draw; /* net.h */
struct recur_block;

struct kernels {
    const char *name;

    void (*quantise)(const struct act_slice *s);
    void (*quant_product)(const struct quant_slice *s, size_t first, size_t last);
    void (*dense_product)(const struct dense_slice *s, size_t first, size_t last);
    /* Forward: outputs first … last - 1. to_input: gradients of inputs first … last - 1.
     * to_weight: gradients of the weights of outputs first … last - 1, added. */
    void (*linear)(const struct linear_slice *s, size_t first, size_t last);
    /* Vectors first … last - 1 of all rows. */
    void (*linear_pack)(const struct linear_slice *s, float *packed, size_t first, size_t last);
    void (*linear_to_input)(const struct linear_slice *s, size_t first, size_t last);
    void (*linear_to_weight)(const struct linear_slice *s, size_t first, size_t last);
    /* One row, of a draw that drops. */
    void (*dropout)(const struct net_draw *d, uint32_t layer, float rate, size_t width, float *x);
    void (*rms_norm)(const float *in, const float *gain, float eps, size_t width, float *out);
    /* cosines and sines [n_rotated], as rope in float.c says */
    void (*rope)(float *row, size_t n_heads, size_t head_dim, size_t n_rotated,
                 const float *cosines, const float *sines);
    /* pairs (j, j + n_rotated / 2); cosines and sines [n_rotated / 2] */
    void (*rope_halves)(float *row, size_t n_heads, size_t head_dim, size_t n_rotated,
                        const float *cosines, const float *sines);
    void (*swiglu)(float *gate, const float *up, size_t n);
    void (*geglu)(float *gate, const float *up, size_t n);
    void (*scale)(float *x, float factor, float cap, size_t n);        /* scalar_scaled */
    void (*add)(float *to, const float *from, float factor, size_t n); /* to += factor * from */
    /* A row: gates_layer_norm; gates_activated. */
    void (*layer_norm)(const float *in, const float *gain, const float *bias, float eps,
                       size_t width, float *out);
    void (*activate)(enum activation kind, float *x, const float *by, size_t n);
    void (*add_tap)(const float *taps, size_t n_taps, size_t tap, const float *row, size_t width,
                    float *out); /* gates_add_tap */
    /* Columns of one head's recurrent state (recurrence.h). */
    void (*recur)(const struct recur_block *b);
    /* k and v: one token's head [head_dim], to its place in page; */
    void (*kv_store)(const struct kv_view *kv, int32_t page, size_t slot, size_t head,
                     const float *k, const float *v);
    void (*attend)(const struct attend_block *b);
    void (*attend_merge)(const struct attend_block *b); /* of any of a query's blocks */
};

extern const struct kernels kernels_generic;
#if defined(__x86_64__)
extern const struct kernels kernels_avx2;    /* AVX2, FMA, F16C */
extern const struct kernels kernels_vnni256; /* and AVX-VNNI */
extern const struct kernels kernels_avx512;  /* AVX-512 F, BW, VL, VNNI */
#elif defined(__aarch64__)
extern const struct kernels kernels_neon;    /* every 64-bit Arm has it */
extern const struct kernels kernels_dotprod; /* and dot products of int8 */
extern const struct kernels kernels_i8mm;    /* and those of matrices of int8 */
#endif

#endif
