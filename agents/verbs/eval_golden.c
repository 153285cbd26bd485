/* parley eval --golden: compares a model file and a backend with the known answers in four files.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/chat/golden_text.h"
#include "agents/lm/chat/prompt.h"
#include "agents/lm/chat/template.h"
#include "agents/lm/tokenizer/vocab.h"
#include "agents/verbs/verbs.h"
#include "cli/options/options.h"
#include "cli/output/console.h"
#include "cli/output/out.h"
#include "compute/backend/backend.h"
#include "compute/backends.h"
#include "compute/gguf/gguf.h"
#include "compute/model/golden.h"
#include "compute/verbs/golden_bounds.h"
#include "compute/verbs/model_file.h"

enum { EVAL_MARGIN = 1 };

struct eval {
    const char *model, *golden, *backend, *kv;
    uint32_t n_threads;
    double margin;
    bool is_json;
    unsigned set;
};

static const struct option_row eval_rows[] = {
    {"model", "PATH", "a GGUF file (PARLEY_MODEL, else the file that './run model' fetches)",
     OPTION_TEXT, offsetof(struct eval, model), 0},
    {"golden", "DIR", "the folder with tokens.jsonl, chats.jsonl, greedy.jsonl and passages.jsonl",
     OPTION_TEXT, offsetof(struct eval, golden), 0},
    {"backend", "NAME", "the backend: cpu or ref (cpu)", OPTION_TEXT,
     offsetof(struct eval, backend), 0},
    {"kv", "TYPE", "the format of keys and values: f16, q8 or f32 (f16; ref f32)", OPTION_TEXT,
     offsetof(struct eval, kv), 0},
    {"threads", "N", "threads of the CPU backend; 0: as many as physical cores (0)", OPTION_U32,
     offsetof(struct eval, n_threads), 0},
    {"margin", "X",
     "compare greedy replies until the two likeliest tokens' log-probabilities are closer than X "
     "(ref 0.001, others 0.7)",
     OPTION_DOUBLE, offsetof(struct eval, margin), EVAL_MARGIN},
    {"json", NULL, "print one JSON object", OPTION_FLAG, offsetof(struct eval, is_json), 0},
    {0},
};

struct results {
    struct golden_text tokens, chats;
    struct golden_greedy greedy;
    struct golden_passages passages;
};

/* "DIR/NAME", owned by the caller; prints a remark that this file begins. */
static char *begin_file(const struct eval *e, const char *name)
{
    char *path = NULL;

    console_line("eval: %s on %s …", name, e->backend);
    if (asprintf(&path, "%s/%s", e->golden, name) < 0)
        abort(); /* no memory for a path */
    return path;
}

/* The template of the model's file, in parts where it can be, else whole. */
static enum status eval_template_open(struct chat_template **ret_parts,
                                      struct chat_prompter **ret_whole, struct gguf *model,
                                      const struct vocab *vocab, struct error *err)
{
    const char *text = NULL;
    size_t len = 0;
    enum status rc = chat_template_open(ret_parts, model, vocab, err);

    if (rc != STATUS_UNIMPLEMENTED)
        return rc;
    rc = gguf_get_text(model, "tokenizer.chat_template", &text, &len, err);
    if (rc == STATUS_OK)
        rc = chat_prompter_open(ret_whole, text, len, vocab, err);
    return rc == STATUS_OK ? chat_prompter_check(*ret_whole, err) : rc;
}

static enum status eval_text(struct results *r, const struct eval *e, struct gguf *model,
                             struct error *err)
{
    struct vocab *vocab = NULL;
    struct chat_template *template = NULL;
    struct chat_prompter *whole = NULL;
    char *path = NULL;
    enum status rc = vocab_open(&vocab, model, err);

    if (rc != STATUS_OK ||
        (rc = eval_template_open(&template, &whole, model, vocab, err)) != STATUS_OK)
        goto out;
    path = begin_file(e, "tokens.jsonl");
    if ((rc = golden_text_tokens(&r->tokens, vocab, path, err)) != STATUS_OK)
        goto out;
    free(path);
    path = begin_file(e, "chats.jsonl");
    rc = golden_text_chats(&r->chats, vocab, template, whole, path, err);
out:
    free(path);
    chat_template_close(template);
    chat_prompter_close(whole);
    vocab_close(vocab);
    return rc;
}

static enum status eval_engine(struct results *r, const struct eval *e,
                               const struct golden_bounds *b, const struct gguf *model,
                               struct error *err)
{
    const struct backend_config config = {.n_threads = e->n_threads};
    struct backend *backend = NULL;
    struct golden *golden = NULL;
    enum kv_type kv_type = b->kv_type;
    char *path = NULL;
    enum status rc;

