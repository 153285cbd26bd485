/* A head is a row of stages, each a product with a bias, an activation and a norm, of which it may
 * have some. Their weights are kept as floats. */
#include "compute/encoder/head.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/real.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/tensor.h"
#include "compute/numerics/dtype.h"

enum { MAX_STAGES = 2, MAX_OUT = 1 << 16 };

enum head_activation { HEAD_LINEAR, HEAD_TANH, HEAD_GELU };

struct head_stage {
    size_t n_in, n_out;
    float *weight;                       /* [n_out][n_in] */
    float *bias, *norm_gain, *norm_bias; /* [n_out], or NULL */
    enum head_activation activation;
};

struct head {
    struct head_stage stages[MAX_STAGES];
    size_t n_stages, n_out;
    double norm_eps;
    double *from, *to; /* [the widest] */
};

static const char *const names[] = {
    "dense_2.weight",  "dense_3.weight", "cls.weight",        "cls.bias",
    "cls.norm.weight", "cls.norm.bias",  "cls.output.weight", "cls.output.bias",
};

bool head_has_tensor(const char *name)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static enum status decode_rows(float *out, const struct tensor *t, struct error *err)
{
    const size_t row_bytes = dtype_row_bytes(t->type, t->n_cols);
    unsigned char *row = try_alloc(row_bytes, 1);
    enum status rc =
        row != NULL ? STATUS_OK : error_no_memory(err, row_bytes, "a row of a head's weights");

    for (size_t i = 0; rc == STATUS_OK && i < t->n_rows; i++) {
        rc = tensor_read(t, i, 1, row, err);
        if (rc == STATUS_OK)
            dtype_decode(t->type, row, t->n_cols, out + i * t->n_cols);
    }
    free(row);
    return rc;
}

/* The numbers of a tensor, which has n_cols columns; *out is NULL where there is none. n_rows 0:
 * any. */
static enum status head_read(float **out, size_t *ret_n_rows, const struct gguf *g,
                             const char *name, size_t n_rows, size_t n_cols, struct error *err)
{
    const struct tensor *t;
    enum status rc = gguf_tensor(g, name, &t, err);

    *out = NULL;
    if (rc != STATUS_OK)
        return rc == STATUS_NOT_FOUND ? STATUS_OK : rc;
    if (t->n_cols != n_cols || t->n_rows > MAX_OUT || (n_rows != 0 && t->n_rows != n_rows))
        return error_set(err, STATUS_DATA_LOSS,
                         "%s: tensor '%s' is %zu x %zu, it must have %zu columns", gguf_path(g),
                         t->name, t->n_rows, t->n_cols, n_cols);
    *out = try_alloc(t->n_rows * t->n_cols, sizeof(**out));
    if (*out == NULL)
        return error_no_memory(err, t->n_rows * t->n_cols * sizeof(**out), t->name);
    *ret_n_rows = t->n_rows;
    return decode_rows(*out, t, err);
}

/* Adds the stage of a weight, if the file has it; bias may be NULL. */
static enum status head_add(struct head *h, const struct gguf *g, const char *weight,
                            const char *bias, enum head_activation activation, struct error *err)
{
    struct head_stage *s = &h->stages[h->n_stages];
    size_t ignored;

    *s = (struct head_stage){.n_in = h->n_out, .activation = activation};
    if (head_read(&s->weight, &s->n_out, g, weight, 0, s->n_in, err) != STATUS_OK)
        return err->status;
    if (s->weight == NULL)
        return STATUS_OK;
    h->n_stages++;
    h->n_out = s->n_out;
    return bias != NULL ? head_read(&s->bias, &ignored, g, bias, 1, s->n_out, err) : STATUS_OK;
}

static enum status head_read_rank(struct head *h, const struct gguf *g, bool uses_gelu,
                                  struct error *err)
{
    struct head_stage *first = &h->stages[0];
    size_t ignored;

    if (head_add(h, g, "cls.weight", "cls.bias", uses_gelu ? HEAD_GELU : HEAD_TANH, err) !=
        STATUS_OK)
        return err->status;
    if (h->n_stages == 1 && (head_read(&first->norm_gain, &ignored, g, "cls.norm.weight", 1,
                                       first->n_out, err) != STATUS_OK ||
                             head_read(&first->norm_bias, &ignored, g, "cls.norm.bias", 1,
                                       first->n_out, err) != STATUS_OK))
        return err->status;
    if (head_add(h, g, "cls.output.weight", "cls.output.bias", HEAD_LINEAR, err) != STATUS_OK)
        return err->status;
    if (h->n_stages == 1)
        first->activation = HEAD_LINEAR; /* a lone cls makes the scores */
    if (h->n_stages > 0 && h->n_out > 2)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "%s: its head has %zu classes; only heads of one score, or of yes and no, "
                         "are supported",
                         gguf_path(g), h->n_out);
    return STATUS_OK;
}

