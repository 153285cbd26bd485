/* Rope, by a table of rotations. A rope is held back until it is known whether the keys that it
 * rotates are stored next: then one kernel does both, and the queries, too (sequence.c). */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/real.h"
#include "compute/cuda/parts.h"

enum { MIN_POSITIONS = 4096 /* of a table */ };

static void cuda_rope_fill(float *out, const struct rope *r, size_t n)
{
    size_t n_pairs = rope_width(r) / 2;
    double amplitude = rope_amplitude(r);

    for (size_t j = 0; j < n_pairs; j++) {
        double frequency = rope_frequency(r, j);

        for (size_t pos = 0; pos < n; pos++) {
            double angle = (double)pos * frequency;
            float *turn = out + (pos * n_pairs + j) * 2;

            turn[0] = real_cos_float(amplitude, angle);
            turn[1] = real_sin_float(amplitude, angle);
        }
    }
}

static void turns_close(struct cuda *c, struct turns *t)
{
    free(t->host_scale);
    cuda_give_back(c, t->at);
    *t = (struct turns){0};
}

void rope_close(struct cuda *c)
{
    for (size_t i = 0; i < CUDA_TURNS; i++)
        turns_close(c, &c->turns[i]);
}

static bool copy_table(struct cuda *c, struct turns *t, const float *host, size_t size_bytes)
{
    struct error err;

    t->at = device_take(&c->device, size_bytes);
    if (t->at == NULL)
        return false;
    if (cuda_copy_in(c, t->at, host, size_bytes, "copy rope's table", &err) == STATUS_OK)
        return true;
    device_fail(&c->device, &err);
    return false;
}

/* Makes t the table of rope r, of positions below n. */
static bool make_table(struct cuda *c, struct turns *t, const struct rope *r, size_t n)
{
    size_t size_bytes, scale_bytes = rope_width(r) / 2 * sizeof(*r->scale);
    struct error err;
    float *host;

    n = n < MIN_POSITIONS ? MIN_POSITIONS : list_bucket(n);
    size_bytes = n * rope_width(r) * sizeof(*host);
    turns_close(c, t);
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
    t->rope = *r;
    t->rope.scale = t->host_scale;
    t->n_positions = n;
    return true;
failed:
    free(host);
    turns_close(c, t);
    (void)error_no_memory(&err, size_bytes, "rope");
    device_fail(&c->device, &err); /* kept, unless the device failed before */
    return false;
}

/* The table of rope r for positions below n; where it must be made, what was held back is recorded
 * first. NULL: failed, which is kept. */
static const struct turns *turns_for(struct cuda *c, const struct rope *r, size_t n)
{
    struct turns *t = NULL;

    for (size_t i = 0; i < CUDA_TURNS; i++)
        if (c->turns[i].at != NULL && rope_turns_alike(&c->turns[i].rope, r))
            t = &c->turns[i];
    if (t != NULL && n <= t->n_positions)
        return t;
    n = n < r->n_positions ? r->n_positions : n;
    cuda_settle(c);
    if (t == NULL)
        t = &c->turns[c->n_made++ % CUDA_TURNS];
    return make_table(c, t, r, n) ? t : NULL;
}

void cuda_rope_rows(struct backend *b, const struct rope *r, const uint32_t *positions, size_t n,
                    struct buffer *x)
{
    enum { MOST_HELD = sizeof((struct cuda *)0)->held / sizeof(struct held_rope) };
    struct cuda *c = to_cuda(b);
    const struct turns *turns;
    size_t end = 0;

    if (c->device.failed.status != STATUS_OK)
        return;
    if (n == 0) {
        (void)turns_for(c, r, r->n_positions); /* a failure is kept */
        return;
    }
    cuda_run_copies(c);
    for (size_t i = 0; i < n; i++)
        end = positions[i] >= end ? positions[i] + (size_t)1 : end;
    if (c->n_held == MOST_HELD)
        cuda_settle(c);
    turns = turns_for(c, r, end);
    if (turns != NULL)
        c->held[c->n_held++] = (struct held_rope){positions, n, r->n_heads, turns,
                                                  cuda_written(x, n, r->n_heads * r->head_dim)};
}
