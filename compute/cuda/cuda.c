#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cuda/parts.h"
#include "compute/cuda_module.h"

/* Failures. */

void cuda_fail(struct cuda *c, const struct error *err)
{
    if (c->failed.status == STATUS_OK)
        c->failed = *err;
}

enum status cuda_status(struct cuda *c, cudaError_t rc, const char *what, struct error *err)
{
    if (rc == cudaSuccess)
        return STATUS_OK;
    (void)cudaGetLastError(); /* what is returned is not reported a second time */
    if (rc == cudaErrorMemoryAllocation)
        return error_set(err, STATUS_EXHAUSTED, "out of device memory (to %s)", what);
    c->is_dead = true;
    return error_set(err, STATUS_INTERNAL, "the CUDA device failed to %s: %s (%s)", what,
                     cudaGetErrorString(rc), cudaGetErrorName(rc));
}

bool cuda_works(struct cuda *c, cudaError_t rc, const char *what)
{
    struct error err;

    if (cuda_status(c, rc, what, &err) == STATUS_OK)
        return true;
    cuda_fail(c, &err);
    return false;
}

/* Opening. */

enum {
    LEAST_DRIVER = 13000, /* CUDA 13.0, which driver 580 brings; later minor ones are compatible */
    LEAST_CAPABILITY = 75,
};

static enum status check_driver(struct cuda *c, struct error *err)
{
    int version = 0, n = 0;
    cudaError_t rc = cudaDriverGetVersion(&version);

    if (rc != cudaSuccess || version == 0)
        return error_set(err, STATUS_PRECONDITION,
                         "there is no NVIDIA driver (libcuda.so.1): install one, version 580 or "
                         "later, or use --backend cpu");
    if (version < LEAST_DRIVER)
        return error_set(err, STATUS_PRECONDITION,
                         "the NVIDIA driver is too old, it goes up to CUDA %d.%d and 13.0 is "
                         "needed: install version 580 or later, or use --backend cpu",
                         version / 1000, version % 1000 / 10);
    rc = cudaGetDeviceCount(&n);
    (void)cudaGetLastError();
    if (rc == cudaErrorNoDevice || (rc == cudaSuccess && n == 0))
        return error_set(err, STATUS_PRECONDITION,
                         "the NVIDIA driver shows no GPU: see nvidia-smi, and whether "
                         "CUDA_VISIBLE_DEVICES hides it, or use --backend cpu");
    if (rc == cudaSuccess)
        return STATUS_OK;
    c->is_dead = true;
    return error_set(err, STATUS_PRECONDITION, "the NVIDIA driver does not start: %s (%s)",
                     cudaGetErrorString(rc), cudaGetErrorName(rc));
}

static enum status read_device(struct cuda *c, struct error *err)
{
    int major = 0, minor = 0;
    cudaError_t rc = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);

    if (rc == cudaSuccess)
        rc = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    if (rc == cudaSuccess)
        rc = cudaDeviceGetAttribute(&c->n_multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    if (rc != cudaSuccess)
        return cuda_status(c, rc, "tell what it is", err);
    if (major * 10 + minor < LEAST_CAPABILITY)
        return error_set(err, STATUS_PRECONDITION,
                         "the GPU has compute capability %d.%d, 7.5 or more is needed: use "
                         "--backend cpu",
                         major, minor);
    /* a kernel: the module may have been built for other GPUs */
    cuda_probe(c->list.compute);
    rc = cudaGetLastError();
    if (rc == cudaErrorNoKernelImageForDevice || rc == cudaErrorUnsupportedPtxVersion ||
        rc == cudaErrorInvalidDeviceFunction)
        return error_set(err, STATUS_PRECONDITION,
                         "this CUDA module was not built for the GPU's compute capability %d.%d: "
                         "build it with -Dgpu_arch=%d%d",
                         major, minor, major, minor);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(c->list.compute);
    return cuda_status(c, rc, "run a first kernel", err);
}

