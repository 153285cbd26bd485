/* The CUDA kernels of rope, keys and values, and attention, on fibres: bit for bit the results of
 * the cpu backend, for any context, heads, type of pages and division of the work. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/denormals.h"
#include "tests/cuda/rig.h"

enum { MAX_SEQUENCES = 8, N_LAYERS = 2, LAYER = 1, MAX_POSITIONS = 1088 };

static const enum kv_type kv_types[] = {KV_F16, KV_F32, KV_Q8};
enum { N_KV_TYPES = 3 };

/* A step: for each sequence, the number of positions before it and of tokens in it. */
struct step {
    size_t n_heads, n_kv_heads, head_dim, n_sequences;
    size_t before[MAX_SEQUENCES], n_tokens[MAX_SEQUENCES];
    size_t window, n_rotated; /* 0: none; all */
    float cap;
    bool halves;
};

/* A step's tensors on the host, a row for each of its tokens. */
struct tensors {
    size_t n, n_pages;
    struct attend_row rows[MAX_SEQUENCES];
    int32_t tables[MAX_SEQUENCES][MAX_POSITIONS / KV_PAGE_TOKENS];
    uint32_t *positions; /* [n] */
    int32_t *pages;      /* [n] */
    float *q, *k, *v;
};

/* All positions of a part of each sequence: those before the step, or those of it. Pages of all
 * sequences are interleaved. */
static void tensors_init(struct tensors *t, const struct step *s, bool before)
{
    size_t at = 0, q_width = s->n_heads * s->head_dim, kv_width = s->n_kv_heads * s->head_dim;

    *t = (struct tensors){0};
    for (size_t i = 0; i < s->n_sequences; i++) {
        size_t n = before ? s->before[i] : s->n_tokens[i];

        t->rows[i] = (struct attend_row){t->n, n, before ? 0 : s->before[i], t->tables[i], 0};
        t->n += n;
        for (size_t p = 0; p < MAX_POSITIONS / KV_PAGE_TOKENS; p++)
            t->tables[i][p] = (int32_t)(p * s->n_sequences + (i + p) % s->n_sequences);
    }
    t->n_pages = MAX_POSITIONS / KV_PAGE_TOKENS * s->n_sequences;
    t->positions = xalloc((t->n + 1) * sizeof(*t->positions));
    t->pages = xalloc((t->n + 1) * sizeof(*t->pages));
    for (size_t i = 0; i < s->n_sequences; i++)
        for (size_t j = 0; j < t->rows[i].n_tokens; j++, at++) {
            t->positions[at] = (uint32_t)(t->rows[i].pos + j);
            t->pages[at] = t->tables[i][t->positions[at] / KV_PAGE_TOKENS];
        }
    t->q = xalloc((t->n + 1) * q_width * sizeof(*t->q));
    t->k = xalloc((t->n + 1) * kv_width * sizeof(*t->k));
    t->v = xalloc((t->n + 1) * kv_width * sizeof(*t->v));
    fill(t->q, t->n * q_width, before ? 1 : 2);
    fill(t->k, t->n * kv_width, before ? 3 : 4);
    fill(t->v, t->n * kv_width, before ? 5 : 6);
    for (size_t i = 0; i < t->n * q_width; i++)
        t->q[i] *= 4.0f; /* so that softmax is not nearly a mean */
}

static void tensors_deinit(struct tensors *t)
{
    free(t->positions);
    free(t->pages);
    free(t->q);
    free(t->k);
    free(t->v);
}

/* The rows of t that have any tokens. */
static size_t rows_of(const struct tensors *t, size_t n_sequences, struct attend_row *out)
{
    size_t n = 0;

    for (size_t i = 0; i < n_sequences; i++)
        if (t->rows[i].n_tokens > 0)
            out[n++] = t->rows[i];
    return n;
}

