/* Paged attention, with the arithmetic of compute/cpu/attend.c: spans of 256 positions counted from
 * 0, in which a score is one chain of fma over the head's dimensions, exponentials are taken
 * against the span's greatest score and summed in sixteen lanes by position, and each output is one
 * chain of fma over positions; spans are merged in order.
 *
 * A block has an item's queries of one key head. For scores its threads have two positions each;
 * for softmax and outputs a warp has a query at a time. Where an item has but some of the spans it
 * leaves each span's part in memory, and the block that comes last merges them. */
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.h"
#include "compute/cuda/tile.h"
#include "compute/cuda/weights.h"
#include "compute/scalar.h"

static constexpr unsigned THREADS = 128;
static constexpr unsigned WARPS = THREADS / WARP_LANES;
static constexpr unsigned TURNS = CUDA_SPAN / THREADS; /* positions of a thread */
static constexpr unsigned QUAD = 4;                    /* queries whose scores are made together */
static constexpr unsigned MAX_PAIRS = 256 / 2 / WARP_LANES;

/* What a block knows of its item. */
struct work {
    struct cuda_attend_item item;
    const int32_t *table; /* of the sequence */
    const uint8_t *head;  /* of page 0 */
    unsigned kv_head, n_sharing;
    unsigned first_head, n_heads; /* of the queries of a token */
    unsigned n_queries;
    float scale; /* of scores: weights are 2^(scale * score) */
};

/* A query's state, in shared memory. */
struct softmax {
    float max, sum;     /* of the spans before; sum is 0 before the first */
    float before, here; /* what the outputs of both are multiplied by */
    float max_here, sum_here;
};

static __device__ __forceinline__ unsigned seen(const struct work *w, unsigned query, unsigned span)
{
    unsigned n = w->item.pos + query / w->n_heads + 1, first = span * CUDA_SPAN;

    return n > first ? min(n - first, (unsigned)CUDA_SPAN) : 0;
}

template <kv_type T> static __host__ __device__ constexpr unsigned value_bytes(void)
{
    return T == KV_F32 ? 4 : T == KV_F16 ? 2 : 1;
}

/* Number i of 16 bytes. */
template <kv_type T> static __device__ __forceinline__ float number_of(uint4 piece, unsigned i)
{
    unsigned byte = i * value_bytes<T>(), word = byte / 4;
    uint32_t bits = word == 0 ? piece.x : word == 1 ? piece.y : word == 2 ? piece.z : piece.w;

    if (T == KV_F32)
        return __uint_as_float(bits);
    if (T == KV_F16)
        return f16_widen((uint16_t)(bits >> byte % 4 * 8));
    return (float)(int8_t)(bits >> byte % 4 * 8 & 0xff);
}

/* A pair of a head's numbers. */
template <kv_type T>
static __device__ __forceinline__ float2 pair_of(const uint8_t *row, unsigned pair)
{
    if (T == KV_F32)
        return ((const float2 *)(const void *)row)[pair];
    if (T == KV_F16) {
        uint32_t bits = ((const uint32_t *)(const void *)row)[pair];

        return make_float2(f16_widen((uint16_t)bits), f16_widen((uint16_t)(bits >> 16)));
    }
    uint16_t bits = ((const uint16_t *)(const void *)row)[pair];

    return make_float2((float)(int8_t)(bits & 0xff), (float)(int8_t)(bits >> 8));
}

