/* Products. First the rows of the input are normed and quantised, once for all products that read
 * them; then pieces of panels are multiplied with all rows. A piece is processed in chunks of
 * panels that stay in the L2 cache while each block of rows is multiplied with them. The
 * intermediate results of a gated network are quantised while they are in the L1 cache, and never
 * written to memory as floats. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "compute/cpu/outliers.h"
#include "compute/cpu/panels.h"
#include "compute/cpu/parts.h"
#include "compute/numerics/activation_scale.h"

enum {
    PIECE_BYTES = 16384, /* of panels read for one row: a smaller piece is not worth sharing */
    PIECE_VALUES = 2048, /* of rows to be normed and quantised */
    CHUNK_BYTES = 256 << 10,
    GATED_PANELS = 8, /* of gate and of up, whose outputs are held at once */
    GATED_COLUMNS = GATED_PANELS * PANEL_COLUMNS,
    PAIR = GROUP_VALUES /
           PANEL_COLUMNS,  /* panels whose outputs are a group of the next product's input */
    MANY_BLOCKS = 2,       /* of rows for each thread, from which on threads take rows */
    OUTLIERS_PIECE = 8192, /* groups of rows, whose outliers are listed */
    UNLEVEL = 16,          /* threads' numbers of blocks may differ by 1/UNLEVEL of all */
};

static size_t count_blocks(size_t n_rows)
{
    return (n_rows + ACT_ROWS - 1) / ACT_ROWS;
}

void cpu_rows_free(struct activation_rows *r)
{
    free(r->acts);
    free(r->outliers);
    free(r->counts);
    free(r->columns);
    free(r->places);
    free(r->floats);
}

/* The input of a product. */
struct operand {
    size_t n, width;
    bool is_quantised;
    struct act_form form;
    const struct activation_rows *rows; /* if quantised */
    const float *floats;                /* else */
};

/* Room for n groups of a block format, and their outliers. */
static bool make_room_for_groups(struct cpu *c, struct activation_rows *r, size_t n,
                                 size_t n_blocks)
{
    static const char what[] = "activations";

    return cpu_reserve(c, (void **)&r->acts, &r->acts_cap, n, sizeof(*r->acts), what) &&
           cpu_reserve(c, (void **)&r->outliers, &r->outliers_cap, n, sizeof(*r->outliers), what) &&
           cpu_reserve(c, (void **)&r->counts, &r->counts_cap, n_blocks, sizeof(*r->counts),
                       what) &&
           cpu_reserve(c, (void **)&r->columns, &r->columns_cap, n, sizeof(*r->columns), what) &&
           cpu_reserve(c, (void **)&r->places, &r->places_cap, n, sizeof(*r->places), what);
}

/* Makes room in r for n rows as w reads them. False: no memory, and cpu_fail was called. */
static bool operand_make_room(struct operand *out, struct cpu *c, struct activation_rows *r,
                              size_t n, const struct weight *w)
{
    size_t width = w->tensor.n_cols, n_groups = n * width / GROUP_VALUES;

    *out = (struct operand){.n = n,
                            .width = width,
                            .is_quantised = w->is_quantised,
                            .form = {w->form.bias, w->form.halves}};
    if (w->is_quantised ? !make_room_for_groups(c, r, n_groups, count_blocks(n))
                        : !cpu_reserve(c, (void **)&r->floats, &r->floats_cap, n * width,
                                       sizeof(*r->floats), "activations"))
        return false;
    out->rows = r;
    out->floats = r->floats;
    return true;
}

/* Writes columns first … first + n - 1, which are whole groups, of rows i … i + n_rows - 1, which
 * lie within a block, in the form of o. */
static void put_rows(const struct cpu *c, const struct operand *o, struct activation_rows *to,
                     size_t i, size_t n_rows, size_t first, size_t n, const float *from,
                     size_t stride, bool is_normed)
{
    size_t block = i / ACT_ROWS * ACT_ROWS, left = o->n - block;
    size_t n_groups = o->width / GROUP_VALUES, step = left < ACT_ROWS ? left : ACT_ROWS;
    struct act_slice s = {.in = from,
                          .n_rows = n_rows,
                          .n_groups = n / GROUP_VALUES,
                          .stride = stride,
                          .form = o->form,
                          .above = activation_outlier_above(is_normed),
                          .step = step,
                          .outlier_stride = n_groups};
    size_t at = block * n_groups + first / GROUP_VALUES * step + i % ACT_ROWS;

    if (o->is_quantised) {
        s.out = to->acts + at;
        s.places = to->places + at;
        s.outliers = to->outliers + i * n_groups + first / GROUP_VALUES;
        c->kernels->quantise(&s);
        return;
    }
    for (size_t r = 0; r < n_rows; r++)
        memcpy(to->floats + (i + r) * o->width + first, from + r * stride, n * sizeof(*from));
}

