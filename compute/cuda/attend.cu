/* Paged attention; attend_units.h has its arithmetic.
 *
 * A block computes an item's queries of one key head. For scores each thread has two positions; for
 * softmax a warp has a query at a time; for outputs it has a chunk of the span's positions, and all
 * queries, so that each value is read and rounded once. An item with only some of the spans writes
 * each span's results to memory, and the last block to finish merges them. */
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.h"
#include "compute/cuda/tile.h"
#include "compute/cuda/weights.h"
#include "compute/numerics/scalar.h"

static constexpr unsigned THREADS = 128;
static constexpr unsigned WARPS = THREADS / WARP_LANES;
static constexpr unsigned TURNS = CUDA_SPAN / THREADS; /* positions of a thread */
static constexpr unsigned QUAD = 4;                    /* queries that are scored together */
static_assert(WARPS * ATTEND_CHUNK == CUDA_SPAN, "a warp has a chunk of a span");
static_assert(ATTEND_CHUNK % KV_PAGE_TOKENS == 0, "chunks are whole pages");

/* A block's item, and what is derived from it. */
struct work {
    struct cuda_attend_item item;
    const int32_t *table; /* of the sequence */
    const uint8_t *head;  /* of page 0 */
    unsigned kv_head, n_sharing;
    unsigned first_head, n_heads; /* of the queries of a token */
    unsigned n_queries;
    unsigned window;
};

/* A query's state, in shared memory. */
struct softmax {
    float max, sum;     /* of the spans before; sum is 0 before the first */
    float before, here; /* the factors of both outputs */
    float max_here, sum_here;
    float unit; /* attend_unit_of_query */
};

/* The factors of a span's positions, in shared memory. */
struct __align__(16) scales
{
    float key_by[CUDA_SPAN], key_units[CUDA_SPAN];
    float value_exponents[CUDA_SPAN], value_inverses[CUDA_SPAN]; /* e of attend_units.h, 2^-e */
    float weight_most[CUDA_SPAN]; /* the factor that makes weights integers */
};

static __device__ __forceinline__ unsigned seen(const struct work *w, unsigned query, unsigned span)
{
    unsigned n = w->item.pos + query / w->n_heads + 1, first = span * CUDA_SPAN;

    return n > first ? min(n - first, (unsigned)CUDA_SPAN) : 0;
}

/* The first position that a query sees. */
static __device__ __forceinline__ unsigned first_seen(const struct work *w, unsigned query)
{
    unsigned n = w->item.pos + query / w->n_heads + 1;

    return w->window > 0 && n > w->window ? n - w->window : 0;
}

/* Positions of the span that lie before it. */
static __device__ __forceinline__ unsigned unseen(const struct work *w, unsigned query,
                                                  unsigned span)
{
    unsigned n = first_seen(w, query), first = span * CUDA_SPAN;

    return n > first ? min(n - first, (unsigned)CUDA_SPAN) : 0;
}

template <kv_type T> static __host__ __device__ constexpr unsigned value_bytes(void)
{
    return T == KV_F32 ? 4 : T == KV_F16 ? 2 : 1;
}

/* Number i of 16 bytes, as an integer. */
template <kv_type T>
static __device__ __forceinline__ int number_of(uint4 piece, unsigned i, float by)
{
    unsigned byte = i * value_bytes<T>(), word = byte / 4;
    uint32_t bits = word == 0 ? piece.x : word == 1 ? piece.y : word == 2 ? piece.z : piece.w;

    if (T == KV_F32)
        return attend_round(__uint_as_float(bits), by);
    if (T == KV_F16)
        return attend_round(f16_widen((uint16_t)(bits >> byte % 4 * 8)), by);
    return (int8_t)(bits >> byte % 4 * 8 & 0xff);
}

/* A pair of a head's numbers, as integers. */
template <kv_type T>
static __device__ __forceinline__ int2 pair_of(const uint8_t *row, unsigned pair, float by)
{
    if (T == KV_F32) {
        float2 x = ((const float2 *)(const void *)row)[pair];

        return make_int2(attend_round(x.x, by), attend_round(x.y, by));
    }
    if (T == KV_F16) {
        uint32_t bits = ((const uint32_t *)(const void *)row)[pair];

        return make_int2(attend_round(f16_widen((uint16_t)bits), by),
                         attend_round(f16_widen((uint16_t)(bits >> 16)), by));
    }
    uint16_t bits = ((const uint16_t *)(const void *)row)[pair];

    return make_int2((int8_t)(bits & 0xff), (int8_t)(bits >> 8));
}

