/* Runs each operator of a backend on random inputs, and compares the results with ref's within a
 * bound. It also computes rows alone and beside others, and compares their bits. */
#include "compute/verbs/selftest/selftest.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/counter_rng.h"
#include "compute/backend/backend.h"
#include "compute/numerics/dtype.h"

/* Each operator of a backend and of ref on the same random inputs. The error of a result is
 * its largest difference from ref's, in units of the root mean square of ref's. */

enum {
    N_TOKENS = 21, /* more than a page of keys, and odd */
    N_ROWS = 80,   /* of a weight */
    N_COLS = 512,  /* two blocks of the type with the largest blocks */
    N_HEADS = 6,
    N_KV_HEADS = 2,
    HEAD_DIM = 64,
    N_PAGES = 8,
    MAX_VALUES = N_TOKENS * N_COLS, /* of an activation */
    N_CHUNKS = 26,                  /* of a long context: over two spans of a GPU's attention */
    LONG_PAGES = (N_CHUNKS * N_TOKENS + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS,
};

static_assert(N_HEADS * HEAD_DIM <= N_COLS && N_ROWS <= N_COLS, "an activation holds any of them");

/* The run of this part. */
struct operators {
    struct selftest *test;
    uint32_t n_drawn;
    struct backend *sides[2]; /* ref, and the one under test */
    float *results[2];        /* [MAX_VALUES] */
    float *inputs;            /* [2][MAX_VALUES] from -1 to 1 */
    uint8_t *weight;          /* the bytes of a weight */
};

/* An operator on given inputs: fills result [n_values], on one side. */
struct trial {
    const char *name;
    enum dtype type; /* of the weight, where there is one */
    size_t n_values;
    enum status (*run)(const struct operators *s, const struct trial *t, struct backend *b,
                       float *result, struct error *err);
    double bound;
};

static float operators_draw(struct operators *s)
{
    uint32_t n = s->n_drawn++;

    return counter_rng_uniform(s->test->seed, 0, n, 0) * 2.0f - 1.0f;
}

static void set_f16(uint8_t *at, float value)
{
    uint16_t half = f32_to_f16(value);

    memcpy(at, &half, sizeof(half));
}

/* Random bytes are a valid block except for its scales, which could be huge: sets those. */
static void tame_block(struct operators *s, enum dtype type, uint8_t *block)
{
    enum { AT_END_OF_Q6_K = 208, AT_END_OF_Q2_K = 80, AT_END_OF_Q3_K = 108 };

    switch (type) {
    case DTYPE_F32: {
        float value = operators_draw(s);

        memcpy(block, &value, sizeof(value));
        break;
    }
    case DTYPE_F16:
        set_f16(block, operators_draw(s));
        break;
    case DTYPE_BF16:
        block[1] = (uint8_t)((block[1] & 0x80) | 0x3f); /* 0.5 to 2 */
        break;
    case DTYPE_Q4_0:
    case DTYPE_Q5_0:
        set_f16(block, operators_draw(s) / 16.0f);
        break;
    case DTYPE_Q8_0:
        set_f16(block, operators_draw(s) / 128.0f);
        break;
    case DTYPE_Q4_1:
    case DTYPE_Q5_1:
        set_f16(block, operators_draw(s) / 16.0f);
        set_f16(block + 2, operators_draw(s));
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        set_f16(block, operators_draw(s) / 1024.0f);
        set_f16(block + 2, operators_draw(s) / 64.0f);
        break;
    case DTYPE_Q2_K:
        set_f16(block + AT_END_OF_Q2_K, operators_draw(s) / 64.0f);
        set_f16(block + AT_END_OF_Q2_K + 2, operators_draw(s) / 64.0f);
        break;
    case DTYPE_Q3_K:
        set_f16(block + AT_END_OF_Q3_K, operators_draw(s) / 128.0f);
        break;
    case DTYPE_IQ4_NL:
        set_f16(block, operators_draw(s) / 128.0f);
        break;
    case DTYPE_IQ4_XS:
        set_f16(block, operators_draw(s) / 4096.0f);
        break;
    case DTYPE_MXFP4:
        block[0] = (uint8_t)(120 + block[0] % 8);
        break;
    case DTYPE_Q6_K:
        set_f16(block + AT_END_OF_Q6_K, operators_draw(s) / 4096.0f);
        break;
    }
}

static void draw_weight(struct operators *s, enum dtype type)
{
    size_t n_bytes = dtype_row_bytes(type, N_COLS) * N_COLS, step = dtype_block_bytes(type);

    for (size_t i = 0; i < n_bytes; i++)
        s->weight[i] = (uint8_t)((operators_draw(s) + 1.0f) * 127.0f);
    for (size_t i = 0; i < n_bytes; i += step)
        tame_block(s, type, s->weight + i);
}

/* Device memory of a trial; released as one. */
struct test_memory {
    struct backend *b;
    struct buffer *buffers[4];
    size_t n;
    struct weight *weight;
    struct kv *kv;
};

static void memory_deinit(struct test_memory *m)
{
    for (size_t i = 0; i < m->n; i++)
        m->b->type->buffer_close(m->b, m->buffers[i]);
    if (m->weight != NULL)
        m->b->type->weight_close(m->b, m->weight);
    if (m->kv != NULL)
        m->b->type->kv_close(m->b, m->kv);
}

/* The next buffer, of the largest size any trial needs, holding input number i; i < 0: nothing. */
static enum status add_buffer(struct test_memory *m, const struct operators *s, int i,
                              struct error *err)
{
    size_t n_bytes = MAX_VALUES * sizeof(float);
    struct buffer *buffer = m->b->type->buffer_open(m->b, n_bytes);

