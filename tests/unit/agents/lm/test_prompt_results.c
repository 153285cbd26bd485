#include <check.h>
#include <math.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "tests/support/lm_driver.h"
#include "tests/unit/base/suite.h"

enum { MAX_PROMPT = 128, N_TOPS = 5 };

static const struct tiny_config tiny = {.type = DTYPE_Q8_0, .seed = 7};

static struct agent *open_agent(const char *backend, size_t n_threads, size_t max_logits)
{
    struct agent_config config = drive_config(backend, 512);
    struct agent *a;
    struct error err;

    config.options.n_threads = n_threads;
    config.max_step_logits = max_logits;
    config.options.no_prefix_cache = max_logits == 1;
    ck_assert_msg(drive_open(&a, &tiny, &config, &err) == STATUS_OK, "%s", err.text);
    return a;
}

static struct clone *open_clone(struct agent *a)
{
    static const struct clone_config config = {0};
    struct clone *c;
    struct error err;

    ck_assert_int_eq(clone_open(&c, a, &config, &err), STATUS_OK);
    return c;
}

/* Token ids by a fixed rule. */
static void make_ids(int32_t ids[MAX_PROMPT], int seed)
{
    for (int i = 0; i < MAX_PROMPT; i++)
        ids[i] = 4 + (i * 37 + i * i * seed) % 60;
}

static struct observation raw_prompt(const int32_t *ids, size_t n_ids)
{
    struct observation seen = {
        .is_raw_prompt = true, .raw_ids = ids, .n_raw_ids = n_ids, .turn = 1, .no_reply = true};

    sampling_init(&seen.sampling);
    seen.sampling.max_tokens = 6;
    seen.sampling.ignore_eos = true;
    seen.sampling.seed = 3;
    return seen;
}

static void begin(struct drive *d, struct agent *a, const struct observation *seen)
{
    struct error err;

    *d = (struct drive){.clone = open_clone(a)};
    arena_init(&d->arena, 16 << 20);
    agent_turn_init(&d->turn, &d->arena, 1 << 20);
    d->turn.seen = *seen;
    ck_assert_msg(a->type->observe(d->clone, &d->turn, &err) == STATUS_OK, "%s", err.text);
}

static void end(struct drive *d)
{
    struct clone *c = d->clone;

    drive_end(d, false);
    clone_close(c);
}

/* The results of a turn, of either kind. */
struct results {
    float embedding[TINY_WIDTH];
    size_t n_embedding, n_prompt;
    struct prompt_token prompt[MAX_PROMPT]; /* but for top, which is: */
    struct top_logprob tops[MAX_PROMPT][N_TOPS];
    int32_t said[16];
    size_t n_said;
};

static void keep(struct results *out, const struct reply *r)
{
    memset(out, 0, sizeof(*out));
    out->n_embedding = r->n_embedding;
    ck_assert_uint_le(r->n_embedding, TINY_WIDTH);
    if (r->n_embedding > 0)
        memcpy(out->embedding, r->embedding, r->n_embedding * sizeof(float));
    out->n_prompt = r->n_prompt_tokens;
    ck_assert_uint_le(r->n_prompt_tokens, MAX_PROMPT);
    for (size_t i = 0; i < r->n_prompt_tokens; i++) {
        const struct prompt_token *t = &r->prompt[i];

        out->prompt[i].id = t->id;
        out->prompt[i].rank = t->rank;
        out->prompt[i].logprob = t->logprob;
        out->prompt[i].n_top = t->n_top;
        ck_assert_uint_le(t->n_top, N_TOPS);
        if (t->n_top > 0)
            memcpy(out->tops[i], t->top, t->n_top * sizeof(*t->top));
    }
    for (size_t i = 0; i < r->n_tokens; i++)
        out->said[out->n_said++] = r->tokens[i].id;
}

