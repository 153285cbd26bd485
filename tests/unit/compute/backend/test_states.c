/* Operators on recurrent state: those of cpu have the bits of ref, which is the definition; saves
 * on the way, other cuts and a slot that is read and written change none. */
#include <math.h>
#include <string.h>

#include "base/counter_rng.h"
#include "compute/backend/states.h"
#include "compute/backends.h"
#include "tests/unit/base/suite.h"

enum { MAX_TOKENS = 40, LAYERS = 2, LAYER = 1, SLOTS = 6, TAPS = 4 };

static struct error err;

struct side {
    struct backend *b;
    const struct state_ops *op;
    struct states *states;
    struct buffer *x, *convolved, *gates, *out;
    struct weight *taps, *bias, *slope, *skip;
};

static struct weight *weight(struct backend *b, const float *values, size_t n)
{
    const struct tensor t = {.name = "w",
                             .type = DTYPE_F32,
                             .n_rows = 1,
                             .n_cols = n,
                             .data = values,
                             .size_bytes = n * sizeof(*values)};
    struct weight *w = NULL;

    ck_assert_int_eq(b->type->weight_open(b, &t, &w, &err), STATUS_OK);
    return w;
}

/* Between -1 and 1; other numbers for each seed. */
static void fill(uint64_t seed, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = 2.0f * counter_rng_uniform(seed, 0, (uint32_t)i, 0) - 1.0f;
}

static struct buffer *buffer(struct backend *b, const float *x, size_t n)
{
    struct buffer *m = b->type->buffer_open(b, n * sizeof(*x));

    ck_assert_ptr_nonnull(m);
    if (x != NULL)
        b->type->upload(b, m, x, n * sizeof(*x));
    return m;
}

struct numbers {
    float *x, *gates, *taps, *bias, *slope, *skip;
};

static void side_open(struct side *s, const char *name, size_t n_threads,
                      const struct recurrence *how, const struct numbers *in)
{
    const struct backend_config config = {.n_threads = n_threads};
    const struct states_layer layers[LAYERS] = {
        {0, 0}, {(TAPS - 1) * how->width, how->n_heads * how->key_dim * how->value_dim}};
    const struct states_shape shape = {SLOTS, LAYERS, layers};

    ck_assert_int_eq(backend_open(&s->b, name, &config, &err), STATUS_OK);
    s->op = s->b->type->state;
    ck_assert_int_eq(s->op->open(s->b, &shape, &s->states, &err), STATUS_OK);
    s->x = buffer(s->b, in->x, MAX_TOKENS * how->width);
    s->gates = buffer(s->b, in->gates, MAX_TOKENS * 2 * how->n_heads);
    s->convolved = buffer(s->b, NULL, MAX_TOKENS * how->width);
    s->out = buffer(s->b, NULL, MAX_TOKENS * how->n_heads * how->value_dim);
    s->taps = weight(s->b, in->taps, TAPS * how->width);
    s->bias = weight(s->b, in->bias, how->n_heads);
    s->slope = weight(s->b, in->slope, how->n_heads);
    s->skip = weight(s->b, in->skip, how->n_heads);
}

static void side_close(struct side *s)
{
    struct buffer *buffers[] = {s->x, s->convolved, s->gates, s->out};
    struct weight *weights[] = {s->taps, s->bias, s->slope, s->skip};

    for (size_t i = 0; i < 4; i++) {
        s->b->type->buffer_close(s->b, buffers[i]);
        s->b->type->weight_close(s->b, weights[i]);
    }
    s->op->close(s->b, s->states);
    backend_close(s->b);
}

/* Two rows, of n and of MAX_TOKENS - n tokens: all operators of a layer. */
static void side_run(struct side *s, const struct recurrence *given, const struct state_row *rows)
{
    struct recurrence how = *given;
    const struct state_gates gates = {s->bias, s->slope, how.n_heads, how.corrects};

    how.skip = given->corrects ? NULL : s->skip;
    s->op->conv(s->b, s->states, LAYER, s->taps, TAPS, NULL, s->x, how.width, rows, 2,
                s->convolved);
    s->op->unit(s->b, 2 * how.n_key_heads, how.key_dim, how.n_key_heads, 0.25f, MAX_TOKENS,
                how.width, s->convolved);
    s->op->gates(s->b, &gates, MAX_TOKENS, s->gates);
    s->op->recur(s->b, s->states, LAYER, &how, s->convolved, s->gates, rows, 2, s->out);
    ck_assert_int_eq(s->b->type->sync(s->b, &err), STATUS_OK);
}

static void same_out(struct side *a, struct side *b, const struct recurrence *how)
{
    const size_t n = MAX_TOKENS * how->n_heads * how->value_dim;
    const size_t n_state = (TAPS - 1) * how->width + how->n_heads * how->key_dim * how->value_dim;
    float *x = malloc(n * sizeof(*x)), *y = malloc(n * sizeof(*y));
    float *u = malloc((n_state + 16) * sizeof(*u)), *v = malloc((n_state + 16) * sizeof(*v));

    ck_assert(x != NULL && y != NULL && u != NULL && v != NULL);
    a->b->type->download(a->b, x, a->out, n * sizeof(*x));
    b->b->type->download(b->b, y, b->out, n * sizeof(*y));
    ck_assert_mem_eq(x, y, n * sizeof(*x));
    for (size_t i = 0; i < n; i++)
        ck_assert(isfinite(x[i]));
    for (int32_t slot = 0; slot < SLOTS; slot++) {
        a->op->read(a->b, a->states, slot, u);
        b->op->read(b->b, b->states, slot, v);
        ck_assert_mem_eq(u, v, n_state * sizeof(*u));
    }
    free(x);
    free(y);
    free(u);
    free(v);
}