/* Scores of queries first … first + QUAD - 1 and the thread's positions of the span. */
template <kv_type T>
static __device__ __forceinline__ void score_quad(const struct cuda_kv *kv, const struct work *w,
                                                  unsigned span, unsigned n, unsigned first,
                                                  const float *q, float *p)
{
    constexpr unsigned size = PIECE_BYTES / value_bytes<T>();

    for (unsigned turn = 0; turn < TURNS; turn++) {
        unsigned i = turn * THREADS + threadIdx.x;
        float y[QUAD] = {};

        if (i < n) {
            const uint8_t *page =
                w->head +
                (size_t)w->table[(span * CUDA_SPAN + i) / KV_PAGE_TOKENS] * kv->page_bytes;
            const uint4 *keys = (const uint4 *)(const void *)page + i % KV_PAGE_TOKENS;

#pragma unroll 2
            for (unsigned d = 0; d < kv->head_dim; d += size) {
                uint4 piece = keys[d / size * KV_PAGE_TOKENS];

#pragma unroll
                for (unsigned k = 0; k < size; k++)
                    if (d + k < kv->head_dim) {
#pragma unroll
                        for (unsigned j = 0; j < QUAD; j++)
                            y[j] = fmaf(q[(first + j) * kv->padded_dim + d + k],
                                        number_of<T>(piece, k), y[j]);
                    }
            }
            if (T == KV_Q8) {
                const float *scales =
                    (const float *)(const void *)(page + KV_PAGE_TOKENS * kv->padded_dim);

#pragma unroll
                for (unsigned j = 0; j < QUAD; j++)
                    y[j] = y[j] * scales[i % KV_PAGE_TOKENS];
            }
#pragma unroll
            for (unsigned j = 0; j < QUAD; j++)
                p[(first + j) * CUDA_SPAN + i] = y[j];
        }
    }
}

/* p [n] becomes 2^(scale * (p - its greatest)); the warp's. */
static __device__ __forceinline__ void weigh(float *p, unsigned n, float scale, struct softmax *s)
{
    unsigned lane = threadIdx.x % WARP_LANES;
    float greatest = -INFINITY, sum = 0.0f;

    for (unsigned i = lane; i < n; i += WARP_LANES)
        greatest = p[i] > greatest ? p[i] : greatest;
#pragma unroll
    for (unsigned by = WARP_LANES / 2; by > 0; by /= 2) {
        float other = __shfl_xor_sync(WARP_ALL, greatest, by);

        greatest = other > greatest ? other : greatest;
    }
    for (unsigned i = lane; i < n; i += WARP_LANES)
        p[i] = scalar_exp2_below(p[i] - greatest, scale);
    __syncwarp();
    if (lane < SCALAR_LANES)
        for (unsigned i = lane; i < n; i += SCALAR_LANES)
            sum = sum + p[i];
#pragma unroll
    for (unsigned half = SCALAR_LANES / 2; half > 0; half /= 2)
        sum = sum + __shfl_down_sync(WARP_ALL, sum, half);
    if (lane == 0) {
        s->max_here = greatest;
        s->sum_here = sum;
    }
}

/* Says what the outputs of the spans before, and of this one, are to be multiplied by. */
static __device__ __forceinline__ void merge(struct softmax *s, float scale)
{
    s->before = s->here = 1.0f;
    if (s->sum > 0.0f && s->max_here > s->max) {
        s->before = scalar_exp2_below(s->max - s->max_here, scale);
        s->max = s->max_here;
    } else if (s->sum > 0.0f) {
        s->here = scalar_exp2_below(s->max_here - s->max, scale);
    } else {
        s->max = s->max_here;
    }
    s->sum = s->sum * s->before + s->sum_here * s->here;
}

/* The span's outputs of one query: a lane's pairs of dimensions, over n positions. */
template <kv_type T>
static __device__ __forceinline__ void gather(const struct cuda_kv *kv, const struct work *w,
                                              unsigned span, unsigned n, const float *p,
                                              float2 y[MAX_PAIRS])
{
    unsigned lane = threadIdx.x % WARP_LANES, n_pairs = kv->head_dim / 2;
    unsigned row_bytes = kv->padded_dim * value_bytes<T>();

#pragma unroll
    for (unsigned k = 0; k < MAX_PAIRS; k++)
        y[k] = make_float2(0.0f, 0.0f);
    for (unsigned first = 0; first < n; first += KV_PAGE_TOKENS) {
        unsigned here = min(n - first, (unsigned)KV_PAGE_TOKENS);
        int32_t page = w->table[(span * CUDA_SPAN + first) / KV_PAGE_TOKENS];
        const uint8_t *row = w->head + (size_t)page * kv->page_bytes + kv->values_at;

#pragma unroll 4
        for (unsigned i = 0; i < here; i++, row += row_bytes) {
            float weight = p[first + i];

#pragma unroll
            for (unsigned k = 0; k < MAX_PAIRS; k++)
                if (lane + k * WARP_LANES < n_pairs) {
                    float2 v = pair_of<T>(row, lane + k * WARP_LANES);

                    y[k].x = fmaf(weight, v.x, y[k].x);
                    y[k].y = fmaf(weight, v.y, y[k].y);
                }
        }
    }
}

