/* Makes and closes a model: the shapes of its parameters, their buffers on the backend, and fresh
 * numbers in them. */
#include "agents/seq2seq/seq2seq.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/seq2seq/parts.h"
#include "agents/words/word_table.h"
#include "base/alloc.h"
#include "base/counter_rng.h"
#include "compute/backends.h"

const char *const seq2seq_param_names[N_SEQ2SEQ_PARAMS] = {
    [PARAM_WORDS] = "words.weight",
    [PARAM_READ_IN] = "reader.in.weight",
    [PARAM_READ_IN_BIAS] = "reader.in.bias",
    [PARAM_READ_BACK] = "reader.back.weight",
    [PARAM_READ_BACK_BIAS] = "reader.back.bias",
    [PARAM_WRITE_IN] = "writer.in.weight",
    [PARAM_WRITE_IN_BIAS] = "writer.in.bias",
    [PARAM_WRITE_BACK] = "writer.back.weight",
    [PARAM_WRITE_BACK_BIAS] = "writer.back.bias",
    [PARAM_OUT] = "output.weight",
    [PARAM_OUT_BIAS] = "output.bias",
};

bool seq2seq_take(struct seq2seq *s, struct buffer **b, size_t n, size_t width, struct error *err)
{
    size_t size_bytes;

    if (*b != NULL)
        return true;
    if (!__builtin_mul_overflow(n, width * sizeof(float), &size_bytes))
        *b = s->backend->type->buffer_open(s->backend, size_bytes);
    else
        size_bytes = SIZE_MAX;
    if (*b == NULL)
        (void)error_no_memory(err, size_bytes, "a seq2seq");
    return *b != NULL;
}

void seq2seq_give(struct seq2seq *s, struct buffer **b)
{
    if (*b != NULL)
        s->backend->type->buffer_close(s->backend, *b);
    *b = NULL;
}

static enum status seq2seq_check(const struct seq2seq_spec *spec, struct error *err)
{
    if (spec->n_dims == 0 || spec->n_dims > SEQ2SEQ_MAX_WIDTH)
        return error_field(err, "embedding_size", "is %zu, it must be from 1 to %d", spec->n_dims,
                           SEQ2SEQ_MAX_WIDTH);
    if (spec->n_hidden == 0 || spec->n_hidden > SEQ2SEQ_MAX_WIDTH)
        return error_field(err, "hidden_size", "is %zu, it must be from 1 to %d", spec->n_hidden,
                           SEQ2SEQ_MAX_WIDTH);
    return STATUS_OK;
}

static void seq2seq_shape(struct seq2seq *s)
{
    const size_t d = s->spec.n_dims, h = s->spec.n_hidden, v = word_table_n(s->words);
    const float bound = 1.0F / sqrtf((float)h);
    const struct {
        size_t n_rows, n_cols;
        float bound;
    } shapes[N_SEQ2SEQ_PARAMS] = {
        [PARAM_WORDS] = {v, d, 1},
        [PARAM_READ_IN] = {4 * h, d, bound},
        [PARAM_READ_IN_BIAS] = {1, 4 * h, bound},
        [PARAM_READ_BACK] = {4 * h, h, bound},
        [PARAM_READ_BACK_BIAS] = {1, 4 * h, bound},
        [PARAM_WRITE_IN] = {4 * h, d, bound},
        [PARAM_WRITE_IN_BIAS] = {1, 4 * h, bound},
        [PARAM_WRITE_BACK] = {4 * h, h, bound},
        [PARAM_WRITE_BACK_BIAS] = {1, 4 * h, bound},
        [PARAM_OUT] = {v, h, bound},
        [PARAM_OUT_BIAS] = {1, v, bound},
    };

    for (size_t i = 0; i < N_SEQ2SEQ_PARAMS; i++) {
        s->params[i].n_rows = shapes[i].n_rows;
        s->params[i].n_cols = shapes[i].n_cols;
        s->params[i].bound = shapes[i].bound;
    }
    s->reader.in = PARAM_READ_IN;
    s->reader.back = PARAM_READ_BACK;
    s->writer.in = PARAM_WRITE_IN;
    s->writer.back = PARAM_WRITE_BACK;
}

static enum status seq2seq_find_newline(struct seq2seq *s, struct error *err)
{
    struct buf ids;
    enum status rc;

    buf_init(&ids, SIZE_MAX);
    rc = word_table_encode(s->words, "\n", 1, &ids, err);
    if (rc == STATUS_OK)
        memcpy(&s->newline, ids.data, sizeof(s->newline));
    buf_deinit(&ids);
    return rc;
}

enum status seq2seq_make(struct seq2seq **out, const struct seq2seq_spec *spec,
                         struct word_table *words, const struct seq2seq_config *config,
                         struct error *err)
{
    const struct backend_config backend_config = {.n_threads = config->n_threads};
    struct seq2seq *s = xalloc(sizeof(*s));
    enum status rc = seq2seq_check(spec, err);

