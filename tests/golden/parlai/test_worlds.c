/* Whole epochs through worlds: what ParlAI 1.7.2 said in each parley and reported at the end,
 * against ours. Where Python's generator drew a reply, its row is not compared. Where we differ on
 * purpose:
 * - Data to be trained on end after each epoch, whatever the batch; ParlAI's clones began anew one
 *   by one and need not have ended at all, or showed a few episodes twice.
 * - Of several tasks, one is through for a clone when no episode of it is left. ParlAI's clone held
 *   it to be so too when it had one of the last batch_size episodes, and then idled beside episodes
 *   that others had yet to take: in the runs of 4 and 7 clones the rows differ, the report does
 * not.
 * - unigram can be cloned, so it runs in batches.
 * - The same task twice is refused: its two reports could not be told apart, and ParlAI's became
 *   the last one's. */
#include <unistd.h>

#include "tests/golden/parlai/golden.h"
#include "tests/unit/base/suite.h"
#include "worlds/baselines/dictionary.h"
#include "worlds/baselines/simple.h"
#include "worlds/metrics/metrics.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/teacher.h"
#include "worlds/world/world.h"

enum { MAX_TASKS = 2, MAX_EXAMPLES = 64 };

static struct error err;

/* --- which example an act is of ------------------------------------------------------------------
 */

struct known {
    char *texts[MAX_EXAMPLES];
    size_t episode[MAX_EXAMPLES], turn[MAX_EXAMPLES], n;
};

static struct known known[MAX_TASKS]; /* by task: dialogues, second */
static const char *const task_names[MAX_TASKS] = {"dialogues", "second"};

static void task_path(char out[1024], size_t task)
{
    (void)snprintf(out, 1024, "parlai:%s/%s.txt", GOLDEN_DIR, task_names[task]);
}

static struct participant *open_task(size_t task, const struct teacher_config *config)
{
    struct teacher *t;
    char path[1024];

    task_path(path, task);
    ck_assert_msg(teacher_open(&t, path, config, &err) == STATUS_OK, "%s", err.text);
    return teacher_participant(t);
}

/* The teacher's acts in their order, by a clone alone. */
static void learn_examples(size_t task)
{
    struct teacher_config config;
    struct participant *p;
    struct participant_clone *clone;
    struct arena arena;
    size_t episode = 0, turn = 0;
    struct known *k = &known[task];

    teacher_config_init(&config);
    p = open_task(task, &config);
    clone = calloc(1, participant_clone_size(p));
    ck_assert_ptr_nonnull(clone);
    ck_assert_int_eq(participant_clone_init(clone, p, &(struct participant_slot){0, 0}, &err),
                     STATUS_OK);
    arena_init(&arena, SIZE_MAX);
    for (;;) {
        struct act said;

        act_init(&said, &arena);
        ck_assert_int_eq(p->type->act(clone, &said, &err), STATUS_OK);
        if (act_is_padding(&said))
            break;
        k->texts[k->n] =
            strndup(act_text(&said).len > 0 ? act_text(&said).text : "", act_text(&said).len);
        k->episode[k->n] = episode;
        k->turn[k->n++] = turn++;
        if (act_is(&said, ACT_EPISODE_DONE)) {
            episode++;
            turn = 0;
        }
    }
    for (size_t i = 0; i < k->n; i++) /* or a text would not tell */
        for (size_t j = 0; j < i; j++)
            ck_assert_str_ne(k->texts[i], k->texts[j]);
    arena_deinit(&arena);
    participant_clone_deinit(clone);
    free(clone);
    participant_unref(p);
}

/* --- what was said -------------------------------------------------------------------------------
 */

struct run {
    const json_t *line;
    bool compares_text; /* replies are not drawn */
    size_t n_parleys;
    size_t n_pads; /* padding rows of the parley that were matched in the present group */
};

static bool is_text(const json_t *expected, const struct act *reply)
{
    struct text said = act_text(reply);

    if (json_is_null(expected))
        return !act_has(reply, ACT_TEXT);
    return json_string_length(expected) == said.len &&
           (said.len == 0 || memcmp(json_string_value(expected), said.text, said.len) == 0);
}

static void check_candidates(const json_t *expected, const struct act *reply)
{
    const struct value *list = act_list(reply, ACT_TEXT_CANDIDATES);

    ck_assert_ptr_nonnull(list);
    ck_assert_uint_eq(list->list.n, json_array_size(expected));
    for (size_t i = 0; i < list->list.n; i++) {
        const json_t *item = json_array_get(expected, i);

        ck_assert_uint_eq(list->list.items[i].len, json_string_length(item));
        ck_assert_mem_eq(list->list.items[i].text, json_string_value(item),
                         list->list.items[i].len);
    }
}

