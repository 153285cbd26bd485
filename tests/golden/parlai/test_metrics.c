/* metrics.jsonl: what ParlAI 1.7.2 counted, against ours, within 1e-9. */
#include "base/buf.h"
#include "tests/golden/parlai/golden.h"
#include "tests/unit/base/suite.h"
#include "worlds/metrics/metrics.h"
#include "worlds/score/normal.h"

enum { MAX_TEXTS = 128 };

static struct error err;

static struct text text_of(const json_t *s)
{
    return (struct text){json_string_value(s), json_string_length(s)};
}

static struct value list_of(const json_t *list, struct text *texts)
{
    size_t n = json_array_size(list);

    ck_assert_uint_le(n, MAX_TEXTS);
    for (size_t i = 0; i < n; i++)
        texts[i] = text_of(json_array_get(list, i));
    return value_list(texts, n);
}

static void check_near(const char *what, double got, const json_t *expected, const json_t *line)
{
    if (!golden_near(got, expected)) {
        char *all = json_dumps(line, 0), *want = json_dumps(expected, JSON_ENCODE_ANY);

        ck_abort_msg("%s is %.17g, not %s, in %.1000s", what, got, want, all);
    }
}

static void check_normal(const json_t *text, const json_t *expected)
{
    struct buf out;

    buf_init(&out, 1 << 16);
    ck_assert_int_eq(normalise(&out, json_string_value(text), json_string_length(text)), STATUS_OK);
    ck_assert_uint_eq(out.len, json_string_length(expected));
    ck_assert_mem_eq(out.data, json_string_value(expected), out.len);
    buf_deinit(&out);
}

/* --- replies --------------------------------------------------------------------------------- */

static struct metrics *open_metrics(const char *families)
{
    struct metrics *m;
    unsigned which;

    ck_assert_int_eq(metrics_families(&which, families, &err), STATUS_OK);
    ck_assert_int_eq(metrics_open(&m, which, 1, &err), STATUS_OK);
    return m;
}

static void evaluate(struct metrics *m, const struct text *text, const json_t *labels,
                     const json_t *candidates, const struct metric_list *own)
{
    struct text label_texts[MAX_TEXTS], candidate_texts[MAX_TEXTS];
    struct value gold = list_of(labels, label_texts);
    struct arena arena;
    struct act reply;

    arena_init(&arena, 1 << 20);
    act_init(&reply, &arena);
    if (text != NULL)
        ck_assert_int_eq(act_set(&reply, ACT_TEXT, value_text(*text), &err), STATUS_OK);
    if (candidates != NULL)
        ck_assert_int_eq(
            act_set(&reply, ACT_TEXT_CANDIDATES, list_of(candidates, candidate_texts), &err),
            STATUS_OK);
    if (own != NULL)
        ck_assert_int_eq(act_set(&reply, ACT_METRICS, value_metrics(own), &err), STATUS_OK);
    ck_assert_int_eq(metrics_evaluate(m, 0, &gold, &reply, &err), STATUS_OK);
    arena_deinit(&arena);
}

static size_t n_rouge, n_rouge_equal;

static void check_case(const json_t *line)
{
    static const char *const bleu[] = {"bleu-1", "bleu-2", "bleu-3", "bleu-4"};
    static const char *const rouge[] = {"rouge_1", "rouge_2", "rouge_L"};
    static const char *const plain[] = {"accuracy", "precision", "recall", "f1"};
    struct metrics *m = open_metrics("all");
    struct text pred = text_of(json_object_get(line, "pred"));
    const json_t *golds = json_object_get(line, "golds");
    struct report r;
    size_t i;

    check_normal(json_object_get(line, "pred"), json_object_get(line, "norm_pred"));
    for (i = 0; i < json_array_size(golds); i++)
        check_normal(json_array_get(golds, i),
                     json_array_get(json_object_get(line, "norm_golds"), i));
    evaluate(m, &pred, golds, NULL, NULL);
    ck_assert_int_eq(metrics_report(&r, m, &err), STATUS_OK);
    for (i = 0; i < 4; i++) {
        check_near(plain[i], metric_value(report_get(&r, plain[i])),
                   json_object_get(line, plain[i]), line);
        check_near(bleu[i], metric_value(report_get(&r, bleu[i])),
                   json_array_get(json_object_get(line, "bleu"), i), line);
    }
    for (i = 0; i < 3; i++) {
        const json_t *expected = json_array_get(json_object_get(line, "rouge_r"), i);
        double got = metric_value(report_get(&r, rouge[i]));

        n_rouge++;
        n_rouge_equal += golden_near(got, expected);
    }
    report_deinit(&r);
    metrics_close(m);
}

