#include <check.h>
#include <string.h>

#include "agents/lm/lm.h"
#include "tests/support/lm_driver.h"
#include "tests/unit/base/suite.h"

enum { N_TEXTS = 4, MAX_TOKENS = 32 };

static const struct tiny_config tiny = {.type = DTYPE_Q8_0, .seed = 7};

#define TEXT(s)                      \
    {                                \
        .text = { s, sizeof(s) - 1 } \
    }

static const struct scored_continuation texts[N_TEXTS] = {
    TEXT("hello, the hell"), TEXT("a"), TEXT("the the the"), TEXT("no, in hello world")};

static const struct message asked = {
    .role = ROLE_USER, .text = "what is in the hello?", .len = sizeof("what is in the hello?") - 1};

static struct agent *open_agent(const char *backend, size_t kv_pages, size_t max_logits)
{
    struct agent_config config = drive_config(backend, kv_pages);
    struct agent *a;
    struct error err;

    config.max_step_logits = max_logits;
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

static enum status begin(struct drive *d, struct clone *c, const struct observation *seen,
                         struct error *err)
{
    *d = (struct drive){.clone = c};
    arena_init(&d->arena, 16 << 20);
    agent_turn_init(&d->turn, &d->arena, 1 << 20);
    d->turn.seen = *seen;
    return c->agent->type->observe(c, &d->turn, err);
}

static struct observation wanted(const struct message *messages, size_t n_messages)
{
    struct observation seen = {.messages = messages,
                               .n_messages = n_messages,
                               .turn = 1,
                               .scored = texts,
                               .n_scored = N_TEXTS,
                               .no_reply = true};

