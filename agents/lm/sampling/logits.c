/* Each pass is written once, plainly, and compiled for each set: no float operation is fused or
 * reordered (the project is compiled so), and lanes are written out, hence the same bits. */
#include "agents/lm/sampling/logits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/real.h"
#include "compute/numerics/scalar.h"

#define INLINE static inline __attribute__((always_inline))

INLINE bool logits_are_finite(const float *x, size_t n)
{
    uint32_t n_bad = 0;

    for (size_t i = 0; i < n; i++) /* all exponent bits set: infinite or NaN */
        n_bad += (scalar_bits(x[i]) & 0x7F800000u) == 0x7F800000u;
    return n_bad == 0;
}

/* Uses lanes, because a compiler does not reorder float comparisons; four groups of them, because
 * each comparison waits for the one before it. */
INLINE float logits_highest(const float *x, size_t n)
{
    enum { MANY = 4 * SCALAR_LANES };
    _Alignas(64) float lanes[MANY]; /* AddressSanitizer's frames keep this alignment */
    float top;
    size_t i = 0;

    for (size_t lane = 0; lane < MANY; lane++)
        lanes[lane] = x[0];
    for (; i + MANY <= n; i += MANY)
        for (size_t lane = 0; lane < MANY; lane++)
            lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
    top = lanes[0];
    for (size_t lane = 1; lane < MANY; lane++)
        top = lanes[lane] > top ? lanes[lane] : top;
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    return top;
}

INLINE size_t find_from(const float *x, size_t n, size_t i, float bound)
{
    for (; i + LOGITS_GROUP <= n; i += LOGITS_GROUP) {
        uint32_t n_found = 0;

        for (size_t k = 0; k < LOGITS_GROUP; k++)
            n_found += x[i + k] >= bound;
        if (n_found > 0)
            return i;
    }
    return i < n ? i : n; /* the incomplete last group is not examined */
}

INLINE void logits_weigh(float *x, size_t n, float top, float scale, float least)
{
    for (size_t i = 0; i < n; i++)
        x[i] = scalar_exp((x[i] - top) * scale);
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] > least ? x[i] : 0.0f;
}

INLINE float sum(const float *x, size_t n)
{
    _Alignas(64) float lanes[SCALAR_LANES] = {0};
    size_t i = 0;

    for (; i + SCALAR_LANES <= n; i += SCALAR_LANES)
        for (size_t lane = 0; lane < SCALAR_LANES; lane++)
            lanes[lane] += x[i + lane];
    for (size_t lane = 0; i < n; i++, lane++)
        lanes[lane] += x[i];
    return scalar_sum_lanes(lanes);
}

#define LOGIT_KERNELS(set, attribute)                                                          \
    attribute static bool are_finite_##set(const float *x, size_t n)                           \
    {                                                                                          \
        return logits_are_finite(x, n);                                                        \
    }                                                                                          \
    attribute static float highest_##set(const float *x, size_t n)                             \
    {                                                                                          \
        return logits_highest(x, n);                                                           \
    }                                                                                          \
    attribute static size_t find_from_##set(const float *x, size_t n, size_t i, float bound)   \
    {                                                                                          \
        return find_from(x, n, i, bound);                                                      \
    }                                                                                          \
    attribute static void weigh_##set(float *x, size_t n, float top, float scale, float least) \
    {                                                                                          \
        logits_weigh(x, n, top, scale, least);                                                 \
    }                                                                                          \
    attribute static float sum_##set(const float *x, size_t n)                                 \
    {                                                                                          \
        return sum(x, n);                                                                      \
    }                                                                                          \
    static const struct logit_kernels kernels_##set = {                                        \
        .name = #set,                                                                          \
        .are_finite = are_finite_##set,                                                        \
        .highest = highest_##set,                                                              \
        .find_from = find_from_##set,                                                          \
        .weigh = weigh_##set,                                                                  \
        .sum = sum_##set,                                                                      \
    };

LOGIT_KERNELS(generic, )

#if defined(__x86_64__)

LOGIT_KERNELS(avx2, __attribute__((target("avx2"))))
LOGIT_KERNELS(avx512, __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq"))))

const struct logit_kernels *logit_kernels_at(size_t i)
{
    const struct logit_kernels *have[4] = {0};
    size_t n = 0;

    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq"))
        have[n++] = &kernels_avx512;
    if (__builtin_cpu_supports("avx2"))
        have[n++] = &kernels_avx2;
    have[n++] = &kernels_generic;
    return i < n ? have[i] : NULL;
}

#else

const struct logit_kernels *logit_kernels_at(size_t i)
{
    return i == 0 ? &kernels_generic : NULL;
}

#endif

static size_t block_at(size_t n, size_t i)
{
    return n - i < LOGITS_BLOCK ? n - i : LOGITS_BLOCK;
}

struct logit_peak logits_peak(const struct logit_kernels *p, const float *x, size_t n)
{
    struct logit_peak peak = {.are_finite = true, .top = -INFINITY};

    for (size_t i = 0; i < n; i += LOGITS_BLOCK) {
        size_t len = block_at(n, i);
        float top = p->highest(x + i, len);

        peak.are_finite = peak.are_finite && p->are_finite(x + i, len);
        if (top > peak.top) {
            peak.top = top;
            peak.block = i;
        }
    }
    return peak;
}

size_t logits_first_top(const struct logit_peak *peak, const float *x)
{
    size_t i = peak->block;

    while (x[i] != peak->top)
        i++;
    return i;
}

double logits_log_sum(const struct logit_kernels *p, const float *x, size_t n, float top)
{
    float e[LOGITS_BLOCK];
    double sum = 0;

    for (size_t i = 0; i < n; i += LOGITS_BLOCK) {
        size_t len = block_at(n, i);

        memcpy(e, x + i, len * sizeof(*e));
        p->weigh(e, len, top, 1.0f, -1.0f);
        sum += (double)p->sum(e, len);
    }
    return (double)top + real_log(sum);
}

const struct logit_kernels *logit_kernels_choose(void)
{
    const char *forced = getenv("PARLEY_CPU");
    const struct logit_kernels *p;

    if (forced != NULL && strcmp(forced, "vnni256") == 0)
        forced = "avx2";
    for (size_t i = 0; forced != NULL && (p = logit_kernels_at(i)) != NULL; i++)
        if (strcmp(p->name, forced) == 0)
            return p;
    return logit_kernels_at(0);
}
