/* The reference of what is done with keys and values: pages, stores into their formats, reads,
 * copies, and the states of convolutions. Loops are plain and follow the definition. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/backend/gates.h"
#include "compute/ref/parts.h"

/* Bytes of the keys, or of the values, of one page in one layer. */
static size_t part_bytes(const struct ref_kv_layer *l)
{
    return KV_PAGE_TOKENS * l->is.n_kv_heads * l->head_bytes;
}

static unsigned char *ref_page_of(const struct kv *kv, int32_t page)
{
    assert(page >= 0 && (size_t)page < kv->shape.n_pages);
    return kv->data + (size_t)page * kv->page_bytes;
}

static unsigned char *ref_kv_head_of(const struct kv *kv, size_t layer, enum kv_part part,
                                     const int32_t *pages, size_t pos, size_t head)
{
    const struct ref_kv_layer *l = &kv->layers[layer];
    size_t i = pos % KV_PAGE_TOKENS * l->is.n_kv_heads + head;

    return ref_page_of(kv, pages[pos / KV_PAGE_TOKENS]) + l->at + part * part_bytes(l) +
           i * l->head_bytes;
}

static void ref_kv_place_layers(struct kv *kv)
{
    for (size_t i = 0; i < kv->shape.n_layers; i++) {
        struct ref_kv_layer *l = &kv->layers[i];

        l->is = kv_layer_of(&kv->shape, i);
        l->head_bytes = kv_head_bytes(kv->shape.type, l->is.head_dim);
        l->at = kv->page_bytes;
        kv->page_bytes += 2 * part_bytes(l) + KV_PAGE_TOKENS * l->is.row_width * sizeof(float);
    }
    kv->shape.layers = NULL; /* the caller's */
}

enum status ref_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                        struct error *err)
{
    struct kv *kv = try_alloc(1, sizeof(*kv));
    size_t n_pages = shape->n_pages + shape->n_slots;

    if (kv == NULL)
        return error_no_memory(err, sizeof(*kv), "keys and values");
    kv->shape = *shape;
    kv->layers = try_alloc(shape->n_layers, sizeof(*kv->layers));
    if (kv->layers != NULL) {
        ref_kv_place_layers(kv);
        kv->data = try_alloc(n_pages, kv->page_bytes);
    }
    if (kv->data == NULL) {
        size_t page_bytes = kv->page_bytes;

        ref_kv_close(b, kv);
        return error_no_memory(err, n_pages * page_bytes, "keys and values");
    }
    *out = kv;
    return STATUS_OK;
}

void ref_kv_close(struct backend *b, struct kv *kv)
{
    if (kv != NULL) {
        free(kv->data);
        free(kv->layers);
    }
    free(kv);
}

void ref_kv_copy(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page)
{
    assert(from_page != to_page);
    memcpy(ref_page_of(kv, to_page), ref_page_of(kv, from_page), kv->page_bytes);
}

static unsigned char *ref_kv_slot_of(const struct kv *kv, int32_t slot)
{
    assert(slot >= 0 && (size_t)slot < kv->shape.n_slots);
    return kv->data + (kv->shape.n_pages + (size_t)slot) * kv->page_bytes;
}

void ref_kv_offload(struct backend *b, struct kv *kv, int32_t page, int32_t slot)
{
    memcpy(ref_kv_slot_of(kv, slot), ref_page_of(kv, page), kv->page_bytes);
}

void ref_kv_reload(struct backend *b, struct kv *kv, int32_t slot, int32_t page)
{
    memcpy(ref_page_of(kv, page), ref_kv_slot_of(kv, slot), kv->page_bytes);
}

size_t ref_kv_image_bytes(const struct kv *kv)
{
    return kv->page_bytes;
}

void ref_kv_read(const struct kv *kv, int32_t page, void *out)
{
    memcpy(out, ref_page_of(kv, page), kv->page_bytes);
}

void ref_kv_write(struct backend *b, struct kv *kv, int32_t page, const void *image)
{
    memcpy(ref_page_of(kv, page), image, kv->page_bytes);
}