static void list_outliers_piece(void *arg, size_t begin, size_t end)
{
    const struct operand *o = arg;
    size_t n_groups = o->width / GROUP_VALUES;

    for (; begin < end; begin++) {
        size_t row = begin * ACT_ROWS, left = o->n - row, at = row * n_groups;

        outliers_list(o->rows->outliers + at, o->rows->counts + begin, o->rows->columns + at,
                      o->rows->places + at, n_groups, left < ACT_ROWS ? left : ACT_ROWS);
    }
}

static void list_outliers(const struct cpu *c, struct operand *o)
{
    size_t block_values = ACT_ROWS * o->width / GROUP_VALUES;

    if (o->is_quantised)
        thread_pool_for(c->pool, count_blocks(o->n), 1 + OUTLIERS_PIECE / (1 + block_values),
                        list_outliers_piece, o);
}

/* The preparing of rows. */
struct preparation {
    const struct cpu *cpu;
    struct activation_rows *rows;
    struct operand operand;
    const float *from, *gain;
    float eps;
    float *normed; /* scratch for the rows between the norm and the rounding */
};

static void prepare_piece(void *arg, size_t begin, size_t end)
{
    const struct preparation *p = arg;
    size_t width = p->operand.width;

    for (size_t i = begin; i < end; i++) {
        const float *row = p->from + i * width;

        if (p->gain != NULL) {
            p->cpu->kernels->rms_norm(row, p->gain, p->eps, width, p->normed + i * width);
            row = p->normed + i * width;
        }
        if (p->operand.is_quantised)
            put_rows(p->cpu, &p->operand, p->rows, i, 1, 0, width, row, width, p->gain != NULL);
    }
}

/* Prepares rows of the input as w reads them, in r. False: no memory, and cpu_fail was called. */
static bool operand_prepare(struct operand *out, struct cpu *c, struct activation_rows *r,
                            const struct input *in, size_t n, const struct weight *w)
{
    size_t width = w->tensor.n_cols;
    struct preparation p = {.cpu = c, .rows = r, .from = cpu_read(in->x, n, width), .eps = in->eps};

    if (!operand_make_room(&p.operand, c, r, n, w))
        return false;
    if (in->gain != NULL) {
        assert(in->gain->row != NULL && in->gain->tensor.n_cols == width);
        if (!cpu_reserve(c, (void **)&r->floats, &r->floats_cap, n * width, sizeof(*r->floats),
                         "activations"))
            return false;
        p.gain = in->gain->row;
        p.normed = r->floats;
    }
    if (in->gain != NULL || w->is_quantised)
        thread_pool_for(c->pool, n, 1 + PIECE_VALUES / (1 + width), prepare_piece, &p);
    list_outliers(c, &p.operand);
    *out = p.operand;
    if (!w->is_quantised)
        out->floats = in->gain != NULL ? p.normed : p.from;
    return true;
}

static bool reads_the_same(const struct weight *a, const struct weight *b)
{
    return a->tensor.n_cols == b->tensor.n_cols && a->is_quantised == b->is_quantised &&
           a->form.bias == b->form.bias && a->form.halves == b->form.halves;
}

/* Multiplies panels first … first + n_panels - 1 of w with n_rows rows, at most ACT_ROWS, from row
 * on, which is a multiple of ACT_ROWS; out is at that row and the first panel's first column. */
static void products_multiply(const struct cpu *c, const struct operand *o, const struct weight *w,
                              size_t row, size_t n_rows, size_t first, size_t n_panels, float *out,
                              size_t stride, bool adds)
{
    const uint8_t *panels = w->panels + first * w->panel_bytes;
    size_t n_columns = w->tensor.n_rows - first * PANEL_COLUMNS;
    size_t n_groups = o->width / GROUP_VALUES;
    struct quant_slice quant = {.type = w->tensor.type,
                                .form = w->form,
                                .panels = panels,
                                .n_groups = n_groups,
                                .n_rows = n_rows,
                                .out = out,
                                .n_columns = n_columns,
                                .stride = stride,
                                .adds = adds};
    struct dense_slice dense = {
        w->tensor.type, panels, o->width, o->floats + row * o->width, n_rows, out,
        n_columns,      stride, adds};

    if (!w->is_quantised) {
        c->kernels->dense_product(&dense, 0, n_panels);
        return;
    }
    quant.acts = o->rows->acts + row * n_groups;
    quant.outliers =
        (struct act_outliers){o->rows->counts + row / ACT_ROWS, o->rows->columns + row * n_groups,
                              o->rows->outliers + row * n_groups};
    c->kernels->quant_product(&quant, 0, n_panels);
}

