#include "compute/ref/ref.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/backends.h"
#include "tests/unit/base/suite.h"

#define N_OF(a) (sizeof(a) / sizeof((a)[0]))

static struct backend *open_ref(void)
{
    const struct backend_config config = {0};
    struct backend *b;
    struct error err;

    ck_assert_int_eq(backend_open(&b, "ref", &config, &err), STATUS_OK);
    return b;
}

static void sync_ok(struct backend *b)
{
    struct error err;

    ck_assert_int_eq(b->type->sync(b, &err), STATUS_OK);
}

/* A buffer that holds n numbers; from may be NULL. */
static struct buffer *buffer_of(struct backend *b, const float *from, size_t n)
{
    struct buffer *m = b->type->buffer_open(b, n * sizeof(float));

    ck_assert_ptr_nonnull(m);
    if (from != NULL)
        b->type->upload(b, m, from, n * sizeof(float));
    return m;
}

static void read_back(struct backend *b, const struct buffer *m, float *out, size_t n)
{
    b->type->download(b, out, m, n * sizeof(float));
    sync_ok(b);
}

static struct weight *weight_of(struct backend *b, const void *data, enum dtype type, size_t n_rows,
                                size_t n_cols)
{
    struct tensor t = {.name = "w",
                       .type = type,
                       .n_rows = n_rows,
                       .n_cols = n_cols,
                       .data = data,
                       .size_bytes = n_rows * dtype_row_bytes(type, n_cols)};
    struct weight *w;
    struct error err;

    ck_assert_int_eq(b->type->weight_open(b, &t, &w, &err), STATUS_OK);
    return w;
}

/* Pseudo-random numbers in [-1, 1), the same for the same seed. */
static void fill(float *out, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        out[i] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
    }
}

static void assert_near(const float *is, const float *known, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_double_eq_tol((double)is[i], (double)known[i], tolerance);
}

/* y = w x, of rows as they are. */
static void multiply(struct backend *b, const struct weight *w, const struct buffer *x, size_t n,
                     struct buffer *y)
{
    const struct input in = {.x = x};
    const struct product product = {w, y};

    b->type->matmul(b, &in, n, &product, 1);
}

/* Rows of the table are returned in the order of the ids. */
START_TEST(embed_takes_rows)
{
    static const float table[] = {1, 2, 3, 4, 5, 6};
    static const int32_t ids[] = {2, 0, 2};
    static const float known[] = {5, 6, 1, 2, 5, 6};
    struct backend *b = open_ref();
    struct weight *w = weight_of(b, table, DTYPE_F32, 3, 2);
    struct buffer *out = buffer_of(b, NULL, 6);
    float is[6];

    b->type->embed(b, w, ids, 3, out);
    read_back(b, out, is, 6);
    ck_assert_mem_eq(is, known, sizeof(known));
    b->type->buffer_close(b, out);
    b->type->weight_close(b, w);
    backend_close(b);
}
END_TEST

/* out[i][r] is the weight's row r times the input's row i. */
START_TEST(matmul_multiplies_rows)
{
    static const float weight[] = {1, 2, 3, 0, -1, 0.5f};
    static const float in[] = {1, 1, 1, 2, 0, -2};
    static const float known[] = {6, -0.5f, -4, -1};
    struct backend *b = open_ref();
    struct weight *w = weight_of(b, weight, DTYPE_F32, 2, 3);
    struct buffer *x = buffer_of(b, in, 6), *y = buffer_of(b, NULL, 4);
    float is[4];

    multiply(b, w, x, 2, y);
    read_back(b, y, is, 4);
    ck_assert_mem_eq(is, known, sizeof(known));
    b->type->buffer_close(b, x);
    b->type->buffer_close(b, y);
    b->type->weight_close(b, w);
    backend_close(b);
}
END_TEST

/* A row's result has the same bits alone and among others, for widths and heights that are no
 * multiples of a vector or a block. */
