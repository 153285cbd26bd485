/* Teachers whose data are in memory: formats, datatypes, squashing, batches, ranks, threads, and
 * what is wrong with a file. */
#include <pthread.h>
#include <stdatomic.h>

#include "tests/unit/base/suite.h"
#include "tests/unit/worlds/teachers/rig.h"

static struct teacher_config config;

static struct teacher *opened(const char *prefix, const char *name)
{
    struct teacher *t = NULL;

    ck_assert_msg(rig_open(&t, prefix, name, &config) == STATUS_OK, "%s", rig_err.text);
    return t;
}

static void set_datatype(const char *text)
{
    teacher_config_init(&config);
    ck_assert_int_eq(datatype_parse(&config.datatype, text, &rig_err), STATUS_OK);
}

/* All acts of an epoch, each as a line of its JSON. */
static void check_epoch(struct teacher *t, const char *expected)
{
    struct rig_clone clone;
    struct buf out;
    bool done = false;

    buf_init(&out, 1 << 20);
    rig_clone_init(&clone, t, 0);
    while (!done) {
        done = rig_act(&clone);
        ck_assert(!act_is_padding(&clone.said));
        ck_assert_int_eq(act_to_json(&clone.said, &out, &rig_err), STATUS_OK);
        ck_assert_int_eq(buf_append(&out, "\n", 1), STATUS_OK);
    }
    ck_assert_str_eq(out.data, expected);
    rig_clone_deinit(&clone);
    rig_close(t);
    buf_deinit(&out);
}

/* --- formats --------------------------------------------------------------------------------- */

/* JSON lines: a line without episode_done is an episode of its own, a single label is a list of
 * one, other fields pass, numbers stay what they are. */
START_TEST(test_jsonl)
{
    set_datatype("train:ordered");
    rig_write("a.jsonl",
              "{\"text\":\"one\",\"labels\":\"1\"}\n"
              "\n"
              "{\"text\":\"two\",\"labels\":[\"2\"],\"episode_done\":false}\n"
              "{\"text\":\"th\\u00e9\",\"labels\":[\"3\"],\"reward\":1.0,\"x\":{\"y\":[1]},"
              "\"episode_done\":true}");
    check_epoch(opened("jsonl", "a.jsonl"),
                "{\"text\":\"one\",\"labels\":[\"1\"],\"episode_done\":true,\"id\":\"a\"}\n"
                "{\"text\":\"two\",\"labels\":[\"2\"],\"episode_done\":false,\"id\":\"a\"}\n"
                "{\"text\":\"th\xc3\xa9\",\"labels\":[\"3\"],\"reward\":1.0,\"x\":{\"y\":[1]},"
                "\"episode_done\":true,\"id\":\"a\"}\n");
}
END_TEST

/* fbdialog: numbers that begin again begin an episode, lines without labels are context of the
 * next, rewards add up, and what is left over has no labels. */
START_TEST(test_fbdialog)
{
    set_datatype("train:ordered");
    rig_write("b.txt", "1 Sam went home.\n"
                       "2 Where is Sam?\thome|at home\t1\thome|away\n"
                       "3 And now?\tthere\n"
                       "1 Hello\\nthere\tHi\t0.5\n"
                       "2 left over\n"
                       "1 last\tend\n");
    check_epoch(
        opened("fbdialog", "b.txt"),
        "{\"text\":\"Sam went home.\\nWhere is Sam?\",\"labels\":[\"home\",\"at home\"],"
        "\"reward\":1.0,\"label_candidates\":[\"home\",\"away\"],\"episode_done\":false,"
        "\"id\":\"b\"}\n"
        "{\"text\":\"And now?\",\"labels\":[\"there\"],\"reward\":0.0,\"episode_done\":true,"
        "\"id\":\"b\"}\n"
        "{\"text\":\"Hello\\nthere\",\"labels\":[\"Hi\"],\"reward\":0.5,\"episode_done\":false,"
        "\"id\":\"b\"}\n"
        "{\"text\":\"left over\",\"reward\":0.0,\"episode_done\":true,\"id\":\"b\"}\n"
        "{\"text\":\"last\",\"labels\":[\"end\"],\"reward\":0.0,\"episode_done\":true,\"id\":\"b\"}"
        "\n");
}
END_TEST

/* Logs of conversations: who speaks first is the text, the answer its label; context is left out.
 */
