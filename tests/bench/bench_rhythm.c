/* How arriving prompts delay running replies, and how soon the prompts are read: the real batcher
 * and model, without the wire. One thread computes and its processor time is the clock, so that
 * other load on the machine changes little.
 *
 *     bench_rhythm [MODEL.gguf [MAX_ITL_MS [MAX_STEP_TOKENS]]]
 *
 * Without MODEL: PARLEY_MODEL. First 8 conversations generate and one prompt of 4,000 tokens
 * arrives: their inter-token latency while it is read, compared with before. Then 64 prompts of 64
 * tokens arrive at once: their time to first token, compared with no bound. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "tests/support/lm_driver.h"

enum { N_WRITING = 8, N_CROWD = 64, MAX_SAMPLES = 1 << 16 };

struct talk {
    struct drive drive;
    struct flow asker;
    struct batch_request ask;
    char *text;
    uint64_t asked_us, last_us, first_token_us; /* first_token_us: since asked_us; 0: none yet */
    size_t n_tokens;
    bool is_done, is_sampled;
};

struct bench {
    struct agent *agent;
    struct batcher *batcher;
    struct batch_step *step;
    bool is_due, is_closed;
    struct samples {
        uint64_t us[MAX_SAMPLES];
        size_t n;
    } itl;
};

static uint64_t cpu_us(void *self)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void no_random(void *self, void *out, size_t n_bytes)
{
    memset(out, 0, n_bytes);
}

static const struct env cpu_env = {.now_us = cpu_us, .random = no_random};
static struct bench bench;

static void begin_step(void *self, struct batch_step *step)
{
    bench.step = step;
}

static void arm(void *self, uint64_t at_us)
{
    bench.is_due = at_us != 0;
}

static void fail(const char *what)
{
    (void)fprintf(stderr, "%s\n", what);
    exit(1);
}

/* Runs until done returns true, or no work is left. */
static void run_until(bool (*done)(void *arg), void *arg)
{
    struct batch_step *step;

    while (!done(arg)) {
        if (bench.is_due) {
            bench.is_due = false;
            batcher_tick(bench.batcher);
        }
        step = bench.step;
        if (step == NULL) {
            if (!bench.is_due)
                return;
            continue;
        }
        bench.step = NULL;
        agent_compute(bench.agent, step->rows, step->n_rows);
        step->done(step);
    }
}

static void note_tokens(struct talk *t)
{
    uint64_t now_us = cpu_us(NULL);
    size_t n = t->drive.turn.reply.n_tokens;

    if (n == t->n_tokens)
        return;
    if (t->n_tokens == 0)
        t->first_token_us = now_us - t->asked_us;
    else if (t->is_sampled && bench.itl.n < MAX_SAMPLES)
        bench.itl.us[bench.itl.n++] = (now_us - t->last_us) / (n - t->n_tokens);
    t->n_tokens = n;
    t->last_us = now_us;
}

static void on_more(struct batch_request *ask, void *arg)
{
    note_tokens(arg);
}

static void on_settled(struct future *f, const struct error *err, void *arg)
{
    struct talk *t = arg;

    if (err->status != STATUS_OK && err->status != STATUS_CANCELLED)
        fail(err->text);
    note_tokens(t);
    t->is_done = true;
}

/* n_words words of a token or two each, different for each seed, so that no cache has them. */
static char *words(size_t n_words, uint32_t seed)
{
    static const char *const all[] = {" river", " stone", " cloud", " paper", " night", " green",
                                      " table", " seven", " music", " horse", " bread", " light"};
    char *text = xalloc(n_words * 8 + 1), *at = text;

    for (size_t i = 0; i < n_words; i++) {
        seed = seed * 1664525 + 1013904223;
        at = stpcpy(at, all[(seed >> 16) % (sizeof(all) / sizeof(all[0]))]);
    }
    return text;
}

static void talk_begin(struct talk *t, size_t n_words, uint32_t seed, uint32_t max_tokens)
{
    const struct clone_config config = {.system = "", .system_len = 0};
    struct sampling s;
    struct clone *c;
    struct error err;

    *t = (struct talk){.text = words(n_words, seed)};
    sampling_init(&s);
    s.max_tokens = max_tokens;
    s.ignore_eos = true;
    flow_init(&t->asker);
    if (clone_open(&c, bench.agent, &config, &err) != STATUS_OK ||
        drive_begin(&t->drive, c, t->text, &s, &err) != STATUS_OK)
        fail(err.text);
    t->ask = (struct batch_request){
        .row = &t->drive.turn.row, .flow = &t->asker, .more = on_more, .more_arg = t};
    future_init(&t->ask.reply, on_settled, t);
    t->asked_us = cpu_us(NULL);
    if (batcher_submit(bench.batcher, &t->ask, &err) != STATUS_OK)
        fail(err.text);
}

static void talk_end(struct talk *t)
{
    struct clone *c = t->drive.clone;

    drive_end(&t->drive, false);
    clone_close(c);
    free(t->text);
}

static bool has_tokens(void *arg)
{
    const struct talk *t = arg;

    return t->n_tokens >= 100 || t->is_done;
}

static bool has_first(void *arg)
{
    const struct talk *t = arg;

    return t->n_tokens >= 1;
}

static bool all_first(void *arg)
{
    const struct talk *talks = arg;

    for (size_t i = 0; i < N_CROWD; i++)
        if (talks[i].n_tokens == 0)
            return false;
    return true;
}

static bool never(void *arg)
{
    return false;
}

