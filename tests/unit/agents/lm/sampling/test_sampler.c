#include "agents/lm/sampling/sampler.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/sampling/logits.h"
#include "compute/backend/backend.h"
#include "compute/backends.h"
#include "tests/support/tiny_vocab.h"
#include "tests/unit/base/suite.h"

enum { N = 200 }; /* tokens, including the vocabulary's stop tokens */

static struct error err;

struct sampling_run {
    struct tiny_vocab file;
    struct vocab *v;
    struct arena arena;
    struct sampling s;
    struct sampler *sampler;
};

static void open_run(struct sampling_run *r)
{
    const struct tiny_vocab_config config = {.n_more = 49152}; /* no test has more logits */

    tiny_vocab_open(&r->file, &config);
    ck_assert_int_eq(vocab_open(&r->v, r->file.gguf, &err), STATUS_OK);
    arena_init(&r->arena, SIZE_MAX);
    sampling_init(&r->s);
    r->s.seed = 11;
}

/* Begins a turn with the current r->s. */
static void open_sampler(struct sampling_run *r, const int32_t *context, size_t n_context)
{
    ck_assert_int_eq(sampler_open(&r->sampler, &r->s, r->v, logit_kernels_choose(), 3, context,
                                  n_context, &r->arena, &err),
                     STATUS_OK);
}

static void close_run(struct sampling_run *r)
{
    arena_deinit(&r->arena);
    vocab_close(r->v);
    tiny_vocab_close(&r->file);
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* Logits from -8 to 8, many of them equal to others. */
static void fill(float *logits, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++)
        logits[i] = (float)(next_random(&seed) % 129) / 8.0f - 8.0f;
}

static struct sampled next(struct sampling_run *r, const float *logits, size_t n, uint32_t position)
{
    float *own = malloc(n * sizeof(*own));
    struct sampled out;

    ck_assert_ptr_nonnull(own);
    memcpy(own, logits, n * sizeof(*own));
    ck_assert_msg(sampler_next(r->sampler, own, n, position, &out, &err) == STATUS_OK, "%s",
                  err.text);
    free(own);
    return out;
}

/* Rows of the head behind the last token are neither drawn nor listed, whatever their logits and
 * biases; they have their part of the probability. A device does not draw for such a model. */
START_TEST(padding_is_never_drawn)
{
    enum { PADDING = 40 };
    struct sampling_run r;
    const struct logit_bias bias = {.id = 3, .bias = 1};
    struct draw draw;
    size_t n_tokens, n;
    float *logits, most;

    open_run(&r);
    n_tokens = vocab_n_tokens(r.v);
    n = n_tokens + PADDING;
    logits = calloc(n, sizeof(*logits));
    ck_assert_ptr_nonnull(logits);
    fill(logits, n, 5);
    for (size_t i = n_tokens; i < n; i++)
        logits[i] = 20.0f;
    for (int way = 0; way < 4; way++) {
        r.s.temperature = way % 2 == 0 ? 0.0f : 3.0f;
        r.s.n_logprobs = way < 2 ? 20 : 0;
        r.s.biases = &bias;
        r.s.n_biases = way == 3;
        open_sampler(&r, NULL, 0);
        for (uint32_t position = 0; position < 50; position++) {
            const struct sampled got = next(&r, logits, n, position);

            ck_assert_uint_lt((size_t)got.id, n_tokens);
            ck_assert_uint_eq(got.n_top, way < 2 ? 20 : 0);
            for (uint32_t k = 0; k < got.n_top; k++)
                ck_assert_uint_lt((size_t)got.top[k].id, n_tokens);
            most = logits[got.id] - 20.0f - logf(PADDING);
            ck_assert(way >= 2 || fabsf(got.logprob - most) < 1e-3f);
        }
    }
    r.s.n_biases = r.s.n_logprobs = 0;
    open_sampler(&r, NULL, 0);
    ck_assert(!sampler_plan(r.sampler, n, 0, &draw));
    ck_assert(sampler_plan(r.sampler, n_tokens, 0, &draw));
    free(logits);
    close_run(&r);
}
END_TEST

/* Greedy takes the highest, and of equals the lowest id. */
START_TEST(greedy_is_exact)
{
    struct sampling_run r;
    float logits[N];

    open_run(&r);
    r.s.temperature = 0;
    r.s.top_p = 0.1f; /* has no effect */
    open_sampler(&r, NULL, 0);
    for (uint32_t seed = 1; seed <= 200; seed++) {
        size_t best = 0;

        fill(logits, N, seed);
        for (size_t i = 0; i < N; i++)
            if (logits[i] > logits[best])
                best = i;
        ck_assert_int_eq(next(&r, logits, N, seed).id, (int32_t)best);
    }
    close_run(&r);
}
END_TEST