/* The host's results for a step: q rotated, and attention's output. */
static void host_step(struct backend *b, const struct step *s, enum kv_type type,
                      const struct tensors *past, const struct tensors *now, float *q, float *out)
{
    const struct kv_shape shape = {.n_layers = N_LAYERS,
                                   .n_kv_heads = s->n_kv_heads,
                                   .head_dim = s->head_dim,
                                   .n_pages = now->n_pages,
                                   .type = type};
    struct rope rope = {.n_heads = s->n_heads,
                        .head_dim = s->head_dim,
                        .base = 10000.0f,
                        .n_rotated = s->n_rotated,
                        .halves = s->halves};
    const struct tensors *both[] = {past, now};
    size_t q_width = s->n_heads * s->head_dim, kv_width = s->n_kv_heads * s->head_dim;
    struct buffer *of_q = NULL, *of_out = host_buffer(b, NULL, now->n * q_width);
    struct kv *kv = NULL;
    struct error err;

    ck_assert_int_eq(b->type->kv_open(b, &shape, &kv, &err), STATUS_OK);
    for (size_t i = 0; i < 2; i++) {
        struct attend_row rows[MAX_SEQUENCES];
        size_t n_rows = rows_of(both[i], s->n_sequences, rows);
        struct buffer *k = host_buffer(b, both[i]->k, both[i]->n * kv_width + 1);
        struct buffer *v = host_buffer(b, both[i]->v, both[i]->n * kv_width + 1);

        if (n_rows > 0) {
            rope.n_heads = s->n_kv_heads;
            b->type->rope(b, &rope, both[i]->positions, both[i]->n, k);
            b->type->kv_store(b, kv, LAYER, k, v, rows, n_rows);
        }
        if (i == 1) {
            of_q = host_buffer(b, now->q, now->n * q_width);
            rope.n_heads = s->n_heads;
            b->type->rope(b, &rope, now->positions, now->n, of_q);
            b->type->attend(
                b, kv, LAYER,
                &(struct attention){.n_heads = s->n_heads, .cap = s->cap, .window = s->window},
                of_q, rows, n_rows, of_out);
        }
        ck_assert_int_eq(b->type->sync(b, &err), STATUS_OK);
        b->type->buffer_close(b, k);
        b->type->buffer_close(b, v);
    }
    host_read(b, of_q, q, now->n * q_width);
    host_read(b, of_out, out, now->n * q_width);
    b->type->kv_close(b, kv);
}

/* [MAX_POSITIONS][n_rotated / 2][2], with ref_rope's angles. */
static float *device_turns(size_t n_rotated)
{
    float *turns = rig_alloc(MAX_POSITIONS * n_rotated * sizeof(*turns));

    for (size_t j = 0; j < n_rotated / 2; j++) {
        double frequency = pow((double)10000.0f, -2.0 * (double)j / (double)n_rotated);

        for (size_t p = 0; p < MAX_POSITIONS; p++) {
            turns[p * n_rotated + 2 * j] = (float)cos((double)p * frequency);
            turns[p * n_rotated + 2 * j + 1] = (float)sin((double)p * frequency);
        }
    }
    rig_written(turns, MAX_POSITIONS * n_rotated * sizeof(*turns));
    return turns;
}

struct device {
    struct cuda_kv kv;
    struct cuda_turns rope;
};

static void device_open(struct device *d, const struct step *s, enum kv_type type, size_t n_pages)
{
    const size_t n = s->n_rotated > 0 ? s->n_rotated : s->head_dim;

    cuda_kv_lay_out(&d->kv, type, N_LAYERS, s->n_kv_heads, s->head_dim);
    d->kv.pages = rig_alloc(n_pages * d->kv.page_bytes);
    device_fill(d->kv.pages, 0, n_pages * d->kv.page_bytes); /* as cuda_kv_open */
    d->rope = (struct cuda_turns){device_turns(n), (uint32_t)s->head_dim, (uint32_t)n, s->halves};
}

static void device_close(struct device *d)
{
    rig_free(d->kv.pages);
    rig_free((void *)d->rope.turns);
}

/* Rotates q and k and stores keys and values: in one launch, or in three. q may be NULL. */
static void device_store(struct device *d, const struct step *s, const struct tensors *t, float *q,
                         bool at_once)
{
    size_t kv_size = t->n * s->n_kv_heads * s->head_dim * sizeof(float);
    float *k = to_device(t->k, kv_size), *v = to_device(t->v, kv_size);
    float *dummy = q != NULL ? NULL : to_device(t->q, t->n * s->n_heads * s->head_dim * sizeof(*q));
    uint32_t *positions = to_device(t->positions, t->n * sizeof(*positions));
    int32_t *pages = to_device(t->pages, t->n * sizeof(*pages));
    struct cuda_tokens tokens = {count_of((uint32_t)t->n, (uint32_t)t->n + 3), positions, pages};

    if (at_once) {
        cuda_rope_kv_store(&d->rope, &d->kv, LAYER, &tokens, (uint32_t)s->n_heads,
                           q != NULL ? q : dummy, k, v, NULL);
    } else {
        cuda_rope(&d->rope, &tokens, (uint32_t)s->n_heads, q != NULL ? q : dummy, NULL);
        cuda_rope(&d->rope, &tokens, (uint32_t)s->n_kv_heads, k, NULL);
        cuda_kv_store(&d->kv, LAYER, &tokens, k, v, NULL);
    }
    must_be_well();
    rig_free(k);
    rig_free(v);
    rig_free(dummy);
    rig_free(positions);
    rig_free(pages);
    rig_free((void *)tokens.n.n);
}

