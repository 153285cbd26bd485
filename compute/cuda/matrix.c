/* Weights, and the operators that multiply with them. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cuda/kernels.h"
#include "compute/cuda/parts.h"
#include "compute/numerics/dtype.h"

enum { NEVER = INT32_MAX };

/* The kind of product by its number of rows. These figures were not measured on a GPU yet.
 *
 * From `tensor` rows on, tensor cores compute a product with quantised weights: below, only reading
 * the weights counts, and dp4a is as fast. Both give the same bits. From `cublas` rows on, and only
 * with --fast-math, the weight is converted to f16 for cuBLAS, which must pay for writing and
 * reading two bytes for each of its numbers. */
static const struct {
    enum dtype type;
    size_t tensor, cublas;
} ways[] = {
    {DTYPE_Q4_0, 9, 128},   {DTYPE_Q4_1, 9, 128},    {DTYPE_Q5_0, 9, 128},   {DTYPE_Q5_1, 9, 128},
    {DTYPE_Q8_0, 9, 128},   {DTYPE_Q4_K, 9, 128},    {DTYPE_Q5_K, 9, 128},   {DTYPE_Q6_K, 9, 128},
    {DTYPE_F16, NEVER, 64}, {DTYPE_BF16, NEVER, 64}, {DTYPE_F32, NEVER, 64},
};

static size_t way_of(enum dtype type)
{
    size_t i = 0;

    while (ways[i].type != type) {
        i++;
        assert(i < sizeof(ways) / sizeof(ways[0]));
    }
    return i;
}

static bool is_float(enum dtype type)
{
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

/* Weights. */

/* The type that a weight has in device memory: types without kernels are decoded. */
static enum dtype device_type(enum dtype type)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        if (ways[i].type == type)
            return type;
    return DTYPE_F32;
}

static enum status open_gain(struct cuda *c, struct weight *w, const struct tensor *t,
                             struct error *err)
{
    size_t size_bytes = t->n_cols * sizeof(float);
    float *row = try_alloc(t->n_cols, sizeof(*row));
    void *bytes = try_alloc(t->size_bytes, 1);
    enum status rc;

    rc = row == NULL || bytes == NULL ? error_no_memory(err, size_bytes, t->name)
                                      : tensor_read(t, 0, 1, bytes, err);
    if (rc != STATUS_OK)
        goto out;
    dtype_decode(t->type, bytes, t->n_cols, row);
    w->gain = device_take(&c->device, size_bytes);
    if (w->gain == NULL)
        rc = device_no_memory(&c->device, size_bytes, t->name, err);
    else
        rc = cuda_copy_in(c, w->gain, row, size_bytes, "copy a weight", err);
out:
    free(bytes);
    free(row);
    return rc;
}

enum status cuda_weight_open(struct backend *b, const struct tensor *t, struct weight **out,
                             struct error *err)
{
    struct cuda *c = to_cuda(b);
    enum dtype type = device_type(t->type);
    struct weight *w = NULL;
    enum status rc = STATUS_OK;
    size_t size_bytes;

    if (c->device.is_dead)
        return error_set(err, STATUS_INTERNAL, "the CUDA device has failed");
    w = try_alloc(1, sizeof(*w));
    if (w == NULL)
        return error_no_memory(err, sizeof(*w), t->name);
    size_bytes = cuda_matrix_lay_out(&w->matrix, type, t->n_rows, t->n_cols, NULL);
    w->memory = device_take(&c->device, size_bytes);
    if (w->memory == NULL) {
        rc = device_no_memory(&c->device, size_bytes, t->name, err);
        goto out;
    }
    (void)cuda_matrix_lay_out(&w->matrix, type, t->n_rows, t->n_cols, w->memory);
    if ((rc = upload_matrix(c, &w->matrix, t, err)) != STATUS_OK ||
        (t->n_rows == 1 && (rc = open_gain(c, w, t, err)) != STATUS_OK))
        goto out;
    *out = w;
    w = NULL; /* the caller's now */
out:
    cuda_weight_close(b, w);
    return rc;
}

