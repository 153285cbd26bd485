/* Any bytes as a GGUF file: what opens can be asked everything there is to ask. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "compute/gguf.h"
#include "compute/gguf_parts.h" /* to know the keys' names */
#include "compute/llama.h"
#include "tests/fuzz/target.h"

enum { MAX_ITEMS = 4096, BLOCK_MAX = 256 };

/* What is read is summed up, so that no read can be left out. */
static volatile uint64_t sum;

static void sum_text(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        sum += (unsigned char)text[i];
}

/* A good answer is read; a bad one is one line of text that names the file. */
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
    struct error err;

    if (gguf_tensor(g, t->name, &same, &err) != STATUS_OK || same != t)
        abort();
    assert(dtype_row_bytes(t->type, t->n_cols) * t->n_rows == t->size_bytes);
    for (size_t at = 0; at < t->size_bytes; at += block_bytes) {
        dtype_decode(t->type, (const char *)t->data + at, block, values);
        sum += values[0] > 0;
    }
}

static void ask_all(struct gguf *g)
{
    struct llama_shape shape;
    struct error err;

    for (size_t i = 0; i < g->n_keys; i++) {
        char *name = strndup(g->keys[i].name, g->keys[i].name_len);

        if (name == NULL)
            abort();
        ask_key(g, name);
        free(name);
    }
    ask_key(g, "absent");
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        ask_tensor(g, i);
    check_answer(llama_read_shape(&shape, g, &err), &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    /* aligned, and no byte more than there is */
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
