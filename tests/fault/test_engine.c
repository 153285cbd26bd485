/* The engine when memory or the device fails: every allocation, and every call of the backend. */
#include <stdlib.h>
#include <string.h>

#include "compute/llama.h"
#include "tests/fault/sweep.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/base/suite.h"

enum { MAX_TOKENS = 8, MAX_LOGITS = 2, PAGES = 2 };

/* ref, each of whose operators may fail as a device does: later, and told by sync. A failed
 * operator leaves its output as it was. */
struct faulty {
    struct backend base;
    struct backend *real;
    bool has_failed;
};

static struct backend *real_of(struct backend *b)
{
    return ((struct faulty *)b)->real;
}

/* False when the operator is to do nothing. */
static bool works(struct backend *b)
{
    struct faulty *f = (struct faulty *)b;

    f->has_failed = f->has_failed || fault_now();
    return !f->has_failed;
}

static enum status faulty_open(struct backend *b, const struct backend_config *config,
                               struct error *err)
{
    return backend_open(&((struct faulty *)b)->real, "ref", config, err);
}

static void faulty_close(struct backend *b)
{
    backend_close(real_of(b));
}

static enum status faulty_sync(struct backend *b, struct error *err)
{
    struct faulty *f = (struct faulty *)b;
    bool worked = works(b);
    enum status rc = f->real->type->sync(f->real, err);

    f->has_failed = false;
    return worked ? rc : error_set(err, STATUS_EXHAUSTED, "the device has failed");
}

static struct buffer *faulty_buffer_open(struct backend *b, size_t size_bytes)
{
    return real_of(b)->type->buffer_open(real_of(b), size_bytes);
}

static void faulty_buffer_close(struct backend *b, struct buffer *m)
{
    real_of(b)->type->buffer_close(real_of(b), m);
}

static void faulty_upload(struct backend *b, struct buffer *to, const void *from, size_t size_bytes)
{
    if (works(b))
        real_of(b)->type->upload(real_of(b), to, from, size_bytes);
}

static void faulty_download(struct backend *b, void *to, const struct buffer *from,
                            size_t size_bytes)
{
    if (works(b))
        real_of(b)->type->download(real_of(b), to, from, size_bytes);
}

static enum status faulty_weight_open(struct backend *b, const struct tensor *t,
                                      struct weight **out, struct error *err)
{
    return real_of(b)->type->weight_open(real_of(b), t, out, err);
}

static void faulty_weight_close(struct backend *b, struct weight *w)
{
    real_of(b)->type->weight_close(real_of(b), w);
}

static enum status faulty_kv_open(struct backend *b, const struct kv_shape *shape, struct kv **out,
                                  struct error *err)
{
    return real_of(b)->type->kv_open(real_of(b), shape, out, err);
}

static void faulty_kv_close(struct backend *b, struct kv *kv)
{
    real_of(b)->type->kv_close(real_of(b), kv);
}

static void faulty_kv_copy(struct backend *b, struct kv *kv, int32_t from_page, int32_t to_page)
{
    if (works(b))
        real_of(b)->type->kv_copy(real_of(b), kv, from_page, to_page);
}

static void faulty_embed(struct backend *b, const struct weight *table, const int32_t *ids,
                         size_t n, struct buffer *out)
{
    if (works(b))
        real_of(b)->type->embed(real_of(b), table, ids, n, out);
}

static void faulty_matmul(struct backend *b, const struct input *in, size_t n,
                          const struct product *products, size_t n_products)
{
    if (works(b))
        real_of(b)->type->matmul(real_of(b), in, n, products, n_products);
}

static void faulty_matmul_add(struct backend *b, const struct input *in, size_t n,
                              const struct product *product)
{
    if (works(b))
        real_of(b)->type->matmul_add(real_of(b), in, n, product);
}

static void faulty_ffn(struct backend *b, const struct input *in, size_t n, const struct ffn *f,
                       struct buffer *out)
{
    if (works(b))
        real_of(b)->type->ffn(real_of(b), in, n, f, out);
}

static void faulty_rope(struct backend *b, const struct rope *r, const uint32_t *positions,
                        size_t n, struct buffer *x)
{
    if (works(b))
        real_of(b)->type->rope(real_of(b), r, positions, n, x);
}

static void faulty_kv_store(struct backend *b, struct kv *kv, size_t layer, const struct buffer *k,
                            const struct buffer *v, const struct attend_row *rows, size_t n_rows)
{
    if (works(b))
        real_of(b)->type->kv_store(real_of(b), kv, layer, k, v, rows, n_rows);
}

static void faulty_attend(struct backend *b, const struct kv *kv, size_t layer, size_t n_heads,
                          const struct buffer *q, const struct attend_row *rows, size_t n_rows,
                          struct buffer *out)
{
    if (works(b))
        real_of(b)->type->attend(real_of(b), kv, layer, n_heads, q, rows, n_rows, out);
}