START_TEST(matmul_does_not_depend_on_n)
{
    enum { ROWS = 19, COLS = 45, N = 7 };
    struct backend *b = open_ref();
    float weight[ROWS * COLS], in[N * COLS], all[N * ROWS], one[ROWS];
    struct buffer *x = buffer_of(b, NULL, N * COLS), *y = buffer_of(b, NULL, N * ROWS);
    struct weight *w;

    fill(weight, ROWS * COLS, 1);
    w = weight_of(b, weight, DTYPE_F32, ROWS, COLS);
    fill(in, N * COLS, 2);
    b->type->upload(b, x, in, sizeof(in));
    multiply(b, w, x, N, y);
    read_back(b, y, all, N * ROWS);
    for (size_t i = 0; i < N; i++) {
        b->type->upload(b, x, in + i * COLS, COLS * sizeof(*in));
        multiply(b, w, x, 1, y);
        read_back(b, y, one, ROWS);
        ck_assert_mem_eq(one, all + i * ROWS, sizeof(one));
    }
    b->type->buffer_close(b, x);
    b->type->buffer_close(b, y);
    b->type->weight_close(b, w);
    backend_close(b);
}
END_TEST

/* A quantised weight multiplies as the numbers that it decodes to, to the bit. */
START_TEST(matmul_decodes_blocks)
{
    enum { ROWS = 3, COLS = 64, N = 2 };
    struct backend *b = open_ref();
    unsigned char blocks[ROWS * 2 * 20]; /* Q4_1: two halves, then sixteen bytes of nibbles */
    float decoded[ROWS * COLS], in[N * COLS], is[N * ROWS], known[N * ROWS];
    struct weight *quantised, *plain;
    struct buffer *x, *y;

    for (size_t i = 0; i < sizeof(blocks); i++)
        blocks[i] = (unsigned char)(i * 37 + 11);
    for (size_t i = 0; i < ROWS * 2; i++)
        memcpy(blocks + i * 20, (uint16_t[]){0x2e66, 0xb800}, 4); /* about 0.1 and -0.5 */
    dtype_decode(DTYPE_Q4_1, blocks, ROWS * COLS, decoded);
    fill(in, N * COLS, 3);
    quantised = weight_of(b, blocks, DTYPE_Q4_1, ROWS, COLS);
    plain = weight_of(b, decoded, DTYPE_F32, ROWS, COLS);
    x = buffer_of(b, in, N * COLS);
    y = buffer_of(b, NULL, N * ROWS);
    multiply(b, quantised, x, N, y);
    read_back(b, y, is, N * ROWS);
    multiply(b, plain, x, N, y);
    read_back(b, y, known, N * ROWS);
    ck_assert_mem_eq(is, known, sizeof(known));
    b->type->buffer_close(b, x);
    b->type->buffer_close(b, y);
    b->type->weight_close(b, quantised);
    b->type->weight_close(b, plain);
    backend_close(b);
}
END_TEST

/* Each row is divided by its own root mean square, then scaled column by column, then multiplied:
 * by one product or by several, and stored or added. */
