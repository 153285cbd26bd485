#include "server/api/kserve/inference.h"

#include <check.h>
#include <string.h>

#include "base/alarm.h"
#include "server/model/models.h"
#include "server/server.h"
#include "tests/fault/sweep.h"
#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

static struct fake_server s;
/* The part of a server that an inference uses. */
static struct {
    struct models models;
    struct conversations conversations;
    struct sessions sessions;
    struct sequences sequences;
} d;
static struct server server = {
    .models = &d.models,
    .conversations = &d.conversations,
    .sessions = &d.sessions,
    .sequences = &d.sequences,
};

static void setup(void)
{
    static struct alarm due; /* which never rings */
    const struct conversations_config conversations = {.env = &s.env, .alarm = &due};
    const struct sessions_config sessions = {.env = &s.env, .alarm = &due};
    struct sequences_config sequences = {.env = &s.env, .alarm = &due};

    fake_server_open(&s, "fake", 0, NULL);
    s.model.info.kind = "lm"; /* a language model's reply may come in parts */
    server.env = &s.env;
    models_init(&d.models, &(struct models_config){.env = &s.env});
    d.models.loaded[0] = &s.model;
    d.models.n_loaded = 1;
    conversations_init(&d.conversations, &conversations);
    sessions_init(&d.sessions, &sessions);
    sequences.conversations = &d.conversations;
    sequences.sessions = &d.sessions;
    sequences_init(&d.sequences, &sequences);
}

static void teardown(void)
{
    fake_server_run(&s);
    sequences_retire(&d.sequences, NULL);
    sequences_deinit(&d.sequences);
    sessions_close_all(&d.sessions, NULL);
    sessions_deinit(&d.sessions);
    conversations_close_all(&d.conversations, NULL, "the test is over");
    conversations_deinit(&d.conversations);
    models_deinit(&d.models);
    fake_server_close(&s);
}

/* A request, its inference, and the responses so far. */
struct asked {
    Inference__ModelInferRequest message;
    Inference__ModelInferRequest__InferInputTensor inputs[2], *input_list[2];
    Inference__InferTensorContents contents[2];
    ProtobufCBinaryData text;
    protobuf_c_boolean wants_stream;
    Inference__ModelInferRequest__ParametersEntry entries[3], *entry_list[3];
    Inference__InferParameter values[3];
    int64_t dim;
    struct arena arena;
    struct inference in;
    unsigned n_notified;
    struct buf said;
    size_t n_responses, n_final, n_empty;
};

static void notify(struct inference *in)
{
    container_of(in, struct asked, in)->n_notified++;
}

static void add_flag(struct asked *a, const char *key, bool value)
{
    size_t i = a->message.n_parameters++;

    inference__model_infer_request__parameters_entry__init(&a->entries[i]);
    inference__infer_parameter__init(&a->values[i]);
    a->values[i].parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    a->values[i].bool_param = value;
    a->entries[i].key = (char *)key;
    a->entries[i].value = &a->values[i];
    a->entry_list[i] = &a->entries[i];
}

static void in_sequence(struct asked *a, bool starts, bool ends)
{
    add_flag(a, "sequence_start", starts);
    add_flag(a, "sequence_end", ends);
    add_flag(a, "sequence_id", true);
    a->values[2].parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    a->values[2].int64_param = 7;
}

static void add_input(struct asked *a, const char *name, const char *datatype)
{
    size_t i = a->message.n_inputs++;

    inference__model_infer_request__infer_input_tensor__init(&a->inputs[i]);
    inference__infer_tensor_contents__init(&a->contents[i]);
    a->inputs[i].name = (char *)name;
    a->inputs[i].datatype = (char *)datatype;
    a->inputs[i].shape = &a->dim;
    a->inputs[i].n_shape = 1;
    a->inputs[i].contents = &a->contents[i];
    a->input_list[i] = &a->inputs[i];
}

