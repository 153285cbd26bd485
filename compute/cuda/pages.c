/* Pages of keys and values. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cuda/parts.h"

enum {
    MAX_HEAD_DIM = 256,
    /* Of the partial results of attention that blocks share: a part of the pages' memory. */
    PARTIALS_SHARE = 16,
    LEAST_PARTIALS_BYTES = 1 << 20,
    MOST_PARTIALS_BYTES = 64 << 20,
};

/* Pages are zeros at first: the numbers behind a head's last are read, and a page may be copied
 * before all of it was written. */
static enum status clear_pages(struct cuda *c, struct kv *kv, size_t size_bytes, struct error *err)
{
    enum status rc;

    if (!device_enter(&c->device)) {
        *err = c->device.failed;
        return err->status;
    }
    rc = device_status(&c->device, cudaMemsetAsync(kv->view.pages, 0, size_bytes, c->list.compute),
                       "clear keys and values", err);
    device_leave();
    return rc;
}

/* They are reserved with the pages, so that no step grows them. */
static enum status reserve_partials(struct cuda *c, size_t pages_bytes, struct error *err)
{
    size_t size_bytes = pages_bytes / PARTIALS_SHARE;

    if (size_bytes < LEAST_PARTIALS_BYTES)
        size_bytes = LEAST_PARTIALS_BYTES;
    else if (size_bytes > MOST_PARTIALS_BYTES)
        size_bytes = MOST_PARTIALS_BYTES;
    if (size_bytes <= c->partials.cap_bytes)
        return STATUS_OK;
    cuda_give_back(c, c->partials.at);
    c->partials = (struct cuda_scratch){.at = device_take(&c->device, size_bytes)};
    if (c->partials.at == NULL)
        return device_no_memory(&c->device, size_bytes, "partial results of attention", err);
    c->partials.cap_bytes = size_bytes;
    return STATUS_OK;
}

static enum status open_memory(struct cuda *c, struct kv *kv, struct error *err)
{
    size_t all_bytes, slots_bytes;
    enum status rc = STATUS_OK;

    if (__builtin_mul_overflow(kv->shape.n_pages, kv->view.page_bytes, &all_bytes))
        all_bytes = SIZE_MAX;
    else
        kv->view.pages = device_take(&c->device, all_bytes);
    if (kv->view.pages == NULL)
        return device_no_memory(&c->device, all_bytes, "keys and values", err);
    rc = clear_pages(c, kv, all_bytes, err);
    if (rc == STATUS_OK)
        rc = reserve_partials(c, all_bytes, err);
    if (rc != STATUS_OK)
        return rc;
    if (kv->shape.n_slots == 0)
        return STATUS_OK;
    if (__builtin_mul_overflow(kv->shape.n_slots, kv->view.page_bytes, &slots_bytes))
        return error_no_memory(err, SIZE_MAX, "keys and values that are moved out");
    if (!device_enter(&c->device)) {
        *err = c->device.failed;
        return err->status;
    }
    rc = device_status(&c->device,
                       cudaHostAlloc((void **)&kv->host_slots, slots_bytes, cudaHostAllocDefault),
                       "pin memory for keys and values", err);
    device_leave();
    return rc;
}

enum status cuda_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                         struct error *err)
{
    struct kv *kv;
    enum status rc;

    if (shape->head_dim > MAX_HEAD_DIM || shape->head_dim % 2 != 0)
        return error_set(
            err, STATUS_UNIMPLEMENTED,
            "the model's heads have %zu dimensions, it must be an even number up to %d",
            shape->head_dim, (int)MAX_HEAD_DIM);
    kv = try_alloc(1, sizeof(*kv));
    if (kv == NULL)
        return error_no_memory(err, sizeof(*kv), "keys and values");
    kv->shape = *shape;
    cuda_kv_lay_out(&kv->view, shape->type, shape->n_layers, shape->n_kv_heads, shape->head_dim);
    rc = open_memory(to_cuda(b), kv, err);
    if (rc == STATUS_OK)
        *out = kv;
    else
        cuda_kv_close(b, kv);
    return rc;
}

void cuda_kv_close(struct backend *b, struct kv *kv)
{
    struct cuda *c = to_cuda(b);

    if (kv == NULL)
        return;
    cuda_give_back(c, kv->view.pages);
    if (kv->host_slots != NULL && device_enter(&c->device)) {
        list_wait(&c->list); /* the line above ran the recorded copies */
        (void)cudaFreeHost(kv->host_slots);
        device_leave();
    }
    free(kv);
}

bool cuda_is_page(const struct kv *kv, int32_t page)
{
    return page >= 0 && (size_t)page < kv->shape.n_pages;
}

/* Copies on the device. */

struct page_copy_args {
    struct cuda_kv kv;
    const int32_t *pairs;
    uint32_t n;
};

static void cuda_pages_launch_copy(const void *args, cudaStream_t stream)
{
    const struct page_copy_args *a = args;

    cuda_kv_copy(&a->kv, a->pairs, a->n, stream);
}

void cuda_kv_copy_page(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page)
{
    const int32_t pair[2] = {from_page, to_page};
    struct cuda *c = to_cuda(b);
    struct page_copy_args a;

    assert(cuda_is_page(kv, from_page) && cuda_is_page(kv, to_page) && from_page != to_page);
    cuda_settle(c);
    if (!list_reserve(&c->list, sizeof(pair) + LIST_ALIGN))
        return;
    memset(&a, 0, sizeof(a));
    a.kv = kv->view;
    a.pairs = list_stage(&c->list, pair, sizeof(pair), sizeof(pair), NULL);
    a.n = 1;
    list_add(&c->list, cuda_pages_launch_copy, &a, sizeof(a));
    c->n_copies++;
}

/* Copies to the host's memory and back, in order with all other operators. */

static void cuda_pages_move(struct cuda *c, void *to, const void *from, size_t size_bytes,
                            enum cudaMemcpyKind kind)
{
    cuda_run(c);
    if (c->device.failed.status != STATUS_OK || !device_enter(&c->device))
        return;
    device_works(&c->device, cudaMemcpyAsync(to, from, size_bytes, kind, c->list.compute),
                 "move keys and values");
    device_leave();
}

static uint8_t *slot_at(const struct kv *kv, int32_t slot)
{
    assert(slot >= 0 && (size_t)slot < kv->shape.n_slots);
    return kv->host_slots + (size_t)slot * kv->view.page_bytes;
}

static uint8_t *cuda_pages_page_at(const struct kv *kv, int32_t page)
{
    assert(cuda_is_page(kv, page));
    return kv->view.pages + (size_t)page * kv->view.page_bytes;
}

void cuda_kv_offload(struct backend *b, struct kv *kv, int32_t page, int32_t slot)
{
    cuda_pages_move(to_cuda(b), slot_at(kv, slot), cuda_pages_page_at(kv, page),
                    kv->view.page_bytes, cudaMemcpyDeviceToHost);
}

void cuda_kv_reload(struct backend *b, struct kv *kv, int32_t slot, int32_t page)
{
    cuda_pages_move(to_cuda(b), cuda_pages_page_at(kv, page), slot_at(kv, slot),
                    kv->view.page_bytes, cudaMemcpyHostToDevice);
}