START_TEST(inputs_are_normed)
{
    static const float in[] = {3, 4, 0, 0, 10, 0, 0, 0}, gain[] = {1, 2, 1, 1};
    static const float weight[] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1},
                       row[] = {1, 1, 5, 5};
    static const float eps = 0.25f;
    struct backend *b = open_ref();
    struct weight *g = weight_of(b, gain, DTYPE_F32, 1, 4),
                  *w = weight_of(b, weight, DTYPE_F32, 4, 4);
    struct weight *one = weight_of(b, row, DTYPE_F32, 1, 4);
    struct buffer *x = buffer_of(b, in, 8), *y = buffer_of(b, NULL, 8), *z = buffer_of(b, NULL, 2);
    const struct input normed = {x, g, eps};
    const struct product both[] = {{w, y}, {one, z}};
    float is[8], first = 1 / sqrtf(6.25f + eps), second = 1 / sqrtf(25 + eps);
    const float known[] = {3 * first, 8 * first, 0, 0, 10 * second, 0, 0, 0};
    const float sums[] = {11 * first, 10 * second}, twice[] = {22 * first, 20 * second};

    b->type->matmul(b, &normed, 2, both, 2);
    read_back(b, y, is, 8);
    assert_near(is, known, 8, 1e-6);
    read_back(b, z, is, 2);
    assert_near(is, sums, 2, 1e-6);
    b->type->matmul_add(b, &normed, 2, &both[1]);
    read_back(b, z, is, 2);
    assert_near(is, twice, 2, 1e-6);
    b->type->buffer_close(b, x);
    b->type->buffer_close(b, y);
    b->type->buffer_close(b, z);
    b->type->weight_close(b, g);
    b->type->weight_close(b, w);
    b->type->weight_close(b, one);
    backend_close(b);
}
END_TEST

/* x + down · (g * sigmoid(g) * u), of one input of two values and three hidden ones. */
START_TEST(ffn_gates)
{
    static const float gate[] = {1, 0, 0, 1, 1, 1}, up[] = {2, 0, 0, 2, 1, -1};
    static const float down[] = {1, 0, 0, 1, 1, 1}, in[] = {1, -1}, before[] = {10, 20};
    const float a = 1 / (1 + expf(-1)) * 2, c = -1 / (1 + expf(1)) * -2;
    const float known[] = {10 + a, 20 + a + c}; /* the third gate is 0 */
    struct backend *b = open_ref();
    struct weight *wg = weight_of(b, gate, DTYPE_F32, 3, 2),
                  *wu = weight_of(b, up, DTYPE_F32, 3, 2);
    struct weight *wd = weight_of(b, down, DTYPE_F32, 2, 3);
    struct buffer *x = buffer_of(b, in, 2), *y = buffer_of(b, before, 2);
    const struct input input = {.x = x};
    const struct ffn ffn = {.gate = wg, .up = wu, .down = wd};
    float is[2];

    b->type->ffn(b, &input, 1, &ffn, y);
    read_back(b, y, is, 2);
    assert_near(is, known, 2, 1e-6);
    b->type->buffer_close(b, x);
    b->type->buffer_close(b, y);
    b->type->weight_close(b, wg);
    b->type->weight_close(b, wu);
    b->type->weight_close(b, wd);
    backend_close(b);
}
END_TEST

/* Neighbours (2j, 2j + 1) are rotated by pos / base^(2j / head_dim), the same in every head;
 * position 0 is not rotated, and a divisor slows its pair down. */
START_TEST(rope_turns_neighbours)
{
    static const float in[] = {1, 0, 1, 0, 0, 1, 0, 1, 5, 6, 7, 8, 9, 10, 11, 12};
    static const uint32_t positions[] = {3, 0};
    static const double divisors[] = {1, 2};
    struct rope rope = {.n_heads = 2, .head_dim = 4, .base = 100};
    struct backend *b = open_ref();
    struct buffer *x = buffer_of(b, in, 16);
    float is[16];
    float known[16] = {cosf(3.0f),  sinf(3.0f), cosf(0.3f),  sinf(0.3f),
                       -sinf(3.0f), cosf(3.0f), -sinf(0.3f), cosf(0.3f)};

    memcpy(known + 8, in + 8, 8 * sizeof(*in));
    b->type->rope(b, &rope, positions, 2, x);
    read_back(b, x, is, 16);
    assert_near(is, known, 16, 1e-6);

    rope.scale = divisors;
    known[2] = cosf(0.15f);
    known[3] = sinf(0.15f);
    known[6] = -sinf(0.15f);
    known[7] = cosf(0.15f);
    b->type->upload(b, x, in, sizeof(in));
    b->type->rope(b, &rope, positions, 2, x);
    read_back(b, x, is, 16);
    assert_near(is, known, 16, 1e-6);
    b->type->buffer_close(b, x);
    backend_close(b);
}
END_TEST