static void asked_init(struct asked *a, const char *text, bool wants_stream)
{
    *a = (struct asked){.dim = 1, .wants_stream = wants_stream};
    inference__model_infer_request__init(&a->message);
    a->message.id = (char *)"id";
    a->message.inputs = a->input_list;
    a->message.parameters = a->entry_list;
    a->text = (ProtobufCBinaryData){.data = (uint8_t *)text, .len = strlen(text)};
    add_input(a, "text_input", "BYTES");
    a->contents[0].bytes_contents = &a->text;
    a->contents[0].n_bytes_contents = 1;
    add_input(a, "stream", "BOOL");
    a->contents[1].bool_contents = &a->wants_stream;
    a->contents[1].n_bool_contents = 1;
    arena_init(&a->arena, 1 << 20);
    buf_init(&a->said, 1 << 20);
}

static enum status ask(struct asked *a)
{
    return inference_begin(&a->in, &server, 0, &a->message, 0, &a->arena, notify, &a->in.err);
}

static void asked_deinit(struct asked *a)
{
    inference_end(&a->in, STATUS_CANCELLED);
    arena_deinit(&a->arena);
    buf_deinit(&a->said);
}

/* The next response; a text is appended to said. */
static enum inference_said hear(struct asked *a, bool is_stream)
{
    struct inference_response response;
    enum inference_said said;
    struct arena arena;

    arena_init(&arena, 1 << 20);
    said = inference_next(&a->in, is_stream, &response, &arena);
    if (said != INFERENCE_NOTHING) {
        a->n_responses++;
        ck_assert_str_eq(response.message.id, "id");
        for (size_t i = 0; i < response.message.n_parameters; i++)
            if (strcmp(response.parameters[i].key, "triton_final_response") == 0)
                a->n_final += response.values[i].bool_param != 0;
        a->n_empty += response.message.n_outputs == 0;
        if (response.message.n_outputs == 1)
            (void)!buf_append(&a->said, response.raw[0].data + 4,
                              response.raw[0].len - 4); /* also a fault point */
    }
    arena_deinit(&arena);
    return said;
}

/* A request outside a sequence has its own conversation, which is closed with it. */
START_TEST(test_whole)
{
    struct asked a;

    asked_init(&a, "say 3", true);
    ck_assert_int_eq(ask(&a), STATUS_OK);
    ck_assert_uint_eq(d.conversations.n, 1);
    ck_assert_int_eq(hear(&a, false), INFERENCE_NOTHING);
    fake_server_run(&s);
    ck_assert_uint_gt(a.n_notified, 0);
    ck_assert_int_eq(hear(&a, false), INFERENCE_LAST);
    ck_assert_str_eq(a.said.data, "<0><1><2>");
    ck_assert_uint_eq(a.n_final, 0); /* not on a stream */
    asked_deinit(&a);
    ck_assert_uint_eq(d.conversations.n, 0);
}
END_TEST

/* On a stream the reply comes in parts if requested, and the last one is marked. */
START_TEST(test_parts)
{
    for (int empty = 0; empty < 2; empty++) {
        struct asked a;

        asked_init(&a, "say 3", true);
        add_flag(&a, "triton_enable_empty_final_response", empty != 0);
        ck_assert_int_eq(ask(&a), STATUS_OK);
        for (int i = 0; i < 2; i++) {
            ck_assert(fake_server_step(&s));
            ck_assert_int_eq(hear(&a, true), INFERENCE_PART);
            ck_assert_uint_eq(a.n_final, 0);
        }
        fake_server_run(&s);
        ck_assert_int_eq(hear(&a, true), INFERENCE_PART);
        ck_assert_int_eq(hear(&a, true), INFERENCE_LAST);
        ck_assert_str_eq(a.said.data, "<0><1><2>");
        ck_assert_uint_eq(a.n_final, 1);
        ck_assert_uint_eq(a.n_empty, (size_t)empty);
        asked_deinit(&a);
    }
}
END_TEST

/* Without that request the reply is one response. */
START_TEST(test_one)
{
    struct asked a;

    asked_init(&a, "say 3", false);
    ck_assert_int_eq(ask(&a), STATUS_OK);
    fake_server_run(&s);
    ck_assert_int_eq(hear(&a, true), INFERENCE_LAST);
    ck_assert_str_eq(a.said.data, "<0><1><2>");
    ck_assert_uint_eq(a.n_final, 1);
    asked_deinit(&a);
}
END_TEST