/* Weights times the scales of the values that they meet. */
static __device__ __forceinline__ void scale_weights(const struct cuda_kv *kv, const struct work *w,
                                                     unsigned span, unsigned n, float *p)
{
    for (unsigned i = threadIdx.x % WARP_LANES; i < n; i += WARP_LANES) {
        int32_t page = w->table[(span * CUDA_SPAN + i) / KV_PAGE_TOKENS];
        const uint8_t *values = w->head + (size_t)page * kv->page_bytes + kv->values_at;
        const float *scales =
            (const float *)(const void *)(values + KV_PAGE_TOKENS * kv->padded_dim);

        p[i] = p[i] * scales[i % KV_PAGE_TOKENS];
    }
    __syncwarp();
}

/* Where a query's part of a span is kept: outputs, greatest score, sum. */
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

/* A warp's query in one span: softmax, outputs, and these merged with what `sums` has of the spans
 * before, or left in memory. */
template <kv_type T>
static __device__ __forceinline__ void
attend_query(const struct cuda_kv *kv, const struct cuda_attention *a, const struct work *w,
             unsigned query, unsigned span, float *p, struct softmax *s, float *sums, bool whole)
{
    unsigned lane = threadIdx.x % WARP_LANES, n = seen(w, query, span);
    float2 y[MAX_PAIRS];
    float *part = whole ? NULL : part_at(kv, a, w, query, span);

    if (n == 0)
        return;
    weigh(p, n, w->scale, s);
    if (lane == 0 && whole)
        merge(s, w->scale);
    __syncwarp();
    if (T == KV_Q8)
        scale_weights(kv, w, span, n, p);
    gather<T>(kv, w, span, n, p, y);
#pragma unroll
    for (unsigned k = 0; k < MAX_PAIRS; k++) {
        unsigned d = 2 * (lane + k * WARP_LANES);

        if (d >= kv->head_dim)
            break;
        if (whole) {
            sums[d] = fmaf(y[k].x, s->here, sums[d] * s->before);
            sums[d + 1] = fmaf(y[k].y, s->here, sums[d + 1] * s->before);
        } else {
            part[d] = y[k].x;
            part[d + 1] = y[k].y;
        }
    }
    if (!whole && lane == 0) {
        part[kv->head_dim] = s->max_here;
        part[kv->head_dim + 1] = s->sum_here;
    }
}

/* All spans of a query from the parts that other blocks left. Volatile: they are not what this
 * processor's cache may have of those lines. */
static __device__ __forceinline__ void merge_parts(const struct cuda_kv *kv,
                                                   const struct cuda_attention *a,
                                                   const struct work *w, unsigned query, float *out)
{
    float *to = output_at(kv, a, w, query, out);

    for (unsigned d = threadIdx.x % WARP_LANES; d < kv->head_dim; d += WARP_LANES) {
        struct softmax s = {};
        float sum = 0.0f;

        for (unsigned span = 0; span < w->item.n_spans && seen(w, query, span) > 0; span++) {
            const volatile float *part = part_at(kv, a, w, query, span);

            s.max_here = part[kv->head_dim];
            s.sum_here = part[kv->head_dim + 1];
            merge(&s, w->scale);
            sum = fmaf(part[d], s.here, sum * s.before);
        }
        to[d] = sum * (1.0f / s.sum);
    }
}

/* The queries; those beyond the last are zeros, so that they may be multiplied. */
static __device__ __forceinline__ void hold_queries(const struct cuda_kv *kv,
                                                    const struct cuda_attention *a,
                                                    const struct work *w, const float *q, float *to)
{
    for (unsigned i = threadIdx.x; i < CUDA_TILE_QUERIES * kv->padded_dim; i += THREADS) {
        unsigned query = i / kv->padded_dim, d = i % kv->padded_dim;
        bool there = query < w->n_queries && d < kv->head_dim;
        size_t token = w->item.row + query / w->n_heads;
        size_t head = w->first_head + query % w->n_heads;

        to[i] = there ? q[(token * a->n_heads + head) * kv->head_dim + d] : 0.0f;
    }
}

