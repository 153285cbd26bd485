/* What a TorchAgent of ParlAI made of what it heard, against what our listener makes of it. Left
 * out: padded tensors, for our rows are packed. Where we differ on purpose, a comment says how. */
#include <ctype.h>

#include "base/alloc.h"
#include "golden.h"
#include "tests/unit/base/suite.h"
#include "worlds/participant/listener.h"

enum { MAX_WORDS = 256, UNKNOWN = 3 };

/* A dictionary of words: runs of word characters, other characters one by one, newlines. */
struct words {
    char *words[MAX_WORDS];
    size_t n;
};

static struct words words;

static void open_words(void)
{
    char path[1024], line[256];
    FILE *in;

    (void)snprintf(path, sizeof(path), "%s/dialogues.dict", GOLDEN_DIR);
    in = fopen(path, "re");
    ck_assert_ptr_nonnull(in);
    while (fgets(line, sizeof(line), in) != NULL) {
        *strchr(line, '\t') = '\0';
        words.words[words.n++] = xstrdup(strcmp(line, "\\n") == 0 ? "\n" : line);
    }
    (void)fclose(in);
    ck_assert_uint_eq(words.n, 130);
    words.words[words.n++] = xstrdup("__p1__");
    words.words[words.n++] = xstrdup("__p2__");
}

static void close_words(void)
{
    while (words.n > 0)
        free(words.words[--words.n]);
}

static enum status encode(const void *self, const char *text, size_t len, struct buf *ids,
                          struct error *err)
{
    const struct words *w = self;

    for (size_t i = 0, n; i < len; i += n) {
        int32_t id = UNKNOWN;

        for (n = 0; i + n < len && (isalnum((unsigned char)text[i + n]) || text[i + n] == '_'); n++)
            continue;
        if (n == 0)
            n = 1;
        if (n == 1 && isspace((unsigned char)text[i]) && text[i] != '\n')
            continue;
        for (size_t k = 0; k < w->n; k++)
            if (strlen(w->words[k]) == n && memcmp(w->words[k], text + i, n) == 0)
                id = (int32_t)k;
        ck_assert_int_eq(buf_append(ids, &id, sizeof(id)), STATUS_OK);
    }
    return STATUS_OK;
}

static struct text text_of(const json_t *s)
{
    return (struct text){json_string_value(s), json_string_length(s)};
}

static int64_t number_of(const json_t *options, const char *name)
{
    return json_integer_value(json_object_get(options, name));
}

static void configure(struct dialogue_listener_config *c, const json_t *options)
{
    struct error err;
    int64_t both = number_of(options, "truncate");

    *c = (struct dialogue_listener_config){
        .history = {.coder = {.encode = encode, .self = &words, .start = 1, .end = 2},
                    .size = number_of(options, "history_size"),
                    .split_lines = json_is_true(json_object_get(options, "split_lines")),
                    .person_tokens = json_is_true(json_object_get(options, "person_tokens")),
                    .p1_after_newline =
                        json_is_true(json_object_get(options, "add_p1_after_newln")),
                    .reversed = json_is_true(json_object_get(options, "history_reversed")),
                    .add_end = json_object_get(options, "history_add_global_end_token") != NULL},
        .text_truncate = (size_t)(json_object_get(options, "text_truncate") != NULL
                                      ? number_of(options, "text_truncate")
                                      : both),
        .label_truncate = (size_t)(json_object_get(options, "label_truncate") != NULL
                                       ? number_of(options, "label_truncate")
                                       : both)};
    if (json_object_get(options, "delimiter") != NULL)
        c->history.delimiter = text_of(json_object_get(options, "delimiter"));
    if (json_object_get(options, "use_reply") != NULL)
        ck_assert_int_eq(use_reply_parse(&c->use_reply,
                                         json_string_value(json_object_get(options, "use_reply")),
                                         &err),
                         STATUS_OK);
}

/* The act of a JSON object, in the arena; of null: one without fields. */
static struct act act_of(const json_t *object, struct arena *arena)
{
    struct act a;
    struct error err;
    char *json;

