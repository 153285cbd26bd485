/* The batches that ParlAI's worlds formed, and ours: row for row where its chance was stubbed, the
 * counts where Python's generator drew. Where its worlds lost examples or starved them, ours must
 * not. */
#include <jansson.h>

#include "base/alloc.h"
#include "base/list.h"
#include "tests/golden/parlai/golden.h"
#include "tests/support/fake_task.h"
#include "tests/unit/base/suite.h"
#include "worlds/message/act.h"
#include "worlds/world/world.h"

enum { MAX_TASKS = 2, MAX_PARLEYS = 400, MAX_ROWS = 1021 };

/* --- an agent whose rows are as long as the data say ---------------------------------------------
 */

struct measured {
    struct participant base;
    struct fake_task *const *tasks; /* [n_tasks] */
    size_t n_tasks, text_truncate;
};

/* Which example of which task an act is. */
static void find(const struct measured *m, const struct act *act, size_t *task, size_t *example)
{
    struct text id = act_get(act, ACT_ID)->text;

    for (*task = 0; *task < m->n_tasks; (*task)++) {
        struct text name = act_get(&m->tasks[*task]->acts[0], ACT_ID)->text;

        if (name.len == id.len && memcmp(name.text, id.text, id.len) == 0)
            break;
    }
    ck_assert_uint_lt(*task, m->n_tasks);
    *example = fake_task_example(m->tasks[*task], act);
    ck_assert_uint_lt(*example, m->tasks[*task]->n_examples);
}

static void measured_lengths(const struct participant_clone *c, const struct act *seen,
                             struct lengths *out)
{
    const struct measured *m = container_of(c->original, struct measured, base);
    size_t task, example;
    const struct fake_example *e;

    find(m, seen, &task, &example);
    e = &m->tasks[task]->examples[example];
    out->text = e->text_words < m->text_truncate ? e->text_words : (uint32_t)m->text_truncate;
    out->label = e->label_words;
}

static void measured_batch_act(struct participant *p, struct participant_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rows[i].failed =
            act_set(rows[i].out, ACT_EPISODE_DONE, value_bool(false), &rows[i].err) != STATUS_OK;
}

static const struct participant_type measured_type = {
    .name = "measured", .batch_act = measured_batch_act, .lengths = measured_lengths};

/* --- what a run did ------------------------------------------------------------------------------
 */

struct run {
    struct measured agent;
    struct fake_task *tasks[MAX_TASKS];
    size_t n_parleys;
    size_t n_rows[MAX_PARLEYS];
    long rows[MAX_PARLEYS][MAX_ROWS]; /* example, over all tasks; -1: padding */
    size_t padded_cells, real_cells;
};

static void watch(void *arg, const struct world *w, uint32_t thread)
{
    struct run *r = arg;
    size_t longest_text = 0, longest_label = 0;

    ck_assert_uint_lt(r->n_parleys, MAX_PARLEYS);
    r->n_rows[r->n_parleys] = world_n_rows(w);
    for (size_t i = 0; i < world_n_rows(w); i++) {
        struct world_row row;
        const struct fake_example *e;
        size_t task, example;

        world_row(w, i, &row);
        r->rows[r->n_parleys][i] = -1;
        if (act_is_padding(&row.acts[0]))
            continue;
        find(&r->agent, &row.acts[0], &task, &example);
        ck_assert_uint_eq(task, row.task);
        e = &r->tasks[task]->examples[example];
        r->rows[r->n_parleys][i] = (long)example;
        r->real_cells += e->text_words + e->label_words;
        longest_text = e->text_words > longest_text ? e->text_words : longest_text;
        longest_label = e->label_words > longest_label ? e->label_words : longest_label;
    }
    r->padded_cells += world_n_rows(w) * (longest_text + longest_label);
    r->n_parleys++;
}

/* --- the golden file -----------------------------------------------------------------------------
 */

static json_t *data[8];
static size_t n_data, n_exact;

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    return text != NULL ? text : "";
}

static size_t number_of(const json_t *o, const char *key)
{
    return (size_t)json_integer_value(json_object_get(o, key));
}

/* The examples of a task; lens_big is not in the file: 2000 of one turn. */
static struct fake_example *examples_of(const char *task, size_t *n)
{
    struct fake_example *examples;
    json_t *row;
    size_t i;

    for (size_t d = 0; d < n_data; d++) {
        json_t *all = json_object_get(data[d], "examples");

        if (strcmp(text_of(data[d], "task"), task) != 0)
            continue;
        *n = json_array_size(all);
        examples = xalloc(*n * sizeof(examples[0]));
        json_array_foreach(all, i, row) examples[i] = (struct fake_example){
            .episode = (size_t)json_integer_value(json_array_get(row, 0)),
            .turn = (size_t)json_integer_value(json_array_get(row, 1)),
            .text_words = (uint32_t)json_integer_value(json_array_get(row, 2)),
            .label_words = (uint32_t)json_integer_value(json_array_get(row, 3))};
        return examples;
    }
    *n = 2000;
    return fake_examples(*n, 1);
}

static uint64_t stub_bits;

static void stub_random(void *self, void *out, size_t n_bytes)
{
    memcpy(out, &stub_bits, n_bytes);
}

static const struct env stubbed = {.random = stub_random};

