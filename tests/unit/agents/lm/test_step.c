#include <check.h>
#include <stdio.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "tests/support/lm_driver.h"
#include "tests/unit/base/suite.h"

static const struct tiny_config tiny = {.type = DTYPE_Q8_0, .seed = 7};

static struct agent *open_with(enum speculate speculate, size_t kv_pages, size_t max_rows)
{
    struct agent_config config = drive_config("cpu", kv_pages);
    struct agent *a;
    struct error err;

    config.max_step_rows = max_rows;
    config.options.speculate = speculate;
    ck_assert_msg(drive_open(&a, &tiny, &config, &err) == STATUS_OK, "%s", err.text);
    return a;
}

static struct clone *open_clone(struct agent *a)
{
    const struct clone_config plain = {0};
    struct clone *c;
    struct error err;

    ck_assert_int_eq(clone_open(&c, a, &plain, &err), STATUS_OK);
    return c;
}

/* Asserts equality to the last bit: ids, log-probabilities, text, each token's text end, finish,
 * and the clone's state. */
static void check_same(const struct drive *x, const struct drive *y)
{
    const struct reply *a = &x->turn.reply, *b = &y->turn.reply;

    ck_assert_int_eq(x->turn.row.outcome, y->turn.row.outcome);
    ck_assert_int_eq(a->finish, b->finish);
    ck_assert_uint_eq(a->n_tokens, b->n_tokens);
    ck_assert_uint_eq(a->text.len, b->text.len);
    if (a->text.len > 0)
        ck_assert_mem_eq(a->text.data, b->text.data, a->text.len);
    for (size_t i = 0; i < a->n_tokens; i++) {
        const struct reply_token *s = &a->tokens[i], *t = &b->tokens[i];

        ck_assert_int_eq(s->id, t->id);
        ck_assert_mem_eq(&s->logprob, &t->logprob, sizeof(s->logprob));
        ck_assert_uint_eq(s->text_end, t->text_end);
        ck_assert_uint_eq(s->n_top, t->n_top);
        if (s->n_top > 0)
            ck_assert_mem_eq(s->top, t->top, s->n_top * sizeof(*s->top));
    }
}

static const struct agent_info *info_of(const struct agent *a)
{
    static struct agent_info info;

    agent_describe(a, &info);
    return &info;
}

static size_t n_pages(const struct clone *c)
{
    struct clone_info info;

    clone_describe(c, &info);
    return info.n_pages;
}

/* Runs two turns of a conversation in two agents, with and without draft tokens, step by step.
 * Returns how many steps draft tokens saved. */
static size_t compare(struct agent *off, struct agent *on, const struct sampling *s,
                      const char *text, size_t max_grant)
{
    struct clone *c[2] = {open_clone(off), open_clone(on)};
    size_t n_steps[2] = {0};

    for (int turn = 0; turn < 2; turn++) {
        struct drive d[2];
        struct error err;

        for (int i = 0; i < 2; i++) {
            struct drive *only = &d[i];
            struct agent *a = i == 0 ? off : on;

            ck_assert_msg(drive_begin(&d[i], c[i], text, s, &err) == STATUS_OK, "%s", err.text);
            do
                n_steps[i]++;
            while (drive_step(a, &only, 1, max_grant) != 0);
        }
        check_same(&d[0], &d[1]);
        drive_end(&d[0], true);
        drive_end(&d[1], true);
        ck_assert_uint_eq(n_pages(c[0]), n_pages(c[1]));
    }
    clone_close(c[0]);
    clone_close(c[1]);
    ck_assert_uint_le(n_steps[1], n_steps[0]);
    return n_steps[0] - n_steps[1];
}

static struct sampling plain(void)
{
    struct sampling s;

    sampling_init(&s);
    s.temperature = 0;
    s.seed = 5;
    s.has_seed = true;
    s.max_tokens = 60;
    s.ignore_eos = true;
    s.want_logprobs = true;
    s.n_logprobs = 2;
    return s;
}

enum { N_WAYS = 9 };

/* Each sampling parameter that depends on several tokens, or ends a reply. */
static struct sampling way(int i)
{
    static const struct text stops[] = {{"the the", 7}, {"hellhell", 8}, {"he he", 5}};
    static const struct logit_bias biases[] = {
        {TINY_FIRST_MERGED, 9.0f}, {TINY_FIRST_MERGED + 3, 8.5f}, {TINY_IM_END, 7.0f}};
    struct sampling s = plain();

