/* What the files of the cpu backend share. Private to compute/cpu/. */
#ifndef COMPUTE_CPU_PARTS_H
#define COMPUTE_CPU_PARTS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "compute/backend/backend.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/panels.h"
#include "compute/cpu/thread_pool.h"

struct slab; /* memory of weights (weights.c) */

/* Rows as products read them: quantised, or floats. */
struct activation_rows {
    struct act_record *acts;           /* [blocks of rows][groups][rows of the block] */
    struct act_outlier *outliers;      /* [n][groups], of each block as struct act_outliers says */
    struct act_outlier_counts *counts; /* [blocks] */
    uint32_t *columns;                 /* [blocks][groups * rows of the block] */
    uint8_t *places;                   /* likewise, as struct act_slice says */
    float *floats;                     /* [n][width] */
    size_t acts_cap, outliers_cap, counts_cap, columns_cap, places_cap, floats_cap;
};

/* Cosines and sines of one kind of rope, for positions 0 … n_positions - 1. */
struct rope_table {
    struct rope rope; /* of any number of heads; head_dim 0: no table */
    double *scale;    /* the rope's */
    size_t n_positions;
    float *cosines, *sines; /* [n_positions][stride], as the rope's kernel takes them */
    size_t stride;
};

enum { ROPE_TABLES = 2 }; /* a model has one for its windowed layers */

/* A part of a step's plan of attention (sequence.c): made for the first layer, kept for the
 * others. */
struct attend_item {
    size_t first, n_tokens; /* of the plan's tokens */
    size_t head, skip;      /* of keys; query heads of it before these */
    size_t n_sharing;
    size_t begin, end;          /* positions */
    struct attend_group *group; /* NULL: all positions */
    size_t cost_before;         /* of the items before */
};

/* Items of the same queries and consecutive positions. The thread that finishes the last of them
 * merges their results. */
struct attend_group {
    atomic_size_t n_left; /* items, in this layer */
    size_t n_items, n_spans;
    size_t spans_at; /* in the plan's spans */
};

struct plan {
    const struct kv *kv; /* NULL: there is no plan */
    const struct attend_row *rows;
    size_t n_rows;
    const struct attend_row **order; /* [n_rows] */
    struct attend_token *tokens;     /* [n_tokens] */
    size_t n_tokens, end;            /* end: of the rows of activations */
    size_t n_heads, n_kv_heads;      /* of the items */
    size_t span_floats;              /* attend_span_floats of them */
    struct attend_item *items;       /* [n_items] 0: not made */
    size_t n_items, cost;
    struct attend_group *groups; /* [n_groups] */
    size_t n_groups;
    float *spans; /* [n_floats] of all groups */
    size_t n_floats;
    size_t order_cap, tokens_cap, items_cap, groups_cap, spans_cap;
};

struct cpu {
    struct backend base;
    const struct kernels *kernels;
    struct thread_pool *pool;
    struct error failed; /* the first failure since the last sync; STATUS_OK when there is none */
    struct slab *slabs;

    /* The rows that the products of a call read: its input; its input in the form of up, where gate
     * reads another form; the input of down. */
    struct activation_rows inputs, up_inputs, hidden;

    void *packed; /* inputs of a layer (kernels.h) */
    size_t packed_cap;

    struct rope_table ropes[ROPE_TABLES]; /* the one used last is the first */
    struct plan plan;
};

struct buffer {
    size_t size_bytes;
    float *data; /* LINE_BYTES aligned */
};

struct weight {
    struct tensor tensor;
    size_t n_panels, panel_bytes;
    bool is_quantised;
    struct block_form form; /* if quantised */
    float *row;             /* [n_cols] decoded, of a weight of one row; else NULL */
    struct slab *slab;
    uint8_t *panels;
};

static inline struct cpu *to_cpu(struct backend *b)
{
    return (struct cpu *)b;
}

/* at, rounded up to a line */
static inline float *cpu_line_up(void *at)
{
    return (float *)(((uintptr_t)at + LINE_BYTES - 1) & ~(uintptr_t)(LINE_BYTES - 1));
}

/* memory.c */

/* The activations of a buffer, which the caller of the operator made large enough. */
float *cpu_written(struct buffer *m, size_t n, size_t width);
const float *cpu_read(const struct buffer *m, size_t n, size_t width);