static void free_scratch(struct cuda *c)
{
    struct scratch *all[] = {&c->inputs,   &c->normed,   &c->hidden, &c->gated,
                             &c->partials, &c->counters, &c->drawn};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        cuda_give_back(c, all[i]->at);
}

static void cuda_close(struct backend *b)
{
    struct cuda *c = to_cuda(b);

    c->n_held = 0;
    rope_close(c);
    free_scratch(c);
    fast_close(c);
    upload_close(c);
    downloads_close(c);
    list_close(c);
    if (context_enter(c)) {
        c->is_dead =
            cudaFree(NULL) != cudaSuccess; /* frees nothing, tells what others left unsaid */
        context_leave();
    }
    if (c->is_dead) /* what failed is the process's context; whoever opens anew gets a fresh one */
        context_reset(c);
    *c = (struct cuda){.base = c->base};
}

static enum status cuda_open(struct backend *b, const struct backend_config *config,
                             struct error *err)
{
    struct cuda *c = to_cuda(b);
    enum status rc;

    context_opened(c);
    if ((rc = check_driver(c, err)) == STATUS_OK && (rc = list_open(c, err)) == STATUS_OK &&
        (rc = read_device(c, err)) == STATUS_OK) {
        fast_open(c, config);
        if (c->failed.status != STATUS_OK) {
            *err = c->failed;
            rc = err->status;
        }
    }
    if (rc != STATUS_OK)
        cuda_close(b);
    return rc;
}

static enum status cuda_sync(struct backend *b, struct error *err)
{
    struct cuda *c = to_cuda(b);
    enum status rc;

    cuda_run(c);
    list_wait(c);
    downloads_deliver(c, c->failed.status == STATUS_OK);
    rc = c->failed.status;
    if (rc == STATUS_OK)
        return rc;
    *err = c->failed;
    c->failed = (struct error){0};
    return rc;
}

/* Memory. */

void *cuda_take(struct cuda *c, size_t size_bytes)
{
    void *at = NULL;
    cudaError_t rc;

    if (!context_enter(c))
        return NULL;
    rc = cudaMalloc(&at, size_bytes > 0 ? size_bytes : 1);
    if (rc == cudaErrorMemoryAllocation)
        (void)cudaGetLastError(); /* the caller says so */
    else
        cuda_works(c, rc, "take memory");
    context_leave();
    return rc == cudaSuccess ? at : NULL;
}

enum status cuda_no_memory(const struct cuda *c, size_t size_bytes, const char *what,
                           struct error *err)
{
    if (!c->is_dead)
        return error_set(err, STATUS_EXHAUSTED, "out of device memory (%zu bytes for %s)",
                         size_bytes, what);
    *err = c->failed;
    return err->status;
}

void cuda_give_back(struct cuda *c, void *at)
{
    if (at == NULL || c->is_dead)
        return;
    cuda_run(c); /* it may use the memory; cudaFree waits for it */
    if (!context_enter(c))
        return;
    (void)cudaFree(at);
    (void)cudaGetLastError();
    context_leave();
}

void *cuda_scratch(struct cuda *c, struct scratch *s, size_t size_bytes)
{
    struct error err;

    if (c->failed.status != STATUS_OK)
        return NULL;
    if (size_bytes <= s->cap_bytes)
        return s->at;
    cuda_give_back(c, s->at);
    s->cap_bytes = 0;
    s->at = cuda_take(c, size_bytes);
    if (s->at == NULL) {
        (void)cuda_no_memory(c, size_bytes, "a step", &err);
        cuda_fail(c, &err);
        return NULL;
    }
    if (!context_enter(c))
        return NULL;
    if (cuda_works(c, cudaMemsetAsync(s->at, 0, size_bytes, c->list.compute), "clear memory"))
        s->cap_bytes = size_bytes;
    context_leave();
    return s->cap_bytes > 0 ? s->at : NULL;
}

