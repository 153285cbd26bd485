/* Rope, and the storing of keys and values in their pages. A warp has a head of a token at a
 * time. */
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.h"
#include "compute/cuda/weights.h"

static constexpr unsigned THREADS = 128;
static constexpr unsigned WARPS = THREADS / WARP_LANES;
static constexpr unsigned MAX_PAIRS = 256 / 2 / WARP_LANES; /* of a head, by lane */

/* A lane's pairs of a head: its first numbers are 2 * lane and 2 * lane + 1, then 64 further. */
struct head_pairs {
    float2 at[MAX_PAIRS];
};

static __device__ __forceinline__ struct head_pairs load_head(const float *from, unsigned n_pairs)
{
    unsigned lane = threadIdx.x % WARP_LANES;
    struct head_pairs h = {};

#pragma unroll
    for (unsigned i = 0; i < MAX_PAIRS; i++)
        if (lane + i * WARP_LANES < n_pairs)
            h.at[i] = ((const float2 *)from)[lane + i * WARP_LANES];
    return h;
}

/* turns [n_pairs]: of the position. The order of products and sums is ref_rope's; pairs beyond are
 * not rotated. */
static __device__ __forceinline__ void turn_head(struct head_pairs *h, const float2 *turns,
                                                 unsigned n_pairs, float *to)
{
    unsigned lane = threadIdx.x % WARP_LANES;

#pragma unroll
    for (unsigned i = 0; i < MAX_PAIRS; i++)
        if (lane + i * WARP_LANES < n_pairs) {
            float2 x = h->at[i], turn = turns[lane + i * WARP_LANES];

            h->at[i] = make_float2(x.x * turn.x - x.y * turn.y, x.x * turn.y + x.y * turn.x);
            ((float2 *)to)[lane + i * WARP_LANES] = h->at[i];
        }
}

/* The place of a head's numbers: pieces of 16 bytes are `step` bytes apart. */
struct head_place {
    uint8_t *at;
    unsigned step;
    float *scale; /* or greatest magnitude */
};

static __device__ __forceinline__ struct head_place place_in(const struct cuda_kv *kv,
                                                             unsigned layer, int32_t page,
                                                             unsigned head, unsigned slot,
                                                             bool values)
{
    unsigned value_bytes = kv->type == KV_F32 ? 4 : kv->type == KV_F16 ? 2 : 1;
    uint8_t *base = kv->pages + (size_t)page * kv->page_bytes + (size_t)layer * kv->layer_bytes +
                    (size_t)head * kv->head_bytes + (values ? kv->values_at : 0);
    float *scales = (float *)(void *)(base + KV_PAGE_TOKENS * kv->padded_dim * value_bytes);
    struct head_place p = {base + slot * (values ? kv->padded_dim * value_bytes : PIECE_BYTES),
                           values ? PIECE_BYTES : KV_PAGE_TOKENS * PIECE_BYTES, scales + slot};

    return p;
}

/* The bits of the warp's greatest magnitude, where NaN is above all. Pairs beyond the head are
 * zeros. */
static __device__ __forceinline__ uint32_t greatest_of(const struct head_pairs *h)
{
    uint32_t greatest = 0;

#pragma unroll
    for (unsigned i = 0; i < MAX_PAIRS; i++) {
        greatest = max(greatest, __float_as_uint(h->at[i].x) & 0x7fffffff);
        greatest = max(greatest, __float_as_uint(h->at[i].y) & 0x7fffffff);
    }
#pragma unroll
    for (unsigned by = WARP_LANES / 2; by > 0; by /= 2)
        greatest = max(greatest, __shfl_xor_sync(WARP_ALL, greatest, by));
    return greatest;
}

/* kv_q8_round, each lane with its own numbers. */
static __device__ __forceinline__ void store_q8(const struct head_place *p,
                                                const struct head_pairs *h, unsigned n_pairs)
{
    const float magic = 12582912.0f;
    unsigned lane = threadIdx.x % WARP_LANES;
    float most = __uint_as_float(greatest_of(h)), inverse = 127.0f / most;
    bool sane = most >= 0x1p-100f && most < 0x1p100f;

#pragma unroll
    for (unsigned i = 0; i < MAX_PAIRS; i++) {
        unsigned pair = lane + i * WARP_LANES;
        int x = sane ? (int)((h->at[i].x * inverse + magic) - magic) : 0;
        int y = sane ? (int)((h->at[i].y * inverse + magic) - magic) : 0;

        if (pair < n_pairs)
            *(uint16_t *)(void *)(p->at + pair / 8 * p->step + pair % 8 * 2) =
                (uint16_t)((x & 0xff) | (y & 0xff) << 8);
    }
    if (lane == 0)
        *p->scale = sane ? most / 127.0f : most < 0x1p-100f ? 0.0f : __uint_as_float(0x7fc00000);
}

static __device__ __forceinline__ void store_head(const struct cuda_kv *kv,
                                                  const struct head_place *p, struct head_pairs *h,
                                                  unsigned n_pairs)
{
    unsigned lane = threadIdx.x % WARP_LANES;
    uint32_t greatest;

    if (kv->type == KV_Q8) {
        store_q8(p, h, n_pairs);
        return;
    }
#pragma unroll
    for (unsigned i = 0; i < MAX_PAIRS; i++) {
        unsigned pair = lane + i * WARP_LANES;
        float2 *x = &h->at[i];

        if (pair >= n_pairs)
            break;
        if (kv->type == KV_F32) {
            *(float2 *)(void *)(p->at + pair / 2 * p->step + pair % 2 * 8) = *x;
        } else {
            uint16_t lower = f16_round(x->x), upper = f16_round(x->y);

            *(uint32_t *)(void *)(p->at + pair / 4 * p->step + pair % 4 * 4) =
                (uint32_t)lower | (uint32_t)upper << 16;
            *x = make_float2(f16_widen(lower), f16_widen(upper));
        }
    }
    greatest = greatest_of(h);
    if (lane == 0)
        *p->scale = __uint_as_float(greatest);
}