/* Rows by number, one of them twice. */
START_TEST(gather_takes_rows)
{
    static const float in[] = {0, 1, -1, 2}, picked[] = {-1, 2, -1, 2, 0, 1};
    static const uint32_t rows[] = {1, 1, 0};
    struct backend *b = open_ref();
    struct buffer *x = buffer_of(b, in, 4), *out = buffer_of(b, NULL, 6);
    float is[6];

    b->type->gather(b, x, rows, 3, 2, out);
    read_back(b, out, is, 6);
    ck_assert_mem_eq(is, picked, sizeof(picked));
    b->type->buffer_close(b, x);
    b->type->buffer_close(b, out);
    backend_close(b);
}
END_TEST

/* Two query heads share one key head. Position 0 sees itself alone; position 1 sees both, by the
 * softmax of its scores; position 0 does not see position 1. */
START_TEST(attend_is_causal_softmax)
{
    static const struct kv_shape shape = {
        .n_layers = 1, .n_kv_heads = 1, .head_dim = 4, .n_pages = 1, .type = KV_F32};
    static const float k[] = {1, 0, 0, 0, 0, 1, 0, 0}, v[] = {1, 2, 3, 4, -1, 0, 1, 0};
    static const float q[] = {9, 9, 0, 0, 0, 0, 1, 0,  /* position 0: heads 0 and 1 */
                              2, 0, 0, 0, 0, 2, 0, 0}; /* position 1 */
    static const int32_t pages[] = {0};
    const struct attend_row row = {.n_tokens = 2, .pages = pages};
    const float near = 1 / (1 + expf(-1)), far = 1 - near; /* scores 2 / sqrt(4) and 0 */
    float known[16] = {1, 2, 3, 4, 1, 2, 3, 4}, is[16];
    struct backend *b = open_ref();
    struct buffer *bq = buffer_of(b, q, 16), *bk = buffer_of(b, k, 8), *bv = buffer_of(b, v, 8);
    struct buffer *out = buffer_of(b, NULL, 16);
    struct error err;
    struct kv *kv;

    for (size_t d = 0; d < 4; d++) {
        known[8 + d] = near * v[d] + far * v[4 + d];
        known[12 + d] = far * v[d] + near * v[4 + d];
    }
    ck_assert_int_eq(b->type->kv_open(b, &shape, &kv, &err), STATUS_OK);
    b->type->kv_store(b, kv, 0, bk, bv, &row, 1);
    b->type->attend(b, kv, 0, &(struct attention){.n_heads = 2}, bq, &row, 1, out);
    read_back(b, out, is, 16);
    assert_near(is, known, 16, 1e-6);
    b->type->kv_close(b, kv);
    b->type->buffer_close(b, bq);
    b->type->buffer_close(b, bk);
    b->type->buffer_close(b, bv);
    b->type->buffer_close(b, out);
    backend_close(b);
}
END_TEST

/* A prompt of 50 tokens and 3 layers' worth of keys and values, to be run in different ways. */
enum { TOKENS = 50, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 24, LAYERS = 3, PAGES = 9 };
enum { Q_WIDTH = HEADS * HEAD_DIM, KV_WIDTH = KV_HEADS * HEAD_DIM };

static const int32_t in_order[] = {0, 1, 2, 3};