struct likely {
    int32_t id;
    double p;
};

static int likelier_first(const void *a, const void *b)
{
    const struct likely *left = a, *right = b;

    if (left->p != right->p)
        return left->p > right->p ? -1 : 1;
    return left->id < right->id ? -1 : 1;
}

/* The cuts by sorting, as a reference: which ids stay, with what probability. Returns how many. */
static size_t cut_plainly(const struct sampling *s, const float *logits, size_t n,
                          struct likely *out)
{
    double top = -INFINITY, sum = 0, held = 0;
    size_t n_left = 0, n_top = s->top_k > 0 && s->top_k < n ? s->top_k : n;

    for (size_t i = 0; i < n; i++)
        top = fmax(top, (double)logits[i]);
    for (size_t i = 0; i < n; i++)
        out[i] =
            (struct likely){(int32_t)i, exp(((double)logits[i] - top) / (double)s->temperature)};
    qsort(out, n, sizeof(*out), likelier_first);
    for (size_t i = 0; i < n_top; i++)
        sum += out[i].p;
    while (n_left < n_top && (n_left == 0 || held < (double)s->top_p * sum * (1 - 1e-9)))
        held += out[n_left++].p;
    while (n_left > 1 && out[n_left - 1].p < (double)s->min_p)
        n_left--;
    sum = 0;
    for (size_t i = 0; i < n_left; i++)
        sum += out[i].p;
    for (size_t i = 0; i < n_left; i++)
        out[i].p /= sum;
    return n_left;
}

/* Draws many tokens and asserts that only allowed ones come, as often as expected. */
static void check_draws(struct sampling_run *r, const float *logits, size_t n)
{
    enum { DRAWS = 4000 };
    struct likely *all = malloc(n * sizeof(*all));
    unsigned *counts = calloc(n, sizeof(*counts));
    size_t n_left, n_drawn = 0;

    ck_assert(all != NULL && counts != NULL);
    n_left = cut_plainly(&r->s, logits, n, all);
    for (uint32_t i = 0; i < DRAWS; i++)
        counts[next(r, logits, n, i).id]++;
    for (size_t i = 0; i < n_left; i++) {
        double expected = all[i].p * DRAWS, off = (double)counts[all[i].id] - expected;

        n_drawn += counts[all[i].id];
        /* five standard deviations; the seed is fixed, so the result is always the same */
        ck_assert_msg(fabs(off) <= 5 * sqrt(expected) + 2, "id %d: %u draws, %.1f expected",
                      all[i].id, counts[all[i].id], expected);
    }
    ck_assert_uint_eq(n_drawn, DRAWS);
    free(all);
    free(counts);
}

/* Temperature and cuts, alone and together, keep the tokens that sorting keeps, each drawn as often
 * as its probability says. */
START_TEST(draws_follow_the_distribution)
{
    static const struct {
        float temperature, top_p, min_p;
        uint32_t top_k;
    } all[] = {
        {1, 1, 0, 0},
        {0.7f, 1, 0, 0},
        {2.5f, 1, 0, 0},
        {1, 0.9f, 0, 0},
        {2, 0.5f, 0, 0},
        {1, 0.01f, 0, 0},
        {3, 0.999f, 0, 0},
        {1, 1, 0.1f, 0},
        {2, 1, 1, 0},
        {1, 1, 0, 1},
        {2, 1, 0, 7},
        {5, 0.6f, 0, 20},
        {2, 0.9f, 0.3f, 0},
        {2, 0.95f, 0.1f, 150},
        {0.01f, 0.9f, 0, 0},
        {1e-30f, 1, 0, 0},
        {2, 1, 0, 100000},
        {8, 0.99f, 0, 0},
        {0.2f, 0.9f, 0.05f, 40},
    };
    struct sampling_run r;
    float logits[N];

    open_run(&r);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        fill(logits, N, (uint32_t)i + 1);
        for (size_t k = 0; k < N; k++) /* no equals: their order is not tested here */
            logits[k] += (float)k * 1e-4f;
        r.s.temperature = all[i].temperature;
        r.s.top_p = all[i].top_p;
        r.s.min_p = all[i].min_p;
        r.s.top_k = all[i].top_k;
        open_sampler(&r, NULL, 0);
        check_draws(&r, logits, N);
    }
    close_run(&r);
}
END_TEST

