/* Passes over packed rows. Both cells go through time step by step. Rows are ordered by falling
 * length, so the rows of a step are the first ones, and the step computes no others. The reader
 * orders rows by their texts, the writer by their labels; states and gradients are copied from one
 * order into the other.
 *
 * Learning computes the output layer's gradient while the writer goes forward, so that the logits
 * of only one step are kept; then both cells go backward. Host arrays that operators read live
 * until the sync at the end of the pass. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/seq2seq/parts.h"
#include "agents/words/word_table.h"
#include "base/alloc.h"

/* One direction of a pass: words by time, packed. */
struct word_steps {
    uint32_t *ids;  /* [n_cells] the words of each step, one step behind the other */
    size_t *n_rows; /* [n_steps] rows that have a word in the step; never rising */
    size_t *first;  /* [n_steps] where the step's words begin in ids */
    size_t n_steps;
    uint32_t *order; /* [n] index of each row, the longest row first */
};

struct pass {
    struct seq2seq *s;
    struct seq2seq_row *rows;
    size_t n;
    struct word_steps text, label;   /* label: the writer's inputs, __start__ and then the label */
    int32_t *targets;                /* [cells of label] the word that should follow each input */
    float *weights;                  /* [cells of label] weights of the targets in the loss */
    uint32_t *to_writer, *to_reader; /* [n] where a row of one order is in the other */
    bool learns;                     /* gradients are computed */
    bool replies; /* the reader's steps are not needed again, so two of them alternate */
};

static const int32_t no_words[] = {WORD_NULL};

static const int32_t *seq2seq_text(const struct seq2seq_row *r, size_t *ret_n)
{
    *ret_n = r->n_text != 0 ? r->n_text : 1;
    return r->n_text != 0 ? r->text : no_words;
}

/* --- the order of rows ------------------------------------------------------------------------ */

struct row_length {
    size_t n;
    uint32_t row;
};

