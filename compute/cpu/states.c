/* Operators on recurrent state, on several threads: by rows of activations, and the recurrence by
 * sequences, heads and columns. */
#include <assert.h>
#include <string.h>

#include "compute/backend/host_states.h"
#include "compute/backend/recurrence.h"
#include "compute/cpu/parts.h"
#include "compute/cpu/recurrence.h"

enum { PIECE_VALUES = 2048 }; /* less is not worth sharing */

struct state_conv {
    const struct cpu *cpu;
    const struct states *states;
    size_t layer, n_taps, width;
    const float *taps, *bias, *x;
    const struct state_row *rows;
    float *out;
};

/* The step's tokens begin … end - 1, which lie row after row. */
static void state_conv_piece(void *arg, size_t begin, size_t end)
{
    const struct state_conv *c = arg;
    const struct state_row *row = c->rows;

    for (size_t i = begin; i < end; i++) {
        const float *x, *tail;
        float *out;

        while (i >= row->first + row->n_tokens)
            row++;
        x = c->x + row->first * c->width;
        tail = host_states_tail(c->states, c->layer, row->from);
        out = c->out + i * c->width;
        memset(out, 0, c->width * sizeof(*out));
        for (size_t tap = 0; tap < c->n_taps; tap++) {
            const float *from = host_states_row(tail, c->n_taps - 1, x, c->width, i - row->first,
                                                c->n_taps - 1 - tap);

            if (from != NULL)
                c->cpu->kernels->add_tap(c->taps, c->n_taps, tap, from, c->width, out);
        }
        if (c->bias != NULL)
            c->cpu->kernels->add(out, c->bias, 1.0f, c->width);
    }
}

/* Rows are laid out one after the other, from activation 0 on. */
static size_t n_tokens_of(const struct state_row *rows, size_t n_rows)
{
    size_t n = 0;

    for (size_t i = 0; i < n_rows; i++) {
        assert(rows[i].first == n);
        n += rows[i].n_tokens;
    }
    return n;
}

static void cpu_state_conv(struct backend *b, struct states *s, size_t layer,
                           const struct weight *taps, size_t n_taps, const struct weight *bias,
                           const struct buffer *x, size_t width, const struct state_row *rows,
                           size_t n_rows, struct buffer *out)
{
    const size_t n = n_tokens_of(rows, n_rows);
    struct state_conv c = {.cpu = to_cpu(b),
                           .states = s,
                           .layer = layer,
                           .n_taps = n_taps,
                           .width = width,
                           .taps = taps->row,
                           .bias = bias != NULL ? bias->row : NULL,
                           .x = cpu_read(x, n, width),
                           .rows = rows,
                           .out = cpu_written(out, n, width)};

    assert(taps->row != NULL && taps->tensor.n_cols == width * n_taps);
    thread_pool_for(to_cpu(b)->pool, n, 1 + PIECE_VALUES / (1 + width), state_conv_piece, &c);
    for (const struct state_row *row = rows; row < rows + n_rows; row++)
        host_states_save_tails(s, layer, row, n_taps - 1, width, c.x + row->first * width);
}

struct state_units {
    size_t n_heads, width, n_scaled, stride;
    float scale;
    float *x;
};

static void unit_piece(void *arg, size_t begin, size_t end)
{
    const struct state_units *u = arg;

    for (size_t i = begin; i < end; i++)
        for (size_t h = 0; h < u->n_heads; h++)
            recurrence_unit(u->x + i * u->stride + h * u->width, u->width,
                            h < u->n_scaled ? u->scale : 1.0f);
}

static void cpu_state_unit(struct backend *b, size_t n_heads, size_t width, size_t n_scaled,
                           float scale, size_t n, size_t stride, struct buffer *x)
{
    struct state_units u = {n_heads, width, n_scaled, stride, scale, cpu_written(x, n, stride)};

    thread_pool_for(to_cpu(b)->pool, n, 1 + PIECE_VALUES / (1 + n_heads * width), unit_piece, &u);
}