    switch (i) {
    case 1:
        s.temperature = 0.3f;
        break;
    case 2:
        s.temperature = 0.8f;
        s.top_p = 0.9f;
        s.top_k = 50;
        break;
    case 3:
        s.repetition_penalty = 1.05f;
        s.frequency_penalty = 0.01f;
        break;
    case 4: /* the model ends the reply, after min_tokens */
        s.ignore_eos = false;
        s.min_tokens = 20;
        s.biases = biases;
        s.n_biases = 3;
        s.temperature = 0.7f;
        break;
    case 5: /* a stop text across tokens */
        s.temperature = 0.9f;
        s.stops = stops;
        s.n_stops = 3;
        s.biases = biases;
        s.n_biases = 2;
        break;
    case 6:
        s.max_tokens = 7;
        break;
    case 7:
        s.max_tokens = 1;
        break;
    case 8:
        s.n_logprobs = 0;
        s.want_logprobs = false;
        s.min_p = 0.2f;
        s.temperature = 0.5f;
        s.biases = biases;
        s.n_biases = 2;
        s.presence_penalty = -0.5f;
        break;
    default:
        break;
    }
    return s;
}

/* With and without draft tokens a reply is the same to the last bit, for all samplings; greedy
 * replies, which repeat themselves, take fewer steps. */
START_TEST(draft_tokens_change_no_reply)
{
    struct agent *off = open_with(SPECULATE_OFF, 256, 64), *on = open_with(SPECULATE_ON, 256, 64);
    size_t n_saved = 0;

    for (int i = 0; i < N_WAYS; i++) {
        struct sampling s = way(i);

        n_saved += compare(off, on, &s, "the hello in the hell, the hello", 256);
        n_saved += compare(off, on, &s, "a", 5);
    }
    ck_assert_uint_gt(n_saved, 50);
    ck_assert_uint_eq(info_of(off)->text.drafted_tokens, 0);
    ck_assert_uint_ge(info_of(on)->text.accepted_tokens, n_saved);
    ck_assert_uint_gt(info_of(on)->text.drafted_tokens, info_of(on)->text.accepted_tokens);
    agent_unref(off);
    agent_unref(on);
}
END_TEST

/* The same at the end of the context, and with pages only for the reply itself. */
START_TEST(draft_tokens_where_room_ends)
{
    static char text[TINY_CONTEXT - 100];
    struct agent *off = open_with(SPECULATE_OFF, TINY_CONTEXT / KV_PAGE_TOKENS, 64);
    struct agent *on = open_with(SPECULATE_ON, TINY_CONTEXT / KV_PAGE_TOKENS, 64);
    struct sampling s = plain();

    memset(text, 'x', sizeof(text) - 1);
    s.max_tokens = 0;
    for (int i = 0; i < 2; i++) {
        struct clone *c[2] = {open_clone(off), open_clone(on)};
        struct drive d[2];
        struct error err;

        for (int k = 0; k < 2; k++) {
            struct drive *only = &d[k];

            ck_assert_int_eq(drive_begin(&d[k], c[k], text, &s, &err), STATUS_OK);
            drive_run(k == 0 ? off : on, &only, 1, 256);
        }
        ck_assert_int_eq(d[1].turn.reply.finish, FINISH_LENGTH);
        check_same(&d[0], &d[1]);
        for (int k = 0; k < 2; k++) {
            drive_end(&d[k], true);
            clone_close(c[k]);
        }
        s.temperature = 0.6f;
    }
    ck_assert_uint_gt(info_of(on)->text.accepted_tokens, 0);
    agent_unref(off);
    agent_unref(on);
}
END_TEST

static uint64_t standing_still(void *self)
{
    return 1;
}

/* Unless SPECULATE_ON, no draft tokens are computed beside a prompt, nor in the step after it, so
 * that decode times are measured without them. */
