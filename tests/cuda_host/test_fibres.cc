/* The fibres that run CUDA's kernels in tests: code that works on a device works here, and a race
 * or a hang there is an error here. */
#include <check.h>

#include "compute/cuda/launch.h"
#include "tests/unit/base/suite.h"

enum { THREADS = 96 };

static void *device(size_t size_bytes)
{
    void *at = fibres_alloc(size_bytes);

    ck_assert_ptr_nonnull(at);
    return at;
}

static void must_fail(const char *with)
{
    ck_assert_ptr_nonnull(fibres_error());
    if (strstr(fibres_error(), with) == NULL)
        ck_abort_msg("'%s' does not say '%s'", fibres_error(), with);
    fibres_clear_error();
}

static void must_be_well(void)
{
    if (fibres_error() != NULL)
        ck_abort_msg("%s", fibres_error());
}

static __global__ void reversed(const int *in, int *out)
{
    SHARED(int, held, THREADS);
    unsigned i = threadIdx.x;

    held[i] = in[blockIdx.x * blockDim.x + i];
    __syncthreads();
    out[blockIdx.x * blockDim.x + i] = held[blockDim.x - 1 - i];
}

/* Threads see what others wrote before a barrier, in every order. */
START_TEST(a_barrier_holds)
{
    int *in = static_cast<int *>(device(3 * THREADS * sizeof(*in)));
    int *out = static_cast<int *>(device(3 * THREADS * sizeof(*out)));

    for (int i = 0; i < 3 * THREADS; i++)
        in[i] = i;
    fibres_set_orders(5, 1);
    LAUNCH(reversed, 3, THREADS, 0, NULL, in, out);
    must_be_well();
    for (int i = 0; i < 3 * THREADS; i++)
        ck_assert_int_eq(out[i], i / THREADS * THREADS + THREADS - 1 - i % THREADS);
    fibres_free(in);
    fibres_free(out);
}
END_TEST

static __global__ void unguarded(int *out)
{
    SHARED(int, held, THREADS);

    held[threadIdx.x] = static_cast<int>(threadIdx.x);
    out[threadIdx.x] = held[(threadIdx.x + 40) % THREADS];
}

static __global__ void unguarded_warp(int *out)
{
    SHARED(int, held, 32);

    held[threadIdx.x] = static_cast<int>(threadIdx.x);
    out[threadIdx.x] = held[31 - threadIdx.x];
}

/* A missing barrier is detected, between warps and within one. */
START_TEST(a_missing_barrier_shows)
{
    int *out = static_cast<int *>(device(THREADS * sizeof(*out)));

    fibres_set_orders(3, 7);
    LAUNCH(unguarded, 1, THREADS, 0, NULL, out);
    must_fail("kernel unguarded: threads in backward order write other bits");
    LAUNCH(unguarded_warp, 1, 32, 0, NULL, out);
    must_fail("kernel unguarded_warp: threads in backward order write other bits");
    fibres_free(out);
}
END_TEST

static __global__ void half_waits(unsigned n)
{
    if (threadIdx.x < n)
        __syncthreads();
}

static __global__ void two_barriers(unsigned n)
{
    if (threadIdx.x < n)
        __syncthreads();
    else
        __syncthreads();
}

static __global__ void lonely_shuffle(int *out)
{
    if (threadIdx.x != 5)
        out[threadIdx.x] = __shfl_xor_sync(WARP_ALL, 1, 1);
}

static __global__ void stranger(int *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_sync(0xffffu, 1, 20);
}

static __global__ void takes_much(int *out)
{
    SHARED(int, held, 3 << 10);
    DYNAMIC_SHARED(int, more);

    held[threadIdx.x] = more[threadIdx.x] = 0;
    out[threadIdx.x] = held[threadIdx.x] + more[threadIdx.x];
}

/* Waits that some threads never reach, and missing memory, are errors with the kernel's name. */
START_TEST(waits_that_cannot_end_are_told)
{
    int *out = static_cast<int *>(device(THREADS * sizeof(*out)));

    fibres_set_orders(1, 0);
    LAUNCH(half_waits, 1, THREADS, 0, NULL, 32u);
    must_fail("kernel half_waits, line");
    LAUNCH(two_barriers, 1, THREADS, 0, NULL, 32u);
    must_fail("barriers of other lines");
    LAUNCH(lonely_shuffle, 1, 32, 0, NULL, out);
    must_fail("waits for threads that do not come");
    LAUNCH(stranger, 1, 32, 0, NULL, out);
    must_fail("one that does not take part");
    LAUNCH(takes_much, 1, THREADS, 40 << 10, NULL, out);
    must_fail("more shared memory than a block has");
    fibres_free(out);
}
END_TEST