/* Keeps the first failure. */
void cpu_fail(struct cpu *c, const struct error *err);

/* Makes *room hold at least need items of size bytes; contents are lost where it grows. False: no
 * memory, and cpu_fail was called. */
bool cpu_reserve(struct cpu *c, void **room, size_t *cap, size_t need, size_t size,
                 const char *what) MUST_CHECK;

/* Zeroed memory that costs nothing until touched, in huge pages where the system has them, since
 * kernels access it out of order. NULL when none is left. */
void *cpu_map(size_t size_bytes);
void cpu_unmap(void *at, size_t size_bytes);
enum { CPU_HUGE_BYTES = 2 << 20 };
/* Makes the system allocate memory of cpu_map, in whole huge pages, as a first touch would;
 * contents stay. False: it has none, or cannot. */
bool cpu_populate(void *at, size_t size_bytes) MUST_CHECK;

/* weights.c */
enum status cpu_weight_open(struct backend *b, const struct tensor *t, struct weight **out,
                            struct error *err) MUST_CHECK;
void cpu_weight_close(struct backend *b, struct weight *w);
void cpu_embed(struct backend *b, const struct weight *table, const int32_t *ids, size_t n,
               struct buffer *out);

/* products.c */
void cpu_matmul(struct backend *b, const struct input *in, size_t n, const struct product *products,
                size_t n_products);
void cpu_matmul_add(struct backend *b, const struct input *in, size_t n,
                    const struct product *product);
void cpu_ffn(struct backend *b, const struct input *in, size_t n, const struct ffn *f,
             struct buffer *out);
void cpu_rows_free(struct activation_rows *r);

/* sequence.c */
enum status cpu_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                        struct error *err) MUST_CHECK;
void cpu_kv_close(struct backend *b, struct kv *kv);
bool cpu_kv_prepare(struct backend *b, struct kv *kv, bool is_busy);
void cpu_kv_copy(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page);
size_t cpu_kv_image_bytes(const struct kv *kv);
void cpu_kv_read(const struct kv *kv, int32_t page, void *out);
void cpu_kv_write(struct backend *b, struct kv *kv, int32_t page, const void *image);
void cpu_kv_store(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                  const struct buffer *v, const struct attend_row *rows, size_t n_rows);
void cpu_attend(struct backend *b, const struct kv *kv, size_t layer, const struct attention *how,
                const struct buffer *q, const struct attend_row *rows, size_t n_rows,
                struct buffer *out);
void cpu_kv_conv(struct backend *b, struct kv *kv, size_t layer, const struct weight *taps,
                 size_t n_taps, const struct buffer *x, const struct attend_row *rows,
                 size_t n_rows, struct buffer *out);
void cpu_plan_free(struct plan *p);

/* rows.c */
void cpu_norm(struct backend *b, const struct input *in, size_t n, size_t width,
              struct buffer *out);
void cpu_add(struct backend *b, const struct buffer *in, float factor, size_t n, size_t width,
             struct buffer *out);
void cpu_add_bias(struct backend *b, const struct weight *bias, size_t n, struct buffer *x);
void cpu_scale(struct backend *b, float factor, float cap, size_t n, size_t width,
               struct buffer *x);
void cpu_scatter_add(struct backend *b, const struct buffer *in, const uint32_t *rows,
                     const float *factors, size_t n, size_t width, struct buffer *out);
void cpu_scale_rows(struct backend *b, const float *factors, size_t n, size_t width,
                    struct buffer *x);

/* gates.c */
void cpu_layer_norm(struct backend *b, const struct layer_norm *how, const struct buffer *x,
                    size_t n, size_t width, struct buffer *out);
void cpu_activate(struct backend *b, enum activation kind, const struct buffer *by, size_t n,
                  size_t width, struct buffer *x);
void cpu_copy_columns(struct backend *b, const struct buffer *in, size_t in_stride, size_t in_at,
                      size_t n, size_t width, struct buffer *out, size_t out_stride, size_t out_at);
void cpu_cut(struct backend *b, float times, size_t n, size_t width, struct buffer *x);
void cpu_fill(struct backend *b, float value, size_t n, size_t width, struct buffer *x);

/* rope.c */
void cpu_rope(struct backend *b, const struct rope *r, const uint32_t *positions, size_t n,
              struct buffer *x);
void cpu_ropes_free(struct cpu *c);

#endif