/* Runs the prompt in pieces of chunk tokens in the middle layer; out [TOKENS][Q_WIDTH]. */
static void attend_in_chunks(struct backend *b, struct kv *kv, const int32_t *pages, size_t chunk,
                             float *out)
{
    static float q[TOKENS * Q_WIDTH], k[TOKENS * KV_WIDTH], v[TOKENS * KV_WIDTH];
    struct buffer *bq = buffer_of(b, NULL, N_OF(q)), *bk = buffer_of(b, NULL, N_OF(k));
    struct buffer *bv = buffer_of(b, NULL, N_OF(v)), *bo = buffer_of(b, NULL, N_OF(q));

    fill(q, N_OF(q), 5);
    fill(k, N_OF(k), 6);
    fill(v, N_OF(v), 7);
    for (size_t pos = 0, n; pos < TOKENS; pos += n) {
        struct attend_row row = {.pos = pos, .pages = pages};

        n = row.n_tokens = TOKENS - pos < chunk ? TOKENS - pos : chunk;
        b->type->upload(b, bq, q + pos * Q_WIDTH, n * Q_WIDTH * sizeof(*q));
        b->type->upload(b, bk, k + pos * KV_WIDTH, n * KV_WIDTH * sizeof(*k));
        b->type->upload(b, bv, v + pos * KV_WIDTH, n * KV_WIDTH * sizeof(*v));
        b->type->kv_store(b, kv, 1, bk, bv, &row, 1);
        b->type->attend(b, kv, 1, &(struct attention){.n_heads = HEADS}, bq, &row, 1, bo);
        read_back(b, bo, out + pos * Q_WIDTH, n * Q_WIDTH);
    }
    b->type->buffer_close(b, bq);
    b->type->buffer_close(b, bk);
    b->type->buffer_close(b, bv);
    b->type->buffer_close(b, bo);
}

static struct kv *open_kv(struct backend *b, enum kv_type type)
{
    const struct kv_shape shape = {.n_layers = LAYERS,
                                   .n_kv_heads = KV_HEADS,
                                   .head_dim = HEAD_DIM,
                                   .n_pages = PAGES,
                                   .type = type};
    struct error err;
    struct kv *kv;

    ck_assert_int_eq(b->type->kv_open(b, &shape, &kv, &err), STATUS_OK);
    return kv;
}

/* At once, in chunks of any size, token by token, in pages of any order: the same bits, with any
 * type of keys and values. */
START_TEST(attend_does_not_depend_on_chunks_or_pages)
{
    static const size_t chunks[] = {1, 3, 16, 17, 32};
    static const int32_t scrambled[] = {7, 2, 8, 0};
    static float known[TOKENS * Q_WIDTH], is[TOKENS * Q_WIDTH];
    struct backend *b = open_ref();

    for (int type = KV_F16; type <= KV_Q8; type++) {
        struct kv *kv = open_kv(b, (enum kv_type)type);

        attend_in_chunks(b, kv, in_order, TOKENS, known);
        for (size_t i = 0; i < N_OF(chunks); i++) {
            attend_in_chunks(b, kv, scrambled, chunks[i], is);
            ck_assert_mem_eq(is, known, sizeof(known));
        }
        b->type->kv_close(b, kv);
    }
    backend_close(b);
}
END_TEST

/* Keys and values stored as f16 or q8 give nearly the results of f32, but not the same. */
START_TEST(narrow_pages_are_near)
{
    static const enum kv_type types[] = {KV_F16, KV_Q8};
    static const double tolerances[] = {1e-3, 2e-2};
    static float known[TOKENS * Q_WIDTH], is[TOKENS * Q_WIDTH];
    struct backend *b = open_ref();
    struct kv *f32 = open_kv(b, KV_F32);

    attend_in_chunks(b, f32, in_order, TOKENS, known);
    for (size_t i = 0; i < N_OF(types); i++) {
        struct kv *narrow = open_kv(b, types[i]);

        attend_in_chunks(b, narrow, in_order, TOKENS, is);
        assert_near(is, known, N_OF(is), tolerances[i]);
        ck_assert_mem_ne(is, known, sizeof(known));
        b->type->kv_close(b, narrow);
    }
    b->type->kv_close(b, f32);
    backend_close(b);
}
END_TEST

/* Numbers stored as q8 are within half a step of 1/127 of the greatest magnitude; a value that is
 * not finite affects only its own head and position. */
