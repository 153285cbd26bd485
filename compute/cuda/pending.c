/* What was called and has not run yet: ropes that are held back until an operator needs them,
 * copies of pages that wait for a list of their own, and the list of recorded operators. An
 * operator calls cuda_begin before it records itself. */
#include <string.h>

#include "compute/cuda/parts.h"

struct cuda_turns rope_turns(const struct turns *t)
{
    struct cuda_turns r;

    memset(&r, 0, sizeof(r));
    r.turns = t->at;
    r.head_dim = (uint32_t)t->rope.head_dim;
    r.n_rotated = (uint32_t)rope_width(&t->rope);
    r.halves = t->rope.halves;
    return r;
}

struct rope_args {
    struct cuda_turns rope;
    struct cuda_tokens tokens;
    uint32_t n_heads;
    float *x;
};

static void launch_rope(const void *args, cudaStream_t stream)
{
    const struct rope_args *a = args;

    cuda_rope(&a->rope, &a->tokens, a->n_heads, a->x, stream);
}

static void cuda_record_rope(struct cuda *c, const struct held_rope *h)
{
    size_t cap_bytes = list_bucket(h->n) * sizeof(*h->host_positions);
    struct rope_args a;

    if (!list_reserve(&c->list, cap_bytes + 2 * CUDA_COUNT_BYTES))
        return;
    memset(&a, 0, sizeof(a));
    a.rope = rope_turns(h->turns);
    a.tokens.positions =
        list_stage_kept(&c->list, h->host_positions, h->n * sizeof(*h->host_positions), cap_bytes);
    a.tokens.n = cuda_count_of(c, h->n);
    a.n_heads = (uint32_t)h->n_heads;
    a.x = h->x;
    list_add(&c->list, launch_rope, &a, sizeof(a));
}

void cuda_settle(struct cuda *c)
{
    size_t n = c->n_held;

    c->n_held = 0;
    for (size_t i = 0; i < n; i++)
        cuda_record_rope(c, &c->held[i]);
}

void cuda_run_copies(struct cuda *c)
{
    if (c->n_copies > 0)
        list_run(&c->list);
    c->n_copies = 0;
}

bool cuda_begin(struct cuda *c, size_t size_bytes)
{
    cuda_run_copies(c);
    cuda_settle(c);
    return list_reserve(&c->list, size_bytes + 4 * CUDA_COUNT_BYTES);
}

struct cuda_count cuda_count_of(struct cuda *c, size_t n)
{
    uint32_t count = (uint32_t)n;
    struct cuda_count out;

    memset(&out, 0, sizeof(out));
    out.n = list_stage(&c->list, &count, sizeof(count), sizeof(count), NULL);
    out.most = (uint32_t)list_bucket(n);
    return out;
}

void cuda_run(struct cuda *c)
{
    cuda_settle(c);
    list_run(&c->list);
    c->n_copies = 0;
}