START_TEST(test_conversations)
{
    set_datatype("valid");
    rig_write(
        "c.jsonl",
        "{\"dialog\":[[{\"id\":\"context\",\"text\":\"persona\"},{\"id\":\"a\",\"text\":\" Hi "
        "\"},{\"id\":\"b\",\"text\":\"Hello\"}],[{\"id\":\"a\",\"text\":\"How?\"},{\"id\":"
        "\"b\",\"text\":\"So.\"}]],\"metadata_path\":\"x\"}\n"
        "{\"dialog\":[[{\"text\":\"Bye\"},{\"text\":\"Bye!\"}]]}\n");
    check_epoch(
        opened("conversations", "c.jsonl"),
        "{\"text\":\"Hi\",\"episode_done\":false,\"id\":\"c\",\"eval_labels\":[\"Hello\"]}\n"
        "{\"text\":\"How?\",\"episode_done\":true,\"id\":\"c\",\"eval_labels\":[\"So.\"]}\n"
        "{\"text\":\"Bye\",\"episode_done\":true,\"id\":\"c\",\"eval_labels\":[\"Bye!\"]}\n");
}
END_TEST

/* --- bad input ------------------------------------------------------------------------------- */

struct bad {
    const char *prefix, *text, *says;
};

/* Each fault is one line that names the file, the line and what is wrong; with skip_bad the line
 * is counted and left out. */
START_TEST(test_bad_lines)
{
    static const struct bad bads[] = {
        {"parlai", "labels:y", "text is missing"},
        {"parlai", "text:x", "labels is missing"},
        {"parlai", "text:x\teval_labels:y", "eval_labels"},
        {"parlai", "text:x\tlabels:y\treward:abc", "reward is 'abc'"},
        {"parlai", "text:x\tlabels:y\tepisode_done:maybe", "episode_done is 'maybe'"},
        {"parlai", "text:\xff\tlabels:y", "not UTF-8"},
        {"jsonl", "{\"text\":\"x\"}", "labels is missing"},
        {"jsonl", "{\"text\":1,\"labels\":[\"y\"]}", "text is not a string"},
        {"jsonl", "{\"text\":\"x\",\"labels\":[1]}", "labels is not a list of texts"},
        {"jsonl", "{\"text\":\"x\",\"labels\":[\"y\"],\"episode_done\":1}",
         "episode_done is neither"},
        {"jsonl", "{\"text\":\"x\",\"labels\":[\"y\"]", "'}' is missing"},
        {"jsonl", "[1]", "not a JSON object"},
        {"jsonl", "{\"text\":\"x\",\"text\":\"x\",\"labels\":[\"y\"]}",
         "a key that the object has already"},
        {"fbdialog", "x\ty", "does not begin with its number"},
        {"fbdialog", "1 x\ty\tmuch", "the reward is not a number"},
        {"conversations", "{\"dialog\":[{}]}", "turn 1 of the dialog is not a list"},
        {"conversations", "{\"dialog\":1}", "not an object with a list"},
        {"conversations", "{\"dialog\":[[{\"text\":\"x\"},{}]]}", "has no text"},
    };
    static const char *const good[] = {
        "text:good\tlabels:l\tepisode_done:True\n",
        "{\"text\":\"good\",\"labels\":[\"l\"]}\n",
        "1 good\tl\n",
        "{\"dialog\":[[{\"text\":\"good\"},{\"text\":\"l\"}]]}\n",
    };
    static const char *const prefixes[] = {"parlai", "jsonl", "fbdialog", "conversations"};
    char text[400];

    for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++) {
        struct teacher *t;
        size_t k = 0;

        while (strcmp(prefixes[k], bads[i].prefix) != 0)
            k++;
        (void)snprintf(text, sizeof(text), "%s%s\n%s", good[k], bads[i].text, good[k]);
        rig_write("bad", text);
        set_datatype("valid");
        ck_assert_int_eq(rig_open(&t, bads[i].prefix, "bad", &config), STATUS_INVALID);
        ck_assert_msg(strstr(rig_err.text, "bad:2: ") != NULL &&
                          strstr(rig_err.text, bads[i].says) != NULL,
                      "%s: %s", bads[i].text, rig_err.text);
        config.skip_bad = true;
        t = opened(bads[i].prefix, "bad");
        ck_assert_uint_eq(teacher_n_skipped(t), 1);
        ck_assert_uint_eq(teacher_n_examples(t), 2);
        rig_close(t);
    }
}
END_TEST

