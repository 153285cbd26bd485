#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agents/constraint/constraint.h"
#include "agents/lm/grammar/grammars_parts.h"
#include "agents/lm/lm.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/worker.h"
#include "batching/tenant.h"
#include "tests/support/lm_driver.h"
#include "tests/unit/base/suite.h"

static const struct tiny_config tiny = {.type = DTYPE_Q8_0, .seed = 7};

static struct arena arena;

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"the_first\":{\"enum\":[\"hello\",\"help\"]},"
    "\"the_second\":{\"type\":\"array\",\"items\":{\"type\":\"boolean\"},\"minItems\":1,"
    "\"maxItems\":3}},\"required\":[\"the_first\",\"the_second\"]}";

/* What a small model would write for ever: texts, numbers and lists without a bound. */
static const char endless_schema[] =
    "{\"type\":\"object\",\"properties\":{\"the_first\":{\"type\":\"array\",\"items\":{\"type\":"
    "\"object\",\"properties\":{\"text\":{\"type\":\"string\"},\"when\":{\"type\":\"string\","
    "\"format\":\"date-time\"}},\"required\":[\"text\",\"when\"]}},\"the_second\":{\"type\":"
    "\"number\"}},\"required\":[\"the_first\",\"the_second\"]}";

static const struct constraint *constraint_of(const char *text)
{
    const struct constraint *c;
    const char *left_out;
    struct error err;

    ck_assert_int_eq(
        constraint_of_schema_text(&c, text, strlen(text), true, &left_out, &arena, &err),
        STATUS_OK);
    return c;
}

static struct agent *constrained_agent(enum speculate speculate, const struct agent_background *b)
{
    struct agent_config config = drive_config("cpu", 64);
    struct agent *a;
    struct error err;

    config.options.speculate = speculate;
    config.background = b;
    ck_assert_msg(drive_open(&a, &tiny, &config, &err) == STATUS_OK, "%s", err.text);
    return a;
}

static struct clone *constrained_clone(struct agent *a)
{
    const struct clone_config plain = {0};
    struct clone *c;
    struct error err;

    ck_assert_int_eq(clone_open(&c, a, &plain, &err), STATUS_OK);
    return c;
}

static struct sampling constrained_sampling(float temperature, bool want_logprobs)
{
    struct sampling s;

    sampling_init(&s);
    s.temperature = temperature;
    s.seed = 3;
    s.has_seed = true;
    s.max_tokens = 200;
    s.ignore_eos = true; /* a constraint ends the reply all the same */
    s.want_logprobs = want_logprobs;
    s.constraint = constraint_of(schema);
    return s;
}

static void constrained_begin(struct drive *d, struct clone *c, const struct sampling *s)
{
    struct error err;

    ck_assert_msg(drive_begin(d, c, "hello", s, &err) == STATUS_OK, "%s", err.text);
    if (s->constraint != NULL)
        ck_assert_msg(c->agent->type->text->prepare(c, &d->turn, &err) == STATUS_OK, "%s",
                      err.text);
    ck_assert(!d->turn.is_preparing);
}

/* Runs a turn; returns how many steps it took. */
static size_t constrained_run(struct drive *d, struct clone *c, const struct sampling *s)
{
    size_t n_steps = 0;

    constrained_begin(d, c, s);
    do
        n_steps++;
    while (drive_step(c->agent, &d, 1, 256) != 0);
    ck_assert_msg(d->turn.row.outcome == ROW_DONE, "%s", d->turn.row.err.text);
    return n_steps;
}

static void check_instance(const struct reply *r)
{
    json_t *read = json_loads(r->text.data, 0, NULL);
    const char *first = json_string_value(json_object_get(read, "the_first"));
    const size_t n = json_array_size(json_object_get(read, "the_second"));

    ck_assert_msg(read != NULL && json_object_size(read) == 2, "%s", r->text.data);
    ck_assert(strcmp(first, "hello") == 0 || strcmp(first, "help") == 0);
    ck_assert(n >= 1 && n <= 3);
    json_decref(read);
}