/* The same with a vocabulary of the real size, flat and steep. */
START_TEST(large_vocabularies_are_cut)
{
    enum { LARGE = 49152 };
    float *logits = malloc(LARGE * sizeof(*logits));
    struct sampling_run r;

    ck_assert_ptr_nonnull(logits);
    open_run(&r);
    r.s.temperature = 1;
    for (size_t i = 0; i < LARGE; i++)
        logits[i] = -(float)i / 50.0f;
    r.s.top_p = 0.9f;
    open_sampler(&r, NULL, 0);
    for (uint32_t i = 0; i < 60; i++)
        ck_assert_int_le(next(&r, logits, LARGE, i).id, 116); /* 1 - e^(-116/50) > 0.9 */
    for (size_t i = 0; i < LARGE; i++)
        logits[i] = 0;
    for (uint32_t i = 0; i < 60; i++) /* among equals the lowest ids make up the nine tenths */
        ck_assert_int_le(next(&r, logits, LARGE, i).id, LARGE * 9 / 10 + 1);
    close_run(&r);
    free(logits);
}
END_TEST

/* A choice depends on seed, turn and position, and on no choice before it. */
START_TEST(choices_can_be_repeated)
{
    struct sampling_run r;
    float logits[N];
    int32_t ids[50];
    size_t n_same = 0;

    open_run(&r);
    r.s.temperature = 3;
    fill(logits, N, 5);
    open_sampler(&r, NULL, 0);
    for (uint32_t i = 0; i < 50; i++)
        ids[i] = next(&r, logits, N, i).id;
    open_sampler(&r, NULL, 0);
    for (uint32_t i = 50; i-- > 0;) /* backwards */
        ck_assert_int_eq(next(&r, logits, N, i).id, ids[i]);
    r.s.seed = 12;
    open_sampler(&r, NULL, 0);
    for (uint32_t i = 0; i < 50; i++)
        n_same += next(&r, logits, N, i).id == ids[i];
    ck_assert_uint_lt(n_same, 25);
    r.s.seed = 11;
    ck_assert_int_eq(
        sampler_open(&r.sampler, &r.s, r.v, logit_kernels_choose(), 4, NULL, 0, &r.arena, &err),
        STATUS_OK);
    n_same = 0;
    for (uint32_t i = 0; i < 50; i++)
        n_same += next(&r, logits, N, i).id == ids[i];
    ck_assert_uint_lt(n_same, 25);
    close_run(&r);
}
END_TEST

/* Repetition penalizes prompt and reply, presence and frequency only the reply. */
START_TEST(penalties_weigh_down)
{
    const int32_t context[] = {20, 21, 21};
    float logits[N] = {[20] = 4, [21] = 3.9f, [22] = 3.8f, [23] = 3.5f};
    struct sampling_run r;

    for (size_t i = 0; i < N; i++)
        if (logits[i] == 0)
            logits[i] = -1;
    open_run(&r);
    r.s.temperature = 0;
    open_sampler(&r, context, 3);
    ck_assert_int_eq(next(&r, logits, N, 0).id, 20);
    r.s.repetition_penalty = 1.1f;
    open_sampler(&r, context, 3);
    ck_assert_int_eq(next(&r, logits, N, 0).id, 22);
    sampler_accept(r.sampler, 22);                   /* 3.8 / 1.1 = 3.45 */
    ck_assert_int_eq(next(&r, logits, N, 1).id, 20); /* 4 / 1.1 = 3.64 */
    r.s.repetition_penalty = 1;
    r.s.presence_penalty = 0.45f;
    open_sampler(&r, context, 3);
    ck_assert_int_eq(next(&r, logits, N, 0).id, 20);
    sampler_accept(r.sampler, 20); /* 3.55, however often */
    sampler_accept(r.sampler, 20);
    sampler_accept(r.sampler, 21);
    sampler_accept(r.sampler, 22);
    ck_assert_int_eq(next(&r, logits, N, 1).id, 20);
    r.s.presence_penalty = 0;
    r.s.frequency_penalty = 0.15f;
    open_sampler(&r, context, 3);
    sampler_accept(r.sampler, 20);
    ck_assert_int_eq(next(&r, logits, N, 1).id, 21);
    sampler_accept(r.sampler, 21);
    sampler_accept(r.sampler, 20);
    ck_assert_int_eq(next(&r, logits, N, 2).id, 22);
    r.s.frequency_penalty = -0.3f; /* favours repeated tokens */
    open_sampler(&r, context, 3);
    sampler_accept(r.sampler, 22);
    ck_assert_int_eq(next(&r, logits, N, 1).id, 22);
    close_run(&r);
}
END_TEST

