#include "agents/params/pass.h"

#include <assert.h>
#include <string.h>

/* Numbers in a block. The parameters, both moments, a gradient and the result of a block are 80
 * KiB, which fits the L2 cache. Divides a chunk. */
enum { BLOCK = 4096 };

_Static_assert(SNAPSHOT_CHUNK_BYTES % (BLOCK * sizeof(float)) == 0, "a block is in one chunk");

static void pass_add(float *restrict sum, const float *restrict g, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += g[i];
}

static void divide(float *sum, size_t by, size_t n)
{
    const float divisor = (float)by;

    for (size_t i = 0; i < n; i++)
        sum[i] /= divisor;
}

static void reduce_group(float *out, const struct params_group *group, bool is_sum, size_t at,
                         size_t n)
{
    memcpy(out, group->gradients[0] + at, n * sizeof(float));
    for (size_t i = 1; i < group->n_gradients; i++)
        pass_add(out, group->gradients[i] + at, n);
    if (!is_sum && group->n_gradients > 1)
        divide(out, group->n_gradients, n);
}

static void reduce(float *out, const struct params_pass *pass, size_t at, size_t n)
{
    float more[BLOCK];

    reduce_group(out, &pass->groups[0], pass->is_sum, at, n);
    for (size_t i = 1; i < pass->n_groups; i++) {
        const struct params_group *group = &pass->groups[i];

        if (group->n_gradients == 1) {
            pass_add(out, group->gradients[0] + at, n);
            continue;
        }
        reduce_group(more, group, pass->is_sum, at, n);
        pass_add(out, more, n);
    }
    if (!pass->is_sum && pass->n_groups > 1)
        divide(out, pass->n_groups, n);
}

static void pass_step(const struct params_pass *pass, struct snapshot *out, uint64_t step,
                      size_t at, size_t n)
{
    float gradient[BLOCK];

    reduce(gradient, pass, at, n);
    memcpy(out->values + at, pass->values + at, n * sizeof(float));
    pass->step(pass->optim, step, pass->rate, out->values + at, gradient,
               pass->m == NULL ? NULL : pass->m + at, pass->v == NULL ? NULL : pass->v + at, n);
}

/* The end of the run of numbers at `at` that take one step, at most `end`. *next is the first range
 * that does not end before `at`. */
static size_t pass_run_end(const struct params_pass *pass, size_t *next, size_t at, size_t end,
                           uint64_t *ret_step)
{
    const struct params_range *r;
    size_t border;

    while (*next < pass->n_ranges && pass->ranges[*next].end <= at)
        ++*next;
    *ret_step = pass->round;
    if (*next == pass->n_ranges)
        return end;
    r = &pass->ranges[*next];
    border = r->first;
    if (r->first <= at) {
        *ret_step = r->step;
        border = r->end;
    }
    return border < end ? border : end;
}

void params_pass_run(const struct params_pass *pass, struct snapshot *out, struct sha256 *sha)
{
    size_t range = 0;

    assert(pass->n_groups > 0);
    for (size_t at = 0; at < out->n; at += BLOCK) {
        size_t n = out->n - at < BLOCK ? out->n - at : BLOCK;

        for (size_t i = at, next; i < at + n; i = next) {
            uint64_t step;

            next = pass_run_end(pass, &range, i, at + n, &step);
            if (step == 0)
                memcpy(out->values + i, pass->values + i, (next - i) * sizeof(float));
            else
                pass_step(pass, out, step, i, next - i);
        }
        snapshot_add_checksum(out, sha, at * sizeof(float), n * sizeof(float));
    }
    sha256_take(sha, out->sha256);
}

void params_pass_follow(const float *values, const float *to, float tau, struct snapshot *out,
                        struct sha256 *sha)
{
    for (size_t at = 0; at < out->n; at += BLOCK) {
        size_t n = out->n - at < BLOCK ? out->n - at : BLOCK;

        for (size_t i = at; i < at + n; i++)
            out->values[i] = tau == 1 ? to[i] : values[i] + tau * (to[i] - values[i]);
        snapshot_add_checksum(out, sha, at * sizeof(float), n * sizeof(float));
    }
    sha256_take(sha, out->sha256);
}