START_TEST(q8_rounds_to_nearest)
{
    float x[] = {1.0f, -127.0f, 0.5f, 1.5f, 126.4f, -0.0f}, zeros[3] = {0, 0x1p-110f, 0};
    float broken[] = {1.0f, NAN, 2.0f}, infinite[] = {1.0f, INFINITY}, huge[] = {0x1p100f, 1.0f};
    int8_t out[N_OF(x)] = {0};

    ck_assert(kv_q8_round(x, N_OF(x), out) == 1.0f);
    ck_assert_int_eq(out[0], 1);
    ck_assert_int_eq(out[1], -127);
    ck_assert_int_eq(out[2], 0);
    ck_assert_int_eq(out[3], 2);
    ck_assert_int_eq(out[4], 126);
    ck_assert_int_eq(out[5], 0);
    ck_assert(kv_q8_round(zeros, N_OF(zeros), out) == 0.0f);
    ck_assert_int_eq(out[1], 0);
    ck_assert(isnan(kv_q8_round(broken, N_OF(broken), out)));
    ck_assert(isnan(kv_q8_round(infinite, N_OF(infinite), out)));
    ck_assert(isnan(kv_q8_round(huge, N_OF(huge), out)));
    ck_assert_int_eq(out[0], 0);
}
END_TEST

/* A row among others of a step, at any place in the activations, has the bits that it has alone. */
START_TEST(attend_keeps_rows_apart)
{
    enum { FIRST = 20 };
    static const int32_t other_pages[] = {4, 5};
    static float q[TOKENS * Q_WIDTH], k[TOKENS * KV_WIDTH], together[TOKENS * Q_WIDTH];
    static float alone[TOKENS * Q_WIDTH];
    struct attend_row rows[] = {{.n_tokens = FIRST, .pages = in_order},
                                {.first = FIRST, .n_tokens = TOKENS - FIRST, .pages = other_pages}};
    struct backend *b = open_ref();
    struct kv *kv = open_kv(b, KV_F32);
    struct buffer *bq, *bk, *out = buffer_of(b, NULL, N_OF(q));

    fill(q, N_OF(q), 8);
    fill(k, N_OF(k), 9);
    bq = buffer_of(b, q, N_OF(q));
    bk = buffer_of(b, k, N_OF(k));
    b->type->kv_store(b, kv, 2, bk, bk, rows, 2);
    b->type->attend(b, kv, 2, &(struct attention){.n_heads = HEADS}, bq, rows, 2, out);
    read_back(b, out, together, N_OF(together));
    rows[1].first = 0;
    b->type->upload(b, bq, q + FIRST * Q_WIDTH, (TOKENS - FIRST) * Q_WIDTH * sizeof(*q));
    b->type->attend(b, kv, 2, &(struct attention){.n_heads = HEADS}, bq, rows + 1, 1, out);
    read_back(b, out, alone, (TOKENS - FIRST) * Q_WIDTH);
    ck_assert_mem_eq(alone, together + FIRST * Q_WIDTH, (TOKENS - FIRST) * Q_WIDTH * sizeof(*q));
    b->type->kv_close(b, kv);
    b->type->buffer_close(b, bq);
    b->type->buffer_close(b, bk);
    b->type->buffer_close(b, out);
    backend_close(b);
}
END_TEST

/* A copied page has the contents of the original in every layer, and is independent from then
 * on. */