static bool is_stubbed(const char *rng)
{
    stub_bits = strcmp(rng, "low") == 0    ? 0
                : strcmp(rng, "mid") == 0  ? UINT64_MAX / 2
                : strcmp(rng, "high") == 0 ? UINT64_MAX
                                           : 1;
    return stub_bits != 1;
}

static enum dynamic_batching mode_of(const json_t *line)
{
    const char *mode = text_of(line, "mode");

    return strcmp(mode, "none") == 0   ? DYNAMIC_NONE
           : strcmp(mode, "full") == 0 ? DYNAMIC_FULL
                                       : DYNAMIC_BATCHSORT;
}

static void check_batches(const json_t *line, const struct run *r)
{
    json_t *batches = json_object_get(line, "batches"), *batch, *row;
    size_t i, k;

    ck_assert_uint_eq(r->n_parleys, json_array_size(batches));
    json_array_foreach(batches, i, batch)
    {
        ck_assert_uint_eq(r->n_rows[i], json_array_size(batch));
        json_array_foreach(batch, k, row)
            ck_assert_int_eq(r->rows[i][k], json_is_null(row) ? -1 : json_integer_value(row));
    }
    ck_assert_uint_eq(r->padded_cells, number_of(line, "padded_cells"));
}

static struct run *run_line(const json_t *line, struct fake_example **examples)
{
    json_t *tasks = json_object_get(line, "task");
    struct run *r = xalloc(sizeof(*r));
    struct participant *members[MAX_TASKS], *agent = &r->agent.base;
    struct text names[MAX_TASKS];
    struct world_config config = {.task_names = names,
                                  .tasks = members,
                                  .n_tasks = json_array_size(tasks),
                                  .agents = &agent,
                                  .n_agents = 1,
                                  .batch_size = number_of(line, "batchsize"),
                                  .dynamic = mode_of(line),
                                  .text_truncate = number_of(line, "text_truncate"),
                                  .label_truncate = number_of(line, "label_truncate"),
                                  .start_by_chance = true,
                                  .watch = watch,
                                  .watch_arg = r};
    struct world_counters counters;
    struct world *w;
    struct error err;

    for (size_t i = 0; i < config.n_tasks; i++) {
        const char *task = json_string_value(json_array_get(tasks, i));
        size_t n;

        examples[i] = examples_of(task, &n);
        r->tasks[i] = fake_task_open(task, examples[i], n);
        members[i] = &r->tasks[i]->base;
        names[i] = (struct text){task, strlen(task)};
    }
    participant_init(agent, &measured_type);
    r->agent.tasks = r->tasks;
    r->agent.n_tasks = config.n_tasks;
    r->agent.text_truncate = config.text_truncate;
    if (is_stubbed(text_of(line, "rng"))) {
        config.chance = &stubbed;
        config.max_age = UINT32_MAX; /* ParlAI lets nobody go first */
    }
    ck_assert_msg(world_open(&w, &config, &err) == STATUS_OK, "%s", err.text);
    ck_assert_msg(world_run(w, &err) == STATUS_OK, "%s", err.text);
    world_counters(w, &counters);
    ck_assert_uint_eq(counters.n_examples, world_n_examples(w));
    ck_assert_uint_eq(counters.n_examples, number_of(line, "num_examples"));
    world_close(w);
    return r;
}

static void check_run(const json_t *line)
{
    bool is_one = json_array_size(json_object_get(line, "task")) == 1;
    bool is_valid = strcmp(text_of(line, "datatype"), "valid") == 0;
    struct fake_example *examples[MAX_TASKS] = {NULL};
    struct run *r = run_line(line, examples);
    size_t sum = 0;

    /* Each example once, also where ParlAI ran out of data after the first task, or showed some
     * thirty times and most never. */
    for (size_t t = 0; t < r->agent.n_tasks; t++) {
        ck_assert(fake_task_is_even(r->tasks[t], 1));
        for (size_t i = 0; i < r->tasks[t]->n_examples; i++)
            sum += examples[t][i].text_words + examples[t][i].label_words;
    }
    ck_assert_uint_eq(r->real_cells, sum);
    if (json_object_get(line, "batches") != NULL &&
        (mode_of(line) == DYNAMIC_NONE || is_stubbed(text_of(line, "rng")))) {
        check_batches(line, r);
        n_exact += mode_of(line) != DYNAMIC_NONE;
    } else if (is_one && is_valid && mode_of(line) == DYNAMIC_NONE)
        ck_assert_uint_eq(r->n_parleys, number_of(line, "parleys"));
    for (size_t t = 0; t < r->agent.n_tasks; t++) {
        participant_unref(&r->tasks[t]->base);
        free(examples[t]);
    }
    free(r);
}

static void keep_data(const json_t *line)
{
    ck_assert_uint_lt(n_data, sizeof(data) / sizeof(data[0]));
    data[n_data++] = json_incref((json_t *)(uintptr_t)line);
}

START_TEST(test_runs)
{
    (void)golden_lines("dynbatch.jsonl", "data", keep_data);
    ck_assert_uint_eq(golden_lines("dynbatch.jsonl", "run", check_run), 30);
    ck_assert_uint_eq(n_exact, 15);
    while (n_data > 0)
        json_decref(data[--n_data]);
}
END_TEST

SUITE_MAIN("parlai/dynbatch", test_runs)