static void run(struct results *out, struct agent *a, const struct observation *seen,
                size_t max_grant)
{
    struct drive d, *only = &d;

    begin(&d, a, seen);
    drive_run(a, &only, 1, max_grant);
    ck_assert_msg(d.turn.row.outcome == ROW_DONE, "%s", d.turn.row.err.text);
    keep(out, &d.turn.reply);
    end(&d);
}

static struct observation of_kind(const int32_t *ids, size_t n_ids, int kind)
{
    struct observation seen = raw_prompt(ids, n_ids);

    if (kind < 2) {
        seen.pooling = kind == 0 ? POOLING_MEAN : POOLING_LAST;
        return seen;
    }
    seen.want_prompt_logprobs = true;
    seen.n_prompt_tops = N_TOPS;
    seen.no_reply = kind == 2;
    return seen;
}

/* Results do not depend on how the prompt is cut into steps, on the logits that a step has room
 * for, on whether pages of the prompt were cached, nor on the number of threads. */
START_TEST(chunks_do_not_matter)
{
    static const size_t grants[] = {256, 16, 5, 1}, logits[] = {0, 1, 200};
    static struct results want, got;
    int32_t ids[MAX_PROMPT];

    make_ids(ids, 3);
    for (int kind = 0; kind < 4; kind++) {
        const struct observation seen = of_kind(ids, 100, kind);
        bool is_first = true;

        for (size_t k = 0; k < sizeof(logits) / sizeof(logits[0]); k++) {
            struct agent *a = open_agent("cpu", 1 + k % 2, logits[k]);

            for (size_t i = 0; i < sizeof(grants) / sizeof(grants[0]); i++) {
                run(is_first ? &want : &got, a, &seen, grants[i]);
                if (!is_first)
                    ck_assert_mem_eq(&got, &want, sizeof(want));
                is_first = false;
            }
            agent_unref(a);
        }
        ck_assert_uint_eq(want.n_embedding, kind < 2 ? TINY_WIDTH : 0);
        ck_assert_uint_eq(want.n_prompt, kind < 2 ? 0 : 100);
        ck_assert_uint_eq(want.n_said, kind == 3 ? 6 : 0);
    }
}
END_TEST

/* Results do not depend on other rows: those that want results of any kind, and those that
 * generate; nor do the others' replies. */
START_TEST(company_does_not_matter)
{
    enum { N = 25 };
    static struct results want[5], got;
    struct agent *a = open_agent("cpu", 2, 0);
    struct observation seen[5];
    struct drive drives[N], *all[N];
    int32_t ids[MAX_PROMPT];

    make_ids(ids, 5);
    for (int kind = 0; kind < 5; kind++) {
        seen[kind] = of_kind(ids, 60 + (size_t)kind, kind);
        if (kind == 4)
            seen[kind].want_prompt_logprobs = false;
        run(&want[kind], a, &seen[kind], 256);
    }
    for (int i = 0; i < N; i++) {
        all[i] = &drives[i];
        begin(all[i], a, &seen[i % 5]);
        if (i % 4 == 3)
            (void)drive_step(a, all, (size_t)i + 1, 7);
    }
    drive_run(a, all, N, 9);
    for (int i = 0; i < N; i++) {
        keep(&got, &drives[i].turn.reply);
        ck_assert_mem_eq(&got, &want[i % 5], sizeof(got));
        end(&drives[i]);
    }
    agent_unref(a);
}
END_TEST

/* A row that loses its pages in the middle gives the same results. */
START_TEST(preemption_changes_no_result)
{
    static struct results want, got;
    struct agent *a = open_agent("ref", 1, 0);
    int32_t ids[MAX_PROMPT];

    make_ids(ids, 9);
    for (int kind = 0; kind < 4; kind++) {
        const struct observation seen = of_kind(ids, 90, kind);
        struct drive d, *only = &d;

        run(&want, a, &seen, 256);
        begin(&d, a, &seen);
        for (int i = 0; drive_step(a, &only, 1, 6) != 0; i++)
            if (i == 2 || i == 13)
                a->type->release(a, &d.turn.row);
        keep(&got, &d.turn.reply);
        ck_assert_mem_eq(&got, &want, sizeof(want));
        end(&d);
    }
    agent_unref(a);
}
END_TEST