/* A negative logit is multiplied by the repetition penalty: repeating it becomes less likely. */
START_TEST(negative_logits_are_weighed_down)
{
    const int32_t context[] = {20};
    struct sampling_run r;
    float logits[N];

    for (size_t i = 0; i < N; i++)
        logits[i] = -9;
    logits[20] = -1;
    logits[21] = -1.5f;
    open_run(&r);
    r.s.temperature = 0;
    r.s.repetition_penalty = 2;
    open_sampler(&r, context, 1);
    ck_assert_int_eq(next(&r, logits, N, 0).id, 21);
    close_run(&r);
}
END_TEST

/* Penalties remember any number of tokens. */
START_TEST(many_tokens_are_remembered)
{
    enum { LARGE = 5000 };
    float *logits = malloc(LARGE * sizeof(*logits));
    struct sampling_run r;

    ck_assert_ptr_nonnull(logits);
    for (size_t i = 0; i < LARGE; i++)
        logits[i] = 10 - (float)i * 1e-3f;
    open_run(&r);
    r.s.temperature = 0;
    r.s.frequency_penalty = 2;
    r.s.repetition_penalty = 1.5f;
    open_sampler(&r, NULL, 0);
    for (uint32_t i = 0; i < LARGE / 2; i++) { /* each is the likeliest token not yet generated */
        struct sampled s = next(&r, logits, LARGE, i);

        ck_assert_int_eq(s.id, (int32_t)i);
        sampler_accept(r.sampler, s.id);
    }
    close_run(&r);
    free(logits);
}
END_TEST

/* A bias adds, -inf bans, and banning everything is an error. */
START_TEST(biases_add)
{
    struct logit_bias biases[N] = {{20, 100}, {21, -INFINITY}};
    struct sampling_run r;
    float logits[N];

    fill(logits, N, 3);
    logits[20] = -8;
    logits[21] = 90;
    open_run(&r);
    r.s.temperature = 1;
    r.s.biases = biases;
    r.s.n_biases = 2;
    open_sampler(&r, NULL, 0);
    for (uint32_t i = 0; i < 100; i++)
        ck_assert_int_eq(next(&r, logits, N, i).id, 20);
    biases[0].bias = 3e38f; /* clamped to the largest finite logit */
    logits[20] = 3e38f;
    ck_assert_int_eq(next(&r, logits, N, 0).id, 20);
    for (size_t i = 0; i < N; i++)
        biases[i] = (struct logit_bias){(int32_t)i, -INFINITY};
    r.s.n_biases = N - 1;
    ck_assert_int_eq(next(&r, logits, N, 0).id, N - 1);
    r.s.n_biases = N;
    {
        struct sampled out = {.id = -7};

        ck_assert_int_eq(sampler_next(r.sampler, logits, N, 0, &out, &err), STATUS_INVALID);
        ck_assert_str_eq(err.text, "every token is banned");
        ck_assert_int_eq(out.id, -7);
    }
    close_run(&r);
}
END_TEST

/* Stop tokens are banned before min_tokens, and always with ignore_eos. */
START_TEST(ends_are_held_back)
{
    float logits[N] = {[TV_IM_END] = 9, [TV_EOT] = 8, [TV_END_OF_TEXT] = 7, [30] = 6};
    struct sampling_run r;

    open_run(&r);
    r.s.temperature = 0;
    r.s.min_tokens = 2;
    open_sampler(&r, NULL, 0);
    ck_assert_int_eq(next(&r, logits, N, 0).id, 30);
    ck_assert_int_eq(next(&r, logits, N, 1).id, 30);
    ck_assert_int_eq(next(&r, logits, N, 2).id, TV_IM_END);
    r.s.ignore_eos = true;
    ck_assert_int_eq(next(&r, logits, N, 2).id, 30);
    close_run(&r);
}
END_TEST

