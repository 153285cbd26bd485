/* How fast the engine runs whole steps of a model: tokens/s at 1 … 128 sequences that each take one
 * token, and of one prompt of 512. Each figure is the best of many steps (other programs use the
 * machine too). Beside it is its share of the machine's speed in the same run: the bytes of weights
 * that a step reads, over its time, relative to what all threads together can read from as much
 * memory. Below it, the operators' shares of the best step.
 *
 *     bench_engine [MODEL.gguf [BACKEND [THREADS [SEQUENCES]]]]
 *
 * Without MODEL: PARLEY_MODEL. SEQUENCES: only steps of so many sequences (1 to 128), for a profile
 * or for two builds in turns; 0 is the prompt. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "compute/backend/backend.h"
#include "compute/backends.h"
#include "compute/gguf/gguf.h"
#include "compute/model/transformer.h"
#include "tests/bench/roof.h"
#include "tests/bench/timed.h"

enum {
    MAX_ROWS = 128,
    PROMPT = 512,
    FILL = 8,      /* tokens of each sequence in a step that leads to the first measured one */
    CONTEXT = 128, /* positions before the first step that is measured */
    STEPS = 16,    /* of a run */
    RUNS = 7,
    PAGES_A_ROW = (CONTEXT + STEPS) / KV_PAGE_TOKENS + 1,
    PROMPT_PAGES = PROMPT / KV_PAGE_TOKENS,
};

struct bench {
    struct gguf *g;
    struct backend *b, *timed;
    struct transformer *m;
    float *logits; /* [MAX_ROWS][n_vocab] */
    int32_t ids[PROMPT];
    int32_t pages[MAX_ROWS][PAGES_A_ROW], prompt_pages[PROMPT_PAGES];
};

static enum status bench_open(struct bench *t, const char *path, const char *backend,
                              size_t n_threads, struct error *err)
{
    struct backend_config config = {.n_threads = n_threads};
    struct transformer_config sizes = {.max_tokens = MAX_ROWS * FILL,
                                       .max_logits = MAX_ROWS,
                                       .n_kv_pages = MAX_ROWS * PAGES_A_ROW + PROMPT_PAGES,
                                       .kv_type = KV_F16};
    double start = clock_s();
    enum status rc;

    if ((rc = gguf_open(&t->g, path, err)) != STATUS_OK ||
        (rc = backend_open(&t->b, backend, &config, err)) != STATUS_OK ||
        (rc = transformer_open(&t->m, t->timed = timed_open(t->b), t->g, &sizes, err)) != STATUS_OK)
        return rc;
    printf("loaded in %.0f ms\n", (clock_s() - start) * 1e3);
    t->logits = xalloc(MAX_ROWS * transformer_shape(t->m)->n_vocab * sizeof(*t->logits));
    for (size_t i = 0; i < PROMPT; i++)
        t->ids[i] = (int32_t)(i * 7919 % transformer_shape(t->m)->n_vocab);
    for (size_t i = 0; i < MAX_ROWS * PAGES_A_ROW; i++)
        t->pages[i / PAGES_A_ROW][i % PAGES_A_ROW] = (int32_t)i;
    for (size_t i = 0; i < PROMPT_PAGES; i++)
        t->prompt_pages[i] = (int32_t)(MAX_ROWS * PAGES_A_ROW + i);
    return STATUS_OK;
}

static void bench_close(struct bench *t)
{
    transformer_close(t->m);
    backend_close(t->timed);
    backend_close(t->b);
    gguf_close(t->g);
    free(t->logits);
}

/* n sequences, n_tokens each from pos on. */
static enum status forward(struct bench *t, size_t n, size_t n_tokens, size_t pos, bool logits,
                           struct error *err)
{
    struct transformer_row rows[MAX_ROWS] = {0};

    for (size_t i = 0; i < n; i++)
        rows[i] = (struct transformer_row){
            .ids = t->ids + i,
            .n_tokens = n_tokens,
            .pos = pos,
            .pages = t->pages[i],
            .n_logits = logits,
            .logits = logits ? t->logits + i * transformer_shape(t->m)->n_vocab : NULL,
        };
    return transformer_forward(t->m, rows, n, NULL, 0, err);
}