    if ((e->kv != NULL && (rc = kv_type_of(&kv_type, e->kv, err)) != STATUS_OK) ||
        (rc = backend_open(&backend, e->backend, &config, err)) != STATUS_OK ||
        (rc = golden_open(&golden, backend, model, kv_type, err)) != STATUS_OK)
        goto out;
    path = begin_file(e, "greedy.jsonl");
    if ((rc = golden_greedy(&r->greedy, golden, path, e->margin, err)) != STATUS_OK)
        goto out;
    free(path);
    path = begin_file(e, "passages.jsonl");
    rc = golden_passages(&r->passages, golden, path, err);
out:
    free(path);
    golden_close(golden);
    backend_close(backend);
    return rc;
}

static json_t *results_json(const struct results *r)
{
    const struct golden_passages *p = &r->passages;

    return json_pack("{s{sI,sI},s{sI,sI},s{sI,sI},s{sI,sf,sf,sf,sf}}", "tokens", "n",
                     (json_int_t)r->tokens.n, "equal", (json_int_t)r->tokens.equal, "chats", "n",
                     (json_int_t)r->chats.n, "equal", (json_int_t)r->chats.equal, "greedy", "n",
                     (json_int_t)r->greedy.n, "equal", (json_int_t)r->greedy.equal, "passages", "n",
                     (json_int_t)p->n, "top1", p->top1, "ppl_ratio", p->ppl_ratio,
                     "max_abs_logprob_diff", p->max_abs_logprob_diff, "mean_abs_logprob_diff",
                     p->mean_abs_logprob_diff);
}

static void print_equal(const char *name, size_t n, size_t equal, size_t first_unequal)
{
    printf("%-9s %zu of %zu equal%s", name, equal, n, equal == n ? "\n" : ": not all");
    if (equal != n && first_unequal > 0)
        printf(", line %zu the first", first_unequal);
    if (equal != n)
        printf("\n");
}

static void print_bounded(const char *what, double value, const char *relation, double bound,
                          bool holds)
{
    printf("%-9s %s %.6f, wanted %s %g%s\n", "passages", what, value, relation, bound,
           holds ? "" : ": does not hold");
}

static bool all_hold(const struct results *r, const struct golden_bounds *b)
{
    return r->tokens.equal == r->tokens.n && r->chats.equal == r->chats.n &&
           r->greedy.equal == r->greedy.n && golden_passages_hold(&r->passages, b);
}

static void print_results(const struct results *r, const struct golden_bounds *b)
{
    const struct golden_passages *p = &r->passages;
    double off = fabs(p->ppl_ratio - 1.0);

    print_equal("tokens", r->tokens.n, r->tokens.equal, r->tokens.first_unequal);
    print_equal("chats", r->chats.n, r->chats.equal, r->chats.first_unequal);
    print_equal("greedy", r->greedy.n, r->greedy.equal, 0);
    print_bounded("likeliest token the same", p->top1, "at least", b->min_top1,
                  p->top1 >= b->min_top1);
    print_bounded("perplexity ratio off 1 by", off, "at most", b->max_ppl_off,
                  off <= b->max_ppl_off);
    print_bounded("logprob off at most", p->max_abs_logprob_diff, "at most", b->max_diff,
                  p->max_abs_logprob_diff <= b->max_diff);
    print_bounded("logprob off on average", p->mean_abs_logprob_diff, "at most", b->mean_diff,
                  p->mean_abs_logprob_diff <= b->mean_diff);
}

enum exit_code eval_golden_run(const struct verb *verb, int argc, char **argv)
{
    struct eval e = {.backend = "cpu"};
    const struct option_group groups[] = {{eval_rows, &e, &e.set}};
    const struct golden_bounds *bounds;
    struct results r = {0};
    struct gguf *model = NULL;
    struct error err;
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 1, argc, argv, 0, 0, &first, &code))
        return code;
    if (e.golden == NULL)
        return options_misuse(verb, "--task, --golden or --world is missing");
    bounds = golden_bounds_of(e.backend);
    if ((e.set & EVAL_MARGIN) == 0)
        e.margin = bounds->margin;
    code = EXIT_FAILED;
    if (model_file_open(&model, e.model, &err) != STATUS_OK ||
        eval_text(&r, &e, model, &err) != STATUS_OK ||
        eval_engine(&r, &e, bounds, model, &err) != STATUS_OK) {
        console_error("%s", err.text);
        goto out;
    }
    if (e.is_json)
        (void)out_json(results_json(&r)); /* out_end reports a failure */
    else
        print_results(&r, bounds);
    code = all_hold(&r, bounds) ? EXIT_DONE : EXIT_BOUND;
out:
    gguf_close(model);
    return code;
}
