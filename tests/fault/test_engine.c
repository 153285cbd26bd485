/* The engine when memory or the device fails: every allocation, and every call of the backend. */
#include <stdlib.h>
#include <string.h>

#include "compute/backends.h"
#include "compute/model/transformer.h"
#include "tests/fault/sweep.h"
#include "tests/support/faulty_backend.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/base/suite.h"

enum { MAX_TOKENS = 40, MAX_LOGITS = 4, PAGES = 4, LANE_ROWS = 4, LANE_ROW_TOKENS = 10 };

struct work {
    const struct tiny_model *file;
    const char *backend; /* NULL: the faulty one */
    size_t n_threads;    /* with several, the step has enough rows for each thread */
    float *known;        /* [MAX_LOGITS][TINY_VOCAB], filled by the first run without a fault */
    bool has_known;
};

/* Rows of different sequences. */
static enum status step_of_lanes(struct transformer *m, float *logits, struct error *err)
{
    static const int32_t pages[LANE_ROWS] = {3, 0, 2, 1};
    int32_t ids[LANE_ROW_TOKENS];
    struct transformer_row rows[LANE_ROWS];

    for (int32_t i = 0; i < LANE_ROW_TOKENS; i++)
        ids[i] = i * 31 % TINY_VOCAB;
    for (size_t i = 0; i < LANE_ROWS; i++)
        rows[i] = (struct transformer_row){.ids = ids,
                                           .n_tokens = LANE_ROW_TOKENS,
                                           .pages = &pages[i],
                                           .n_logits = 1,
                                           .logits = logits + i * TINY_VOCAB};
    return transformer_forward(m, rows, LANE_ROWS, NULL, 0, err);
}

/* Two rows; a page of one is copied first. */
static enum status step_of_two(struct transformer *m, float *logits, struct error *err)
{
    static const int32_t ids[] = {1, 7, 9, 11, 200};
    const struct kv_copy copy = {.from = 0, .to = 1};
    const struct transformer_row rows[] = {
        {.ids = ids, .n_tokens = 4, .pages = &copy.from, .n_logits = 1, .logits = logits},
        {.ids = ids + 4,
         .n_tokens = 1,
         .pages = &copy.to,
         .n_logits = 1,
         .logits = logits + TINY_VOCAB},
    };

    return transformer_forward(m, rows, 2, &copy, 1, err);
}

static enum status step(const struct work *w, struct transformer *m, float *logits,
                        struct error *err)
{
    return w->n_threads > 1 ? step_of_lanes(m, logits, err) : step_of_two(m, logits, err);
}

/* Opens the model and runs a step. After a failed step the same step must succeed. */
static enum status open_and_step(void *arg)
{
    static const struct transformer_config config = {
        .max_tokens = MAX_TOKENS, .max_logits = MAX_LOGITS, .n_kv_pages = PAGES, .kv_type = KV_F32};
    struct work *w = arg;
    const struct backend_config backend_config = {.n_threads = w->n_threads};
    float logits[MAX_LOGITS * TINY_VOCAB] = {0};
    struct backend *b = NULL;
    struct transformer *m = NULL;
    struct gguf *g = NULL;
    struct error err = {0};
    enum status rc;

    rc = gguf_open_bytes(&g, w->file->bytes, w->file->size_bytes, "tiny", &err);
    if (rc != STATUS_OK)
        goto out;
    rc = w->backend == NULL ? backend_open_type(&b, &faulty_backend, &backend_config, &err)
                            : backend_open(&b, w->backend, &backend_config, &err);
    if (rc != STATUS_OK)
        goto out;
    rc = transformer_open(&m, b, g, &config, &err);
    if (rc != STATUS_OK)
        goto out;
    rc = step(w, m, logits, &err);
    if (rc != STATUS_OK) {
        struct error second;

        ck_assert_int_eq(step(w, m, logits, &second), STATUS_OK);
    }
    if (!w->has_known)
        memcpy(w->known, logits, sizeof(logits));
    w->has_known = true;
    ck_assert_mem_eq(logits, w->known, sizeof(logits));
out:
    if (rc != STATUS_OK) {
        ck_assert_int_eq(err.status, rc);
        ck_assert_str_ne(err.text, "");
    }
    transformer_close(m);
    backend_close(b);
    gguf_close(g);
    return rc;
}

static long sweep_backend(const char *backend, size_t n_threads)
{
    static float known[MAX_LOGITS * TINY_VOCAB];
    const struct tiny_config config = {
        .type = DTYPE_Q4_1, .has_own_head = true, .has_rope_freqs = true};
    struct tiny_model file;
    struct work w = {.file = &file, .backend = backend, .n_threads = n_threads, .known = known};
    long n;

    tiny_model_init(&file, &config);
    ck_assert_int_eq(open_and_step(&w), STATUS_OK);
    n = sweep(open_and_step, &w);
    tiny_model_deinit(&file);
    return n;
}

/* Each allocation of opening and running fails in turn, on every backend. */
START_TEST(allocations_fail)
{
    for (size_t i = 0; backend_type_at(i) != NULL; i++)
        if (backend_type_at(i)->load == NULL)
            ck_assert_int_ge(sweep_backend(backend_type_at(i)->name, 1), 20);
}
END_TEST

/* The same where a step is split among threads, each with its own backend. */
START_TEST(allocations_of_lanes_fail)
{
    ck_assert_int_ge(sweep_backend("cpu", 2), 60);
}
END_TEST

/* Each operator of the device fails in turn: the step reports it, and the next one succeeds. */
START_TEST(operators_fail)
{
    ck_assert_int_ge(sweep_backend(NULL, 1), 20 + 17 * TINY_LAYERS);
}
END_TEST

SUITE_MAIN("fault/engine", allocations_fail, allocations_of_lanes_fail, operators_fail)