/* Products of one operand. */
struct products {
    const struct cpu *cpu;
    struct operand operand;
    const struct product *products;
    size_t n_products;
    bool adds;
};

/* Panels first … last - 1 of one of them, rows begin … end - 1. */
static void one_product(const struct products *p, const struct product *at, size_t first,
                        size_t last, size_t begin, size_t end)
{
    const struct weight *w = at->w;
    size_t n_columns = w->tensor.n_rows, n;
    size_t chunk =
        2 + CHUNK_BYTES / (1 + w->panel_bytes) / 2 * 2; /* kernels may take two at once */
    float *out = cpu_written(at->out, p->operand.n, n_columns);

    for (; first < last; first += n) {
        n = last - first < chunk ? last - first : chunk;
        for (size_t i = begin; i < end; i += ACT_ROWS)
            products_multiply(p->cpu, &p->operand, w, i, end - i < ACT_ROWS ? end - i : ACT_ROWS,
                              first, n, out + i * n_columns + first * PANEL_COLUMNS, n_columns,
                              p->adds);
    }
}

/* Panels are counted through all products. */
static void panels_piece(void *arg, size_t begin, size_t end)
{
    const struct products *p = arg;

    for (const struct product *at = p->products;; at++) {
        size_t n_panels = at->w->n_panels;

        if (begin < n_panels) {
            one_product(p, at, begin, end < n_panels ? end : n_panels, 0, p->operand.n);
            begin = n_panels;
        }
        if (end <= n_panels)
            return;
        begin -= n_panels;
        end -= n_panels;
    }
}

/* Blocks of rows, of all products. */
static void blocks_piece(void *arg, size_t begin, size_t end)
{
    const struct products *p = arg;

    begin *= ACT_ROWS;
    end = end * ACT_ROWS < p->operand.n ? end * ACT_ROWS : p->operand.n;
    for (size_t i = 0; i < p->n_products; i++)
        one_product(p, &p->products[i], 0, p->products[i].w->n_panels, begin, end);
}

static size_t operand_grain_of(const struct operand *o, const struct weight *w)
{
    return 1 + PIECE_BYTES / (1 + w->panel_bytes * (o->n < ACT_ROWS ? 1 : o->n / ACT_ROWS));
}

/* Whether the threads of the pool take rows instead of panels: a row then stays in the cache of one
 * of them from operator to operator, and all read the weights. That pays only with many rows,
 * evenly divided. */
static bool goes_by_rows(const struct cpu *c, size_t n_rows)
{
    size_t n_blocks = count_blocks(n_rows), n_threads = thread_pool_size(c->pool);
    size_t most = (n_blocks + n_threads - 1) / n_threads;

    return n_blocks >= MANY_BLOCKS * n_threads && most * n_threads - n_blocks <= n_blocks / UNLEVEL;
}

/* Runs the first of the products, and those after it with the same form of input; returns their
 * number. */
static size_t run_alike(struct cpu *c, const struct operand *o, const struct product *products,
                        size_t n_products, bool adds)
{
    struct products p = {.cpu = c, .operand = *o, .products = products, .adds = adds};
    size_t n_panels = 0;

    for (; p.n_products < n_products && reads_the_same(products[p.n_products].w, products[0].w);
         p.n_products++)
        n_panels += products[p.n_products].w->n_panels;
    if (goes_by_rows(c, o->n))
        thread_pool_for(c->pool, count_blocks(o->n), 1, blocks_piece, &p);
    else
        thread_pool_for(c->pool, n_panels, operand_grain_of(o, products[0].w), panels_piece, &p);
    return p.n_products;
}

void cpu_matmul(struct backend *b, const struct input *in, size_t n, const struct product *products,
                size_t n_products)
{
    struct operand o;

    for (size_t i = 0; n > 0 && i < n_products;) {
        assert(in->x != products[i].out);
        if (!operand_prepare(&o, to_cpu(b), &to_cpu(b)->inputs, in, n, products[i].w))
            return;
        i += run_alike(to_cpu(b), &o, products + i, n_products - i, false);
    }
}