/* Log-probabilities are the model's own, independent of later changes to the logits. */
START_TEST(logprobs_are_the_models)
{
    const struct logit_bias biases[] = {{20, 100}};
    float logits[1500];
    struct sampling_run r;
    double sum = 0;
    struct sampled s;

    fill(logits, 1500, 8);
    logits[40] = 20; /* equally likely, together almost certain */
    logits[30] = 20;
    for (size_t i = 0; i < 1500; i++)
        sum += exp((double)logits[i]);
    open_run(&r);
    r.s.temperature = 0.5f;
    r.s.top_p = 0.5f;
    r.s.biases = biases;
    r.s.n_biases = 1;
    r.s.want_logprobs = true;
    open_sampler(&r, NULL, 0);
    s = next(&r, logits, 1500, 0);
    ck_assert_int_eq(s.id, 20);
    ck_assert_uint_eq(s.n_top, 0);
    ck_assert_double_eq_tol(s.logprob, (double)logits[20] - log(sum), 1e-5);
    sampler_replace(r.sampler, 21, &s);
    ck_assert_int_eq(s.id, 21);
    ck_assert_double_eq_tol(s.logprob, (double)logits[21] - log(sum), 1e-5);
    r.s.n_logprobs = SAMPLING_MAX_LOGPROBS;
    s = next(&r, logits, 1500, 0);
    ck_assert_uint_eq(s.n_top, SAMPLING_MAX_LOGPROBS);
    ck_assert_int_eq(s.top[0].id, 30);
    ck_assert_int_eq(s.top[1].id, 40);
    for (size_t i = 0; i < s.n_top; i++) {
        ck_assert_double_eq_tol(s.top[i].logprob, (double)logits[s.top[i].id] - log(sum), 1e-5);
        if (i > 0)
            ck_assert(s.top[i - 1].logprob > s.top[i].logprob ||
                      (s.top[i - 1].logprob == s.top[i].logprob && s.top[i - 1].id < s.top[i].id));
    }
    for (size_t i = 0, n_above = 0; i < 1500; i++) { /* no likelier token was left out */
        n_above += logits[i] > logits[s.top[s.n_top - 1].id];
        ck_assert_uint_lt(n_above, s.n_top);
    }
    open_sampler(&r, NULL, 0);
    s = next(&r, logits, 3, 0); /* fewer tokens than requested */
    ck_assert_uint_eq(s.n_top, 3);
    close_run(&r);
}
END_TEST

/* Logits that are not finite are reported as the model's fault. */
START_TEST(bad_logits_are_refused)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct sampling_run r;

    open_run(&r);
    open_sampler(&r, NULL, 0);
    for (size_t i = 0; i < 3; i++) {
        float logits[N] = {[N - 1] = bad[i]};
        struct sampled out;

        ck_assert_int_eq(sampler_next(r.sampler, logits, N, 0, &out, &err), STATUS_INTERNAL);
    }
    close_run(&r);
}
END_TEST

/* A full arena is reported at every allocation. */
START_TEST(full_arenas_are_said)
{
    const int32_t context[300] = {1, 2, 3};
    struct sampling_run r;
    float logits[N];
    struct sampled out;

    open_run(&r);
    r.arena.limit_bytes = 8;
    ck_assert_int_eq(
        sampler_open(&r.sampler, &r.s, r.v, logit_kernels_choose(), 1, NULL, 0, &r.arena, &err),
        STATUS_EXHAUSTED);
    r.arena.limit_bytes = 256;
    r.s.repetition_penalty = 2;
    ck_assert_int_eq(sampler_open(&r.sampler, &r.s, r.v, logit_kernels_choose(), 1, context, 300,
                                  &r.arena, &err),
                     STATUS_EXHAUSTED);
    arena_deinit(&r.arena);
    arena_init(&r.arena, 256);
    r.s.repetition_penalty = 1;
    r.s.temperature = 1;
    r.s.top_k = 100;
    open_sampler(&r, NULL, 0);
    fill(logits, N, 1);
    ck_assert_int_eq(sampler_next(r.sampler, logits, N, 0, &out, &err), STATUS_EXHAUSTED);
    close_run(&r);
}
END_TEST

/* Draws as a device does, with the logits in the last of some rows. */
static struct drawn draw_on(struct backend *b, const struct draw_list *list, const float *logits,
                            size_t n)
{
    const uint32_t row = list->draws[0].row;
    struct buffer *x = b->type->buffer_open(b, (row + 1) * n * sizeof(*logits));
    float *rows = calloc((row + 1) * n, sizeof(*rows));
    struct drawn out = {.id = -2};

    ck_assert(x != NULL && rows != NULL);
    memcpy(rows + row * n, logits, n * sizeof(*logits));
    b->type->upload(b, x, rows, (row + 1) * n * sizeof(*rows));
    b->type->sample(b, x, n, list, &out);
    ck_assert_int_eq(b->type->sync(b, &err), STATUS_OK);
    b->type->buffer_close(b, x);
    free(rows);
    return out;
}

