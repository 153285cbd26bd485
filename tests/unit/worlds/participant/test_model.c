#include "worlds/participant/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "tests/support/fake_task.h"
#include "tests/support/tiny_participant.h"
#include "tests/unit/base/suite.h"
#include "worlds/metrics/metrics.h"
#include "worlds/world/world.h"

enum { N_EPISODES = 5, N_TURNS = 2, N = N_EPISODES * N_TURNS };

static struct fake_example *examples;
static struct tiny_file file;

static void set_up(void)
{
    tiny_file_open(&file);
    examples = fake_examples(N_EPISODES, N_TURNS);
}

static void tear_down(void)
{
    free(examples);
    tiny_file_close(&file);
}

/* What was answered to each example, with its metrics. */
struct book {
    const struct fake_task *task;
    struct buf answers[N];
    bool has_metrics; /* not when the clone has been asked again before its row is looked at */
    size_t n_padding;
};

static void write_metrics(struct buf *out, const struct value *metrics)
{
    ck_assert_ptr_nonnull(metrics);
    for (size_t k = 0; k < metrics->metrics->n; k++) {
        const struct named_metric *m = &metrics->metrics->items[k];

        ck_assert_int_eq(
            buf_printf(out, "%.*s=%a ", (int)m->name.len, m->name.text, metric_value(&m->metric)),
            STATUS_OK);
    }
}

static void write_down(void *arg, const struct world *w, uint32_t thread)
{
    struct book *b = arg;

    for (size_t i = 0; i < world_n_rows(w); i++) {
        struct world_row row;
        struct text text;
        size_t example;

        world_row(w, i, &row);
        example = fake_task_example(b->task, &row.acts[0]);
        if (example >= N) {
            ck_assert(!act_has(&row.acts[1], ACT_TEXT));
            b->n_padding++;
            continue;
        }
        text = act_text(&row.acts[1]);
        ck_assert_uint_eq(b->answers[example].len, 0);
        ck_assert_int_eq(buf_printf(&b->answers[example], "%.*s|", (int)text.len, text.text), 0);
        if (b->has_metrics)
            write_metrics(&b->answers[example], act_get(&row.acts[1], ACT_METRICS));
    }
}

static void fill(struct book *b, const struct model_participant_config *model,
                 struct world_config config)
{
    struct fake_task *task = fake_task_open("t", examples, N);
    struct participant *tasks[] = {&task->base}, *agent;
    struct world *w;
    struct error err;

    memset(b, 0, sizeof(*b));
    b->task = task;
    b->has_metrics = config.dynamic == DYNAMIC_NONE;
    for (size_t i = 0; i < N; i++)
        buf_init(&b->answers[i], 1 << 16);
    ck_assert_msg(model_open(&agent, model, &err) == STATUS_OK, "%s", err.text);
    config.tasks = tasks;
    config.n_tasks = 1;
    config.agents = &agent;
    config.n_agents = 1;
    config.watch = write_down;
    config.watch_arg = b;
    ck_assert_msg(world_open(&w, &config, &err) == STATUS_OK, "%s", err.text);
    ck_assert_msg(world_run(w, &err) == STATUS_OK, "%s", err.text);
    ck_assert(fake_task_is_even(task, 1));
    world_close(w);
    participant_unref(agent);
    participant_unref(&task->base);
}

static void forget(struct book *b)
{
    for (size_t i = 0; i < N; i++)
        buf_deinit(&b->answers[i]);
}

/* Metrics come last, and may be missing. */
static bool is_same(const struct book *a, const struct book *b)
{
    for (size_t i = 0; i < N; i++) {
        const struct buf *x = &a->answers[i], *y = &b->answers[i];

        if (x->len != y->len && a->has_metrics && b->has_metrics)
            return false;
        if (memcmp(x->data, y->data, x->len < y->len ? x->len : y->len) != 0)
            return false;
    }
    return true;
}

/* Every answer and every score is the same to the last bit, whatever the world, also where there
 * are too few pages for all that are asked at once. */
START_TEST(worlds_do_not_matter)
{
    static const struct world_config kinds[] = {
        {.batch_size = 1},
        {.batch_size = 4},
        {.batch_size = 16},
        {.batch_size = 5, .dynamic = DYNAMIC_FULL, .text_truncate = 400},
        {.batch_size = 3, .dynamic = DYNAMIC_BATCHSORT, .text_truncate = 400, .n_slots = 6},
    };
    struct book want, got;

    for (int form = 0; form < 2; form++) {
        struct model_participant_config model = tiny_participant(&file);

        model.is_plain = form == 1;
        fill(&want, &model, kinds[0]);
        ck_assert_uint_gt(want.answers[0].len, 20);
        for (size_t i = 1; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
            model.agent.options.kv_bytes = i == 2 ? 2 << 20 : 4 << 20;
            fill(&got, &model, kinds[i]);
            ck_assert(is_same(&got, &want));
            forget(&got);
        }
        forget(&want);
    }
}
END_TEST

/* The table of ParlAI's tutorial, in words; each is a conversation of one turn. */
enum { N_TABLE = 12 };
static const uint32_t table[N_TABLE] = {6, 12, 2, 38, 10, 5, 17, 12, 2, 13, 8, 6};