static int compare_us(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The q-th percentile. */
static double percentile_ms(uint64_t *us, size_t n, size_t q)
{
    qsort(us, n, sizeof(*us), compare_us);
    return n == 0 ? 0 : (double)us[(n - 1) * q / 100] / 1000;
}

static void closed(void *arg)
{
    bench.is_closed = true;
}

static bool is_closed(void *arg)
{
    return bench.is_closed;
}

static void open_batcher(uint64_t max_itl_us)
{
    const struct batch_compute compute = {.begin = begin_step};
    const struct batch_timer timer = {.arm = arm};
    struct batcher_config config;
    struct batch_agent adapter;
    struct error err;

    agent_batching(bench.agent, &config);
    if (max_itl_us != UINT64_MAX)
        config.max_itl_us = max_itl_us;
    agent_batch_adapter(bench.agent, &adapter);
    if (batcher_open(&bench.batcher, &config, &adapter, &compute, &timer, &cpu_env, &err) !=
        STATUS_OK)
        fail(err.text);
    bench.is_closed = bench.is_due = false;
}

static void close_batcher(void)
{
    batcher_close(bench.batcher, closed, NULL);
    run_until(is_closed, NULL);
}

static void bench_newcomer(uint64_t max_itl_us)
{
    static struct talk writing[N_WRITING], newcomer;
    struct samples *s = &bench.itl;
    double usual_ms, p50_ms, p99_ms;

    open_batcher(max_itl_us);
    for (uint32_t i = 0; i < N_WRITING; i++)
        talk_begin(&writing[i], 32, i + 1, 4000);
    run_until(has_first, &writing[N_WRITING - 1]);
    for (size_t i = 0; i < N_WRITING; i++)
        writing[i].is_sampled = true;
    s->n = 0;
    run_until(has_tokens, &writing[0]);
    usual_ms = percentile_ms(s->us, s->n, 50);
    talk_begin(&newcomer, 3960, 77, 1);
    s->n = 0;
    run_until(has_first, &newcomer);
    p50_ms = percentile_ms(s->us, s->n, 50);
    p99_ms = percentile_ms(s->us, s->n, 99);
    printf("8 write, a prompt of %u arrives: ITL p50 %.2f ms before; meanwhile p50 %.2f, p99 %.2f "
           "(%.2f of p50, %.2f of before), %zu tokens; its TTFT %.0f ms\n",
           newcomer.drive.turn.reply.n_prompt, usual_ms, p50_ms, p99_ms, p99_ms / p50_ms,
           p99_ms / usual_ms, s->n, (double)newcomer.first_token_us / 1000);
    for (size_t i = 0; i < N_WRITING; i++)
        batcher_cancel(bench.batcher, &writing[i].ask);
    run_until(never, NULL);
    for (size_t i = 0; i < N_WRITING; i++)
        talk_end(&writing[i]);
    talk_end(&newcomer);
    close_batcher();
}

static double bench_crowd(uint64_t max_itl_us, const char *what)
{
    static struct talk crowd[N_CROWD];
    static uint64_t first_us[N_CROWD];
    struct samples *s = &bench.itl;
    static uint32_t n_crowds; /* each has other words: the cache has none of them */
    double p99_ms;

    open_batcher(max_itl_us);
    n_crowds++;
    for (uint32_t i = 0; i < N_CROWD; i++)
        talk_begin(&crowd[i], 55, n_crowds * 1000 + i, 200);
    s->n = 0;
    for (size_t i = 0; i < N_CROWD; i++)
        crowd[i].is_sampled = true;
    run_until(all_first, crowd);
    for (size_t i = 0; i < N_CROWD; i++)
        first_us[i] = crowd[i].first_token_us;
    p99_ms = percentile_ms(first_us, N_CROWD, 99);
    printf("64 prompts of %u at once, %s: TTFT p50 %.0f ms, p99 %.0f ms; ITL meanwhile p50 %.0f, "
           "p99 %.0f ms\n",
           crowd[0].drive.turn.reply.n_prompt, what, percentile_ms(first_us, N_CROWD, 50), p99_ms,
           percentile_ms(s->us, s->n, 50), percentile_ms(s->us, s->n, 99));
    for (size_t i = 0; i < N_CROWD; i++)
        batcher_cancel(bench.batcher, &crowd[i].ask);
    run_until(never, NULL);
    for (size_t i = 0; i < N_CROWD; i++)
        talk_end(&crowd[i]);
    close_batcher();
    return p99_ms;
}

int main(int argc, char **argv)
{
    struct agent_config config = {.name = "bench",
                                  .path = argc > 1 ? argv[1] : getenv("PARLEY_MODEL"),
                                  .options.backend = "cpu",
                                  .options.n_threads = 1,
                                  .options.speculate = SPECULATE_OFF,
                                  .max_step_tokens = argc > 3 ? strtoul(argv[3], NULL, 10) : 0,
                                  .env = &cpu_env};
    uint64_t max_itl_us = argc > 2 ? strtoull(argv[2], NULL, 10) * 1000 : UINT64_MAX;
    double bound_ms, free_ms;
    struct error err;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (config.path == NULL)
        fail("usage: bench_rhythm MODEL.gguf [MAX_ITL_MS [MAX_STEP_TOKENS]]");
    if (agent_open(&bench.agent, "lm", &config, &err) != STATUS_OK)
        fail(err.text);
    bench_newcomer(max_itl_us);
    free_ms = bench_crowd(0, "no bound");
    bound_ms = bench_crowd(max_itl_us, "bound");
    printf("TTFT p99 of the crowd %.2f of what it is without a bound\n", bound_ms / free_ms);
    agent_unref(bench.agent);
    return 0;
}
