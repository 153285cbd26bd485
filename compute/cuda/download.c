/* Copies between the host's memory and buffers. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cuda/parts.h"
#include "compute/cuda/pinned.h"

enum {
    STAGED_BYTES = 64 << 10, /* uploads up to this size are operators of the list */
    BOUNCE_BYTES = 4 << 20,  /* of pinned memory for results */
};

struct download_copy_args {
    void *to;
    const void *from;
    size_t size_bytes;
};

static void cuda_download_launch_copy(const void *args, cudaStream_t stream)
{
    const struct download_copy_args *a = args;

    (void)cudaMemcpyAsync(a->to, a->from, a->size_bytes, cudaMemcpyDeviceToDevice, stream);
}

void cuda_upload(struct backend *b, struct buffer *to, const void *from, size_t size_bytes)
{
    struct cuda *c = to_cuda(b);
    struct download_copy_args a = {.to = to->at, .size_bytes = size_bytes};
    struct error err;

    assert(size_bytes <= to->size_bytes);
    if (size_bytes == 0)
        return;
    if (size_bytes <= STAGED_BYTES) {
        if (!cuda_begin(c, size_bytes))
            return;
        a.from = list_stage(&c->list, from, size_bytes, size_bytes, NULL);
        list_add(&c->list, cuda_download_launch_copy, &a, sizeof(a));
        return;
    }
    cuda_run(c);
    if (c->device.failed.status == STATUS_OK &&
        cuda_copy_in(c, to->at, from, size_bytes, "copy to a buffer", &err) != STATUS_OK)
        device_fail(&c->device, &err);
}

/* Reserves pinned memory; NULL: there is none. */
static uint8_t *bounce(struct cuda *c, size_t size_bytes, void *host_to)
{
    struct downloads *d = &c->downloads;
    uint8_t *at;

    if (d->host == NULL && size_bytes <= BOUNCE_BYTES) {
        void *host;

        if (pinned_open(&host, BOUNCE_BYTES) != cudaSuccess) {
            (void)cudaGetLastError(); /* clears the error: it works without */
            return NULL;
        }
        d->host = host;
        d->cap_bytes = BOUNCE_BYTES;
    }
    if (size_bytes > d->cap_bytes - d->used_bytes)
        return NULL;
    if (d->n == d->cap) {
        d->cap = 2 * d->cap + 8;
        d->all = xrealloc(d->all, d->cap * sizeof(*d->all));
    }
    at = d->host + d->used_bytes;
    d->all[d->n++] = (struct cuda_download){host_to, d->used_bytes, size_bytes};
    d->used_bytes += (size_bytes + LIST_ALIGN - 1) / LIST_ALIGN * LIST_ALIGN;
    return at;
}

void download_later(struct cuda *c, void *host_to, const void *from, size_t size_bytes)
{
    uint8_t *at;

    cuda_run(c);
    if (c->device.failed.status != STATUS_OK || !device_enter(&c->device))
        return;
    at = bounce(c, size_bytes, host_to);
    /* to memory that is not pinned the copy may end before this returns, and ends before a sync */
    device_works(&c->device,
                 cudaMemcpyAsync(at != NULL ? at : host_to, from, size_bytes,
                                 cudaMemcpyDeviceToHost, c->list.compute),
                 "copy from a buffer");
    device_leave();
}

void cuda_download(struct backend *b, void *to, const struct buffer *from, size_t size_bytes)
{
    assert(size_bytes <= from->size_bytes);
    if (size_bytes > 0)
        download_later(to_cuda(b), to, from->at, size_bytes);
}

void downloads_deliver(struct cuda *c, bool if_well)
{
    struct downloads *d = &c->downloads;

    for (size_t i = 0; if_well && i < d->n; i++)
        memcpy(d->all[i].host_to, d->host + d->all[i].at, d->all[i].size_bytes);
    d->n = d->used_bytes = 0;
}

void downloads_close(struct cuda *c)
{
    bool is_alive = device_enter(&c->device);

    pinned_close(c->downloads.host, is_alive);
    if (is_alive)
        device_leave();
    free(c->downloads.all);
    c->downloads = (struct downloads){0};
}