/* A failure carries the request's id; a request that is abandoned leaves nothing behind. */
START_TEST(test_failures)
{
    struct asked a;

    asked_init(&a, "fail 2", true);
    ck_assert_int_eq(ask(&a), STATUS_OK);
    fake_server_run(&s);
    while (hear(&a, true) == INFERENCE_PART)
        continue;
    ck_assert_int_ne(a.in.err.status, STATUS_OK);
    ck_assert_uint_eq(a.n_final, 1);
    asked_deinit(&a);

    asked_init(&a, "say 9", true);
    a.message.model_name = (char *)"nothing";
    ck_assert_int_eq(ask(&a), STATUS_NOT_FOUND);
    asked_deinit(&a);
    asked_init(&a, "say 9", true);
    a.message.model_version = (char *)"2";
    ck_assert_int_eq(ask(&a), STATUS_NOT_FOUND);
    asked_deinit(&a);
    asked_init(&a, "refuse", true);
    ck_assert_int_eq(ask(&a), STATUS_RANGE);
    asked_deinit(&a);

    asked_init(&a, "say 9", true);
    ck_assert_int_eq(ask(&a), STATUS_OK);
    ck_assert(fake_server_step(&s));
    asked_deinit(&a);
    fake_server_run(&s);
    ck_assert_uint_eq(d.conversations.n, 0);
    ck_assert_uint_eq(s.model.statistics.n_open, 0);
    ck_assert_uint_eq(s.model.statistics.failed[STATUS_CANCELLED], 1);
}
END_TEST

/* In a sequence the next request begins when the last response of the previous one is made. */
START_TEST(test_sequence)
{
    struct asked one, two;

    asked_init(&one, "say 1", false);
    in_sequence(&one, true, false);
    asked_init(&two, "say 2", false);
    in_sequence(&two, false, true);
    ck_assert_int_eq(ask(&one), STATUS_OK);
    ck_assert_int_eq(ask(&two), STATUS_OK);
    fake_server_run(&s);
    ck_assert_int_eq(hear(&two, false), INFERENCE_NOTHING);
    ck_assert_int_eq(hear(&one, false), INFERENCE_LAST);
    fake_server_run(&s);
    ck_assert_int_eq(hear(&two, false), INFERENCE_LAST);
    ck_assert_str_eq(two.said.data, "<0><1>");
    asked_deinit(&one);
    asked_deinit(&two);
    ck_assert_uint_eq(d.conversations.n, 0);
    asked_init(&one, "say 1", false);
    in_sequence(&one, false, false);
    ck_assert_int_eq(ask(&one), STATUS_INVALID);
    asked_deinit(&one);
}
END_TEST

static enum status once(void *arg)
{
    bool is_stream = arg != NULL;
    enum inference_said said;
    enum status rc;
    struct asked a;

    asked_init(&a, "say 2", is_stream);
    in_sequence(&a, true, true);
    rc = ask(&a);
    if (rc == STATUS_OK) {
        fake_server_run(&s);
        do
            said = hear(&a, is_stream);
        while (said == INFERENCE_PART);
        ck_assert(said == INFERENCE_LAST || said == INFERENCE_FAILED);
        rc = said == INFERENCE_LAST ? STATUS_OK : a.in.err.status;
    }
    asked_deinit(&a);
    fake_server_run(&s);
    ck_assert_uint_eq(d.conversations.n, 0);
    ck_assert_uint_eq(d.sequences.limit.held, 0);
    ck_assert_uint_eq(s.model.statistics.n_open, 0);
    return rc;
}

/* Any lack of memory ends the request as EXHAUSTED and leaves nothing behind. */
START_TEST(test_faults)
{
    ck_assert_int_gt(sweep(once, NULL), 5);
    ck_assert_int_gt(sweep(once, &d), 5);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_whole,    test_parts,    test_one,
                                  test_failures, test_sequence, test_faults};
    Suite *suite = suite_create("server/inference");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, setup, teardown);
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        tcase_add_test(all, tests[i]);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
