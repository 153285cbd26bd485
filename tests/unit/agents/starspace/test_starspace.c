/* Starspace as an agent: its conversations, its file, and what stops a step. That a step is the
 * right one is shown against numpy, by tests/integration/test_learners.py. Last, that all of it
 * holds when memory ends anywhere. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agents/agent.h"
#include "agents/starspace/starspace.h"
#include "agents/turn.h"
#include "agents/words/word_table.h"
#include "tests/fault/sweep.h"
#include "tests/unit/base/suite.h"

static struct error err;
static char path[] = "/tmp/starspace-XXXXXX.gguf";

static const char *const said[] = {"red one", "green two", "blue three"};

static struct text text_of(const char *text)
{
    return (struct text){text, strlen(text)};
}

/* A space of the words above, whose candidates they are. */
static enum status make_space(struct starspace **out)
{
    const struct starspace_spec spec = {.n_dims = 8, .max_norm = 1, .seed = 3};
    struct word_table *words;
    struct starspace *s;
    enum status rc = word_table_open(&words, &err);

    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < 3 && rc == STATUS_OK; i++)
        rc = word_table_add(words, text_of(said[i]), &err);
    if (rc == STATUS_OK)
        rc = word_table_settle(words, 0, &err);
    if (rc != STATUS_OK) {
        word_table_close(words);
        return rc;
    }
    rc = starspace_create(&s, &spec, words, &err);
    if (rc != STATUS_OK)
        return rc;
    for (size_t i = 0; i < 6 && rc == STATUS_OK; i++) /* each twice: once is enough */
        rc = starspace_add_candidate(s, text_of(said[i % 3]), &err);
    if (rc == STATUS_OK)
        *out = s;
    else
        starspace_close(s);
    return rc;
}

static void take_path(void)
{
    int fd;

    memcpy(path + strlen(path) - 11, "XXXXXX", 6);
    fd = mkstemps(path, 5);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(close(fd), 0);
}

static enum status open_agent(struct agent **out)
{
    const struct agent_config config = {.name = "s", .path = path, .env = &env_real};

    return agent_open(out, NULL, &config, &err);
}

/* A turn of c, whose reply is expected; NULL: any. Optionally its trace. */
static enum status converse(struct clone *c, const char *text, const char *want, struct buf *trace)
{
    const struct message message = {.role = ROLE_USER, .text = text, .len = strlen(text)};
    struct row *rows[1];
    struct agent_turn turn;
    struct arena arena;
    enum status rc;

    arena_init(&arena, SIZE_MAX);
    agent_turn_init(&turn, &arena, 1000);
    turn.seen.messages = &message;
    turn.seen.n_messages = 1;
    turn.seen.turn = 1;
    sampling_init(&turn.seen.sampling);
    rc = agent_turn_observe(&turn, c, &err);
    if (rc == STATUS_OK) {
        rows[0] = &turn.row;
        agent_compute(c->agent, rows, 1);
        rc = turn.row.outcome == ROW_DONE ? STATUS_OK : turn.row.err.status;
        if (rc == STATUS_OK && want != NULL) {
            ck_assert_uint_eq(turn.reply.text.len, strlen(want));
            ck_assert_mem_eq(turn.reply.text.data, want, strlen(want));
        }
        if (rc == STATUS_OK && trace != NULL)
            rc = c->agent->type->trace(c, &turn, trace, &err);
        if (rc == STATUS_OK)
            c->agent->type->self_observe(c, &turn);
        turn.state = AGENT_TURN_OVER;
    }
    agent_turn_deinit(&turn);
    arena_deinit(&arena);
    return rc;
}

static size_t n_tokens(struct clone *c)
{
    struct clone_info info;

    clone_describe(c, &info);
    return info.n_tokens;
}

/* A reply is the nearest candidate; forks, rewound and restored conversations go on as the first
 * would; another file's state is refused. */
