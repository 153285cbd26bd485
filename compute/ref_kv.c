#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/ref_parts.h"

static size_t value_bytes(const struct kv *kv)
{
    return kv->shape.type == KV_F16 ? sizeof(uint16_t) : sizeof(float);
}

/* Bytes of the keys, or of the values, of one page in one layer. */
static size_t part_bytes(const struct kv *kv)
{
    return KV_PAGE_TOKENS * kv->width * value_bytes(kv);
}

static size_t page_bytes(const struct kv *kv)
{
    return kv->shape.n_layers * 2 * part_bytes(kv);
}

/* [KV_PAGE_TOKENS][width] */
static unsigned char *part_of(const struct kv *kv, int32_t page, size_t layer, enum kv_part part)
{
    assert(page >= 0 && (size_t)page < kv->shape.n_pages && layer < kv->shape.n_layers);
    return kv->data + (size_t)page * page_bytes(kv) + (layer * 2 + part) * part_bytes(kv);
}

enum status ref_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                        struct error *err)
{
    struct kv kv = {.shape = *shape, .width = shape->n_kv_heads * shape->head_dim}, *own;

    (void)b;
    kv.data = try_alloc(shape->n_pages, page_bytes(&kv));
    if (kv.data == NULL)
        return error_no_memory(err, shape->n_pages * page_bytes(&kv), "keys and values");
    own = try_alloc(1, sizeof *own);
    if (own == NULL) {
        free(kv.data);
        return error_no_memory(err, sizeof *own, "keys and values");
    }
    *own = kv;
    *out = own;
    return STATUS_OK;
}

void ref_kv_close(struct backend *b, struct kv *kv)
{
    (void)b;
    if (kv != NULL)
        free(kv->data);
    free(kv);
}

void ref_kv_copy(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page)
{
    (void)b;
    assert(from_page != to_page);
    memcpy(part_of(kv, to_page, 0, KV_KEYS), part_of(kv, from_page, 0, KV_KEYS), page_bytes(kv));
}

static void store(const struct kv *kv, size_t layer, enum kv_part part,
                  const struct attend_row *row, const float *from /* [n_tokens][width] */)
{
    for (size_t t = 0; t < row->n_tokens; t++, from += kv->width) {
        size_t pos = row->pos + t, first = pos % KV_PAGE_TOKENS * kv->width;
        unsigned char *to = part_of(kv, row->pages[pos / KV_PAGE_TOKENS], layer, part);

        if (kv->shape.type == KV_F32)
            memcpy((float *)(void *)to + first, from, kv->width * sizeof *from);
        else
            for (size_t i = 0; i < kv->width; i++)
                ((uint16_t *)(void *)to)[first + i] = f32_to_f16(from[i]);
    }
}

void ref_kv_store(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                  const struct buffer *v, const struct attend_row *rows, size_t n_rows)
{
    (void)b;
    for (size_t i = 0; i < n_rows; i++) {
        size_t end = rows[i].first + rows[i].n_tokens, skip = rows[i].first * kv->width;

        store(kv, layer, KV_KEYS, &rows[i], ref_const_floats(k, end, kv->width) + skip);
        store(kv, layer, KV_VALUES, &rows[i], ref_const_floats(v, end, kv->width) + skip);
    }
}

const float *ref_kv_at(const struct kv *kv, size_t layer, enum kv_part part, const int32_t *pages,
                       size_t pos, size_t head, float *scratch)
{
    size_t first = pos % KV_PAGE_TOKENS * kv->width + head * kv->shape.head_dim;
    const void *from = part_of(kv, pages[pos / KV_PAGE_TOKENS], layer, part);

    if (kv->shape.type == KV_F32)
        return (const float *)from + first;
    for (size_t i = 0; i < kv->shape.head_dim; i++)
        scratch[i] = f16_to_f32(((const uint16_t *)from)[first + i]);
    return scratch;
}
