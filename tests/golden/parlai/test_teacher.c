/* parsed.jsonl: what ParlAI's teacher sends, and what its reader does with odd input, against ours.
 */
#include <unistd.h>

#include "tests/golden/parlai/golden.h"
#include "tests/unit/base/suite.h"
#include "worlds/message/act.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/teacher.h"

static struct error err;

/* One clone of the teacher of a file, and the act it said last. */
static struct teacher *teacher;
static struct participant_clone *clone;
static struct arena memory;
static struct act said;

/* Where a stream is built: not beside the golden file. */
static char folder[] = "/tmp/parley-test-XXXXXX", data_file[64], data_index[72];

static bool make_folder(void)
{
    if (mkdtemp(folder) == NULL)
        return false;
    (void)snprintf(data_file, sizeof(data_file), "%s/data", folder);
    (void)snprintf(data_index, sizeof(data_index), "%s.index", data_file);
    return true;
}

static void remove_folder(void)
{
    (void)unlink(data_file);
    (void)unlink(data_index);
    (void)rmdir(folder);
}

static enum status open_teacher(const char *task, const char *datatype, bool hide_labels)
{
    struct teacher_config config;

    teacher_config_init(&config);
    ck_assert_int_eq(datatype_parse(&config.datatype, datatype, &err), STATUS_OK);
    config.hide_labels = hide_labels;
    config.data_file = data_file;
    if (teacher_open(&teacher, task, &config, &err) != STATUS_OK)
        return err.status;
    clone = calloc(1, participant_clone_size(teacher_participant(teacher)));
    ck_assert_ptr_nonnull(clone);
    ck_assert_int_eq(participant_clone_init(clone, teacher_participant(teacher),
                                            &(struct participant_slot){0, 0}, &err),
                     STATUS_OK);
    arena_init(&memory, 1 << 20);
    return STATUS_OK;
}

static void close_teacher(void)
{
    participant_clone_deinit(clone);
    free(clone);
    participant_unref(teacher_participant(teacher));
    arena_deinit(&memory);
}

static bool act(void)
{
    const struct participant_type *type = clone->original->type;

    act_init(&said, &memory);
    ck_assert_int_eq(type->act(clone, &said, &err), STATUS_OK);
    return type->epoch_done(clone);
}

static void check_said(const json_t *expected, const json_t *order)
{
    struct buf out;
    json_t *got;

    buf_init(&out, 1 << 20);
    ck_assert_int_eq(act_to_json(&said, &out, &err), STATUS_OK);
    got = json_loads(out.data, 0, NULL);
    if (!json_equal(got, (json_t *)(uintptr_t)expected)) {
        char *want = json_dumps(expected, 0);

        ck_abort_msg("%s is not %s", out.data, want);
    }
    for (size_t i = 0; i < json_array_size(order); i++) {
        ck_assert_uint_lt(i, said.n);
        ck_assert_uint_eq(said.fields[i].name.len, json_string_length(json_array_get(order, i)));
        ck_assert_mem_eq(said.fields[i].name.text, json_string_value(json_array_get(order, i)),
                         said.fields[i].name.len);
    }
    json_decref(got);
    buf_deinit(&out);
}

static const char dialogues[] = "parlai:" GOLDEN_DIR "/dialogues.txt";
static const char *datatype; /* under test */

static void check_act(const json_t *line)
{
    bool done;

    if (strcmp(json_string_value(json_object_get(line, "datatype")), datatype) != 0)
        return;
    done = act();
    check_said(json_object_get(line, "message"), json_object_get(line, "field_order"));
    ck_assert_int_eq(done, json_is_true(json_object_get(line, "epoch_done")));
}

/* Every act in order, its fields in order, and when the epoch is done: with padding behind valid
 * data, and from the start again behind training data. */
START_TEST(test_acts)
{
    static const char *const datatypes[] = {"valid", "train:ordered"};

    for (size_t i = 0; i < 2; i++) {
        datatype = datatypes[i];
        ck_assert_int_eq(open_teacher(dialogues, datatype, false), STATUS_OK);
        ck_assert_uint_eq(golden_lines("parsed.jsonl", "act", check_act), 61);
        close_teacher();
    }
}
END_TEST

static void check_sizes(const json_t *line)
{
    ck_assert_int_eq(
        open_teacher(dialogues, json_string_value(json_object_get(line, "datatype")), false),
        STATUS_OK);
    ck_assert_uint_eq(teacher_n_episodes(teacher),
                      json_integer_value(json_object_get(line, "num_episodes")));
    ck_assert_uint_eq(teacher_n_examples(teacher),
                      json_integer_value(json_object_get(line, "num_examples")));
    close_teacher();
}

