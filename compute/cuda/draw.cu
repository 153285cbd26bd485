/* Draws tokens on the device: only ids go back to the host. A block has a row, reads it a few times
 * and chooses as the host's sampler would (ref/sample.c is the simplest form): weights are summed
 * in the same sixteen lanes and blocks, the tokens that a cut leaves are sorted into the same
 * order, and one thread then adds up the deciding sums in f64.
 *
 * The tokens that a cut may leave are gathered by their distance from the highest logit, in steps
 * of a quarter of the exponent: as many steps from the top as fit. If the cut ends among them, the
 * other tokens do not matter; if not, the host draws. */
#include "base/philox.h"
#include "compute/cuda/launch.h"
#include "compute/cuda/net_kernels.h"

static constexpr unsigned THREADS = 512;
static constexpr unsigned WARPS = THREADS / WARP_LANES;
static constexpr unsigned GROUPS = THREADS / SCALAR_LANES; /* each sums a block of the row */
static constexpr unsigned STEPS = 128;                     /* of a quarter; the last is the rest */
static constexpr unsigned MOST = CUDA_DRAW_MOST;
static constexpr unsigned MOST_BLOCKS = CUDA_DRAW_VOCAB / DRAW_BLOCK;

/* A block's row and its draw. */
struct draw_row {
    const float *x;
    uint32_t n;
    const struct draw *how;
    const int32_t *ends;
    uint32_t n_ends;
    float top, scale; /* of the tokens that are not banned */
};

struct shared {
    uint64_t *keys;    /* [MOST] gathered tokens, the greatest first once sorted */
    float *sums;       /* [MOST_BLOCKS] of weights */
    uint32_t *steps;   /* [STEPS] how many are in each */
    uint64_t *of_warp; /* [WARPS] */
};

static __device__ __forceinline__ bool is_banned(const struct draw_row *r, uint32_t id)
{
    for (uint32_t i = 0; r->how->bans_ends && i < r->n_ends; i++)
        if (r->ends[i] == (int32_t)id)
            return true;
    return false;
}

static __device__ __forceinline__ float logit_of(const struct draw_row *r, uint32_t id)
{
    return is_banned(r, id) ? -INFINITY : r->x[id];
}

static __device__ __forceinline__ float weight_of(float x, float top, float scale, float least)
{
    float e = scalar_exp((x - top) * scale);

    return e > least ? e : 0.0f;
}

