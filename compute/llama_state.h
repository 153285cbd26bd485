/* A llama as its life (llama.c) and its steps (llama_forward.c) know it; nobody else includes this.
 */
#ifndef COMPUTE_LLAMA_STATE_H
#define COMPUTE_LLAMA_STATE_H

#include <stdatomic.h>

#include "compute/llama.h"
#include "compute/llama_parts.h"

struct layer {
    struct weight *parts[N_PARTS];
};

/* One of the threads that share a step (llama_lanes.c). */
struct lane {
    struct backend *backend;
    struct llama *model;
    struct llama_row *rows; /* [n_rows], at most max_tokens, of the step */
    size_t n_rows, cost;
    uint64_t finished_ns;
    enum status status;
    struct error err;
};

struct llama {
    struct backend *backend;
    const struct gguf *file;
    struct llama_shape shape;
    struct llama_config config;
    size_t weight_bytes;
    atomic_size_t n_sharers; /* that took its weights; any thread */

    struct layer *layers; /* [n_layers] */
    struct weight *embed, *norm;
    struct weight *own_head; /* NULL where the head is embed */
    float *rope_scale;       /* [head_dim / 2], or NULL */
    struct kv *kv;
    bool is_lane;       /* kv is the model's whose lane it is */
    struct lane *lanes; /* [n_lanes] or none */
    size_t n_lanes;
    size_t n_together; /* steps to come that take no lanes */

    /* One call's activations, on the device. */
    struct buffer *x;         /* [max_tokens][width], the residual stream */
    struct buffer *q, *mixed; /* [max_tokens][n_heads * head_dim] */
    struct buffer *k, *v;     /* [max_tokens][n_kv_heads * head_dim] */
    struct buffer *picked;    /* [max_logits][width] of x, in the last layer */
    struct buffer *logits;    /* [max_logits][n_vocab] */
    struct buffer *fetched;   /* the same, of those that the host wants; only where it draws */

    /* One call's tables, on the host; the backend reads them until it is synced. */
    int32_t *ids;            /* [max_tokens] */
    uint32_t *positions;     /* [max_tokens] */
    struct attend_row *rows; /* [max_tokens] */
    uint32_t *picks; /* [max_logits] the tokens whose logits are wanted; as a part of all: */
    uint32_t *pick_positions;     /* [max_logits] */
    struct attend_row *pick_rows; /* [max_logits] */
    float *staged;                /* [max_logits][n_vocab]: logits on their way to several places */
    struct draw *draws;           /* [max_logits] */
    struct drawn *drawn;          /* [max_logits] */
    uint32_t *wanted;             /* [max_logits] rows of logits that the host wants */
    float **places;               /* [max_logits] and where */
};

/* Opens a llama on b with the weights and pages of m, which outlives it. */
enum status llama_open_lane(struct llama **out, struct llama *m, struct backend *b,
                            struct error *err) MUST_CHECK;

/* llama_lanes.c */
enum status lanes_open(struct llama *m, struct error *err) MUST_CHECK;
void lanes_close(struct llama *m);
/* Deals the rows to the lanes; false: the step is not for lanes. */
bool lanes_deal(struct llama *m, const struct llama_row *rows, size_t n_rows);
/* What llama_forward does, of the rows that have been dealt. */
enum status lanes_forward(struct llama *m, struct error *err) MUST_CHECK;

#endif