static void set_at_random(struct sampling *s, uint32_t *seed)
{
    static const float temperatures[] = {0.0f, 0.05f, 0.2f, 0.7f, 1.0f, 2.5f};
    static const float top_ps[] = {1.0f, 1.0f, 0.1f, 0.5f, 0.9f, 0.99f};
    static const float min_ps[] = {0.0f, 0.0f, 0.02f, 0.3f};
    static const uint32_t top_ks[] = {0, 0, 1, 7, 40, 150};

    s->temperature = temperatures[next_random(seed) % 6];
    s->top_p = top_ps[next_random(seed) % 6];
    s->min_p = min_ps[next_random(seed) % 4];
    s->top_k = top_ks[next_random(seed) % 6];
    s->ignore_eos = next_random(seed) % 2 == 0;
    s->want_logprobs = next_random(seed) % 2 == 0;
    s->seed = next_random(seed);
}

/* The reference's device draw chooses the same token with the same log-probability as the host's
 * sampler, for all samplings; also in a vocabulary of several blocks. */
START_TEST(devices_draw_alike)
{
    enum { MANY = 3 * LOGITS_BLOCK + 77 };
    static float logits[MANY];
    struct backend *b;
    struct sampling_run r;
    uint32_t seed = 5;

    open_run(&r);
    ck_assert_int_eq(backend_open(&b, "ref", &(struct backend_config){0}, &err), STATUS_OK);
    for (uint32_t i = 0; i < 600; i++) {
        const size_t n = i % 3 == 0 ? MANY : N;
        struct draw draw;
        struct draw_list list = {.draws = &draw, .n = 1};
        struct sampled known, have;
        struct drawn drawn;

        fill(logits, n, seed);
        set_at_random(&r.s, &seed);
        open_sampler(&r, NULL, 0);
        known = next(&r, logits, n, i);
        ck_assert(sampler_plan(r.sampler, N, i, &draw));
        draw.row = i % 2;
        list.ends = vocab_stop_tokens(r.v, &list.n_ends);
        drawn = draw_on(b, &list, logits, n);
        ck_assert_int_eq(drawn.id, known.id);
        have = sampler_drawn(r.sampler, &drawn);
        ck_assert_mem_eq(&have.logprob, &known.logprob, sizeof(have.logprob));
    }
    backend_close(b);
    close_run(&r);
}
END_TEST

/* The host handles what a device cannot: logits that are not finite, a choice with all tokens
 * banned, and samplings with penalties, biases or top logprobs. */
START_TEST(devices_leave_the_rest)
{
    float logits[N];
    struct backend *b;
    struct sampling_run r;
    struct draw draw;
    int32_t all[N];
    struct draw_list list = {.draws = &draw, .n = 1, .ends = all, .n_ends = N};

    open_run(&r);
    ck_assert_int_eq(backend_open(&b, "ref", &(struct backend_config){0}, &err), STATUS_OK);
    for (int32_t i = 0; i < N; i++)
        all[i] = i;
    r.s.ignore_eos = true;
    open_sampler(&r, NULL, 0);
    ck_assert(sampler_plan(r.sampler, N, 0, &draw));
    fill(logits, N, 3);
    ck_assert_int_lt(draw_on(b, &list, logits, N).id, 0);
    list.n_ends = 0;
    ck_assert_int_ge(draw_on(b, &list, logits, N).id, 0);
    logits[7] = NAN;
    ck_assert_int_lt(draw_on(b, &list, logits, N).id, 0);
    logits[7] = INFINITY;
    ck_assert_int_lt(draw_on(b, &list, logits, N).id, 0);
    r.s.n_logprobs = 1;
    ck_assert(!sampler_plan(r.sampler, N, 0, &draw));
    r.s.n_logprobs = 0;
    r.s.presence_penalty = 0.5f;
    open_sampler(&r, NULL, 0);
    ck_assert(!sampler_plan(r.sampler, N, 0, &draw));
    backend_close(b);
    close_run(&r);
}
END_TEST

SUITE_MAIN("agents/lm/sampler", padding_is_never_drawn, greedy_is_exact,
           draws_follow_the_distribution, large_vocabularies_are_cut, choices_can_be_repeated,
           penalties_weigh_down, negative_logits_are_weighed_down, many_tokens_are_remembered,
           biases_add, ends_are_held_back, logprobs_are_the_models, bad_logits_are_refused,
           full_arenas_are_said, devices_draw_alike, devices_leave_the_rest)