/* Normalising, accuracy, precision, recall, F1 and BLEU of 100 pairs. ROUGE: all but "children"
 * and "child", which py-rouge's table of irregular words makes equal (ROUGE-1 and -L of one pair).
 */
START_TEST(test_cases)
{
    n_rouge = n_rouge_equal = 0;
    ck_assert_uint_eq(golden_lines("metrics.jsonl", "case", check_case), 100);
    ck_assert_uint_eq(n_rouge, 300);
    ck_assert_uint_eq(n_rouge_equal, 298);
}
END_TEST

static void check_distinct(const json_t *line)
{
    const json_t *corpus = json_object_get(line, "corpus");
    struct metrics *m = open_metrics("distinct");
    json_t *labels = json_array();
    struct report r;

    for (size_t i = 0; i < json_array_size(corpus); i++) {
        struct text reply = text_of(json_array_get(corpus, i));

        evaluate(m, &reply, labels, NULL, NULL);
    }
    ck_assert_int_eq(metrics_report(&r, m, &err), STATUS_OK);
    check_near("inter 1", metric_value(report_get(&r, "interdistinct-1")),
               json_object_get(line, "inter_1"), line);
    check_near("inter 2", metric_value(report_get(&r, "interdistinct-2")),
               json_object_get(line, "inter_2"), line);
    check_near("intra 1", metric_value(report_get(&r, "intradistinct-1")),
               json_object_get(line, "intra_1"), line);
    check_near("intra 2", metric_value(report_get(&r, "intradistinct-2")),
               json_object_get(line, "intra_2"), line);
    report_deinit(&r);
    metrics_close(m);
    json_decref(labels);
}

START_TEST(test_distinct)
{
    ck_assert_uint_eq(golden_lines("metrics.jsonl", "distinct", check_distinct), 10);
}
END_TEST

static void check_hits(const json_t *line)
{
    const json_t *candidates = json_object_get(line, "text_candidates");
    struct metrics *m = open_metrics("none");
    json_t *many = NULL, *expected;
    struct report r;
    const char *name;

    if (json_is_string(candidates)) { /* "c0..c119" */
        many = json_array();
        for (int i = 0; i < 120; i++)
            json_array_append_new(many, json_sprintf("c%d", i));
        candidates = many;
    }
    evaluate(m, NULL, json_object_get(line, "labels"), json_is_null(candidates) ? NULL : candidates,
             NULL);
    ck_assert_int_eq(metrics_report(&r, m, &err), STATUS_OK);
    json_object_foreach(json_object_get(line, "hits"), name, expected)
        check_near(name, metric_value(report_get(&r, name)), expected, line);
    ck_assert_uint_eq(r.list.n, json_object_size(json_object_get(line, "hits")) + 1); /* exs */
    report_deinit(&r);
    metrics_close(m);
    json_decref(many);
}

START_TEST(test_hits)
{
    ck_assert_uint_eq(golden_lines("metrics.jsonl", "hits", check_hits), 16);
}
END_TEST

/* --- metrics by themselves ------------------------------------------------------------------- */

struct parts {
    struct metric_list list;
    struct named_metric items[4];
};

/* ["sum", x], ["avg", num, den], …; a leading g is the global variant. */
static struct metric metric_of(const json_t *part, struct parts *parts)
{
    const char *kind = json_string_value(json_array_get(part, 0));
    bool is_global = kind[0] == 'g' || strcmp(kind, "legacy") == 0;
    double x[3] = {0};
    struct metric m = {0};
    const char *name;
    json_t *of_task;

    kind += kind[0] == 'g';
    for (size_t i = 0; i < 3; i++)
        x[i] = golden_number(json_array_get(part, i + 1));
    if (strcmp(kind, "sum") == 0)
        m = metric_sum(x[0]);
    else if (strcmp(kind, "avg") == 0)
        m = metric_average(x[0], x[1]);
    else if (strcmp(kind, "legacy") == 0)
        m = metric_average(x[0], 1);
    else if (strcmp(kind, "fixed") == 0)
        m = metric_fixed(x[0]);
    else if (strcmp(kind, "timer") == 0)
        m = metric_timer(x[0], x[1], x[2]);
    else if (strcmp(kind, "ppl") == 0)
        m = metric_ppl(x[0], x[1]);
    else
        m.kind = METRIC_MACRO;
    if (m.kind == METRIC_MACRO) {
        parts->list = (struct metric_list){parts->items, 0};
        json_object_foreach(json_array_get(part, 1), name, of_task) parts->items[parts->list.n++] =
            (struct named_metric){{name, strlen(name)}, metric_of(of_task, NULL)};
        m.parts = &parts->list;
    }
    m.is_global = is_global;
    return m;
}