struct gates_work {
    const struct state_gates *how;
    float *at;
};

static void gates_piece(void *arg, size_t begin, size_t end)
{
    const struct gates_work *w = arg;
    const size_t n = w->how->n_heads;

    for (float *at = w->at + begin * 2 * n; begin < end; begin++, at += 2 * n)
        for (size_t h = 0; h < n; h++)
            recurrence_gate(w->how->corrects, w->how->bias->row[h], w->how->slope->row[h], at + h,
                            at + n + h);
}

static void cpu_state_gates(struct backend *b, const struct state_gates *how, size_t n,
                            struct buffer *gates)
{
    struct gates_work w = {how, cpu_written(gates, n, 2 * how->n_heads)};

    assert(how->bias->row != NULL && how->slope->row != NULL);
    thread_pool_for(to_cpu(b)->pool, n, 1 + PIECE_VALUES / 32 / (1 + how->n_heads), gates_piece,
                    &w);
}

struct recur_work {
    const struct cpu *cpu;
    const struct recurrence *how;
    const struct states *states;
    size_t layer;
    const struct state_row *rows;
    const float *x, *gates;
    float *out;
    size_t n_blocks; /* of a head */
};

static void recur_piece(void *arg, size_t begin, size_t end)
{
    const struct recur_work *w = arg;
    const struct recurrence *how = w->how;
    const size_t n_items = how->n_heads * w->n_blocks; /* of a row */

    for (size_t i = begin; i < end; i++) {
        const struct state_row *row = w->rows + i / n_items;
        const size_t head = i % n_items / w->n_blocks, column = i % w->n_blocks * RECUR_COLUMNS;
        const size_t left = how->value_dim - column;
        const float *from = host_states_matrices(w->states, w->layer, row->from);
        const struct recur_block block = {
            .how = how,
            .head = head,
            .column = column,
            .n_columns = left < RECUR_COLUMNS ? left : RECUR_COLUMNS,
            .n_tokens = row->n_tokens,
            .x = w->x + row->first * how->width,
            .gates = w->gates + row->first * 2 * how->n_heads,
            .out = w->out + row->first * how->n_heads * how->value_dim,
            .skip = how->skip != NULL ? how->skip->row[head] : 0.0f,
            .from = from != NULL ? from + head * how->key_dim * how->value_dim : NULL,
            .saves = row->saves,
            .n_saves = row->n_saves,
            .states = w->states,
            .layer = w->layer,
        };

        w->cpu->kernels->recur(&block);
    }
}

static void cpu_state_recur(struct backend *b, struct states *s, size_t layer,
                            const struct recurrence *how, const struct buffer *x,
                            const struct buffer *gates, const struct state_row *rows, size_t n_rows,
                            struct buffer *out)
{
    const size_t n = n_tokens_of(rows, n_rows);
    struct recur_work w = {.cpu = to_cpu(b),
                           .how = how,
                           .states = s,
                           .layer = layer,
                           .rows = rows,
                           .x = cpu_read(x, n, how->width),
                           .gates = cpu_read(gates, n, 2 * how->n_heads),
                           .out = cpu_written(out, n, how->n_heads * how->value_dim),
                           .n_blocks = (how->value_dim + RECUR_COLUMNS - 1) / RECUR_COLUMNS};

    assert(how->key_dim <= STATES_MAX_KEYS && (how->skip == NULL || how->skip->row != NULL));
    thread_pool_for(to_cpu(b)->pool, n_rows * how->n_heads * w.n_blocks, 1, recur_piece, &w);
}

const struct state_ops cpu_state_ops = {
    .open = host_states_open,
    .close = host_states_close,
    .conv = cpu_state_conv,
    .unit = cpu_state_unit,
    .gates = cpu_state_gates,
    .recur = cpu_state_recur,
    .read = host_states_read,
    .write = host_states_write,
};