/* Fills the factors of the thread's positions among the first n of the span. */
template <kv_type T>
static __device__ __forceinline__ void take_scales(const struct cuda_kv *kv, const struct work *w,
                                                   unsigned span, unsigned n, struct scales *s)
{
    for (unsigned i = threadIdx.x; i < n; i += THREADS) {
        int32_t page = w->table[(span * CUDA_SPAN + i) / KV_PAGE_TOKENS];
        const uint8_t *scales = w->head + (size_t)page * kv->page_bytes +
                                KV_PAGE_TOKENS * kv->padded_dim * value_bytes<T>();
        float key = ((const float *)(const void *)scales)[i % KV_PAGE_TOKENS];
        float value = ((const float *)(const void *)(scales + kv->values_at))[i % KV_PAGE_TOKENS];
        float e = attend_unit_exponent(key, ATTEND_KEY_BITS), most = (float)ATTEND_WEIGHT_MOST;

        s->key_by[i] = attend_power(0.0f - e);
        s->key_units[i] = T == KV_Q8 ? key : attend_power(e) + (key - key);
        e = attend_unit_exponent(value, T == KV_Q8 ? 0 : ATTEND_VALUE_BITS);
        s->value_exponents[i] = e;
        s->value_inverses[i] = attend_power(0.0f - e);
        s->weight_most[i] = T == KV_Q8 ? value * s->value_inverses[i] * most : most;
    }
}

/* Computes logarithms of weights, of queries first … first + QUAD - 1 and the thread's positions of
 * the span. */
template <kv_type T>
static __device__ __forceinline__ void score_quad(const struct cuda_kv *kv, const struct work *w,
                                                  unsigned span, unsigned n, unsigned first,
                                                  const int *q, const struct softmax *state,
                                                  const struct scales *s, float cap, float *p)
{
    constexpr unsigned size = PIECE_BYTES / value_bytes<T>();

    for (unsigned turn = 0; turn < TURNS; turn++) {
        unsigned i = turn * THREADS + threadIdx.x;
        uint32_t y[QUAD] = {}; /* unsigned: int16 of numbers not finite may overflow it */

        if (i < n) {
            const uint8_t *page =
                w->head +
                (size_t)w->table[(span * CUDA_SPAN + i) / KV_PAGE_TOKENS] * kv->page_bytes;
            const uint4 *keys = (const uint4 *)(const void *)page + i % KV_PAGE_TOKENS;
            float by = s->key_by[i];

#pragma unroll 2
            for (unsigned d = 0; d < kv->head_dim; d += size) {
                uint4 piece = keys[d / size * KV_PAGE_TOKENS];

#pragma unroll
                for (unsigned k = 0; k < size; k++) { /* behind the head's last, queries are 0 */
                    int key = number_of<T>(piece, k, by);

#pragma unroll
                    for (unsigned j = 0; j < QUAD; j++)
                        y[j] += (uint32_t)(q[(first + j) * kv->padded_dim + d + k] * key);
                }
            }
#pragma unroll
            for (unsigned j = 0; j < QUAD; j++) {
                float x = (float)(int32_t)y[j] * s->key_units[i], unit = state[first + j].unit;
                float e = s->value_exponents[i];

                p[(first + j) * CUDA_SPAN + i] =
                    cap > 0.0f ? fmaf(scalar_cap_tanh(x * unit), cap, e) : fmaf(x, unit, e);
            }
        }
    }
}

/* Turns p [n], logarithms of weights, into the weights, integers, the first `skip` into 0; by the
 * warp. */