/* Asserts the same ids and text. */
static void check_same_reply(const struct reply *a, const struct reply *b)
{
    ck_assert_uint_eq(a->n_tokens, b->n_tokens);
    for (size_t i = 0; i < a->n_tokens; i++) {
        ck_assert_int_eq(a->tokens[i].id, b->tokens[i].id);
        ck_assert_uint_eq(a->tokens[i].text_end, b->tokens[i].text_end);
    }
    ck_assert_str_eq(a->text.data, b->text.data);
}

/* A reply matches its schema and ends by itself, however likely its tokens are. Forced text takes
 * no steps of its own, and its ids are those that it has token by token, as log-probabilities need
 * it; so too with draft tokens, and after a fork. */
START_TEST(test_replies)
{
    static const float temperatures[] = {0, 1, 2};
    const float temperature = temperatures[_i];
    const struct sampling at_once = constrained_sampling(temperature, false),
                          by_token = constrained_sampling(temperature, true);
    struct agent *agents[2] = {constrained_agent(SPECULATE_OFF, NULL),
                               constrained_agent(SPECULATE_ON, NULL)};

    for (int i = 0; i < 2; i++) {
        struct clone *c = constrained_clone(agents[i]), *twin = constrained_clone(agents[i]), *fork;
        struct drive d[3];
        struct error err;
        size_t n_at_once, n_by_token;

        n_by_token = constrained_run(&d[0], twin, &by_token);
        ck_assert_int_eq(d[0].turn.reply.finish, FINISH_STOP);
        check_instance(&d[0].turn.reply);
        n_at_once = constrained_run(&d[1], c, &at_once);
        ck_assert_int_eq(d[1].turn.reply.finish, FINISH_STOP);
        ck_assert_uint_lt(2 * n_at_once, d[1].turn.reply.n_tokens);
        ck_assert(i == 1 || n_by_token == d[1].turn.reply.n_tokens);
        check_same_reply(&d[0].turn.reply, &d[1].turn.reply);
        drive_end(&d[0], false);
        drive_end(&d[1], true);
        ck_assert_int_eq(clone_fork(&fork, c, 1, &err), STATUS_OK);
        constrained_run(&d[0], c, &at_once);
        constrained_run(&d[2], fork, &by_token);
        check_same_reply(&d[0].turn.reply, &d[2].turn.reply);
        drive_end(&d[0], true);
        drive_end(&d[2], true);
        clone_close(fork);
        clone_close(twin);
        clone_close(c);
    }
    agent_unref(agents[0]);
    agent_unref(agents[1]);
}
END_TEST

/* A reply ends by itself, and is an instance, within any number of tokens that has room for the
 * shortest one: near the end no token is taken that would need more room for what it begins. What
 * has no room is cut. The ids do not depend on whether forced text has steps of its own, nor on
 * draft tokens. */
START_TEST(test_budget)
{
    struct agent *off = constrained_agent(SPECULATE_OFF, NULL),
                 *on = constrained_agent(SPECULATE_ON, NULL);
    struct sampling by_token = constrained_sampling(1.5f, true);
    struct sampling at_once = constrained_sampling(1.5f, false);
    uint32_t least = 0;
    struct drive d[2];

    by_token.constraint = at_once.constraint = constraint_of(endless_schema);
    for (uint32_t budget = 16; budget <= 128; budget += budget < 64 ? 1 : 16) {
        struct clone *a = constrained_clone(off), *b = constrained_clone(on);
        const struct reply *r = &d[0].turn.reply;
        json_t *read;

        by_token.max_tokens = at_once.max_tokens = budget;
        by_token.seed = at_once.seed = budget;
        constrained_run(&d[0], a, &by_token);
        constrained_run(&d[1], b, &at_once);
        check_same_reply(r, &d[1].turn.reply);
        ck_assert_uint_le(r->n_tokens, budget);
        for (size_t i = 0; i < r->n_tokens; i++)
            ck_assert(isfinite(r->tokens[i].logprob) && r->tokens[i].logprob < 0);
        if (r->finish == FINISH_STOP && least == 0)
            least = budget;
        ck_assert_int_eq(r->finish, least == 0 ? FINISH_LENGTH : FINISH_STOP);
        read = json_loads(r->text.data, 0, NULL);
        ck_assert_msg(least == 0 || (json_is_array(json_object_get(read, "the_first")) &&
                                     json_is_number(json_object_get(read, "the_second"))),
                      "%s", r->text.data);
        json_decref(read);
        drive_end(&d[0], false);
        drive_end(&d[1], false);
        clone_close(a);
        clone_close(b);
    }
    ck_assert(least > 16 && least < 64);
    agent_unref(off);
    agent_unref(on);
}
END_TEST