/* [episode, turn], with several tasks in front the task's name. */
static void check_ref(const json_t *ref, const struct world_row *row)
{
    size_t at = json_array_size(ref) - 2;
    const struct known *k = &known[row->task];
    struct text text = act_text(&row->acts[0]);
    size_t i = 0;

    if (at > 0)
        ck_assert_str_eq(json_string_value(json_array_get(ref, 0)), task_names[row->task]);
    while (i < k->n && (strlen(k->texts[i]) != text.len ||
                        (text.len > 0 && memcmp(k->texts[i], text.text, text.len) != 0)))
        i++;
    ck_assert_uint_lt(i, k->n);
    ck_assert_int_eq(json_integer_value(json_array_get(ref, at)), k->episode[i]);
    ck_assert_int_eq(json_integer_value(json_array_get(ref, at + 1)), k->turn[i]);
}

static void check_row(struct run *r, const json_t *expected, const struct world_row *row)
{
    bool is_padding = json_is_string(json_array_get(expected, 0));

    ck_assert(act_is_padding(&row->acts[0]) == is_padding);
    if (r->compares_text || is_padding)
        ck_assert_msg(is_text(json_array_get(expected, 1), &row->acts[1]), "parley %zu: '%.*s'",
                      r->n_parleys, (int)act_text(&row->acts[1]).len, act_text(&row->acts[1]).text);
    if (is_padding)
        return;
    check_ref(json_array_get(expected, 0), row);
    if (r->compares_text && json_array_size(expected) > 2)
        check_candidates(json_array_get(expected, 2), &row->acts[1]);
}

/* n padding rows next to each other stand in the file as one. */
static void watch(void *arg, const struct world *w, uint32_t thread)
{
    struct run *r = arg;
    const json_t *parley = json_array_get(json_object_get(r->line, "parleys"), r->n_parleys);
    size_t at = 0;

    ck_assert_msg(parley != NULL, "%zu parleys of %s %s", r->n_parleys,
                  json_string_value(json_object_get(r->line, "agent")),
                  json_string_value(json_object_get(r->line, "datatype")));
    for (size_t i = 0; i < world_n_rows(w); i++) {
        const json_t *expected = json_array_get(parley, at);
        struct world_row row;

        world_row(w, i, &row);
        check_row(r, expected, &row);
        if (!json_is_string(json_array_get(expected, 0)) ||
            ++r->n_pads == (size_t)json_integer_value(json_array_get(expected, 2))) {
            at++;
            r->n_pads = 0;
        }
    }
    ck_assert_uint_eq(at, json_array_size(parley));
    r->n_parleys++;
}

/* --- one line ------------------------------------------------------------------------------------
 */

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    return text != NULL ? text : "";
}

static void configure_teacher(struct teacher_config *c, const json_t *line)
{
    const json_t *options = json_object_get(line, "options");

    teacher_config_init(c);
    ck_assert_int_eq(datatype_parse(&c->datatype, text_of(line, "datatype"), &err), STATUS_OK);
    c->batch_size = (size_t)json_integer_value(json_object_get(line, "batchsize"));
    c->hide_labels = json_is_true(json_object_get(options, "hide_labels"));
    if (json_object_get(options, "metrics") != NULL)
        ck_assert_int_eq(metrics_families(&c->metrics, text_of(options, "metrics"), &err),
                         STATUS_OK);
}

static struct participant *open_agent(const json_t *line, struct dictionary **dictionary)
{
    const json_t *options = json_object_get(line, "options");
    struct simple_config c;
    struct participant *agent;

    simple_config_init(&c);
    if (simple_needs_dictionary(text_of(line, "agent")))
        ck_assert_msg(dictionary_read(dictionary, GOLDEN_DIR "/dialogues.dict", &err) == STATUS_OK,
                      "%s", err.text);
    c.dictionary = *dictionary;
    c.return_all = json_is_false(json_object_get(options, "return_one_random_answer"));
    c.cant_answer_percent = json_number_value(json_object_get(options, "cant_answer_percent"));
    c.n_words = (size_t)json_integer_value(json_object_get(options, "num_words"));
    c.history_size = (size_t)json_integer_value(json_object_get(options, "history_size"));
    if (json_object_get(options, "length_penalty") != NULL)
        c.length_penalty = json_number_value(json_object_get(options, "length_penalty"));
    c.learns = strncmp(text_of(line, "datatype"), "train", 5) == 0;
    ck_assert_msg(simple_open(&agent, text_of(line, "agent"), &c, &err) == STATUS_OK, "%s",
                  err.text);
    return agent;
}

