#include "compute/model/golden.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "compute/backends.h"
#include "compute/model/transformer.h"
#include "tests/support/tiny_model.h"
#include "tests/unit/base/suite.h"

#define DIFF 0.25 /* the error put into the known log-probabilities */

enum { N_IDS = 140, N_REPLY = 6 }; /* a passage of more than one step of the comparison */

struct rig {
    struct tiny_model file;
    struct gguf *gguf;
    struct backend *backend;
    struct golden *golden;
    char path[32];
    FILE *out; /* the file of known answers, while it is written */
};

static void rig_open(struct rig *r)
{
    const struct tiny_config config = {.seed = 3};
    const struct backend_config backend_config = {0};
    struct error err;
    int fd;

    tiny_model_init(&r->file, &config);
    ck_assert_int_eq(gguf_open_bytes(&r->gguf, r->file.bytes, r->file.size_bytes, "tiny", &err),
                     STATUS_OK);
    ck_assert_int_eq(backend_open(&r->backend, "ref", &backend_config, &err), STATUS_OK);
    ck_assert_int_eq(golden_open(&r->golden, r->backend, r->gguf, KV_F32, &err), STATUS_OK);
    memcpy(r->path, "/tmp/parley-golden-XXXXXX", 26);
    fd = mkstemp(r->path);
    ck_assert_int_ge(fd, 0);
    r->out = fdopen(fd, "w");
    ck_assert_ptr_nonnull(r->out);
}

static void rig_close(struct rig *r)
{
    golden_close(r->golden);
    backend_close(r->backend);
    gguf_close(r->gguf);
    tiny_model_deinit(&r->file);
    (void)unlink(r->path);
}

/* Closes the file of known answers. */
static void rig_written(struct rig *r)
{
    ck_assert_int_eq(fclose(r->out), 0);
}