static void store_head(const struct kv *kv, unsigned char *to, const float *from, size_t n)
{
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
    const struct kv_layer *is = &kv->layers[layer].is;

    for (size_t t = 0; t < row->n_tokens; t++)
        for (size_t h = 0; h < is->n_kv_heads; h++, from += is->head_dim)
            store_head(kv, ref_kv_head_of(kv, layer, part, row->pages, row->pos + t, h), from,
                       is->head_dim);
}

void ref_kv_store(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                  const struct buffer *v, const struct attend_row *rows, size_t n_rows)
{
    for (size_t i = 0; i < n_rows; i++) {
        size_t width = kv->layers[layer].is.n_kv_heads * kv->layers[layer].is.head_dim;
        size_t end = rows[i].first + rows[i].n_tokens, skip = rows[i].first * width;

        ref_kv_store_values(kv, layer, KV_KEYS, &rows[i], ref_const_floats(k, end, width) + skip);
        ref_kv_store_values(kv, layer, KV_VALUES, &rows[i], ref_const_floats(v, end, width) + skip);
    }
}

const float *ref_kv_at(const struct kv *kv, size_t layer, enum kv_part part, const int32_t *pages,
                       size_t pos, size_t head, float *scratch)
{
    const unsigned char *from = ref_kv_head_of(kv, layer, part, pages, pos, head);
    size_t head_dim = kv->layers[layer].is.head_dim;
    float scale;

    switch (kv->shape.type) {
    case KV_F32:
        return (const float *)(const void *)from;
    case KV_F16:
        for (size_t i = 0; i < head_dim; i++)
            scratch[i] = f16_to_f32(((const uint16_t *)(const void *)from)[i]);
        return scratch;
    default:
        memcpy(&scale, from, sizeof(scale));
        for (size_t i = 0; i < head_dim; i++)
            scratch[i] = scale * (float)((const int8_t *)from)[sizeof(scale) + i];
        return scratch;
    }
}

/* A layer's row of a position. */
static float *ref_kv_row_of(const struct kv *kv, size_t layer, const int32_t *pages, size_t pos)
{
    const struct ref_kv_layer *l = &kv->layers[layer];
    unsigned char *rows = ref_page_of(kv, pages[pos / KV_PAGE_TOKENS]) + l->at + 2 * part_bytes(l);

    return (float *)(void *)rows + pos % KV_PAGE_TOKENS * l->is.row_width;
}

/* Of one token, whose row and those before it are stored. */
static void conv_token(const struct kv *kv, size_t layer, const float *taps, size_t n_taps,
                       const int32_t *pages, size_t pos, float *out)
{
    size_t width = kv->layers[layer].is.row_width;

    for (size_t t = 0; t < n_taps; t++) {
        size_t back = n_taps - 1 - t;

        if (back <= pos)
            gates_add_tap(taps, n_taps, t, ref_kv_row_of(kv, layer, pages, pos - back), width, out);
        else
            memset(out, 0, width * sizeof(*out));
    }
}

void ref_kv_conv(struct backend *b, struct kv *kv, size_t layer, const struct weight *taps,
                 size_t n_taps, const struct buffer *x, const struct attend_row *rows,
                 size_t n_rows, struct buffer *out)
{
    size_t width = kv->layers[layer].is.row_width;
    float *decoded = ref_scratch_of(to_ref(b), &to_ref(b)->decoded, taps->tensor.n_cols);

    assert(taps->tensor.n_cols == width * n_taps);
    if (decoded == NULL)
        return;
    ref_decode_row(taps, 0, decoded);
    for (const struct attend_row *row = rows; row < rows + n_rows; row++)
        for (size_t t = 0; t < row->n_tokens; t++) {
            size_t at = row->first + t;

            memcpy(ref_kv_row_of(kv, layer, row->pages, row->pos + t),
                   ref_const_floats(x, at + 1, width) + at * width, width * sizeof(float));
            conv_token(kv, layer, decoded, n_taps, row->pages, row->pos + t,
                       ref_floats(out, at + 1, width) + at * width);
        }
}