    act_init(&a, arena);
    if (!json_is_object(object))
        return a;
    json = json_dumps(object, JSON_COMPACT);
    ck_assert_int_eq(
        act_from_json(&a, arena_strndup(arena, json, strlen(json)), strlen(json), arena, &err),
        STATUS_OK);
    free(json);
    return a;
}

static void check_ids(const struct value *got, const json_t *want)
{
    size_t n = json_array_size(want);

    if (got == NULL) {
        ck_assert_uint_eq(n, 0);
        return;
    }
    ck_assert_int_eq(got->type, VALUE_IDS);
    ck_assert_uint_eq(got->ids.n, n);
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(got->ids.items[i], json_integer_value(json_array_get(want, i)));
}

static int64_t whole_of(const struct act *a, const char *name)
{
    const struct value *v = act_get_named(a, name, strlen(name));

    return v == NULL ? 0 : v->type == VALUE_BOOL ? v->boolean : v->integer;
}

/* What is false, 0, empty or as the text itself is left out of what was kept. */
static void check_observation(const struct act *got, const json_t *want)
{
    static const char *const numbers[] = {"context_original_length",  "context_truncate_rate",
                                          "context_truncated_length", "label_original_length",
                                          "label_truncate_rate",      "label_truncated_length"};
    static const char *const choices[] = {"labels_choice", "eval_labels_choice"};
    const json_t *full = json_object_get(want, "full_text");
    const struct value *labels = act_labels(got);

    if (labels == NULL || labels->list.n == 1) { /* of several ours is another than theirs */
        check_ids(act_get(got, ACT_LABELS_VEC), json_object_get(want, "labels_vec"));
        check_ids(act_get(got, ACT_EVAL_LABELS_VEC), json_object_get(want, "eval_labels_vec"));
    }
    check_ids(act_get(got, ACT_TEXT_VEC), json_object_get(want, "text_vec"));
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const json_t *x = json_object_get(want, numbers[i]);
        bool is_choice = i >= 3 && labels != NULL && labels->list.n > 1;

        if (!is_choice)
            ck_assert_msg(whole_of(got, numbers[i]) ==
                              (json_is_boolean(x) ? json_is_true(x) : json_integer_value(x)),
                          "%s", numbers[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        const struct value *v = act_get_named(got, choices[i], strlen(choices[i]));
        bool is_one = false;

        ck_assert_int_eq(v != NULL, json_object_get(want, choices[i]) != NULL);
        for (size_t k = 0; v != NULL && k < labels->list.n; k++)
            is_one = is_one || labels->list.items[k].text == v->text.text;
        ck_assert(v == NULL || is_one);
    }
    if (full != NULL) {
        const struct value *v = act_get_named(got, "full_text", 9);

        ck_assert_ptr_nonnull(v);
        ck_assert_uint_eq(v->text.len, json_string_length(full));
        ck_assert_mem_eq(v->text.text, json_string_value(full), v->text.len);
    }
}

static void check_history(const struct dialogue_listener *l, const json_t *want)
{
    const json_t *strings = json_object_get(want, "strings"), *raw = json_object_get(want, "raw");
    const json_t *str = json_object_get(want, "history_str");
    const struct history *h = &l->history;
    struct buf text, ids;
    struct value vec;
    struct error err;

    if (want == NULL)
        return;
    buf_init(&text, SIZE_MAX);
    buf_init(&ids, SIZE_MAX);
    ck_assert_uint_eq(h->n, json_array_size(strings));
    for (size_t i = 0; i < h->n; i++) {
        ck_assert_str_eq(h->items[i].text, json_string_value(json_array_get(strings, i)));
        if (raw != NULL && h->items[i].raw > 0)
            ck_assert_str_eq(h->items[i].text + h->items[i].raw,
                             json_string_value(json_array_get(raw, i)));
    }
    ck_assert_int_eq(history_text(h, &text, &err), STATUS_OK);
    ck_assert_int_eq(history_ids(h, &ids, &err), STATUS_OK);
    ck_assert_uint_eq(text.len, json_string_length(str));
    if (text.len > 0)
        ck_assert_mem_eq(text.data, json_string_value(str), text.len);
    vec = value_ids((const int32_t *)(const void *)ids.data, ids.len / sizeof(int32_t));
    check_ids(&vec, json_object_get(want, "history_vec"));
    buf_deinit(&text);
    buf_deinit(&ids);
}

/* Theirs adds the whole text once a line; ours adds the line. */
static void check_lines(const struct dialogue_listener *l)
{
    ck_assert_uint_ge(l->history.n, 2);
    ck_assert_str_eq(l->history.items[0].text, "__p1__ Sam went to the kitchen.");
    ck_assert_str_eq(l->history.items[1].text, "__p1__ Where is Sam?");
}

struct run {
    struct dialogue_listener listener;
    struct arena arena; /* of all acts */
    const char *name;
    const json_t *reply;
    size_t n_self_observed; /* since the last observe */
};

static enum status answer(struct run *r, const struct act *reply)
{
    struct error err;
    enum status rc = listener_answer(&r->listener, &err);

    return rc == STATUS_OK ? listener_self_observe(&r->listener, reply, &err) : rc;
}

/* A reset, one observation, and its answer. */
static void respond(struct run *r, const json_t *text)
{
    struct act *heard = arena_alloc(&r->arena, 1, sizeof(*heard)), reply;
    const struct act *seen;
    struct error err;

    listener_reset(&r->listener);
    act_init(heard, &r->arena);
    act_init(&reply, &r->arena);
    ck_assert_int_eq(act_set(heard, ACT_TEXT, value_text(text_of(text)), &err), STATUS_OK);
    ck_assert_int_eq(act_set(heard, ACT_EPISODE_DONE, value_bool(true), &err), STATUS_OK);
    ck_assert_int_eq(listener_observe(&r->listener, heard, &seen, &err), STATUS_OK);
    ck_assert_int_eq(act_set(&reply, ACT_TEXT, value_text(text_of(r->reply)), &err), STATUS_OK);
    ck_assert_int_eq(answer(r, &reply), STATUS_OK);
}

static enum status take_step(struct run *r, const json_t *what, const json_t *result)
{
    const char *verb = json_string_value(json_array_get(what, 0));
    const json_t *arg = json_array_get(what, 1);
    struct act *act = arena_alloc(&r->arena, 1, sizeof(*act));
    const struct act *seen;
    struct error err;
    enum status rc = STATUS_OK;

    *act = act_of(arg, &r->arena);
    if (strcmp(verb, "observe") == 0) {
        rc = listener_observe(&r->listener, act, &seen, &err);
        if (rc == STATUS_OK && strcmp(r->name, "split_lines + person_tokens") != 0)
            check_observation(seen, json_object_get(result, "obs"));
        r->n_self_observed = 0;
    } else if (strcmp(verb, "act") == 0) {
        ck_assert_int_eq(act_set(act, ACT_TEXT, value_text(text_of(r->reply)), &err), STATUS_OK);
        rc = answer(r, act);
    } else if (strcmp(verb, "self_observe") == 0) {
        rc = listener_self_observe(&r->listener, act, &err);
        r->n_self_observed++;
    } else if (strcmp(verb, "reset") == 0) {
        listener_reset(&r->listener);
    } else if (strcmp(verb, "respond") == 0) {
        respond(r, arg);
    } else {
        ck_assert_str_eq(verb, "batch_respond");
        for (size_t i = 0; i < json_array_size(arg); i++)
            respond(r, json_object_get(json_array_get(arg, i), "text"));
    }
    return rc;
}

static void check_line(const json_t *line)
{
    const json_t *steps = json_object_get(line, "steps");
    struct dialogue_listener_config config;
    struct run r = {.name = json_string_value(json_object_get(line, "name")),
                    .reply = json_object_get(line, "model_reply")};

    configure(&config, json_object_get(line, "options"));
    listener_init(&r.listener, &config);
    arena_init(&r.arena, 1 << 20);
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *step = json_array_get(steps, i);
        bool fails = json_object_get(step, "error") != NULL;
        enum status rc = take_step(&r, json_object_get(step, "step"), step);

        if (r.n_self_observed > 1) { /* theirs adds the reply twice; ours refuses */
            ck_assert_int_eq(rc, STATUS_PRECONDITION);
            continue;
        }
        ck_assert_msg((rc != STATUS_OK) == fails, "%s, step %zu", r.name, i);
        if (strcmp(r.name, "split_lines + person_tokens") == 0)
            check_lines(&r.listener);
        else if (!fails) /* after a failure ours is as it was before */
            check_history(&r.listener, json_object_get(step, "history"));
    }
    listener_deinit(&r.listener);
    arena_deinit(&r.arena);
}