void cuda_weight_close(struct backend *b, struct weight *w)
{
    if (w == NULL)
        return;
    cuda_give_back(to_cuda(b), w->memory);
    cuda_give_back(to_cuda(b), w->gain);
    free(w);
}

/* Rows. */

struct embed_args {
    struct cuda_matrix table;
    const int32_t *ids;
    struct cuda_count n;
    float *out;
};

static void launch_embed(const void *args, cudaStream_t stream)
{
    const struct embed_args *a = args;

    cuda_embed(&a->table, a->ids, a->n, a->out, stream);
}

void cuda_embed_rows(struct backend *b, const struct weight *table, const int32_t *ids, size_t n,
                     struct buffer *out)
{
    struct cuda *c = to_cuda(b);
    struct embed_args a;

    if (n == 0 || !cuda_begin(c, list_bucket(n) * sizeof(*ids)))
        return;
    for (size_t i = 0; i < n; i++)
        assert(ids[i] >= 0 && (uint32_t)ids[i] < table->matrix.n_rows);
    memset(&a, 0, sizeof(a));
    a.table = table->matrix;
    a.ids = list_stage(&c->list, ids, n * sizeof(*ids), list_bucket(n) * sizeof(*ids), NULL);
    a.n = cuda_count_of(c, n);
    a.out = cuda_written(out, n, table->matrix.n_cols);
    list_add(&c->list, launch_embed, &a, sizeof(a));
}

struct gather_args {
    const float *in;
    const uint32_t *rows;
    struct cuda_count n;
    uint32_t width;
    float *out;
};

static void launch_gather(const void *args, cudaStream_t stream)
{
    const struct gather_args *a = args;

    cuda_gather(a->in, a->rows, a->n, a->width, a->out, stream);
}

void cuda_gather_rows(struct backend *b, const struct buffer *in, const uint32_t *rows, size_t n,
                      size_t width, struct buffer *out)
{
    struct cuda *c = to_cuda(b);
    struct gather_args a;

    if (n == 0 || !cuda_begin(c, list_bucket(n) * sizeof(*rows)))
        return;
    memset(&a, 0, sizeof(a));
    for (size_t i = 0; i < n; i++)
        a.in = cuda_read(in, rows[i] + (size_t)1, width);
    a.rows = list_stage(&c->list, rows, n * sizeof(*rows), list_bucket(n) * sizeof(*rows), NULL);
    a.n = cuda_count_of(c, n);
    a.width = (uint32_t)width;
    a.out = cuda_written(out, n, width);
    list_add(&c->list, launch_gather, &a, sizeof(a));
}

/* Products. */

/* The forms of a product's input: rows of acts, floats, or halves for cuBLAS. */
enum form { QUANTISED, FLOATS, HALVES };

struct prepared {
    enum form form;
    struct cuda_acts acts;
    const float *floats;
    uint16_t *halves;
    struct cuda_count n;
};

static enum form form_of(struct cuda *c, const struct product *p, size_t n)
{
    const size_t cublas_from = ways[way_of(p->w->matrix.type)].cublas;

    return fast_takes(c, p, n, cublas_from) ? HALVES
           : is_float(p->w->matrix.type)    ? FLOATS
                                            : QUANTISED;
}

static bool acts_for(struct cuda *c, struct cuda_scratch *room, size_t n, size_t width,
                     struct cuda_acts *out)
{
    size_t n_values = n * width, at = (n_values + 255) / 256 * 256, n_groups = n_values / 32;
    uint8_t *memory =
        cuda_scratch(c, room, at + n_groups * (sizeof(*out->groups) + sizeof(*out->outliers)));

    if (memory == NULL)
        return false;
    out->values = (int8_t *)memory;
    out->groups = (struct cuda_group *)(memory + at);
    out->outliers = (struct cuda_outlier *)(out->groups + n_groups);
    return true;
}

struct norm_args {
    const float *x, *gain;
    float eps;
    struct cuda_count n;
    uint32_t width;
    struct cuda_acts acts;
    float *floats;
    uint16_t *halves;
};

static void launch_norm_quantise(const void *args, cudaStream_t stream)
{
    const struct norm_args *a = args;

    cuda_norm_quantise(a->x, a->gain, a->eps, a->n, a->width, &a->acts, stream);
}