static __global__ void warp_words(uint32_t *out)
{
    unsigned lane = threadIdx.x % 32;
    uint32_t mine = threadIdx.x * 3 + 1;

    out[threadIdx.x] = __shfl_xor_sync(WARP_ALL, mine, 8);
    out[THREADS + threadIdx.x] = __shfl_down_sync(WARP_ALL, mine, 1);
    out[2 * THREADS + threadIdx.x] = __shfl_up_sync(WARP_ALL, mine, 2, 16);
    out[3 * THREADS + threadIdx.x] = __ballot_sync(WARP_ALL, lane % 3 == 0);
    out[4 * THREADS + threadIdx.x] = __shfl_sync(WARP_ALL, mine, 7);
    out[5 * THREADS + threadIdx.x] = __any_sync(WARP_ALL, threadIdx.x == 40);
    out[6 * THREADS + threadIdx.x] = __all_sync(WARP_ALL, threadIdx.x < 64);
    if (lane < 8)
        out[threadIdx.x] += __shfl_xor_sync(0xffu, mine, 1);
    __syncwarp();
    out[threadIdx.x] += static_cast<uint32_t>(__syncthreads_or(threadIdx.x == 50));
}

START_TEST(warps_exchange_words)
{
    uint32_t *out = static_cast<uint32_t *>(device(7 * THREADS * sizeof(*out))), votes = 0;

    for (unsigned i = 0; i < 32; i += 3)
        votes |= 1u << i;
    fibres_set_orders(4, 3);
    LAUNCH(warp_words, 1, THREADS, 0, NULL, out);
    must_be_well();
    for (unsigned i = 0; i < THREADS; i++) {
        unsigned lane = i % 32, first = i - lane;

        ck_assert_uint_eq(out[i], (i ^ 8) * 3 + 1 + (lane < 8 ? (i ^ 1) * 3 + 1 : 0) + 1);
        ck_assert_uint_eq(out[THREADS + i], (lane < 31 ? i + 1 : i) * 3 + 1);
        ck_assert_uint_eq(out[2 * THREADS + i], (lane % 16 >= 2 ? i - 2 : i) * 3 + 1);
        ck_assert_uint_eq(out[3 * THREADS + i], votes);
        ck_assert_uint_eq(out[4 * THREADS + i], (first + 7) * 3 + 1);
        ck_assert_uint_eq(out[5 * THREADS + i], first == 32);
        ck_assert_uint_eq(out[6 * THREADS + i], first < 64);
    }
    fibres_free(out);
}
END_TEST

static __global__ void products(const int8_t *a, const int8_t *b, int32_t *out)
{
    unsigned lane = threadIdx.x, g = lane / 4, t = lane % 4;
    uint32_t at[4], bt[2];
    int32_t d[4] = {1, 2, 3, 4};

    for (unsigned i = 0; i < 4; i++)
        memcpy(&at[i], a + (g + i % 2 * 8) * 32 + i / 2 * 16 + t * 4, 4);
    for (unsigned i = 0; i < 2; i++)
        memcpy(&bt[i], b + g * 32 + i * 16 + t * 4, 4);
    mma_16x32x8(d, at, bt[0], bt[1]);
    for (unsigned i = 0; i < 4; i++)
        out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
}

/* A warp's product is that of the matrices, with its fragments in the layout of launch.h. */
START_TEST(fragments_multiply)
{
    int8_t *a = static_cast<int8_t *>(device(16 * 32)), *b = static_cast<int8_t *>(device(8 * 32));
    int32_t *out = static_cast<int32_t *>(device(16 * 8 * sizeof(*out)));

    for (int i = 0; i < 16 * 32; i++)
        a[i] = static_cast<int8_t>(i * 37 % 255 - 127);
    for (int i = 0; i < 8 * 32; i++)
        b[i] = static_cast<int8_t>(i * 91 % 255 - 127);
    fibres_set_orders(3, 9);
    LAUNCH(products, 1, 32, 0, NULL, a, b, out);
    must_be_well();
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            int want = 1 + i / 8 * 2 + j % 2;

            for (int k = 0; k < 32; k++)
                want += a[i * 32 + k] * b[j * 32 + k];
            ck_assert_int_eq(out[i * 8 + j], want);
        }
    fibres_free(a);
    fibres_free(b);
    fibres_free(out);
}
END_TEST