START_TEST(no_draft_tokens_beside_a_prompt)
{
    static const char text[] = "hello hello hello hello hello hello hello hello hello hello hello";
    const struct env env = {standing_still, env_real.random, NULL};
    struct agent_config config = drive_config("cpu", 256);
    const struct sampling s = plain();
    struct drive d[2], *both[2] = {&d[0], &d[1]};
    struct clone *c[2];
    struct agent *a;
    struct error err;
    uint64_t n;

    config.env = &env;
    ck_assert_int_eq(drive_open(&a, &tiny, &config, &err), STATUS_OK);
    for (int i = 0; i < 2; i++)
        c[i] = open_clone(a);
    ck_assert_int_eq(drive_begin(&d[0], c[0], text, &s, &err), STATUS_OK);
    for (int i = 0; i < 12 && d[0].turn.reply.n_tokens < 20; i++)
        ck_assert_uint_gt(drive_step(a, both, 1, SIZE_MAX), 0);
    n = info_of(a)->text.drafted_tokens;
    ck_assert_uint_gt(n, 0);
    ck_assert_int_eq(drive_begin(&d[1], c[1], text + 6, &s, &err), STATUS_OK);
    for (bool is_reading = true, was_reading = true; is_reading || was_reading;) {
        ck_assert_uint_eq(info_of(a)->text.drafted_tokens, n);
        was_reading = is_reading;
        is_reading = a->type->cost(a, &d[1].turn.row) > 1;
        ck_assert_uint_eq(drive_step(a, both, 2, 4), 2);
    }
    ck_assert_uint_gt(info_of(a)->text.drafted_tokens, n);
    for (int i = 0; i < 2; i++) {
        drive_end(&d[i], false);
        clone_close(c[i]);
    }
    agent_unref(a);
}
END_TEST

/* Draft tokens take what a step has left: if rows fill a step, only the few of a single row remain,
 * and each reply is still the same as alone. */
START_TEST(draft_tokens_among_many)
{
    enum { N = 20 };
    struct agent *off = open_with(SPECULATE_OFF, 512, N), *on = open_with(SPECULATE_ON, 512, N);
    struct drive drives[N], alone, *all[N], *only = &alone;
    struct sampling s = plain();
    struct error err;
    char text[40];

    for (size_t i = 0; i < N; i++) {
        (void)snprintf(text, sizeof(text), "%.*s the hello", (int)i, "aaaaaaaaaaaaaaaaaaaaaaaa");
        all[i] = &drives[i];
        s.temperature = i % 2 == 0 ? 0.0f : 0.5f;
        ck_assert_int_eq(drive_begin(all[i], open_clone(on), text, &s, &err), STATUS_OK);
        (void)drive_step(on, all, i + 1, 12);
    }
    drive_run(on, all, N, 12);
    for (size_t i = 0; i < N; i++) {
        struct clone *c = open_clone(off);

        (void)snprintf(text, sizeof(text), "%.*s the hello", (int)i, "aaaaaaaaaaaaaaaaaaaaaaaa");
        s.temperature = i % 2 == 0 ? 0.0f : 0.5f;
        ck_assert_int_eq(drive_begin(&alone, c, text, &s, &err), STATUS_OK);
        drive_run(off, &only, 1, 256);
        check_same(&alone, all[i]);
        drive_end(&alone, true);
        drive_end(all[i], true);
        clone_close(c);
        clone_close(drives[i].clone);
    }
    ck_assert_uint_gt(info_of(on)->text.accepted_tokens, 0);
    agent_unref(off);
    agent_unref(on);
}
END_TEST

/* A turn with draft tokens that is dropped, preempted or forked leaves nothing behind; pages of
 * rejected draft tokens are released after the step. */
