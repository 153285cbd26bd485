#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/ref/parts.h"

/* Bytes of the keys, or of the values, of one page in one layer. */
static size_t part_bytes(const struct kv *kv)
{
    return KV_PAGE_TOKENS * kv->shape.n_kv_heads * kv->head_bytes;
}

static size_t ref_kv_page_bytes(const struct kv *kv)
{
    return kv->shape.n_layers * 2 * part_bytes(kv);
}

/* [KV_PAGE_TOKENS][n_kv_heads] */
static unsigned char *part_of(const struct kv *kv, int32_t page, size_t layer, enum kv_part part)
{
    assert(page >= 0 && (size_t)page < kv->shape.n_pages && layer < kv->shape.n_layers);
    return kv->data + (size_t)page * ref_kv_page_bytes(kv) + (layer * 2 + part) * part_bytes(kv);
}

static unsigned char *ref_kv_head_of(const struct kv *kv, size_t layer, enum kv_part part,
                                     const int32_t *pages, size_t pos, size_t head)
{
    size_t i = pos % KV_PAGE_TOKENS * kv->shape.n_kv_heads + head;

    return part_of(kv, pages[pos / KV_PAGE_TOKENS], layer, part) + i * kv->head_bytes;
}

enum status ref_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                        struct error *err)
{
    struct kv kv = {.shape = *shape, .head_bytes = kv_head_bytes(shape->type, shape->head_dim)};
    struct kv *own;

    kv.data = try_alloc(shape->n_pages + shape->n_slots, ref_kv_page_bytes(&kv));
    if (kv.data == NULL)
        return error_no_memory(err, (shape->n_pages + shape->n_slots) * ref_kv_page_bytes(&kv),
                               "keys and values");
    own = try_alloc(1, sizeof(*own));
    if (own == NULL) {
        free(kv.data);
        return error_no_memory(err, sizeof(*own), "keys and values");
    }
    *own = kv;
    *out = own;
    return STATUS_OK;
}

void ref_kv_close(struct backend *b, struct kv *kv)
{
    if (kv != NULL)
        free(kv->data);
    free(kv);
}

void ref_kv_copy(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page)
{
    assert(from_page != to_page);
    memcpy(part_of(kv, to_page, 0, KV_KEYS), part_of(kv, from_page, 0, KV_KEYS),
           ref_kv_page_bytes(kv));
}

static unsigned char *ref_kv_slot_of(const struct kv *kv, int32_t slot)
{
    assert(slot >= 0 && (size_t)slot < kv->shape.n_slots);
    return kv->data + (kv->shape.n_pages + (size_t)slot) * ref_kv_page_bytes(kv);
}

void ref_kv_offload(struct backend *b, struct kv *kv, int32_t page, int32_t slot)
{
    memcpy(ref_kv_slot_of(kv, slot), part_of(kv, page, 0, KV_KEYS), ref_kv_page_bytes(kv));
}

void ref_kv_reload(struct backend *b, struct kv *kv, int32_t slot, int32_t page)
{
    memcpy(part_of(kv, page, 0, KV_KEYS), ref_kv_slot_of(kv, slot), ref_kv_page_bytes(kv));
}

static void store_head(const struct kv *kv, unsigned char *to, const float *from)
{
    size_t n = kv->shape.head_dim;
    float scale;

    switch (kv->shape.type) {
    case KV_F32:
        memcpy(to, from, n * sizeof(*from));
        break;
    case KV_F16:
        for (size_t i = 0; i < n; i++)
            ((uint16_t *)(void *)to)[i] = f32_to_f16(from[i]);
        break;
    default:
        scale = kv_q8_round(from, n, (int8_t *)to + sizeof(scale));
        memcpy(to, &scale, sizeof(scale));
    }
}

static void ref_kv_store_values(const struct kv *kv, size_t layer, enum kv_part part,
                                const struct attend_row *row,
                                const float *from /* [n_tokens][n_kv_heads] */)
{
    for (size_t t = 0; t < row->n_tokens; t++)
        for (size_t h = 0; h < kv->shape.n_kv_heads; h++, from += kv->shape.head_dim)
            store_head(kv, ref_kv_head_of(kv, layer, part, row->pages, row->pos + t, h), from);
}

void ref_kv_store(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                  const struct buffer *v, const struct attend_row *rows, size_t n_rows)
{
    for (size_t i = 0; i < n_rows; i++) {
        size_t width = kv->shape.n_kv_heads * kv->shape.head_dim;
        size_t end = rows[i].first + rows[i].n_tokens, skip = rows[i].first * width;

        ref_kv_store_values(kv, layer, KV_KEYS, &rows[i], ref_const_floats(k, end, width) + skip);
        ref_kv_store_values(kv, layer, KV_VALUES, &rows[i], ref_const_floats(v, end, width) + skip);
    }
}

const float *ref_kv_at(const struct kv *kv, size_t layer, enum kv_part part, const int32_t *pages,
                       size_t pos, size_t head, float *scratch)
{
    const unsigned char *from = ref_kv_head_of(kv, layer, part, pages, pos, head);
    float scale;

    switch (kv->shape.type) {
    case KV_F32:
        return (const float *)(const void *)from;
    case KV_F16:
        for (size_t i = 0; i < kv->shape.head_dim; i++)
            scratch[i] = f16_to_f32(((const uint16_t *)(const void *)from)[i]);
        return scratch;
    default:
        memcpy(&scale, from, sizeof(scale));
        for (size_t i = 0; i < kv->shape.head_dim; i++)
            scratch[i] = scale * (float)((const int8_t *)from)[sizeof(scale) + i];
        return scratch;
    }
}