static __global__ void sums(unsigned *sum, unsigned *most, unsigned *last)
{
    DYNAMIC_SHARED(unsigned, own);

    if (threadIdx.x == 0)
        own[0] = 0;
    __syncthreads();
    atomicAdd(&own[0], threadIdx.x);
    atomicMax(most, blockIdx.x * blockDim.x + threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(sum, own[0]);
        __threadfence();
        if (atomicAdd(&last[0], 1u) == gridDim.x - 1)
            last[1] = *sum;
    }
}

START_TEST(atomics_add_up)
{
    unsigned *sum = static_cast<unsigned *>(device(16));
    unsigned *most = static_cast<unsigned *>(device(16));
    unsigned *last = static_cast<unsigned *>(device(16));

    sum[0] = most[0] = last[0] = 0;
    fibres_set_orders(4, 11);
    LAUNCH(sums, 7, THREADS, 64, NULL, sum, most, last);
    must_be_well();
    ck_assert_uint_eq(sum[0], 7 * (THREADS * (THREADS - 1) / 2));
    ck_assert_uint_eq(last[1], sum[0]);
    ck_assert_uint_eq(most[0], 7 * THREADS - 1);
    fibres_free(sum);
    fibres_free(most);
    fibres_free(last);
}
END_TEST

static constexpr unsigned PAGE_INTS = 1024;

static __global__ void mark_by_first(unsigned *count, int *out)
{
    if (atomicAdd(count, 1u) == 0)
        out[threadIdx.x * PAGE_INTS] = 1;
}

/* An order that writes where the first one did not, to another page of the memory, is told. */
START_TEST(writes_elsewhere_are_told)
{
    unsigned *count = static_cast<unsigned *>(fibres_alloc(sizeof(*count)));
    int *out = static_cast<int *>(fibres_alloc(32 * PAGE_INTS * sizeof(*out)));

    *count = 0;
    memset(out, 0, 32 * PAGE_INTS * sizeof(*out));
    fibres_set_orders(2, 1);
    LAUNCH(mark_by_first, 1, 32, 0, NULL, count, out);
    ck_assert_ptr_nonnull(fibres_error());
    ck_assert_ptr_nonnull(strstr(fibres_error(), "backward order write other bits"));
    fibres_clear_error();
    fibres_free(count);
    fibres_free(out);
}
END_TEST

static __global__ void outside(int *out, unsigned at)
{
    SHARED(int, held, 10);

    held[at] = 1;
    __syncthreads();
    out[threadIdx.x] = held[0];
}

static __global__ void behind(int *out, unsigned at)
{
    out[at] = 1;
}

static void write_outside(void)
{
    int *out = static_cast<int *>(fibres_alloc(4 * sizeof(*out)));

    fibres_set_orders(1, 0);
    LAUNCH(outside, 1, 1, 0, NULL, out, 10u);
    if (fibres_error() != NULL && strstr(fibres_error(), "outside the shared array 'held'"))
        abort();
}

static void write_behind(unsigned n, unsigned n_orders)
{
    int *out = static_cast<int *>(fibres_alloc(n * sizeof(*out)));

    fibres_set_orders(n_orders, 0);
    LAUNCH(behind, 1, 1, 0, NULL, out, n);
    if (fibres_error() != NULL && strstr(fibres_error(), "behind an allocation"))
        abort();
}

static void write_behind_few(void)
{
    write_behind(4, 1);
}

/* Also where the write is to a page that none of the memory is on. */
static void write_behind_a_page(void)
{
    write_behind(PAGE_INTS, 2);
}

/* A write outside an array, of the block or the device, is an error: ours, or the sanitizer's. */
START_TEST(writes_outside_are_told)
{
    ck_assert_int_ne(suite_fate(write_outside), 0);
    /* ThreadSanitizer loses sight of fibres in a child that was forked, and ends it itself. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    ck_assert_int_ne(suite_fate(write_behind_few), 0);
    ck_assert_int_ne(suite_fate(write_behind_a_page), 0);
#else
    ck_assert(suite_aborts(write_behind_few));
    ck_assert(suite_aborts(write_behind_a_page));
#endif
}
END_TEST

SUITE_MAIN("fibres", a_barrier_holds, a_missing_barrier_shows, waits_that_cannot_end_are_told,
           warps_exchange_words, fragments_multiply, atomics_add_up,
           writes_elsewhere_are_told, writes_outside_are_told)