    s->spec = *spec;
    s->words = words;
    memcpy(s->version, "1", 2);
    if (rc == STATUS_OK)
        rc = seq2seq_find_newline(s, err);
    if (rc == STATUS_OK)
        rc = backend_open(&s->backend, config->backend, &backend_config, err);
    if (rc == STATUS_OK && (s->backend->type->net == NULL || s->backend->type->net->add_at == NULL))
        rc = error_set(err, STATUS_UNIMPLEMENTED,
                       "a seq2seq agent cannot run on the backend '%.40s'", config->backend);
    if (rc == STATUS_OK)
        seq2seq_shape(s);
    for (size_t i = 0; rc == STATUS_OK && i < N_SEQ2SEQ_PARAMS; i++)
        if (!seq2seq_take(s, &s->params[i].value, s->params[i].n_rows, s->params[i].n_cols, err))
            rc = err->status;
    if (rc == STATUS_OK)
        *out = s;
    else
        seq2seq_close(s);
    return rc;
}

size_t seq2seq_n_numbers(const struct seq2seq *s)
{
    size_t n = 0;

    for (size_t i = 0; i < N_SEQ2SEQ_PARAMS; i++)
        n += s->params[i].n_rows * s->params[i].n_cols;
    return n;
}

enum status seq2seq_numbers(struct seq2seq *s, float *out, struct error *err)
{
    for (size_t i = 0; i < N_SEQ2SEQ_PARAMS; i++) {
        const size_t n = s->params[i].n_rows * s->params[i].n_cols;

        s->backend->type->download(s->backend, out, s->params[i].value, n * sizeof(float));
        out += n;
    }
    return s->backend->type->sync(s->backend, err);
}

enum status seq2seq_set_numbers(struct seq2seq *s, const float *numbers, struct error *err)
{
    for (size_t i = 0; i < N_SEQ2SEQ_PARAMS; i++) {
        const size_t n = s->params[i].n_rows * s->params[i].n_cols;

        s->backend->type->upload(s->backend, s->params[i].value, numbers, n * sizeof(float));
        numbers += n;
    }
    return s->backend->type->sync(s->backend, err);
}

enum status seq2seq_create(struct seq2seq **out, const struct seq2seq_spec *spec,
                           struct word_table *words, const struct seq2seq_config *config,
                           struct error *err)
{
    struct seq2seq *s;
    float *numbers, *at;
    enum status rc = seq2seq_make(&s, spec, words, config, err);

    if (rc != STATUS_OK)
        return rc;
    at = numbers = try_alloc(seq2seq_n_numbers(s), sizeof(float));
    if (numbers == NULL) {
        rc = error_no_memory(err, seq2seq_n_numbers(s) * sizeof(float), "a seq2seq");
        seq2seq_close(s);
        return rc;
    }
    for (uint32_t i = 0; i < N_SEQ2SEQ_PARAMS; i++) {
        const struct seq2seq_param *p = &s->params[i];

        for (size_t k = 0; k < p->n_rows * p->n_cols; k++)
            *at++ = p->bound * (2.0F * counter_rng_uniform(spec->seed, i, (uint32_t)k, 1) - 1.0F);
    }
    rc = seq2seq_set_numbers(s, numbers, err);
    free(numbers);
    if (rc == STATUS_OK)
        *out = s;
    else
        seq2seq_close(s);
    return rc;
}

enum status seq2seq_prepare(struct seq2seq *s, struct error *err)
{
    for (size_t i = 0; i < N_SEQ2SEQ_PARAMS; i++) {
        struct seq2seq_param *p = &s->params[i];

        if (p->second != NULL)
            continue;
        if (!seq2seq_take(s, &p->gradient, p->n_rows, p->n_cols, err) ||
            !seq2seq_take(s, &p->first, p->n_rows, p->n_cols, err) ||
            !seq2seq_take(s, &p->second, p->n_rows, p->n_cols, err))
            return err->status;
        s->backend->type->net->zero(s->backend, p->first, p->n_rows, p->n_cols);
        s->backend->type->net->zero(s->backend, p->second, p->n_rows, p->n_cols);
    }
    return STATUS_OK;
}

static void seq2seq_cell_close(struct seq2seq *s, struct seq2seq_cell *cell)
{
    for (size_t t = 0; t < cell->n_steps; t++) {
        seq2seq_give(s, &cell->steps[t].x);
        seq2seq_give(s, &cell->steps[t].gates);
        seq2seq_give(s, &cell->steps[t].c);
        seq2seq_give(s, &cell->steps[t].h);
        seq2seq_give(s, &cell->steps[t].dtop);
    }
    free(cell->steps);
}

void seq2seq_close(struct seq2seq *s)
{
    if (s == NULL)
        return;
    if (s->backend != NULL) {
        struct buffer **const all[] = {
            &s->zeros, &s->h,  &s->c,        &s->h_start,  &s->c_start, &s->from_h, &s->dgates,
            &s->dh,    &s->dc, &s->dh_start, &s->dc_start, &s->dx,      &s->logits, &s->logp};

        for (size_t i = 0; i < N_SEQ2SEQ_PARAMS; i++) {
            seq2seq_give(s, &s->params[i].value);
            seq2seq_give(s, &s->params[i].gradient);
            seq2seq_give(s, &s->params[i].first);
            seq2seq_give(s, &s->params[i].second);
        }
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
            seq2seq_give(s, all[i]);
        seq2seq_cell_close(s, &s->reader);
        seq2seq_cell_close(s, &s->writer);
    }
    backend_close(s->backend);
    word_table_close(s->words);
    free(s->host_logp);
    free(s->identity);
    free(s);
}

const struct word_table *seq2seq_words(const struct seq2seq *s)
{
    return s->words;
}