START_TEST(draft_tokens_leave_nothing_behind)
{
    struct agent *a = open_with(SPECULATE_ON, 256, 64), *off = open_with(SPECULATE_OFF, 256, 64);
    struct clone *c = open_clone(a), *twin = open_clone(off), *child;
    struct sampling s = plain();
    int32_t past[60], want[60], got[60];
    struct drive d, *only = &d;
    struct error err;

    (void)drive_turn(off, twin, "the hello", &s, 256, past, 60);
    (void)drive_turn(off, twin, "and a hello", &s, 256, want, 60);
    (void)drive_turn(a, c, "the hello", &s, 256, got, 60);
    ck_assert_mem_eq(got, past, sizeof(past));
    ck_assert_int_eq(drive_begin(&d, c, "never mind", &s, &err), STATUS_OK);
    for (size_t i = 0; i < 6; i++) {
        const struct lm_clone *lc = container_of(c, struct lm_clone, base);

        (void)drive_step(a, &only, 1, 256);
        ck_assert_uint_eq(lc->pages.kv.n_pages,
                          (lc->pages.kv.n_tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
        if (i == 3)
            a->type->release(a, &d.turn.row);
    }
    ck_assert_int_eq(clone_fork(&child, c, 1, &err), STATUS_OK);
    (void)drive_step(a, &only, 1, 256);
    drive_end(&d, false);
    (void)drive_turn(a, child, "and a hello", &s, 256, got, 60);
    ck_assert_mem_eq(got, want, sizeof(want));
    (void)drive_turn(a, c, "and a hello", &s, 3, got, 60);
    ck_assert_mem_eq(got, want, sizeof(want));
    clone_close(child);
    clone_close(c);
    clone_close(twin);
    agent_unref(a);
    agent_unref(off);
}
END_TEST

enum { N_PREDICTIONS = 6, PREDICTED_MAX = 80 };

/* Writes one of the predictions of a reply: right, wrong in the middle, wrong at once, right for a
 * while and then not even ids, right and longer than the reply, nothing. */
static size_t predict(int32_t out[PREDICTED_MAX], int way, const struct reply *r)
{
    for (size_t i = 0; i < r->n_tokens; i++)
        out[i] = r->tokens[i].id;
    if (way == 1)
        out[r->n_tokens / 2] ^= 1;
    if (way == 2)
        out[0] ^= 1;
    if (way == 3) {
        out[r->n_tokens / 2] = -1;
        out[r->n_tokens / 3] = INT32_MAX;
    }
    if (way == 4)
        for (size_t i = r->n_tokens; i < PREDICTED_MAX; i++)
            out[i] = 3;
    return way == 4 ? PREDICTED_MAX : way == 5 ? 0 : r->n_tokens;
}

/* A prediction of the reply, right or not, changes no bit of it, whether the model speculates or
 * not. With a right one, each step gives as many tokens as a row may draft. */
START_TEST(predictions_change_no_reply)
{
    struct agent *a[2] = {open_with(SPECULATE_OFF, 256, 64), open_with(SPECULATE_AUTO, 256, 64)};

    for (int k = 0; k < 2 * N_WAYS * N_PREDICTIONS; k++) {
        struct agent *on = a[k % 2];
        const int prediction = k / 2 % N_PREDICTIONS;
        struct sampling s = way(k / 2 / N_PREDICTIONS);
        struct clone *c[2] = {open_clone(a[0]), open_clone(on)};

        for (int turn = 0; turn < 2; turn++) {
            struct drive d[2], *only = &d[0];
            int32_t ids[PREDICTED_MAX];
            size_t n_steps = 1;
            struct error err;

            ck_assert_int_eq(drive_begin(&d[0], c[0], "the hello", &s, &err), STATUS_OK);
            drive_run(a[0], &only, 1, 256);
            ck_assert_int_eq(drive_begin(&d[1], c[1], "the hello", &s, &err), STATUS_OK);
            d[1].turn.seen.predicted = ids;
            d[1].turn.seen.n_predicted = predict(ids, prediction, &d[0].turn.reply);
            for (only = &d[1]; drive_step(on, &only, 1, 256) != 0; n_steps++)
                ;
            check_same(&d[0], &d[1]);
            if (prediction == 0 || prediction == 4)
                ck_assert_uint_eq(n_steps, d[0].turn.reply.n_tokens / (1 + DRAFT_MAX) +
                                               (d[0].turn.reply.n_tokens % (1 + DRAFT_MAX) != 0));
            drive_end(&d[0], true);
            drive_end(&d[1], true);
            ck_assert_uint_eq(n_pages(c[0]), n_pages(c[1]));
        }
        clone_close(c[0]);
        clone_close(c[1]);
    }
    agent_unref(a[0]);
    agent_unref(a[1]);
}
END_TEST

SUITE_MAIN("step", draft_tokens_change_no_reply, draft_tokens_where_room_ends,
           draft_tokens_among_many, no_draft_tokens_beside_a_prompt,
           draft_tokens_leave_nothing_behind, predictions_change_no_reply)