static const char *class_of(const struct metric *m)
{
    static const char *const names[] = {
        [METRIC_SUM] = "SumMetric",     [METRIC_AVERAGE] = "AverageMetric",
        [METRIC_FIXED] = "FixedMetric", [METRIC_TIMER] = "TimerMetric",
        [METRIC_PPL] = "PPLMetric",     [METRIC_MACRO] = "MacroAverageMetric",
    };

    return names[m->kind];
}

static void check_metric(const char *name, const struct metric *m, const json_t *expected,
                         const json_t *line)
{
    const char *class = json_string_value(json_object_get(expected, "class"));
    bool is_global = strncmp(class, "Global", 6) == 0 || strcmp(class, "LegacyMetric") == 0;

    ck_assert_ptr_nonnull(m);
    check_near(name, metric_value(m), json_object_get(expected, "value"), line);
    ck_assert_int_eq(m->is_global, is_global);
    if (strcmp(class, "LegacyMetric") == 0)
        class = "AverageMetric";
    ck_assert_str_eq(class_of(m), class + (strncmp(class, "Global", 6) == 0 ? 6 : 0));
}

static void check_merge(const json_t *line)
{
    const json_t *list = json_object_get(line, "parts");
    const json_t *error = json_object_get(line, "error");
    struct parts parts[4];
    struct arena arena;
    struct metric m;

    arena_init(&arena, 1 << 20);
    m = metric_of(json_array_get(list, 0), &parts[0]);
    for (size_t i = 1; i < json_array_size(list); i++) {
        struct metric b = metric_of(json_array_get(list, i), &parts[i]);

        ck_assert_int_eq(metric_merge(&m, &b, &arena, &err),
                         error == NULL ? STATUS_OK : STATUS_INVALID);
    }
    if (error == NULL)
        check_metric("merged", &m, json_object_get(line, "result"), line);
    else if (m.kind == METRIC_PPL) /* Python's OverflowError */
        ck_assert(isinf(metric_value(&m)));
    arena_deinit(&arena);
}

START_TEST(test_merge)
{
    ck_assert_uint_eq(golden_lines("metrics.jsonl", "merge", check_merge), 32);
}
END_TEST

/* --- reports --------------------------------------------------------------------------------- */

static void report_of(struct report *r, const json_t *from)
{
    const char *name;
    json_t *part;

    *r = (struct report){0};
    json_object_foreach((json_t *)(uintptr_t)from, name, part)
    {
        struct parts parts;
        struct metric m = metric_of(part, &parts);

        ck_assert_int_eq(report_add(r, (struct text){name, strlen(name)}, &m, &err), STATUS_OK);
    }
}

static void check_report(const struct report *got, const json_t *expected, const json_t *line)
{
    const char *name;
    json_t *m;

    ck_assert_uint_eq(got->list.n, json_object_size(expected));
    json_object_foreach((json_t *)(uintptr_t)expected, name, m)
        check_metric(name, report_get(got, name), m, line);
}

static void check_named(const json_t *line)
{
    struct report reports[4], out = {0};
    const struct report *of[4];
    struct text tasks[4];
    bool fails = json_object_get(line, "error") != NULL;
    bool micro = json_is_true(json_object_get(line, "micro_average"));
    const char *name;
    json_t *from;
    size_t n = 0;

    json_object_foreach(json_object_get(line, "reports"), name, from)
    {
        tasks[n] = (struct text){name, strlen(name)};
        report_of(&reports[n], from);
        of[n] = &reports[n];
        n++;
    }
    ck_assert_int_eq(report_aggregate_named(&out, tasks, of, n, micro, &err),
                     fails ? STATUS_INVALID : STATUS_OK);
    if (!fails)
        check_report(&out, json_object_get(line, "result"), line);
    report_deinit(&out);
    while (n > 0)
        report_deinit(&reports[--n]);
}

START_TEST(test_aggregate_named)
{
    ck_assert_uint_eq(golden_lines("metrics.jsonl", "aggregate_named", check_named), 28);
}
END_TEST

static void check_unnamed(const json_t *line)
{
    struct report reports[4], out = {0};
    const struct report *of[4];
    const json_t *list = json_object_get(line, "reports");
    bool fails = json_object_get(line, "error") != NULL;
    size_t n = json_array_size(list);

    for (size_t i = 0; i < n; i++) {
        report_of(&reports[i], json_array_get(list, i));
        of[i] = &reports[i];
    }
    ck_assert_int_eq(report_aggregate_unnamed(&out, of, n, &err),
                     fails ? STATUS_INVALID : STATUS_OK);
    if (!fails)
        check_report(&out, json_object_get(line, "result"), line);
    report_deinit(&out);
    while (n > 0)
        report_deinit(&reports[--n]);
}

