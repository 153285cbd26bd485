#include <stddef.h>

#include "cli/options/options.h"
#include "cli/output/console.h"
#include "compute/backends.h"
#include "compute/verbs/model_file.h"
#include "compute/verbs/selftest/selftest.h"
#include "compute/verbs/verbs.h"

static const struct option_row selftest_rows[] = {
    {"backend", "NAME", "the backend to test (cpu)", OPTION_TEXT,
     offsetof(struct selftest, backend), 0},
    {"threads", "N", "threads of the CPU backend; 0: as many as physical cores (0)", OPTION_U32,
     offsetof(struct selftest, n_threads), 0},
    {"model", "PATH",
     "a GGUF file: also test whether batches change its bits, and measure its speed", OPTION_TEXT,
     offsetof(struct selftest, model), 0},
    {"golden", "DIR", "with --model: also test its known answers, as eval --golden does",
     OPTION_TEXT, offsetof(struct selftest, golden), 0},
    {"context", "N", "context tokens before each token that is timed (512; 64 on the CPU)",
     OPTION_U32, offsetof(struct selftest, context), 0},
    {"seconds", "X", "how long each figure is measured; 0: no figures (1)", OPTION_DOUBLE_FROM_0,
     offsetof(struct selftest, seconds), 0},
    {"seed", "N", "seed of the random inputs (1)", OPTION_U64, offsetof(struct selftest, seed), 0},
    {"json", NULL, "print one JSON object for each line of the table", OPTION_FLAG,
     offsetof(struct selftest, is_json), 0},
    {0},
};

/* What needs a model. */
static enum status test_model(struct selftest *s, struct backend *b, struct error *err)
{
    struct gguf *model;
    enum status rc;

    if (s->model == NULL) {
        selftest_left_out(s, "model", "no --model was given");
        return STATUS_OK;
    }
    rc = model_file_open(&model, s->model, err);
    if (rc != STATUS_OK)
        return rc;
    if (s->golden != NULL)
        rc = selftest_golden(s, b, model, err);
    else
        selftest_left_out(s, "golden", "no --golden was given");
    if (rc == STATUS_OK)
        rc = selftest_invariance(s, b, model, err);
    if (rc == STATUS_OK && s->seconds > 0)
        rc = selftest_figures(s, b, model, err);
    gguf_close(model);
    return rc;
}

enum exit_code selftest_run(const struct verb *verb, int argc, char **argv)
{
    struct selftest s = {.backend = "cpu", .seed = 1, .seconds = 1.0, .all_hold = true};
    const struct option_group groups[] = {{selftest_rows, &s, NULL}};
    struct backend *ref = NULL, *b = NULL;
    struct backend_config config = {0};
    struct error err;
    enum exit_code code;
    int first;

    if (!options_read(verb, groups, 1, argc, argv, 0, 0, &first, &code))
        return code;
    config.n_threads = s.n_threads;
    if (backend_open(&ref, "ref", &config, &err) == STATUS_OK &&
        backend_open(&b, s.backend, &config, &err) == STATUS_OK &&
        selftest_operators(&s, ref, b, &err) == STATUS_OK &&
        selftest_fast(&s, ref, b, &err) == STATUS_OK &&
        selftest_networks(&s, ref, b, &err) == STATUS_OK && test_model(&s, b, &err) == STATUS_OK) {
        code = s.all_hold ? EXIT_DONE : EXIT_BOUND;
    } else {
        console_error("%s", err.text);
        code = EXIT_FAILED;
    }
    backend_close(ref);
    backend_close(b);
    return code;
}
