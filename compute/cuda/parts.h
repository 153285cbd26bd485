/* What the host files of the cuda backend share. Private to compute/cuda/. */
#ifndef COMPUTE_CUDA_PARTS_H
#define COMPUTE_CUDA_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "compute/backend/backend.h"
#include "compute/cuda/device.h"
#include "compute/cuda/gemm.h"
#include "compute/cuda/kernels.h"
#include "compute/cuda/list.h"

/* Pointers are to device memory, unless their names say host. */

struct buffer {
    size_t size_bytes;
    void *at;
};

struct weight {
    struct cuda_matrix matrix;
    void *memory; /* of the matrix */
    float *gain;  /* [n_cols], of a weight of one row; else NULL */
};

struct kv {
    struct kv_shape shape;
    struct cuda_kv view;
    uint8_t *host_slots; /* [shape.n_slots] pages; NULL where there are none */
};

/* Scratch memory of an operator's latest call. */
struct cuda_scratch {
    void *at;
    size_t cap_bytes;
};

/* A rope's cosines and sines for positions 0 … n_positions - 1. */
struct turns {
    struct rope rope; /* of any number of heads */
    size_t n_positions;
    double *host_scale; /* the rope's */
    float *at;          /* [n_positions][pairs][2]; NULL: no table */
};

enum { CUDA_TURNS = 2 }; /* a model has one for its windowed layers */

/* A rope that was called, and is not recorded yet. */
struct held_rope {
    const uint32_t *host_positions; /* [n] */
    size_t n, n_heads;
    const struct turns *turns;
    float *x;
};

/* Shared by the operators of a step's layers: made for the first layer, kept while its rows are the
 * same and the list has not run. */
struct step_plan {
    const struct attend_row *rows;
    size_t n_rows, end; /* end: of the rows of activations */
    uint64_t epoch;     /* of the list */
    struct cuda_tokens tokens;
    const uint32_t *host_positions; /* [end] */
    bool has_items;
    struct cuda_attention attention;
};

/* Pinned memory through which a weight's rows go, and the memory where they arrive. */
struct upload_slot {
    uint8_t *host, *at; /* [cap_bytes] */
    size_t cap_bytes;
    cudaEvent_t copied, done;
    bool is_busy;
};

/* Results that stay in pinned memory until sync copies them to their destination. */
struct cuda_download {
    void *host_to;
    size_t at, size_bytes;
};

struct downloads {
    uint8_t *host; /* [cap_bytes] pinned */
    size_t cap_bytes, used_bytes;
    struct cuda_download *all;
    size_t n, cap;
};

/* --fast-math: for many rows, a weight is converted to f16, a few of its rows at a time, and cuBLAS
 * multiplies. */
struct fast {
    bool is_on;
    size_t from_rows;                    /* 0: the table's */
    struct cuda_scratch weights;         /* the rows in f16; allocated at full size */
    struct cuda_scratch inputs;          /* the inputs in f16 */
    struct cuda_scratch idle;            /* matrices that a rate is measured with */
    char products[BACKEND_PRODUCTS_MAX]; /* how products are computed, in words */
};

struct cuda {
    struct backend base;
    struct cuda_device device;
    struct command_list list; /* the operators recorded since it last ran */
    size_t n_copies;          /* of pages, in the list */
    struct held_rope held[2];
    size_t n_held;
    struct step_plan plan;
    struct turns turns[CUDA_TURNS];
    size_t n_made; /* tables of turns, so far */

    struct cuda_scratch inputs, normed; /* the inputs of products, in int8 and as floats */
    struct cuda_scratch hidden, gated;  /* of the gated network: gate and up; what down reads */
    struct cuda_scratch partials, counters;
    struct cuda_scratch drawn; /* tokens, before they go to the host */

    struct upload_slot uploads[2];
    struct downloads downloads;

    struct gemm gemm;
    struct fast fast;
};

enum { CUDA_COUNT_BYTES = LIST_ALIGN };

static inline struct cuda *to_cuda(struct backend *b)
{
    return (struct cuda *)b;
}

/* memory.c */

/* Frees device memory once no recorded or running operator uses it. */
void cuda_give_back(struct cuda *c, void *at);

/* Copies memory of the host that is not pinned, and waits: the driver may read such memory after
 * the call that copies it, and the caller may free it. No operator that was recorded has run. */
enum status cuda_copy_in(struct cuda *c, void *to, const void *host_from, size_t size_bytes,
                         const char *what, struct error *err) MUST_CHECK;

/* Scratch memory of size_bytes. Where it grows, the list runs, the old contents are lost and the
 * new memory is zeros. NULL: failed, which is kept. */
void *cuda_scratch(struct cuda *c, struct cuda_scratch *s, size_t size_bytes);

/* The activations of a buffer, which the caller of the operator made large enough. */
float *cuda_written(struct buffer *m, size_t n, size_t width);
const float *cuda_read(const struct buffer *m, size_t n, size_t width);

struct buffer *cuda_buffer_open(struct backend *b, size_t size_bytes);
void cuda_buffer_close(struct backend *b, struct buffer *m);
size_t cuda_memory_free(struct backend *b);

/* pending.c */

