#include "compute/ref/ref.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/backend/net.h"
#include "compute/backend/states.h"
#include "compute/ref/parts.h"

static enum status ref_open(struct backend *b, const struct backend_config *config,
                            struct error *err)
{
    (void)b, (void)config, (void)err;
    return STATUS_OK;
}

static void ref_close(struct backend *b)
{
    free(to_ref(b)->decoded.at);
    free(to_ref(b)->weights.at);
    free(to_ref(b)->scores);
    free(to_ref(b)->normed.at);
    free(to_ref(b)->gated.at);
    free(to_ref(b)->product.at);
}

static enum status ref_sync(struct backend *b, struct error *err)
{
    struct ref *r = to_ref(b);
    enum status rc = r->failed.status;

    if (rc != STATUS_OK)
        *err = r->failed;
    r->failed = (struct error){0};
    return rc;
}

static struct buffer *ref_buffer_open(struct backend *b, size_t size_bytes)
{
    struct buffer *m;

    if (size_bytes > SIZE_MAX - sizeof(*m))
        return NULL;
    m = try_alloc(1, sizeof(*m) + size_bytes);
    if (m != NULL)
        m->size_bytes = size_bytes;
    return m;
}

static void ref_buffer_close(struct backend *b, struct buffer *m)
{
    free(m);
}

static void ref_upload(struct backend *b, struct buffer *to, const void *from, size_t size_bytes)
{
    assert(size_bytes <= to->size_bytes);
    memcpy(to->data, from, size_bytes);
}

static void ref_download(struct backend *b, void *to, const struct buffer *from, size_t size_bytes)
{
    assert(size_bytes <= from->size_bytes);
    memcpy(to, from->data, size_bytes);
}

static void ref_gather(struct backend *b, const struct buffer *in, const uint32_t *rows, size_t n,
                       size_t width, struct buffer *out)
{
    float *to = ref_floats(out, n, width);

    for (size_t i = 0; i < n; i++)
        memcpy(to + i * width, ref_const_floats(in, rows[i] + (size_t)1, width) + rows[i] * width,
               width * sizeof(*to));
}

const struct backend_type ref_backend = {
    .name = "ref",
    .size = sizeof(struct ref),
    .open = ref_open,
    .close = ref_close,
    .sync = ref_sync,
    .buffer_open = ref_buffer_open,
    .buffer_close = ref_buffer_close,
    .upload = ref_upload,
    .download = ref_download,
    .weight_open = ref_weight_open,
    .weight_close = ref_weight_close,
    .kv_open = ref_kv_open,
    .kv_close = ref_kv_close,
    .kv_copy = ref_kv_copy,
    .kv_offload = ref_kv_offload,
    .kv_reload = ref_kv_reload,
    .kv_image_bytes = ref_kv_image_bytes,
    .kv_read = ref_kv_read,
    .kv_write = ref_kv_write,
    .embed = ref_embed,
    .matmul = ref_matmul,
    .matmul_add = ref_matmul_add,
    .ffn = ref_ffn,
    .rope = ref_rope,
    .kv_store = ref_kv_store,
    .attend = ref_attend,
    .norm = ref_norm,
    .add = ref_add,
    .add_bias = ref_add_bias,
    .scale = ref_scale,
    .scatter_add = ref_scatter_add,
    .scale_rows = ref_scale_rows,
    .attends_to_sinks = true,
    .attends_ahead = true,
    .attends_in_chunks = true,
    .has_unlike_layers = true,
    .layer_norm = ref_layer_norm,
    .activate = ref_activate,
    .copy_columns = ref_copy_columns,
    .kv_conv = ref_kv_conv,
    .cut = ref_cut,
    .fill = ref_fill,
    .gather = ref_gather,
    .sample = ref_sample,
    .state = &ref_state_ops,
    .net = &ref_net_ops,
};
