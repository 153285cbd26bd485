/* The language model when memory runs out, at any point of opening it and of a conversation. */
#include <string.h>

#include "agents/agent.h"
#include "tests/fault/sweep.h"
#include "tests/support/lm_driver.h"
#include "tests/unit/base/suite.h"

enum { N = 3 };

static enum status open_tiny_with(struct agent **out, bool has_state, struct error *err)
{
    const struct tiny_config tiny = {.type = DTYPE_Q4_1, .seed = 3, .has_state = has_state};
    struct agent_config config = {.options.backend = "ref",
                                  .options.n_threads = 1,
                                  .options.kv_type = KV_F32,
                                  .options.kv_bytes = 4 << 20,
                                  .max_step_tokens = 64,
                                  .max_step_rows = 4,
                                  .env = &env_real};

    return drive_open(out, &tiny, &config, err);
}

static enum status open_tiny(struct agent **out, struct error *err)
{
    return open_tiny_with(out, false, err);
}

static enum status open_once(void *arg)
{
    const bool *has_state = arg;
    struct agent *a;
    struct error err;
    enum status rc = open_tiny_with(&a, *has_state, &err);

    if (rc == STATUS_OK)
        agent_unref(a);
    return rc;
}

/* A model that cannot be opened for lack of memory reports it and leaves nothing behind. */
START_TEST(open_fails_cleanly)
{
    for (int i = 0; i < 2; i++) {
        bool has_state = i == 1;

        ck_assert_int_gt(sweep(open_once, &has_state), 20);
    }
}
END_TEST

/* predicted [N], or NULL: the reply, whose tokens are drafts then. */
static enum status turn_once(struct agent *a, struct clone *c, const int32_t *predicted,
                             int32_t ids[N], struct error *err)
{
    struct sampling s;
    struct drive d, *only = &d;
    enum status rc;

    sampling_init(&s);
    s.temperature = 0.9f;
    s.top_k = 20;
    s.repetition_penalty = 1.1f;
    s.max_tokens = N;
    s.ignore_eos = true;
    s.want_logprobs = true;
    s.n_logprobs = 2;
    s.has_seed = true;
    rc = drive_begin(&d, c, "the hello", &s, err);
    if (rc == STATUS_OK) {
        d.turn.seen.predicted = predicted;
        d.turn.seen.n_predicted = predicted != NULL ? N : 0;
        drive_run(a, &only, 1, 16);
        if (d.turn.row.outcome == ROW_FAILED) {
            *err = d.turn.row.err;
            rc = err->status;
        }
    }
    for (size_t i = 0; rc == STATUS_OK && i < N; i++)
        ids[i] = d.turn.reply.tokens[i].id;
    if (rc == STATUS_OK && d.turn.row.turn != NULL) {
        c->agent->type->self_observe(c, &d.turn);
        if (d.turn.reply.finish == FINISH_ERROR)
            rc = error_set(err, STATUS_EXHAUSTED, "not learned");
    }
    drive_end(&d, false);
    return rc == STATUS_UNAVAILABLE ? STATUS_EXHAUSTED : rc;
}

struct conversation {
    struct agent *agent;
    int32_t want[2][N];
};

/* Two turns, then the second again in a fork. A failed one is repeated without a fault, and must
 * have the same reply. */
static enum status converse_once(void *arg)
{
    struct conversation *k = arg;
    const struct clone_config config = {.system = "be brief", .system_len = 8};
    struct clone *c, *child;
    struct error err;
    int32_t ids[N];
    enum status rc, all = clone_open(&c, k->agent, &config, &err);