static void check_report(const json_t *line, struct world *w, bool is_drawn)
{
    json_t *expected = json_object_get(line, "report"), *value;
    struct report report = {0};
    const char *name;

    ck_assert_int_eq(world_report(&report, w, &err), STATUS_OK);
    json_object_foreach(expected, name, value)
    {
        const struct metric *m = report_get(&report, name);
        bool is_portable = !is_drawn || strcmp(name, "exs") == 0 || strcmp(name, "hits@10") == 0 ||
                           strcmp(name, "hits@100") == 0;

        ck_assert_msg(m != NULL, "%s", name);
        if (is_portable)
            ck_assert_msg(golden_near(metric_value(m), value), "%s: %.17g", name, metric_value(m));
    }
    if (json_object_get(json_object_get(line, "options"), "metrics") == NULL)
        ck_assert_uint_eq(report.list.n, json_object_size(expected));
    report_deinit(&report);
}

/* Of data to be trained on: 28 examples and 12 episodes, whatever ParlAI did after. */
static void check_one_epoch(struct world *w)
{
    struct world_counters counters;
    struct report report = {0};

    world_counters(w, &counters);
    ck_assert_uint_eq(counters.n_examples, 28);
    ck_assert_int_eq(world_report(&report, w, &err), STATUS_OK);
    ck_assert(metric_value(report_get(&report, "exs")) == 28);
    report_deinit(&report);
}

static void check_run(const json_t *line)
{
    const json_t *tasks = json_object_get(line, "task");
    size_t n_tasks = json_array_size(tasks);
    const char *agent_name = text_of(line, "agent");
    bool is_drawn = strcmp(agent_name, "random_candidate") == 0 ||
                    (strcmp(agent_name, "repeat_label") == 0 &&
                     json_object_size(json_object_get(line, "options")) == 0);
    struct run run = {.line = line, .compares_text = !is_drawn};
    struct dictionary *dictionary = NULL;
    struct participant *members[MAX_TASKS], *agent = open_agent(line, &dictionary);
    struct text names[MAX_TASKS];
    struct teacher_config teacher;
    struct world_config config = {
        .tasks = members,
        .n_tasks = n_tasks,
        .task_names = names,
        .agents = &agent,
        .n_agents = 1,
        .batch_size = (size_t)json_integer_value(json_object_get(line, "batchsize")),
        .aggregate_micro =
            json_is_true(json_object_get(json_object_get(line, "options"), "aggregate_micro")),
    };
    bool loops, is_other, idles = n_tasks > 1 && config.batch_size > 3;
    struct world *w;

    configure_teacher(&teacher, line);
    loops = datatype_loops(&teacher.datatype);
    /* ParlAI went on: more rows than the data have. */
    is_other = json_object_get(line, "error") != NULL || teacher.datatype.stream ||
               (loops && config.batch_size > 1);
    teacher.datatype.ordered |= teacher.datatype.stream; /* the same order, from the file itself */
    teacher.datatype.stream = false;
    if (!is_other && !idles) {
        config.watch = watch;
        config.watch_arg = &run;
    }
    for (size_t i = 0; i < n_tasks; i++) {
        members[i] = open_task(i, &teacher);
        names[i] = (struct text){task_names[i], strlen(task_names[i])};
    }
    ck_assert_msg(world_open(&w, &config, &err) == STATUS_OK, "%s", err.text);
    ck_assert_msg(world_run(w, &err) == STATUS_OK, "%s", err.text);
    if (is_other) {
        check_one_epoch(w);
    } else {
        if (!idles)
            ck_assert_int_eq(run.n_parleys, json_integer_value(json_object_get(line, "n_parleys")));
        check_report(line, w, is_drawn);
        check_report(line, w, is_drawn); /* a second one is the same */
        ck_assert_int_eq(world_n_examples(w),
                         json_integer_value(json_object_get(line, "num_examples")));
        ck_assert_int_eq(world_n_episodes(w),
                         json_integer_value(json_object_get(line, "num_episodes")));
    }
    world_close(w);
    for (size_t i = 0; i < n_tasks; i++)
        participant_unref(members[i]);
    participant_unref(agent);
    dictionary_close(dictionary);
}