/* Histories, vectors, truncation and the order of calls are TorchAgent's. */
START_TEST(histories_are_theirs)
{
    ck_assert_uint_eq(golden_lines("torchagent.jsonl", "history", check_line), 51);
}
END_TEST

/* The row-th of a padded matrix, without its padding. */
static void check_row(const struct value *got, const json_t *rows, size_t row)
{
    const json_t *want = json_array_get(rows, row);
    size_t n = got != NULL ? got->ids.n : 0;

    for (size_t i = 0; i < json_array_size(want); i++)
        ck_assert_int_eq(i < n ? got->ids.items[i] : 0,
                         json_integer_value(json_array_get(want, i)));
    ck_assert(n == 0 || n <= json_array_size(want));
}

static void check_batch(const json_t *line)
{
    const json_t *messages = json_object_get(line, "messages");
    const json_t *valid = json_object_get(line, "valid_indices");
    size_t n_padding = 0;

    for (size_t i = 0; i < json_array_size(messages); i++) {
        struct dialogue_listener_config config;
        struct dialogue_listener l;
        struct arena arena;
        struct act heard;
        const struct act *seen;
        const struct value *label;
        struct error err;
        size_t row = 0;

        configure(&config, json_object_get(line, "options"));
        listener_init(&l, &config);
        arena_init(&arena, 1 << 20);
        heard = act_of(json_array_get(messages, i), &arena);
        ck_assert_int_eq(listener_observe(&l, &heard, &seen, &err), STATUS_OK);
        while (row < json_array_size(valid) &&
               (size_t)json_integer_value(json_array_get(valid, row)) != i)
            row++;
        ck_assert_int_eq(act_is_padding(seen), row == json_array_size(valid));
        if (act_is_padding(seen)) {
            n_padding++;
        } else {
            label = act_get(seen, ACT_LABELS_VEC);
            if (label == NULL)
                label = act_get(seen, ACT_EVAL_LABELS_VEC);
            check_row(act_get(seen, ACT_TEXT_VEC), json_object_get(line, "text_vec"), row);
            /* theirs drops the others' labels when one row is for training */
            if (json_is_false(json_object_get(line, "is_training")) || act_has(&heard, ACT_LABELS))
                check_row(label, json_object_get(line, "label_vec"), row);
            /* theirs does not permute these with the rows when it sorts */
            if (json_is_false(json_object_get(line, "sort")))
                ck_assert_int_eq(whole_of(seen, "context_truncated_length"),
                                 json_integer_value(json_array_get(
                                     json_object_get(line, "context_truncated_length"), row)));
        }
        listener_deinit(&l);
        arena_deinit(&arena);
    }
    ck_assert_uint_eq(n_padding + json_array_size(valid), json_array_size(messages));
}

/* A batch's rows are those of batchify, but for the padding that we do not make. */
START_TEST(rows_are_theirs)
{
    ck_assert_uint_eq(golden_lines("torchagent.jsonl", "batchify", check_batch), 14);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("parlai_listener");
    TCase *c = tcase_create("all");

    tcase_add_unchecked_fixture(c, open_words, close_words);
    tcase_add_test(c, histories_are_theirs);
    tcase_add_test(c, rows_are_theirs);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    SRunner *r = srunner_create(suite());
    int n_failed;

    srunner_run_all(r, CK_NORMAL);
    n_failed = srunner_ntests_failed(r);
    srunner_free(r);
    return n_failed == 0 ? 0 : 1;
}
