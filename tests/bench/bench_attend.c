/* How fast the cpu backend attends, for the heads of SmolLM2-135M: decode of 64 sequences, with
 * pages of their own and with a shared prefix, and some tokens alone, a prompt's or one of a long
 * conversation, which every 30 layers see once.
 * Each figure is the sum of each layer's best time (other programs use the machine too); beside
 * decode is its rate: the bytes of keys and values that it reads, over the time.
 *
 *     bench_attend [THREADS [f16|q8|f32]] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "compute/backend/backend.h"
#include "compute/backends.h"

enum {
    HEADS = 9,
    KV_HEADS = 3,
    HEAD_DIM = 64,
    WIDTH = HEADS * HEAD_DIM,
    KV_WIDTH = KV_HEADS * HEAD_DIM,
    LAYERS = 30,
    ROWS = 64,
    LONGEST = 4096,
    RUNS = 15,
};

static double now_us(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

struct bench {
    struct backend *b;
    enum kv_type type;
    struct buffer *q, *k, *v, *out; /* [LONGEST][…] */
};

static struct buffer *random_buffer(struct backend *b, size_t n)
{
    struct buffer *m = b->type->buffer_open(b, n * sizeof(float));
    float *x = xalloc(n * sizeof(*x));
    uint32_t bits = 1;

    for (size_t i = 0; i < n; i++) {
        bits = bits * 1664525u + 1013904223u;
        x[i] = (float)(bits >> 8) / 8388608.0f - 1.0f;
    }
    if (m == NULL)
        abort();
    b->type->upload(b, m, x, n * sizeof(*x));
    free(x);
    return m;
}

