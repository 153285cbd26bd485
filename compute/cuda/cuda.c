/* Opens and closes the device: the driver's and the device's versions are checked first, then
 * streams and libraries are opened. Its operators are in the files beside it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cuda/module.h"
#include "compute/cuda/parts.h"

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
                         "the NVIDIA driver is too old, it supports CUDA up to %d.%d but 13.0 is "
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
    c->device.is_dead = true;
    return error_set(err, STATUS_PRECONDITION, "the NVIDIA driver cannot be initialised: %s (%s)",
                     cudaGetErrorString(rc), cudaGetErrorName(rc));
}

static enum status read_device(struct cuda *c, struct error *err)
{
    int major = 0, minor = 0;
    cudaError_t rc = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);

    if (rc == cudaSuccess)
        rc = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    if (rc == cudaSuccess)
        rc =
            cudaDeviceGetAttribute(&c->device.n_multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    if (rc != cudaSuccess)
        return device_status(&c->device, rc, "tell what it is", err);
    if (major * 10 + minor < LEAST_CAPABILITY)
        return error_set(
            err, STATUS_PRECONDITION,
            "the GPU has compute capability %d.%d, but 7.5 or more is needed: use --backend cpu",
            major, minor);
    /* a kernel: the module may have been built for other GPUs */
    cuda_check_capability(c->list.compute);
    rc = cudaGetLastError();
    if (rc == cudaErrorNoKernelImageForDevice || rc == cudaErrorUnsupportedPtxVersion ||
        rc == cudaErrorInvalidDeviceFunction)
        return error_set(err, STATUS_PRECONDITION,
                         "this CUDA module was not built for the GPU's compute capability %d.%d: "
                         "build it with -Dgpu_arch=%d%d",
                         major, minor, major, minor);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(c->list.compute);
    return device_status(&c->device, rc, "run a first kernel", err);
}

static void free_scratch(struct cuda *c)
{
    struct cuda_scratch *all[] = {&c->inputs,   &c->normed,   &c->hidden, &c->gated,
                                  &c->partials, &c->counters, &c->drawn};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        cuda_give_back(c, all[i]->at);
}

/* Waits for all work, so that the memory it uses can be freed. Where the device has failed, by now
 * or before, its context is reset: the next open gets a fresh one. */
static void stop_work(struct cuda *c)
{
    cudaError_t rc;

    if (device_enter(&c->device)) {
        rc = cudaFree(NULL); /* frees nothing, returns an earlier failure */
        if (rc == cudaSuccess && c->list.compute != NULL)
            rc = cudaStreamSynchronize(c->list.compute);
        if (rc == cudaSuccess && c->list.copies != NULL)
            rc = cudaStreamSynchronize(c->list.copies);
        c->device.is_dead = rc != cudaSuccess;
        device_leave();
    }
    if (c->device.is_dead)
        device_reset(&c->device);
}

static void cuda_close(struct backend *b)
{
    struct cuda *c = to_cuda(b);

    c->n_held = 0;
    if (c->list.device != NULL)
        list_run(&c->list);
    stop_work(c);
    rope_close(c);
    free_scratch(c);
    fast_close(c);
    upload_close(c);
    downloads_close(c);
    list_close(&c->list);
    stop_work(c); /* closing may have failed */
    *c = (struct cuda){.base = c->base};
}

static enum status cuda_open(struct backend *b, const struct backend_config *config,
                             struct error *err)
{
    struct cuda *c = to_cuda(b);
    enum status rc;

    if (device_is_lost())
        return error_set(
            err, STATUS_INTERNAL,
            "the GPU failed and this process cannot use it again: restart the process");
    device_opened(&c->device);
    if ((rc = check_driver(c, err)) == STATUS_OK &&
        (rc = list_open(&c->list, &c->device, err)) == STATUS_OK &&
        (rc = read_device(c, err)) == STATUS_OK) {
        fast_open(c, config);
        if (c->device.failed.status != STATUS_OK) {
            *err = c->device.failed;
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
    list_wait(&c->list);
    downloads_deliver(c, c->device.failed.status == STATUS_OK);
    rc = c->device.failed.status;
    if (rc == STATUS_OK)
        return rc;
    *err = c->device.failed;
    c->device.failed = (struct error){0};
    return rc;
}

static void cuda_statistics(const struct backend *b, struct backend_statistics *out)
{
    const struct cuda *c = (const struct cuda *)b;

    *out = (struct backend_statistics){
        .n_graphs = c->list.n_made, .n_lists = c->list.n_runs, .n_replays = c->list.n_replays};
    memcpy(out->products, c->fast.products, sizeof(out->products));
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
    .kv_offload = cuda_kv_offload,
    .kv_reload = cuda_kv_reload,
    .embed = cuda_embed_rows,
    .matmul = cuda_matmul,
    .matmul_add = cuda_matmul_add,
    .ffn = cuda_ffn,
    .rope = cuda_rope_rows,
    .kv_store = cuda_kv_store_rows,
    .attend = cuda_attend_rows,
    .norm = cuda_norm_rows,
    .add = cuda_add_rows,
    .add_bias = cuda_add_bias,
    .scale = cuda_scale_all,
    .scatter_add = cuda_scatter_add,
    .scale_rows = cuda_scale_rows,
    .gather = cuda_gather_rows,
    .sample = cuda_sample,
    .memory_free = cuda_memory_free,
    .vendor_matmul = cuda_vendor_matmul,
    .statistics = cuda_statistics,
    .net = &cuda_net_ops,
};

extern const struct cuda_module parley_cuda_module;

__attribute__((visibility("default"))) const struct cuda_module parley_cuda_module = {
    .version = PARLEY_VERSION, .type_bytes = sizeof(struct backend_type), .type = &cuda_type};