/* A line beyond the bound is refused wherever it ends, and what follows it is read. */
START_TEST(test_long_line)
{
    enum { LONG = 700000 };
    char *text = malloc(LONG + 200);
    struct teacher *t;
    size_t n;

    ck_assert_ptr_nonnull(text);
    n = (size_t)snprintf(text, 100, "text:a\tlabels:b\tepisode_done:True\ntext:");
    memset(text + n, 'x', LONG);
    n += LONG;
    n += (size_t)snprintf(text + n, 100, "\tlabels:b\ntext:c\tlabels:d\n");
    rig_write_bytes("long", text, n);
    set_datatype("valid");
    t = opened("parlai", "long");
    ck_assert_uint_eq(teacher_n_examples(t), 3);
    rig_close(t);
    for (config.max_line_bytes = 100; config.max_line_bytes < LONG;
         config.max_line_bytes += 123456) {
        config.skip_bad = false;
        ck_assert_int_eq(rig_open(&t, "parlai", "long", &config), STATUS_INVALID);
        ck_assert_ptr_nonnull(strstr(rig_err.text, "long:2: a line of more than"));
        config.skip_bad = true;
        t = opened("parlai", "long");
        ck_assert_uint_eq(teacher_n_examples(t), 2);
        ck_assert_uint_eq(teacher_n_skipped(t), 1);
        rig_close(t);
    }
    free(text);
}
END_TEST

/* JSON lines end as Python has them end, also where an end lies across two reads of the file. */
START_TEST(test_line_ends)
{
    static const char *const ends[] = {"\n", "\r\n", "\r"};
    static const char rest[] = "\",\"labels\":\"b\"}";
    enum { BLOCK = 256 << 10 };
    char *text = malloc(BLOCK + 200);
    struct teacher *t;

    ck_assert_ptr_nonnull(text);
    for (size_t e = 0; e < 9; e++)
        for (size_t length = BLOCK - 3; length <= BLOCK + 2; length++) {
            size_t n = (size_t)snprintf(text, 100, "{\"text\":\"");

            memset(text + n, 'x', length - n);
            memcpy(text + length - strlen(rest), rest, strlen(rest));
            n = length + (size_t)snprintf(text + length, 190,
                                          "%s{\"text\":\"c\",\"labels\":\"d\"}%s{\"text\":1}",
                                          ends[e % 3], ends[e / 3]);
            rig_write_bytes("ends", text, n);
            set_datatype("valid");
            ck_assert_int_eq(rig_open(&t, "jsonl", "ends", &config), STATUS_INVALID);
            ck_assert_msg(strstr(rig_err.text, "ends:3: ") != NULL, "%s", rig_err.text);
            config.skip_bad = true;
            t = opened("jsonl", "ends");
            ck_assert_uint_eq(teacher_n_examples(t), 2);
            rig_close(t);
            config.max_line_bytes = 100; /* the end of a line that is too long is one end, too */
            t = opened("jsonl", "ends");
            ck_assert_uint_eq(teacher_n_examples(t), 1);
            ck_assert_uint_eq(teacher_n_skipped(t), 2);
            rig_close(t);
        }
    free(text);
    rig_write("dos.fb", "1 a\tb\r\n2 c\td\r1 e\tf\r\n");
    set_datatype("valid");
    t = opened("fbdialog", "dos.fb");
    ck_assert_uint_eq(teacher_n_examples(t), 3);
    ck_assert_uint_eq(teacher_n_episodes(t), 2);
    rig_close(t);
}
END_TEST

/* ParlAI's own format keeps a carriage return, which no flag of an episode minds; a line says so.
 */
START_TEST(test_dos_lines)
{
    set_datatype("train:ordered");
    rig_write("dos.txt", "text:a\tlabels:b\r\ntext:c\tlabels:d\tepisode_done:True\r\n");
    check_epoch(opened("parlai", "dos.txt"),
                "{\"text\":\"a\",\"labels\":[\"b\\r\"],\"episode_done\":false,\"id\":\"dos\"}\n"
                "{\"text\":\"c\",\"labels\":[\"d\"],\"episode_done\":true,\"id\":\"dos\"}\n");
}
END_TEST