/* The heads of a token to process; those that are NULL are skipped. */
struct heads {
    float *q, *k;
    const float *v;
    unsigned n_heads;
    bool turns, stores;
};

static __global__ void __launch_bounds__(THREADS)
    rope_and_store(struct cuda_turns rope, struct cuda_kv kv, unsigned layer,
                   struct cuda_tokens tokens, struct heads heads)
{
    unsigned token = blockIdx.x, n_q = heads.q != NULL ? heads.n_heads : 0;
    unsigned n_k = heads.k != NULL ? kv.n_kv_heads : 0, n_v = heads.v != NULL ? kv.n_kv_heads : 0;
    unsigned n_pairs = kv.head_dim / 2, n_turned = rope.n_rotated / 2, position;
    const float2 *turns;
    int32_t page;

    if (token >= count_of(tokens.n))
        return;
    position = tokens.positions[token];
    page = heads.stores ? tokens.pages[token] : -1;
    turns = (const float2 *)rope.turns + (size_t)position * n_turned;
    for (unsigned i = threadIdx.x / WARP_LANES; i < n_q + n_k + n_v; i += WARPS) {
        bool is_v = i >= n_q + n_k;
        unsigned head = i < n_q ? i : is_v ? i - n_q - n_k : i - n_q;
        size_t skip = ((size_t)token * (i < n_q ? n_q : kv.n_kv_heads) + head) * kv.head_dim;
        const float *from = (i < n_q ? heads.q : is_v ? heads.v : heads.k) + skip;
        struct head_pairs h = load_head(from, n_pairs);

        if (heads.turns && !is_v)
            turn_head(&h, turns, n_turned, (i < n_q ? heads.q : heads.k) + skip);
        if (i >= n_q && page >= 0) {
            struct head_place p = place_in(&kv, layer, page, head, position % KV_PAGE_TOKENS, is_v);

            store_head(&kv, &p, &h, n_pairs);
        }
    }
}

/* A warp has a head, a lane every 32nd pair. */
static __global__ void __launch_bounds__(THREADS)
    rope_halves(struct cuda_turns rope, struct cuda_tokens tokens, unsigned n_heads, float *x)
{
    unsigned token = blockIdx.x, n_pairs = rope.n_rotated / 2, lane = threadIdx.x % WARP_LANES;
    const float2 *turns;

    if (token >= count_of(tokens.n))
        return;
    turns = (const float2 *)rope.turns + (size_t)tokens.positions[token] * n_pairs;
    for (unsigned i = threadIdx.x / WARP_LANES; i < n_heads; i += WARPS) {
        float *head = x + ((size_t)token * n_heads + i) * rope.head_dim;

        for (unsigned j = lane; j < n_pairs; j += WARP_LANES) {
            float a = head[j], b = head[j + n_pairs];

            head[j] = a * turns[j].x - b * turns[j].y;
            head[j + n_pairs] = a * turns[j].y + b * turns[j].x;
        }
    }
}

void cuda_rope(const struct cuda_turns *r, const struct cuda_tokens *tokens, uint32_t n_heads,
               float *x, struct CUstream_st *stream)
{
    struct cuda_kv none = {};
    struct heads heads = {x, NULL, NULL, n_heads, true, false};

    if (r->halves) {
        LAUNCH(rope_halves, tokens->n.most, THREADS, 0, stream, *r, *tokens, n_heads, x);
        return;
    }
    none.head_dim = r->head_dim;
    LAUNCH(rope_and_store, tokens->n.most, THREADS, 0, stream, *r, none, 0u, *tokens, heads);
}

void cuda_kv_store(const struct cuda_kv *kv, uint32_t layer, const struct cuda_tokens *tokens,
                   const float *k, const float *v, struct CUstream_st *stream)
{
    struct cuda_turns none = {};
    struct heads heads = {NULL, (float *)k, v, 0, false, true}; /* k is only read, not rotated */

    LAUNCH(rope_and_store, tokens->n.most, THREADS, 0, stream, none, *kv, layer, *tokens, heads);
}

void cuda_rope_kv_store(const struct cuda_turns *r, const struct cuda_kv *kv, uint32_t layer,
                        const struct cuda_tokens *tokens, uint32_t n_heads, float *q, float *k,
                        const float *v, struct CUstream_st *stream)
{
    struct heads heads = {q, k, v, n_heads, true, true};

    LAUNCH(rope_and_store, tokens->n.most, THREADS, 0, stream, *r, *kv, layer, *tokens, heads);
}

static __global__ void __launch_bounds__(THREADS) kv_copy(struct cuda_kv kv, const int32_t *pairs)
{
    const uint4 *from = (const uint4 *)(kv.pages + (size_t)pairs[2 * blockIdx.y] * kv.page_bytes);
    uint4 *to = (uint4 *)(kv.pages + (size_t)pairs[2 * blockIdx.y + 1] * kv.page_bytes);

    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < kv.page_bytes / sizeof(*to);
         i += (size_t)gridDim.x * THREADS)
        to[i] = from[i];
}

void cuda_kv_copy(const struct cuda_kv *kv, const int32_t *pairs, uint32_t n,
                  struct CUstream_st *stream)
{
    constexpr unsigned blocks = 32; /* of a page */
    constexpr uint32_t most = 65535;

    for (uint32_t done = 0; done < n; done += most)
        LAUNCH(kv_copy, dim3(blocks, n - done < most ? n - done : most), THREADS, 0, stream, *kv,
               pairs + 2 * done);
}
