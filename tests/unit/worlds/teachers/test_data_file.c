/* Data files and their index: what is built, and that whatever is not right any more is noticed. */
#include "tests/unit/base/suite.h"
#include "tests/unit/worlds/teachers/rig.h"
#include "worlds/teachers/data_file.h"

static const char source[] = "text:a b\tlabels:1\n"
                             "text:c\tlabels:2\tepisode_done:True\n"
                             "text:d e f\tlabels:3|4\tepisode_done:True\n";

static struct teacher_config config;
static char task[200], data[160], index_file[170];

static void set_up(const char *prefix, const char *name, const char *text)
{
    teacher_config_init(&config);
    config.datatype.stream = true;
    rig_write(name, text);
    (void)snprintf(task, sizeof(task), "%s:%s", prefix, rig_path(name));
    (void)snprintf(data, sizeof(data), "%s.stream", rig_path(name));
    if (strcmp(prefix, "parlai") != 0)
        (void)snprintf(data, sizeof(data), "%s", rig_path(name));
    (void)snprintf(index_file, sizeof(index_file), "%s.index", data);
    (void)unlink(index_file);
}

static enum status open_index(void)
{
    struct data_index x;
    enum status rc = data_index_open(&x, data, task, &config, &rig_err);

    if (rc == STATUS_OK)
        data_index_close(&x);
    return rc;
}

static size_t read_bytes(const char *path, char *out, size_t size)
{
    FILE *in = fopen(path, "re");
    size_t n;

    ck_assert_ptr_nonnull(in);
    n = fread(out, 1, size, in);
    ck_assert_uint_lt(n, size);
    (void)fclose(in);
    return n;
}

static void write_bytes(const char *path, const char *bytes, size_t n)
{
    FILE *out = fopen(path, "we");

    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(bytes, 1, n, out), n);
    ck_assert_int_eq(fclose(out), 0);
}

/* The texts of an epoch of the task's stream, with a bar between. */
static void check_texts(const char *expected)
{
    struct rig_clone clone;
    struct teacher *t;
    char all[400] = "";
    bool done = false;

    ck_assert_msg(teacher_open(&t, task, &config, &rig_err) == STATUS_OK, "%s", rig_err.text);
    rig_clone_init(&clone, t, 0);
    while (!done) {
        done = rig_act(&clone);
        (void)snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s|", rig_text(&clone),
                       act_is(&clone.said, ACT_EPISODE_DONE) ? "." : "");
    }
    ck_assert_str_eq(all, expected);
    rig_clone_deinit(&clone);
    rig_close(t);
}

/* Built once, used as it is, and entries say where each episode lies. */
START_TEST(test_build)
{
    struct stat first, again;
    struct data_index x;

    set_up("parlai", "built", source);
    check_texts("a b|c.|d e f.|");
    ck_assert_int_eq(stat(index_file, &first), 0);
    check_texts("a b|c.|d e f.|");
    ck_assert_int_eq(stat(index_file, &again), 0);
    ck_assert_uint_eq(first.st_ino, again.st_ino); /* not written again */
    ck_assert_int_eq(data_index_open(&x, data, task, &config, &rig_err), STATUS_OK);
    ck_assert_uint_eq(x.n_episodes, 2);
    ck_assert_uint_eq(x.n_examples, 3);
    ck_assert_uint_eq(x.entries[0].n_examples, 2);
    ck_assert_uint_eq(x.entries[0].n_words, 2);
    ck_assert_uint_eq(x.entries[1].n_words, 3);
    ck_assert_uint_eq(x.entries[1].offset, x.entries[0].size_bytes);
    data_index_close(&x);
}
END_TEST

/* Every byte of the index, turned over, is noticed; so is every length but its own. The stream
 * then builds it anew. */
START_TEST(test_damaged_index)
{
    char bytes[1024];
    size_t n;

    set_up("parlai", "damaged", source);
    check_texts("a b|c.|d e f.|");
    n = read_bytes(index_file, bytes, sizeof(bytes));
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (char)~bytes[i];
        write_bytes(index_file, bytes, n);
        ck_assert_msg(open_index() == STATUS_PRECONDITION, "byte %zu", i);
        bytes[i] = (char)~bytes[i];
        write_bytes(index_file, bytes, i);
        ck_assert_msg(open_index() == STATUS_PRECONDITION, "cut at %zu", i);
    }
    check_texts("a b|c.|d e f.|");
    ck_assert_int_eq(open_index(), STATUS_OK);
}
END_TEST