/* True for all threads of the block that is the last of those that share the item's tokens. */
static __device__ __forceinline__ bool is_last(const struct cuda_attention *a, const struct work *w)
{
    SHARED(uint32_t, before, 1);
    uint32_t *counter = a->counters + (size_t)w->item.counter * a->n_heads + w->first_head;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        before[0] = atomicAdd(counter, 1u);
        if (before[0] == w->item.n_spans - 1)
            *counter = 0; /* for the next launch */
    }
    __syncthreads();
    __threadfence();
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
    w.scale = SCALAR_LOG2_E / sqrtf((float)kv->head_dim);
    return w;
}

template <kv_type T>
static __global__ void __launch_bounds__(THREADS, 1)
    attend(struct cuda_kv kv, unsigned layer, struct cuda_attention a, const float *q, float *out)
{
    DYNAMIC_SHARED(float, room);
    SHARED(struct softmax, state, CUDA_TILE_QUERIES);
    float *queries = room, *sums = queries + CUDA_TILE_QUERIES * kv.padded_dim;
    float *p = sums + CUDA_TILE_QUERIES * kv.padded_dim;
    unsigned warp = threadIdx.x / WARP_LANES, lane = threadIdx.x % WARP_LANES;
    struct work w;
    bool whole;

    if (blockIdx.x >= count_of(a.n_items))
        return;
    w = work_of(&kv, layer, &a);
    whole = w.item.end_span - w.item.first_span == w.item.n_spans;
    hold_queries(&kv, &a, &w, q, queries);
    for (unsigned i = threadIdx.x; i < CUDA_TILE_QUERIES * kv.padded_dim; i += THREADS)
        sums[i] = 0.0f;
    if (threadIdx.x < CUDA_TILE_QUERIES) {
        struct softmax none = {};

        state[threadIdx.x] = none;
    }
    for (unsigned span = w.item.first_span; span < w.item.end_span; span++) {
        unsigned most = seen(&w, w.n_queries - 1, span);

        __syncthreads();
        for (unsigned first = 0; first < w.n_queries; first += QUAD)
            score_quad<T>(&kv, &w, span, most, first, queries, p);
        __syncthreads();
        for (unsigned query = warp; query < w.n_queries; query += WARPS)
            attend_query<T>(&kv, &a, &w, query, span, p + query * CUDA_SPAN, &state[query],
                            sums + query * kv.padded_dim, whole);
    }
    if (!whole && !is_last(&a, &w))
        return;
    for (unsigned query = warp; query < w.n_queries; query += WARPS)
        if (whole) {
            float *to = output_at(&kv, &a, &w, query, out);

            __syncwarp();
            for (unsigned d = lane; d < kv.head_dim; d += WARP_LANES)
                to[d] = sums[query * kv.padded_dim + d] * (1.0f / state[query].sum);
        } else {
            merge_parts(&kv, &a, &w, query, out);
        }
}

void cuda_attend(const struct cuda_kv *kv, uint32_t layer, const struct cuda_attention *a,
                 const float *q, float *out, struct CUstream_st *stream)
{
    unsigned n_sharing = a->n_heads / kv->n_kv_heads;
    unsigned n_parts = (n_sharing + CUDA_TILE_QUERIES - 1) / CUDA_TILE_QUERIES;
    dim3 grid(a->n_items.most, kv->n_kv_heads * n_parts);
    size_t shared_bytes = CUDA_TILE_QUERIES * (2 * kv->padded_dim + CUDA_SPAN) * sizeof(float);

    if (kv->type == KV_F16)
        LAUNCH(attend<KV_F16>, grid, THREADS, shared_bytes, stream, *kv, layer, *a, q, out);
    else if (kv->type == KV_F32)
        LAUNCH(attend<KV_F32>, grid, THREADS, shared_bytes, stream, *kv, layer, *a, q, out);
    else
        LAUNCH(attend<KV_Q8>, grid, THREADS, shared_bytes, stream, *kv, layer, *a, q, out);
}
