/* Pages of keys and values. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cuda/parts.h"

enum { MAX_HEAD_DIM = 256 };

static enum status open_memory(struct cuda *c, struct kv *kv, struct error *err)
{
    size_t all_bytes, slots_bytes;
    enum status rc = STATUS_OK;

    if (__builtin_mul_overflow(kv->shape.n_pages, kv->view.page_bytes, &all_bytes))
        all_bytes = SIZE_MAX;
    else
        kv->view.pages = cuda_take(c, all_bytes);
    if (kv->view.pages == NULL)
        return cuda_no_memory(c, all_bytes, "keys and values", err);
    if (kv->shape.n_slots == 0)
        return STATUS_OK;
    if (__builtin_mul_overflow(kv->shape.n_slots, kv->view.page_bytes, &slots_bytes))
        return error_no_memory(err, SIZE_MAX, "keys and values that are moved out");
    if (!context_enter(c)) {
        *err = c->failed;
        return err->status;
    }
    rc = cuda_status(c, cudaHostAlloc((void **)&kv->host_slots, slots_bytes, cudaHostAllocDefault),
                     "pin memory for keys and values", err);
    context_leave();
    return rc;
}

enum status cuda_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                         struct error *err)
{
    struct kv *kv;
    enum status rc;

    if (shape->head_dim > MAX_HEAD_DIM || shape->head_dim % 2 != 0)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "heads of %zu dimensions, an even number up to %d is done",
                         shape->head_dim, (int)MAX_HEAD_DIM);
    kv = try_alloc(1, sizeof *kv);
    if (kv == NULL)
        return error_no_memory(err, sizeof *kv, "keys and values");
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
    if (kv->host_slots != NULL && context_enter(c)) {
        list_wait(c); /* copies that were recorded were run by the line above */
        (void)cudaFreeHost(kv->host_slots);
        context_leave();
    }
    free(kv);
}

bool cuda_is_page(const struct kv *kv, int32_t page)
{
    return page >= 0 && (size_t)page < kv->shape.n_pages;
}

/* Copies on the device. */

struct copy_args {
    struct cuda_kv kv;
    const int32_t *pairs;
    uint32_t n;
};

static void launch_copy(const void *args, cudaStream_t stream)
{
    const struct copy_args *a = args;

    cuda_kv_copy(&a->kv, a->pairs, a->n, stream);
}

void cuda_kv_copy_page(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page)
{
    const int32_t pair[2] = {from_page, to_page};
    struct cuda *c = to_cuda(b);
    struct copy_args a;

    assert(cuda_is_page(kv, from_page) && cuda_is_page(kv, to_page) && from_page != to_page);
    cuda_settle(c);
    if (!list_reserve(c, sizeof pair + LIST_ALIGN))
        return;
    memset(&a, 0, sizeof a);
    a.kv = kv->view;
    a.pairs = list_stage(c, pair, sizeof pair, sizeof pair, NULL);
    a.n = 1;
    list_add(c, launch_copy, &a, sizeof a);
    c->n_copies++;
}

void cuda_run_copies(struct cuda *c)
{
    if (c->n_copies > 0)
        list_run(c);
    c->n_copies = 0;
}

/* To the host's memory and back, in the order of all that is asked for. */

static void move(struct cuda *c, void *to, const void *from, size_t size_bytes,
                 enum cudaMemcpyKind kind)
{
    cuda_run(c);
    if (c->failed.status != STATUS_OK || !context_enter(c))
        return;
    cuda_works(c, cudaMemcpyAsync(to, from, size_bytes, kind, c->list.compute),
               "move keys and values");
    context_leave();
}

static uint8_t *slot_at(const struct kv *kv, int32_t slot)
{
    assert(slot >= 0 && (size_t)slot < kv->shape.n_slots);
    return kv->host_slots + (size_t)slot * kv->view.page_bytes;
}

static uint8_t *page_at(const struct kv *kv, int32_t page)
{
    assert(cuda_is_page(kv, page));
    return kv->view.pages + (size_t)page * kv->view.page_bytes;
}

void cuda_kv_spill(struct backend *b, struct kv *kv, int32_t page, int32_t slot)
{
    move(to_cuda(b), slot_at(kv, slot), page_at(kv, page), kv->view.page_bytes,
         cudaMemcpyDeviceToHost);
}

void cuda_kv_fill(struct backend *b, struct kv *kv, int32_t slot, int32_t page)
{
    move(to_cuda(b), page_at(kv, page), slot_at(kv, slot), kv->view.page_bytes,
         cudaMemcpyHostToDevice);
}