START_TEST(test_aggregate_unnamed)
{
    ck_assert_uint_eq(golden_lines("metrics.jsonl", "aggregate_unnamed", check_unnamed), 5);
}
END_TEST

static void check_values(const struct report *got, const json_t *expected, const json_t *line)
{
    const char *name;
    json_t *value;

    ck_assert_uint_eq(got->list.n, json_object_size(expected));
    json_object_foreach((json_t *)(uintptr_t)expected, name, value)
    {
        ck_assert_msg(report_get(got, name) != NULL, "%s", name);
        check_near(name, metric_value(report_get(got, name)), value, line);
    }
}

/* A bare number is a global average over replies; null is nothing. */
static void own_metrics(const json_t *from, struct parts *out)
{
    const char *name;
    json_t *part;

    out->list = (struct metric_list){out->items, 0};
    json_object_foreach((json_t *)(uintptr_t)from, name, part)
    {
        struct named_metric *at = &out->items[out->list.n];

        if (json_is_null(part))
            continue;
        at->name = (struct text){name, strlen(name)};
        at->metric = json_is_number(part) ? metric_average(json_number_value(part), 1)
                                          : metric_of(part, NULL);
        out->list.n++;
    }
}

/* What the store says after all replies, and what each reply alone would have given. */
static void check_sequence(const json_t *line)
{
    const char *families = json_string_value(json_object_get(line, "metrics_list"));
    const json_t *replies = json_object_get(line, "replies");
    const json_t *recent = json_object_get(line, "recent");
    struct metrics *m = open_metrics(families);
    struct report r;

    for (size_t i = 0; i < json_array_size(replies); i++) {
        const json_t *reply = json_array_get(replies, i);
        const json_t *text = json_object_get(reply, "text");
        const json_t *candidates = json_object_get(reply, "text_candidates");
        struct metrics *alone = open_metrics(families);
        struct text said = text_of(text);
        struct parts own;

        own_metrics(json_object_get(reply, "metrics"), &own);
        for (int k = 0; k < 2; k++)
            evaluate(k == 0 ? m : alone, json_is_null(text) ? NULL : &said,
                     json_object_get(reply, "labels"), json_is_null(candidates) ? NULL : candidates,
                     own.list.n > 0 ? &own.list : NULL);
        if (json_is_array(recent)) {
            ck_assert_int_eq(metrics_report(&r, alone, &err), STATUS_OK);
            check_values(&r, json_array_get(recent, i), line);
            report_deinit(&r);
        }
        metrics_close(alone);
    }
    for (int again = 0; again < 2; again++) { /* a report can be asked twice */
        ck_assert_int_eq(metrics_report(&r, m, &err), STATUS_OK);
        check_values(&r, json_object_get(line, "report"), line);
        report_deinit(&r);
    }
    metrics_close(m);
}

START_TEST(test_reply_sequences)
{
    ck_assert_uint_eq(golden_lines("metrics.jsonl", "reply_sequence", check_sequence), 7);
}
END_TEST

/* The calls at the edge. No labels: BLEU is 0 where ParlAI raises; no tasks: NaN likewise. */
START_TEST(test_edges)
{
    struct metrics *m = open_metrics("all");
    struct text a = {"a1", 2};
    json_t *none = json_array();
    struct report r;
    const struct metric_list no_parts = {NULL, 0};
    const struct metric macro = {.kind = METRIC_MACRO, .parts = &no_parts};

    evaluate(m, &a, none, NULL, NULL);
    ck_assert_int_eq(metrics_report(&r, m, &err), STATUS_OK);
    ck_assert_double_eq(metric_value(report_get(&r, "accuracy")), 0);
    ck_assert_double_eq(metric_value(report_get(&r, "f1")), 0);
    ck_assert_double_eq(metric_value(report_get(&r, "bleu-4")), 0);
    ck_assert_double_eq(metric_value(report_get(&r, "rouge_1")), 0);
    ck_assert(isnan(metric_value(&macro)));
    report_deinit(&r);
    metrics_close(m);
    json_decref(none);
}
END_TEST

SUITE_MAIN("golden/parlai/metrics", test_cases, test_distinct, test_hits, test_merge,
           test_aggregate_named, test_aggregate_unnamed, test_reply_sequences, test_edges)