static __device__ __forceinline__ void weigh(float *p, unsigned skip, unsigned n,
                                             const struct scales *scales, struct softmax *s)
{
    unsigned lane = threadIdx.x % WARP_LANES;
    float greatest = -INFINITY, sum = 0.0f;

    for (unsigned i = lane; i < skip; i += WARP_LANES)
        p[i] = -INFINITY;
    for (unsigned i = lane; i < n; i += WARP_LANES)
        greatest = p[i] > greatest ? p[i] : greatest;
#pragma unroll
    for (unsigned by = WARP_LANES / 2; by > 0; by /= 2) {
        float other = __shfl_xor_sync(WARP_ALL, greatest, by);

        greatest = other > greatest ? other : greatest;
    }
    for (unsigned i = lane; i < n; i += WARP_LANES)
        p[i] = scalar_exp2_below(p[i] - greatest, 1.0f);
    __syncwarp();
    if (lane < SCALAR_LANES)
        for (unsigned i = lane; i < n; i += SCALAR_LANES)
            sum = i < skip ? sum : fmaf(p[i], scales->value_inverses[i], sum);
#pragma unroll
    for (unsigned half = SCALAR_LANES / 2; half > 0; half /= 2)
        sum = sum + __shfl_down_sync(WARP_ALL, sum, half);
    if (lane == 0) {
        s->max_here = greatest;
        s->sum_here = sum;
    }
    __syncwarp();
    for (unsigned i = lane; i < n; i += WARP_LANES)
        p[i] = __int_as_float(i < skip ? 0 : attend_round(p[i], scales->weight_most[i]));
}

/* Sets the factors of the outputs of the spans before and of this one. */
static __device__ __forceinline__ void merge(struct softmax *s)
{
    s->before = s->here = 1.0f;
    if (s->sum > 0.0f && s->max_here > s->max) {
        s->before = scalar_exp2_below(s->max - s->max_here, 1.0f);
        s->max = s->max_here;
    } else if (s->sum > 0.0f) {
        s->here = scalar_exp2_below(s->max_here - s->max, 1.0f);
    } else {
        s->max = s->max_here;
    }
    s->sum = s->sum * s->before + s->sum_here * s->here;
}

/* Whether the query sees any position of the span. */
static __device__ __forceinline__ bool sees(const struct work *w, unsigned query, unsigned span)
{
    return query < w->n_queries && seen(w, query, span) > unseen(w, query, span);
}

/* A warp's query in one span: its state, and its weights of `end` positions, 0 where it sees none.
 */
static __device__ __forceinline__ void weigh_query(const struct work *w, unsigned query,
                                                   unsigned span, unsigned end,
                                                   const struct scales *scales, float *p,
                                                   struct softmax *s, bool whole)
{
    unsigned lane = threadIdx.x % WARP_LANES, n = 0;

    if (sees(w, query, span)) {
        n = seen(w, query, span);
        weigh(p, unseen(w, query, span), n, scales, s);
        if (lane == 0 && whole)
            merge(s);
    }
    for (unsigned i = n + lane; i < end; i += WARP_LANES)
        p[i] = 0.0f;
}

/* Sums the warp's chunk of the span, whole pages before `end`, for N queries: each lane its pairs
 * of dimensions; of those behind the head's last the sums have no meaning. */
template <kv_type T, unsigned PAIRS, unsigned N>
static __device__ __forceinline__ void gather(const struct cuda_kv *kv, const struct work *w,
                                              unsigned span, unsigned end, const float *p,
                                              const struct scales *s, uint2 sums[N][PAIRS])
{
    unsigned lane = threadIdx.x % WARP_LANES, chunk = threadIdx.x / WARP_LANES * ATTEND_CHUNK;
    unsigned row_bytes = kv->padded_dim * value_bytes<T>(), pairs[PAIRS];

    end = min(end, chunk + ATTEND_CHUNK);
#pragma unroll
    for (unsigned k = 0; k < PAIRS; k++)
        pairs[k] = min(lane + k * WARP_LANES, kv->head_dim / 2 - 1);
    for (unsigned first = chunk; first < end; first += KV_PAGE_TOKENS) {
        int32_t page = w->table[(span * CUDA_SPAN + first) / KV_PAGE_TOKENS];
        const uint8_t *row = w->head + (size_t)page * kv->page_bytes + kv->values_at;

#pragma unroll 1
        for (unsigned i = first; i < first + KV_PAGE_TOKENS; i += 4, row += 4 * row_bytes) {
            float4 by = *(const float4 *)(const void *)&s->value_inverses[i];
            int2 v[4][PAIRS];

#pragma unroll
            for (unsigned k = 0; k < PAIRS; k++) {
                v[0][k] = pair_of<T>(row, pairs[k], by.x);
                v[1][k] = pair_of<T>(row + row_bytes, pairs[k], by.y);
                v[2][k] = pair_of<T>(row + 2 * row_bytes, pairs[k], by.z);
                v[3][k] = pair_of<T>(row + 3 * row_bytes, pairs[k], by.w);
            }
#pragma unroll
            for (unsigned j = 0; j < N; j++) {
                int4 weights = *(const int4 *)(const void *)&p[j * CUDA_SPAN + i];

#pragma unroll
                for (unsigned k = 0; k < PAIRS; k++) {
                    sums[j][k].x +=
                        (uint32_t)(weights.x * v[0][k].x) + (uint32_t)(weights.y * v[1][k].x) +
                        (uint32_t)(weights.z * v[2][k].x) + (uint32_t)(weights.w * v[3][k].x);
                    sums[j][k].y +=
                        (uint32_t)(weights.x * v[0][k].y) + (uint32_t)(weights.y * v[1][k].y) +
                        (uint32_t)(weights.z * v[2][k].y) + (uint32_t)(weights.w * v[3][k].y);
                }
            }
        }
    }
}

