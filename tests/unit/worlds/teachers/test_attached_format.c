/* Data that another process gives, a fake one: what the task says reaches it, and lines come in
 * whatever pieces of whole lines. */
#include <stdio.h>
#include <string.h>

#include "tests/unit/base/suite.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/teacher.h"

struct fake_data {
    const char *const *chunks; /* NULL ends them; one that is "!" is a failure */
    char opened[100], asked[100];
    unsigned n_open;
};

static enum status fake_open(void **out, void *arg, const char *name, const char *fold,
                             const char *argument, struct error *err)
{
    struct fake_data *f = arg;

    if (strcmp(name, "shut") == 0)
        return error_set(err, STATUS_UNAVAILABLE, "it is shut");
    (void)snprintf(f->opened, sizeof(f->opened), "%s %s '%s'", name, fold, argument);
    f->n_open++;
    *out = f;
    return STATUS_OK;
}

static enum status fake_next(void *opened, uint64_t n_episodes, bool is_between, const char **out,
                             size_t *ret_len, struct error *err)
{
    struct fake_data *f = opened;
    size_t len = strlen(f->asked);

    (void)snprintf(f->asked + len, sizeof(f->asked) - len, "%d%s ", (int)n_episodes,
                   is_between ? "" : "+");
    if (*f->chunks != NULL && strcmp(*f->chunks, "!") == 0)
        return error_set(err, STATUS_UNAVAILABLE, "it is gone");
    *out = *f->chunks == NULL ? "" : *f->chunks++;
    *ret_len = strlen(*out);
    return STATUS_OK;
}

static void fake_close(void *opened)
{
    ((struct fake_data *)opened)->n_open--;
}

static enum status open_attached(struct teacher **out, const char *task, struct fake_data *f,
                                 bool skips, struct error *err)
{
    const struct attached_data data = {fake_open, fake_next, fake_close, f};
    struct teacher_config config;

    teacher_config_init(&config);
    config.skip_bad = skips;
    config.attached = f == NULL ? NULL : &data;
    return teacher_open(out, task, &config, err);
}

#define TURN(text, done) "{\"text\":\"" text "\",\"labels\":[\"x\"],\"episode_done\":" done "}\n"

/* An episode may be in several pieces; what has come whole is said at each. */
START_TEST(test_pieces)
{
    static const char *const chunks[] = {TURN("a", "false") TURN("b", "true") TURN("c", "false"),
                                         TURN("d", "true"), TURN("e", "true") TURN("f", "true"),
                                         NULL};
    struct fake_data f = {.chunks = chunks};
    struct teacher *t = NULL;
    struct error err = {0};

    ck_assert_int_eq(open_attached(&t, "attached:sums:9:a/b", &f, false, &err), STATUS_OK);
    ck_assert_str_eq(f.opened, "sums valid '9:a/b'");
    ck_assert_str_eq(f.asked, "0 1+ 2 4 ");
    ck_assert_uint_eq(teacher_n_episodes(t), 4);
    ck_assert_uint_eq(teacher_n_examples(t), 6);
    ck_assert_uint_eq(f.n_open, 0);
    participant_unref(teacher_participant(t));
}
END_TEST

/* A line that is wrong is named by its number, or left out; every failure closes the pass. */
START_TEST(test_wrong)
{
    static const char *const bad[] = {TURN("a", "true"), "{\"text\":7}\n" TURN("b", "true"), NULL};
    static const char *const odd[] = {"\xff\n", NULL}, *const gone[] = {TURN("a", "true"), "!"};
    static const char *const none[] = {NULL};
    static const struct {
        const char *task;
        const char *const *chunks;
        const char *why;
    } faults[] = {
        {"attached:sums", bad, "attached:sums: line 2: "},
        {"attached:sums", odd, "attached:sums: line 1: not UTF-8"},
        {"attached:sums", gone, "attached:sums: it is gone"},
        {"attached:sums", none, "sums: no examples"},
        {"attached:shut", none, "attached:shut: it is shut"},
        {"attached::x", none, "the name must have 1 to 63"},
        {"attached:a/b:x", none, "the name must have 1 to 63"},
    };
    struct teacher *t = NULL;
    struct fake_data f;
    struct error err = {0};

    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        f = (struct fake_data){.chunks = faults[i].chunks};
        ck_assert_int_ne(open_attached(&t, faults[i].task, &f, false, &err), STATUS_OK);
        ck_assert_msg(strstr(err.text, faults[i].why) != NULL, "'%s' has no '%s'", err.text,
                      faults[i].why);
        ck_assert_uint_eq(f.n_open, 0);
    }
    ck_assert_int_eq(open_attached(&t, "attached:sums", NULL, false, &err), STATUS_UNIMPLEMENTED);
    f = (struct fake_data){.chunks = bad};
    ck_assert_int_eq(open_attached(&t, "attached:sums", &f, true, &err), STATUS_OK);
    ck_assert_uint_eq(teacher_n_skipped(t), 1);
    ck_assert_uint_eq(teacher_n_examples(t), 2);
    participant_unref(teacher_participant(t));
}
END_TEST

SUITE_MAIN("worlds/teachers/attached_format", test_pieces, test_wrong)
