/* Data that another process gives, a fake one: what the task says reaches it, and lines come in
 * whatever pieces of whole lines. The same process may judge replies. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tests/unit/base/suite.h"
#include "worlds/metrics/metrics.h"
#include "worlds/participant/participant.h"
#include "worlds/teachers/teacher.h"

struct fake_data {
    const char *const *chunks; /* NULL ends them; one that is "!" is a failure */
    char opened[100], asked[100];
    unsigned n_open;
    const char *verdict; /* on each reply; NULL: it judges none */
    char judged[1000], verdicts[1000];
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

static enum status fake_judge_open(void **out, void *arg, const char *name, const char *fold,
                                   const char *argument, struct error *err)
{
    struct fake_data *f = arg;

    f->n_open += f->verdict != NULL;
    *out = f->verdict != NULL ? f : NULL;
    return STATUS_OK;
}

static enum status fake_judge(void *opened, const char *lines, const char **out, size_t *ret_len,
                              struct error *err)
{
    struct fake_data *f = opened;
    size_t n = 0;

    (void)snprintf(f->judged, sizeof(f->judged), "%s", lines);
    for (const char *at = lines; *at != '\0'; at++)
        if (*at == '\n')
            n += (size_t)snprintf(f->verdicts + n, sizeof(f->verdicts) - n, "%s\n", f->verdict);
    *out = f->verdicts;
    *ret_len = strlen(*out);
    return STATUS_OK;
}

static enum status open_attached(struct teacher **out, const char *task, struct fake_data *f,
                                 bool skips, struct error *err)
{
    static struct attached_data data; /* outlives the teacher */
    struct teacher_config config;

    data = (struct attached_data){.open = fake_open,
                                  .next = fake_next,
                                  .judge_open = fake_judge_open,
                                  .judge = fake_judge,
                                  .close = fake_close,
                                  .arg = f};
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

/* Answers "r" to each of the teacher's acts, and returns the status of the report. */
static enum status report_of(struct report *out, struct teacher *t, struct error *err)
{
    const struct participant_slot place = {0};
    struct participant *p = teacher_participant(t);
    struct participant_clone *c = try_alloc(1, participant_clone_size(p));
    const struct act *ignored;
    struct arena arena;
    struct act act, reply;

    arena_init(&arena, 1 << 20);
    act_init(&reply, &arena);
    ck_assert_int_eq(act_set(&reply, ACT_TEXT, value_text((struct text){"r", 1}), err), STATUS_OK);
    ck_assert_int_eq(participant_clone_init(c, p, &place, err), STATUS_OK);
    do {
        act_init(&act, &arena);
        ck_assert_int_eq(p->type->act(c, &act, err), STATUS_OK);
        ck_assert_int_eq(participant_observe(c, &reply, &ignored, err), STATUS_OK);
    } while (!act_is_padding(&act));
    participant_clone_deinit(c);
    free(c);
    arena_deinit(&arena);
    return p->type->report(out, p, err);
}

/* Each labelled act is judged once, with its reply; wrong verdicts are errors of the report. */
START_TEST(test_judged)
{
    static const char *const chunks[] = {TURN("a", "false") TURN("b", "true"), NULL};
    static const struct {
        const char *verdict, *why;
    } wrong[] = {{"", "judged 0 of 2 replies"},
                 {"[]", "must be a JSON object"},
                 {"{\"m\":{\"half\":1}}", "metric 'm' must be"},
                 {"{\"m\":1}\n{}", "judged 4 of 2 replies"}};
    struct fake_data f = {.chunks = chunks, .verdict = "{\"mine\":[1,4],\"n\":{\"sum\":1}}"};
    struct report report = {0};
    struct teacher *t = NULL;
    struct error err = {0};

    ck_assert_int_eq(open_attached(&t, "attached:sums", &f, false, &err), STATUS_OK);
    ck_assert_int_eq(report_of(&report, t, &err), STATUS_OK);
    ck_assert_double_eq(metric_value(report_get(&report, "mine")), 0.25);
    ck_assert_double_eq(metric_value(report_get(&report, "n")), 2);
    ck_assert_str_eq(f.judged,
                     "{\"act\":{\"text\":\"a\",\"episode_done\":false,\"id\":\"sums\","
                     "\"eval_labels\":[\"x\"]},\"labels\":[\"x\"],\"reply\":{\"text\":\"r\"}}\n"
                     "{\"act\":{\"text\":\"b\",\"episode_done\":true,\"id\":\"sums\","
                     "\"eval_labels\":[\"x\"]},\"labels\":[\"x\"],\"reply\":{\"text\":\"r\"}}\n");
    report_deinit(&report);
    participant_unref(teacher_participant(t));
    ck_assert_uint_eq(f.n_open, 0);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        f = (struct fake_data){.chunks = chunks, .verdict = wrong[i].verdict};
        ck_assert_int_eq(open_attached(&t, "attached:sums", &f, false, &err), STATUS_OK);
        ck_assert_int_ne(report_of(&report, t, &err), STATUS_OK);
        ck_assert_msg(strstr(err.text, wrong[i].why) != NULL, "'%s' has no '%s'", err.text,
                      wrong[i].why);
        participant_unref(teacher_participant(t));
    }
}
END_TEST

