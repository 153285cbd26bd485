/* Memory of the device: buffers of activations, scratch memory of operators, and copies into it. */
#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "compute/cuda/parts.h"

void cuda_give_back(struct cuda *c, void *at)
{
    if (at == NULL || c->device.is_dead)
        return;
    cuda_run(c); /* the list may use the memory; cudaFree waits for it */
    device_free(&c->device, at);
}

enum status cuda_copy_in(struct cuda *c, void *to, const void *host_from, size_t size_bytes,
                         const char *what, struct error *err)
{
    cudaError_t rc;

    if (!device_enter(&c->device)) {
        *err = c->device.failed;
        return err->status;
    }
    rc = cudaMemcpyAsync(to, host_from, size_bytes, cudaMemcpyHostToDevice, c->list.compute);
    if (rc == cudaSuccess)
        rc = cudaStreamSynchronize(c->list.compute);
    device_leave();
    return device_status(&c->device, rc, what, err);
}

void *cuda_scratch(struct cuda *c, struct cuda_scratch *s, size_t size_bytes)
{
    struct error err;

    if (c->device.failed.status != STATUS_OK)
        return NULL;
    if (size_bytes <= s->cap_bytes)
        return s->at;
    cuda_give_back(c, s->at);
    s->cap_bytes = 0;
    s->at = device_take(&c->device, size_bytes);
    if (s->at == NULL) {
        (void)device_no_memory(&c->device, size_bytes, "a step", &err);
        device_fail(&c->device, &err);
        return NULL;
    }
    if (!device_enter(&c->device))
        return NULL;
    if (device_works(&c->device, cudaMemsetAsync(s->at, 0, size_bytes, c->list.compute),
                     "clear memory"))
        s->cap_bytes = size_bytes;
    device_leave();
    return s->cap_bytes > 0 ? s->at : NULL;
}

struct buffer *cuda_buffer_open(struct backend *b, size_t size_bytes)
{
    struct buffer *m = try_alloc(1, sizeof(*m));

    if (m == NULL)
        return NULL;
    m->size_bytes = size_bytes;
    m->at = device_take(&to_cuda(b)->device, size_bytes);
    if (m->at == NULL) {
        free(m);
        return NULL;
    }
    return m;
}

void cuda_buffer_close(struct backend *b, struct buffer *m)
{
    if (m == NULL)
        return;
    cuda_give_back(to_cuda(b), m->at);
    free(m);
}

size_t cuda_memory_free(struct backend *b)
{
    size_t n_free = 0, n_all;

    if (device_enter(&to_cuda(b)->device)) {
        if (cudaMemGetInfo(&n_free, &n_all) != cudaSuccess)
            n_free = 0;
        (void)cudaGetLastError();
        device_leave();
    }
    return n_free;
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