/* Computes the span's outputs of N queries into p [N][CUDA_SPAN], which has had their weights: the
 * sums of the chunks before `end`, added up in order. By the block. */
template <kv_type T, unsigned PAIRS, unsigned N>
static __device__ __forceinline__ void sum_span(const struct cuda_kv *kv, const struct work *w,
                                                unsigned span, unsigned end, float *p,
                                                const struct scales *s)
{
    unsigned lane = threadIdx.x % WARP_LANES, warp = threadIdx.x / WARP_LANES;
    uint2 sums[N][PAIRS] = {};

    gather<T, PAIRS, N>(kv, w, span, end, p, s, sums);
    __syncthreads();
    for (unsigned chunk = 0; chunk * ATTEND_CHUNK < end; chunk++) {
#pragma unroll
        for (unsigned j = 0; j < N; j++)
#pragma unroll
            for (unsigned k = 0; k < PAIRS; k++) {
                unsigned d = 2 * (lane + k * WARP_LANES);
                float *y = p + j * CUDA_SPAN + d;

                if (warp != chunk || d >= kv->head_dim)
                    continue;
                y[0] = (chunk > 0 ? y[0] : 0.0f) + (float)(int32_t)sums[j][k].x;
                y[1] = (chunk > 0 ? y[1] : 0.0f) + (float)(int32_t)sums[j][k].y;
            }
        __syncthreads();
    }
}

/* The place of a query's results for a span: outputs, greatest score, sum. */
static __device__ __forceinline__ float *part_at(const struct cuda_kv *kv,
                                                 const struct cuda_attention *a,
                                                 const struct work *w, unsigned query,
                                                 unsigned span)
{
    size_t token = w->item.partial + (size_t)span * w->item.n_tokens + query / w->n_heads;

    return a->partials +
           (token * a->n_heads + w->first_head + query % w->n_heads) * (kv->head_dim + 2);
}

static __device__ __forceinline__ float *output_at(const struct cuda_kv *kv,
                                                   const struct cuda_attention *a,
                                                   const struct work *w, unsigned query, float *out)
{
    size_t token = w->item.row + query / w->n_heads;

    return out + (token * a->n_heads + w->first_head + query % w->n_heads) * kv->head_dim;
}

/* A warp's query: its outputs of one span, y, are merged with `sums`, which has the spans before,
 * or written to memory. */
static __device__ __forceinline__ void put_query(const struct cuda_kv *kv,
                                                 const struct cuda_attention *a,
                                                 const struct work *w, unsigned query,
                                                 unsigned span, const float *y,
                                                 const struct softmax *s, float *sums, bool whole)
{
    unsigned lane = threadIdx.x % WARP_LANES;
    float *part = whole ? NULL : part_at(kv, a, w, query, span);

    if (!sees(w, query, span))
        return;
    for (unsigned d = lane; d < kv->head_dim; d += WARP_LANES)
        if (whole)
            sums[d] = fmaf(y[d], s->here, sums[d] * s->before);
        else
            part[d] = y[d];
    if (!whole && lane == 0) {
        part[kv->head_dim] = s->max_here;
        part[kv->head_dim + 1] = s->sum_here;
    }
}

/* Merges all spans of a query from the results that other blocks wrote. Volatile, because this
 * multiprocessor's cache may hold stale lines. */
static __device__ __forceinline__ void merge_parts(const struct cuda_kv *kv,
                                                   const struct cuda_attention *a,
                                                   const struct work *w, unsigned query, float *out)
{
    float *to = output_at(kv, a, w, query, out);

    for (unsigned d = threadIdx.x % WARP_LANES; d < kv->head_dim; d += WARP_LANES) {
        struct softmax s = {};
        float sum = 0.0f;

        for (unsigned span = first_seen(w, query) / CUDA_SPAN;
             span < w->item.n_spans && seen(w, query, span) > 0; span++) {
            const volatile float *part = part_at(kv, a, w, query, span);

            s.max_here = part[kv->head_dim];
            s.sum_here = part[kv->head_dim + 1];
            merge(&s);
            sum = fmaf(part[d], s.here, sum * s.before);
        }
        to[d] = sum * (1.0f / (s.sum * ATTEND_WEIGHT_MOST));
    }
}

