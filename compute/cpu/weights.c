/* Weights, and rows of them. Panels live in slabs: large mappings that huge pages can back, each
 * unmapped with the last weight in it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/cpu/panels.h"
#include "compute/cpu/parts.h"

enum {
    SLAB_BYTES = 32 << 20,
    PIECE_BYTES = 16384,    /* of panels read for one row: a smaller piece is not worth sharing */
    PIECE_VALUES = 8192,    /* of a row-wise operator */
    READ_BYTES = 128 << 10, /* of a weight at a time */
};

struct slab {
    struct slab *next;
    uint8_t *at;
    size_t size_bytes, used_bytes, n_weights;
};

static struct slab *slab_open(struct cpu *c, size_t size_bytes)
{
    struct slab *s = try_alloc(1, sizeof(*s));

    if (s == NULL)
        return NULL;
    s->size_bytes = size_bytes > SLAB_BYTES ? size_bytes : SLAB_BYTES;
    s->at = cpu_map(s->size_bytes);
    if (s->at == NULL) {
        free(s);
        return NULL;
    }
    s->next = c->slabs;
    c->slabs = s;
    return s;
}

static void slab_give_back(struct cpu *c, struct slab *s)
{
    struct slab **at = &c->slabs;

    if (--s->n_weights > 0)
        return;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    cpu_unmap(s->at, s->size_bytes);
    free(s);
}

static bool take_panels(struct cpu *c, struct weight *w, size_t size_bytes)
{
    struct slab *s = c->slabs;

    if (s == NULL || s->size_bytes - s->used_bytes < size_bytes)
        s = slab_open(c, size_bytes);
    if (s == NULL)
        return false;
    w->slab = s;
    w->panels = s->at + s->used_bytes;
    s->used_bytes += size_bytes;
    s->n_weights++;
    return true;
}

struct packing {
    struct weight *w;
    const struct tensor *from;
    atomic_flag has_failed;
    struct error err; /* of the first piece that failed */
};

static void packing_fail(struct packing *p, const struct error *err)
{
    if (!atomic_flag_test_and_set(&p->has_failed))
        p->err = *err;
}

/* Rows are read into memory that stays in the cache until they are packed. */
static void weights_pack_piece(void *arg, size_t begin, size_t end)
{
    struct packing *p = arg;
    const struct tensor *t = p->from;
    size_t row_bytes = dtype_row_bytes(t->type, t->n_cols);
    size_t step = 1 + READ_BYTES / (PANEL_COLUMNS * row_bytes);
    uint8_t *rows;
    struct error err;

    if (step > end - begin)
        step = end - begin;
    rows = try_realloc(NULL, step * PANEL_COLUMNS, row_bytes); /* not zeroed */
    if (rows == NULL) {
        (void)error_no_memory(&err, step * PANEL_COLUMNS * row_bytes, t->name);
        packing_fail(p, &err);
        return;
    }
    for (size_t first = begin; first < end; first += step) {
        size_t last = end - first < step ? end : first + step;
        size_t n_rows = last * PANEL_COLUMNS < t->n_rows ? last * PANEL_COLUMNS : t->n_rows;

        n_rows -= first * PANEL_COLUMNS;
        if (tensor_read(t, first * PANEL_COLUMNS, n_rows, rows, &err) != STATUS_OK) {
            packing_fail(p, &err);
            break;
        }
        panels_pack(p->w->panels, t, rows, first, last);
    }
    free(rows);
}

static enum status pack(struct cpu *c, struct weight *w, const struct tensor *from,
                        struct error *err)
{
    struct packing p = {.w = w, .from = from, .has_failed = ATOMIC_FLAG_INIT};

    thread_pool_for(c->pool, w->n_panels, 1 + PIECE_BYTES / (1 + w->panel_bytes),
                    weights_pack_piece, &p);
    if (p.err.status != STATUS_OK)
        *err = p.err;
    return p.err.status;
}

enum status cpu_weight_open(struct backend *b, const struct tensor *t, struct weight **out,
                            struct error *err)
{
    struct cpu *c = to_cpu(b);
    struct weight *w = NULL;
    size_t size_bytes;
    enum status rc = STATUS_OK;

    w = try_alloc(1, sizeof(*w));
    if (w == NULL)
        return error_no_memory(err, sizeof(*w), t->name);
    w->tensor = *t;
    w->tensor.data = NULL; /* the panels hold all of it */
    w->tensor.file = NULL;
    w->is_quantised = block_form_of(&w->form, t->type);
    w->n_panels = (t->n_rows + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
    w->panel_bytes = panel_bytes(t);
    if (__builtin_mul_overflow(w->n_panels,
                               (w->panel_bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES,
                               &size_bytes) ||
        !take_panels(c, w, size_bytes)) {
        rc = error_no_memory(err, size_bytes, t->name);
        goto out;
    }
    rc = pack(c, w, t, err);
    if (rc != STATUS_OK)
        goto out;
    if (t->n_rows == 1) {
        w->row = try_alloc(t->n_cols, sizeof(*w->row));
        if (w->row == NULL) {
            rc = error_no_memory(err, t->n_cols * sizeof(*w->row), t->name);
            goto out;
        }
        panels_read_row(w->panels, t, 0, w->row);
    }
    *out = w;
    w = NULL;
out:
    cpu_weight_close(b, w);
    return rc;
}

void cpu_weight_close(struct backend *b, struct weight *w)
{
    if (w == NULL)
        return;
    if (w->slab != NULL)
        slab_give_back(to_cpu(b), w->slab);
    free(w->row);
    free(w);
}

struct embedding {
    const struct weight *table;
    const int32_t *ids;
    float *out;
};

static void embed_piece(void *arg, size_t begin, size_t end)
{
    const struct embedding *e = arg;
    const struct tensor *t = &e->table->tensor;

    for (size_t i = begin; i < end; i++) {
        assert(e->ids[i] >= 0);
        panels_read_row(e->table->panels, t, (size_t)e->ids[i], e->out + i * t->n_cols);
    }
}

void cpu_embed(struct backend *b, const struct weight *table, const int32_t *ids, size_t n,
               struct buffer *out)
{
    struct cpu *c = to_cpu(b);
    size_t width = table->tensor.n_cols;
    struct embedding e = {table, ids, cpu_written(out, n, width)};

    thread_pool_for(c->pool, n, 1 + PIECE_VALUES / (1 + width), embed_piece, &e);
}