    if (buffer == NULL)
        return error_no_memory(err, n_bytes, "an activation");
    m->buffers[m->n++] = buffer;
    if (i >= 0)
        m->b->type->upload(m->b, buffer, s->inputs + (size_t)i * MAX_VALUES, n_bytes);
    return STATUS_OK;
}

static enum status test_memory_fetch(struct test_memory *m, const struct trial *t,
                                     const struct buffer *from, float *result, struct error *err)
{
    m->b->type->download(m->b, result, from, t->n_values * sizeof(*result));
    return m->b->type->sync(m->b, err);
}

static enum status test_memory_open_weight(struct test_memory *m, const struct operators *s,
                                           enum dtype type, size_t n_rows, struct error *err)
{
    const struct tensor tensor = {.name = "selftest",
                                  .type = type,
                                  .n_rows = n_rows,
                                  .n_cols = N_COLS,
                                  .data = s->weight,
                                  .size_bytes = dtype_row_bytes(type, N_COLS) * n_rows};

    return m->b->type->weight_open(m->b, &tensor, &m->weight, err);
}

static enum status run_matmul(const struct operators *s, const struct trial *t, struct backend *b,
                              float *result, struct error *err)
{
    struct test_memory m = {.b = b};
    enum status rc;

    if ((rc = test_memory_open_weight(&m, s, t->type, N_ROWS, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, 0, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, -1, err)) == STATUS_OK) {
        const struct input in = {.x = m.buffers[0]};
        const struct product product = {m.weight, m.buffers[1]};

        b->type->matmul(b, &in, N_TOKENS, &product, 1);
        rc = test_memory_fetch(&m, t, m.buffers[1], result, err);
    }
    memory_deinit(&m);
    return rc;
}

static enum status run_embed(const struct operators *s, const struct trial *t, struct backend *b,
                             float *result, struct error *err)
{
    struct test_memory m = {.b = b};
    int32_t ids[N_TOKENS];
    enum status rc;

    for (int32_t i = 0; i < N_TOKENS; i++)
        ids[i] = i * 37 % N_ROWS;
    if ((rc = test_memory_open_weight(&m, s, t->type, N_ROWS, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, -1, err)) == STATUS_OK) {
        b->type->embed(b, m.weight, ids, N_TOKENS, m.buffers[0]);
        rc = test_memory_fetch(&m, t, m.buffers[0], result, err);
    }
    memory_deinit(&m);
    return rc;
}

/* The weight's first row serves also as the norm's gain. */
static enum status run_norm(const struct operators *s, const struct trial *t, struct backend *b,
                            float *result, struct error *err)
{
    struct test_memory m = {.b = b}, gain = {.b = b};
    enum status rc;

    if ((rc = test_memory_open_weight(&gain, s, DTYPE_F32, 1, err)) == STATUS_OK &&
        (rc = test_memory_open_weight(&m, s, t->type, N_ROWS, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, 0, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, 1, err)) == STATUS_OK) {
        const struct input in = {m.buffers[0], gain.weight, 1e-5f};
        const struct product product = {m.weight, m.buffers[1]};

        b->type->matmul_add(b, &in, N_TOKENS, &product);
        rc = test_memory_fetch(&m, t, m.buffers[1], result, err);
    }
    memory_deinit(&m);
    memory_deinit(&gain);
    return rc;
}

static enum status run_rope(const struct operators *s, const struct trial *t, struct backend *b,
                            float *result, struct error *err)
{
    const struct rope rope = {.n_heads = N_HEADS, .head_dim = HEAD_DIM, .base = 10000.0f};
    struct test_memory m = {.b = b};
    uint32_t positions[N_TOKENS];
    enum status rc;

    for (uint32_t i = 0; i < N_TOKENS; i++)
        positions[i] = i * 97;
    if ((rc = add_buffer(&m, s, 0, err)) == STATUS_OK) {
        b->type->rope(b, &rope, positions, N_TOKENS, m.buffers[0]);
        rc = test_memory_fetch(&m, t, m.buffers[0], result, err);
    }
    memory_deinit(&m);
    return rc;
}

/* A prompt of all but one token, whose pages do not lie in order, and one token of another. */
static enum status run_attend(const struct operators *s, const struct trial *t, struct backend *b,
                              float *result, struct error *err)
{
    static const int32_t pages[2][2] = {{5, 2}, {3, 0}};
    const struct kv_shape shape = {.n_layers = 1,
                                   .n_kv_heads = N_KV_HEADS,
                                   .head_dim = HEAD_DIM,
                                   .n_pages = N_PAGES,
                                   .type = KV_F16};
    const struct attend_row rows[2] = {
        {.first = 0, .n_tokens = N_TOKENS - 1, .pos = 0, .pages = pages[0]},
        {.first = N_TOKENS - 1, .n_tokens = 1, .pos = 0, .pages = pages[1]}};
    struct test_memory m = {.b = b};
    enum status rc;

    if ((rc = b->type->kv_open(b, &shape, &m.kv, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, 0, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, 1, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, -1, err)) == STATUS_OK) {
        b->type->kv_store(b, m.kv, 0, m.buffers[0], m.buffers[1], rows, 2);
        b->type->attend(b, m.kv, 0, &(struct attention){.n_heads = N_HEADS}, m.buffers[1], rows, 2,
                        m.buffers[2]);
        rc = test_memory_fetch(&m, t, m.buffers[2], result, err);
    }
    memory_deinit(&m);
    return rc;
}

/* A token behind a context so long that a GPU's blocks share it; each chunk's keys are turned
 * further, so that no part is like another. */
static enum status run_attend_long(const struct operators *s, const struct trial *t,
                                   struct backend *b, float *result, struct error *err)
{
    const struct kv_shape shape = {.n_layers = 1,
                                   .n_kv_heads = N_KV_HEADS,
                                   .head_dim = HEAD_DIM,
                                   .n_pages = LONG_PAGES,
                                   .type = KV_F16};
    const struct rope rope = {.n_heads = N_KV_HEADS, .head_dim = HEAD_DIM, .base = 10000.0f};
    struct attend_row rows[N_CHUNKS + 1];
    uint32_t positions[N_TOKENS];
    int32_t pages[LONG_PAGES];
    struct test_memory m = {.b = b};
    enum status rc;