static void compare(size_t n_key_heads, size_t n_heads, size_t key_dim, size_t value_dim,
                    bool corrects, bool is_tiled)
{
    const size_t keys = n_key_heads * key_dim;
    const struct recurrence how = {.n_key_heads = n_key_heads,
                                   .n_heads = n_heads,
                                   .key_dim = key_dim,
                                   .value_dim = value_dim,
                                   .key_at = keys,
                                   .value_at = 2 * keys,
                                   .width = 2 * keys + n_heads * value_dim,
                                   .is_tiled = is_tiled,
                                   .corrects = corrects};
    const struct state_save saves[] = {{1, 0}, {2, 1}, {7, 2}, {9, 3}, {MAX_TOKENS - 9, 4}};
    const struct state_save again[] = {{3, 5}, {9, 3}, {MAX_TOKENS - 9, 4}};
    const struct state_row fresh[2] = {{0, 9, STATES_NONE, saves, 4},
                                       {9, MAX_TOKENS - 9, STATES_NONE, saves + 4, 1}};
    /* from slots, which are written again at the end */
    const struct state_row further[2] = {{0, 9, 3, again, 2}, {9, MAX_TOKENS - 9, 4, again + 2, 1}};
    struct numbers in = {.x = malloc(MAX_TOKENS * how.width * sizeof(float)),
                         .gates = malloc(MAX_TOKENS * 2 * n_heads * sizeof(float)),
                         .taps = malloc(TAPS * how.width * sizeof(float)),
                         .bias = malloc(n_heads * sizeof(float)),
                         .slope = malloc(n_heads * sizeof(float)),
                         .skip = malloc(n_heads * sizeof(float))};
    struct side ref, cpu, two;

    fill(0, in.x, MAX_TOKENS * how.width);
    fill(1, in.gates, MAX_TOKENS * 2 * n_heads);
    fill(2, in.taps, TAPS * how.width);
    fill(3, in.bias, n_heads);
    fill(4, in.skip, n_heads);
    fill(5, in.slope, n_heads);
    for (size_t i = 0; i < n_heads; i++)
        in.slope[i] = -1.0f - in.slope[i];
    side_open(&ref, "ref", 1, &how, &in);
    side_open(&cpu, "cpu", 1, &how, &in);
    side_open(&two, "cpu", 2, &how, &in);
    for (int i = 0; i < 2; i++) {
        side_run(&ref, &how, i == 0 ? fresh : further);
        side_run(&cpu, &how, i == 0 ? fresh : further);
        side_run(&two, &how, i == 0 ? fresh : further);
        same_out(&ref, &cpu, &how);
        same_out(&ref, &two, &how);
    }
    side_close(&ref);
    side_close(&cpu);
    side_close(&two);
    free(in.x);
    free(in.gates);
    free(in.taps);
    free(in.bias);
    free(in.slope);
    free(in.skip);
}

START_TEST(cpu_has_the_bits_of_ref)
{
    compare(1, 1, 16, 16, true, true);
    compare(2, 4, 24, 40, true, true); /* columns that fill no vector */
    compare(2, 6, 32, 64, true, false);
    compare(1, 2, STATES_MAX_KEYS, 33, true, false);
    compare(3, 3, 7, 1, false, false);
    compare(2, 4, 16, 48, false, false);
}
END_TEST

/* Far apart numbers: gates stay within their bounds. */
START_TEST(gates_have_bounds)
{
    float gates[6] = {1e30f, -1e30f, 0.0f, 100.0f, -100.0f, 0.0f};
    const float zero[3] = {0}, slope[3] = {-1.0f, -1.0f, -1.0f};
    const struct backend_config config = {.n_threads = 1};
    struct backend *b;
    struct state_gates how = {.n_heads = 3, .corrects = true};
    struct weight *bias, *slopes;
    struct buffer *x;

    ck_assert_int_eq(backend_open(&b, "ref", &config, &err), STATUS_OK);
    how.bias = bias = weight(b, zero, 3);
    how.slope = slopes = weight(b, slope, 3);
    x = buffer(b, gates, 6);
    b->type->state->gates(b, &how, 1, x);
    b->type->download(b, gates, x, sizeof(gates));
    ck_assert(gates[0] == 1.0f && gates[1] >= 0.0f && gates[1] < 1e-30f && gates[2] == 0.5f);
    ck_assert(gates[3] >= 0.0f && gates[3] < 1e-37f); /* e^-100 */
    ck_assert(gates[4] == 1.0f);                      /* e^-(e^-100) */
    ck_assert_float_eq_tol(gates[5], 0.5f, 1e-7f);    /* e^-ln 2 */
    b->type->buffer_close(b, x);
    b->type->weight_close(b, bias);
    b->type->weight_close(b, slopes);
    backend_close(b);
}
END_TEST

SUITE_MAIN("states", cpu_has_the_bits_of_ref, gates_have_bounds)
