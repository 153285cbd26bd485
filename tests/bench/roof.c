/* What the machine does at most. The loops that multiply are compiled for each instruction set;
 * which is used is the backend's choice, or PARLEY_CPU's. */
#include "tests/bench/roof.h"

#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/clock.h"

/* The rate of reading memory and nothing else: whole cache lines, prefetched, from large pages, as
 * the engine keeps its weights. */
typedef uint64_t line __attribute__((vector_size(64)));

enum { READS = 100, LINES_AT_ONCE = 8, LINES_AHEAD = 64, HUGE_PAGE_BYTES = 2 << 20 };

struct reader {
    pthread_t thread;
    pthread_barrier_t *together;
    const line *from;
    size_t n;
    const struct roof *clock;
    double best_s; /* of the first reader: all begin and end together */
    line sum;      /* so that the compiler cannot omit the reads */
};

static void *read_all(void *arg)
{
    struct reader *r = arg;
    line sums[LINES_AT_ONCE] = {{0}};

    r->best_s = 1e9;
    for (size_t run = 0; run < READS; run++) {
        double start, took;

        (void)pthread_barrier_wait(r->together);
        start = roof_clock_s(r->clock);
        for (size_t i = 0; i + LINES_AT_ONCE <= r->n; i += LINES_AT_ONCE)
            for (size_t j = 0; j < LINES_AT_ONCE; j++) {
                __builtin_prefetch(r->from + i + j + LINES_AHEAD);
                sums[j] ^= r->from[i + j];
            }
        (void)pthread_barrier_wait(r->together);
        took = roof_clock_s(r->clock) - start;
        r->best_s = took < r->best_s ? took : r->best_s;
    }
    for (size_t j = 0; j < LINES_AT_ONCE; j++)
        r->sum ^= sums[j];
    return NULL;
}

double roof_read_rate(size_t size_bytes, size_t n_threads)
{
    size_t n_lines = size_bytes / sizeof(line) / n_threads;
    line *memory = aligned_alloc(HUGE_PAGE_BYTES, (size_bytes + HUGE_PAGE_BYTES - 1) /
                                                      HUGE_PAGE_BYTES * HUGE_PAGE_BYTES);
    const struct roof clock = {.n_threads = n_threads};
    struct reader readers[ROOF_MAX_THREADS] = {0};
    pthread_barrier_t together;

    if (memory == NULL)
        return 0.0;
    (void)madvise(memory, size_bytes, MADV_HUGEPAGE); /* a hint */
    memset(memory, 1, size_bytes);
    if (pthread_barrier_init(&together, NULL, (unsigned)n_threads) != 0)
        abort();
    for (size_t i = 0; i < n_threads; i++) {
        readers[i] = (struct reader){
            .together = &together, .from = memory + i * n_lines, .n = n_lines, .clock = &clock};
        if (i > 0 && pthread_create(&readers[i].thread, NULL, read_all, &readers[i]) != 0)
            abort();
    }
    (void)read_all(&readers[0]);
    for (size_t i = 1; i < n_threads; i++)
        (void)pthread_join(readers[i].thread, NULL);
    (void)pthread_barrier_destroy(&together);
    free(memory);
    return (double)(n_lines * n_threads * sizeof(line)) / readers[0].best_s;
}

/* Independent instructions of a round, more than are in flight in two pipes. */
enum { CHAINS = 12, ROUNDS = 100000, RUNS = 20 };

#define TARGET(isa) __attribute__((target(isa), noinline))
#define AGAIN(of, statement)                      \
    for (size_t i = 0; i < ROUNDS; i++)           \
        for (size_t c = 0; c < CHAINS; c++) {     \
            statement;                            \
            __asm__ volatile("" : "+v"((of)[c])); \
        }

TARGET("avx512f,avx512vnni") static void dots_512(void)
{
    __m512i of[CHAINS] = {0}, one = _mm512_set1_epi32(1);

    AGAIN(of, of[c] = _mm512_dpbusd_epi32(of[c], one, one))
}

TARGET("avx512f") static void fmas_512(void)
{
    __m512 of[CHAINS] = {0}, one = _mm512_set1_ps(1.0f);

    AGAIN(of, of[c] = _mm512_fmadd_ps(one, one, of[c]))
}

TARGET("avx2,avxvnni") static void dots_256(void)
{
    __m256i of[CHAINS] = {0}, one = _mm256_set1_epi32(1);

    AGAIN(of, of[c] = _mm256_dpbusd_avx_epi32(of[c], one, one))
}

TARGET("avx2") static void pairs_256(void)
{
    __m256i of[CHAINS] = {0}, one = _mm256_set1_epi32(1);

    AGAIN(of, of[c] = _mm256_maddubs_epi16(of[c], one))
}

TARGET("avx2,fma") static void fmas_256(void)
{
    __m256 of[CHAINS] = {0}, one = _mm256_set1_ps(1.0f);

    AGAIN(of, of[c] = _mm256_fmadd_ps(one, one, of[c]))
}

static double roof_rate(void (*loop)(void))
{
    const struct roof one = {.n_threads = 1};
    double best = 1e9;

    for (size_t run = 0; run < RUNS; run++) {
        double start = roof_clock_s(&one), took;

        loop();
        took = roof_clock_s(&one) - start;
        best = took < best ? took : best;
    }
    return (double)ROUNDS * CHAINS / best;
}

/* By set of kernels. */
static const struct {
    const char *set;
    size_t n_lanes;
    bool has_dots;
    void (*dots)(void), (*fmas)(void);
} loops[] = {{"avx512", 16, true, dots_512, fmas_512},
             {"vnni256", 8, true, dots_256, fmas_256},
             {"avx2", 8, false, pairs_256, fmas_256}};

void roof_measure(struct roof *out, const char *set, size_t size_bytes, size_t n_threads)
{
    *out = (struct roof){.set = set,
                         .n_threads = n_threads,
                         .n_lanes = 1,
                         .read_rate = roof_read_rate(size_bytes, n_threads)};
    for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++)
        if (strcmp(set, loops[i].set) == 0) {
            out->n_lanes = loops[i].n_lanes;
            out->has_dots = loops[i].has_dots;
            out->dot_rate = (double)n_threads * roof_rate(loops[i].dots);
            out->fma_rate = (double)n_threads * roof_rate(loops[i].fmas);
        }
}

double roof_clock_s(const struct roof *r)
{
    struct timespec t;

    if (r->n_threads > 1)
        return clock_s();
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* cannot fail for this clock */
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