static int row_length_compare(const void *a, const void *b)
{
    const struct row_length *x = a, *y = b;

    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static void word_steps_free(struct word_steps *w)
{
    free(w->ids);
    free(w->n_rows);
    free(w->first);
    free(w->order);
}

/* Orders rows by lengths, which it sorts, and makes room for their cells. */
static enum status word_steps_make(struct word_steps *w, struct row_length *lengths, size_t n,
                                   struct error *err)
{
    size_t n_cells = 0;

    qsort(lengths, n, sizeof(lengths[0]), row_length_compare);
    w->n_steps = lengths[0].n;
    w->n_rows = try_alloc(w->n_steps, sizeof(w->n_rows[0]));
    w->first = try_alloc(w->n_steps, sizeof(w->first[0]));
    w->order = try_alloc(n, sizeof(w->order[0]));
    if (w->n_rows == NULL || w->first == NULL || w->order == NULL)
        return error_no_memory(err, w->n_steps * sizeof(w->n_rows[0]), "a pass");
    for (size_t i = 0; i < n; i++)
        w->order[i] = lengths[i].row;
    for (size_t t = 0, left = n; t < w->n_steps; t++) {
        while (lengths[left - 1].n <= t)
            left--;
        w->n_rows[t] = left;
        w->first[t] = n_cells;
        n_cells += left;
    }
    w->ids = try_alloc(n_cells, sizeof(w->ids[0]));
    return w->ids != NULL ? STATUS_OK : error_no_memory(err, n_cells * sizeof(w->ids[0]), "a pass");
}

static size_t word_steps_n_cells(const struct word_steps *w)
{
    return w->first[w->n_steps - 1] + w->n_rows[w->n_steps - 1];
}

static enum status pass_plan_text(struct pass *p, struct row_length *lengths, struct error *err)
{
    for (size_t i = 0; i < p->n; i++)
        (void)seq2seq_text(&p->rows[i], &lengths[i].n);
    if (word_steps_make(&p->text, lengths, p->n, err) != STATUS_OK)
        return err->status;
    for (size_t t = 0; t < p->text.n_steps; t++)
        for (size_t i = 0; i < p->text.n_rows[t]; i++) {
            size_t n;

            p->text.ids[p->text.first[t] + i] =
                (uint32_t)seq2seq_text(&p->rows[p->text.order[i]], &n)[t];
        }
    return STATUS_OK;
}

static enum status pass_plan_label(struct pass *p, struct row_length *lengths, struct error *err)
{
    size_t n_cells;

    for (size_t i = 0; i < p->n; i++)
        lengths[i] = (struct row_length){.n = p->rows[i].n_label, .row = (uint32_t)i};
    if (word_steps_make(&p->label, lengths, p->n, err) != STATUS_OK)
        return err->status;
    n_cells = word_steps_n_cells(&p->label);
    p->targets = try_alloc(n_cells, sizeof(p->targets[0]));
    p->weights = try_alloc(n_cells, sizeof(p->weights[0]));
    if (p->targets == NULL || p->weights == NULL)
        return error_no_memory(err, n_cells * sizeof(p->targets[0]), "a pass");
    for (size_t t = 0; t < p->label.n_steps; t++)
        for (size_t i = 0; i < p->label.n_rows[t]; i++) {
            const size_t cell = p->label.first[t] + i;
            const int32_t *label = p->rows[p->label.order[i]].label;

            p->label.ids[cell] = t == 0 ? WORD_START : (uint32_t)label[t - 1];
            p->targets[cell] = label[t];
            p->weights[cell] = -1.0F / (float)n_cells;
        }
    return STATUS_OK;
}

static enum status pass_check(const struct pass *p, bool has_labels, struct error *err)
{
    const size_t n_words = word_table_n(p->s->words);

    if (p->n == 0 || p->n > SEQ2SEQ_MAX_ROWS)
        return error_set(err, STATUS_INVALID, "a pass has %zu rows, it must have from 1 to %d",
                         p->n, SEQ2SEQ_MAX_ROWS);
    for (size_t i = 0; i < p->n; i++) {
        const struct seq2seq_row *r = &p->rows[i];

        if (r->n_text > SEQ2SEQ_MAX_WORDS ||
            (has_labels && (r->n_label == 0 || r->n_label > SEQ2SEQ_MAX_WORDS)))
            return error_set(err, STATUS_INVALID,
                             "a text has %zu words and its label has %zu, each may have at most %d",
                             r->n_text, r->n_label, SEQ2SEQ_MAX_WORDS);
        for (size_t k = 0; k < r->n_text; k++)
            if (r->text[k] < 0 || (size_t)r->text[k] >= n_words)
                return error_set(err, STATUS_INVALID,
                                 "token %d is not in the vocabulary, which has %zu words",
                                 r->text[k], n_words);
        for (size_t k = 0; has_labels && k < r->n_label; k++)
            if (r->label[k] < 0 || (size_t)r->label[k] >= n_words)
                return error_set(err, STATUS_INVALID,
                                 "token %d is not in the vocabulary, which has %zu words",
                                 r->label[k], n_words);
    }
    return STATUS_OK;
}

static enum status pass_plan(struct pass *p, bool has_labels, struct error *err)
{
    struct row_length *lengths;
    uint32_t *place;
    enum status rc = pass_check(p, has_labels, err);

    if (rc != STATUS_OK)
        return rc;
    lengths = try_alloc(p->n, sizeof(lengths[0]));
    place = try_alloc(p->n, sizeof(place[0]));
    p->to_writer = try_alloc(p->n, sizeof(p->to_writer[0]));
    p->to_reader = try_alloc(p->n, sizeof(p->to_reader[0]));
    if (lengths == NULL || place == NULL || p->to_writer == NULL || p->to_reader == NULL)
        rc = error_no_memory(err, p->n * sizeof(lengths[0]), "a pass");
    for (size_t i = 0; rc == STATUS_OK && i < p->n; i++)
        lengths[i].row = (uint32_t)i;
    if (rc == STATUS_OK)
        rc = pass_plan_text(p, lengths, err);
    if (rc == STATUS_OK && has_labels)
        rc = pass_plan_label(p, lengths, err);
    for (size_t i = 0; rc == STATUS_OK && i < p->n; i++)
        place[p->text.order[i]] = (uint32_t)i;
    for (size_t i = 0; rc == STATUS_OK && i < p->n; i++) {
        p->to_writer[i] = has_labels ? place[p->label.order[i]] : (uint32_t)i;
        p->to_reader[p->to_writer[i]] = (uint32_t)i;
    }
    free(lengths);
    free(place);
    return rc;
}

static void pass_end(struct pass *p)
{
    word_steps_free(&p->text);
    word_steps_free(&p->label);
    free(p->targets);
    free(p->weights);
    free(p->to_writer);
    free(p->to_reader);
}

/* --- buffers ---------------------------------------------------------------------------------- */

static enum status seq2seq_reserve_rows(struct seq2seq *s, size_t n, struct error *err)
{
    const size_t h = s->spec.n_hidden, v = word_table_n(s->words);
    struct {
        struct buffer **buffer;
        size_t width;
    } const all[] = {{&s->zeros, h},      {&s->h, h},        {&s->c, h},
                     {&s->h_start, h},    {&s->c_start, h},  {&s->from_h, 4 * h},
                     {&s->dgates, 4 * h}, {&s->dh, h},       {&s->dc, h},
                     {&s->dh_start, h},   {&s->dc_start, h}, {&s->dx, s->spec.n_dims},
                     {&s->logits, v},     {&s->logp, v}};

    if (n <= s->cap_rows)
        return STATUS_OK;
    s->cap_rows = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        seq2seq_give(s, all[i].buffer);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (!seq2seq_take(s, all[i].buffer, n, all[i].width, err))
            return err->status;
    free(s->host_logp);
    free(s->identity);
    s->host_logp = try_alloc(n, v * sizeof(float));
    s->identity = try_alloc(n, sizeof(s->identity[0]));
    if (s->host_logp == NULL || s->identity == NULL)
        return error_no_memory(err, n * v * sizeof(float), "a pass");
    s->backend->type->net->zero(s->backend, s->zeros, n, h);
    for (size_t i = 0; i < n; i++)
        s->identity[i] = (uint32_t)i;
    s->cap_rows = n;
    return STATUS_OK;
}

static enum status seq2seq_cell_reserve(struct seq2seq *s, struct seq2seq_cell *cell, size_t t,
                                        size_t n, struct error *err)
{
    const size_t h = s->spec.n_hidden;
    struct seq2seq_step *step;

    if (t >= cell->n_steps) {
        const size_t n_steps = t < 16 ? 16 : 2 * t;
        struct seq2seq_step *more = try_realloc(cell->steps, n_steps, sizeof(*more));

        if (more == NULL)
            return error_no_memory(err, n_steps * sizeof(*more), "a pass");
        memset(more + cell->n_steps, 0, (n_steps - cell->n_steps) * sizeof(*more));
        cell->steps = more;
        cell->n_steps = n_steps;
    }
    step = &cell->steps[t];
    if (n <= step->cap)
        return STATUS_OK;
    seq2seq_give(s, &step->x);
    seq2seq_give(s, &step->gates);
    seq2seq_give(s, &step->c);
    seq2seq_give(s, &step->h);
    seq2seq_give(s, &step->dtop);
    step->cap = 0;
    if (!seq2seq_take(s, &step->x, n, s->spec.n_dims, err) ||
        !seq2seq_take(s, &step->gates, n, 4 * h, err) || !seq2seq_take(s, &step->c, n, h, err) ||
        !seq2seq_take(s, &step->h, n, h, err) || !seq2seq_take(s, &step->dtop, n, h, err))
        return err->status;
    step->cap = n;
    return STATUS_OK;
}

/* Which of the reader's steps has that word. */
static size_t pass_reader_step(const struct pass *p, size_t t)
{
    return p->replies ? t % 2 : t;
}

static enum status pass_reserve(struct pass *p, struct error *err)
{
    enum status rc = seq2seq_reserve_rows(p->s, p->n, err);

    for (size_t t = 0; rc == STATUS_OK && t < p->text.n_steps; t++)
        rc = seq2seq_cell_reserve(p->s, &p->s->reader, pass_reader_step(p, t), p->text.n_rows[t],
                                  err);
    for (size_t t = 0; rc == STATUS_OK && t < p->label.n_steps; t++)
        rc = seq2seq_cell_reserve(p->s, &p->s->writer, t, p->label.n_rows[t], err);
    return rc;
}

/* --- forward ---------------------------------------------------------------------------------- */

static void seq2seq_linear(struct seq2seq *s, enum seq2seq_param_name layer,
                           const struct buffer *in, size_t n, struct buffer *out)
{
    const struct seq2seq_param *w = &s->params[layer];

    s->backend->type->net->linear(s->backend, in, w->value, s->params[layer + 1].value, n,
                                  w->n_cols, w->n_rows, out);
}

/* One step of n rows, of which ids are the words, from the state before. */
static void seq2seq_cell_forward(struct seq2seq *s, const struct seq2seq_cell *cell, size_t t,
                                 const uint32_t *ids, size_t n, const struct buffer *h_before,
                                 const struct buffer *c_before)
{
    const struct seq2seq_step *step = &cell->steps[t];
    struct backend *b = s->backend;

    b->type->gather(b, s->params[PARAM_WORDS].value, ids, n, s->spec.n_dims, step->x);
    seq2seq_linear(s, cell->in, step->x, n, step->gates);
    seq2seq_linear(s, cell->back, h_before, n, s->from_h);
    b->type->net->lstm(b, step->gates, s->from_h, c_before, n, s->spec.n_hidden, step->c, step->h);
}

/* Reads all texts; h_start and c_start are then the states in the writer's order. Rows of a step
 * are written over the first rows of h and c: what a row had when it ended stays. */
static void pass_read(struct pass *p)
{
    struct seq2seq *s = p->s;
    struct backend *b = s->backend;
    const size_t h = s->spec.n_hidden;

    for (size_t t = 0; t < p->text.n_steps; t++) {
        const struct seq2seq_step *steps = s->reader.steps;
        const size_t n = p->text.n_rows[t], k = pass_reader_step(p, t);
        const struct seq2seq_step *before = t > 0 ? &steps[pass_reader_step(p, t - 1)] : NULL;

        seq2seq_cell_forward(s, &s->reader, k, p->text.ids + p->text.first[t], n,
                             before != NULL ? before->h : s->zeros,
                             before != NULL ? before->c : s->zeros);
        b->type->gather(b, steps[k].h, s->identity, n, h, s->h);
        b->type->gather(b, steps[k].c, s->identity, n, h, s->c);
    }
    b->type->gather(b, s->h, p->to_writer, p->n, h, s->h_start);
    b->type->gather(b, s->c, p->to_writer, p->n, h, s->c_start);
}

/* loss and n_right of the step's rows. */
static enum status pass_count(struct pass *p, size_t t, struct error *err)
{
    const size_t n_words = word_table_n(p->s->words), n = p->label.n_rows[t];
    struct backend *b = p->s->backend;

    b->type->download(b, p->s->host_logp, p->s->logp, n * n_words * sizeof(float));
    if (b->type->sync(b, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < n; i++) {
        struct seq2seq_row *r = &p->rows[p->label.order[i]];
        const float *logp = p->s->host_logp + i * n_words;
        const float own = logp[p->targets[p->label.first[t] + i]];
        bool is_best = true;

        for (size_t k = 0; is_best && k < n_words; k++)
            is_best = logp[k] <= own;
        r->loss -= (double)own;
        r->n_right += is_best;
    }
    return STATUS_OK;
}

static void seq2seq_linear_backward(struct seq2seq *s, enum seq2seq_param_name layer,
                                    const struct buffer *in, const struct buffer *dout, size_t n,
                                    struct buffer *din)
{
    const struct seq2seq_param *w = &s->params[layer];

    s->backend->type->net->linear_backward(s->backend, in, w->value, dout, n, w->n_cols, w->n_rows,
                                           din, w->gradient, s->params[layer + 1].gradient);
}

/* Writes all labels, each word heard as it should have been said. */
static enum status pass_write(struct pass *p, struct error *err)
{
    struct seq2seq *s = p->s;
    struct backend *b = s->backend;
    const size_t n_words = word_table_n(s->words);

    for (size_t i = 0; i < p->n; i++) {
        p->rows[i].loss = 0;
        p->rows[i].n_right = 0;
    }
    for (size_t t = 0; t < p->label.n_steps; t++) {
        const struct seq2seq_step *steps = s->writer.steps;
        const size_t n = p->label.n_rows[t], first = p->label.first[t];

        seq2seq_cell_forward(s, &s->writer, t, p->label.ids + first, n,
                             t > 0 ? steps[t - 1].h : s->h_start,
                             t > 0 ? steps[t - 1].c : s->c_start);
        seq2seq_linear(s, PARAM_OUT, steps[t].h, n, s->logits);
        b->type->net->log_softmax(b, s->logits, n, n_words, s->logp);
        if (pass_count(p, t, err) != STATUS_OK)
            return err->status;
        if (!p->learns)
            continue;
        b->type->net->log_prob_backward(b, s->logp, p->targets + first, p->weights + first, 0, n,
                                        n_words, s->logits);
        seq2seq_linear_backward(s, PARAM_OUT, steps[t].h, s->logits, n, steps[t].dtop);
    }
    return STATUS_OK;
}

/* --- backward --------------------------------------------------------------------------------- */

/* dh and dc are by the state after the step on entry, before it on return. */
static void seq2seq_cell_backward(struct seq2seq *s, const struct seq2seq_cell *cell, size_t t,
                                  const uint32_t *ids, size_t n, const struct buffer *h_before,
                                  const struct buffer *c_before)
{
    const struct seq2seq_step *step = &cell->steps[t];
    const struct net_ops *ops = s->backend->type->net;
    struct seq2seq_param *words = &s->params[PARAM_WORDS];

    ops->lstm_backward(s->backend, step->gates, c_before, step->c, s->dh, n, s->spec.n_hidden,
                       s->dc, s->dgates);
    seq2seq_linear_backward(s, cell->in, step->x, s->dgates, n, s->dx);
    seq2seq_linear_backward(s, cell->back, h_before, s->dgates, n, s->dh);
    ops->add_at(s->backend, words->gradient, words->n_rows, ids, s->dx, n, s->spec.n_dims);
}

static void pass_backward(struct pass *p)
{
    struct seq2seq *s = p->s;
    struct backend *b = s->backend;
    const struct net_ops *ops = b->type->net;
    const size_t h = s->spec.n_hidden;

    ops->zero(b, s->dh, p->n, h);
    ops->zero(b, s->dc, p->n, h);
    for (size_t t = p->label.n_steps; t-- > 0;) {
        const struct seq2seq_step *steps = s->writer.steps;
        const size_t n = p->label.n_rows[t];

        ops->add(b, s->dh, steps[t].dtop, n, h);
        seq2seq_cell_backward(s, &s->writer, t, p->label.ids + p->label.first[t], n,
                              t > 0 ? steps[t - 1].h : s->h_start,
                              t > 0 ? steps[t - 1].c : s->c_start);
    }
    /* In the reader's order: a row's gradient waits in its place until the step of its last word.
     */
    b->type->gather(b, s->dh, p->to_reader, p->n, h, s->dh_start);
    b->type->gather(b, s->dc, p->to_reader, p->n, h, s->dc_start);
    b->type->gather(b, s->dh_start, s->identity, p->n, h, s->dh);
    b->type->gather(b, s->dc_start, s->identity, p->n, h, s->dc);
    for (size_t t = p->text.n_steps; t-- > 0;) {
        const struct seq2seq_step *steps = s->reader.steps;

        seq2seq_cell_backward(s, &s->reader, t, p->text.ids + p->text.first[t], p->text.n_rows[t],
                              t > 0 ? steps[t - 1].h : s->zeros, t > 0 ? steps[t - 1].c : s->zeros);
    }
}

/* --- the passes ------------------------------------------------------------------------------- */

static enum status seq2seq_pass(struct seq2seq *s, struct seq2seq_row *rows, size_t n, bool learns,
                                struct error *err)
{
    struct pass p = {.s = s, .rows = rows, .n = n, .learns = learns};
    enum status rc = pass_plan(&p, true, err);

    if (rc == STATUS_OK)
        rc = pass_reserve(&p, err);
    if (rc == STATUS_OK && learns)
        rc = seq2seq_prepare(s, err);
    for (size_t i = 0; rc == STATUS_OK && learns && i < N_SEQ2SEQ_PARAMS; i++)
        s->backend->type->net->zero(s->backend, s->params[i].gradient, s->params[i].n_rows,
                                    s->params[i].n_cols);
    if (rc == STATUS_OK) {
        pass_read(&p);
        rc = pass_write(&p, err);
    }
    if (rc == STATUS_OK && learns)
        pass_backward(&p);
    if (rc == STATUS_OK)
        rc = s->backend->type->sync(s->backend, err);
    pass_end(&p);
    return rc;
}

enum status seq2seq_score(struct seq2seq *s, struct seq2seq_row *rows, size_t n, struct error *err)
{
    return seq2seq_pass(s, rows, n, false, err);
}

enum status seq2seq_learn(struct seq2seq *s, struct seq2seq_row *rows, size_t n, float rate,
                          struct error *err)
{
    const struct optim adam = {
        .kind = OPTIM_ADAM, .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-8F};

    if (seq2seq_pass(s, rows, n, true, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < N_SEQ2SEQ_PARAMS; i++) {
        struct seq2seq_param *p = &s->params[i];

        s->backend->type->net->optim_step(s->backend, &adam, s->n_learned + 1, rate,
                                          p->n_rows * p->n_cols, p->gradient, p->value, p->first,
                                          p->second);
    }
    s->n_learned++;
    return s->backend->type->sync(s->backend, err);
}

enum status seq2seq_gradient(struct seq2seq *s, struct seq2seq_row *rows, size_t n, float *out,
                             struct error *err)
{
    if (seq2seq_pass(s, rows, n, true, err) != STATUS_OK)
        return err->status;
    for (size_t i = 0; i < N_SEQ2SEQ_PARAMS; i++) {
        const size_t count = s->params[i].n_rows * s->params[i].n_cols;

        s->backend->type->download(s->backend, out, s->params[i].gradient, count * sizeof(float));
        out += count;
    }
    return s->backend->type->sync(s->backend, err);
}

/* --- replies ---------------------------------------------------------------------------------- */

/* The likeliest word that may be said, the first of equal ones. */
static uint32_t likeliest(const float *logits, size_t n_words)
{
    size_t best = WORD_END;

    for (size_t k = WORD_N_SPECIALS; k < n_words; k++)
        if (logits[k] > logits[best])
            best = k;
    return (uint32_t)best;
}

/* One word for each row that has not ended; ended rows are computed along. Returns how many go on.
 */
static enum status pass_say(struct pass *p, uint32_t *ids, bool *have_ended, size_t *ret_n_left,
                            struct error *err)
{
    const size_t n_words = word_table_n(p->s->words);
    struct backend *b = p->s->backend;

    b->type->download(b, p->s->host_logp, p->s->logits, p->n * n_words * sizeof(float));
    if (b->type->sync(b, err) != STATUS_OK)
        return err->status;
    *ret_n_left = 0;
    for (size_t i = 0; i < p->n; i++) {
        const int32_t said = (int32_t)likeliest(p->s->host_logp + i * n_words, n_words);

        ids[i] = (uint32_t)said;
        have_ended[i] |= said == WORD_END;
        if (have_ended[i])
            continue;
        if (buf_append(&p->rows[p->text.order[i]].reply, &said, sizeof(said)) != STATUS_OK)
            return error_no_memory(err, sizeof(said), "a reply");
        ++*ret_n_left;
    }
    return STATUS_OK;
}

static enum status pass_generate(struct pass *p, size_t max_words, struct error *err)
{
    struct seq2seq *s = p->s;
    uint32_t *ids = try_alloc(p->n, sizeof(ids[0]));
    bool *have_ended = try_alloc(p->n, sizeof(have_ended[0]));
    size_t n_left = p->n;
    enum status rc = STATUS_OK;

    if (ids == NULL || have_ended == NULL)
        rc = error_no_memory(err, p->n * sizeof(ids[0]), "replies");
    for (size_t i = 0; rc == STATUS_OK && i < p->n; i++)
        ids[i] = WORD_START;
    for (size_t t = 0; rc == STATUS_OK && t < max_words && n_left > 0; t++) {
        const struct seq2seq_step *steps = s->writer.steps; /* two of them take turns */

        seq2seq_cell_forward(s, &s->writer, t % 2, ids, p->n,
                             t > 0 ? steps[(t - 1) % 2].h : s->h_start,
                             t > 0 ? steps[(t - 1) % 2].c : s->c_start);
        seq2seq_linear(s, PARAM_OUT, steps[t % 2].h, p->n, s->logits);
        rc = pass_say(p, ids, have_ended, &n_left, err);
    }
    free(ids);
    free(have_ended);
    return rc;
}

enum status seq2seq_generate(struct seq2seq *s, struct seq2seq_row *rows, size_t n,
                             size_t max_words, struct error *err)
{
    struct pass p = {.s = s, .rows = rows, .n = n, .replies = true};
    enum status rc = pass_plan(&p, false, err);

    if (rc == STATUS_OK)
        rc = pass_reserve(&p, err);
    for (size_t t = 0; rc == STATUS_OK && t < 2; t++)
        rc = seq2seq_cell_reserve(s, &s->writer, t, n, err);
    if (rc == STATUS_OK) {
        pass_read(&p);
        rc = pass_generate(&p, max_words, err);
    }
    pass_end(&p);
    return rc;
}