    for (int32_t i = 0; i < LONG_PAGES; i++)
        pages[i] = LONG_PAGES - 1 - i;
    for (uint32_t i = 0; i < N_TOKENS; i++)
        positions[i] = i * i;
    for (size_t i = 0; i <= N_CHUNKS; i++)
        rows[i] = (struct attend_row){.n_tokens = N_TOKENS, .pos = i * N_TOKENS, .pages = pages};
    rows[N_CHUNKS].n_tokens = 1;
    rows[N_CHUNKS].pos -= 1; /* the last that is stored */
    if ((rc = b->type->kv_open(b, &shape, &m.kv, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, 0, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, 1, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, -1, err)) == STATUS_OK) {
        for (size_t i = 0; i < N_CHUNKS; i++) {
            b->type->rope(b, &rope, positions, N_TOKENS, m.buffers[0]);
            b->type->kv_store(b, m.kv, 0, m.buffers[0], m.buffers[1], &rows[i], 1);
        }
        b->type->attend(b, m.kv, 0, &(struct attention){.n_heads = N_HEADS}, m.buffers[1],
                        &rows[N_CHUNKS], 1, m.buffers[2]);
        rc = test_memory_fetch(&m, t, m.buffers[2], result, err);
    }
    memory_deinit(&m);
    return rc;
}

/* One weight is all three: square, since down's outputs are as wide as the input. */
static enum status operators_run_ffn(const struct operators *s, const struct trial *t,
                                     struct backend *b, float *result, struct error *err)
{
    struct test_memory m = {.b = b};
    enum status rc;