/* Rounds the queries to integers, one to a warp, and sets their state before the first span; those
 * after the last are zeros, so that they may be multiplied. */
static __device__ __forceinline__ void hold_queries(const struct cuda_kv *kv,
                                                    const struct cuda_attention *a,
                                                    const struct work *w, const float *q, int *to,
                                                    struct softmax *state)
{
    unsigned lane = threadIdx.x % WARP_LANES;

    for (unsigned query = threadIdx.x / WARP_LANES; query < CUDA_TILE_QUERIES; query += WARPS) {
        size_t token = w->item.row + query / w->n_heads;
        size_t head = w->first_head + query % w->n_heads;
        const float *from = q + (token * a->n_heads + head) * kv->head_dim;
        unsigned n = query < w->n_queries ? kv->head_dim : 0;
        struct attend_query_unit unit;
        uint32_t greatest = 0;

        for (unsigned d = lane; d < n; d += WARP_LANES)
            greatest = max(greatest, __float_as_uint(from[d]) & 0x7fffffff);
#pragma unroll
        for (unsigned by = WARP_LANES / 2; by > 0; by /= 2)
            greatest = max(greatest, __shfl_xor_sync(WARP_ALL, greatest, by));
        unit = attend_unit_of_query(__uint_as_float(greatest), kv->head_dim, a->factor);
        for (unsigned d = lane; d < kv->padded_dim; d += WARP_LANES)
            to[query * kv->padded_dim + d] = d < n ? attend_round(from[d], unit.by) : 0;
        if (lane == 0) {
            struct softmax none = {};

            none.unit = unit.unit;
            state[query] = none;
        }
    }
}

/* True for all threads of the block that is the last of those that share the item's tokens. The
 * barrier orders the block's partial results before its first thread's fence, which orders them
 * before the count; the last block's first thread orders them again behind the count. */
static __device__ __forceinline__ bool is_last(const struct cuda_attention *a, const struct work *w)
{
    SHARED(uint32_t, before, 1);
    uint32_t *counter = a->counters + (size_t)w->item.counter * a->n_heads + w->first_head;

    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        before[0] = atomicAdd(counter, 1u);
        __threadfence();
        if (before[0] == w->item.n_spans - 1)
            *counter = 0; /* for the next launch */
    }
    __syncthreads();
    return before[0] == w->item.n_spans - 1;
}

static __device__ __forceinline__ struct work work_of(const struct cuda_kv *kv, unsigned layer,
                                                      const struct cuda_attention *a)
{
    struct work w;
    unsigned n_sharing = a->n_heads / kv->n_kv_heads;
    unsigned n_parts = (n_sharing + CUDA_TILE_QUERIES - 1) / CUDA_TILE_QUERIES;
    unsigned skip = blockIdx.y % n_parts * CUDA_TILE_QUERIES;

    w.item = a->items[blockIdx.x];
    w.table = a->tables + w.item.table;
    w.kv_head = blockIdx.y / n_parts;
    w.head = kv->pages + (size_t)layer * kv->layer_bytes + (size_t)w.kv_head * kv->head_bytes;
    w.n_sharing = n_sharing;
    w.first_head = w.kv_head * n_sharing + skip;
    w.n_heads = min(n_sharing - skip, (unsigned)CUDA_TILE_QUERIES);
    w.n_queries = w.item.n_tokens * w.n_heads;
    w.window = a->window;
    return w;
}