static void launch_norm(const void *args, cudaStream_t stream)
{
    const struct norm_args *a = args;

    cuda_norm(a->x, a->gain, a->eps, a->n, a->width, a->floats, stream);
}

static void launch_norm_f16(const void *args, cudaStream_t stream)
{
    const struct norm_args *a = args;

    cuda_norm_f16(a->x, a->gain, a->eps, a->n, a->width, a->halves, stream);
}

static bool cuda_matrix_prepare(struct cuda *c, const struct input *in, size_t n,
                                const struct product *p, struct prepared *out)
{
    size_t width = p->w->matrix.n_cols;
    struct norm_args a;

    memset(out, 0, sizeof(*out));
    memset(&a, 0, sizeof(a));
    out->form = form_of(c, p, n);
    a.x = cuda_read(in->x, n, width);
    a.gain = in->gain != NULL ? in->gain->gain : NULL;
    assert(in->gain == NULL || (a.gain != NULL && in->gain->matrix.n_cols == width));
    a.eps = in->eps;
    a.width = (uint32_t)width;
    if (out->form == QUANTISED) {
        if (!acts_for(c, &c->inputs, list_bucket(n), width, &out->acts))
            return false;
        a.acts = out->acts;
    } else if (out->form == HALVES) {
        out->halves = a.halves = fast_inputs(c, n, width);
        if (a.halves == NULL)
            return false;
    } else if (a.gain != NULL) {
        a.floats = cuda_scratch(c, &c->normed, list_bucket(n) * width * sizeof(*a.floats));
        if (a.floats == NULL)
            return false;
    }
    if (!cuda_begin(c, 0))
        return false;
    out->n = a.n = cuda_count_of(c, n);
    out->floats = a.gain != NULL ? a.floats : a.x;
    if (out->form == QUANTISED)
        list_add(&c->list, launch_norm_quantise, &a, sizeof(a));
    else if (out->form == HALVES)
        list_add(&c->list, launch_norm_f16, &a, sizeof(a));
    else if (a.gain != NULL)
        list_add(&c->list, launch_norm, &a, sizeof(a));
    return true;
}

struct products_args {
    struct cuda_product products[CUDA_MAX_PRODUCTS];
    size_t n_products;
    struct cuda_acts acts;
    const float *floats;
    struct cuda_count n;
    bool adds;
};

static void launch_few(const void *args, cudaStream_t stream)
{
    const struct products_args *a = args;

    cuda_products_few(a->products, a->n_products, &a->acts, a->n, a->adds, stream);
}

static void launch_many(const void *args, cudaStream_t stream)
{
    const struct products_args *a = args;

    cuda_products_many(a->products, a->n_products, &a->acts, a->n, a->adds, stream);
}

static void launch_float(const void *args, cudaStream_t stream)
{
    const struct products_args *a = args;

    cuda_products_float(a->products, a->n_products, a->floats, a->n, a->adds, stream);
}

static void record_products(struct cuda *c, struct products_args *a, const struct prepared *in)
{
    enum dtype type = a->products[0].w.type;

    a->acts = in->acts;
    a->floats = in->floats;
    a->n = in->n;
    list_add(&c->list,
             in->form == FLOATS                        ? launch_float
             : in->n.most >= ways[way_of(type)].tensor ? launch_many
                                                       : launch_few,
             a, sizeof(*a));
}

/* Runs products of one type in one launch, in the order given. */
static void run_products(struct cuda *c, const struct prepared *in, const struct product *products,
                         size_t n_products, size_t n, bool adds)
{
    struct products_args a;

    memset(&a, 0, sizeof(a));
    a.adds = adds;
    for (size_t i = 0; in->form == HALVES && i < n_products; i++)
        fast_multiply(c, &products[i], in->halves, n, adds);
    for (size_t i = 0; in->form != HALVES && i < n_products; i++) {
        const struct cuda_matrix *w = &products[i].w->matrix;

        if (a.n_products == CUDA_MAX_PRODUCTS ||
            (a.n_products > 0 && a.products[0].w.type != w->type)) {
            record_products(c, &a, in);
            memset(a.products, 0, sizeof(a.products));
            a.n_products = 0;
        }
        a.products[a.n_products].w = *w;
        a.products[a.n_products++].out = cuda_written(products[i].out, n, w->n_rows);
    }
    if (a.n_products > 0)
        record_products(c, &a, in);
}