/* A reply that may end, or go on for longer than there is room, ends. */
START_TEST(test_rounds)
{
    static const char rounds[] = "root ::= (\"Go \" [a-z]{8} \"\\n\")+";
    struct agent *a = constrained_agent(SPECULATE_ON, NULL);
    struct sampling s = constrained_sampling(1.5f, true);
    uint32_t least = 0;
    struct error err;
    struct drive d;

    ck_assert_int_eq(constraint_of_grammar(&s.constraint, rounds, sizeof(rounds) - 1, &arena, &err),
                     STATUS_OK);
    for (s.max_tokens = 1; s.max_tokens <= 48; s.max_tokens++) {
        struct clone *c = constrained_clone(a);
        const struct reply *r = &d.turn.reply;

        constrained_run(&d, c, &s);
        if (r->finish == FINISH_STOP && least == 0)
            least = s.max_tokens;
        ck_assert_int_eq(r->finish, least == 0 ? FINISH_LENGTH : FINISH_STOP);
        ck_assert(least == 0 || r->text.data[r->text.len - 1] == '\n');
        drive_end(&d, true);
        clone_close(c);
    }
    ck_assert(least > 1 && least < 24);
    agent_unref(a);
}
END_TEST

/* A reply is the same with draft tokens as without, and whoever else is in the batch. */
START_TEST(test_drafts)
{
    struct agent *off = constrained_agent(SPECULATE_OFF, NULL),
                 *on = constrained_agent(SPECULATE_ON, NULL);
    const struct sampling s = constrained_sampling(1, true);
    struct clone *a = constrained_clone(off), *b = constrained_clone(on);
    struct drive d[2];

    for (int turn = 0; turn < 3; turn++) {
        constrained_run(&d[0], a, &s);
        constrained_run(&d[1], b, &s);
        check_same_reply(&d[0].turn.reply, &d[1].turn.reply);
        for (size_t i = 0; i < d[0].turn.reply.n_tokens; i++)
            ck_assert(d[0].turn.reply.tokens[i].logprob == d[1].turn.reply.tokens[i].logprob);
        drive_end(&d[0], true);
        drive_end(&d[1], true);
    }
    clone_close(a);
    clone_close(b);
    agent_unref(off);
    agent_unref(on);
}
END_TEST

/* Rows under several constraints and free ones have the same replies in one batch as alone, with
 * one thread and with three, and however few tokens a step may compute. */
START_TEST(test_batch)
{
    enum { ROWS = 6 };
    const size_t grants[] = {256, 3};
    struct agent *alone = constrained_agent(SPECULATE_OFF, NULL), *together;
    struct agent_config config = drive_config("cpu", 64);
    struct sampling s[ROWS];
    struct error err;

    config.options.n_threads = 3;
    config.options.speculate = SPECULATE_ON;
    ck_assert_msg(drive_open(&together, &tiny, &config, &err) == STATUS_OK, "%s", err.text);
    for (uint32_t i = 0; i < ROWS; i++) {
        s[i] = constrained_sampling(1.5f, i % 2 == 0);
        s[i].seed = i;
        s[i].max_tokens = 80;
        s[i].constraint = i % 3 == 0   ? NULL
                          : i % 3 == 1 ? s[i].constraint
                                       : constraint_of(endless_schema);
    }
    for (size_t g = 0; g < sizeof(grants) / sizeof(grants[0]); g++) {
        struct drive d[ROWS], single, *all[ROWS];
        struct clone *clones[ROWS], *c;

        for (size_t i = 0; i < ROWS; i++) {
            clones[i] = constrained_clone(together);
            all[i] = &d[i];
            constrained_begin(&d[i], clones[i], &s[i]);
        }
        drive_run(together, all, ROWS, grants[g]);
        for (size_t i = 0; i < ROWS; i++) {
            c = constrained_clone(alone);
            constrained_run(&single, c, &s[i]);
            check_same_reply(&single.turn.reply, &d[i].turn.reply);
            for (size_t k = 0; k < single.turn.reply.n_tokens; k++)
                ck_assert(single.turn.reply.tokens[k].logprob == d[i].turn.reply.tokens[k].logprob);
            ck_assert(s[i].constraint == NULL || d[i].turn.reply.finish == FINISH_STOP);
            drive_end(&single, false);
            drive_end(&d[i], false);
            clone_close(c);
            clone_close(clones[i]);
        }
    }
    agent_unref(alone);
    agent_unref(together);
}
END_TEST

