/* Chooses the kernels for the processor, and opens the backend's buffers and threads. Its operators
 * are in the files beside it; this file has what moves bytes. */
#include "compute/cpu/cpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "base/alloc.h"
#include "compute/backend/net.h"
#include "compute/backend/states.h"
#include "compute/cpu/panels.h"
#include "compute/cpu/parts.h"

enum {
    COPY_BYTES = 256 << 10, /* smaller pieces of a copy are not worth sharing */
};

static enum status cpu_sync(struct backend *b, struct error *err)
{
    struct cpu *c = to_cpu(b);
    enum status rc = c->failed.status;

    if (rc != STATUS_OK)
        *err = c->failed;
    c->failed = (struct error){0};
    c->plan.kv = NULL; /* the rows may change after a sync */
    return rc;
}

static struct buffer *cpu_buffer_open(struct backend *b, size_t size_bytes)
{
    bool is_huge = size_bytes >= CPU_HUGE_BYTES;
    struct buffer *m;

    if (size_bytes > SIZE_MAX / 2)
        return NULL;
    m = try_alloc(1, sizeof(*m) + (is_huge ? CPU_HUGE_BYTES : LINE_BYTES) + size_bytes);
    if (m == NULL)
        return NULL;
    m->size_bytes = size_bytes;
    m->data = cpu_line_up(m + 1);
    if (is_huge) { /* reads are a twentieth faster than in small pages */
        m->data =
            (float *)(((uintptr_t)(m + 1) + CPU_HUGE_BYTES - 1) & ~(uintptr_t)(CPU_HUGE_BYTES - 1));
        (void)madvise(m->data, size_bytes / CPU_HUGE_BYTES * CPU_HUGE_BYTES,
                      MADV_HUGEPAGE); /* a wish */
    }
    return m;
}

static void cpu_buffer_close(struct backend *b, struct buffer *m)
{
    free(m);
}

static struct buffer *cpu_buffer_over(struct backend *b, void *host, size_t size_bytes)
{
    struct buffer *m = try_alloc(1, sizeof(*m));

    if (m != NULL)
        *m = (struct buffer){size_bytes, host};
    return m;
}

static void cpu_upload(struct backend *b, struct buffer *to, const void *from, size_t size_bytes)
{
    assert(size_bytes <= to->size_bytes);
    memcpy(to->data, from, size_bytes);
}

struct copy {
    uint8_t *to;
    const uint8_t *from;
};

static void copy_piece(void *arg, size_t begin, size_t end)
{
    const struct copy *c = arg;

    memcpy(c->to + begin, c->from + begin, end - begin);
}

/* On several threads, because the logits of a large batch are large. */
static void cpu_download(struct backend *b, void *to, const struct buffer *from, size_t size_bytes)
{
    struct copy c = {to, (const uint8_t *)from->data};

    assert(size_bytes <= from->size_bytes);
    for (size_t done = 0; done < size_bytes; done += UINT32_MAX) {
        size_t left = size_bytes - done;

        thread_pool_for(to_cpu(b)->pool, left < UINT32_MAX ? left : UINT32_MAX, COPY_BYTES,
                        copy_piece, &c);
        c.to += UINT32_MAX;
        c.from += UINT32_MAX;
    }
}

static void cpu_gather(struct backend *b, const struct buffer *in, const uint32_t *rows, size_t n,
                       size_t width, struct buffer *out)
{
    float *to = cpu_written(out, n, width);

    for (size_t i = 0; i < n; i++)
        memcpy(to + i * width, cpu_read(in, rows[i] + (size_t)1, width) + rows[i] * width,
               width * sizeof(*to));
}

static size_t cpu_n_threads(const struct backend *b)
{
    return thread_pool_size(((const struct cpu *)b)->pool);
}

struct calls {
    void (*fn)(void *arg, size_t i);
    void *arg;
};

static void call_piece(void *arg, size_t begin, size_t end)
{
    const struct calls *c = arg;

    for (size_t i = begin; i < end; i++)
        c->fn(c->arg, i);
}

static void cpu_each(struct backend *b, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
    struct calls calls = {fn, arg};

    thread_pool_for(to_cpu(b)->pool, n, 1, call_piece, &calls);
}

/* Choice of kernels. */

#if defined(__x86_64__)

static bool has_avx2(void)
{
    unsigned a, b, c = 0, d;

    /* leaf 1, ecx bit 29: F16C, which not every compiler can ask for by name */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &c, &d) && (c >> 29 & 1) != 0;
}

static bool has_vnni256(void)
{
    unsigned a = 0, b, c, d;

    /* leaf 7.1, eax bit 4; that the system keeps the registers is part of has_avx2 */
    return has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 4 & 1) != 0;
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vnni");
}

#elif defined(__aarch64__)