/* Runs products that read the input in one form. */
static void cuda_matrix_multiply(struct cuda *c, const struct input *in, size_t n,
                                 const struct product *products, size_t n_products, bool adds)
{
    struct prepared prepared;

    if (cuda_matrix_prepare(c, in, n, &products[0], &prepared))
        run_products(c, &prepared, products, n_products, n, adds);
}

void cuda_matmul(struct backend *b, const struct input *in, size_t n,
                 const struct product *products, size_t n_products)
{
    struct cuda *c = to_cuda(b);
    size_t n_alike;

    for (size_t i = 0; n > 0 && i < n_products; i += n_alike) {
        enum form form = form_of(c, &products[i], n);

        for (n_alike = 1; i + n_alike < n_products && form_of(c, &products[i + n_alike], n) == form;
             n_alike++)
            ;
        cuda_matrix_multiply(c, in, n, products + i, n_alike, false);
    }
}

void cuda_matmul_add(struct backend *b, const struct input *in, size_t n,
                     const struct product *product)
{
    if (n > 0)
        cuda_matrix_multiply(to_cuda(b), in, n, product, 1, true);
}

/* The gated network. */

struct gate_args {
    struct cuda_gate_rows rows;
    float *floats;
    struct cuda_acts acts;
    uint16_t *halves;
};

static void launch_gate_quantise(const void *args, cudaStream_t stream)
{
    const struct gate_args *a = args;

    cuda_gate_quantise(&a->rows, &a->acts, stream);
}

static void launch_gate(const void *args, cudaStream_t stream)
{
    const struct gate_args *a = args;

    cuda_gate(&a->rows, a->floats, stream);
}

static void launch_gate_f16(const void *args, cudaStream_t stream)
{
    const struct gate_args *a = args;

    cuda_gate_f16(&a->rows, a->halves, stream);
}

/* Makes room for the input of down. */
static bool room_for_gated(struct cuda *c, struct prepared *p, size_t n, size_t hidden)
{
    if (p->form == QUANTISED)
        return acts_for(c, &c->gated, list_bucket(n), hidden, &p->acts);
    if (p->form == HALVES)
        p->halves = fast_inputs(c, n, hidden);
    return p->form != HALVES || p->halves != NULL;
}

void cuda_ffn(struct backend *b, const struct input *in, size_t n, const struct ffn *f,
              struct buffer *out)
{
    struct cuda *c = to_cuda(b);
    size_t hidden = f->gate->matrix.n_rows, size_bytes = list_bucket(n) * hidden * sizeof(float);
    struct buffer gate = {.size_bytes = size_bytes}, up = {.size_bytes = size_bytes};
    const struct product both[] = {{f->gate, &gate}, {f->up, &up}}, down = {f->down, out};
    struct prepared prepared;
    struct gate_args a;

    if (n == 0)
        return;
    gate.at = cuda_scratch(c, &c->hidden, 2 * size_bytes);
    if (gate.at == NULL)
        return;
    up.at = (uint8_t *)gate.at + size_bytes;
    cuda_matmul(b, in, n, both, 2);
    memset(&prepared, 0, sizeof(prepared));
    memset(&a, 0, sizeof(a));
    prepared.form = form_of(c, &down, n);
    if (!room_for_gated(c, &prepared, n, hidden) || !cuda_begin(c, 0))
        return;
    prepared.n = a.rows.n = cuda_count_of(c, n);
    prepared.floats = a.rows.gate = a.floats = gate.at;
    a.rows.up = up.at;
    a.rows.width = (uint32_t)hidden;
    a.rows.gelu = f->activation == ACTIVATION_GELU;
    a.acts = prepared.acts;
    a.halves = prepared.halves;
    list_add(&c->list,
             prepared.form == QUANTISED ? launch_gate_quantise
             : prepared.form == HALVES  ? launch_gate_f16
                                        : launch_gate,
             &a, sizeof(a));
    run_products(c, &prepared, &down, 1, n, !f->stores);
}