/* --- in the background --- */

static struct job *waiting[32];
static size_t n_waiting;

static enum status take_job(void *self, struct job *job, struct error *err)
{
    ck_assert_uint_lt(n_waiting, 32);
    waiting[n_waiting++] = job;
    return STATUS_OK;
}

static void run_jobs(void)
{
    for (size_t i = 0; i < n_waiting; i++) {
        waiting[i]->run(waiting[i]);
        waiting[i]->done(waiting[i]);
    }
    n_waiting = 0;
}

static const struct constraint *numbered(int i)
{
    const struct constraint *c;
    struct error err;
    char text[32];

    (void)snprintf(text, sizeof(text), "a{%d}", i + 1);
    ck_assert_int_eq(constraint_of_regex(&c, text, strlen(text), &arena, &err), STATUS_OK);
    return c;
}

static struct grammar *given;
static struct error given_err;

static void take_grammar(struct grammar_waiter *w, struct grammar *g, const struct error *err)
{
    given = g;
    given_err = *err;
}

/* All who ask for a constraint while it is compiled get it from one compilation; later it is found.
 * What does not compile says why, and is not kept. Only so many are compiled at once. */
START_TEST(test_background)
{
    const struct agent_background background = {take_job, NULL};
    struct agent *a = constrained_agent(SPECULATE_OFF, &background);
    struct grammars *all = container_of(a, struct lm, base)->grammars;
    struct grammar_waiter waiters[GRAMMARS_MAX_COMPILING + 1];
    struct grammar *g;
    const struct constraint *wrong;
    struct error err;

    memset(waiters, 0, sizeof(waiters));
    for (int i = 0; i <= GRAMMARS_MAX_COMPILING; i++)
        waiters[i].ready = take_grammar;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(grammars_get(&g, all, numbered(0), &waiters[i], &err), STATUS_OK);
        ck_assert_ptr_null(g);
    }
    ck_assert_uint_eq(n_waiting, 1);
    run_jobs();
    ck_assert_ptr_nonnull(given);
    ck_assert_int_eq(grammars_get(&g, all, numbered(0), &waiters[0], &err), STATUS_OK);
    ck_assert_ptr_eq(g, given);
    for (int i = 0; i < 3; i++)
        grammar_unref(g);

    ck_assert_int_eq(constraint_of_regex(&wrong, "(a", 2, &arena, &err), STATUS_OK);
    ck_assert_int_eq(grammars_get(&g, all, wrong, &waiters[0], &err), STATUS_OK);
    run_jobs();
    ck_assert_int_eq(given_err.status, STATUS_INVALID);

    for (int i = 0; i < GRAMMARS_MAX_COMPILING; i++)
        ck_assert_int_eq(grammars_get(&g, all, numbered(i + 1), &waiters[i], &err), STATUS_OK);
    ck_assert_int_eq(grammars_get(&g, all, numbered(40), &waiters[16], &err), STATUS_EXHAUSTED);
    ck_assert_uint_gt(err.retry_after_ms, 0);
    for (int i = 0; i < GRAMMARS_MAX_COMPILING; i++)
        grammars_forget(&waiters[i]);
    run_jobs();
    agent_unref(a);
}
END_TEST

/* --- compiled elsewhere --- */

static struct compile_job *compiling[8];
static size_t n_compiling, n_cancelled, n_forgotten;
static enum status submit_status;

static enum status take_compile(void *self, struct compile_job *job, struct error *err)
{
    if (submit_status != STATUS_OK)
        return error_set(err, submit_status, "not now");
    ck_assert_uint_lt(n_compiling, 8);
    ck_assert_int_ge(job->vocab_fd, 0);
    compiling[n_compiling++] = job;
    return STATUS_OK;
}