    if (all != STATUS_OK)
        return all;
    for (int turn = 0; turn < 2; turn++) {
        while ((rc = turn_once(k->agent, c, k->want[turn], ids, &err)) != STATUS_OK)
            all = rc;
        ck_assert_mem_eq(ids, k->want[turn], sizeof(ids));
    }
    while ((rc = clone_fork(&child, c, 1, &err)) != STATUS_OK)
        all = rc;
    while ((rc = turn_once(k->agent, child, k->want[1], ids, &err)) != STATUS_OK)
        all = rc;
    ck_assert_mem_eq(ids, k->want[1], sizeof(ids));
    clone_close(child);
    clone_close(c);
    return all;
}

/* A turn, a fork, or a turn's end that fails for lack of memory leaves the conversation
 * unchanged. */
START_TEST(conversations_survive_failures)
{
    struct conversation k;
    struct clone *c;
    const struct clone_config config = {.system = "be brief", .system_len = 8};
    struct error err;

    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(open_tiny_with(&k.agent, i == 1, &err), STATUS_OK);
        ck_assert_int_eq(clone_open(&c, k.agent, &config, &err), STATUS_OK);
        for (int turn = 0; turn < 2; turn++)
            ck_assert_int_eq(turn_once(k.agent, c, NULL, k.want[turn], &err), STATUS_OK);
        clone_close(c);
        ck_assert_int_gt(sweep(converse_once, &k), 20);
        agent_unref(k.agent);
    }
}
END_TEST

static enum status score_turn(struct agent *a, struct clone *c, double *ret_logprob,
                              struct error *err)
{
    static const struct message said = {.role = ROLE_USER, .text = "the hello", .len = 9};
    static const struct scored_continuation texts[] = {{.text = {"hello", 5}},
                                                       {.text = {"the a", 5}}};
    struct drive d = {.clone = c}, *only = &d;
    enum status rc;

    arena_init(&d.arena, 16 << 20);
    agent_turn_init(&d.turn, &d.arena, 1 << 20);
    d.turn.seen = (struct observation){.messages = &said,
                                       .n_messages = 1,
                                       .turn = 1,
                                       .scored = texts,
                                       .n_scored = 2,
                                       .no_reply = true};
    sampling_init(&d.turn.seen.sampling);
    rc = c->agent->type->observe(c, &d.turn, err);
    if (rc == STATUS_OK) {
        drive_run(a, &only, 1, 16);
        if (d.turn.row.outcome == ROW_FAILED) {
            *err = d.turn.row.err;
            rc = err->status;
        }
    }
    if (rc == STATUS_OK)
        *ret_logprob = d.turn.reply.scores[0].logprob + d.turn.reply.scores[1].logprob;
    drive_end(&d, false);
    return rc == STATUS_UNAVAILABLE ? STATUS_EXHAUSTED : rc;
}

struct scoring {
    struct agent *agent;
    double want;
};

static enum status score_once(void *arg)
{
    struct scoring *s = arg;
    const struct clone_config config = {.system = "be brief", .system_len = 8};
    struct clone *c;
    struct error err;
    double got;
    enum status rc, all = clone_open(&c, s->agent, &config, &err);

    if (all != STATUS_OK)
        return all;
    while ((rc = score_turn(s->agent, c, &got, &err)) != STATUS_OK)
        all = rc;
    ck_assert_double_eq(got, s->want);
    clone_close(c);
    return all;
}

/* The same for a scored turn. */
START_TEST(scores_survive_failures)
{
    struct scoring s;
    struct clone *c;
    const struct clone_config config = {.system = "be brief", .system_len = 8};
    struct error err;

    ck_assert_int_eq(open_tiny(&s.agent, &err), STATUS_OK);
    ck_assert_int_eq(clone_open(&c, s.agent, &config, &err), STATUS_OK);
    ck_assert_int_eq(score_turn(s.agent, c, &s.want, &err), STATUS_OK);
    clone_close(c);
    ck_assert_int_gt(sweep(score_once, &s), 10);
    agent_unref(s.agent);
}
END_TEST

SUITE_MAIN("fault_lm", open_fails_cleanly, conversations_survive_failures, scores_survive_failures)
