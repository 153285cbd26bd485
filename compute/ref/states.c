/* Operators on recurrent state: the definition, one token after the other. */
#include <assert.h>
#include <string.h>

#include "compute/backend/host_states.h"
#include "compute/backend/recurrence.h"
#include "compute/ref/parts.h"

/* A weight of one row, decoded into scratch that is the operator's own; NULL: no memory. */
static const float *ref_row_of(struct ref *r, struct ref_scratch *scratch, const struct weight *w)
{
    float *row = ref_scratch_of(r, scratch, w->tensor.n_cols);

    if (row != NULL)
        ref_decode_row(w, 0, row);
    return row;
}

static void conv_row(const struct states *s, size_t layer, const float *taps, size_t n_taps,
                     const float *bias, size_t width, const struct state_row *row, const float *x,
                     float *out)
{
    const float *tail = host_states_tail(s, layer, row->from);

    for (size_t t = 0; t < row->n_tokens; t++, out += width) {
        memset(out, 0, width * sizeof(*out));
        for (size_t tap = 0; tap < n_taps; tap++) {
            const float *from = host_states_row(tail, n_taps - 1, x, width, t, n_taps - 1 - tap);

            if (from != NULL)
                gates_add_tap(taps, n_taps, tap, from, width, out);
        }
        for (size_t c = 0; bias != NULL && c < width; c++)
            out[c] += bias[c];
    }
}

static void ref_state_conv(struct backend *b, struct states *s, size_t layer,
                           const struct weight *taps, size_t n_taps, const struct weight *bias,
                           const struct buffer *x, size_t width, const struct state_row *rows,
                           size_t n_rows, struct buffer *out)
{
    const float *taps_row = ref_row_of(to_ref(b), &to_ref(b)->decoded, taps), *bias_row = NULL;

    assert(taps->tensor.n_cols == width * n_taps);
    if (bias != NULL)
        bias_row = ref_row_of(to_ref(b), &to_ref(b)->product, bias);
    if (taps_row == NULL || (bias != NULL && bias_row == NULL))
        return;
    for (const struct state_row *row = rows; row < rows + n_rows; row++) {
        const size_t end = row->first + row->n_tokens, at = row->first * width;
        const float *from = ref_const_floats(x, end, width) + at;

        conv_row(s, layer, taps_row, n_taps, bias_row, width, row, from,
                 ref_floats(out, end, width) + at);
        host_states_save_tails(s, layer, row, n_taps - 1, width, from);
    }
}

static void ref_state_unit(struct backend *b, size_t n_heads, size_t width, size_t n_scaled,
                           float scale, size_t n, size_t stride, struct buffer *x)
{
    float *to = ref_floats(x, n, stride);

    for (size_t i = 0; i < n; i++)
        for (size_t h = 0; h < n_heads; h++)
            recurrence_unit(to + i * stride + h * width, width, h < n_scaled ? scale : 1.0f);
}

static void ref_state_gates(struct backend *b, const struct state_gates *how, size_t n,
                            struct buffer *gates)
{
    const size_t n_heads = how->n_heads;
    const float *bias = ref_row_of(to_ref(b), &to_ref(b)->decoded, how->bias);
    const float *slope = ref_row_of(to_ref(b), &to_ref(b)->product, how->slope);
    float *at = ref_floats(gates, n, 2 * n_heads);

    if (bias == NULL || slope == NULL)
        return;
    for (; n > 0; n--, at += 2 * n_heads)
        for (size_t h = 0; h < n_heads; h++)
            recurrence_gate(how->corrects, bias[h], slope[h], at + h, at + n_heads + h);
}

/* One token in one head: S [key_dim][value_dim] is changed, out [value_dim] written. */
static void recur_token(const struct recurrence *how, float *state, const float *key,
                        const float *query, const float *value, float strength, float decay,
                        float skip, float *out)
{
    const size_t n_keys = how->key_dim, n = how->value_dim;

    for (size_t c = 0; c < n; c++) {
        float seen = 0.0f, made = 0.0f, change;

        for (size_t i = 0; i < n_keys; i++)
            seen += key[i] * (decay * state[i * n + c]);
        change = strength * (how->corrects ? value[c] - seen : value[c]);
        for (size_t i = 0; i < n_keys; i++) {
            state[i * n + c] = decay * state[i * n + c] + key[i] * change;
            made += query[i] * state[i * n + c];
        }
        out[c] = how->skip != NULL ? made + skip * value[c] : made;
    }
}

/* One head over a row's tokens; x, gates and out are of the row's first token. */
static void recur_head(const struct recurrence *how, const struct states *s, size_t layer,
                       const struct state_row *row, size_t head, float skip, float *state,
                       const float *x, const float *gates, float *out)
{
    const size_t n = how->key_dim * how->value_dim;
    const size_t key_skip = recurrence_key_head(how, head) * how->key_dim;
    const struct state_save *save = row->saves;
    const float *before = host_states_matrices(s, layer, row->from);

    if (before != NULL)
        memcpy(state, before + head * n, n * sizeof(*state));
    else
        memset(state, 0, n * sizeof(*state));
    for (size_t t = 0; t < row->n_tokens; t++) {
        recur_token(how, state, x + how->key_at + key_skip, x + how->query_at + key_skip,
                    x + how->value_at + head * how->value_dim, gates[head],
                    gates[how->n_heads + head], skip, out + head * how->value_dim);
        x += how->width;
        gates += 2 * how->n_heads;
        out += how->n_heads * how->value_dim;
        if (save < row->saves + row->n_saves && save->n_after == t + 1)
            memcpy(host_states_matrices(s, layer, (save++)->slot) + head * n, state,
                   n * sizeof(*state));
    }
}

static void ref_state_recur(struct backend *b, struct states *s, size_t layer,
                            const struct recurrence *how, const struct buffer *x,
                            const struct buffer *gates, const struct state_row *rows, size_t n_rows,
                            struct buffer *out)
{
    struct ref *r = to_ref(b);
    const size_t width = how->n_heads * how->value_dim;
    float *state = ref_scratch_of(r, &r->product, how->key_dim * how->value_dim);
    const float *skip = how->skip != NULL ? ref_row_of(r, &r->decoded, how->skip) : NULL;

    if (state == NULL || (how->skip != NULL && skip == NULL))
        return;
    for (const struct state_row *row = rows; row < rows + n_rows; row++) {
        const size_t end = row->first + row->n_tokens;
        const float *x_at = ref_const_floats(x, end, how->width) + row->first * how->width;
        const float *gates_at =
            ref_const_floats(gates, end, 2 * how->n_heads) + row->first * 2 * how->n_heads;
        float *out_at = ref_floats(out, end, width) + row->first * width;

        for (size_t h = 0; h < how->n_heads; h++)
            recur_head(how, s, layer, row, h, skip != NULL ? skip[h] : 0.0f, state, x_at, gates_at,
                       out_at);
    }
}

const struct state_ops ref_state_ops = {
    .open = host_states_open,
    .close = host_states_close,
    .conv = ref_state_conv,
    .unit = ref_state_unit,
    .gates = ref_state_gates,
    .recur = ref_state_recur,
    .read = host_states_read,
    .write = host_states_write,
};