/* Every form of a metric, and what is none. */
START_TEST(test_metrics_read)
{
    static const struct {
        const char *json;
        enum metric_kind kind;
        double value; /* NAN: it is refused */
    } forms[] = {{"2.5", METRIC_AVERAGE, 2.5},
                 {"[3,4]", METRIC_AVERAGE, 0.75},
                 {"{\"sum\":7}", METRIC_SUM, 7},
                 {"{\"fixed\":1e300}", METRIC_FIXED, 1e300},
                 {"{\"ppl\":[0,4]}", METRIC_PPL, 1},
                 {"{\"timer\":[6,1,3]}", METRIC_TIMER, 3},
                 {"{\"timer\":[6,3,1]}", METRIC_TIMER, (double)NAN},
                 {"{\"ppl\":1}", METRIC_PPL, (double)NAN},
                 {"{\"sum\":1,\"n\":2}", METRIC_SUM, (double)NAN},
                 {"{}", METRIC_SUM, (double)NAN},
                 {"[1]", METRIC_SUM, (double)NAN},
                 {"[1,\"x\"]", METRIC_SUM, (double)NAN},
                 {"true", METRIC_SUM, (double)NAN},
                 {"null", METRIC_SUM, (double)NAN}};
    struct metric_list list;
    struct arena arena;
    struct error err;
    char text[100];

    arena_init(&arena, 1 << 16);
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const int n = snprintf(text, sizeof(text), "{\"m\":%s}", forms[i].json);
        const enum status rc =
            metric_list_read(&list, (struct text){text, (size_t)n}, &arena, &err);

        ck_assert_int_eq(rc, isnan(forms[i].value) ? STATUS_INVALID : STATUS_OK);
        if (rc != STATUS_OK)
            continue;
        ck_assert_uint_eq(list.n, 1);
        ck_assert_int_eq(list.items[0].metric.kind, forms[i].kind);
        ck_assert_double_eq(metric_value(&list.items[0].metric), forms[i].value);
    }
    ck_assert_int_eq(metric_list_read(&list, (struct text){"{}", 2}, &arena, &err), STATUS_OK);
    ck_assert_uint_eq(list.n, 0);
    ck_assert_int_eq(metric_list_read(&list, (struct text){NULL, 0}, &arena, &err), STATUS_INVALID);
    arena_deinit(&arena);
}
END_TEST

SUITE_MAIN("worlds/teachers/attached_format", test_pieces, test_wrong, test_judged,
           test_metrics_read)