/* A token of the prompt has the log-probability that it has as a scored continuation, and as a
 * reply's token with the alternatives of that; its rank counts the likelier ones. */
START_TEST(a_logprob_is_the_score)
{
    static struct results got;
    struct agent *a = open_agent("ref", 1, 0);
    struct observation seen, scored;
    struct scored_continuation rest;
    struct drive d, *only = &d;
    int32_t ids[MAX_PROMPT];
    const struct text_score *s;

    make_ids(ids, 11);
    seen = of_kind(ids, 40, 2);
    run(&got, a, &seen, 256);
    scored = raw_prompt(ids, 1);
    rest = (struct scored_continuation){.ids = ids + 1, .n_ids = 39};
    scored.scored = &rest;
    scored.n_scored = 1;
    begin(&d, a, &scored);
    drive_run(a, &only, 1, 256);
    s = &d.turn.reply.scores[0];
    ck_assert_uint_eq(got.n_prompt, d.turn.reply.n_prompt + s->n_tokens);
    ck_assert_uint_eq(got.prompt[0].rank, 0);
    for (size_t i = 1; i < got.n_prompt; i++) {
        const struct prompt_token *t = &got.prompt[i];
        size_t n_likelier = 0;

        if (i >= d.turn.reply.n_prompt)
            ck_assert_float_eq(t->logprob, s->logprobs[i - d.turn.reply.n_prompt]);
        ck_assert_uint_eq(t->n_top, N_TOPS);
        for (size_t k = 0; k < N_TOPS; k++) {
            n_likelier += got.tops[i][k].logprob > t->logprob;
            if (got.tops[i][k].id == t->id)
                ck_assert_float_eq(got.tops[i][k].logprob, t->logprob);
        }
        if (t->rank <= N_TOPS)
            ck_assert_uint_eq(t->rank, n_likelier + 1);
        else
            ck_assert_uint_eq(n_likelier, N_TOPS);
    }
    end(&d);
    agent_unref(a);
}
END_TEST

/* The mean is that of the last position's states of every beginning of the prompt. */
START_TEST(the_mean_is_of_all_positions)
{
    static struct results mean, last;
    enum { N = 20 };
    struct agent *a = open_agent("ref", 1, 0);
    double sum[TINY_WIDTH] = {0};
    int32_t ids[MAX_PROMPT];
    struct observation seen;

    make_ids(ids, 13);
    ids[0] = vocab_bos(container_of(a, struct lm, base)->vocab);
    seen = of_kind(ids, N, 0);
    run(&mean, a, &seen, 256);
    for (size_t n = 1; n <= N; n++) {
        seen = of_kind(ids, n, 1);
        run(&last, a, &seen, 256);
        for (size_t k = 0; k < TINY_WIDTH; k++)
            sum[k] += (double)last.embedding[k];
    }
    for (size_t k = 0; k < TINY_WIDTH; k++)
        ck_assert_float_eq(mean.embedding[k], (float)(sum[k] / N));
    agent_unref(a);
}
END_TEST

/* The optimised backend's embedding is near the reference's. */
START_TEST(backends_agree)
{
    static struct results of[2];
    int32_t ids[MAX_PROMPT];

    make_ids(ids, 17);
    for (int kind = 0; kind < 2; kind++) {
        const struct observation seen = of_kind(ids, 70, kind);
        double dot = 0, norms[2] = {0};

        for (int i = 0; i < 2; i++) {
            struct agent *a = open_agent(i == 0 ? "ref" : "cpu", 1, 0);

            run(&of[i], a, &seen, 256);
            agent_unref(a);
            for (size_t k = 0; k < TINY_WIDTH; k++)
                norms[i] += (double)of[i].embedding[k] * (double)of[i].embedding[k];
        }
        for (size_t k = 0; k < TINY_WIDTH; k++)
            dot += (double)of[0].embedding[k] * (double)of[1].embedding[k];
        ck_assert_double_gt(norms[0], 0);
        ck_assert_double_ge(dot / sqrt(norms[0] * norms[1]), 0.999);
    }
}
END_TEST