static void must_sync(struct backend *b)
{
    struct error err;

    if (b->type->sync(b, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        abort();
    }
}

static struct kv *open_kv(struct bench *t, size_t n_layers, size_t n_pages)
{
    struct kv_shape shape = {n_layers, KV_HEADS, HEAD_DIM, n_pages, t->type, 0, NULL};
    struct kv *kv = NULL;
    struct error err;

    if (t->b->type->kv_open(t->b, &shape, &kv, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        abort();
    }
    return kv;
}

/* Times one call; *best is the layer's least time so far, 0 before the first. */
static void time_attend(struct bench *t, struct kv *kv, size_t layer, const struct attend_row *rows,
                        size_t n_rows, double *best)
{
    double start = now_us();

    t->b->type->attend(t->b, kv, layer, &(struct attention){.n_heads = HEADS}, t->q, rows, n_rows,
                       t->out);
    start = now_us() - start;
    *best = *best == 0.0 || start < *best ? start : *best;
}

/* Microseconds a token and layer of ROWS sequences that each attend to `context` positions, the
 * first n_shared of them in pages that all share. */
static double time_decode(struct bench *t, size_t context, size_t n_shared, size_t n_layers)
{
    size_t n_pages = context / KV_PAGE_TOKENS, n_common = n_shared / KV_PAGE_TOKENS;
    struct kv *kv = open_kv(t, n_layers, ROWS * n_pages);
    int32_t *pages = xalloc(ROWS * n_pages * sizeof(*pages));
    struct attend_row rows[ROWS], fill;
    double best[LAYERS] = {0}, sum = 0.0;

    for (size_t i = 0; i < ROWS; i++) {
        for (size_t p = 0; p < n_pages; p++) /* scattered, as on a server that has run for long */
            pages[i * n_pages + p] =
                (int32_t)(p < n_common ? p * ROWS : p * ROWS + (i * 37 + p * 11) % ROWS);
        rows[i] = (struct attend_row){i, 1, context - 1, pages + i * n_pages, 0};
        fill = (struct attend_row){0, context, 0, pages + i * n_pages, 0};
        for (size_t layer = 0; layer < n_layers; layer++)
            t->b->type->kv_store(t->b, kv, layer, t->k, t->v, &fill, 1);
    }
    for (int run = 0; run < RUNS; run++)
        for (size_t layer = 0; layer < n_layers; layer++)
            time_attend(t, kv, layer, rows, ROWS, &best[layer]);
    must_sync(t->b);
    t->b->type->kv_close(t->b, kv);
    free(pages);
    for (size_t layer = 0; layer < n_layers; layer++)
        sum += best[layer];
    return sum / (double)(n_layers * ROWS);
}

/* Milliseconds that LAYERS layers take to attend from position pos on. */
static double time_prompt(struct bench *t, size_t pos, size_t n_tokens)
{
    struct kv *kv = open_kv(t, 1, LONGEST / KV_PAGE_TOKENS);
    int32_t pages[LONGEST / KV_PAGE_TOKENS];
    struct attend_row fill = {0, pos + n_tokens, 0, pages, 0}, row = {0, n_tokens, pos, pages, 0};
    double best = 0.0;

    for (size_t p = 0; p < LONGEST / KV_PAGE_TOKENS; p++)
        pages[p] = (int32_t)p;
    t->b->type->kv_store(t->b, kv, 0, t->k, t->v, &fill, 1);
    for (int run = 0; run < RUNS * LAYERS; run++)
        time_attend(t, kv, 0, &row, 1, &best);
    must_sync(t->b);
    t->b->type->kv_close(t->b, kv);
    return best * LAYERS * 1e-3;
}

static void measure(struct bench *t)
{
    static const struct {
        size_t context, n_shared, n_layers;
    } decodes[] = {{128, 0, 30}, {1024, 0, 7}, {1024, 1008, 7}, {1024, 512, 7}};
    static const struct {
        size_t pos, n_tokens;
    } prompts[] = {{0, 512}, {0, 1024}, {0, 64}, {960, 64}, {4092, 4}, {4095, 1}};

    for (size_t i = 0; i < sizeof(decodes) / sizeof(decodes[0]); i++) {
        double us = time_decode(t, decodes[i].context, decodes[i].n_shared, decodes[i].n_layers);
        double bytes =
            (double)(decodes[i].context * 2 * KV_HEADS * kv_head_bytes(t->type, HEAD_DIM));

        printf("decode, %d sequences of %4zu, %4zu of them shared: %7.2f us/token/layer, "
               "%5.1f GB/s\n",
               (int)ROWS, decodes[i].context, decodes[i].n_shared, us, bytes / us * 1e-3);
        (void)fflush(stdout);
    }
    for (size_t i = 0; i < sizeof(prompts) / sizeof(prompts[0]); i++) {
        size_t pos = prompts[i].pos, n = prompts[i].n_tokens;
        double ms = time_prompt(t, pos, n);
        double pairs = (double)(n * pos + n * (n + 1) / 2); /* of query and key */

        printf("prompt, positions %4zu to %4zu: %7.2f ms for %d layers, %5.1f GFLOP/s\n", pos,
               pos + n - 1, ms, (int)LAYERS, pairs * WIDTH * 4 * LAYERS / ms * 1e-6);
        (void)fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    struct backend_config config = {.n_threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 2};
    const char *type = argc > 2 ? argv[2] : "f16";
    struct bench t = {0};
    struct error err;

    if (kv_type_of(&t.type, type, &err) != STATUS_OK ||
        backend_open(&t.b, "cpu", &config, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    t.q = random_buffer(t.b, LONGEST * WIDTH);
    t.k = random_buffer(t.b, LONGEST * KV_WIDTH);
    t.v = random_buffer(t.b, LONGEST * KV_WIDTH);
    t.out = random_buffer(t.b, LONGEST * WIDTH);
    measure(&t);
    t.b->type->buffer_close(t.b, t.q);
    t.b->type->buffer_close(t.b, t.k);
    t.b->type->buffer_close(t.b, t.v);
    t.b->type->buffer_close(t.b, t.out);
    backend_close(t.b);
    return 0;
}
