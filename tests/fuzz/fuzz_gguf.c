/* Any bytes as a GGUF file: every query works on a file that opens. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compute/gguf/gguf.h"
#include "compute/model/read_shape.h"
#include "compute/model/transformer.h"
#include "tests/fuzz/target.h"

enum { MAX_ITEMS = 4096, BLOCK_MAX = 256 };

/* The sum of all bytes read, so that the compiler cannot omit a read. */
static volatile uint64_t sum;

static void sum_text(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sum += (unsigned char)text[i];
}

/* A success needs no check; a failure is one line of text that names the file. */
static void check_answer(enum status rc, const struct error *err)
{
    if (rc == STATUS_OK)
        return;
    assert(rc == err->status);
    assert(strncmp(err->text, "fuzzed: ", 8) == 0);
    assert(strchr(err->text, '\n') == NULL);
}

static void ask_key(struct gguf *g, const char *name)
{
    struct error err;
    const char *text;
    size_t n, len;
    uint64_t u;
    int64_t v;
    double d;
    bool b;

    check_answer(gguf_get_u64(g, name, &u, &err), &err);
    check_answer(gguf_get_f64(g, name, &d, &err), &err);
    check_answer(gguf_get_bool(g, name, &b, &err), &err);
    if (gguf_get_text(g, name, &text, &len, &err) == STATUS_OK)
        sum_text(text, len);
    if (gguf_array_len(g, name, &n, &err) != STATUS_OK)
        return;
    for (size_t i = 0; i <= n && i < MAX_ITEMS; i++) { /* one past the end too */
        check_answer(gguf_array_i64(g, name, i, &v, &err), &err);
        if (gguf_array_text(g, name, i, &text, &len, &err) == STATUS_OK)
            sum_text(text, len);
        else
            check_answer(err.status, &err);
    }
}

static void ask_tensor(const struct gguf *g, size_t i)
{
    const struct tensor *t = gguf_tensor_at(g, i), *same;
    size_t block = dtype_block_values(t->type);
    size_t block_bytes = dtype_block_bytes(t->type);
    float values[BLOCK_MAX];
    bool is_finite = true;
    uint8_t *rows;
    struct error err;
    enum status rc;

    if (gguf_tensor(g, t->name, &same, &err) != STATUS_OK || same != t)
        abort();
    assert(dtype_row_bytes(t->type, t->n_cols) * t->n_rows == t->size_bytes);
    for (size_t at = 0; at < t->size_bytes; at += block_bytes) {
        dtype_decode(t->type, (const char *)t->data + at, block, values);
        sum += values[0] > 0;
        for (size_t k = 0; k < block; k++)
            is_finite = is_finite && isfinite(values[k]);
    }
    rows = malloc(t->size_bytes); /* at most the file's */
    if (rows == NULL)
        abort();
    rc = tensor_read(t, 0, t->n_rows, rows, &err);
    check_answer(rc, &err);
    assert((rc == STATUS_OK) == is_finite);
    free(rows);
}

static void ask_all(struct gguf *g)
{
    struct transformer_shape shape;
    struct error err;

    for (size_t i = 0; i < gguf_n_keys(g); i++) {
        size_t len;
        const char *key = gguf_key_at(g, i, &len);
        char *name = strndup(key, len);

        if (name == NULL)
            abort();
        ask_key(g, name);
        free(name);
    }
    ask_key(g, "absent");
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        ask_tensor(g, i);
    check_answer(transformer_read_shape(&shape, g, &err), &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    /* aligned, and exactly size_bytes */
    uint8_t *bytes = malloc(size_bytes == 0 ? 1 : size_bytes);
    struct gguf *g;
    struct error err;
    enum status rc;

    if (bytes == NULL)
        abort();
    if (size_bytes > 0)
        memcpy(bytes, data, size_bytes);
    rc = gguf_open_bytes(&g, bytes, size_bytes, "fuzzed", &err);
    check_answer(rc, &err);
    if (rc == STATUS_OK) {
        ask_all(g);
        gguf_close(g);
    }
    free(bytes);
    return 0;
}