/* Cached pages are used where their positions' results are not wanted, or are known from another
 * prompt, and only there. */
START_TEST(only_what_is_not_wanted_is_cached)
{
    struct agent *a = open_agent("cpu", 1, 0);
    int32_t ids[MAX_PROMPT];

    make_ids(ids, 19);
    for (int kind = 0; kind < 4; kind++) {
        const struct observation seen = of_kind(ids, 100, kind);
        struct drive d, *only = &d;

        begin(&d, a, &seen);
        drive_run(a, &only, 1, 256);
        if (kind == 1)
            ck_assert_uint_ge(d.turn.reply.n_cached, 96);
        else if (kind == 3)
            ck_assert_uint_ge(d.turn.reply.n_cached, 80);
        else
            ck_assert_uint_eq(d.turn.reply.n_cached, 0);
        end(&d);
    }
    agent_unref(a);
}
END_TEST

/* Several endings of one document compute it once, give the numbers that each gives alone, and
 * those with more alternatives than are known compute all. Prompts of other tenants share nothing.
 */
START_TEST(endings_share_their_document)
{
    enum { N_DOCUMENT = 90, N_ENDING = 9, N = 6 };
    static struct results want, got;
    struct agent *a = open_agent("cpu", 1, 0), *alone = open_agent("cpu", 1, 1);
    struct clone_config other = {.salt = 7};
    int32_t ids[MAX_PROMPT];
    struct drive d, *only = &d;
    struct error err;

    make_ids(ids, 23);
    for (int32_t i = 0; i < N; i++) {
        struct observation seen = of_kind(ids, N_DOCUMENT + N_ENDING, 2 + i % 2);

        for (int32_t k = 0; k < N_ENDING; k++)
            ids[N_DOCUMENT + k] = 10 + (i * 7 + k) % 50;
        seen.n_prompt_tops = i == N - 1 ? N_TOPS : 2;
        run(&want, alone, &seen, 256);
        begin(&d, a, &seen);
        drive_run(a, &only, 1, 256);
        keep(&got, &d.turn.reply);
        ck_assert_mem_eq(&got, &want, sizeof(want));
        if (i > 0 && i < N - 1)
            ck_assert_uint_eq(d.turn.reply.n_cached,
                              (N_DOCUMENT / KV_PAGE_TOKENS - 1) * KV_PAGE_TOKENS);
        else
            ck_assert_uint_eq(d.turn.reply.n_cached, 0);
        end(&d);
        if (i > 0)
            continue;
        d = (struct drive){0};
        ck_assert_int_eq(clone_open(&d.clone, a, &other, &err), STATUS_OK);
        arena_init(&d.arena, 16 << 20);
        agent_turn_init(&d.turn, &d.arena, 1 << 20);
        d.turn.seen = seen;
        ck_assert_int_eq(a->type->observe(d.clone, &d.turn, &err), STATUS_OK);
        ck_assert_uint_eq(d.turn.reply.n_cached, 0);
        drive_run(a, &only, 1, 256);
        end(&d);
    }
    agent_unref(a);
    agent_unref(alone);
}
END_TEST

SUITE_MAIN("agents_lm_prompt_results", chunks_do_not_matter, company_does_not_matter,
           preemption_changes_no_result, a_logprob_is_the_score, the_mean_is_of_all_positions,
           backends_agree, only_what_is_not_wanted_is_cached, endings_share_their_document)