bool cuda_begin(struct cuda *c, size_t size_bytes)
{
    cuda_run_copies(c);
    cuda_settle(c);
    return list_reserve(c, size_bytes + 4 * CUDA_COUNT_BYTES);
}

struct cuda_count cuda_count_of(struct cuda *c, size_t n)
{
    uint32_t count = (uint32_t)n;
    struct cuda_count out;

    memset(&out, 0, sizeof out);
    out.n = list_stage(c, &count, sizeof count, sizeof count, NULL);
    out.most = (uint32_t)list_bucket(n);
    return out;
}

void cuda_run(struct cuda *c)
{
    cuda_settle(c);
    list_run(c);
    c->n_copies = 0;
}

static struct buffer *cuda_buffer_open(struct backend *b, size_t size_bytes)
{
    struct buffer *m = try_alloc(1, sizeof *m);

    if (m == NULL)
        return NULL;
    m->size_bytes = size_bytes;
    m->at = cuda_take(to_cuda(b), size_bytes);
    if (m->at == NULL) {
        free(m);
        return NULL;
    }
    return m;
}

static void cuda_buffer_close(struct backend *b, struct buffer *m)
{
    if (m == NULL)
        return;
    cuda_give_back(to_cuda(b), m->at);
    free(m);
}

static size_t cuda_memory_free(struct backend *b)
{
    size_t n_free = 0, n_all;

    if (context_enter(to_cuda(b))) {
        if (cudaMemGetInfo(&n_free, &n_all) != cudaSuccess)
            n_free = 0;
        (void)cudaGetLastError();
        context_leave();
    }
    return n_free;
}

static void cuda_figures(const struct backend *b, struct backend_figures *out)
{
    const struct cuda *c = (const struct cuda *)b;

    *out = (struct backend_figures){
        .n_graphs = c->list.n_made, .n_lists = c->list.n_runs, .n_replays = c->list.n_replays};
    memcpy(out->products, c->fast.products, sizeof out->products);
}

float *cuda_written(struct buffer *m, size_t n, size_t width)
{
    assert(width == 0 || n <= m->size_bytes / sizeof(float) / width);
    return m->at;
}

const float *cuda_read(const struct buffer *m, size_t n, size_t width)
{
    assert(width == 0 || n <= m->size_bytes / sizeof(float) / width);
    return m->at;
}

static const struct backend_type cuda_type = {
    .name = "cuda",
    .size = sizeof(struct cuda),
    .has_fast_math = true,
    .open = cuda_open,
    .close = cuda_close,
    .sync = cuda_sync,
    .buffer_open = cuda_buffer_open,
    .buffer_close = cuda_buffer_close,
    .upload = cuda_upload,
    .download = cuda_download,
    .weight_open = cuda_weight_open,
    .weight_close = cuda_weight_close,
    .kv_open = cuda_kv_open,
    .kv_close = cuda_kv_close,
    .kv_copy = cuda_kv_copy_page,
    .kv_spill = cuda_kv_spill,
    .kv_fill = cuda_kv_fill,
    .embed = cuda_embed_rows,
    .matmul = cuda_matmul,
    .matmul_add = cuda_matmul_add,
    .ffn = cuda_ffn,
    .rope = cuda_rope_rows,
    .kv_store = cuda_kv_store_rows,
    .attend = cuda_attend_rows,
    .gather = cuda_gather_rows,
    .sample = cuda_sample,
    .memory_free = cuda_memory_free,
    .vendor_matmul = cuda_vendor_matmul,
    .figures = cuda_figures,
    .net = &cuda_net_ops,
};

extern const struct cuda_module parley_cuda_module;

__attribute__((visibility("default"))) const struct cuda_module parley_cuda_module = {
    .version = PARLEY_VERSION, .type_bytes = sizeof(struct backend_type), .type = &cuda_type};