/* Rewards that are no finite number are read as Python reads them, and as logs write them. */
START_TEST(test_odd_rewards)
{
    set_datatype("train:ordered");
    rig_write("r.txt", "text:a\tlabels:b\treward:nan\tepisode_done:True\n"
                       "text:c\tlabels:d\treward:-inf\tepisode_done:True\n");
    check_epoch(
        opened("parlai", "r.txt"),
        "{\"text\":\"a\",\"labels\":[\"b\"],\"reward\":\"NaN\",\"episode_done\":true,\"id\":"
        "\"r\"}\n"
        "{\"text\":\"c\",\"labels\":[\"d\"],\"reward\":\"-Infinity\",\"episode_done\":true,"
        "\"id\":\"r\"}\n");
    rig_write("r.jsonl", "{\"text\":\"a\",\"labels\":[\"b\"],\"reward\":NaN}\n"
                         "{\"text\":\"c\",\"labels\":[\"d\"],\"reward\":\"-Infinity\"}\n");
    check_epoch(
        opened("jsonl", "r.jsonl"),
        "{\"text\":\"a\",\"labels\":[\"b\"],\"reward\":\"NaN\",\"episode_done\":true,\"id\":"
        "\"r\"}\n"
        "{\"text\":\"c\",\"labels\":[\"d\"],\"reward\":\"-Infinity\",\"episode_done\":true,"
        "\"id\":\"r\"}\n");
}
END_TEST

/* No file, no prefix, no examples: one line each. */
START_TEST(test_nothing_there)
{
    struct teacher *t;

    set_datatype("valid");
    ck_assert_int_eq(rig_open(&t, "parlai", "none", &config), STATUS_NOT_FOUND);
    ck_assert_int_eq(rig_open(&t, "parlay", "none", &config), STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(rig_err.text, "conversations:FILE"));
    ck_assert_int_eq(teacher_open(&t, "parlai", &config, &rig_err), STATUS_NOT_FOUND);
    ck_assert_int_eq(teacher_open(&t, "parlai:", &config, &rig_err), STATUS_NOT_FOUND);
    rig_write("empty", "\n\n");
    ck_assert_int_eq(rig_open(&t, "parlai", "empty", &config), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(rig_err.text, "no examples"));
    ck_assert_int_eq(rig_open(&t, "parlai", "", &config), STATUS_INVALID); /* the folder */
}
END_TEST

START_TEST(test_task_lists)
{
    struct arena arena;
    struct text *tasks;
    size_t n;

    arena_init(&arena, 1 << 16);
    ck_assert_int_eq(tasks_split(&tasks, &n, "parlai:a,jsonl:b", &arena, &rig_err), STATUS_OK);
    ck_assert_uint_eq(n, 2);
    ck_assert_str_eq(tasks[0].text, "parlai:a");
    ck_assert_str_eq(tasks[1].text, "jsonl:b");
    ck_assert_int_eq(tasks_split(&tasks, &n, "a,b,a", &arena, &rig_err), STATUS_INVALID);
    ck_assert_int_eq(tasks_split(&tasks, &n, "a,,b", &arena, &rig_err), STATUS_INVALID);
    arena_deinit(&arena);
}
END_TEST

/* --- squashing ------------------------------------------------------------------------------- */

static const char four_turns[] = "text:x1\tlabels:y1\n"
                                 "text:x2\tlabels:y2\n"
                                 "text:x3\tlabels:y3\n"
                                 "text:x4\tlabels:y4\tepisode_done:True\n";

static void check_squashed(bool include_labels, int64_t context_length, const char *const *expected)
{
    struct rig_clone clone;
    struct teacher *t;

    set_datatype("train:ordered");
    config.squash = true;
    config.include_labels = include_labels;
    config.context_length = context_length;
    t = opened("parlai", "four");
    ck_assert_uint_eq(teacher_n_episodes(t), 4);
    rig_clone_init(&clone, t, 0);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_int_eq(rig_act(&clone), i == 3);
        ck_assert_str_eq(rig_text(&clone), expected[i]);
        ck_assert(act_is(&clone.said, ACT_EPISODE_DONE));
    }
    rig_clone_deinit(&clone);
    rig_close(t);
}

/* Which utterances a turn's example has, by include_labels and context_length; 0 counts as 1. */
START_TEST(test_squash)
{
    static const char *const all_texts[] = {"x1", "x1\nx2", "x1\nx2\nx3", "x1\nx2\nx3\nx4"};
    static const char *const all[] = {"x1", "x1\ny1\nx2", "x1\ny1\nx2\ny2\nx3",
                                      "x1\ny1\nx2\ny2\nx3\ny3\nx4"};
    static const char *const three[] = {"x1", "x1\ny1\nx2", "x2\ny2\nx3", "x3\ny3\nx4"};
    static const char *const two[] = {"x1", "y1\nx2", "y2\nx3", "y3\nx4"};
    static const char *const one[] = {"x1", "x2", "x3", "x4"};

    rig_write("four", four_turns);
    check_squashed(false, -1, all_texts);
    check_squashed(true, -1, all);
    check_squashed(true, 3, three);
    check_squashed(true, 2, two);
    check_squashed(true, 1, one);
    check_squashed(true, 0, one);
}
END_TEST