static void check_end(const json_t *line)
{
    json_int_t n = json_integer_value(json_object_get(line, "acts_made"));
    json_int_t n_padding = 0;

    ck_assert_int_eq(
        open_teacher(dialogues, json_string_value(json_object_get(line, "datatype")), false),
        STATUS_OK);
    while (n-- > 0) {
        (void)act();
        n_padding += act_is_padding(&said);
    }
    ck_assert_int_eq(n_padding, json_integer_value(json_object_get(line, "paddings")));
    close_teacher();
}

START_TEST(test_sizes_and_ends)
{
    ck_assert_uint_eq(golden_lines("parsed.jsonl", "sizes", check_sizes), 5);
    ck_assert_uint_eq(golden_lines("parsed.jsonl", "end", check_end), 5);
}
END_TEST

/* Hidden from the model, but scored by. */
static void check_hidden(const json_t *line)
{
    struct report r;
    struct act reply;
    const struct act *seen;

    ck_assert_int_eq(open_teacher(dialogues, "valid", true), STATUS_OK);
    (void)act();
    check_said(json_object_get(line, "message"), NULL);
    act_init(&reply, &memory);
    ck_assert_int_eq(act_set(&reply, ACT_TEXT, value_text((struct text){"Kitchen.", 8}), &err),
                     STATUS_OK);
    ck_assert_int_eq(participant_observe(clone, &reply, &seen, &err), STATUS_OK);
    ck_assert_int_eq(participant_observe(clone, &reply, &seen, &err), STATUS_OK);
    ck_assert_int_eq(metrics_report(&r, teacher_metrics(teacher), &err), STATUS_OK);
    ck_assert_double_eq(metric_value(report_get(&r, "exs")), 1); /* once */
    ck_assert_double_eq(metric_value(report_get(&r, "accuracy")), 1);
    report_deinit(&r);
    close_teacher();
}

START_TEST(test_hide_labels)
{
    ck_assert_uint_eq(golden_lines("parsed.jsonl", "hide_labels", check_hidden), 1);
}
END_TEST

/* --- odd input ------------------------------------------------------------------------------- */

static size_t n_otherwise;

static void check_episodes(const json_t *episodes)
{
    for (size_t e = 0; e < json_array_size(episodes); e++) {
        const json_t *episode = json_array_get(episodes, e);

        for (size_t i = 0; i < json_array_size(episode); i++) {
            json_t *want = json_deep_copy(json_array_get(episode, i));

            (void)act();
            json_object_set_new(want, "id", json_string("task"));
            json_object_del(want, "fo"); /* what ParlAI makes of a field without a colon */
            check_said(want, NULL);
            json_decref(want);
        }
    }
}

static void check_input(const json_t *line)
{
    const json_t *text = json_object_get(line, "file"), *episodes;
    char path[64], task[80];
    bool fails = json_object_get(line, "error") != NULL;
    const char *name = json_string_value(json_object_get(line, "name"));
    FILE *out;

    (void)snprintf(path, sizeof(path), "%s/task.txt", folder);
    (void)snprintf(task, sizeof(task), "parlai:%s", path);
    out = fopen(path, "we");
    ck_assert_ptr_nonnull(out);
    (void)fwrite(json_string_value(text), 1, json_string_length(text), out);
    ck_assert_int_eq(fclose(out), 0);

    episodes = json_object_get(line, "episodes");
    if (!fails && json_array_size(episodes) == 0) { /* an empty file is an error here */
        ck_assert_int_eq(open_teacher(task, "train:ordered", false), STATUS_INVALID);
        n_otherwise++;
    } else if (fails) {
        ck_assert_int_eq(open_teacher(task, "train:ordered", false), STATUS_INVALID);
        ck_assert_ptr_nonnull(strstr(err.text, "task.txt:1: "));
    } else {
        ck_assert_int_eq(open_teacher(task, "train:ordered", false), STATUS_OK);
        if (strcmp(name, "episode_done:False closes") == 0) { /* the trap: here it does not */
            ck_assert_uint_eq(teacher_n_episodes(teacher), 1);
            ck_assert_ptr_nonnull(strstr(teacher_warning(teacher), "episode_done:False"));
            n_otherwise++;
        } else {
            ck_assert_uint_eq(teacher_n_episodes(teacher), json_array_size(episodes));
            ck_assert_uint_eq(teacher_n_examples(teacher),
                              json_integer_value(json_object_get(line, "num_examples")));
            check_episodes(episodes);
        }
        close_teacher();
    }
    (void)unlink(path);
}

START_TEST(test_inputs)
{
    n_otherwise = 0;
    ck_assert_uint_eq(golden_lines("parsed.jsonl", "input", check_input), 15);
    ck_assert_uint_eq(n_otherwise, 3);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_acts, test_sizes_and_ends, test_hide_labels, test_inputs};
    int rc;

    if (!make_folder())
        return EXIT_FAILURE;
    rc = suite_run("golden/parlai/teacher", tests, sizeof(tests) / sizeof(tests[0]));
    remove_folder();
    return rc;
}