/* A source that changes, also to one of the same size, is built from anew; one that was only
 * touched is not; other options are other data. */
START_TEST(test_stale_index)
{
    const struct timespec times[2] = {{1000, 0}, {1000, 0}};

    set_up("parlai", "stale", source);
    check_texts("a b|c.|d e f.|");
    ck_assert_int_eq(utimensat(AT_FDCWD, rig_path("stale"), times, 0), 0);
    ck_assert_int_eq(open_index(), STATUS_OK);
    rig_write("stale", "text:A b\tlabels:1\n"
                       "text:c\tlabels:2\tepisode_done:True\n"
                       "text:d e f\tlabels:3|4\tepisode_done:True\n");
    ck_assert_int_eq(open_index(), STATUS_PRECONDITION);
    check_texts("A b|c.|d e f.|");
    rig_write("stale", "text:short\tlabels:1\n");
    check_texts("short.|");
    config.skip_bad = true;
    ck_assert_int_eq(open_index(), STATUS_PRECONDITION);
}
END_TEST

/* JSON lines are read where they lie: blank lines between them, and a last episode that is not
 * closed. */
START_TEST(test_in_place)
{
    struct stat st;

    set_up("jsonl", "place.jsonl",
           "{\"text\":\"a\",\"labels\":[\"1\"],\"episode_done\":false}\n"
           "\n"
           "{\"text\":\"b\",\"labels\":[\"1\"],\"episode_done\":true}\n"
           "  \n"
           "{\"text\":\"c\",\"labels\":[\"1\"]}\n"
           "{\"text\":\"d\",\"labels\":[\"1\"],\"episode_done\":false}");
    check_texts("a|b.|c.|d.|");
    ck_assert_int_ne(stat(rig_path("place.jsonl.stream"), &st), 0); /* no copy was made */
    ck_assert_int_eq(stat(index_file, &st), 0);
}
END_TEST

/* Data that change under an index that still fits them by size are noticed when they are read: an
 * error, not a wrong act. */
START_TEST(test_changed_data)
{
    struct rig_clone clone;
    struct teacher *t;
    char bytes[1024];
    size_t n;

    set_up("parlai", "changed", source);
    check_texts("a b|c.|d e f.|");
    n = read_bytes(data, bytes, sizeof(bytes));
    bytes[10] = 'X';
    write_bytes(data, bytes, n);
    ck_assert_int_eq(teacher_open(&t, task, &config, &rig_err), STATUS_OK);
    rig_clone_init(&clone, t, 0);
    act_init(&clone.said, &clone.arena);
    ck_assert_int_eq(clone.c->original->type->act(clone.c, &clone.said, &rig_err),
                     STATUS_DATA_LOSS);
    rig_clone_deinit(&clone);
    rig_close(t);
    write_bytes(data, bytes, n - 1); /* shorter: the index is of other data */
    check_texts("a b|c.|d e f.|");
}
END_TEST

/* A bad line is told with its place, and nothing is left behind; with skip_bad it is counted. */
START_TEST(test_bad_source)
{
    static const struct {
        const char *prefix, *text;
    } sources[] = {
        {"parlai", "text:a\tlabels:1\tepisode_done:True\ntext:b\ntext:c\tlabels:1\n"},
        {"jsonl", "{\"text\":\"a\",\"labels\":[\"1\"]}\n{\"text\":\"b\"}\n"
                  "{\"text\":\"c\",\"labels\":[\"1\"]}\n"},
    };

    for (size_t i = 0; i < 2; i++) {
        struct teacher *t;
        struct stat st;

        set_up(sources[i].prefix, "bad", sources[i].text);
        ck_assert_int_eq(teacher_open(&t, task, &config, &rig_err), STATUS_INVALID);
        ck_assert_ptr_nonnull(strstr(rig_err.text, "bad:2: "));
        ck_assert_int_ne(stat(index_file, &st), 0);
        ck_assert_int_ne(stat(rig_path("bad.stream.part"), &st), 0);
        ck_assert_int_ne(stat(rig_path("bad.index.part"), &st), 0);
        config.skip_bad = true;
        check_texts("a.|c.|");
        ck_assert_int_eq(teacher_open(&t, task, &config, &rig_err), STATUS_OK);
        ck_assert_uint_eq(teacher_n_skipped(t), 1);
        rig_close(t);
    }
}
END_TEST