/* Before an operator stages inputs of size_bytes and records itself, with up to four counts or
 * pieces of inputs. False: there has been a failure. */
bool cuda_begin(struct cuda *c, size_t size_bytes) MUST_CHECK;

/* Stages a number of rows. */
struct cuda_count cuda_count_of(struct cuda *c, size_t n);

/* Runs the copies of pages in a list of their own, before the step's other operators: the step's
 * list is then the same as other steps'. */
void cuda_run_copies(struct cuda *c);

/* Records the ropes that were held back. */
void cuda_settle(struct cuda *c);

/* Runs all that was recorded or held back. */
void cuda_run(struct cuda *c);

/* The table of a rope's turns as kernels take it. */
struct cuda_turns rope_turns(const struct turns *t);

/* upload.c: copies a weight's rows into its matrix. */
enum status upload_matrix(struct cuda *c, const struct cuda_matrix *to, const struct tensor *from,
                          struct error *err) MUST_CHECK;
void upload_close(struct cuda *c);

/* download.c */
void cuda_upload(struct backend *b, struct buffer *to, const void *from, size_t size_bytes);
void cuda_download(struct backend *b, void *to, const struct buffer *from, size_t size_bytes);
/* Copies size_bytes of device memory, written by the list, to host_to at the next sync. */
void download_later(struct cuda *c, void *host_to, const void *from, size_t size_bytes);
/* Called after waiting for the device; if_well: it worked. */
void downloads_deliver(struct cuda *c, bool if_well);
void downloads_close(struct cuda *c);

/* matrix.c */
enum status cuda_weight_open(struct backend *b, const struct tensor *t, struct weight **out,
                             struct error *err) MUST_CHECK;
void cuda_weight_close(struct backend *b, struct weight *w);
void cuda_embed_rows(struct backend *b, const struct weight *table, const int32_t *ids, size_t n,
                     struct buffer *out);
void cuda_gather_rows(struct backend *b, const struct buffer *in, const uint32_t *rows, size_t n,
                      size_t width, struct buffer *out);
void cuda_matmul(struct backend *b, const struct input *in, size_t n,
                 const struct product *products, size_t n_products);
void cuda_matmul_add(struct backend *b, const struct input *in, size_t n,
                     const struct product *product);
void cuda_ffn(struct backend *b, const struct input *in, size_t n, const struct ffn *f,
              struct buffer *out);

/* rows.c */
void cuda_norm_rows(struct backend *b, const struct input *in, size_t n, size_t width,
                    struct buffer *out);
void cuda_add_rows(struct backend *b, const struct buffer *in, float factor, size_t n, size_t width,
                   struct buffer *out);
void cuda_add_bias(struct backend *b, const struct weight *bias, size_t n, struct buffer *x);
void cuda_scale_all(struct backend *b, float factor, float cap, size_t n, size_t width,
                    struct buffer *x);
void cuda_scatter_add(struct backend *b, const struct buffer *in, const uint32_t *rows,
                      const float *factors, size_t n, size_t width, struct buffer *out);
void cuda_scale_rows(struct backend *b, const float *factors, size_t n, size_t width,
                     struct buffer *x);

/* fast.c */
void fast_open(struct cuda *c, const struct backend_config *config);
void fast_close(struct cuda *c);
/* Whether a product of n rows is multiplied by cuBLAS, which is faster from from_rows rows on. */
bool fast_takes(struct cuda *c, const struct product *p, size_t n, size_t from_rows);
/* Memory for their inputs; NULL: failed, which is kept. */
uint16_t *fast_inputs(struct cuda *c, size_t n, size_t width);
/* Records a product for which fast_takes is true. It may overwrite the result's rows behind n. */
void fast_multiply(struct cuda *c, const struct product *p, const uint16_t *in, size_t n,
                   bool adds);
bool cuda_vendor_matmul(struct backend *b, size_t n, size_t n_rows, size_t n_cols);

/* pages.c */
enum status cuda_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                         struct error *err) MUST_CHECK;
void cuda_kv_close(struct backend *b, struct kv *kv);
void cuda_kv_copy_page(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page);
void cuda_kv_offload(struct backend *b, struct kv *kv, int32_t page, int32_t slot);
void cuda_kv_reload(struct backend *b, struct kv *kv, int32_t slot, int32_t page);
bool cuda_is_page(const struct kv *kv, int32_t page);

/* rope.c */
void cuda_rope_rows(struct backend *b, const struct rope *r, const uint32_t *positions, size_t n,
                    struct buffer *x);
void rope_close(struct cuda *c);

/* sequence.c */
void cuda_kv_store_rows(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                        const struct buffer *v, const struct attend_row *rows, size_t n_rows);
void cuda_attend_rows(struct backend *b, const struct kv *kv, size_t layer,
                      const struct attention *how, const struct buffer *q,
                      const struct attend_row *rows, size_t n_rows, struct buffer *out);

/* net.c */
extern const struct net_ops cuda_net_ops;

/* sample.c */
void cuda_sample(struct backend *b, const struct buffer *logits, size_t n_vocab,
                 const struct draw_list *list, struct drawn *out);

/* capability_check.cu: launches a kernel that does nothing. */
void cuda_check_capability(struct CUstream_st *stream);

#endif