/* --- counts ---------------------------------------------------------------------------------- */

/* n episodes of as many turns as make 1, 2, …, turns in turn; each turn's text is its number. */
static size_t write_episodes(const char *name, size_t n, size_t turns)
{
    FILE *out = fopen(rig_path(name), "we");
    size_t n_examples = 0;

    ck_assert_ptr_nonnull(out);
    for (size_t e = 0; e < n; e++)
        for (size_t i = 0; i <= e % turns; i++)
            fprintf(out, "text:%zu%.*s\tlabels:yes%s\n", n_examples++, (int)(2 * (e % 7)),
                    " a b c d e f g h", i == e % turns ? "\tepisode_done:True" : "");
    ck_assert_int_eq(fclose(out), 0);
    return n_examples;
}

struct tally {
    struct teacher *teacher;
    atomic_uint *seen; /* [examples] */
    size_t n_clones;
    uint32_t thread;
};

/* Many clones in turn until all of them say that the epoch is done; each answers. */
static void *see_all(void *arg)
{
    struct tally *tally = arg;
    struct rig_clone *clones = calloc(tally->n_clones, sizeof(*clones));
    size_t n_done = 0;

    ck_assert_ptr_nonnull(clones);
    for (size_t i = 0; i < tally->n_clones; i++)
        rig_clone_init(&clones[i], tally->teacher, tally->thread);
    while (n_done < tally->n_clones) {
        n_done = 0;
        for (size_t i = 0; i < tally->n_clones; i++) {
            struct rig_clone *c = &clones[i];
            const struct act *seen;
            struct act reply;
            struct error err;

            (void)rig_act(c);
            if (!act_is_padding(&c->said))
                atomic_fetch_add(&tally->seen[strtoul(rig_text(c), NULL, 10)], 1);
            act_init(&reply, &c->arena);
            ck_assert_int_eq(act_set(&reply, ACT_TEXT, value_text((struct text){"yes", 3}), &err),
                             STATUS_OK);
            ck_assert_int_eq(participant_observe(c->c, &reply, &seen, &err), STATUS_OK);
        }
        for (size_t i = 0; i < tally->n_clones; i++)
            n_done += teacher_participant(tally->teacher)->type->epoch_done(clones[i].c);
    }
    for (size_t i = 0; i < tally->n_clones; i++)
        rig_clone_deinit(&clones[i]);
    free(clones);
    return NULL;
}

static void check_once(const char *datatype, const char *name, size_t n_examples, size_t n_clones,
                       size_t n_threads)
{
    atomic_uint *seen = calloc(n_examples, sizeof(*seen));
    struct tally tallies[8];
    pthread_t threads[8];
    struct teacher *t;
    struct report r;

    set_datatype(datatype);
    config.batch_size = n_clones;
    config.n_shards = n_threads;
    t = opened("parlai", name);
    for (uint32_t i = 0; i < n_threads; i++) {
        tallies[i] = (struct tally){t, seen, n_clones, i};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, see_all, &tallies[i]), 0);
    }
    for (size_t i = 0; i < n_threads; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    for (size_t i = 0; i < n_examples; i++)
        ck_assert_msg(seen[i] == 1, "%s, %zu clones, %zu threads: example %zu seen %u times",
                      datatype, n_clones, n_threads, i, seen[i]);
    ck_assert_int_eq(metrics_report(&r, teacher_metrics(t), &rig_err), STATUS_OK);
    ck_assert_double_eq(metric_value(report_get(&r, "exs")), (double)n_examples);
    ck_assert_double_eq(metric_value(report_get(&r, "accuracy")), 1);
    report_deinit(&r);
    rig_close(t);
    free(seen);
}

/* Each example once in an epoch, whatever the clones and threads: in memory and as a stream, data
 * to be measured on and to be trained on. */
START_TEST(test_exactly_once)
{
    static const char *const datatypes[] = {"valid", "train:ordered", "valid:stream",
                                            "train:stream"};
    static const size_t n_clones[] = {1, 3, 64};
    size_t n_examples = write_episodes("episodes", 60, 4);

    for (size_t d = 0; d < 4; d++)
        for (size_t c = 0; c < 3; c++)
            for (size_t n_threads = 1; n_threads <= 8; n_threads += 7)
                check_once(datatypes[d], "episodes", n_examples, n_clones[c], n_threads);
}
END_TEST