START_TEST(conversations)
{
    struct clone *c, *fork, *restored;
    struct starspace *s;
    struct agent *a;
    struct buf state;

    take_path();
    ck_assert_int_eq(make_space(&s), STATUS_OK);
    ck_assert_uint_eq(starspace_n_candidates(s), 3);
    ck_assert_int_eq(starspace_save(s, path, &err), STATUS_OK);
    starspace_close(s);
    ck_assert_int_eq(open_agent(&a), STATUS_OK);
    ck_assert_str_eq(a->type->name, "starspace");
    ck_assert_int_eq(clone_open(&c, a, &(struct clone_config){0}, &err), STATUS_OK);
    ck_assert_int_eq(converse(c, "green two", "green two", NULL), STATUS_OK);
    ck_assert_uint_eq(n_tokens(c), 4);
    ck_assert_int_eq(converse(c, "", "green two", NULL), STATUS_OK);
    ck_assert_int_eq(clone_fork(&fork, c, 1, &err), STATUS_OK);
    ck_assert_uint_eq(n_tokens(fork), 4);
    ck_assert_int_eq(clone_fork(&restored, c, 3, &err), STATUS_RANGE);
    ck_assert_int_eq(a->type->rewind(c, 3, &err), STATUS_RANGE);
    ck_assert_int_eq(a->type->rewind(c, 1, &err), STATUS_OK);
    ck_assert_int_eq(converse(c, "red one red one red one", "red one", NULL), STATUS_OK);
    buf_init(&state, SIZE_MAX);
    ck_assert_int_eq(a->type->save(c, &state, &err), STATUS_OK);
    ck_assert_int_eq(clone_open(&restored, a, &(struct clone_config){0}, &err), STATUS_OK);
    ck_assert_int_eq(a->type->restore(restored, state.data, state.len, &err), STATUS_OK);
    ck_assert_uint_eq(n_tokens(restored), n_tokens(c));
    for (size_t len = 0; len < state.len; len++)
        ck_assert_int_eq(a->type->restore(fork, state.data, len, &err), STATUS_DATA_LOSS);
    ck_assert_uint_eq(n_tokens(fork), 4);
    state.data[12]++; /* of the version */
    ck_assert_int_eq(a->type->restore(fork, state.data, state.len, &err), STATUS_DATA_LOSS);
    state.data[12]--;
    state.data[state.len - 1] = 0x7f; /* a word that there is not */
    ck_assert_int_eq(a->type->restore(fork, state.data, state.len, &err), STATUS_DATA_LOSS);
    a->type->reset(c);
    ck_assert_uint_eq(n_tokens(c), 0);
    buf_deinit(&state);
    clone_close(restored);
    clone_close(fork);
    clone_close(c);
    agent_unref(a);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* A turn that an earlier process has computed is gone through again by its trace alone. */
START_TEST(recalled)
{
    const struct message message = {.role = ROLE_USER, .text = "blue three", .len = 10};
    struct clone *c, *again;
    struct agent_turn turn;
    struct starspace *s;
    struct arena arena;
    struct agent *a;
    struct buf trace, one, other;

    take_path();
    buf_init(&trace, SIZE_MAX);
    buf_init(&one, SIZE_MAX);
    buf_init(&other, SIZE_MAX);
    ck_assert_int_eq(make_space(&s), STATUS_OK);
    ck_assert_int_eq(starspace_save(s, path, &err), STATUS_OK);
    starspace_close(s);
    ck_assert_int_eq(open_agent(&a), STATUS_OK);
    ck_assert_int_eq(clone_open(&c, a, &(struct clone_config){0}, &err), STATUS_OK);
    ck_assert_int_eq(clone_open(&again, a, &(struct clone_config){0}, &err), STATUS_OK);
    ck_assert_int_eq(converse(c, "blue three", "blue three", &trace), STATUS_OK);
    arena_init(&arena, SIZE_MAX);
    agent_turn_init(&turn, &arena, 1000);
    turn.seen.messages = &message;
    turn.seen.n_messages = 1;
    turn.seen.turn = 1;
    sampling_init(&turn.seen.sampling);
    ck_assert_int_eq(agent_turn_observe(&turn, again, &err), STATUS_OK);
    ck_assert_int_eq(agent_turn_recall(&turn, "\xff\xff\xff\xff", 4, &err), STATUS_DATA_LOSS);
    ck_assert_int_eq(agent_turn_recall(&turn, trace.data, 3, &err), STATUS_DATA_LOSS);
    ck_assert_int_eq(agent_turn_recall(&turn, trace.data, trace.len, &err), STATUS_OK);
    agent_turn_keep(&turn);
    agent_turn_deinit(&turn);
    arena_deinit(&arena);
    ck_assert_int_eq(a->type->save(c, &one, &err), STATUS_OK);
    ck_assert_int_eq(a->type->save(again, &other, &err), STATUS_OK);
    ck_assert_uint_eq(one.len, other.len);
    ck_assert_mem_eq(one.data, other.data, one.len);
    buf_deinit(&trace);
    buf_deinit(&one);
    buf_deinit(&other);
    clone_close(again);
    clone_close(c);
    agent_unref(a);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* Numbers that make no sense are refused by name. */
START_TEST(misuse)
{
    static const struct starspace_learn_config wrong[] = {
        {.rate = 0, .margin = 0.1F, .n_negatives = 1, .cache_size = 2},
        {.rate = 1, .margin = 2, .n_negatives = 1, .cache_size = 2},
        {.rate = 1, .margin = 0.1F, .n_negatives = 0, .cache_size = 2},
        {.rate = 1, .margin = 0.1F, .n_negatives = 1, .cache_size = 1},
    };
    static const struct starspace_spec specs[] = {
        {.n_dims = 0, .max_norm = 1},
        {.n_dims = STARSPACE_MAX_DIMS + 1, .max_norm = 1},
        {.n_dims = 1, .max_norm = 0},
        {.n_dims = 1, .max_norm = NAN},
    };
    struct starspace_learner *l;
    struct word_table *words;
    struct starspace *s;

    ck_assert_int_eq(make_space(&s), STATUS_OK);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        ck_assert_int_eq(starspace_learner_open(&l, s, &wrong[i], &err), STATUS_INVALID);
    starspace_close(s);
    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        ck_assert_int_eq(word_table_open(&words, &err), STATUS_OK);
        ck_assert_int_eq(starspace_create(&s, &specs[i], words, &err), STATUS_INVALID);
    }
}
END_TEST

/* The labels of a space's own words, in turn. */
static void learn_some(struct starspace_learner *l, size_t first, size_t n)
{
    static const int32_t words[] = {4, 5, 6, 7, 8, 9};
    struct starspace_lesson lesson;

    for (size_t i = first; i < first + n; i++)
        ck_assert_int_eq(
            starspace_learn(l, &words[i % 5], 2, &words[i % 4], 1 + i % 3, &lesson, &err),
            STATUS_OK);
}

/* What another process goes on with is the same to the bit; its vectors alone are not enough, and
 * a file without the learner, or of a larger one, is refused. */
START_TEST(interrupted)
{
    const struct starspace_learn_config config = {
        .rate = 0.1F, .margin = 0.1F, .n_negatives = 2, .cache_size = 5, .seed = 9};
    const struct starspace_learn_config smaller = {
        .rate = 0.1F, .margin = 0.1F, .n_negatives = 2, .cache_size = 2};
    struct starspace *s, *again, *bare;
    struct starspace_learner *l, *restored, *fresh, *small;
    const int32_t word = 4;
    float v[3][8];

    take_path();
    ck_assert_int_eq(make_space(&s), STATUS_OK);
    ck_assert_int_eq(starspace_learner_open(&l, s, &config, &err), STATUS_OK);
    learn_some(l, 0, 40);
    ck_assert_int_eq(starspace_learner_save(l, "here", path, &err), STATUS_OK);
    ck_assert_int_eq(starspace_read(&again, path, &err), STATUS_OK);
    ck_assert_int_eq(starspace_read(&bare, path, &err), STATUS_OK);
    ck_assert_int_eq(starspace_learner_open(&restored, again, &config, &err), STATUS_OK);
    ck_assert_int_eq(starspace_learner_open(&fresh, bare, &config, &err), STATUS_OK);
    ck_assert_int_eq(starspace_learner_open(&small, bare, &smaller, &err), STATUS_OK);
    ck_assert_int_eq(starspace_learner_restore(restored, path, &err), STATUS_OK);
    ck_assert_int_eq(starspace_learner_restore(small, path, &err), STATUS_DATA_LOSS);
    learn_some(l, 40, 40);
    learn_some(restored, 40, 40);
    learn_some(fresh, 40, 40);
    starspace_embed(s, &word, 1, v[0]);
    starspace_embed(again, &word, 1, v[1]);
    starspace_embed(bare, &word, 1, v[2]);
    ck_assert_mem_eq(v[0], v[1], sizeof(v[0]));
    ck_assert_mem_ne(v[0], v[2], sizeof(v[0]));
    starspace_learner_close(small);
    starspace_learner_close(fresh);
    ck_assert_int_eq(starspace_save(s, path, &err), STATUS_OK);
    ck_assert_int_eq(starspace_learner_open(&fresh, bare, &config, &err), STATUS_OK);
    ck_assert_int_eq(starspace_learner_restore(fresh, path, &err), STATUS_DATA_LOSS);
    starspace_learner_close(fresh);
    starspace_learner_close(restored);
    starspace_learner_close(l);
    starspace_close(bare);
    starspace_close(again);
    starspace_close(s);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

enum { N_THREADS = 3, N_STEPS = 400 };

static void *learn_a_while(void *arg)
{
    const struct starspace_learn_config config = {
        .rate = 0.1F, .margin = 0.1F, .n_negatives = 2, .cache_size = 8};
    static const int32_t texts[3][2] = {{4, 5}, {6, 7}, {8, 9}};
    struct starspace_learner *l;
    struct starspace_lesson lesson;
    struct error own;

    if (starspace_learner_open(&l, arg, &config, &own) != STATUS_OK)
        return arg;
    for (size_t i = 0; i < N_STEPS; i++)
        if (starspace_learn(l, texts[i % 3], 2, texts[(i + 1) % 3], 2, &lesson, &own) != STATUS_OK)
            return arg;
    starspace_learner_close(l);
    return NULL;
}

/* Threads that learn the same words at once leave numbers, within the norm; ThreadSanitizer looks
 * on. */
START_TEST(many_threads)
{
    pthread_t threads[N_THREADS];
    struct starspace *s;

    ck_assert_int_eq(make_space(&s), STATUS_OK);
    for (size_t i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, learn_a_while, s), 0);
    for (size_t i = 0; i < N_THREADS; i++) {
        void *failed;

        ck_assert_int_eq(pthread_join(threads[i], &failed), 0);
        ck_assert_ptr_null(failed);
    }
    for (int32_t id = 4; id < 10; id++) {
        float v[8], square = 0;

        starspace_embed(s, &id, 1, v);
        for (size_t i = 0; i < 8; i++) {
            ck_assert(isfinite(v[i]));
            square += v[i] * v[i];
        }
        ck_assert_float_lt(square, 1.5F); /* races may leave a little more than 1 */
    }
    starspace_close(s);
}
END_TEST

/* All of an agent's life. */
static enum status live(void *arg)
{
    const struct starspace_learn_config config = {
        .rate = 0.1F, .margin = 0.1F, .n_negatives = 2, .cache_size = 4};
    const int32_t text[] = {4, 5}, labels[3][1] = {{6}, {7}, {8}};
    struct starspace_learner *l = NULL, *restored = NULL;
    struct starspace_lesson lesson;
    struct clone *c = NULL, *fork = NULL;
    struct starspace *s = NULL;
    struct agent *a = NULL;
    enum status rc = make_space(&s);

    if (rc == STATUS_OK)
        rc = starspace_learner_open(&l, s, &config, &err);
    for (size_t i = 0; i < 6 && rc == STATUS_OK; i++)
        rc = starspace_learn(l, text, 2, labels[i % 3], 1, &lesson, &err);
    if (rc == STATUS_OK)
        rc = starspace_learner_save(l, "here", path, &err);
    if (rc == STATUS_OK)
        rc = starspace_learner_open(&restored, s, &config, &err);
    if (rc == STATUS_OK)
        rc = starspace_learner_restore(restored, path, &err);
    if (rc == STATUS_OK)
        rc = starspace_save(s, path, &err);
    if (rc == STATUS_OK)
        rc = open_agent(&a);
    if (rc == STATUS_OK)
        rc = clone_open(&c, a, &(struct clone_config){0}, &err);
    if (rc == STATUS_OK)
        rc = converse(c, "green two", NULL, NULL);
    if (rc == STATUS_OK)
        rc = clone_fork(&fork, c, 1, &err);
    clone_close(fork);
    clone_close(c);
    agent_unref(a);
    starspace_learner_close(restored);
    starspace_learner_close(l);
    starspace_close(s);
    return rc;
}

/* Without memory, and where the disk is full, nothing leaks and nothing is half done. */
START_TEST(faults)
{
    take_path();
    ck_assert_int_gt(sweep(live, NULL), 20);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

SUITE_MAIN("agents/starspace", conversations, recalled, misuse, interrupted, many_threads, faults)
