/* What the files of the reference backend share. Private to compute/ref/. */
#ifndef COMPUTE_REF_PARTS_H
#define COMPUTE_REF_PARTS_H

#include <stddef.h>
#include <stdint.h>

#include "compute/backend/backend.h"

/* Rows of a weight that are decoded at once: a row of activations is read once for all of them. */
enum { REF_WEIGHT_ROWS = 8 };

struct ref_scratch {
    float *at;
    size_t cap;
};

struct ref {
    struct backend base;
    struct error failed; /* the first failure since the last sync; STATUS_OK when there is none */
    struct ref_scratch normed, gated, product; /* of one call's rows */
    struct ref_scratch weights;                /* [n_vocab] of one row that is drawn from */
    struct ref_scratch decoded;                /* [REF_WEIGHT_ROWS][columns] of one weight */
    float *scores;                             /* [n_scores] of one query and head */
    size_t n_scores;
};

struct buffer {
    size_t size_bytes;
    float data[];
};

struct weight {
    struct tensor tensor; /* its data are rows */
    void *rows;
};

/* A layer in a page: [2: keys, values][KV_PAGE_TOKENS][n_kv_heads], each of head_bytes; q8: the
 * scale, then the values; of other types the last four bytes are not used. Behind them, the rows.
 */
struct ref_kv_layer {
    struct kv_layer is;
    size_t head_bytes;
    size_t at; /* in a page */
};

/* Page by page, so that a page is copied in one go. The slots follow the pages. */
struct kv {
    struct kv_shape shape;
    struct ref_kv_layer *layers; /* [n_layers] */
    size_t page_bytes;
    unsigned char *data;
};

enum kv_part { KV_KEYS, KV_VALUES };

static inline struct ref *to_ref(struct backend *b)
{
    return (struct ref *)b;
}

/* The activations of a buffer, which the caller of the operator made large enough. */
float *ref_floats(struct buffer *m, size_t n, size_t width);                   /* [n][width] */
const float *ref_const_floats(const struct buffer *m, size_t n, size_t width); /* [n][width] */

/* Scratch for at least n numbers. NULL: there was no memory, and ref_fail was called. */
float *ref_scratch_of(struct ref *r, struct ref_scratch *s, size_t n);

/* Keeps the first failure. */
void ref_fail(struct ref *r, const struct error *err);

/* kv.c */
enum status ref_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                        struct error *err) MUST_CHECK;
void ref_kv_close(struct backend *b, struct kv *kv);
void ref_kv_copy(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page);
void ref_kv_offload(struct backend *b, struct kv *kv, int32_t page, int32_t slot);
void ref_kv_reload(struct backend *b, struct kv *kv, int32_t slot, int32_t page);
size_t ref_kv_image_bytes(const struct kv *kv);
void ref_kv_read(const struct kv *kv, int32_t page, void *out);
void ref_kv_write(struct backend *b, struct kv *kv, int32_t page, const void *image);
void ref_kv_store(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                  const struct buffer *v, const struct attend_row *rows, size_t n_rows);
void ref_kv_conv(struct backend *b, struct kv *kv, size_t layer, const struct weight *taps,
                 size_t n_taps, const struct buffer *x, const struct attend_row *rows,
                 size_t n_rows, struct buffer *out);
/* One head's key or value at a position, as f32: in place, or decoded into scratch [head_dim]. */
const float *ref_kv_at(const struct kv *kv, size_t layer, enum kv_part part, const int32_t *pages,
                       size_t pos, size_t head, float *scratch);

/* attend.c */
void ref_rope(struct backend *b, const struct rope *r, const uint32_t *positions, size_t n,
              struct buffer *x);
void ref_attend(struct backend *b, const struct kv *kv, size_t layer, const struct attention *how,
                const struct buffer *q, const struct attend_row *rows, size_t n_rows,
                struct buffer *out);

/* rows.c */
void ref_norm(struct backend *b, const struct input *in, size_t n, size_t width,
              struct buffer *out);
void ref_add(struct backend *b, const struct buffer *in, float factor, size_t n, size_t width,
             struct buffer *out);
void ref_add_bias(struct backend *b, const struct weight *bias, size_t n, struct buffer *x);
void ref_scale(struct backend *b, float factor, float cap, size_t n, size_t width,
               struct buffer *x);
void ref_scatter_add(struct backend *b, const struct buffer *in, const uint32_t *rows,
                     const float *factors, size_t n, size_t width, struct buffer *out);
void ref_scale_rows(struct backend *b, const float *factors, size_t n, size_t width,
                    struct buffer *x);

/* gates.c */
void ref_layer_norm(struct backend *b, const struct layer_norm *how, const struct buffer *x,
                    size_t n, size_t width, struct buffer *out);
void ref_activate(struct backend *b, enum activation kind, const struct buffer *by, size_t n,
                  size_t width, struct buffer *x);
void ref_copy_columns(struct backend *b, const struct buffer *in, size_t in_stride, size_t in_at,
                      size_t n, size_t width, struct buffer *out, size_t out_stride, size_t out_at);
void ref_cut(struct backend *b, float times, size_t n, size_t width, struct buffer *x);
void ref_fill(struct backend *b, float value, size_t n, size_t width, struct buffer *x);

/* sample.c */
void ref_sample(struct backend *b, const struct buffer *logits, size_t n_vocab,
                const struct draw_list *list, struct drawn *out);

/* matrix.c */
enum status ref_weight_open(struct backend *b, const struct tensor *t, struct weight **out,
                            struct error *err) MUST_CHECK;
void ref_weight_close(struct backend *b, struct weight *w);
void ref_embed(struct backend *b, const struct weight *table, const int32_t *ids, size_t n,
               struct buffer *out);
void ref_matmul(struct backend *b, const struct input *in, size_t n, const struct product *products,
                size_t n_products);
void ref_matmul_add(struct backend *b, const struct input *in, size_t n,
                    const struct product *product);
void ref_ffn(struct backend *b, const struct input *in, size_t n, const struct ffn *f,
             struct buffer *out);

/* The rows that products read [n][width]; NULL: there was no memory, and ref_fail was called. */
const float *ref_input_rows(struct ref *r, const struct input *in, size_t n, size_t width);
/* out [n_cols] */
void ref_decode_row(const struct weight *w, size_t row, float *out);

/* [n] · [n], in sixteen lanes (scalar.h) */
float ref_dot(const float *a, const float *b, size_t n);

#endif