/* A lone clone of a teacher that was told of a batch of 64 sees all. */
START_TEST(test_batch_size_is_no_bound)
{
    size_t n = write_episodes("episodes", 12, 4), n_seen = 0;
    struct rig_clone clone;
    struct teacher *t;
    bool done = false;

    set_datatype("valid");
    config.batch_size = 64;
    t = opened("parlai", "episodes");
    rig_clone_init(&clone, t, 0);
    while (!done) {
        done = rig_act(&clone);
        n_seen++;
    }
    ck_assert_uint_eq(n_seen, n);
    rig_clone_deinit(&clone);
    rig_close(t);
}
END_TEST

/* Training data go on behind their end; plain train is drawn with replacement, without end, and
 * the same for the same seed. */
START_TEST(test_training_goes_on)
{
    char first[40][16];
    struct rig_clone clone;
    struct teacher *t;
    size_t n_repeated = 0;

    (void)write_episodes("ones", 10, 1);
    set_datatype("train:ordered");
    t = opened("parlai", "ones");
    rig_clone_init(&clone, t, 0);
    for (size_t i = 0; i < 40; i++) {
        ck_assert_int_eq(rig_act(&clone), i % 10 == 9);
        ck_assert_uint_eq(strtoul(rig_text(&clone), NULL, 10), i % 10);
    }
    rig_clone_deinit(&clone);
    rig_close(t);
    for (int again = 0; again < 2; again++) {
        set_datatype("train");
        t = opened("parlai", "ones");
        rig_clone_init(&clone, t, 0);
        for (size_t i = 0; i < 40; i++) {
            ck_assert(!rig_act(&clone));
            if (again)
                ck_assert_str_eq(rig_text(&clone), first[i]);
            (void)snprintf(first[i], sizeof(first[i]), "%s", rig_text(&clone));
            n_repeated += i > 0 && strcmp(first[i], first[i - 1]) == 0;
        }
        rig_clone_deinit(&clone);
        rig_close(t);
    }
    ck_assert_uint_gt(n_repeated, 0);
}
END_TEST

/* Ranks share the episodes: each has its own, together all. */
START_TEST(test_ranks)
{
    static const char *const datatypes[] = {"valid", "valid:stream"};
    size_t n = write_episodes("episodes", 11, 3);

    for (size_t d = 0; d < 2; d++) {
        size_t n_seen = 0, n_said = 0;

        for (size_t rank = 0; rank < 4; rank++) {
            atomic_uint seen[64] = {0};
            struct tally tally = {NULL, seen, 2, 0};

            set_datatype(datatypes[d]);
            config.rank = rank;
            config.n_ranks = 4;
            tally.teacher = opened("parlai", "episodes");
            ck_assert_uint_eq(teacher_n_episodes(tally.teacher), rank < 3 ? 3 : 2);
            n_said += teacher_n_examples(tally.teacher);
            (void)see_all(&tally);
            for (size_t i = 0; i < 64; i++) {
                ck_assert_uint_le(seen[i], 1);
                n_seen += seen[i];
            }
            rig_close(tally.teacher);
        }
        ck_assert_uint_eq(n_seen, n);
        ck_assert_uint_eq(n_said, n);
    }
}
END_TEST

/* A reset begins anew for all clones, and clears what was counted. */
START_TEST(test_reset)
{
    static const char *const datatypes[] = {"valid", "valid:stream"};
    struct rig_clone a, b;
    struct report r;

    (void)write_episodes("episodes", 20, 3);
    for (size_t d = 0; d < 2; d++) {
        struct teacher *t;

        set_datatype(datatypes[d]);
        t = opened("parlai", "episodes");
        rig_clone_init(&a, t, 0);
        rig_clone_init(&b, t, 0);
        for (size_t i = 0; i < 7; i++) {
            (void)rig_act(&a);
            (void)rig_act(&b);
        }
        participant_clone_reset(a.c);
        participant_clone_reset(b.c);
        teacher_participant(t)->type->reset_shared(teacher_participant(t));
        (void)rig_act(&b);
        ck_assert_uint_eq(strtoul(rig_text(&b), NULL, 10), 0);
        ck_assert_int_eq(metrics_report(&r, teacher_metrics(t), &rig_err), STATUS_OK);
        ck_assert_uint_eq(r.list.n, 0);
        report_deinit(&r);
        rig_clone_deinit(&a);
        rig_clone_deinit(&b);
        rig_close(t);
    }
}
END_TEST