/* Logits of all n tokens, by a model opened for this; out [n][TINY_VOCAB]. */
static void run_model(const struct rig *r, const int32_t *ids, size_t n, float *out)
{
    static const int32_t pages[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    const struct transformer_config config = {
        .max_tokens = n, .max_logits = n, .n_kv_pages = 10, .kv_type = KV_F32};
    const struct transformer_row row = {
        .ids = ids, .n_tokens = n, .pages = pages, .n_logits = n, .logits = out};
    struct transformer *m;
    struct error err;

    ck_assert_int_eq(transformer_open(&m, r->backend, r->gguf, &config, &err), STATUS_OK);
    ck_assert_int_eq(transformer_forward(m, &row, 1, NULL, 0, &err), STATUS_OK);
    transformer_close(m);
}

static int likeliest(const float *logits)
{
    int best = 0;

    for (int i = 1; i < TINY_VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static double logprob(const float *logits, int id)
{
    double sum = 0.0;

    for (int i = 0; i < TINY_VOCAB; i++)
        sum += exp((double)logits[i] - (double)logits[id]);
    return -log(sum);
}

/* The model's own log-probabilities, each DIFF too high, the first one twice that; the likeliest id
 * wrong at the first. */
static void write_passage(struct rig *r)
{
    static float logits[N_IDS * TINY_VOCAB];
    int32_t ids[N_IDS];

    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 17 + 3) % TINY_VOCAB;
    run_model(r, ids, N_IDS, logits);
    (void)fprintf(r->out, "{\"name\": \"own\", \"ids\": [");
    for (int i = 0; i < N_IDS; i++)
        (void)fprintf(r->out, "%s%d", i > 0 ? "," : "", ids[i]);
    (void)fprintf(r->out, "], \"logprob\": [");
    for (int i = 0; i + 1 < N_IDS; i++)
        (void)fprintf(r->out, "%s%.9f", i > 0 ? "," : "",
                      logprob(logits + i * TINY_VOCAB, ids[i + 1]) + (i > 0 ? DIFF : 2 * DIFF));
    (void)fprintf(r->out, "], \"top1\": [");
    for (int i = 0; i + 1 < N_IDS; i++)
        (void)fprintf(r->out, "%s%d", i > 0 ? "," : "",
                      likeliest(logits + i * TINY_VOCAB) + (i > 0 ? 0 : 1));
    (void)fprintf(r->out, "]}\n");
}

/* The results are the differences that were put into the known answers. */
START_TEST(passages_are_measured)
{
    const double n = N_IDS - 1;
    struct golden_passages is;
    struct error err = {0};
    struct rig r;

    rig_open(&r);
    write_passage(&r);
    rig_written(&r);
    ck_assert_msg(golden_passages(&is, r.golden, r.path, &err) == STATUS_OK, "%s", err.text);
    ck_assert_uint_eq(is.n, 1);
    ck_assert_uint_eq(is.n_tokens, N_IDS - 1);
    ck_assert_double_eq_tol(is.top1, (n - 1) / n, 1e-9);
    ck_assert_double_eq_tol(is.ppl_ratio, exp(DIFF * (n + 1) / n), 1e-6);
    ck_assert_double_eq_tol(is.max_abs_logprob_diff, 2 * DIFF, 1e-6);
    ck_assert_double_eq_tol(is.mean_abs_logprob_diff, DIFF * (n + 1) / n, 1e-6);
    rig_close(&r);
}
END_TEST

/* A greedy reply of the model's own, of which id number wrong_at (-1: none) is made wrong, and the
 * margins are 1 except at small_at. */
static void write_greedy(struct rig *r, int wrong_at, int small_at)
{
    static float logits[(2 + N_REPLY) * TINY_VOCAB];
    int32_t ids[2 + N_REPLY] = {TINY_IM_START, 40};

    for (size_t i = 0; i < N_REPLY; i++) {
        run_model(r, ids, 2 + i, logits);
        ids[2 + i] = likeliest(logits + (1 + i) * TINY_VOCAB);
    }
    (void)fprintf(r->out, "{\"prompt_ids\": [%d, %d], \"reply_ids\": [", ids[0], ids[1]);
    for (int i = 0; i < N_REPLY; i++)
        (void)fprintf(r->out, "%s%d", i > 0 ? "," : "",
                      i == wrong_at ? (ids[2 + i] + 1) % TINY_VOCAB : ids[2 + i]);
    (void)fprintf(r->out, "], \"top5\": [");
    for (int i = 0; i < N_REPLY; i++)
        (void)fprintf(r->out, "%s[[1, -1], [2, %s]]", i > 0 ? "," : "",
                      i == small_at ? "-1.01" : "-2");
    (void)fprintf(r->out, "]}\n");
}

/* A reply that differs is counted, except for differences after a small margin. All lines are run,
 * also if they are more than run at once. */
START_TEST(replies_are_compared)
{
    enum { N_SOUND = 15 };
    struct golden_greedy is;
    struct error err = {0};
    struct rig r;

    rig_open(&r);
    for (int i = 0; i < N_SOUND; i++)
        write_greedy(&r, -1, -1);
    write_greedy(&r, 0, -1); /* wrong at once */
    write_greedy(&r, N_REPLY - 1, -1);
    write_greedy(&r, 3, 4); /* wrong before the small margin */
    write_greedy(&r, 3, 3);
    write_greedy(&r, 3, 0);
    rig_written(&r);
    ck_assert_msg(golden_greedy(&is, r.golden, r.path, 0.1, &err) == STATUS_OK, "%s", err.text);
    ck_assert_uint_eq(is.n, N_SOUND + 5);
    ck_assert_uint_eq(is.equal, N_SOUND + 2);
    ck_assert_msg(golden_greedy(&is, r.golden, r.path, 1e-3, &err) == STATUS_OK, "%s", err.text);
    ck_assert_uint_eq(is.equal, N_SOUND);
    rig_close(&r);
}
END_TEST

static const struct {
    const char *line, *word;
} wrong_replies[] = {
    {"{", "line 1"},
    {"[]", "line 1: a list of token ids"},
    {"{\"prompt_ids\": [1, 2.5]}", "line 1: a token id"},
    {"{\"prompt_ids\": [267]}", "line 1: a token id"},
    {"{\"prompt_ids\": [1], \"reply_ids\": [-1]}", "line 1: a token id"},
    {"{\"prompt_ids\": [1], \"reply_ids\": [2]}", "line 1: top5"},
    {"{\"prompt_ids\": [1], \"reply_ids\": [2], \"top5\": [[[1, -1]]]}", "line 1: top5"},
};

/* The error for a wrong line names the file and the line's number. */
START_TEST(wrong_lines_are_refused)
{
    for (size_t i = 0; i < sizeof(wrong_replies) / sizeof(wrong_replies[0]); i++) {
        struct golden_greedy is;
        struct error err = {0};
        struct rig r;

        rig_open(&r);
        (void)fprintf(r.out, "%s\n", wrong_replies[i].line);
        rig_written(&r);
        ck_assert_int_eq(golden_greedy(&is, r.golden, r.path, 0.1, &err), STATUS_DATA_LOSS);
        ck_assert_ptr_nonnull(strstr(err.text, r.path));
        ck_assert_msg(strstr(err.text, wrong_replies[i].word) != NULL, "%s", err.text);
        rig_close(&r);
    }
}
END_TEST

/* A passage whose log-probabilities are missing or not numbers is refused; so are a file without a
 * passage, and a missing file. */
START_TEST(wrong_passages_are_refused)
{
    static const char *const lines[] = {
        "",
        "{\"ids\": [1, 2], \"logprob\": [-1], \"top1\": []}",
        "{\"ids\": [1, 2], \"logprob\": [\"x\"], \"top1\": [2]}",
        "{\"ids\": [1], \"logprob\": [], \"top1\": []}\n",
    };
    struct golden_passages is;
    struct error err = {0};
    struct rig r;

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        rig_open(&r);
        (void)fputs(lines[i], r.out);
        rig_written(&r);
        ck_assert_int_eq(golden_passages(&is, r.golden, r.path, &err), STATUS_DATA_LOSS);
        rig_close(&r);
    }
    rig_open(&r);
    rig_written(&r);
    ck_assert_int_eq(unlink(r.path), 0);
    ck_assert_int_eq(golden_passages(&is, r.golden, r.path, &err), STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.text, r.path));
    rig_close(&r);
}
END_TEST

/* Opening or running without enough memory leaks nothing. */
START_TEST(allocations_fail)
{
    enum status rc = STATUS_UNKNOWN;
    struct golden_passages is;
    struct error err;
    struct rig r;

    rig_open(&r);
    write_passage(&r);
    rig_written(&r);
    for (long n = 0; rc != STATUS_OK; n++) {
        struct golden *golden;

        fault_after = n;
        rc = golden_open(&golden, r.backend, r.gguf, KV_F16, &err);
        if (rc == STATUS_OK) {
            rc = golden_passages(&is, golden, r.path, &err);
            golden_close(golden);
        }
        ck_assert(rc == STATUS_OK || rc == STATUS_EXHAUSTED);
    }
    fault_after = -1;
    rig_close(&r);
}
END_TEST

SUITE_MAIN("compute/golden", passages_are_measured, replies_are_compared, wrong_lines_are_refused,
           wrong_passages_are_refused, allocations_fail)