static void cancel_compile(void *self, struct compile_job *job)
{
    ck_assert_uint_eq(n_compiling, 1);
    ck_assert_ptr_eq(compiling[0], job);
    n_compiling = 0;
    n_cancelled++;
}

static void forget_vocab(void *self)
{
    n_forgotten++;
}

static bool keep_bytes(void *arg, const char *bytes, size_t len)
{
    return buf_append(arg, bytes, len) == STATUS_OK;
}

/* Answers the one job with what it compiles to, or with what, if there is any. */
static void answer_compile(const struct grammars *all, const char *what)
{
    struct compile_job *job = compiling[0];
    const struct error well = {0};
    bool no_memory;
    char why[160];
    struct buf b;
    void *compiled;

    ck_assert_uint_eq(n_compiling, 1);
    n_compiling = 0;
    buf_init(&b, SIZE_MAX);
    if (what != NULL) {
        ck_assert_int_eq(buf_append_text(&b, what), STATUS_OK);
    } else {
        compiled = all->module->compile(all->engine_vocab, job->form, job->text, job->len,
                                        &no_memory, why, sizeof(why));
        ck_assert(all->module->compiled_save(compiled, keep_bytes, &b, why, sizeof(why)));
        all->module->compiled_close(compiled);
    }
    job->done(job, b.data, b.len, &well); /* it takes the bytes */
}

static void fail_compile(enum status status, bool is_over_budget)
{
    struct compile_job *job = compiling[0];
    struct error err;

    ck_assert_uint_eq(n_compiling, 1);
    n_compiling = 0;
    job->is_over_budget = is_over_budget;
    (void)error_set(&err, status, "it did not work");
    job->done(job, NULL, 0, &err);
}

/* A waiter asks for a constraint that is not there. */
static void ask(struct grammars *all, struct grammar_waiter *w, int i)
{
    struct grammar *g;
    struct error err;

    w->ready = take_grammar;
    given = NULL;
    given_err = (struct error){0};
    ck_assert_int_eq(grammars_get(&g, all, numbered(i), w, &err), STATUS_OK);
    ck_assert_ptr_null(g);
}

/* A constraint that is compiled elsewhere is made of what comes back; whatever is no constraint, an
 * error and a refused job fail all waiters, and leave nothing. */
START_TEST(test_elsewhere)
{
    static const struct agent_background background = {take_job, NULL};
    static const struct agent_compiler compiler = {take_compile, cancel_compile, forget_vocab,
                                                   NULL};
    struct agent_config config = drive_config("cpu", 64);
    struct grammar_waiter w = {0}, other = {0};
    struct grammars *all;
    struct agent *a;
    struct error err;

    config.background = &background;
    config.compiler = &compiler;
    ck_assert_msg(drive_open(&a, &tiny, &config, &err) == STATUS_OK, "%s", err.text);
    all = container_of(a, struct lm, base)->grammars;

    ask(all, &w, 0); /* the vocabulary cannot be made */
    fault_after = 2;
    run_jobs();
    fault_after = -1;
    ck_assert_int_eq(given_err.status, STATUS_EXHAUSTED);

    ask(all, &w, 0); /* nor is there a process */
    submit_status = STATUS_UNAVAILABLE;
    run_jobs();
    submit_status = STATUS_OK;
    ck_assert_int_eq(given_err.status, STATUS_UNAVAILABLE);

    ask(all, &w, 0);
    answer_compile(all, NULL);
    run_jobs();
    ck_assert_ptr_nonnull(given);
    grammar_unref(given);

    ask(all, &w, 1);
    answer_compile(all, "this is no constraint");
    run_jobs();
    ck_assert_int_eq(given_err.status, STATUS_UNAVAILABLE);

    ask(all, &w, 1);
    fail_compile(STATUS_INVALID, false);
    ck_assert_int_eq(given_err.status, STATUS_INVALID);

    ask(all, &w, 1); /* the last one who waits leaves */
    ask(all, &other, 1);
    grammars_forget(&w);
    ck_assert_uint_eq(n_cancelled, 0);
    grammars_forget(&other);
    ck_assert_uint_eq(n_cancelled, 1);

    ask(all, &w, 1); /* the same while the bytes are read: it is kept */
    answer_compile(all, NULL);
    grammars_forget(&w);
    run_jobs();
    ck_assert_ptr_null(given);
    ck_assert_uint_eq(all->n_kept, 2);

    ask(all, &w, 2); /* who was accepted before has no budget */
    other.is_unbounded = true;
    ask(all, &other, 2);
    ck_assert(!compiling[0]->is_unbounded);
    fail_compile(STATUS_INVALID, true);
    ck_assert_int_eq(given_err.status, STATUS_INVALID);
    ck_assert(n_compiling == 1 && compiling[0]->is_unbounded);
    answer_compile(all, NULL);
    run_jobs();
    ck_assert_ptr_nonnull(given);
    grammar_unref(given);
    agent_unref(a);
    ck_assert_uint_eq(n_forgotten, 1);
}
END_TEST

