/* message.jsonl: ParlAI's Message and its text line format, against ours. Where we differ, we do so
 * on purpose, and the test says how. */
#include "tests/golden/parlai/golden.h"
#include "tests/unit/base/suite.h"
#include "worlds/message/text_line.h"

enum { MEMORY = 1 << 20 };

static struct error err;

/* The act of a JSON object. The text lies in the arena too. */
static struct act act_of(const json_t *object, struct arena *arena)
{
    char *text = json_dumps(object, JSON_COMPACT), *kept;
    struct act a;

    kept = arena_strndup(arena, text, strlen(text));
    ck_assert_ptr_nonnull(kept);
    ck_assert_msg(act_from_json(&a, kept, strlen(kept), arena, &err) == STATUS_OK, "%s: %s", text,
                  err.text);
    free(text);
    return a;
}

static struct value value_of(const json_t *x, struct arena *arena)
{
    json_t *object = json_object();
    struct act a;

    json_object_set(object, "value", (json_t *)(uintptr_t)x);
    a = act_of(object, arena);
    json_decref(object);
    return a.fields[0].value;
}

static struct text text_of(const json_t *s)
{
    return (struct text){json_string_value(s), json_string_length(s)};
}

static void check_act(const struct act *got, const json_t *expected)
{
    struct buf out;
    json_t *back;

    buf_init(&out, MEMORY);
    ck_assert_int_eq(act_to_json(got, &out, &err), STATUS_OK);
    back = json_loads(out.data, JSON_ALLOW_NUL, NULL);
    ck_assert_ptr_nonnull(back);
    if (!json_equal(back, (json_t *)(uintptr_t)expected)) {
        char *want = json_dumps(expected, 0);

        ck_abort_msg("%s is not %s", out.data, want);
    }
    json_decref(back);
    buf_deinit(&out);
}

/* --- operations ------------------------------------------------------------------------------ */

static void put_all(struct act *a, const json_t *from, struct arena *arena)
{
    const char *name;
    json_t *x;

    json_object_foreach((json_t *)(uintptr_t)from, name, x) ck_assert_int_eq(
        act_force_named(a, (struct text){name, strlen(name)}, value_of(x, arena), &err), STATUS_OK);
}

static void check_value(const struct value *got, const json_t *expected, struct arena *arena)
{
    struct act a;

    if (got == NULL) {
        ck_assert(json_is_null(expected));
        return;
    }
    act_init(&a, arena);
    ck_assert_int_eq(act_set_named(&a, (struct text){"x", 1}, *got, &err), STATUS_OK);
    {
        json_t *object = json_object();

        json_object_set(object, "x", (json_t *)(uintptr_t)expected);
        check_act(&a, object);
        json_decref(object);
    }
}

static void check_step(struct act *a, const json_t *step, struct arena *arena)
{
    const json_t *op = json_object_get(step, "op"), *result = json_object_get(step, "result");
    const char *what = json_string_value(json_array_get(op, 0));
    struct text name = text_of(json_array_get(op, 1));
    const json_t *x = json_array_get(op, 2);
    bool fails = json_object_get(step, "error") != NULL, was_there;
    const struct value *there = name.text == NULL ? NULL : act_get_named(a, name.text, name.len);
    struct act other;

    if (strcmp(what, "set") == 0) {
        ck_assert_int_eq(act_set_named(a, name, value_of(x, arena), &err),
                         fails ? STATUS_EXISTS : STATUS_OK);
    } else if (strcmp(what, "force_set") == 0) {
        ck_assert_int_eq(act_force_named(a, name, value_of(x, arena), &err), STATUS_OK);
    } else if (strcmp(what, "get") == 0) {
        check_value(there, result, arena);
    } else if (strcmp(what, "pop") == 0 || strcmp(what, "del") == 0) {
        if (what[0] == 'p' && !fails)
            check_value(there, result, arena);
        ck_assert_int_eq(act_remove(a, name.text, name.len, &was_there, &err), STATUS_OK);
        ck_assert_int_eq(was_there, !fails);
    } else if (strcmp(what, "setdefault") == 0) {
        if (there == NULL)
            ck_assert_int_eq(act_set_named(a, name, value_of(x, arena), &err), STATUS_OK);
        check_value(act_get_named(a, name.text, name.len), result, arena);
    } else if (strcmp(what, "update") == 0 || strcmp(what, "ior") == 0) {
        put_all(a, json_array_get(op, 1), arena);
    } else if (strcmp(what, "or") == 0 || strcmp(what, "copy_set") == 0) {
        act_share(&other, a, arena);
        if (what[0] == 'o')
            put_all(&other, json_array_get(op, 1), arena);
        else
            ck_assert_int_eq(act_force_named(&other, name, value_of(x, arena), &err), STATUS_OK);
        check_act(&other, json_array_get(result, 1));
    } else {
        ck_assert_str_eq(what, "is_padding");
        ck_assert_int_eq(act_is_padding(a), json_is_true(result));
    }
}

