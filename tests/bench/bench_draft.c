/* What draft tokens by prompt lookup gain: tokens a second of conversations that copy a text and of
 * ordinary chats, with draft tokens where they pay (auto) and without (off). Both run in turn in
 * the same process, each the best of several rounds; time is processor time, of one thread by
 * default, so that other load on the machine counts little. Replies must be the same. Exits with 3
 * when an ordinary chat has less than 0.98 of its speed without.
 *
 *     bench_draft [MODEL.gguf [THREADS]]
 *
 * Without MODEL: PARLEY_MODEL. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/lm_driver.h"

enum { MAX_ROWS = 16, ROUNDS = 4, N_REPLY = 100 };

static const char *const to_copy[] = {
    "Repeat this text, word for word: \"The harbour master wrote down the name of every ship that "
    "came in on the morning tide: the Albatross from Lisbon with oranges and cork, the Maria "
    "Celeste "
    "from Genoa with marble, and the Northern Star from Bergen with dried fish and timber. At noon "
    "he "
    "closed the book, locked it in the iron box under his desk, and went to eat his soup.\"",
    "Repeat this code exactly, changing nothing:\nint sum(const int *values, int n)\n{\n    int "
    "total "
    "= 0;\n\n    for (int i = 0; i < n; i++)\n        total += values[i];\n    return "
    "total;\n}\n\nint "
    "mean(const int *values, int n)\n{\n    return n == 0 ? 0 : sum(values, n) / n;\n}\n",
};

static const char *const to_answer[] = {
    "Why is the sky blue?",
    "Tell me a short story about a fox who wanted to learn to swim.",
    "What should I cook tonight with potatoes, eggs and spinach?",
    "Explain to a child how a steam engine works.",
    "Who was Ada Lovelace, and what did she do?",
    "Give me three reasons to learn to play the piano.",
};

static double now_s(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct agent *open_model(const char *path, size_t n_threads, enum speculate speculate)
{
    struct agent_config config = {.name = "bench",
                                  .path = path,
                                  .options.backend = "cpu",
                                  .options.n_threads = n_threads,
                                  .options.speculate = speculate,
                                  .env = &env_real};
    struct agent *a;
    struct error err;

    if (agent_open(&a, "lm", &config, &err) != STATUS_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return a;
}

struct figures {
    double s; /* of the steps after the prompts */
    size_t n_tokens;
    int32_t ids[MAX_ROWS][N_REPLY];
};

/* n conversations at once, one turn each. Steps that read prompts are not counted. */
static void converse(struct agent *a, const char *const *texts, size_t n_texts, size_t n,
                     float temperature, struct figures *out)
{
    struct drive drives[MAX_ROWS], *all[MAX_ROWS];
    struct sampling s;
    struct error err;
    double start;
    size_t n_before = 0;

    sampling_init(&s);
    s.temperature = temperature;
    s.has_seed = true;
    s.seed = 1;
    s.max_tokens = N_REPLY;
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < n; i++) {
        const struct clone_config plain = {0};
        struct clone *c;

        all[i] = &drives[i];
        if (clone_open(&c, a, &plain, &err) != STATUS_OK ||
            drive_begin(all[i], c, texts[i % n_texts], &s, &err) != STATUS_OK)
            abort();
        while (a->type->cost(a, &all[i]->turn.row) > 1)
            (void)drive_step(a, &all[i], 1, 512);
        n_before += all[i]->turn.reply.n_tokens;
    }
    start = now_s();
    drive_run(a, all, n, 512);
    out->s = now_s() - start;
    for (size_t i = 0; i < n; i++) {
        const struct reply *r = &all[i]->turn.reply;

        for (size_t t = 0; t < r->n_tokens; t++)
            out->ids[i][t] = r->tokens[t].id;
        out->n_tokens += r->n_tokens;
        drive_end(all[i], true);
        clone_close(all[i]->clone);
    }
    out->n_tokens -= n_before;
}

/* Returns the ratio, 0 when the replies are not the same. */
static double compare(struct agent *off, struct agent *on, const char *what,
                      const char *const *texts, size_t n_texts, size_t n, float temperature)
{
    static struct figures a, b;
    struct agent_info before, after;
    double best_a = 0, best_b = 0;
    size_t n_drafted, n_accepted;

    agent_describe(on, &before);
    for (int round = 0; round < ROUNDS; round++) {
        converse(off, texts, n_texts, n, temperature, &a);
        converse(on, texts, n_texts, n, temperature, &b);
        if (a.n_tokens != b.n_tokens || memcmp(a.ids, b.ids, sizeof(a.ids)) != 0) {
            printf("%s: the replies differ\n", what);
            return 0.0;
        }
        best_a = best_a > (double)a.n_tokens / a.s ? best_a : (double)a.n_tokens / a.s;
        best_b = best_b > (double)b.n_tokens / b.s ? best_b : (double)b.n_tokens / b.s;
    }
    agent_describe(on, &after);
    n_drafted = (after.text.drafted_tokens - before.text.drafted_tokens) / ROUNDS;
    n_accepted = (after.text.accepted_tokens - before.text.accepted_tokens) / ROUNDS;
    printf("%-8s %5.1f %5zu %7zu %10.0f %10.0f %7.2f %8zu %8zu\n", what, (double)temperature, n,
           a.n_tokens, best_a, best_b, best_b / best_a, n_drafted, n_accepted);
    (void)fflush(stdout);
    return best_b / best_a;
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : getenv("PARLEY_MODEL");
    size_t n_threads = argc > 2 ? strtoul(argv[2], NULL, 10) : 1;
    const size_t n_copy = sizeof(to_copy) / sizeof(to_copy[0]);
    const size_t n_answer = sizeof(to_answer) / sizeof(to_answer[0]);
    struct agent *off, *on;
    double least = 1.0, ratio;
    int code = 0;

    if (path == NULL || n_threads == 0) {
        (void)fprintf(stderr, "usage: bench_draft MODEL.gguf [THREADS]\n");
        return 2;
    }
    off = open_model(path, n_threads, SPECULATE_OFF);
    on = open_model(path, n_threads, SPECULATE_AUTO);
    printf("%-8s %5s %5s %7s %10s %10s %7s %8s %8s\n", "what", "temp", "rows", "tokens", "off t/s",
           "auto t/s", "ratio", "drafted", "accepted");
    for (size_t i = 0; i < n_copy; i++)
        if (compare(off, on, "copying", &to_copy[i], 1, 1, 0.0f) == 0.0)
            code = 1;
    for (size_t i = 0; i < n_answer; i++) {
        ratio = compare(off, on, "chat", &to_answer[i], 1, 1, i % 2 == 0 ? 0.0f : 0.8f);
        least = ratio < least ? ratio : least;
    }
    for (size_t n = 4; n <= MAX_ROWS; n *= 4) {
        if (compare(off, on, "copying", to_copy, n_copy, n, 0.0f) == 0.0)
            code = 1;
        ratio = compare(off, on, "chat", to_answer, n_answer, n, 0.8f);
        least = ratio < least ? ratio : least;
    }
    agent_unref(off);
    agent_unref(on);
    if (least == 0.0)
        code = 1;
    return code != 0 || least >= 0.98 ? code : 3;
}