static size_t n_twice;

static void each_run(const json_t *line)
{
    const json_t *tasks = json_object_get(line, "task");

    if (json_array_size(tasks) == 2 &&
        json_equal(json_array_get(tasks, 0), json_array_get(tasks, 1)))
        n_twice++;
    else
        check_run(line);
}

START_TEST(test_runs)
{
    for (size_t i = 0; i < MAX_TASKS; i++)
        learn_examples(i);
    ck_assert_uint_ge(golden_lines("worlds.jsonl", "run", each_run), 38);
    ck_assert_uint_eq(n_twice, 1);
    for (size_t i = 0; i < MAX_TASKS; i++)
        while (known[i].n > 0)
            free(known[i].texts[--known[i].n]);
}
END_TEST

static char *read_file(const char *path, size_t *len)
{
    char *text = calloc(1, 1 << 16);
    FILE *in = fopen(path, "re");

    ck_assert(in != NULL && text != NULL);
    *len = fread(text, 1, 1 << 16, in);
    (void)fclose(in);
    return text;
}

/* The dictionary of the data, to the byte; written, read and written again it is the same. */
START_TEST(test_dictionary)
{
    char path[] = "/tmp/parley-dict-XXXXXX";
    int fd = mkstemp(path);
    struct teacher_config config;
    struct dictionary *d;
    struct participant *p;
    struct participant_clone *clone;
    struct arena arena;
    size_t len, must_len;
    char *text, *must = read_file(GOLDEN_DIR "/dialogues.dict", &must_len);

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    teacher_config_init(&config);
    ck_assert_int_eq(datatype_parse(&config.datatype, "train:ordered", &err), STATUS_OK);
    p = open_task(0, &config);
    clone = calloc(1, participant_clone_size(p));
    ck_assert_ptr_nonnull(clone);
    ck_assert_int_eq(participant_clone_init(clone, p, &(struct participant_slot){0, 0}, &err),
                     STATUS_OK);
    ck_assert_int_eq(dictionary_open(&d, &err), STATUS_OK);
    arena_init(&arena, SIZE_MAX);
    for (;;) {
        struct act said;

        act_init(&said, &arena);
        ck_assert_int_eq(p->type->act(clone, &said, &err), STATUS_OK);
        if (act_is_padding(&said))
            break;
        ck_assert_int_eq(dictionary_add_act(d, &said, &err), STATUS_OK);
    }
    for (size_t i = 0; i < 2; i++) {
        ck_assert_msg(dictionary_write(d, path, &err) == STATUS_OK, "%s", err.text);
        dictionary_close(d);
        text = read_file(path, &len);
        ck_assert_uint_eq(len, must_len);
        ck_assert_mem_eq(text, must, len);
        free(text);
        ck_assert_msg(dictionary_read(&d, path, &err) == STATUS_OK, "%s", err.text);
    }
    dictionary_close(d);
    (void)unlink(path);
    free(must);
    arena_deinit(&arena);
    participant_clone_deinit(clone);
    free(clone);
    participant_unref(p);
}
END_TEST

/* A damaged dictionary is refused by file and line. */
START_TEST(test_bad_dictionaries)
{
    static const struct {
        const char *text, *error;
    } files[] = {
        {"a\t1\nb\tx\n", ":2: has no number after the tab"},
        {"a\t1\n\t2\n", ":2: has no word"},
        {"a\t1\na\t2\n", ":2: has a word that an earlier line has already"},
        {"a\t1\n\xff\t2\n", ":2: is not UTF-8"},
        {"a\t99999999999999999999999\n", ":1: has no number after the tab"},
    };
    char path[] = "/tmp/parley-dict-XXXXXX";
    int fd = mkstemp(path);
    struct dictionary *d;

    ck_assert_int_ge(fd, 0);
    (void)close(fd);
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        FILE *to = fopen(path, "we");

        ck_assert_ptr_nonnull(to);
        (void)fputs(files[i].text, to);
        ck_assert_int_eq(fclose(to), 0);
        ck_assert_int_eq(dictionary_read(&d, path, &err), STATUS_INVALID);
        ck_assert_msg(strstr(err.text, files[i].error) != NULL, "%s", err.text);
    }
    (void)unlink(path);
    ck_assert_int_eq(dictionary_read(&d, path, &err), STATUS_NOT_FOUND);
}
END_TEST

SUITE_MAIN("parlai/worlds", test_runs, test_dictionary, test_bad_dictionaries)