    if ((rc = test_memory_open_weight(&m, s, t->type, N_COLS, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, 0, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, 1, err)) == STATUS_OK) {
        const struct input in = {.x = m.buffers[0]};
        const struct ffn ffn = {.gate = m.weight, .up = m.weight, .down = m.weight};

        b->type->ffn(b, &in, N_TOKENS, &ffn, m.buffers[1]);
        rc = test_memory_fetch(&m, t, m.buffers[1], result, err);
    }
    memory_deinit(&m);
    return rc;
}

static enum status run_gather(const struct operators *s, const struct trial *t, struct backend *b,
                              float *result, struct error *err)
{
    static const uint32_t rows[] = {N_TOKENS - 1, 0, 3, 3};
    struct test_memory m = {.b = b};
    enum status rc;

    if ((rc = add_buffer(&m, s, 0, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, -1, err)) == STATUS_OK) {
        b->type->gather(b, m.buffers[0], rows, 4, N_COLS, m.buffers[1]);
        rc = test_memory_fetch(&m, t, m.buffers[1], result, err);
    }
    memory_deinit(&m);
    return rc;
}

static double error_of(const float *known, const float *result, size_t n)
{
    double squares = 0.0, largest = 0.0;

    for (size_t i = 0; i < n; i++) {
        double diff = fabs((double)known[i] - (double)result[i]);

        squares += (double)known[i] * (double)known[i];
        largest = diff <= largest ? largest : diff; /* written so that a NaN becomes the largest */
    }
    return squares > 0.0 ? largest / sqrt(squares / (double)n) : largest;
}

static enum status operators_compare(struct operators *s, const struct trial *t, const char *type,
                                     struct error *err)
{
    double error;

    for (size_t side = 0; side < 2; side++) {
        enum status rc = t->run(s, t, s->sides[side], s->results[side], err);

        if (rc != STATUS_OK)
            return error_prefix(err, "%s %s on %s", t->name, type, s->sides[side]->type->name);
    }
    error = error_of(s->results[0], s->results[1], t->n_values);
    selftest_operator(s->test, t->name, type, error, t->bound);
    return STATUS_OK;
}

/* A backend may quantise activations where the weight is quantised, and round them to the weight's
 * precision where that is a short float. */
static double matmul_bound(enum dtype type)
{
    switch (type) {
    case DTYPE_F32:
        return 1e-5;
    case DTYPE_F16:
    case DTYPE_BF16:
        return 1e-2;
    default:
        return 5e-2;
    }
}

static const enum dtype types[] = {DTYPE_F32,  DTYPE_F16,    DTYPE_BF16,   DTYPE_Q8_0,
                                   DTYPE_Q4_0, DTYPE_Q4_1,   DTYPE_Q5_0,   DTYPE_Q5_1,
                                   DTYPE_Q4_K, DTYPE_Q5_K,   DTYPE_Q6_K,   DTYPE_Q2_K,
                                   DTYPE_Q3_K, DTYPE_IQ4_NL, DTYPE_IQ4_XS, DTYPE_MXFP4};

enum { N_TYPES = sizeof(types) / sizeof(types[0]) };

static enum status compare_all(struct operators *s, struct error *err)
{
    static const struct trial trials[] = {
        {"norm", DTYPE_F32, N_TOKENS * N_ROWS, run_norm, 1e-5},
        {"rope", DTYPE_F32, N_TOKENS * N_HEADS * HEAD_DIM, run_rope, 1e-4},
        {"attend", DTYPE_F32, N_TOKENS * N_HEADS * HEAD_DIM, run_attend, 1e-3},
        {"attend long", DTYPE_F32, N_HEADS * HEAD_DIM, run_attend_long, 5e-3},
        {"ffn", DTYPE_F32, N_TOKENS * N_COLS, operators_run_ffn, 1e-4},
        {"gather", DTYPE_F32, 4 * N_COLS, run_gather, 0.0},
    };
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < N_TYPES; i++) {
        const struct trial matmul = {"matmul", types[i], N_TOKENS * N_ROWS, run_matmul,
                                     matmul_bound(types[i])};
        const struct trial embed = {"embed", types[i], N_TOKENS * N_COLS, run_embed, 1e-5};

        draw_weight(s, types[i]);
        rc = operators_compare(s, &matmul, dtype_name(types[i]), err);
        if (rc == STATUS_OK)
            rc = operators_compare(s, &embed, dtype_name(types[i]), err);
    }
    draw_weight(s, DTYPE_F32);
    for (size_t i = 0; rc == STATUS_OK && i < sizeof(trials) / sizeof(trials[0]); i++)
        rc = operators_compare(s, &trials[i], "", err);
    return rc;
}