struct batches {
    const struct fake_task *task;
    const struct agent *agent;
    uint32_t words[N_TABLE], labels[N_TABLE]; /* in tokens, as the model counts them */
    size_t n, n_rows[N_TABLE], rows[N_TABLE][N_TABLE];
};

static uint32_t tokens_of(const struct agent *a, struct text text)
{
    struct buf ids;
    struct error err;
    uint32_t n;

    buf_init(&ids, SIZE_MAX);
    ck_assert_int_eq(a->type->text->tokenize(a, text.text, text.len, false, &ids, &err), STATUS_OK);
    n = (uint32_t)(ids.len / sizeof(int32_t));
    buf_deinit(&ids);
    return n;
}

static void write_batch(void *arg, const struct world *w, uint32_t thread)
{
    struct batches *b = arg;

    b->n_rows[b->n] = world_n_rows(w);
    for (size_t i = 0; i < world_n_rows(w); i++) {
        struct world_row row;
        size_t example;

        world_row(w, i, &row);
        example = fake_task_example(b->task, &row.acts[0]);
        b->rows[b->n][i] = example;
        b->words[example] = tokens_of(b->agent, act_text(&row.acts[0]));
        b->labels[example] = tokens_of(b->agent, act_labels(&row.acts[0])->list.items[0]);
    }
    b->n++;
}

/* The tutorial's rule: the longest first, then the next shorter ones, as long as the sum of their
 * words is within the budget and there are not too many. */
static void check_rule(const struct batches *b, size_t most_rows, size_t budget)
{
    bool is_done[N_TABLE] = {false};
    size_t n_done = 0, at = 0;

    while (n_done < N_TABLE) {
        size_t n = 0, sum = 0;

        ck_assert_uint_lt(at, b->n);
        for (;;) {
            size_t next = N_TABLE;

            for (size_t i = 0; i < N_TABLE; i++)
                if (!is_done[i] &&
                    (next == N_TABLE || b->words[i] > b->words[next] ||
                     (b->words[i] == b->words[next] && b->labels[i] > b->labels[next])))
                    next = i;
            if (next == N_TABLE || n == most_rows ||
                sum + b->words[next] + b->labels[next] > budget)
                break;
            sum += b->words[next] + b->labels[next];
            is_done[next] = true;
            ck_assert_uint_lt(n, b->n_rows[at]);
            ck_assert_uint_eq(b->words[b->rows[at][n]],
                              b->words[next]); /* equal ones in any order */
            ck_assert_uint_eq(b->labels[b->rows[at][n]], b->labels[next]);
            n++;
        }
        ck_assert_uint_eq(n, b->n_rows[at++]);
        n_done += n;
    }
    ck_assert_uint_eq(at, b->n);
}

/* Batches by length are those that were asked for: all their rows begin and end together. */
START_TEST(batches_follow_the_rule)
{
    static const struct {
        enum dynamic_batching dynamic;
        size_t batch_size, text_truncate, most_rows;
    } cases[] = {{DYNAMIC_FULL, 2, 300, N_TABLE},
                 {DYNAMIC_FULL, 1 + N_TABLE, 300, N_TABLE},
                 {DYNAMIC_BATCHSORT, 3, 300, 3},
                 {DYNAMIC_BATCHSORT, 5, 300, 5}};
    struct fake_example rows[N_TABLE];

    for (size_t i = 0; i < N_TABLE; i++)
        rows[i] = (struct fake_example){.episode = i, .text_words = table[i], .label_words = 1};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fake_task *task = fake_task_open("t", rows, N_TABLE);
        struct participant *tasks[] = {&task->base}, *agent;
        struct model_participant_config model = tiny_participant(&file);
        struct batches got = {.task = task};
        const struct world_config config = {.tasks = tasks,
                                            .n_tasks = 1,
                                            .agents = &agent,
                                            .n_agents = 1,
                                            .batch_size = cases[i].batch_size,
                                            .dynamic = cases[i].dynamic,
                                            .text_truncate = cases[i].text_truncate,
                                            .label_truncate = 1,
                                            .watch = write_batch,
                                            .watch_arg = &got};
        struct world_counters counters;
        struct world *w;
        struct error err;

        model.is_plain = true;
        ck_assert_msg(model_open(&agent, &model, &err) == STATUS_OK, "%s", err.text);
        got.agent = model_agent(agent);
        ck_assert_msg(world_open(&w, &config, &err) == STATUS_OK, "%s", err.text);
        ck_assert_msg(world_run(w, &err) == STATUS_OK, "%s", err.text);
        check_rule(&got, cases[i].most_rows, (cases[i].text_truncate + 1) * cases[i].batch_size);
        world_counters(w, &counters);
        ck_assert_uint_eq(counters.n_batches, got.n);
        ck_assert_uint_eq(counters.n_rows, N_TABLE);
        ck_assert_uint_eq(counters.n_words, counters.n_cells); /* rows are packed */
        ck_assert_uint_gt(counters.n_padded, counters.n_cells);
        world_close(w);
        participant_unref(agent);
        participant_unref(&task->base);
    }
}
END_TEST

