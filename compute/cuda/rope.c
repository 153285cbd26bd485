/* Rope, by a table of rotations. A rope is held back until it is known whether the keys that it
 * rotates are stored next: then one kernel does both, and the queries, too (sequence.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cuda/parts.h"

enum { MIN_POSITIONS = 4096 /* of a table */ };

static bool cuda_rope_is_table_of(const struct turns *t, const struct rope *r)
{
    if (t->at == NULL || t->head_dim != r->head_dim || t->base != r->base ||
        (t->host_scale == NULL) != (r->scale == NULL))
        return false;
    return r->scale == NULL ||
           memcmp(t->host_scale, r->scale, r->head_dim / 2 * sizeof *r->scale) == 0;
}

/* The angles of ref, in double for the same reason. */
static void cuda_rope_fill(float *out, const struct rope *r, size_t n)
{
    for (size_t j = 0; j < r->head_dim / 2; j++) {
        double frequency = pow((double)r->base, -2.0 * (double)j / (double)r->head_dim);

        if (r->scale != NULL)
            frequency /= (double)r->scale[j];
        for (size_t pos = 0; pos < n; pos++) {
            double angle = (double)pos * frequency;
            float *turn = out + (pos * (r->head_dim / 2) + j) * 2;

            turn[0] = (float)cos(angle);
            turn[1] = (float)sin(angle);
        }
    }
}

void rope_close(struct cuda *c)
{
    free(c->turns.host_scale);
    cuda_give_back(c, c->turns.at);
    c->turns = (struct turns){0};
}

static bool copy_table(struct cuda *c, struct turns *t, const float *host, size_t size_bytes)
{
    bool well;

    t->at = device_take(&c->device, size_bytes);
    if (t->at == NULL || !device_enter(&c->device))
        return false;
    well = device_works(
        &c->device,
        cudaMemcpyAsync(t->at, host, size_bytes, cudaMemcpyHostToDevice, c->list.compute),
        "copy rope's table");
    device_leave();
    return well;
}

/* Makes the table of rope r hold positions below n. */
static bool make_table(struct cuda *c, const struct rope *r, size_t n)
{
    struct turns *t = &c->turns;
    size_t size_bytes, scale_bytes = r->head_dim / 2 * sizeof *r->scale;
    struct error err;
    float *host;

    n = n < MIN_POSITIONS ? MIN_POSITIONS : list_bucket(n);
    size_bytes = n * r->head_dim * sizeof *host;
    rope_close(c);
    host = try_alloc(1, size_bytes);
    t->host_scale = r->scale != NULL ? try_alloc(1, scale_bytes) : NULL;
    if (host == NULL || (r->scale != NULL && t->host_scale == NULL))
        goto failed;
    if (r->scale != NULL)
        memcpy(t->host_scale, r->scale, scale_bytes);
    cuda_rope_fill(host, r, n);
    if (!copy_table(c, t, host, size_bytes))
        goto failed;
    free(host);
    t->base = r->base;
    t->head_dim = r->head_dim;
    t->n_positions = n;
    return true;
failed:
    free(host);
    rope_close(c);
    (void)error_no_memory(&err, size_bytes, "rope");
    device_fail(&c->device, &err); /* kept, unless the device failed before */
    return false;
}

struct cuda_turns rope_turns(const struct cuda *c)
{
    struct cuda_turns r;

    memset(&r, 0, sizeof r);
    r.turns = c->turns.at;
    r.head_dim = (uint32_t)c->turns.head_dim;
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

static void record(struct cuda *c, const struct held_rope *h)
{
    size_t cap_bytes = list_bucket(h->n) * sizeof *h->host_positions;
    struct rope_args a;

    if (!list_reserve(&c->list, cap_bytes + 2 * CUDA_COUNT_BYTES))
        return;
    memset(&a, 0, sizeof a);
    a.rope = rope_turns(c);
    a.tokens.positions =
        list_stage_kept(&c->list, h->host_positions, h->n * sizeof *h->host_positions, cap_bytes);
    a.tokens.n = cuda_count_of(c, h->n);
    a.n_heads = (uint32_t)h->n_heads;
    a.x = h->x;
    list_add(&c->list, launch_rope, &a, sizeof a);
}

void cuda_settle(struct cuda *c)
{
    size_t n = c->n_held;

    c->n_held = 0;
    for (size_t i = 0; i < n; i++)
        record(c, &c->held[i]);
}

void cuda_rope_rows(struct backend *b, const struct rope *r, const uint32_t *positions, size_t n,
                    struct buffer *x)
{
    enum { MOST_HELD = sizeof((struct cuda *)0)->held / sizeof(struct held_rope) };
    struct cuda *c = to_cuda(b);
    size_t end = 0;
    bool fits;

    if (n == 0 || c->device.failed.status != STATUS_OK)
        return;
    cuda_run_copies(c);
    for (size_t i = 0; i < n; i++)
        end = positions[i] >= end ? positions[i] + (size_t)1 : end;
    fits = cuda_rope_is_table_of(&c->turns, r) && end <= c->turns.n_positions;
    if (c->n_held == MOST_HELD || !fits)
        cuda_settle(c);
    if (!fits && !make_table(c, r, end))
        return;
    c->held[c->n_held++] =
        (struct held_rope){positions, n, r->n_heads, cuda_written(x, n, r->n_heads * r->head_dim)};
}
