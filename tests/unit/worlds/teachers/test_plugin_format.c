/* Data that a shared object gives: faulty_teacher.c, three turns that are one episode, since none
 * says that it is the last. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/unit/base/suite.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/teacher.h"

static enum status open_task(struct teacher **out, const char *path, const char *argument,
                             bool skips, struct error *err)
{
    struct teacher_config config;
    char task[4096];

    teacher_config_init(&config);
    config.skip_bad = skips;
    (void)snprintf(task, sizeof(task), "plugin:%s%s%s", path, argument[0] == '\0' ? "" : ":",
                   argument);
    return teacher_open(out, task, &config, err);
}

/* What is wrong with the object, or with a turn, is one line that names both. */
START_TEST(test_faults_named)
{
    static const struct {
        const char *path, *argument, *why;
    } faults[] = {
        {TEACHER_ABI, "", "its teacher has ABI 7, but this parley needs 1"},
        {TEACHER_SIZE, "", "its parley_teacher has 8 bytes"},
        {TEACHER_NO_NEXT, "", "its parley_teacher has no next"},
        {PLUGIN_ECHO, "", "it defines no parley_teacher"},
        {TEACHER_WHOLE, "shut", "its teacher cannot be opened"},
        {TEACHER_WHOLE, "fold", "it is valid"},
        {TEACHER_WHOLE, "fail", "turn 2: it has no more"},
        {TEACHER_WHOLE, "utf8", "turn 2: not UTF-8"},
        {TEACHER_WHOLE, "no_text", "turn 2: the text is missing"},
        {TEACHER_WHOLE, "no_labels", "turn 2: the labels are missing"},
        {TEACHER_WHOLE, "short_labels", "turn 2: text 1 of labels is missing"},
    };
    struct teacher *t = NULL;
    struct error err = {0};

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        ck_assert_int_ne(open_task(&t, faults[i].path, faults[i].argument, false, &err), STATUS_OK);
        ck_assert_msg(strstr(err.text, faults[i].why) != NULL && strstr(err.text, ".so") != NULL,
                      "'%s' has no '%s'", err.text, faults[i].why);
    }
}
END_TEST

/* Turns become acts, an episode ends where the data do; bad ones are left out if that is wanted. */
START_TEST(test_turns)
{
    struct participant_clone *c;
    struct teacher *t = NULL;
    struct error err = {0};
    struct arena arena;
    struct act act;

    ck_assert_int_eq(open_task(&t, TEACHER_WHOLE, "utf8", true, &err), STATUS_OK);
    ck_assert_uint_eq(teacher_n_skipped(t), 1);
    ck_assert_uint_eq(teacher_n_examples(t), 2);
    participant_unref(teacher_participant(t));
    ck_assert_int_eq(open_task(&t, TEACHER_WHOLE, "a/b.c", false, &err), STATUS_OK);
    ck_assert_str_eq(teacher_id(t), "teacher_whole"); /* without the argument */
    ck_assert_uint_eq(teacher_n_episodes(t), 1);
    ck_assert_uint_eq(teacher_n_examples(t), 3);
    c = xalloc(participant_clone_size(teacher_participant(t)));
    ck_assert_int_eq(
        participant_clone_init(c, teacher_participant(t), &(struct participant_slot){0, 0}, &err),
        STATUS_OK);
    arena_init(&arena, 1 << 16);
    for (int i = 0; i < 3; i++) {
        act_init(&act, &arena);
        ck_assert_int_eq(teacher_participant(t)->type->act(c, &act, &err), STATUS_OK);
        ck_assert_str_eq(act_text(&act).text, "well");
        ck_assert_float_eq((float)act_get(&act, ACT_REWARD)->real, 0.5f);
        ck_assert_int_eq(act_is(&act, ACT_EPISODE_DONE), i == 2);
    }
    arena_deinit(&arena);
    participant_clone_deinit(c);
    free(c);
    participant_unref(teacher_participant(t));
}
END_TEST

/* Without memory it is said so, and nothing leaks. */
START_TEST(test_no_memory)
{
    enum status rc = STATUS_EXHAUSTED;
    struct teacher *t = NULL;
    struct error err = {0};
    long n;

    for (n = 0; rc != STATUS_OK; n++) {
        fault_after = n;
        rc = open_task(&t, TEACHER_WHOLE, "", false, &err);
        fault_after = -1;
        ck_assert(rc == STATUS_OK || rc == STATUS_EXHAUSTED);
    }
    ck_assert_int_gt(n, 5);
    participant_unref(teacher_participant(t));
}
END_TEST

SUITE_MAIN("worlds/teachers/plugin_format", test_faults_named, test_turns, test_no_memory)
