/* Recurrent state: what a layer without attention carries from one token to the next. A slot holds
 * the state of all such layers behind one token of one sequence. Operators read a row's slot, run
 * the row's tokens one after the other, and write other slots: a slot that nobody writes stays as
 * it is, so sequences may share it. All state is f32, and its bits are those of one token after
 * the other, however a sequence is cut into rows. */
#ifndef COMPUTE_BACKEND_STATES_H
#define COMPUTE_BACKEND_STATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct backend;
struct buffer;
struct weight;
struct states; /* slots of all layers; each backend has its own */

enum {
    STATES_MAX_KEYS = 256, /* numbers of a key */
    STATES_NONE = -1, /* in the place of a slot: all zeros, as before a sequence's first token */
};

/* Numbers of a layer in a slot; both 0 where it has no state. */
struct states_layer {
    size_t n_tail;     /* the rows that a convolution reads before the next one */
    size_t n_matrices; /* of its heads */
};

struct states_shape {
    size_t n_slots, n_layers;
    const struct states_layer *layers; /* [n_layers], borrowed until open returns */
};

/* A slot that a row writes, and behind how many of its tokens, from 1 on. */
struct state_save {
    size_t n_after;
    int32_t slot;
};

/* One sequence's part in a step. Saves are in rising order of n_after; of the slots that a step's
 * rows write none is read by another row of it, and a row reads at most the one that it writes
 * last. All stays as it is until the next sync. */
struct state_row {
    size_t first; /* row of its first token in the step's activations */
    size_t n_tokens;
    int32_t from; /* slot, or STATES_NONE */
    const struct state_save *saves;
    size_t n_saves;
};

/* What a token's numbers become before its step: of each head its strength and its decay. */
struct state_gates {
    const struct weight *bias, *slope; /* [n_heads] of one row */
    size_t n_heads;
    bool corrects; /* as struct recurrence */
};

/* Heads of state S, a matrix [key_dim][value_dim] each. For each token, with its key k, query q,
 * value v, decay d and strength s:
 *
 *     S = d S
 *     S = S + k (s (v - k S))    where it corrects, else S + k (s v)
 *     output = q S               and skip * v, where there is skip
 *
 * Sums over the key's numbers are in their order. */
struct recurrence {
    size_t n_key_heads, n_heads; /* heads of keys and queries; of values, and of state */
    size_t key_dim, value_dim;   /* key_dim at most STATES_MAX_KEYS */
    size_t query_at, key_at, value_at, width; /* of a token's row of inputs */
    bool is_tiled; /* head j has the key j % n_key_heads, else j / (n_heads / n_key_heads) */
    bool corrects;
    const struct weight *skip; /* [n_heads] of one row, or NULL */
};

struct state_ops {
    /* EXHAUSTED: no memory. */
    enum status (*open)(struct backend *b, const struct states_shape *shape, struct states **out,
                        struct error *err);
    void (*close)(struct backend *b, struct states *s);
    /* out[i][c] = the sum over t < n_taps of taps[c][t] * row[i - n_taps + 1 + t][c], plus bias[c],
     * in rising order of t; rows before the step's are of the state. taps and bias are weights of
     * one row; bias may be NULL. x and out, two buffers, are [n][width]. */
    void (*conv)(struct backend *b, struct states *s, size_t layer, const struct weight *taps,
                 size_t n_taps, const struct weight *bias, const struct buffer *x, size_t width,
                 const struct state_row *rows, size_t n_rows, struct buffer *out);
    /* Divides n_heads heads of width numbers, at the begin of each of the n rows of x, by the root
     * of their sum of squares plus 1e-6, then multiplies those below n_scaled by scale. */
    void (*unit)(struct backend *b, size_t n_heads, size_t width, size_t n_scaled, float scale,
                 size_t n, size_t stride, struct buffer *x);
    /* gates [n][2][n_heads], in place. dt = softplus(second + bias); the second becomes the decay,
     * e^(slope dt), the first the strength: its sigmoid where the recurrence corrects, else dt. */
    void (*gates)(struct backend *b, const struct state_gates *how, size_t n, struct buffer *gates);
    /* out [n][n_heads * value_dim] of inputs x [n][how->width] and gates. */
    void (*recur)(struct backend *b, struct states *s, size_t layer, const struct recurrence *how,
                  const struct buffer *x, const struct buffer *gates, const struct state_row *rows,
                  size_t n_rows, struct buffer *out);
    /* Copies a slot to host memory [states_floats]. Any one thread, also during a step that does
     * not write the slot; the caller has synced behind the step that wrote it. */
    void (*read)(struct backend *b, const struct states *s, int32_t slot, float *out);
    /* What read gave, into a slot. */
    void (*write)(struct backend *b, struct states *s, int32_t slot, const float *from);
};

extern const struct state_ops ref_state_ops, cpu_state_ops;

/* Numbers of a slot: layers begin at multiples of 16 numbers. */
size_t states_floats(const struct states_shape *shape);

#endif