/* For heads of up to PAIRS pairs of numbers a lane. */
template <kv_type T, unsigned PAIRS>
static __global__ void __launch_bounds__(THREADS, 1)
    attend(struct cuda_kv kv, unsigned layer, struct cuda_attention a, const float *q, float *out)
{
    DYNAMIC_SHARED(float, room);
    SHARED(struct softmax, state, CUDA_TILE_QUERIES);
    SHARED(struct scales, scales, 1);
    int *queries = (int *)(void *)room;
    float *sums = room + CUDA_TILE_QUERIES * kv.padded_dim;
    float *p = sums + CUDA_TILE_QUERIES * kv.padded_dim;
    unsigned warp = threadIdx.x / WARP_LANES, lane = threadIdx.x % WARP_LANES;
    struct work w;
    bool whole;

    if (blockIdx.x >= count_of(a.n_items))
        return;
    w = work_of(&kv, layer, &a);
    whole = w.item.end_span - w.item.first_span == w.item.n_spans;
    hold_queries(&kv, &a, &w, q, queries, state);
    for (unsigned i = threadIdx.x; i < CUDA_TILE_QUERIES * kv.padded_dim; i += THREADS)
        sums[i] = 0.0f;
    for (unsigned span = w.item.first_span; span < w.item.end_span; span++) {
        unsigned most = seen(&w, w.n_queries - 1, span);
        unsigned end = (most + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS * KV_PAGE_TOKENS;
        unsigned n_scored = (w.n_queries + QUAD - 1) / QUAD * QUAD;

        if (unseen(&w, 0, span) == CUDA_SPAN)
            continue; /* nor does any later query see the span */
        __syncthreads();
        take_scales<T>(&kv, &w, span, end, scales);
        for (unsigned first = 0; first < w.n_queries; first += QUAD)
            score_quad<T>(&kv, &w, span, most, first, queries, state, scales, a.cap, p);
        __syncthreads();
        for (unsigned query = warp; query < n_scored; query += WARPS)
            weigh_query(&w, query, span, end, scales, p + query * CUDA_SPAN, &state[query], whole);
        __syncthreads();
        if (n_scored == QUAD)
            sum_span<T, PAIRS, QUAD>(&kv, &w, span, end, p, scales);
        else
            sum_span<T, PAIRS, CUDA_TILE_QUERIES>(&kv, &w, span, end, p, scales);
        for (unsigned query = warp; query < w.n_queries; query += WARPS)
            put_query(&kv, &a, &w, query, span, p + query * CUDA_SPAN, &state[query],
                      sums + query * kv.padded_dim, whole);
    }
    if (!whole && !is_last(&a, &w))
        return;
    for (unsigned query = warp; query < w.n_queries; query += WARPS)
        if (whole) {
            float *to = output_at(&kv, &a, &w, query, out);

            for (unsigned d = lane; d < kv.head_dim; d += WARP_LANES)
                to[d] = sums[query * kv.padded_dim + d] *
                        (1.0f / (state[query].sum * ATTEND_WEIGHT_MOST));
        } else {
            merge_parts(&kv, &a, &w, query, out);
        }
}

template <kv_type T, unsigned PAIRS>
static void launch_attend(const struct cuda_kv *kv, uint32_t layer, const struct cuda_attention *a,
                          const float *q, float *out, struct CUstream_st *stream)
{
    unsigned n_sharing = a->n_heads / kv->n_kv_heads;
    unsigned n_parts = (n_sharing + CUDA_TILE_QUERIES - 1) / CUDA_TILE_QUERIES;
    dim3 grid(a->n_items.most, kv->n_kv_heads * n_parts);
    size_t shared_bytes = CUDA_TILE_QUERIES * (2 * kv->padded_dim + CUDA_SPAN) * sizeof(float);

    LAUNCH((attend<T, PAIRS>), grid, THREADS, shared_bytes, stream, *kv, layer, *a, q, out);
}

template <kv_type T>
static void launch_by_head(const struct cuda_kv *kv, uint32_t layer, const struct cuda_attention *a,
                           const float *q, float *out, struct CUstream_st *stream)
{
    if (kv->head_dim <= 2 * WARP_LANES)
        launch_attend<T, 1>(kv, layer, a, q, out, stream);
    else if (kv->head_dim <= 4 * WARP_LANES)
        launch_attend<T, 2>(kv, layer, a, q, out, stream);
    else
        launch_attend<T, 4>(kv, layer, a, q, out, stream);
}

void cuda_attend(const struct cuda_kv *kv, uint32_t layer, const struct cuda_attention *a,
                 const float *q, float *out, struct CUstream_st *stream)
{
    if (kv->type == KV_F16)
        launch_by_head<KV_F16>(kv, layer, a, q, out, stream);
    else if (kv->type == KV_F32) /* for comparisons: one kernel does for all heads */
        launch_attend<KV_F32, 4>(kv, layer, a, q, out, stream);
    else
        launch_by_head<KV_Q8>(kv, layer, a, q, out, stream);
}