static enum status head_open_scratch(struct head *h, size_t width, struct error *err)
{
    for (size_t i = 0; i < h->n_stages; i++)
        width = h->stages[i].n_out > width ? h->stages[i].n_out : width;
    h->from = try_alloc(width, sizeof(*h->from));
    h->to = try_alloc(width, sizeof(*h->to));
    return h->from != NULL && h->to != NULL
               ? STATUS_OK
               : error_no_memory(err, 2 * width * sizeof(*h->from), "a head");
}

enum status head_open(struct head **out, const struct gguf *g, const struct head_config *config,
                      struct error *err)
{
    struct head *h = try_alloc(1, sizeof(*h));
    enum status rc;

    *out = NULL;
    if (h == NULL)
        return error_no_memory(err, sizeof(*h), "a head");
    h->n_out = config->width;
    h->norm_eps = (double)config->norm_eps;
    if (config->kind == HEAD_RANK) {
        rc = head_read_rank(h, g, config->uses_gelu, err);
    } else {
        rc = head_add(h, g, "dense_2.weight", NULL, HEAD_LINEAR, err);
        if (rc == STATUS_OK)
            rc = head_add(h, g, "dense_3.weight", NULL, HEAD_LINEAR, err);
    }
    if (rc == STATUS_OK && h->n_stages > 0)
        rc = head_open_scratch(h, config->width, err);
    if (rc == STATUS_OK && h->n_stages > 0) {
        *out = h;
        h = NULL; /* given away */
    }
    head_close(h);
    return rc;
}

void head_close(struct head *h)
{
    if (h == NULL)
        return;
    for (size_t i = 0; i < MAX_STAGES; i++) {
        free(h->stages[i].weight);
        free(h->stages[i].bias);
        free(h->stages[i].norm_gain);
        free(h->stages[i].norm_bias);
    }
    free(h->from);
    free(h->to);
    free(h);
}

size_t head_n_out(const struct head *h)
{
    return h->n_out;
}

static double head_activated(enum head_activation kind, double x)
{
    if (kind == HEAD_TANH)
        return 1.0 - 2.0 / (1.0 + real_exp(2.0 * x));
    return kind == HEAD_GELU ? x * real_normal_below(x) : x;
}

static void head_norm(const struct head_stage *s, double eps, double *x)
{
    double mean = 0, square = 0;

    for (size_t i = 0; i < s->n_out; i++)
        mean += x[i];
    mean /= (double)s->n_out;
    for (size_t i = 0; i < s->n_out; i++)
        square += (x[i] - mean) * (x[i] - mean);
    square = sqrt(square / (double)s->n_out + eps);
    for (size_t i = 0; i < s->n_out; i++)
        x[i] = (x[i] - mean) / square * (double)s->norm_gain[i] +
               (s->norm_bias != NULL ? (double)s->norm_bias[i] : 0.0);
}

static void stage_run(const struct head_stage *s, double eps, const double *in, double *out)
{
    for (size_t r = 0; r < s->n_out; r++) {
        const float *row = s->weight + r * s->n_in;
        double sum = s->bias != NULL ? (double)s->bias[r] : 0.0;

        for (size_t c = 0; c < s->n_in; c++)
            sum += (double)row[c] * in[c];
        out[r] = head_activated(s->activation, sum);
    }
    if (s->norm_gain != NULL)
        head_norm(s, eps, out);
}

void head_run(struct head *h, const float *in, float *out)
{
    for (size_t c = 0; c < h->stages[0].n_in; c++)
        h->from[c] = (double)in[c];
    for (size_t i = 0; i < h->n_stages; i++) {
        double *swap = h->from;

        stage_run(&h->stages[i], h->norm_eps, h->from, h->to);
        h->from = h->to;
        h->to = swap;
    }
    for (size_t r = 0; r < h->n_out; r++)
        out[r] = (float)h->from[r];
}

float head_relevance(const float *scores, size_t n)
{
    const double other = n > 1 ? (double)scores[1] : 0.0;

    return (float)(1.0 / (1.0 + real_exp(other - (double)scores[0])));
}