void cpu_matmul_add(struct backend *b, const struct input *in, size_t n,
                    const struct product *product)
{
    struct operand o;

    assert(in->x != product->out);
    if (n > 0 && operand_prepare(&o, to_cpu(b), &to_cpu(b)->inputs, in, n, product->w))
        (void)run_alike(to_cpu(b), &o, product, 1, true);
}

/* Gated networks. */
struct gating {
    struct cpu *cpu;
    struct operand gate_in, up_in, hidden;
    const struct ffn *ffn;
};

/* Computes panels first … of both weights with the rows of a block, in the form that down reads. */
static void gate_block(const struct gating *g, size_t row, size_t first, size_t n_panels)
{
    _Alignas(LINE_BYTES) float gate[ACT_ROWS][GATED_COLUMNS], up[ACT_ROWS][GATED_COLUMNS];
    const struct cpu *c = g->cpu;
    void (*activate)(float *, const float *, size_t) =
        g->ffn->activation == ACTIVATION_GELU ? c->kernels->geglu : c->kernels->swiglu;
    size_t left = g->hidden.n - row, n_rows = left < ACT_ROWS ? left : ACT_ROWS;
    size_t column = first * PANEL_COLUMNS, n = g->hidden.width - column;

    n = n < n_panels * PANEL_COLUMNS ? n : n_panels * PANEL_COLUMNS;
    products_multiply(c, &g->gate_in, g->ffn->gate, row, n_rows, first, n_panels, gate[0],
                      GATED_COLUMNS, false);
    products_multiply(c, &g->up_in, g->ffn->up, row, n_rows, first, n_panels, up[0], GATED_COLUMNS,
                      false);
    for (size_t i = 0; i < n_rows; i++)
        activate(gate[i], up[i], n);
    put_rows(c, &g->hidden, &g->cpu->hidden, row, n_rows, column, n, gate[0], GATED_COLUMNS, false);
}

/* Panels first … last - 1 of both weights, rows begin … end - 1. */
static void gate_rows(const struct gating *g, size_t first, size_t last, size_t begin, size_t end)
{
    for (; first < last; first += GATED_PANELS)
        for (size_t row = begin; row < end; row += ACT_ROWS)
            gate_block(g, row, first, last - first < GATED_PANELS ? last - first : GATED_PANELS);
}

/* Pairs of panels, whose outputs are a group of the input of down. */
static void gated_pairs_piece(void *arg, size_t begin, size_t end)
{
    const struct gating *g = arg;
    size_t n_panels = g->ffn->gate->n_panels;

    gate_rows(g, begin * PAIR, end * PAIR < n_panels ? end * PAIR : n_panels, 0, g->hidden.n);
}

static void gated_blocks_piece(void *arg, size_t begin, size_t end)
{
    const struct gating *g = arg;

    end *= ACT_ROWS;
    gate_rows(g, 0, g->ffn->gate->n_panels, begin * ACT_ROWS,
              end < g->hidden.n ? end : g->hidden.n);
}

void cpu_ffn(struct backend *b, const struct input *in, size_t n, const struct ffn *f,
             struct buffer *out)
{
    struct cpu *c = to_cpu(b);
    struct gating g = {.cpu = c, .ffn = f};
    const struct product down = {f->down, out};
    size_t grain;

    assert(f->up->tensor.n_rows == f->gate->tensor.n_rows);
    assert(f->down->tensor.n_cols == f->gate->tensor.n_rows);
    if (n == 0 || !operand_make_room(&g.hidden, c, &c->hidden, n, f->down) ||
        !operand_prepare(&g.gate_in, c, &c->inputs, in, n, f->gate))
        return;
    g.up_in = g.gate_in;
    if (!reads_the_same(f->gate, f->up) &&
        !operand_prepare(&g.up_in, c, &c->up_inputs, in, n, f->up))
        return;
    grain = (operand_grain_of(&g.gate_in, f->gate) + PAIR - 1) / PAIR;
    if (goes_by_rows(c, n))
        thread_pool_for(c->pool, count_blocks(n), 1, gated_blocks_piece, &g);
    else
        thread_pool_for(c->pool, (f->gate->n_panels + PAIR - 1) / PAIR, grain, gated_pairs_piece,
                        &g);
    list_outliers(c, &g.hidden);
    (void)run_alike(c, &g.hidden, &down, 1, !f->stores);
}
