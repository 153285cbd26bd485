/* A whole model: its known answers, and that a sequence's logits are the same bits with any
 * other rows in the step and any chunks of its tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/counter_rng.h"
#include "compute/model/transformer.h"
#include "compute/verbs/golden_bounds.h"
#include "compute/verbs/selftest/selftest.h"

static enum status run_file(struct selftest *s, struct golden *golden, const char *name,
                            struct error *err)
{
    const struct golden_bounds *bounds = golden_bounds_of(s->backend);
    struct golden_passages passages;
    struct golden_greedy greedy;
    char *path = NULL;
    enum status rc;

    if (asprintf(&path, "%s/%s.jsonl", s->golden, name) < 0)
        abort(); /* no memory for a path */
    if (strcmp(name, "greedy") == 0) {
        rc = golden_greedy(&greedy, golden, path, bounds->margin, err);
        if (rc == STATUS_OK)
            selftest_verdict(s, "golden", "replies are the known ones", name,
                             greedy.equal == greedy.n);
    } else {
        rc = golden_passages(&passages, golden, path, err);
        if (rc == STATUS_OK)
            selftest_verdict(s, "golden", "log-probabilities are near", name,
                             golden_passages_hold(&passages, bounds));
    }
    free(path);
    return rc;
}

enum status selftest_golden(struct selftest *s, struct backend *b, const struct gguf *model,
                            struct error *err)
{
    struct golden *golden;
    enum status rc = golden_open(&golden, b, model, golden_bounds_of(s->backend)->kv_type, err);

    if (rc != STATUS_OK)
        return rc;
    rc = run_file(s, golden, "greedy", err);
    if (rc == STATUS_OK)
        rc = run_file(s, golden, "passages", err);
    golden_close(golden);
    return rc;
}

enum { N_SEQUENCES = 64, PAGES = 3, MAX_TOKENS = PAGES * KV_PAGE_TOKENS, CHUNK = 5 };

/* Sequences of random ids, each with pages of its own. */
struct crowd {
    struct transformer *model;
    size_t n_vocab;
    size_t n_tokens[N_SEQUENCES];
    int32_t ids[N_SEQUENCES][MAX_TOKENS];
    int32_t pages[N_SEQUENCES][PAGES];
    float *known, *have; /* [N_SEQUENCES][n_vocab] */
};

static void crowd_draw(struct crowd *c, uint64_t seed)
{
    for (uint32_t i = 0; i < N_SEQUENCES; i++) {
        /* most sequences have one token, as in decoding; every eighth is a prompt */
        c->n_tokens[i] = i % 8 == 0 ? 1 + i * 11 % MAX_TOKENS : 1;
        for (uint32_t k = 0; k < MAX_TOKENS; k++)
            c->ids[i][k] = (int32_t)(counter_rng_uniform(seed, i, k, 0) * (float)c->n_vocab);
        for (uint32_t k = 0; k < PAGES; k++)
            c->pages[i][k] = (int32_t)(k * N_SEQUENCES + i);
    }
}

/* Sequence i from position pos on, and its logits where it ends. */
static struct transformer_row crowd_row_of(const struct crowd *c, size_t i, size_t pos, size_t most,
                                           float *out)
{
    size_t left = c->n_tokens[i] - pos;
    bool ends = left <= most;

    return (struct transformer_row){.ids = c->ids[i] + pos,
                                    .n_tokens = ends ? left : most,
                                    .pos = pos,
                                    .pages = c->pages[i],
                                    .n_logits = ends ? 1 : 0,
                                    .logits = out + i * c->n_vocab};
}

/* n sequences at a time, whole. */
static enum status run_batches(struct crowd *c, size_t n, float *out, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t first = 0; rc == STATUS_OK && first < N_SEQUENCES; first += n) {
        struct transformer_row rows[N_SEQUENCES];

        for (size_t i = 0; i < n; i++)
            rows[i] = crowd_row_of(c, first + i, 0, MAX_TOKENS, out);
        rc = transformer_forward(c->model, rows, n, NULL, 0, err);
    }
    return rc;
}

/* All sequences together, a few tokens of each at a time. */
static enum status run_chunks(struct crowd *c, float *out, struct error *err)
{
    enum status rc = STATUS_OK;

    for (size_t pos = 0; rc == STATUS_OK && pos < MAX_TOKENS; pos += CHUNK) {
        struct transformer_row rows[N_SEQUENCES];
        size_t n = 0;

        for (size_t i = 0; i < N_SEQUENCES; i++)
            if (pos < c->n_tokens[i])
                rows[n++] = crowd_row_of(c, i, pos, CHUNK, out);
        if (n > 0)
            rc = transformer_forward(c->model, rows, n, NULL, 0, err);
    }
    return rc;
}

static enum status check_crowd(struct selftest *s, struct crowd *c, struct error *err)
{
    static const struct {
        size_t n;
        const char *what;
    } batches[] = {{2, "logits in batches of 2"},
                   {8, "logits in batches of 8"},
                   {32, "logits in batches of 32"},
                   {64, "logits in a batch of 64"}};
    const size_t n_bytes = N_SEQUENCES * c->n_vocab * sizeof(*c->known);
    enum status rc = run_batches(c, 1, c->known, err);

    for (size_t i = 0; rc == STATUS_OK && i < sizeof(batches) / sizeof(batches[0]); i++) {
        rc = run_batches(c, batches[i].n, c->have, err);
        if (rc == STATUS_OK)
            selftest_verdict(s, "invariance", batches[i].what, "model",
                             memcmp(c->known, c->have, n_bytes) == 0);
    }
    if (rc == STATUS_OK && (rc = run_chunks(c, c->have, err)) == STATUS_OK)
        selftest_verdict(s, "invariance", "logits of prompts in chunks", "model",
                         memcmp(c->known, c->have, n_bytes) == 0);
    return rc;
}

enum status selftest_invariance(struct selftest *s, struct backend *b, const struct gguf *model,
                                struct error *err)
{
    const struct transformer_config config = {.max_tokens = N_SEQUENCES * MAX_TOKENS,
                                              .max_logits = N_SEQUENCES,
                                              .n_kv_pages = N_SEQUENCES * PAGES,
                                              .kv_type = KV_F16};
    struct crowd *c = xalloc(sizeof(*c));
    enum status rc = transformer_open(&c->model, b, model, &config, err);

    if (rc != STATUS_OK)
        goto out;
    c->n_vocab = transformer_shape(c->model)->n_vocab;
    c->known = try_alloc(N_SEQUENCES, c->n_vocab * sizeof(*c->known));
    c->have = try_alloc(N_SEQUENCES, c->n_vocab * sizeof(*c->have));
    if (c->known == NULL || c->have == NULL) {
        rc = error_no_memory(err, N_SEQUENCES * c->n_vocab * sizeof(*c->known), "logits");
        goto out;
    }
    crowd_draw(c, s->seed);
    rc = check_crowd(s, c, err);
out:
    transformer_close(c->model);
    free(c->known);
    free(c->have);
    free(c);
    return rc;
}