/* The shorter time; keeps the step's shares by operator if the step is the shorter one. */
static double better(struct bench *t, double step_s, double best_s)
{
    if (step_s >= best_s)
        return best_s;
    timed_keep(t->timed);
    return step_s;
}

/* *ret_s: of the best step of n sequences. */
static enum status time_steps(struct bench *t, size_t n, double *ret_s, struct error *err)
{
    enum status rc = STATUS_OK;
    double best = 1e9;

    for (size_t pos = 0; pos < CONTEXT && rc == STATUS_OK; pos += FILL)
        rc = forward(t, n, FILL, pos, false, err);
    for (size_t i = 0; i < (size_t)RUNS * STEPS && rc == STATUS_OK; i++) {
        double start = clock_s();

        timed_reset(t->timed);
        rc = forward(t, n, 1, CONTEXT + i % STEPS, true, err);
        best = better(t, clock_s() - start, best);
    }
    *ret_s = best;
    return rc;
}

static enum status time_prompt(struct bench *t, double *ret_s, struct error *err)
{
    struct transformer_row row = {.ids = t->ids,
                                  .n_tokens = PROMPT,
                                  .pages = t->prompt_pages,
                                  .n_logits = 1,
                                  .logits = t->logits};
    enum status rc = STATUS_OK;
    double best = 1e9;

    for (size_t run = 0; run < RUNS && rc == STATUS_OK; run++) {
        double start = clock_s();

        timed_reset(t->timed);
        rc = transformer_forward(t->m, &row, 1, NULL, 0, err);
        best = better(t, clock_s() - start, best);
    }
    *ret_s = best;
    return rc;
}

enum { ALL = -1 };

/* only: a number of sequences, 0 for the prompt, or ALL */
static enum status measure(struct bench *t, size_t n_threads, long only, struct error *err)
{
    size_t weights = transformer_weight_bytes(t->m);
    double roof = only == ALL ? roof_read_rate(weights, n_threads) : 0.0, one = 0.0, s = 0.0;
    enum status rc = STATUS_OK;

    if (only == ALL)
        printf("weights %.1f MB, %zu threads read as much at %.1f GB/s\n", (double)weights / 1e6,
               n_threads, roof / 1e9);
    printf("%9s %10s %10s %12s %12s\n", "sequences", "ms a step", "tokens/s", "of 1's rate",
           "of the roof");
    for (size_t n = only > 0 ? (size_t)only : 1; n <= MAX_ROWS && rc == STATUS_OK; n *= 2) {
        if (only == 0)
            break;
        rc = time_steps(t, n, &s, err);
        one = one > 0.0 ? one : 1.0 / s;
        printf("%9zu %10.3f %10.0f %12.2f %11.0f%%\n", n, s * 1e3, (double)n / s,
               (double)n / s / one, (double)weights / s / roof * 100.0);
        timed_print(t->timed, s);
        (void)fflush(stdout);
        if (only > 0)
            break;
    }
    if (rc != STATUS_OK || (only != ALL && only != 0))
        return rc;
    rc = time_prompt(t, &s, err);
    printf("prompt of %d: %.1f ms, %.0f tokens/s, %.2f of 1's rate\n", (int)PROMPT, s * 1e3,
           PROMPT / s, PROMPT / s / one);
    timed_print(t->timed, s);
    return rc;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : getenv("PARLEY_MODEL");
    const char *backend = argc > 2 ? argv[2] : "cpu";
    size_t n_threads = argc > 3 ? strtoul(argv[3], NULL, 10) : 2;
    long only = argc > 4 ? strtol(argv[4], NULL, 10) : ALL;
    static struct bench t;
    struct error err;
    enum status rc;

    if (path == NULL || n_threads == 0 || n_threads > ROOF_MAX_THREADS) {
        (void)fprintf(stderr, "usage: bench_engine MODEL.gguf [BACKEND [THREADS]]\n");
        return 2;
    }
    rc = bench_open(&t, path, backend, n_threads, &err);
    if (rc == STATUS_OK)
        rc = measure(&t, n_threads, only, &err);
    bench_close(&t);
    if (rc != STATUS_OK)
        (void)fprintf(stderr, "%s\n", err.text);
    return rc != STATUS_OK;
}