static void draw_inputs(struct operators *s)
{
    s->inputs = xalloc(2 * MAX_VALUES * sizeof(*s->inputs));
    s->weight = xalloc(N_COLS * N_COLS * sizeof(float)); /* of the widest type and the most rows */
    for (size_t i = 0; i < 2; i++)
        s->results[i] = xalloc(MAX_VALUES * sizeof(float));
    for (size_t i = 0; i < 2 * MAX_VALUES; i++)
        s->inputs[i] = operators_draw(s);
}

static void free_inputs(struct operators *s)
{
    for (size_t i = 0; i < 2; i++)
        free(s->results[i]);
    free(s->inputs);
    free(s->weight);
}

static enum status compare_fast(struct operators *s, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t i = 0; rc == STATUS_OK && i < N_TYPES; i++) {
        const struct trial matmul = {"fast matmul", types[i], N_TOKENS * N_ROWS, run_matmul, 1e-2};

        draw_weight(s, types[i]);
        rc = operators_compare(s, &matmul, dtype_name(types[i]), err);
    }
    if (rc == STATUS_OK) {
        const struct trial ffn = {"fast ffn", DTYPE_F32, N_TOKENS * N_COLS, operators_run_ffn,
                                  2e-2};

        draw_weight(s, DTYPE_F32);
        rc = operators_compare(s, &ffn, "", err);
    }
    return rc;
}

enum status selftest_fast(struct selftest *test, struct backend *ref, struct backend *b,
                          struct error *err)
{
    const struct backend_config config = {.fast_math = true, .fast_math_from = 1};
    struct operators s = {.test = test, .sides = {ref, NULL}};
    struct backend_statistics figures;
    enum status rc;

    if (!b->type->has_fast_math)
        return STATUS_OK;
    if (b->type->vendor_matmul == NULL || !b->type->vendor_matmul(b, N_TOKENS, N_ROWS, N_COLS)) {
        selftest_left_out(test, "fast math",
                          "the vendor's library is not there, or does not start");
        return b->type->sync(b, err);
    }
    if ((rc = b->type->sync(b, err)) != STATUS_OK ||
        (rc = backend_open_type(&s.sides[1], b->type, &config, err)) != STATUS_OK)
        return rc;
    s.sides[1]->type->statistics(s.sides[1], &figures);
    selftest_products(test, figures.products);
    draw_inputs(&s);
    rc = compare_fast(&s, err);
    free_inputs(&s);
    backend_close(s.sides[1]);
    return rc;
}

/* A row's product alone, and among others: the same bits, whatever the weight. */
static enum status check_rows(struct operators *s, enum dtype type, struct error *err)
{
    static const size_t rows[] = {0, 7, N_TOKENS - 1};
    struct test_memory m = {.b = s->sides[1]};
    const struct backend_type *op = m.b->type;
    const struct trial all = {.n_values = N_TOKENS * N_ROWS}, one = {.n_values = N_ROWS};
    bool holds = true;
    enum status rc;

    if ((rc = test_memory_open_weight(&m, s, type, N_ROWS, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, 0, err)) == STATUS_OK &&
        (rc = add_buffer(&m, s, -1, err)) == STATUS_OK) {
        const struct input in = {.x = m.buffers[0]};
        const struct product product = {m.weight, m.buffers[1]};

        op->matmul(m.b, &in, N_TOKENS, &product, 1);
        rc = test_memory_fetch(&m, &all, m.buffers[1], s->results[0], err);
        for (size_t i = 0; rc == STATUS_OK && i < sizeof(rows) / sizeof(rows[0]); i++) {
            op->upload(m.b, m.buffers[0], s->inputs + rows[i] * N_COLS, N_COLS * sizeof(float));
            op->matmul(m.b, &in, 1, &product, 1);
            rc = test_memory_fetch(&m, &one, m.buffers[1], s->results[1], err);
            holds = holds && memcmp(s->results[1], s->results[0] + rows[i] * N_ROWS,
                                    N_ROWS * sizeof(float)) == 0;
        }
    }
    memory_deinit(&m);
    if (rc == STATUS_OK)
        selftest_verdict(s->test, "invariance", "a row alone", dtype_name(type), holds);
    return rc;
}

enum status selftest_operators(struct selftest *test, struct backend *ref, struct backend *b,
                               struct error *err)
{
    struct operators s = {.test = test, .sides = {ref, b}};
    enum status rc;

    draw_inputs(&s);
    rc = compare_all(&s, err);
    for (size_t i = 0; rc == STATUS_OK && i < N_TYPES; i++) {
        draw_weight(&s, types[i]);
        rc = check_rows(&s, types[i], err);
    }
    free_inputs(&s);
    return rc;
}
