#include <stdlib.h>
#include <string.h>

#include "compute/backend/net.h"
#include "compute/backends.h"
#include "compute/gguf/gguf.h"
#include "compute/kv/pages.h"
#include "tests/fault/sweep.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/compute/gguf/gguf_maker.h"

static struct gguf_maker maker;
static struct error err;

/* Opens the good file and calls what allocates; a failed call reports it and changes nothing. */
static enum status read_all(void *arg)
{
    struct gguf *g = NULL;
    const char *text = NULL;
    size_t len = 0;
    enum status rc = gguf_open_bytes(&g, maker.bytes, maker.len, "made", &err);

    if (rc != STATUS_OK) {
        ck_assert_ptr_null(g);
        ck_assert_ptr_nonnull(strstr(err.text, "made: out of memory ("));
        return rc;
    }
    rc = gguf_array_text(g, "texts", 2, &text, &len, &err);
    if (rc != STATUS_OK) {
        ck_assert_ptr_null(text);
        ck_assert_ptr_nonnull(strstr(err.text, "out of memory ("));
        ck_assert_int_eq(gguf_array_text(g, "texts", 2, &text, &len, &err), STATUS_OK);
    }
    ck_assert_uint_eq(len, 5);
    ck_assert_int_eq(memcmp(text, "three", 5), 0);
    ck_assert_uint_eq(gguf_n_tensors(g), 3);
    gguf_close(g);
    return rc;
}

/* A file whose lists cannot be allocated is refused; a failed array is requested again. */
START_TEST(gguf_fails_clean)
{
    make_good(&maker);
    /* keys, their table, tensors, their table, their order, one array's index */
    ck_assert_int_eq(sweep(read_all, NULL), 6);
}
END_TEST

/* Reserves n_more positions until it succeeds, and fills them; *sum records a first failure. */
static void extend(struct kv_pages *p, struct kv_seq *s, size_t n_more, enum status *sum)
{
    struct kv_copy copy;
    struct kv_seq before = *s;
    struct kv_usage was, is;
    enum status rc;

    kv_pages_usage(p, &was);
    rc = kv_seq_reserve(p, s, n_more, &copy, &err);
    if (rc != STATUS_OK) {
        kv_pages_usage(p, &is);
        ck_assert_int_eq(memcmp(&was, &is, sizeof(was)), 0);
        ck_assert(s->pages == before.pages && s->n_pages == before.n_pages &&
                  s->cap_pages == before.cap_pages && s->n_tokens == before.n_tokens);
        *sum = rc;
        rc = kv_seq_reserve(p, s, n_more, &copy, &err);
    }
    ck_assert_int_eq(rc, STATUS_OK);
    s->n_tokens += (uint32_t)n_more;
}

static enum status fork_and_grow(void *arg)
{
    struct kv_pages *p = NULL;
    struct kv_seq parent = {0}, child = {0};
    struct kv_usage usage;
    enum status rc = kv_pages_open(&p, 100, &err);
    enum status sum = STATUS_OK;

    if (rc != STATUS_OK) {
        ck_assert_ptr_null(p);
        return rc;
    }
    extend(p, &parent, 20, &sum);
    extend(p, &parent, 500, &sum);
    rc = kv_seq_share(p, &child, &parent, 500, &err);
    if (rc != STATUS_OK) {
        kv_pages_usage(p, &usage);
        ck_assert(child.n_pages == 0 && child.n_tokens == 0 && usage.n_shared == 0);
        sum = rc;
        rc = kv_seq_share(p, &child, &parent, 500, &err);
    }
    ck_assert_int_eq(rc, STATUS_OK);
    extend(p, &child, 100, &sum);
    kv_seq_free(p, &child);
    kv_seq_free(p, &parent);
    kv_pages_usage(p, &usage);
    ck_assert_uint_eq(usage.n_free, 100);
    kv_pages_close(p);
    return sum;
}

/* A page table without memory leaves sequence and pages unchanged, and works later. */
START_TEST(kv_pages_fail_clean)
{
    /* two lists, then the tables: the parent's twice, the child's twice */
    ck_assert_int_eq(sweep(fork_and_grow, NULL), 6);
}
END_TEST

/* A layer of two rows, whose inputs are packed. */
static enum status run_layer(void *arg)
{
    enum { ROWS = 2, INS = 1024, OUTS = 512, N = 4 };
    static const size_t counts[N] = {ROWS * INS, OUTS * INS, OUTS, ROWS * OUTS};
    const struct backend_config config = {.n_threads = 1};
    struct backend *b = NULL;
    struct buffer *at[N] = {NULL};
    float out[ROWS * OUTS], bias[OUTS];
    enum status rc = backend_open(&b, "cpu", &config, &err), sum = rc;

    if (rc != STATUS_OK) {
        ck_assert_ptr_null(b);
        return rc;
    }
    for (size_t i = 0; i < N; i++) {
        at[i] = b->type->buffer_open(b, counts[i] * sizeof(float));
        if (at[i] == NULL) {
            sum = STATUS_EXHAUSTED;
            at[i] = b->type->buffer_open(b, counts[i] * sizeof(float));
        }
        ck_assert_ptr_nonnull(at[i]);
    }
    for (size_t i = 0; i < OUTS; i++)
        bias[i] = (float)i;
    b->type->upload(b, at[2], bias, sizeof(bias));
    b->type->net->zero(b, at[0], ROWS, INS);
    b->type->net->zero(b, at[1], OUTS, INS);
    b->type->net->linear(b, at[0], at[1], at[2], ROWS, INS, OUTS, at[3]);
    rc = b->type->sync(b, &err);
    if (rc != STATUS_OK) {
        ck_assert_ptr_nonnull(strstr(err.text, "a layer's inputs"));
        sum = rc;
        b->type->net->linear(b, at[0], at[1], at[2], ROWS, INS, OUTS, at[3]);
    }
    b->type->download(b, out, at[3], sizeof(out));
    ck_assert_int_eq(b->type->sync(b, &err), STATUS_OK);
    ck_assert_mem_eq(out, bias, sizeof(bias));
    ck_assert_mem_eq(out + OUTS, bias, sizeof(bias));
    for (size_t i = 0; i < N; i++)
        b->type->buffer_close(b, at[i]);
    backend_close(b);
    return sum;
}

/* A layer without memory for its inputs reports it, and works later. */
START_TEST(layer_fails_clean)
{
    /* four buffers, packed inputs */
    ck_assert_int_eq(sweep(run_layer, NULL), 5);
}
END_TEST

SUITE_MAIN("fault/compute", gguf_fails_clean, kv_pages_fail_clean, layer_fails_clean)
