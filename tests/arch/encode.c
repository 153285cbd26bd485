/* Computes the vectors of texts by an encoder, and checks that they do not depend on how they are
 * batched.
 * usage: encode MODEL BACKEND POOLING ROWS OUT: POOLING is a number as in files, 0 for theirs; ROWS
 * is a file of int32: for each row its tokens, those of the first text, and the ids. OUT gets the
 * vectors, f32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/denormals.h"
#include "compute/backends.h"
#include "compute/encoder/encoder.h"
#include "compute/gguf/gguf.h"

enum { MAX_TOKENS = 1024, MAX_ROWS = 16, MAX_NUMBERS = MAX_TOKENS + 2 * MAX_ROWS };

static struct error err;

static void must(enum status rc)
{
    if (rc == STATUS_OK)
        return;
    (void)fprintf(stderr, "%s\n", err.text);
    exit(EXIT_FAILURE);
}

struct engine {
    struct backend *backend;
    struct encoder *encoder;
};

static void engine_open(struct engine *e, const struct gguf *g, const char *backend, int pooling,
                        size_t n_threads)
{
    const struct backend_config config = {.n_threads = n_threads};
    const struct encoder_config of = {
        .max_tokens = MAX_TOKENS, .max_rows = MAX_ROWS, .pooling = (enum encoder_pooling)pooling};

    must(backend_open(&e->backend, backend, &config, &err));
    must(encoder_open(&e->encoder, e->backend, g, &of, &err));
}

static void engine_close(struct engine *e)
{
    encoder_close(e->encoder);
    backend_close(e->backend);
}

static size_t read_rows(const char *path, int32_t numbers[MAX_NUMBERS],
                        struct encoder_row rows[MAX_ROWS])
{
    FILE *in = fopen(path, "re");
    size_t n = in != NULL ? fread(numbers, sizeof(*numbers), MAX_NUMBERS, in) : 0, n_rows = 0;

    for (size_t at = 0; at + 2 < n && n_rows < MAX_ROWS; n_rows++) {
        rows[n_rows] = (struct encoder_row){.n_tokens = (size_t)numbers[at],
                                            .n_first = (size_t)numbers[at + 1],
                                            .ids = numbers + at + 2};
        at += 2 + rows[n_rows].n_tokens;
    }
    if (n_rows == 0)
        must(error_set(&err, STATUS_NOT_FOUND, "%s: no rows", path));
    (void)fclose(in); /* only read from */
    return n_rows;
}

/* The rows in groups of `most`, the last one first. */
static void check_groups(const struct engine *e, const struct encoder_row *rows, size_t n,
                         size_t most, const float *want, const char *what)
{
    const size_t width = encoder_n_out(e->encoder);
    float *got = xalloc(n * width * sizeof(*got));
    struct encoder_row turned[MAX_ROWS];

    for (size_t i = 0; i < n; i++) {
        turned[i] = rows[n - 1 - i];
        turned[i].out = got + (n - 1 - i) * width;
    }
    for (size_t i = 0; i < n; i += most)
        must(encoder_run(e->encoder, turned + i, n - i < most ? n - i : most, &err));
    if (memcmp(want, got, n * width * sizeof(*got)) != 0)
        must(error_set(&err, STATUS_UNKNOWN, "other bits: %s", what));
    free(got);
}

int main(int argc, char **argv)
{
    static int32_t numbers[MAX_NUMBERS];
    struct encoder_row rows[MAX_ROWS];
    struct engine one, two;
    struct gguf *g;
    size_t n, width;
    float *want;
    FILE *out;

    if (argc != 6)
        return EXIT_FAILURE;
    denormals_are_zero();
    must(gguf_open(&g, argv[1], &err));
    n = read_rows(argv[4], numbers, rows);
    engine_open(&one, g, argv[2], (int)strtol(argv[3], NULL, 10), 1);
    width = encoder_n_out(one.encoder);
    want = xalloc(n * width * sizeof(*want));
    for (size_t i = 0; i < n; i++)
        rows[i].out = want + i * width;
    must(encoder_run(one.encoder, rows, n, &err));
    check_groups(&one, rows, n, 1, want, "each alone");
    check_groups(&one, rows, n, 3, want, "three at a time");
    engine_open(&two, g, argv[2], (int)strtol(argv[3], NULL, 10), 2);
    check_groups(&two, rows, n, n, want, "two threads");
    out = fopen(argv[5], "we");
    if (out == NULL || fwrite(want, sizeof(*want), n * width, out) != n * width || fclose(out) != 0)
        must(error_set(&err, STATUS_UNKNOWN, "%s: cannot be written", argv[5]));
    engine_close(&one);
    engine_close(&two);
    gguf_close(g);
    free(want);
    return EXIT_SUCCESS;
}