static bool has_dotprod(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}

static bool has_i8mm(void)
{
    return has_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}

#endif

static bool has_generic(void)
{
    return true;
}

/* The columns of a set that this processor's kind cannot have are empty. */
#if defined(__x86_64__)
#define OF_X86(set, supported) &kernels_##set, supported
#else
#define OF_X86(set, supported) NULL, NULL
#endif
#if defined(__aarch64__)
#define OF_ARM(set, supported) &kernels_##set, supported
#else
#define OF_ARM(set, supported) NULL, NULL
#endif

static const struct {
    const char *name;
    const struct kernels *kernels;
    bool (*supported)(void);
} sets[] = {
    /* the best of a kind first */
    {"avx512", OF_X86(avx512, has_avx512)},     {"vnni256", OF_X86(vnni256, has_vnni256)},
    {"avx2", OF_X86(avx2, has_avx2)},           {"i8mm", OF_ARM(i8mm, has_i8mm)},
    {"dotprod", OF_ARM(dotprod, has_dotprod)},  {"neon", OF_ARM(neon, has_generic)},
    {"generic", &kernels_generic, has_generic},
};

enum { N_SETS = sizeof(sets) / sizeof(sets[0]) };

static enum status cpu_choose(const struct kernels **out, struct error *err)
{
    const char *forced = getenv("PARLEY_CPU");
    bool any = forced == NULL || forced[0] == '\0';

    for (size_t i = 0; i < N_SETS; i++) {
        if (!any && strcmp(forced, sets[i].name) != 0)
            continue;
        if (sets[i].kernels != NULL && sets[i].supported()) {
            *out = sets[i].kernels;
            return STATUS_OK;
        }
        if (!any)
            return error_set(err, STATUS_PRECONDITION,
                             "PARLEY_CPU asks for %s, which this processor does not have", forced);
    }
    return error_set(err, STATUS_INVALID,
                     "PARLEY_CPU is '%.40s', it must be generic, avx2, vnni256 or avx512 (x86-64), "
                     "or neon, dotprod or i8mm (Arm)",
                     forced);
}

static void cpu_close(struct backend *b)
{
    struct cpu *c = to_cpu(b);

    thread_pool_close(c->pool);
    cpu_ropes_free(c);
    cpu_rows_free(&c->inputs);
    cpu_rows_free(&c->up_inputs);
    cpu_rows_free(&c->hidden);
    free(c->packed);
    cpu_plan_free(&c->plan);
    assert(c->slabs == NULL); /* weights are closed before their backend */
}

static enum status cpu_open(struct backend *b, const struct backend_config *config,
                            struct error *err)
{
    struct cpu *c = to_cpu(b);
    enum status rc;

    rc = cpu_choose(&c->kernels, err);
    if (rc == STATUS_OK)
        rc = thread_pool_open(&c->pool, config->n_threads, err);
    return rc;
}

const struct backend_type cpu_backend = {
    .name = "cpu",
    .size = sizeof(struct cpu),
    .open = cpu_open,
    .close = cpu_close,
    .sync = cpu_sync,
    .n_threads = cpu_n_threads,
    .each = cpu_each,
    .buffer_open = cpu_buffer_open,
    .buffer_close = cpu_buffer_close,
    .upload = cpu_upload,
    .download = cpu_download,
    .buffer_over = cpu_buffer_over,
    .weight_open = cpu_weight_open,
    .weight_close = cpu_weight_close,
    .kv_open = cpu_kv_open,
    .kv_close = cpu_kv_close,
    .kv_prepare = cpu_kv_prepare,
    .kv_copy = cpu_kv_copy,
    .kv_image_bytes = cpu_kv_image_bytes,
    .kv_read = cpu_kv_read,
    .kv_write = cpu_kv_write,
    .embed = cpu_embed,
    .matmul = cpu_matmul,
    .matmul_add = cpu_matmul_add,
    .ffn = cpu_ffn,
    .rope = cpu_rope,
    .kv_store = cpu_kv_store,
    .attend = cpu_attend,
    .norm = cpu_norm,
    .add = cpu_add,
    .add_bias = cpu_add_bias,
    .scale = cpu_scale,
    .scatter_add = cpu_scatter_add,
    .scale_rows = cpu_scale_rows,
    .attends_to_sinks = true,
    .attends_ahead = true,
    .attends_in_chunks = true,
    .has_unlike_layers = true,
    .layer_norm = cpu_layer_norm,
    .activate = cpu_activate,
    .copy_columns = cpu_copy_columns,
    .kv_conv = cpu_kv_conv,
    .cut = cpu_cut,
    .fill = cpu_fill,
    .gather = cpu_gather,
    .state = &cpu_state_ops,
    .net = &cpu_net_ops,
};