/* What fbdialog leaves over has no labels, and is streamed all the same; also from the built file
 * alone, whose index is built anew. */
START_TEST(test_leftovers)
{
    set_up("fbdialog", "left", "1 a\tx\n2 left over\n1 b\ty\n");
    (void)snprintf(data, sizeof(data), "%s.stream", rig_path("left"));
    (void)snprintf(index_file, sizeof(index_file), "%s.index", data);
    check_texts("a|left over.|b.|");
    (void)snprintf(task, sizeof(task), "data:%s", data);
    check_texts("a|left over.|b.|");
    ck_assert_int_eq(unlink(index_file), 0);
    check_texts("a|left over.|b.|");
}
END_TEST

/* A model that makes a vector of each text: how long it is, and how long the answer before was. */
struct counter {
    struct participant_clone base;
    struct act seen;
    int32_t ids[2];
    struct field fields[8];
};

static enum status counter_observe(struct participant_clone *base, const struct act *act,
                                   const struct act **ret_observation, struct error *err)
{
    struct counter *c = (struct counter *)base;

    ck_assert_uint_lt(act->n, 8);
    memcpy(c->fields, act->fields, act->n * sizeof(c->fields[0]));
    c->seen = (struct act){.fields = c->fields, .n = act->n, .cap = 8, .present = act->present};
    c->ids[0] = (int32_t)act_text(act).len;
    *ret_observation = &c->seen;
    return act_force(&c->seen, ACT_TEXT_VEC, value_ids(c->ids, 2), err);
}

static enum status counter_self_observe(struct participant_clone *base, const struct act *reply,
                                        struct error *err)
{
    ((struct counter *)base)->ids[1] = (int32_t)act_text(reply).len;
    return STATUS_OK;
}

static enum status counter_act(struct participant_clone *base, struct act *out, struct error *err)
{
    return error_set(err, STATUS_UNIMPLEMENTED, "it only listens");
}

static const char *counter_vectors_of(const struct participant *p)
{
    return "0123456789abcdef";
}

/* Preprocessing writes what the model makes of each act, with its first label as its own answer,
 * and the stream of the built file has the vectors, and whose they are. They are not replaced when
 * the source has changed. */
START_TEST(test_preprocess)
{
    static const struct participant_type type = {.name = "counter",
                                                 .clone_size = sizeof(struct counter),
                                                 .observe = counter_observe,
                                                 .self_observe = counter_self_observe,
                                                 .act = counter_act,
                                                 .vectors_of = counter_vectors_of};
    static const int32_t expected[3][2] = {{3, 0}, {1, 2}, {5, 1}};
    struct participant model;
    struct rig_clone clone;
    struct teacher *t;

    participant_init(&model, &type);
    set_up("parlai", "raw",
           "text:a b\tlabels:yy|no\n"
           "text:c\tlabels:2\tepisode_done:True\n"
           "text:d e f\tlabels:3\tepisode_done:True\n");
    ck_assert_msg(data_build(task, data, &config, &model, &rig_err) == STATUS_OK, "%s",
                  rig_err.text);
    (void)snprintf(task, sizeof(task), "data:%s", data);
    ck_assert_int_eq(teacher_open(&t, task, &config, &rig_err), STATUS_OK);
    rig_clone_init(&clone, t, 0);
    for (size_t i = 0; i < 3; i++) {
        const struct value *vector, *of;

        (void)rig_act(&clone);
        vector = act_get(&clone.said, ACT_TEXT_VEC);
        ck_assert(vector != NULL && vector->type == VALUE_IDS && vector->ids.n == 2);
        ck_assert_mem_eq(vector->ids.items, expected[i], sizeof(expected[i]));
        ck_assert_ptr_nonnull(act_labels(&clone.said));
        of = act_get_named(&clone.said, "vectors_of", 10);
        ck_assert(of != NULL && of->type == VALUE_TEXT);
        ck_assert_mem_eq(of->text.text, "0123456789abcdef", 16);
    }
    rig_clone_deinit(&clone);
    rig_close(t);
    ck_assert_uint_eq(model.n_refs, 1);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_build,     test_damaged_index, test_stale_index,
                                  test_in_place,  test_changed_data,  test_bad_source,
                                  test_leftovers, test_preprocess};

    return rig_run("worlds/teachers/data_file", tests, sizeof(tests) / sizeof(tests[0]), suite_run);
}