START_TEST(kv_copy_copies_all_layers)
{
    static const int32_t copied[] = {8};
    static float q[Q_WIDTH], k[KV_WIDTH], other[KV_WIDTH], known[Q_WIDTH], is[Q_WIDTH];
    struct attend_row row = {.n_tokens = 1, .pages = in_order};
    struct backend *b = open_ref();
    struct kv *kv = open_kv(b, KV_F32);
    struct buffer *bq, *bk, *bother, *out = buffer_of(b, NULL, Q_WIDTH);

    fill(q, Q_WIDTH, 10);
    fill(k, KV_WIDTH, 11);
    fill(other, KV_WIDTH, 12);
    bq = buffer_of(b, q, Q_WIDTH);
    bk = buffer_of(b, k, KV_WIDTH);
    bother = buffer_of(b, other, KV_WIDTH);
    for (size_t layer = 0; layer < LAYERS; layer++)
        b->type->kv_store(b, kv, layer, bk, bk, &row, 1);
    b->type->kv_copy(b, kv, 0, 8);
    for (size_t layer = 0; layer < LAYERS; layer++)
        b->type->kv_store(b, kv, layer, bother, bother, &row, 1);
    for (size_t h = 0; h < HEADS; h++) /* one position: its value is the answer */
        memcpy(known + h * HEAD_DIM, k + h / 2 * HEAD_DIM, HEAD_DIM * sizeof(*k));
    row.pages = copied;
    for (size_t layer = 0; layer < LAYERS; layer++) {
        b->type->attend(b, kv, layer, &(struct attention){.n_heads = HEADS}, bq, &row, 1, out);
        read_back(b, out, is, Q_WIDTH);
        assert_near(is, known, Q_WIDTH, 1e-6);
    }
    b->type->kv_close(b, kv);
    b->type->buffer_close(b, bq);
    b->type->buffer_close(b, bk);
    b->type->buffer_close(b, bother);
    b->type->buffer_close(b, out);
    backend_close(b);
}
END_TEST

/* A failure inside an operator is returned by the next sync, once; then the backend works again. */
START_TEST(failure_sticks_until_sync)
{
    static float is[TOKENS * Q_WIDTH];
    const struct attend_row row = {.n_tokens = 1, .pages = in_order};
    struct backend *b = open_ref();
    struct kv *kv = open_kv(b, KV_F32);
    struct buffer *x = buffer_of(b, NULL, Q_WIDTH), *out = buffer_of(b, NULL, Q_WIDTH);
    struct error err;

    fault_after = 0; /* the scores' memory, which the first attend takes */
    b->type->attend(b, kv, 0, &(struct attention){.n_heads = HEADS}, x, &row, 1, out);
    b->type->attend(b, kv, 0, &(struct attention){.n_heads = HEADS}, x, &row, 1, out);
    ck_assert_int_eq(b->type->sync(b, &err), STATUS_EXHAUSTED);
    ck_assert_int_eq(err.status, STATUS_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(err.text, "attention scores"));
    sync_ok(b);
    attend_in_chunks(b, kv, in_order, TOKENS, is);
    b->type->kv_close(b, kv);
    b->type->buffer_close(b, x);
    b->type->buffer_close(b, out);
    backend_close(b);
}
END_TEST

/* Missing memory is a failure and no crash. */
START_TEST(too_much_memory_is_refused)
{
    const struct kv_shape shape = {.n_layers = 1 << 10,
                                   .n_kv_heads = 1 << 10,
                                   .head_dim = 1 << 7,
                                   .n_pages = SIZE_MAX / 4,
                                   .type = KV_F32};
    struct backend *b = open_ref();
    struct kv *kv = NULL;
    struct error err;

    ck_assert_ptr_null(b->type->buffer_open(b, SIZE_MAX));
    ck_assert_int_eq(b->type->kv_open(b, &shape, &kv, &err), STATUS_EXHAUSTED);
    ck_assert_ptr_null(kv);
    backend_close(b);
}
END_TEST

SUITE_MAIN("compute/ref", embed_takes_rows, matmul_multiplies_rows, matmul_does_not_depend_on_n,
           matmul_decodes_blocks, inputs_are_normed, ffn_gates, rope_turns_neighbours,
           gather_takes_rows, attend_is_causal_softmax, attend_does_not_depend_on_chunks_or_pages,
           narrow_pages_are_near, q8_rounds_to_nearest, attend_keeps_rows_apart,
           kv_copy_copies_all_layers, failure_sticks_until_sync, too_much_memory_is_refused)
