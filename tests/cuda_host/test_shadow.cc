/* Watched kernels: what is wrong whatever the order of the threads is found, by its kind, and what
 * the memory model allows is not. */
#include <check.h>

#include "compute/cuda/launch.h"
#include "tests/unit/base/suite.h"

enum { THREADS = 64, BLOCKS = 4 };

/* Device memory of n words, filled with zeros or left as it is. */
static uint32_t *device(size_t n, bool filled)
{
    uint32_t *at = static_cast<uint32_t *>(fibres_alloc(n * sizeof(*at)));

    ck_assert_ptr_nonnull(at);
    if (filled) {
        memset(at, 0, n * sizeof(*at));
        fibres_copied(at, NULL, n * sizeof(*at));
    }
    return at;
}

static void must_be_well(void)
{
    if (fibres_error() != NULL)
        ck_abort_msg("%s", fibres_error());
}

static void must_fail(const char *with)
{
    ck_assert_ptr_nonnull(fibres_error());
    if (strstr(fibres_error(), with) == NULL)
        ck_abort_msg("'%s' does not say '%s'", fibres_error(), with);
    fibres_clear_error();
}

enum merge { WELL, NO_BARRIER, NO_RELEASE, NO_ACQUIRE, NOT_ATOMIC, N_MERGES };

/* Each block writes a part, and the last one to finish adds up all. */
template <int M> static __global__ void merged(uint32_t *parts, uint32_t *count, uint32_t *sum)
{
    SHARED(uint32_t, before, 1);

    parts[blockIdx.x * THREADS + threadIdx.x] = blockIdx.x;
    if (M != NO_BARRIER)
        __syncthreads();
    if (threadIdx.x == 0) {
        if (M != NO_RELEASE)
            __threadfence();
        if (M == NOT_ATOMIC) {
            before[0] = *count;
            *count = before[0] + 1;
        } else {
            before[0] = atomicAdd(count, 1u);
        }
        if (M != NO_ACQUIRE)
            __threadfence();
    }
    __syncthreads();
    if (before[0] != BLOCKS - 1)
        return;
    sum[threadIdx.x] = 0;
    for (unsigned b = 0; b < BLOCKS; b++)
        sum[threadIdx.x] += parts[b * THREADS + threadIdx.x];
    if (threadIdx.x == 0)
        *count = 0;
}

template <int M> static void run_merged(void)
{
    uint32_t *parts = device(BLOCKS * THREADS, false), *sum = device(THREADS, false);
    uint32_t *count = device(1, true);

    fibres_set_orders(M == WELL ? 20 : 1, 3);
    LAUNCH(merged<M>, BLOCKS, THREADS, 0, NULL, parts, count, sum);
    if (M == WELL) {
        must_be_well();
        for (size_t i = 0; i < THREADS; i++)
            ck_assert_uint_eq(sum[i], BLOCKS * (BLOCKS - 1) / 2);
    } else {
        must_fail("a race");
    }
    fibres_free(parts);
    fibres_free(sum);
    fibres_free(count);
}

/* The merge of several blocks needs its barrier, both fences and its atomic operation. */
START_TEST(blocks_merge_by_the_model)
{
    run_merged<WELL>();
    run_merged<NO_BARRIER>();
    run_merged<NO_RELEASE>();
    run_merged<NO_ACQUIRE>();
    run_merged<NOT_ATOMIC>();
}
END_TEST

enum lanes { SYNCED, UNSYNCED, SHUFFLED, OVERWRITTEN };

/* Lane i writes, and its neighbour reads. */
template <int M> static __global__ void neighbours(uint32_t *out)
{
    SHARED(uint32_t, held, THREADS);
    unsigned i = threadIdx.x, next = i / WARP_LANES * WARP_LANES + (i + 1) % WARP_LANES;

    held[i] = i;
    if (M == SHUFFLED)
        (void)__shfl_xor_sync(WARP_ALL, i, 1);
    if (M == SYNCED || M == OVERWRITTEN)
        __syncwarp();
    out[i] = held[next];
    if (M == OVERWRITTEN)
        held[i] = 0;
}

/* A warp's lanes see one another's writes after __syncwarp; a shuffle orders no memory. */
START_TEST(warps_synchronise)
{
    uint32_t *out = device(THREADS, false);

    fibres_set_orders(1, 0);
    LAUNCH(neighbours<SYNCED>, 1, THREADS, 0, NULL, out);
    must_be_well();
    LAUNCH(neighbours<UNSYNCED>, 1, THREADS, 0, NULL, out);
    must_fail(""); /* a race, or a word that nothing wrote yet */
    LAUNCH(neighbours<SHUFFLED>, 1, THREADS, 0, NULL, out);
    must_fail("a race: a read after a write");
    LAUNCH(neighbours<OVERWRITTEN>, 1, THREADS, 0, NULL, out);
    must_fail("a race: a write after a read");
    fibres_free(out);
}
END_TEST

static __global__ void copies(const uint32_t *in, uint32_t *out)
{
    out[threadIdx.x] = in[threadIdx.x];
}

static __global__ void writes_one(uint32_t *out)
{
    out[0] = 1;
}

static __global__ void reads_crooked(const uint32_t *in, uint32_t *out)
{
    const unsigned char *bytes = (const unsigned char *)in + 2;

    out[0] = *(const uint32_t *)(const void *)bytes;
}

/* Memory that nothing wrote, blocks that write to one place, addresses that a device cannot load
 * from. */
START_TEST(each_access_is_checked)
{
    uint32_t *in = device(THREADS, false), *out = device(THREADS, true);

    fibres_set_orders(1, 0);
    LAUNCH(copies, 1, THREADS, 0, NULL, in, out);
    must_fail("nothing wrote what is read");
    fibres_copied(in, NULL, THREADS * sizeof(*in));
    LAUNCH(copies, 1, THREADS, 0, NULL, in, out);
    must_be_well();
    LAUNCH(writes_one, 1, 1, 0, NULL, out);
    LAUNCH(writes_one, 1, 1, 0, NULL, out); /* launches are in order */
    must_be_well();
    LAUNCH(writes_one, 2, 1, 0, NULL, out);
    must_fail("a race of two writes");
    LAUNCH(reads_crooked, 1, 1, 0, NULL, in, out);
    must_fail("a misaligned access");
    fibres_free(in);
    fibres_free(out);
}
END_TEST

SUITE_MAIN("shadow", blocks_merge_by_the_model, warps_synchronise, each_access_is_checked)