/* --- batches of like length ------------------------------------------------------------------ */

enum { ROWS = 4 };

static size_t words(struct rig_clone *c)
{
    size_t n = 1;

    for (const char *at = rig_text(c); *at != '\0'; at++)
        n += *at == ' ';
    return n;
}

/* Batches have rows of neighbouring lengths, each example comes once, padding stands behind a short
 * batch's last row, and training data come in another order in the next epoch. */
START_TEST(test_batch_sort)
{
    size_t n = write_episodes("ones", 50, 1), n_batches = (n + ROWS - 1) / ROWS, order[2][50];
    struct participant *p;
    struct rig_clone clones[ROWS];
    struct teacher *t;

    set_datatype("train");
    config.batch_sort = true;
    config.batch_size = ROWS;
    config.include_labels = false;
    t = opened("parlai", "ones");
    p = teacher_participant(t);
    ck_assert(participant_has_batch_act(p));
    for (size_t i = 0; i < ROWS; i++)
        rig_clone_init(&clones[i], t, 0);
    for (size_t epoch = 0; epoch < 2; epoch++) {
        unsigned seen[50] = {0};
        size_t n_padding = 0;

        for (size_t k = 0; k < n_batches; k++) {
            struct participant_row rows[ROWS] = {0};
            size_t least = SIZE_MAX, most = 0;

            for (size_t i = 0; i < ROWS; i++) {
                ck_assert(k == 0 || !p->type->epoch_done(clones[i].c));
                act_init(&clones[i].said, &clones[i].arena);
                rows[i].clone = clones[i].c;
                rows[i].out = &clones[i].said;
            }
            p->type->batch_act(p, rows, ROWS);
            for (size_t i = 0; i < ROWS; i++) {
                ck_assert(!rows[i].failed);
                if (act_is_padding(&clones[i].said)) {
                    n_padding++;
                    continue;
                }
                seen[strtoul(rig_text(&clones[i]), NULL, 10)]++;
                least = words(&clones[i]) < least ? words(&clones[i]) : least;
                most = words(&clones[i]) > most ? words(&clones[i]) : most;
            }
            order[epoch][k] = strtoul(rig_text(&clones[0]), NULL, 10);
            ck_assert_uint_le(most - least, 1);
        }
        for (size_t i = 0; i < n; i++)
            ck_assert_uint_eq(seen[i], 1);
        ck_assert_uint_eq(n_padding, n_batches * ROWS - n);
        for (size_t i = 0; i < ROWS; i++)
            ck_assert(p->type->epoch_done(clones[i].c));
    }
    ck_assert(memcmp(order[0], order[1], n_batches * sizeof(order[0][0])) != 0);
    for (size_t i = 0; i < ROWS; i++)
        rig_clone_deinit(&clones[i]);
    rig_close(t);
}
END_TEST

/* Threads deal themselves batches of a stream until their clones say that the epoch is done. */
struct dealing {
    struct teacher *teacher;
    atomic_uint *seen;
    atomic_size_t *n_wide; /* batches whose lengths differ by more than the range allows */
    size_t n_epochs;
};

static void *deal_all(void *arg)
{
    struct dealing *d = arg;
    struct participant *p = teacher_participant(d->teacher);
    struct rig_clone clones[ROWS];
    size_t n_done;

    for (size_t i = 0; i < ROWS; i++)
        rig_clone_init(&clones[i], d->teacher, 0);
    for (size_t epoch = 0; epoch < d->n_epochs; epoch++) {
        do {
            struct participant_row rows[ROWS] = {0};
            size_t least = SIZE_MAX, most = 0;

            for (size_t i = 0; i < ROWS; i++) {
                act_init(&clones[i].said, &clones[i].arena);
                rows[i].clone = clones[i].c;
                rows[i].out = &clones[i].said;
            }
            p->type->batch_act(p, rows, ROWS);
            n_done = 0;
            for (size_t i = 0; i < ROWS; i++) {
                ck_assert(!rows[i].failed);
                n_done += p->type->epoch_done(clones[i].c);
                if (act_is_padding(&clones[i].said))
                    continue;
                atomic_fetch_add(&d->seen[strtoul(rig_text(&clones[i]), NULL, 10)], 1);
                least = words(&clones[i]) < least ? words(&clones[i]) : least;
                most = words(&clones[i]) > most ? words(&clones[i]) : most;
            }
            if (least != SIZE_MAX && most - least > 2)
                atomic_fetch_add(d->n_wide, 1);
        } while (n_done < ROWS);
    }
    for (size_t i = 0; i < ROWS; i++)
        rig_clone_deinit(&clones[i]);
    return NULL;
}