    sampling_init(&seen.sampling);
    return seen;
}

struct scores {
    float logprobs[N_TEXTS][MAX_TOKENS];
    uint32_t n_tokens[N_TEXTS], n_top[N_TEXTS];
    double logprob[N_TEXTS];
};

static void keep(struct scores *out, const struct reply *r)
{
    memset(out, 0, sizeof(*out));
    ck_assert_uint_eq(r->n_scores, N_TEXTS);
    for (size_t i = 0; i < N_TEXTS; i++) {
        const struct text_score *s = &r->scores[i];
        double sum = 0;

        ck_assert_uint_le(s->n_tokens, MAX_TOKENS);
        for (size_t t = 0; t < s->n_tokens; t++) {
            ck_assert_float_le(s->logprobs[t], 0);
            sum += (double)s->logprobs[t];
        }
        ck_assert_double_eq_tol(s->logprob, sum, 1e-5);
        memcpy(out->logprobs[i], s->logprobs, s->n_tokens * sizeof(float));
        out->n_tokens[i] = s->n_tokens;
        out->n_top[i] = s->n_top;
        out->logprob[i] = s->logprob;
    }
}

static void score(struct scores *out, struct agent *a, const struct observation *seen,
                  size_t max_grant)
{
    struct clone *c = open_clone(a);
    struct drive d, *only = &d;
    struct error err;

    ck_assert_msg(begin(&d, c, seen, &err) == STATUS_OK, "%s", err.text);
    drive_run(a, &only, 1, max_grant);
    ck_assert_int_eq(d.turn.row.outcome, ROW_DONE);
    ck_assert_uint_eq(d.turn.reply.n_tokens, 0);
    keep(out, &d.turn.reply);
    drive_end(&d, true);
    clone_close(c);
}

/* Scores do not depend on how the row is chunked, nor on how many logits a step gives. */
START_TEST(chunks_do_not_matter)
{
    static const size_t grants[] = {256, 16, 5, 1}, logits[] = {0, 1, 200};
    const struct observation seen = wanted(&asked, 1);
    struct scores want, got;
    bool is_first = true;

    for (size_t k = 0; k < sizeof(logits) / sizeof(logits[0]); k++) {
        struct agent *a = open_agent("cpu", 64, logits[k]);

        for (size_t i = 0; i < sizeof(grants) / sizeof(grants[0]); i++) {
            score(is_first ? &want : &got, a, &seen, grants[i]);
            if (!is_first)
                ck_assert_mem_eq(&got, &want, sizeof(want));
            is_first = false;
        }
        agent_unref(a);
    }
}
END_TEST

/* Scores do not depend on other rows, which score or generate, nor on a step with fewer logits than
 * all rows need. */
START_TEST(company_does_not_matter)
{
    enum { N = 24 };
    struct agent *a = open_agent("cpu", 512, 0);
    const struct observation seen = wanted(&asked, 1);
    struct drive drives[N], *all[N];
    struct scores want, got;
    struct sampling s;
    struct error err;

    score(&want, a, &seen, 256);
    sampling_init(&s);
    s.max_tokens = 20;
    s.ignore_eos = true;
    for (int i = 0; i < N; i++) {
        all[i] = &drives[i];
        if (i % 3 == 0)
            ck_assert_int_eq(drive_begin(all[i], open_clone(a), "a the a the a the", &s, &err),
                             STATUS_OK);
        else
            ck_assert_int_eq(begin(all[i], open_clone(a), &seen, &err), STATUS_OK);
        if (i % 4 == 3)
            (void)drive_step(a, all, (size_t)i + 1, 7);
    }
    drive_run(a, all, N, 9);
    for (int i = 0; i < N; i++) {
        struct clone *c = drives[i].clone;

        if (i % 3 != 0) {
            keep(&got, &drives[i].turn.reply);
            ck_assert_mem_eq(&got, &want, sizeof(want));
        }
        drive_end(&drives[i], false);
        clone_close(c);
    }
    agent_unref(a);
}
END_TEST

/* A token's score is the log-probability that the token has when generated there. */
START_TEST(a_score_is_what_saying_it_gives)
{
    static const char *const parts[] = {"he", "a", " the", "b", " the", "hello"};
    enum { N_PARTS = sizeof(parts) / sizeof(parts[0]) };
    struct agent *a = open_agent("ref", 64, 0);
    struct message said[N_PARTS];
    struct observation seen = wanted(said, 2);
    struct clone *c = open_clone(a);
    struct drive scored, *only = &scored;
    struct logit_bias bias = {.bias = 1e9f};
    struct scored_continuation spoken = TEXT(" theb thehello");
    struct error err;
    size_t n_top = 0;

    for (size_t i = 0; i < N_PARTS; i++)
        said[i] = (struct message){.text = parts[i], .len = strlen(parts[i])};
    seen.is_raw_prompt = true;
    seen.scored = &spoken;
    seen.n_scored = 1;
    ck_assert_msg(begin(&scored, c, &seen, &err) == STATUS_OK, "%s", err.text);
    drive_run(a, &only, 1, 256);
    ck_assert_uint_eq(scored.turn.reply.n_scores, 1);
    ck_assert_uint_eq(scored.turn.reply.scores[0].n_tokens, N_PARTS - 2);
    for (size_t i = 2; i < N_PARTS; i++) {
        const struct text_score *s = &scored.turn.reply.scores[0];
        struct observation one = {
            .messages = said, .n_messages = i, .turn = 1, .is_raw_prompt = true};
        struct clone *other = open_clone(a);
        struct drive d, *alone = &d;
        struct buf ids;

        buf_init(&ids, 1 << 10);
        ck_assert_int_eq(a->type->text->tokenize(a, parts[i], strlen(parts[i]), false, &ids, &err),
                         STATUS_OK);
        ck_assert_uint_eq(ids.len, sizeof(bias.id));
        memcpy(&bias.id, ids.data, sizeof(bias.id));
        buf_deinit(&ids);
        sampling_init(&one.sampling);
        one.sampling.temperature = 0;
        one.sampling.max_tokens = 1;
        one.sampling.n_logprobs = 1;
        one.sampling.biases = &bias;
        one.sampling.n_biases = 1;
        ck_assert_msg(begin(&d, other, &one, &err) == STATUS_OK, "%s", err.text);
        drive_run(a, &alone, 1, 256);
        ck_assert_int_eq(d.turn.reply.tokens[0].id, bias.id);
        ck_assert_float_eq(d.turn.reply.tokens[0].logprob, s->logprobs[i - 2]);
        n_top += d.turn.reply.tokens[0].top[0].id == bias.id;
        drive_end(&d, false);
        clone_close(other);
    }
    ck_assert_uint_eq(scored.turn.reply.scores[0].n_top, n_top);
    drive_end(&scored, false);
    clone_close(c);
    agent_unref(a);
}
END_TEST

/* Ids are scored unchanged, after a prompt of ids as after its text. */
START_TEST(ids_are_texts)
{
    struct agent *a = open_agent("ref", 64, 0);
    struct observation by_text = wanted(&asked, 1), by_ids;
    struct buf prompt, label;
    struct scored_continuation ids;
    struct drive x, y, *both[] = {&x, &y};
    const struct reply *rx = &x.turn.reply, *ry = &y.turn.reply;
    struct error err;

    buf_init(&prompt, 1 << 10);
    buf_init(&label, 1 << 10);
    ck_assert_int_eq(a->type->text->tokenize(a, asked.text, asked.len, false, &prompt, &err),
                     STATUS_OK);
    ck_assert_int_eq(
        a->type->text->tokenize(a, texts[0].text.text, texts[0].text.len, false, &label, &err),
        STATUS_OK);
    by_text.is_raw_prompt = true;
    by_text.n_scored = 1;
    by_ids = by_text;
    by_ids.n_messages = 0;
    by_ids.raw_ids = (const int32_t *)(const void *)prompt.data;
    by_ids.n_raw_ids = prompt.len / sizeof(int32_t);
    ids = (struct scored_continuation){.ids = (const int32_t *)(const void *)label.data,
                                       .n_ids = label.len / sizeof(int32_t)};
    by_ids.scored = &ids;
    ck_assert_int_eq(begin(&x, open_clone(a), &by_text, &err), STATUS_OK);
    ck_assert_msg(begin(&y, open_clone(a), &by_ids, &err) == STATUS_OK, "%s", err.text);
    drive_run(a, both, 2, 13);
    ck_assert_uint_eq(rx->scores[0].n_tokens, ids.n_ids);
    ck_assert_uint_eq(ry->scores[0].n_tokens, ids.n_ids);
    ck_assert_mem_eq(rx->scores[0].logprobs, ry->scores[0].logprobs, ids.n_ids * sizeof(float));
    for (int i = 0; i < 2; i++) {
        struct clone *c = both[i]->clone;

        drive_end(both[i], false);
        clone_close(c);
    }
    buf_deinit(&prompt);
    buf_deinit(&label);
    agent_unref(a);
}
END_TEST

/* A reply after scores is the same as without them, and the conversation continues from it. */
START_TEST(the_reply_is_as_ever)
{
    struct agent *a = open_agent("cpu", 64, 0);
    struct observation seen = wanted(&asked, 1);
    struct scores alone, before;
    int32_t want[2][16], got[2][16];

    score(&alone, a, &seen, 256);
    seen.no_reply = false;
    seen.sampling.max_tokens = 16;
    seen.sampling.ignore_eos = true;
    seen.sampling.seed = 5;
    for (int with = 0; with < 2; with++) {
        struct clone *c = open_clone(a);

        seen.n_scored = with == 0 ? 0 : N_TEXTS;
        for (uint32_t turn = 0; turn < 2; turn++) {
            struct drive d, *only = &d;
            struct error err;

            ck_assert_int_eq(begin(&d, c, &seen, &err), STATUS_OK);
            drive_run(a, &only, 1, 11);
            ck_assert_uint_eq(d.turn.reply.n_tokens, 16);
            for (size_t i = 0; i < 16; i++)
                (with == 0 ? want : got)[turn][i] = d.turn.reply.tokens[i].id;
            if (with == 1 && turn == 0) {
                keep(&before, &d.turn.reply);
                ck_assert_mem_eq(&before, &alone, sizeof(alone));
            }
            drive_end(&d, true);
        }
        clone_close(c);
    }
    ck_assert_mem_eq(got, want, sizeof(want));
    agent_unref(a);
}
END_TEST

/* A row that loses its pages in the middle of a text gives the same scores. */
START_TEST(preemption_changes_no_score)
{
    for (int cached = 0; cached < 2; cached++) {
        struct agent_config config = drive_config("ref", 64);
        const struct observation seen = wanted(&asked, 1);
        struct scores want, got;
        struct agent *a;
        struct clone *c;
        struct drive d, *only = &d;
        struct error err;

        config.options.no_prefix_cache = cached == 0;
        ck_assert_int_eq(drive_open(&a, &tiny, &config, &err), STATUS_OK);
        score(&want, a, &seen, 256);
        c = open_clone(a);
        ck_assert_int_eq(begin(&d, c, &seen, &err), STATUS_OK);
        for (int i = 0; drive_step(a, &only, 1, 6) != 0; i++)
            if (i == 17 || i == 50)
                a->type->release(a, &d.turn.row);
        keep(&got, &d.turn.reply);
        ck_assert_mem_eq(&got, &want, sizeof(want));
        drive_end(&d, false);
        clone_close(c);
        agent_unref(a);
    }
}
END_TEST

/* A turn that only scores does not change the clone, and a text may follow an empty prompt; texts
 * that cannot be scored are refused by number. */
START_TEST(what_cannot_be_scored_is_refused)
{
    static char longest[TINY_CONTEXT * 8];
    static const int32_t none = TINY_VOCAB;
    struct agent *a = open_agent("ref", 256, 0);
    struct observation seen = wanted(&asked, 1);
    struct clone *c = open_clone(a);
    struct scored_continuation text = {.text = {"", 0}};
    struct clone_info info;
    struct drive d, *only = &d;
    struct error err;

    seen.scored = &text;
    seen.n_scored = 1;
    ck_assert_int_eq(begin(&d, c, &seen, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "text 1 to score: the text has no tokens");
    drive_end(&d, false);
    text.text = (struct text){"\xff", 1};
    ck_assert_int_eq(begin(&d, c, &seen, &err), STATUS_INVALID);
    drive_end(&d, false);
    memset(longest, 'z', sizeof(longest));
    text.text = (struct text){longest, TINY_CONTEXT};
    ck_assert_int_eq(begin(&d, c, &seen, &err), STATUS_RANGE);
    drive_end(&d, false);
    text.text = (struct text){longest, sizeof(longest)};
    ck_assert_int_eq(begin(&d, c, &seen, &err), STATUS_RANGE);
    drive_end(&d, false);
    text.ids = &none;
    text.n_ids = 1;
    ck_assert_int_eq(begin(&d, c, &seen, &err), STATUS_INVALID);
    drive_end(&d, false);
    text = texts[0];
    ck_assert_int_eq(begin(&d, c, &seen, &err), STATUS_OK);
    drive_run(a, &only, 1, 256);
    drive_end(&d, true);
    clone_describe(c, &info);
    ck_assert_uint_eq(info.n_tokens, 0);
    seen.is_raw_prompt = true;
    seen.n_messages = 0;
    ck_assert_int_eq(begin(&d, c, &seen, &err), STATUS_OK);
    ck_assert_uint_eq(d.turn.reply.n_prompt, 1); /* only bos */
    drive_run(a, &only, 1, 256);
    ck_assert_uint_eq(d.turn.reply.n_scores, 1);
    drive_end(&d, false);
    clone_close(c);
    agent_unref(a);
}
END_TEST

SUITE_MAIN("agents_lm_score", chunks_do_not_matter, company_does_not_matter,
           a_score_is_what_saying_it_gives, ids_are_texts, the_reply_is_as_ever,
           preemption_changes_no_score, what_cannot_be_scored_is_refused)