static void device_attend(struct device *d, const struct step *s, const struct tensors *t,
                          size_t enough, const float *q, float *out)
{
    struct cuda_attention a = {.n_heads = (uint32_t)s->n_heads,
                               .window = (uint32_t)s->window,
                               .factor = attend_factor(s->head_dim, 0.0f, s->cap),
                               .cap = s->cap * SCALAR_LOG2_E};
    struct cuda_attend_sizes sizes, again;
    struct cuda_attend_item *items;
    struct attend_row rows[MAX_SEQUENCES];
    size_t n_rows = rows_of(t, s->n_sequences, rows), n_table = 0, n_counters;
    size_t n_sharing = s->n_heads / s->n_kv_heads;
    int32_t *tables = rig_alloc(MAX_SEQUENCES * MAX_POSITIONS * sizeof(*tables));

    cuda_attend_plan(&sizes, NULL, rows, n_rows, n_sharing, enough);
    items = rig_alloc(sizes.n_items * sizeof(*items));
    rig_written(items, sizes.n_items * sizeof(*items));
    cuda_attend_plan(&again, items, rows, n_rows, n_sharing, enough);
    ck_assert_mem_eq(&again, &sizes, sizeof(sizes));
    for (size_t i = 0; i < n_rows; i++) {
        size_t n = (rows[i].pos + rows[i].n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS;

        device_copy(tables + n_table, rows[i].pages, n * sizeof(*tables));
        n_table += n;
    }
    n_counters = sizes.n_counters * s->n_heads;
    a.n_items = count_of((uint32_t)sizes.n_items, (uint32_t)sizes.n_items + 2);
    a.items = items;
    a.tables = tables;
    a.partials = rig_alloc(sizes.n_partials * s->n_heads * (s->head_dim + 2) * sizeof(float));
    a.counters = rig_alloc(n_counters * sizeof(*a.counters));
    device_fill(a.counters, 0, n_counters * sizeof(*a.counters));
    cuda_attend(&d->kv, LAYER, &a, q, out, NULL);
    must_be_well();
    for (size_t i = 0; i < n_counters; i++)
        ck_assert_uint_eq(a.counters[i], 0);
    rig_free((void *)a.n_items.n);
    rig_free(items);
    rig_free(tables);
    rig_free(a.partials);
    rig_free(a.counters);
}

/* The step on the device equals the host's, with its spans together and split among items. */
static void check_step(const struct step *s, enum kv_type type, unsigned n_orders)
{
    size_t q_width = s->n_heads * s->head_dim, n_q;
    struct tensors past, now;
    struct backend *b = open_backend("cpu"), *ref = open_backend("ref");
    struct device d;
    float *want_q, *want, *near, *q, *out;

    tensors_init(&past, s, true);
    tensors_init(&now, s, false);
    n_q = now.n * q_width;
    want_q = xalloc(n_q * sizeof(*want_q));
    want = xalloc(n_q * sizeof(*want));
    near = xalloc(n_q * sizeof(*near));
    host_step(ref, s, type, &past, &now, want_q, near);
    host_step(b, s, type, &past, &now, want_q, want);
    assert_near(want, near, n_q, 5e-4f); /* attention rounds values to 2^-11 */

    device_open(&d, s, type, now.n_pages);
    q = to_device(now.q, n_q * sizeof(*q));
    out = rig_alloc(n_q * sizeof(*out));
    rig_set_orders(1, 0);
    if (past.n > 0)
        device_store(&d, s, &past, NULL, !s->halves);
    rig_set_orders(n_orders, 8);
    device_store(&d, s, &now, q, !s->halves && now.n % 2 == 0);
    assert_same_bits(q, want_q, n_q);
    for (size_t enough = 0; enough < 2; enough++) {
        device_fill(out, 0x55, n_q * sizeof(*out));
        device_attend(&d, s, &now, enough * 1000, q, out);
        assert_same_bits(out, want, n_q);
    }
    device_close(&d);
    rig_free(q);
    rig_free(out);
    free(want_q);
    free(want);
    free(near);
    tensors_deinit(&past);
    tensors_deinit(&now);
    backend_close(b);
    backend_close(ref);
}

/* Decode rows and prefill chunks together, around the edges of pages and spans. */
START_TEST(attention_has_the_bits_of_the_host)
{
    static const struct step steps[] = {
        /* one token after 0, 14, 15, 16 and 999 others */
        {.n_heads = 9,
         .n_kv_heads = 3,
         .head_dim = 64,
         .n_sequences = 5,
         .before = {0, 14, 15, 16, 999},
         .n_tokens = {1, 1, 1, 1, 1}},
        /* chunks, with a token here and there; one from a span into the next */
        {.n_heads = 9,
         .n_kv_heads = 3,
         .head_dim = 64,
         .n_sequences = 5,
         .before = {0, 250, 7, 511, 30},
         .n_tokens = {17, 12, 1, 3, 1}},
        /* heads of their own, of odd sizes */
        {.n_heads = 4,
         .n_kv_heads = 4,
         .head_dim = 80,
         .n_sequences = 3,
         .before = {0, 100, 255},
         .n_tokens = {3, 2, 2}},
        /* more heads to a key than a block takes */
        {.n_heads = 20,
         .n_kv_heads = 1,
         .head_dim = 32,
         .n_sequences = 2,
         .before = {3, 300},
         .n_tokens = {2, 1}},
        {.n_heads = 2,
         .n_kv_heads = 1,
         .head_dim = 256,
         .n_sequences = 2,
         .before = {257, 0},
         .n_tokens = {5, 1}},
        {.n_heads = 2,
         .n_kv_heads = 2,
         .head_dim = 6,
         .n_sequences = 2,
         .before = {20, 0},
         .n_tokens = {9, 4}},
        /* windows that begin within a page, at its edge and in the span before; a part rotated */
        {.n_heads = 6,
         .n_kv_heads = 2,
         .head_dim = 40,
         .n_sequences = 5,
         .before = {0, 30, 255, 520, 999},
         .n_tokens = {20, 3, 2, 1, 1},
         .window = 16,
         .n_rotated = 24,
         .halves = true},
        {.n_heads = 4,
         .n_kv_heads = 2,
         .head_dim = 64,
         .n_sequences = 4,
         .before = {0, 300, 530, 1000},
         .n_tokens = {9, 5, 1, 2},
         .window = 270,
         .n_rotated = 48,
         .cap = 2.0f},
    };
    const size_t n_steps = sizeof(steps) / sizeof(steps[0]);

    ck_assert_uint_eq(n_steps, 8);
    check_step(&steps[_i / N_KV_TYPES], kv_types[_i % N_KV_TYPES],
               _i / N_KV_TYPES == 0 && rig_orders() == 3 ? 2 : rig_orders());
}
END_TEST

/* A token without a page is not stored, and others are. */
START_TEST(what_has_no_page_is_left)
{
    static const struct step s = {.n_heads = 2,
                                  .n_kv_heads = 1,
                                  .head_dim = 32,
                                  .n_sequences = 1,
                                  .before = {0},
                                  .n_tokens = {3}};
    struct tensors t;
    struct device d;
    const uint32_t *stored;

    tensors_init(&t, &s, false);
    device_open(&d, &s, KV_F32, t.n_pages);
    device_fill(d.kv.pages, 0x11, d.kv.page_bytes);
    t.pages[1] = -1;
    rig_set_orders(1, 0);
    device_store(&d, &s, &t, NULL, true);
    stored = (const uint32_t *)(void *)(d.kv.pages + d.kv.layer_bytes + d.kv.values_at);
    ck_assert_uint_ne(stored[0], 0x11111111);
    ck_assert_uint_eq(stored[d.kv.padded_dim], 0x11111111);
    ck_assert_uint_ne(stored[2 * d.kv.padded_dim], 0x11111111);
    device_close(&d);
    tensors_deinit(&t);
}
END_TEST

/* Pages are copied in all layers, each to its place, and others stay. */
START_TEST(pages_are_copied)
{
    static const int32_t pairs[] = {0, 3, 2, 5};
    int32_t *on_device = to_device(pairs, sizeof(pairs));
    struct cuda_kv kv;
    uint8_t *before;
    size_t size;

    cuda_kv_lay_out(&kv, kv_types[_i], 3, 2, 64);
    size = 6 * kv.page_bytes;
    before = xalloc(size);
    for (size_t i = 0; i < size; i++)
        before[i] = (uint8_t)(i * 31 + i / kv.page_bytes);
    kv.pages = to_device(before, size);
    rig_set_orders(rig_orders(), 6);
    cuda_kv_copy(&kv, on_device, 2, NULL);
    must_be_well();
    memcpy(before + 3 * kv.page_bytes, before, kv.page_bytes);
    memcpy(before + 5 * kv.page_bytes, before + 2 * kv.page_bytes, kv.page_bytes);
    ck_assert(memcmp(before, kv.pages, size) == 0);
    rig_free(kv.pages);
    rig_free(on_device);
    free(before);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cuda/sequence");
    TCase *all = tcase_create("all");
    SRunner *runner = srunner_create(suite);
    int failed;

    denormals_are_zero();
    tcase_set_timeout(all, 600);
    tcase_add_loop_test(all, attention_has_the_bits_of_the_host, 0, 8 * N_KV_TYPES);
    tcase_add_test(all, what_has_no_page_is_left);
    tcase_add_loop_test(all, pages_are_copied, 0, N_KV_TYPES);
    suite_add_tcase(suite, all);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