/* A stream sorted by length: each example once an epoch, by chance or in turn, on any number of
 * threads; rows of every batch are within the range. */
START_TEST(test_length_cache)
{
    static const enum length_caching kinds[] = {LENGTH_CACHE_POP, LENGTH_CACHE_INDEX};
    static const char *const datatypes[] = {"train:stream", "valid:stream"};
    enum { N = 3000 };

    (void)write_episodes("many", N, 1);
    for (size_t k = 0; k < 2; k++)
        for (size_t d = 0; d < 2; d++)
            for (size_t n_threads = 1; n_threads <= 4; n_threads += 3) {
                atomic_uint *seen = calloc(N, sizeof(*seen));
                size_t n_epochs = d == 0 && n_threads == 1 ? 2 : 1;
                atomic_size_t n_wide = 0;
                struct dealing dealing;
                pthread_t threads[4];

                set_datatype(datatypes[d]);
                config.batch_size = ROWS;
                config.length_cache = kinds[k];
                config.length_range = 2;
                dealing = (struct dealing){opened("parlai", "many"), seen, &n_wide, n_epochs};
                for (size_t i = 0; i < n_threads; i++)
                    ck_assert_int_eq(pthread_create(&threads[i], NULL, deal_all, &dealing), 0);
                for (size_t i = 0; i < n_threads; i++)
                    ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
                for (size_t i = 0; i < N; i++)
                    ck_assert_uint_eq(seen[i], n_epochs);
                ck_assert_uint_eq(n_wide, 0);
                rig_close(dealing.teacher);
                free(seen);
            }
    set_datatype("valid:stream");
    config.batch_size = ROWS;
    config.length_cache = LENGTH_CACHE_POP;
    (void)write_episodes("turns", 10, 3);
    {
        struct teacher *t;

        ck_assert_int_eq(rig_open(&t, "parlai", "turns", &config), STATUS_INVALID);
        config.squash = true;
        t = opened("parlai", "turns");
        ck_assert_uint_eq(teacher_n_episodes(t), teacher_n_examples(t));
        rig_close(t);
        config.datatype.stream = false;
        ck_assert_int_eq(rig_open(&t, "parlai", "turns", &config), STATUS_INVALID);
    }
}
END_TEST

START_TEST(test_datatypes)
{
    struct datatype d;

    ck_assert_int_eq(datatype_parse(&d, "train", &rig_err), STATUS_OK);
    ck_assert(datatype_is_training(&d) && datatype_shuffles(&d));
    ck_assert_int_eq(datatype_parse(&d, "train:stream", &rig_err), STATUS_OK);
    ck_assert(datatype_is_training(&d) && !datatype_shuffles(&d) && d.stream);
    ck_assert_int_eq(datatype_parse(&d, "train:evalmode", &rig_err), STATUS_OK);
    ck_assert(!datatype_is_training(&d) && !datatype_loops(&d));
    ck_assert_int_eq(datatype_parse(&d, "train:stream:ordered", &rig_err), STATUS_OK);
    ck_assert(d.stream && d.ordered);
    ck_assert_int_eq(datatype_parse(&d, "test", &rig_err), STATUS_OK);
    ck_assert(d.fold == FOLD_TEST && !datatype_is_training(&d));
    ck_assert_int_eq(datatype_parse(&d, "trains", &rig_err), STATUS_INVALID);
    ck_assert_int_eq(datatype_parse(&d, "train:", &rig_err), STATUS_INVALID);
    ck_assert_int_eq(datatype_parse(&d, "valid:shuffled", &rig_err), STATUS_INVALID);
    ck_assert_int_eq(datatype_parse(&d, "", &rig_err), STATUS_INVALID);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_jsonl,
        test_fbdialog,
        test_conversations,
        test_bad_lines,
        test_long_line,
        test_line_ends,
        test_dos_lines,
        test_odd_rewards,
        test_nothing_there,
        test_task_lists,
        test_squash,
        test_exactly_once,
        test_batch_size_is_no_bound,
        test_ranks,
        test_training_goes_on,
        test_reset,
        test_batch_sort,
        test_datatypes,
        test_length_cache,
    };

    return rig_run("worlds/teachers/teacher", tests, sizeof(tests) / sizeof(tests[0]), suite_run);
}