static void check_ops(const json_t *line)
{
    const json_t *steps = json_object_get(line, "steps"), *after;
    struct arena arena;
    struct act a;

    arena_init(&arena, MEMORY);
    a = act_of(json_object_get(line, "start"), &arena);
    for (size_t i = 0; i < json_array_size(steps); i++) {
        check_step(&a, json_array_get(steps, i), &arena);
        after = json_object_get(json_array_get(steps, i), "after");
        ck_assert_uint_eq(a.n, json_array_size(after));
        for (size_t k = 0; k < a.n; k++) {
            struct text name = text_of(json_array_get(after, k));

            ck_assert_uint_eq(a.fields[k].name.len, name.len);
            ck_assert_mem_eq(a.fields[k].name.text, name.text, name.len);
        }
    }
    check_act(&a, json_object_get(line, "final"));
    arena_deinit(&arena);
}

/* A key that is there can only be forced, keys keep their order, what is taken out is gone. */
START_TEST(test_ops)
{
    ck_assert_uint_eq(golden_lines("message.jsonl", "ops", check_ops), 9);
}
END_TEST

static void check_padding(const json_t *line)
{
    struct act a;

    act_padding(&a, NULL);
    check_act(&a, json_object_get(line, "message"));
    ck_assert(act_is_padding(&a));
    ck_assert_int_eq(a.fields[0].key, ACT_BATCH_PADDING);
}

START_TEST(test_padding)
{
    ck_assert_uint_eq(golden_lines("message.jsonl", "padding_example", check_padding), 1);
}
END_TEST

/* Metrics stay in the act and out of its JSON; other fields pass, whatever they are. */
static void check_payload(const json_t *line)
{
    const json_t *out = json_object_get(line, "out");
    const struct value metrics = {.type = VALUE_METRICS};
    struct arena arena;
    struct act a;

    arena_init(&arena, MEMORY);
    a = act_of(out, &arena);
    ck_assert_int_eq(act_set(&a, ACT_METRICS, metrics, &err), STATUS_OK);
    check_act(&a, out);
    ck_assert(act_has(&a, ACT_METRICS));
    arena_deinit(&arena);
}

START_TEST(test_json_safe)
{
    ck_assert_uint_eq(golden_lines("message.jsonl", "json_safe_payload", check_payload), 1);
}
END_TEST

/* --- lines ----------------------------------------------------------------------------------- */

static void remove_fields(struct act *a, const json_t *names)
{
    const char *at = json_string_value(names);

    while (at != NULL && *at != '\0') {
        size_t len = strcspn(at, ",");

        ck_assert_int_eq(act_remove(a, at, len, NULL, &err), STATUS_OK);
        at += len + (at[len] == ',');
    }
}

/* What a line is read as: expected NULL or null: an empty act. */
static void check_parse(struct text line, const json_t *expected, const json_t *ignored)
{
    struct arena arena;
    struct act a;

    arena_init(&arena, MEMORY);
    ck_assert_msg(text_line_parse(&a, line.text, line.len, &arena, NULL, &err) == STATUS_OK,
                  "%s: %s", line.text, err.text);
    remove_fields(&a, ignored);
    if (json_is_object(expected)) {
        json_t *want = json_deep_copy(expected);

        json_object_del(want, "metrics"); /* JSON leaves it out */
        check_act(&a, want);
        json_decref(want);
    } else {
        ck_assert_uint_eq(a.n, 0);
    }
    arena_deinit(&arena);
}