/* Maps floats to integers of the same order; +0 and -0 are equal. */
static __device__ __forceinline__ uint32_t order_of(float x)
{
    uint32_t bits = scalar_bits(x + 0.0f);

    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

static __device__ __forceinline__ float float_of(uint32_t order)
{
    return scalar_from_bits((order & 0x80000000u) != 0 ? order & 0x7fffffffu : ~order);
}

/* A key is greater for a higher value, then for a lower id. */
static __device__ __forceinline__ uint64_t key_of(uint32_t order, uint32_t id)
{
    return (uint64_t)order << 32 | ~id;
}

static __device__ __forceinline__ uint32_t id_of(uint64_t key)
{
    return ~(uint32_t)key;
}

/* The greatest key of all threads, returned to all. */
static __device__ uint64_t greatest(uint64_t key, const struct shared *s)
{
    uint64_t most = 0;

#pragma unroll
    for (unsigned by = WARP_LANES / 2; by > 0; by /= 2) {
        uint64_t other = __shfl_xor_sync(WARP_ALL, key, by);

        key = other > key ? other : key;
    }
    __syncthreads(); /* the last call's results have been read */
    if (threadIdx.x % WARP_LANES == 0)
        s->of_warp[threadIdx.x / WARP_LANES] = key;
    __syncthreads();
    for (unsigned i = 0; i < WARPS; i++)
        most = s->of_warp[i] > most ? s->of_warp[i] : most;
    return most;
}

/* Sums of weights by block into s->sums; sixteen threads sum one. */
static __device__ void sum_blocks(const struct draw_row *r, bool with_bans, float top, float scale,
                                  float least, const struct shared *s)
{
    unsigned lane = threadIdx.x % SCALAR_LANES;

    for (uint32_t first = 0; first < r->n; first += GROUPS * DRAW_BLOCK) {
        uint32_t begin = first + threadIdx.x / SCALAR_LANES * DRAW_BLOCK;
        uint32_t end = r->n < begin + DRAW_BLOCK ? r->n : begin + DRAW_BLOCK;
        float sum = 0.0f;

        for (uint32_t i = begin + lane; i < end; i += SCALAR_LANES)
            sum += weight_of(with_bans ? logit_of(r, i) : r->x[i], top, scale, least);
#pragma unroll
        for (unsigned half = SCALAR_LANES / 2; half > 0; half /= 2)
            sum += __shfl_down_sync(WARP_ALL, sum, half, SCALAR_LANES);
        if (lane == 0 && begin < r->n)
            s->sums[begin / DRAW_BLOCK] = sum;
    }
    __syncthreads();
}

/* One thread. */
static __device__ double sum_of_blocks(const struct draw_row *r, const struct shared *s)
{
    double sum = 0;

    for (uint32_t i = 0; i * DRAW_BLOCK < r->n; i++)
        sum += (double)s->sums[i];
    return sum;
}

/* Sorts the greatest first; n is a power of two. */
static __device__ void sort(uint64_t *keys, unsigned n)
{
    __syncthreads();
    for (unsigned size = 2; size <= n; size *= 2)
        for (unsigned by = size / 2; by > 0; by /= 2) {
            for (unsigned i = threadIdx.x; i < n; i += THREADS) {
                unsigned other = i ^ by;
                uint64_t a, b;

                if (other < i)
                    continue; /* the pair's lower thread swaps, and no other thread reads it */
                a = keys[i];
                b = keys[other];
                if ((i & size) == 0 ? a < b : a > b) {
                    keys[i] = b;
                    keys[other] = a;
                }
            }
            __syncthreads();
        }
}

static __device__ __forceinline__ unsigned step_of(const struct draw_row *r, float x)
{
    float depth = (r->top - x) * r->scale * 4.0f;

    return depth < (float)(STEPS - 1) ? (unsigned)depth : STEPS - 1;
}

/* Which logits may be left by a cut. */
struct cut {
    float least;   /* weight; not where there is a top_k */
    uint32_t n;    /* of the top_k; 0: by weight */
    unsigned last; /* the last step that is gathered */
    uint32_t n_gathered;
    bool is_all; /* nothing was left out */
};

static __device__ __forceinline__ bool may_stay(const struct draw_row *r, const struct cut *c,
                                                float x)
{
    return c->n > 0 ? x > -INFINITY : weight_of(x, r->top, r->scale, draw_least_weight) >= c->least;
}

/* Gathers the keys of what a cut may leave, sorted; by logit for a top_k, else by weight. */
static __device__ void gather(const struct draw_row *r, struct cut *c, const struct shared *s,
                              uint32_t *count)
{
    unsigned size = 2;
    uint32_t n = 0, before = 0;

    for (unsigned i = threadIdx.x; i < STEPS; i += THREADS)
        s->steps[i] = 0;
    if (threadIdx.x == 0)
        *count = 0;
    __syncthreads();
    for (uint32_t id = threadIdx.x; id < r->n; id += THREADS) {
        float x = logit_of(r, id);
        unsigned step = step_of(r, x);

        if (step < STEPS - 1 && may_stay(r, c, x))
            atomicAdd(&s->steps[step], 1u);
    }
    __syncthreads();
    c->last = 0;
    for (unsigned i = 0; i < STEPS - 1 && n + s->steps[i] <= MOST; i++) {
        n += s->steps[i];
        c->last = i;
    }
    for (unsigned i = 0; i < STEPS - 1; i++)
        before += s->steps[i];
    c->n_gathered = n;
    /* at the last step all weights are 0 */
    c->is_all = n == before && c->n == 0;
    while (size < n)
        size *= 2;
    for (uint32_t id = threadIdx.x; id < r->n && n > 0; id += THREADS) {
        float x = logit_of(r, id);

        if (step_of(r, x) <= c->last && may_stay(r, c, x)) {
            uint32_t at = atomicAdd(count, 1u);
            uint32_t order = c->n > 0
                                 ? order_of(x)
                                 : scalar_bits(weight_of(x, r->top, r->scale, draw_least_weight));

            s->keys[at] = key_of(order, id);
        }
    }
    for (unsigned i = n + threadIdx.x; i < size && i < MOST; i += THREADS)
        s->keys[i] = 0;
    sort(s->keys, size);
}

/* Turns the first n gathered keys by logit into keys by weight, sorted again. */
static __device__ void keep_top_k(const struct draw_row *r, uint32_t n, const struct shared *s)
{
    unsigned size = 2;

    while (size < n)
        size *= 2;
    for (unsigned i = threadIdx.x; i < size; i += THREADS) {
        uint64_t key = s->keys[i];
        float weight =
            weight_of(float_of((uint32_t)(key >> 32)), r->top, r->scale, draw_least_weight);

        s->keys[i] = i < n ? key_of(scalar_bits(weight), id_of(key)) : 0;
    }
    sort(s->keys, size);
}

/* Turns keys by weight into keys by id, the lowest first. */
static __device__ void sort_by_id(uint32_t n, const struct shared *s)
{
    unsigned size = 2;

    while (size < n)
        size *= 2;
    for (unsigned i = threadIdx.x; i < size && i < MOST; i += THREADS)
        s->keys[i] = i < n ? s->keys[i] << 32 | s->keys[i] >> 32 : 0;
    sort(s->keys, size);
}

/* The tokens left by a cut, in the order in which their weights are added up. */
struct rest {
    const uint64_t *keys;
    uint32_t n;
    bool is_by_weight; /* from the least likely on; else by the keys, id above weight */
};

static __device__ __forceinline__ uint64_t rest_key(const struct rest *c, uint32_t i)
{
    uint64_t key = c->keys[c->is_by_weight ? c->n - 1 - i : i];

    return c->is_by_weight ? key : key << 32 | key >> 32;
}

static __device__ __forceinline__ double rest_weight(const struct rest *c, uint32_t i)
{
    return (double)scalar_from_bits((uint32_t)(rest_key(c, i) >> 32));
}

static __device__ double sum_of_rest(const struct rest *c)
{
    double sum = 0;

    for (uint32_t i = 0; i < c->n; i++)
        sum += rest_weight(c, i);
    return sum;
}

/* One thread: cuts by top_p and min_p, and draws. -1: the cut does not end among those gathered. */
static __device__ int32_t draw_of_rest(const struct draw_row *r, const struct cut *c,
                                       struct rest *rest, const struct shared *s, float chance)
{
    const struct draw *how = r->how;
    double target, sum = 0;
    uint32_t n = 0, i;

    if (how->top_p < 1.0f) {
        double total = c->n > 0 ? sum_of_rest(rest) : sum_of_blocks(r, s);
        double enough = (double)how->top_p * total;
        float last = 0;

        do {
            last = scalar_from_bits((uint32_t)(rest->keys[n++] >> 32));
            sum += (double)last;
        } while (n < rest->n && sum < enough);
        /* tokens that were left out are lighter than this, by more than a weight's rounding */
        if (c->n == 0 && !c->is_all &&
            (sum < enough || last <= scalar_exp((float)(c->last + 1) * -0.25f) * 1.001f))
            return -1;
        rest->n = n;
    }
    if (rest->is_by_weight) {
        for (n = 0; n < rest->n && scalar_from_bits((uint32_t)(rest->keys[n] >> 32)) >= how->min_p;)
            n++;
        rest->n = n;
    }
    target = (double)chance * sum_of_rest(rest);
    sum = 0;
    for (i = 0; i + 1 < rest->n; i++) {
        sum += rest_weight(rest, i);
        if (sum > target)
            break;
    }
    return (int32_t)id_of(rest_key(rest, i));
}

/* The draw without cuts: the block that the target falls into, then the token in it. */
static __device__ int32_t draw_of_all(const struct draw_row *r, float chance,
                                      const struct shared *s, uint32_t *begin)
{
    float *weights = (float *)(void *)s->keys; /* of the block */
    double sum = 0, before = 0, target = 0;
    uint32_t last;

    if (threadIdx.x == 0) {
        target = (double)chance * sum_of_blocks(r, s);
        *begin = 0;
        for (uint32_t i = 0; i * DRAW_BLOCK < r->n && sum <= target; i++)
            if (s->sums[i] != 0) {
                *begin = i * DRAW_BLOCK;
                before = sum;
                sum += (double)s->sums[i];
            }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < DRAW_BLOCK && *begin + i < r->n; i += THREADS)
        weights[i] = weight_of(logit_of(r, *begin + i), r->top, r->scale, draw_least_weight);
    __syncthreads();
    last = *begin;
    for (uint32_t i = 0;
         threadIdx.x == 0 && i < DRAW_BLOCK && *begin + i < r->n && before <= target; i++) {
        before += (double)weights[i];
        if (weights[i] > 0)
            last = *begin + i;
    }
    return (int32_t)last;
}

/* Only thread 0 gets the id. */
static __device__ int32_t choose(const struct draw_row *r, const struct shared *s, uint32_t *word)
{
    const struct draw *how = r->how;
    const float chance = philox_uniform(how->seed, how->turn, how->position, 0);
    struct cut c = {fmaxf(how->min_p, draw_top_p_bound(how->top_p, r->n)),
                    how->top_k < r->n ? how->top_k : 0, 0, 0, false};
    struct rest rest = {s->keys, 0, true};

    if (c.n == 0)
        sum_blocks(r, true, r->top, r->scale, draw_least_weight, s);
    if (c.n == 0 && c.least == 0.0f)
        return draw_of_all(r, chance, s, word);
    if (c.n > MOST)
        return -1;
    gather(r, &c, s, word);
    rest.n = c.n > 0 ? c.n : c.n_gathered;
    if (c.n_gathered == 0 || c.n_gathered < c.n || (how->top_p >= 1.0f && c.n == 0 && !c.is_all))
        return -1;
    if (c.n > 0) {
        keep_top_k(r, c.n, s);
    } else if (how->top_p >= 1.0f) {
        sort_by_id(rest.n, s);
        rest.is_by_weight = false;
    }
    return threadIdx.x == 0 ? draw_of_rest(r, &c, &rest, s, chance) : -1;
}

static __global__ void __launch_bounds__(THREADS, 1)
    draw_kernel(const float *logits, uint32_t n_vocab, const struct draw *draws,
                struct cuda_count n, const int32_t *ends, uint32_t n_ends, struct drawn *out)
{
    SHARED(uint64_t, keys, MOST);
    SHARED(float, sums, MOST_BLOCKS);
    SHARED(uint32_t, steps, STEPS);
    SHARED(uint64_t, of_warp, WARPS);
    SHARED(uint32_t, word, 1);
    const struct shared s = {keys, sums, steps, of_warp};
    const struct draw *how = &draws[blockIdx.x];
    struct drawn result = {-1, 0.0f, 0.0f, 0.0};
    uint64_t of_all = 0, allowed = 0;
    struct draw_row r;
    int is_wild = 0;

    if (blockIdx.x >= (n.n != NULL ? *n.n : n.most))
        return; /* all of the block */
    r.x = logits + (size_t)how->row * n_vocab;
    r.n = n_vocab;
    r.how = how;
    r.ends = ends;
    r.n_ends = n_ends;
    for (uint32_t id = threadIdx.x; id < n_vocab; id += THREADS) {
        uint64_t key = key_of(order_of(r.x[id]), id);

        is_wild |= (scalar_bits(r.x[id]) & 0x7f800000u) == 0x7f800000u;
        of_all = key > of_all ? key : of_all;
        if (key > allowed && !is_banned(&r, id))
            allowed = key;
    }
    of_all = greatest(of_all, &s);
    allowed = greatest(allowed, &s);
    is_wild = greatest((uint64_t)is_wild, &s) != 0;
    if (!is_wild && allowed != 0 && n_vocab <= CUDA_DRAW_VOCAB) {
        r.top = float_of((uint32_t)(allowed >> 32));
        r.scale = draw_scale(how->temperature);
        result.top = float_of((uint32_t)(of_all >> 32));
        result.id = how->temperature == 0.0f ? (int32_t)id_of(allowed) : choose(&r, &s, word);
        if (how->wants_sum) {
            __syncthreads(); /* thread 0 has read what sums were */
            sum_blocks(&r, false, result.top, 1.0f, -1.0f, &s);
        }
    }
    if (threadIdx.x > 0)
        return;
    if (result.id >= 0) {
        result.logit = r.x[result.id];
        result.sum = how->wants_sum ? sum_of_blocks(&r, &s) : 0.0;
    }
    out[blockIdx.x] = result;
}

void cuda_draw(const float *logits, uint32_t n_vocab, const struct draw *draws, struct cuda_count n,
               const int32_t *ends, uint32_t n_ends, struct drawn *out, struct CUstream_st *stream)
{
    LAUNCH(draw_kernel, n.most, THREADS, 0, stream, logits, n_vocab, draws, n, ends, n_ends, out);
}
