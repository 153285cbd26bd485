/* Draws tokens on the device: draws are inputs of the list, ids are downloaded. */
#include <string.h>

#include "compute/cuda/net_kernels.h"
#include "compute/cuda/parts.h"

struct draw_args {
    const float *logits;
    uint32_t n_vocab, n_ends;
    const struct draw *draws;
    struct cuda_count n;
    const int32_t *ends;
    struct drawn *out;
};

static void launch_draw(const void *args, cudaStream_t stream)
{
    const struct draw_args *a = args;

    cuda_draw(a->logits, a->n_vocab, a->draws, a->n, a->ends, a->n_ends, a->out, stream);
}

void cuda_sample(struct backend *b, const struct buffer *logits, size_t n_vocab,
                 const struct draw_list *list, struct drawn *out)
{
    struct cuda *c = to_cuda(b);
    size_t draws_bytes = list_bucket(list->n) * sizeof(*list->draws);
    size_t ends_bytes = list->n_ends * sizeof(*list->ends), n_rows = 0;
    struct draw_args a;
    void *drawn;

    if (list->n == 0)
        return;
    for (size_t i = 0; i < list->n; i++)
        n_rows = list->draws[i].row >= n_rows ? list->draws[i].row + (size_t)1 : n_rows;
    drawn = cuda_scratch(c, &c->drawn, list_bucket(list->n) * sizeof(*out));
    if (drawn == NULL || !cuda_begin(c, draws_bytes + ends_bytes))
        return;
    memset(&a, 0, sizeof(a));
    a.logits = cuda_read(logits, n_rows, n_vocab);
    a.n_vocab = (uint32_t)n_vocab;
    a.draws = list_stage(&c->list, list->draws, list->n * sizeof(*list->draws), draws_bytes, NULL);
    a.ends = list_stage(&c->list, list->ends, ends_bytes, ends_bytes, NULL);
    a.n_ends = (uint32_t)list->n_ends;
    a.n = cuda_count_of(c, list->n);
    a.out = drawn;
    list_add(&c->list, launch_draw, &a, sizeof(a));
    download_later(c, out, drawn, list->n * sizeof(*out));
}