/* With keys, a tenant may have half of the constraints that are compiled at once. */
START_TEST(test_half)
{
    const struct agent_background background = {take_job, NULL};
    struct agent *a = constrained_agent(SPECULATE_OFF, &background);
    struct grammars *all = container_of(a, struct lm, base)->grammars;
    struct grammar_waiter waiters[GRAMMARS_MAX_COMPILING];
    struct tenant tenants[2];
    struct grammar *g;
    struct error err;

    memset(waiters, 0, sizeof(waiters));
    tenant_init(&tenants[0], 1);
    tenant_init(&tenants[1], 1);
    for (int i = 0; i < GRAMMARS_MAX_COMPILING; i++) {
        waiters[i].ready = take_grammar;
        waiters[i].tenant = &tenants[i >= GRAMMARS_MAX_COMPILING / 2 + 1];
    }
    for (int i = 0; i < GRAMMARS_MAX_COMPILING; i++)
        ck_assert_int_eq(grammars_get(&g, all, numbered(i), &waiters[i], &err),
                         i == GRAMMARS_MAX_COMPILING / 2 ? STATUS_EXHAUSTED : STATUS_OK);
    for (int i = 0; i < GRAMMARS_MAX_COMPILING; i++)
        grammars_forget(&waiters[i]);
    run_jobs();
    agent_unref(a);
}
END_TEST

/* Without the module one line says so, and other turns are served. */
START_TEST(test_no_module)
{
    char *module = strdup(getenv("PARLEY_GRAMMAR_MODULE"));
    struct agent *a = constrained_agent(SPECULATE_OFF, NULL);
    const struct sampling s = constrained_sampling(0, false);
    struct clone *c = constrained_clone(a);
    struct drive d;
    struct error err;

    ck_assert_int_eq(setenv("PARLEY_GRAMMAR_MODULE", "", 1), 0);
    ck_assert_int_eq(drive_begin(&d, c, "hello", &s, &err), STATUS_OK);
    ck_assert_int_eq(a->type->text->prepare(c, &d.turn, &err), STATUS_UNAVAILABLE);
    drive_end(&d, false);
    ck_assert_int_eq(setenv("PARLEY_GRAMMAR_MODULE", module, 1), 0);
    constrained_run(&d, c, &s);
    drive_end(&d, false);
    clone_close(c);
    agent_unref(a);
    free(module);
}
END_TEST

int main(void)
{
    TCase *all = tcase_create("constrained");
    Suite *suite = suite_create("constrained");
    SRunner *runner = srunner_create(suite);
    const char *module = getenv("PARLEY_GRAMMAR_MODULE");
    int failed;

    if (module == NULL || access(module, R_OK) != 0) {
        printf("the grammar module is not built\n");
        return 77;
    }
    arena_init(&arena, 16 << 20);
    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, test_replies, 0, 3);
    tcase_add_test(all, test_budget);
    tcase_add_test(all, test_rounds);
    tcase_add_test(all, test_drafts);
    tcase_add_test(all, test_batch);
    tcase_add_test(all, test_background);
    tcase_add_test(all, test_elsewhere);
    tcase_add_test(all, test_half);
    tcase_add_test(all, test_no_module);
    suite_add_tcase(suite, all);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    arena_deinit(&arena);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