/* What is remembered is what the options say. */
START_TEST(histories_matter)
{
    static const struct world_config config = {.batch_size = 4};
    struct model_participant_config model = tiny_participant(&file);
    struct book all, one, own;

    fill(&all, &model, config);
    model.listener.history.size = 1;
    fill(&one, &model, config);
    ck_assert(!is_same(&all, &one));
    model.listener.history.size = 0;
    model.listener.use_reply = USE_REPLY_MODEL;
    fill(&own, &model, config);
    ck_assert(!is_same(&all, &own));
    ck_assert_str_eq(all.answers[0].data, own.answers[0].data); /* nothing was said before */
    forget(&all);
    forget(&one);
    forget(&own);
}
END_TEST

static size_t n_that_say(const struct book *b, const char *what)
{
    size_t n = 0;

    for (size_t i = 0; i < N; i++)
        n += strstr(b->answers[i].data, what) != NULL;
    return n;
}

/* A long history loses its oldest words, and fits whatever it was. */
START_TEST(long_histories_are_cut)
{
    static const struct world_config config = {.batch_size = 4};
    struct model_participant_config model = tiny_participant(&file);
    struct book bounded, small;

    model.listener.text_truncate = 3;
    model.listener.label_truncate = 2;
    fill(&bounded, &model, config);
    ck_assert_uint_gt(n_that_say(&bounded, " ctrunc=0x1p+0 "), N / 2);
    ck_assert_uint_gt(n_that_say(&bounded, " ltrunc=0x1p+0 "), 0);
    model = tiny_participant(&file);
    model.agent.max_context = 224; /* the template's own tokens, and not much more */
    fill(&small, &model, config);
    forget(&bounded);
    forget(&small);
}
END_TEST

struct two {
    struct participant_clone *clone;
    struct participant *original;
    struct arena arena;
};

static void open_two(struct two *t, const struct model_participant_config *config)
{
    static const struct participant_slot place = {0};
    struct error err;

    ck_assert_int_eq(model_open(&t->original, config, &err), STATUS_OK);
    t->clone = calloc(1, participant_clone_size(t->original));
    ck_assert_int_eq(participant_clone_init(t->clone, t->original, &place, &err), STATUS_OK);
    arena_init(&t->arena, 1 << 20);
}

static void close_two(struct two *t)
{
    participant_clone_deinit(t->clone);
    free(t->clone);
    participant_unref(t->original);
    arena_deinit(&t->arena);
}

/* A clone is asked in the order of TorchAgent's calls, and says what is out of order. */
START_TEST(order_is_kept)
{
    struct model_participant_config config = tiny_participant(&file);
    const struct participant_type *type;
    struct two t;
    struct act heard, reply;
    const struct act *seen;
    struct agent_turn *turn;
    struct error err;

    open_two(&t, &config);
    type = t.original->type;
    ck_assert_int_eq(type->begin(t.clone, NULL, &turn, &err), STATUS_PRECONDITION);
    act_init(&heard, &t.arena);
    act_init(&reply, &t.arena);
    ck_assert_int_eq(act_set(&heard, ACT_TEXT, value_text((struct text){"a", 1}), &err), 0);
    ck_assert_int_eq(act_set(&heard, ACT_EPISODE_DONE, value_bool(true), &err), 0);
    ck_assert_int_eq(participant_observe(t.clone, &heard, &seen, &err), STATUS_OK);
    ck_assert_int_eq(participant_observe(t.clone, &heard, &seen, &err), STATUS_PRECONDITION);
    ck_assert_int_eq(participant_self_observe(t.clone, &reply, &err), STATUS_OK);
    ck_assert_int_eq(participant_self_observe(t.clone, &reply, &err), STATUS_PRECONDITION);
    ck_assert_int_eq(participant_observe(t.clone, &heard, &seen, &err), STATUS_OK);
    ck_assert_int_eq(type->begin(t.clone, seen, &turn, &err), STATUS_OK);
    ck_assert_ptr_nonnull(turn);
    type->drop(t.clone);
    participant_clone_reset(t.clone);
    ck_assert_int_eq(participant_observe(t.clone, &heard, &seen, &err), STATUS_OK);
    ck_assert_uint_le(participant_clone_size(t.original), 256);
    close_two(&t);
}
END_TEST

/* An agent that has no tokens is no model. */
START_TEST(others_are_refused)
{
    struct model_participant_config config = tiny_participant(&file);
    struct participant *p;
    struct error err;

    config.agent.path = NULL; /* echo's */
    ck_assert_int_eq(model_open(&p, &config, &err), STATUS_INVALID);
    config.agent.path = "/dev/null";
    ck_assert_int_ne(model_open(&p, &config, &err), STATUS_OK);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {worlds_do_not_matter, batches_follow_the_rule,
                                  histories_matter,     long_histories_are_cut,
                                  order_is_kept,        others_are_refused};
    int code;

    set_up();
    code = suite_run("worlds_model", tests, sizeof(tests) / sizeof(tests[0]));
    tear_down();
    return code;
}