static void check_refused(struct text line)
{
    struct arena arena;
    struct act a;

    arena_init(&arena, MEMORY);
    ck_assert_int_eq(text_line_parse(&a, line.text, line.len, &arena, NULL, &err), STATUS_INVALID);
    arena_deinit(&arena);
}

static size_t n_otherwise;

static void check_roundtrip(const json_t *line)
{
    struct text expected = text_of(json_object_get(line, "str"));
    bool fails = json_object_get(line, "back_error") != NULL;
    struct arena arena;
    struct buf out;
    struct act a;

    arena_init(&arena, MEMORY);
    buf_init(&out, MEMORY);
    a = act_of(json_object_get(line, "in"), &arena);
    ck_assert_int_eq(text_line_format(&a, &out, &err), STATUS_OK);
    ck_assert_msg(out.len == expected.len &&
                      (out.len == 0 || memcmp(out.data, expected.text, out.len) == 0),
                  "%s is not %s", out.data, expected.text);
    if (fails) {
        check_refused(expected);
    } else if (strstr(expected.text, "episode_done:yes") != NULL) {
        check_refused(expected); /* to ParlAI, true */
        n_otherwise++;
    } else {
        check_parse(expected, json_object_get(line, "back"), NULL);
    }
    buf_deinit(&out);
    arena_deinit(&arena);
}

/* Every act is written as ParlAI writes it, and read back as ParlAI does; but episode_done:yes is
 * an error. */
START_TEST(test_roundtrip)
{
    n_otherwise = 0;
    ck_assert_uint_eq(golden_lines("message.jsonl", "roundtrip", check_roundtrip), 45);
    ck_assert_uint_eq(n_otherwise, 1);
}
END_TEST

static void check_line(const json_t *line)
{
    struct text text = text_of(json_object_get(line, "str"));
    const json_t *result = json_object_get(line, "result");

    if (json_object_get(line, "error") != NULL) {
        check_refused(text);
    } else if (strstr(text.text, "episode_done:False") != NULL ||
               strstr(text.text, "episode_done:0") != NULL) {
        json_t *want = json_deep_copy(result); /* the trap: true to ParlAI */

        ck_assert(json_is_true(json_object_get(want, "episode_done")));
        json_object_set_new(want, "episode_done", json_false());
        check_parse(text, want, NULL);
        json_decref(want);
        n_otherwise++;
    } else if (strcmp(text.text, "text") == 0) {
        json_t *want = json_deep_copy(result); /* to ParlAI, a key "tex" */

        ck_assert_int_eq(json_object_del(want, "tex"), 0);
        check_parse(text, want, NULL);
        json_decref(want);
        n_otherwise++;
    } else {
        check_parse(text, result, json_object_get(line, "ignore_fields"));
    }
}

/* Every line is read as ParlAI reads it; but False and 0 are false, and a field without a colon is
 * left out instead of giving its letters to a key. */
START_TEST(test_parse)
{
    n_otherwise = 0;
    ck_assert_uint_eq(golden_lines("message.jsonl", "parse", check_line), 36);
    ck_assert_uint_eq(n_otherwise, 3);
}
END_TEST

static void check_format(const json_t *line)
{
    struct arena arena;
    struct buf out;
    struct act a;

    arena_init(&arena, MEMORY);
    buf_init(&out, MEMORY);
    a = act_of(json_object_get(line, "in"), &arena);
    remove_fields(&a, json_object_get(line, "ignore_fields"));
    ck_assert_int_eq(text_line_format(&a, &out, &err), STATUS_OK);
    ck_assert_str_eq(out.data, json_string_value(json_object_get(line, "str")));
    buf_deinit(&out);
    arena_deinit(&arena);
}

START_TEST(test_format)
{
    ck_assert_uint_eq(golden_lines("message.jsonl", "format", check_format), 1);
}
END_TEST

SUITE_MAIN("golden/parlai/acts", test_ops, test_padding, test_json_safe, test_roundtrip, test_parse,
           test_format)