static void faulty_gather(struct backend *b, const struct buffer *in, const uint32_t *rows,
                          size_t n, size_t width, struct buffer *out)
{
    if (works(b))
        real_of(b)->type->gather(real_of(b), in, rows, n, width, out);
}

static const struct backend_type faulty_backend = {
    .name = "faulty",
    .size = sizeof(struct faulty),
    .open = faulty_open,
    .close = faulty_close,
    .sync = faulty_sync,
    .buffer_open = faulty_buffer_open,
    .buffer_close = faulty_buffer_close,
    .upload = faulty_upload,
    .download = faulty_download,
    .weight_open = faulty_weight_open,
    .weight_close = faulty_weight_close,
    .kv_open = faulty_kv_open,
    .kv_close = faulty_kv_close,
    .kv_copy = faulty_kv_copy,
    .embed = faulty_embed,
    .matmul = faulty_matmul,
    .matmul_add = faulty_matmul_add,
    .ffn = faulty_ffn,
    .rope = faulty_rope,
    .kv_store = faulty_kv_store,
    .attend = faulty_attend,
    .gather = faulty_gather,
};

static const struct backend_config backend_config = {.n_threads = 1};

static struct backend *open_faulty(void)
{
    struct faulty *f = xalloc(sizeof *f);
    struct error err;

    f->base.type = &faulty_backend;
    ck_assert_int_eq(faulty_open(&f->base, &backend_config, &err), STATUS_OK);
    return &f->base;
}

struct work {
    const struct tiny_model *file;
    const char *backend; /* NULL: the faulty one */
    float *known;        /* [MAX_LOGITS][TINY_VOCAB], filled by the first run without a fault */
    bool has_known;
};

/* Two rows, one of them on a page that is copied first. */
static enum status step(struct llama *m, float *logits, struct error *err)
{
    static const int32_t ids[] = {1, 7, 9, 11, 200};
    const struct kv_copy copy = {.from = 0, .to = 1};
    const struct llama_row rows[] = {
        {.ids = ids, .n_tokens = 4, .pages = &copy.from, .n_logits = 1, .logits = logits},
        {.ids = ids + 4,
         .n_tokens = 1,
         .pages = &copy.to,
         .n_logits = 1,
         .logits = logits + TINY_VOCAB},
    };

    return llama_forward(m, rows, 2, &copy, 1, err);
}

/* Opens the model and runs a step. A model that failed in a step runs the same step well after. */
static enum status open_and_step(void *arg)
{
    static const struct llama_config config = {
        .max_tokens = MAX_TOKENS, .max_logits = MAX_LOGITS, .n_kv_pages = PAGES, .kv_type = KV_F32};
    struct work *w = arg;
    float logits[MAX_LOGITS * TINY_VOCAB];
    struct backend *b = NULL;
    struct llama *m = NULL;
    struct gguf *g = NULL;
    struct error err = {0};
    enum status rc;

    rc = gguf_open_bytes(&g, w->file->bytes, w->file->size_bytes, "tiny", &err);
    if (rc != STATUS_OK)
        goto out;
    if (w->backend == NULL)
        b = open_faulty();
    else if ((rc = backend_open(&b, w->backend, &backend_config, &err)) != STATUS_OK)
        goto out;
    rc = llama_open(&m, b, g, &config, &err);
    if (rc != STATUS_OK)
        goto out;
    rc = step(m, logits, &err);
    if (rc != STATUS_OK) {
        struct error second;

        ck_assert_int_eq(step(m, logits, &second), STATUS_OK);
    }
    if (!w->has_known)
        memcpy(w->known, logits, sizeof logits);
    w->has_known = true;
    ck_assert_mem_eq(logits, w->known, sizeof logits);
out:
    if (rc != STATUS_OK) {
        ck_assert_int_eq(err.status, rc);
        ck_assert_str_ne(err.text, "");
    }
    llama_close(m);
    if (w->backend == NULL && b != NULL) {
        faulty_close(b);
        free(b);
    } else {
        backend_close(b);
    }
    gguf_close(g);
    return rc;
}

static long sweep_backend(const char *backend)
{
    static float known[MAX_LOGITS * TINY_VOCAB];
    const struct tiny_config config = {
        .type = DTYPE_Q4_1, .has_own_head = true, .has_rope_freqs = true};
    struct tiny_model file;
    struct work w = {.file = &file, .backend = backend, .known = known};
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
        ck_assert_int_ge(sweep_backend(backend_type_at(i)->name), 20);
}
END_TEST

/* Each operator of the device fails in turn: the step says so, and the next one is well. */
START_TEST(operators_fail)
{
    ck_assert_int_ge(sweep_backend(NULL), 20 + 17 * TINY_LAYERS);
}
END_TEST

SUITE_MAIN("fault/engine", allocations_fail, operators_fail)
