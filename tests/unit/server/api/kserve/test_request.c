#include "server/api/kserve/request.h"

#include <check.h>
#include <string.h>

#include "tests/unit/base/suite.h"

typedef Inference__ModelInferRequest request;
typedef Inference__ModelInferRequest__InferInputTensor input;

enum { MAX = 4 };

/* Builds a request. */
struct maker {
    request r;
    input inputs[MAX], *input_list[MAX];
    Inference__InferTensorContents contents[MAX];
    ProtobufCBinaryData raw[MAX], typed[MAX];
    Inference__ModelInferRequest__ParametersEntry entries[MAX], *entry_list[MAX];
    Inference__InferParameter values[MAX];
    Inference__ModelInferRequest__InferRequestedOutputTensor outputs[MAX], *output_list[MAX];
    int64_t dims[MAX][3];
};

static struct kserve_signature text, policy;
static struct maker m;
static struct arena arena;
static struct error err;

static void setup(void)
{
    const struct agent_info lm = {.kind = "lm", .architecture = "llama", .backend = "cpu"};
    const struct agent_info mlp = {
        .kind = "policy",
        .architecture = "mlp",
        .backend = "cpu",
        .acting = {.n_observations = 2, .n_actions = 2, .has_logp = true, .has_value = true}};

    kserve_signature(&text, &lm);
    kserve_signature(&policy, &mlp);
    m = (struct maker){0};
    inference__model_infer_request__init(&m.r);
    m.r.inputs = m.input_list;
    m.r.parameters = m.entry_list;
    m.r.outputs = m.output_list;
    arena_init(&arena, 1 << 20);
}

static void teardown(void)
{
    arena_deinit(&arena);
}

static input *add_input(const char *name, const char *datatype, int64_t dim)
{
    size_t i = m.r.n_inputs++;

    inference__model_infer_request__infer_input_tensor__init(&m.inputs[i]);
    m.inputs[i].name = (char *)name;
    m.inputs[i].datatype = (char *)datatype;
    m.dims[i][0] = dim;
    m.inputs[i].shape = m.dims[i];
    m.inputs[i].n_shape = 1;
    m.input_list[i] = &m.inputs[i];
    return &m.inputs[i];
}

static void add_raw(const char *name, const char *datatype, int64_t dim, const void *data,
                    size_t len)
{
    (void)add_input(name, datatype, dim);
    m.r.raw_input_contents = m.raw;
    m.raw[m.r.n_raw_input_contents++] = (ProtobufCBinaryData){.data = (uint8_t *)data, .len = len};
}

static void add_typed(const char *name, const char *bytes)
{
    size_t i = m.r.n_inputs;
    input *in = add_input(name, "BYTES", 1);

    inference__infer_tensor_contents__init(&m.contents[i]);
    m.typed[i] = (ProtobufCBinaryData){.data = (uint8_t *)bytes, .len = strlen(bytes)};
    m.contents[i].bytes_contents = &m.typed[i];
    m.contents[i].n_bytes_contents = 1;
    in->contents = &m.contents[i];
}

static Inference__InferParameter *add_parameter(const char *key)
{
    size_t i = m.r.n_parameters++;

    inference__model_infer_request__parameters_entry__init(&m.entries[i]);
    inference__infer_parameter__init(&m.values[i]);
    m.entries[i].key = (char *)key;
    m.entries[i].value = &m.values[i];
    m.entry_list[i] = &m.entries[i];
    return &m.values[i];
}

static void add_number(const char *key, int64_t value)
{
    Inference__InferParameter *p = add_parameter(key);

    p->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
    p->int64_param = value;
}

static void add_text(const char *key, const char *value)
{
    Inference__InferParameter *p = add_parameter(key);

    p->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    p->string_param = (char *)value;
}

static void add_flag(const char *key, bool value)
{
    Inference__InferParameter *p = add_parameter(key);

    p->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    p->bool_param = value;
}

static void add_output(const char *name)
{
    size_t i = m.r.n_outputs++;

    inference__model_infer_request__infer_requested_output_tensor__init(&m.outputs[i]);
    m.outputs[i].name = (char *)name;
    m.output_list[i] = &m.outputs[i];
}

static struct kserve_request taken(const struct kserve_signature *sig)
{
    struct kserve_request out;

    err = (struct error){0};
    ck_assert_msg(kserve_request_read(&out, &m.r, sig, "m", &arena, &err) == STATUS_OK, "%s",
                  err.text);
    return out;
}

static void refused(const struct kserve_signature *sig, enum status status, const char *said)
{
    struct kserve_request out;

    ck_assert_int_eq(kserve_request_read(&out, &m.r, sig, "m", &arena, &err), status);
    ck_assert_str_eq(err.text, said);
}

/* BYTES are raw, with a length prefix, or typed. */
START_TEST(test_text)
{
    struct kserve_request r;

    add_raw("text_input", "BYTES", 1, "\5\0\0\0hello", 9);
    r = taken(&text);
    ck_assert_str_eq(r.text.text, "hello");
    ck_assert_uint_eq(r.text.len, 5);
    ck_assert(r.wants[0] && r.overrides == NULL && r.sequence == NULL && !r.wants_stream);
    teardown();
    setup();
    add_typed("text_input", "typed");
    ck_assert_str_eq(taken(&text).text.text, "typed");
}
END_TEST

/* A model of embeddings takes any number of texts, and is in no sequence. */
START_TEST(test_rows)
{
    const struct agent_info info = {.kind = "lm",
                                    .architecture = "llama",
                                    .backend = "cpu",
                                    .text = {.n_embedding = 8, .is_embedder = true}};
    const struct agent_info speaks = {
        .kind = "lm", .architecture = "llama", .backend = "cpu", .text.n_embedding = 8};
    struct kserve_signature rows;
    struct kserve_request r;
    int64_t shape[2];

    kserve_signature(&rows, &info);
    ck_assert(rows.is_embedding && !rows.is_decoupled && !rows.is_stateful);
    ck_assert_uint_eq(kserve_tensor_shape(shape, &rows.outputs[0]), 2);
    ck_assert(shape[0] == -1 && shape[1] == 8);
    ck_assert_uint_eq(kserve_tensor_shape(shape, &rows.inputs[0]), 1);
    ck_assert(shape[0] == -1);
    add_raw("text_input", "BYTES", 2, "\1\0\0\0a\2\0\0\0bc", 11);
    add_number("dimensions", 3);
    r = taken(&rows);
    ck_assert_uint_eq(r.n_texts, 2);
    ck_assert_str_eq(r.texts[0].text, "a");
    ck_assert_str_eq(r.texts[1].text, "bc");
    ck_assert_uint_eq(r.dimensions, 3);
    m.raw[0].len = 10;
    refused(&rows, STATUS_INVALID, "input 'text_input': 10 bytes of data do not fit its shape");
    m.raw[0].len = 5;
    refused(&rows, STATUS_INVALID, "input 'text_input': 5 bytes of data do not fit its shape");
    m.dims[0][0] = 1;
    ck_assert_uint_eq(taken(&rows).n_texts, 1);
    m.dims[0][0] = EMBEDDINGS_MAX_INPUTS + 1;
    refused(&rows, STATUS_INVALID, "text_input has 2049 texts, at most 2048 are allowed");
    m.dims[0][0] = 0;
    refused(&rows, STATUS_INVALID, "input 'text_input' has shape [0], the model takes [-1]");
    teardown();
    setup();
    add_raw("text_input", "BYTES", 1, "\1\0\0\0a", 5);
    add_number("sequence_id", 5);
    refused(&rows, STATUS_INVALID, "sequence_id is for turns: an embedding is in no sequence");
    /* A model that speaks embeds whom names that output, one of embeddings speaks likewise. */
    kserve_signature(&rows, &speaks);
    ck_assert(!rows.is_embedding && rows.n_outputs == 1);
    kserve_signature_for(&rows, &speaks, &m.r);
    ck_assert(!rows.is_embedding);
    kserve_signature_for(&rows, &info, &m.r);
    ck_assert(rows.is_embedding);
    add_output("embedding");
    kserve_signature_for(&rows, &speaks, &m.r);
    ck_assert(rows.is_embedding);
    m.outputs[0].name = (char *)"text_output";
    kserve_signature_for(&rows, &info, &m.r);
    ck_assert(!rows.is_embedding);
}
END_TEST

/* A wrong length, or bytes that are not a text, are refused by name. */
START_TEST(test_bad_text)
{
    static const struct {
        const char *data;
        size_t len;
        const char *said;
    } bad[] = {
        {"", 0, "input 'text_input': 0 bytes of data do not fit its shape"},
        {"\1\0\0", 3, "input 'text_input': 3 bytes of data do not fit its shape"},
        {"\2\0\0\0x", 5, "input 'text_input': 5 bytes of data do not fit its shape"},
        {"\0\0\0\0x", 5, "input 'text_input': 5 bytes of data do not fit its shape"},
        {"\377\377\377\377x", 5, "input 'text_input': 5 bytes of data do not fit its shape"},
        {"\1\0\0\0\377", 5, "text_input is not text: it is not UTF-8, or contains a NUL"},
        {"\1\0\0\0\0", 5, "text_input is not text: it is not UTF-8, or contains a NUL"},
        {"\0\0\0\0", 4, "text_input is empty: a turn says something"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        add_raw("text_input", "BYTES", 1, bad[i].data, bad[i].len);
        refused(&text, STATUS_INVALID, bad[i].said);
        teardown();
        setup();
    }
}
END_TEST

/* A name, type or shape unlike the model's is refused with the right one. */
START_TEST(test_bad_tensors)
{
    static const float two[2] = {1, 2};

    add_raw("observation", "FP32", 2, two, sizeof(two));
    ck_assert_float_eq(taken(&policy).observation[1], 2);
    m.dims[0][0] = 1;
    m.dims[0][1] = 2;
    m.inputs[0].n_shape = 2;
    ck_assert_float_eq(taken(&policy).observation[0], 1);
    m.dims[0][0] = 2;
    refused(&policy, STATUS_INVALID, "input 'observation' has shape [2, 2], the model takes [2]");
    m.inputs[0].n_shape = 0;
    refused(&policy, STATUS_INVALID, "input 'observation' has shape [], the model takes [2]");
    m.inputs[0].n_shape = 1;
    m.inputs[0].datatype = (char *)"FP64";
    refused(&policy, STATUS_INVALID, "input 'observation' has datatype FP64, the model takes FP32");
    m.inputs[0].datatype = (char *)"FP32";
    m.raw[0].len = 7;
    refused(&policy, STATUS_INVALID, "input 'observation': 7 bytes of data do not fit its shape");
    m.raw[0].len = 8;
    m.inputs[0].name = (char *)"obs";
    refused(&policy, STATUS_INVALID, "inputs has 'obs', model 'm' takes: observation");
    m.r.n_inputs = m.r.n_raw_input_contents = 0;
    refused(&policy, STATUS_INVALID, "inputs has no 'observation', which model 'm' needs");
    add_raw("observation", "FP32", 2, two, sizeof(two));
    add_raw("observation", "FP32", 2, two, sizeof(two));
    refused(&policy, STATUS_INVALID, "inputs has 'observation' twice");
    m.r.n_raw_input_contents = 1;
    refused(&policy, STATUS_INVALID, "raw_input_contents has 1 entries for 2 inputs");
}
END_TEST

/* Raw and typed data cannot be mixed. */
START_TEST(test_both)
{
    add_typed("text_input", "typed");
    m.r.raw_input_contents = m.raw;
    m.r.n_raw_input_contents = 1;
    m.raw[0] = (ProtobufCBinaryData){.data = (uint8_t *)"\1\0\0\0x", .len = 5};
    refused(&text, STATUS_INVALID,
            "raw_input_contents cannot be combined with contents, which input 'text_input' has");
}
END_TEST

/* Only the requested outputs are set. */
START_TEST(test_outputs)
{
    static const float two[2] = {1, 2};
    struct kserve_request r;

    add_raw("observation", "FP32", 2, two, sizeof(two));
    r = taken(&policy);
    ck_assert(r.wants[0] && r.wants[1] && r.wants[2]);
    add_output("logp");
    r = taken(&policy);
    ck_assert(!r.wants[0] && r.wants[1] && !r.wants[2]);
    add_output("nothing");
    refused(&policy, STATUS_INVALID, "outputs has 'nothing', model 'm' gives: action, logp, value");
}
END_TEST

/* Sampling comes as JSON or as parameters; unknown names are ignored, a wrong type is named. */
START_TEST(test_sampling)
{
    struct kserve_request r;

    add_typed("text_input", "x");
    add_typed("sampling_parameters",
              "{\"temperature\": 0.5, \"stop\": [\"a\", \"b\"], \"unknown\": {}, \"top_p\": null}");
    add_number("max_tokens", 7);
    add_text("some_name", "some value");
    r = taken(&text);
    ck_assert_uint_eq(r.overrides->given,
                      SAMPLING_TEMPERATURE | SAMPLING_STOPS | SAMPLING_MAX_TOKENS);
    ck_assert_float_eq(r.overrides->values.temperature, 0.5F);
    ck_assert_uint_eq(r.overrides->values.n_stops, 2);
    ck_assert_str_eq(r.overrides->values.stops[1].text, "b");
    ck_assert_uint_eq(r.overrides->values.max_tokens, 7);
    add_text("seed", "seven");
    refused(&text, STATUS_INVALID, "seed must be a whole number from -2^63 to 2^63 - 1");
}
END_TEST

START_TEST(test_bad_sampling)
{
    static const char *const bad[][2] = {
        {"{", "sampling_parameters is no JSON: string or '}' expected near end of file"},
        {"[1]", "sampling_parameters must be a JSON object"},
        {"{\"top_k\": -2}", "sampling_parameters: top_k must be a whole number, -1 or 0 for all"},
        {"{\"top_k\": 1.5}", "sampling_parameters: top_k must be a whole number, -1 or 0 for all"},
        {"{\"temperature\": \"hot\"}", "sampling_parameters: temperature must be a number"},
        {"{\"stop\": [1]}", "sampling_parameters: stop must be a text or a list of texts"},
        {"{\"ignore_eos\": 1}", "sampling_parameters: ignore_eos must be true or false"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        add_typed("text_input", "x");
        add_typed("sampling_parameters", bad[i][0]);
        refused(&text, STATUS_INVALID, bad[i][1]);
        teardown();
        setup();
    }
}
END_TEST

/* A number and a text of the same digits are two sequences; 0 and "" mean none. */
START_TEST(test_sequence)
{
    add_typed("text_input", "x");
    add_number("sequence_id", 7);
    add_flag("sequence_start", true);
    add_flag("sequence_end", false);
    ck_assert_str_eq(taken(&text).sequence, "7");
    ck_assert(taken(&text).starts && !taken(&text).ends);
    m.r.n_parameters = 0;
    add_text("sequence_id", "7");
    ck_assert_str_eq(taken(&text).sequence, "\"7\"");
    m.r.n_parameters = 0;
    add_number("sequence_id", 0);
    ck_assert_ptr_null(taken(&text).sequence);
    add_flag("sequence_start", true);
    refused(&text, STATUS_INVALID, "sequence_id is required with sequence_start or sequence_end");
    m.r.n_parameters = 0;
    add_flag("sequence_id", true);
    refused(&text, STATUS_INVALID, "sequence_id must be an int64_param or a string_param");
}
END_TEST

/* Level 1 is the highest; a time-out is in microseconds. */
START_TEST(test_schedule)
{
    add_typed("text_input", "x");
    ck_assert_int_eq(taken(&text).priority, 0);
    add_number("priority", 1);
    add_number("timeout", 5000);
    ck_assert_int_eq(taken(&text).priority, 100);
    ck_assert_uint_eq(taken(&text).timeout_us, 5000);
    m.values[0].int64_param = 1000;
    ck_assert_int_eq(taken(&text).priority, -100);
    m.values[1].int64_param = -1;
    refused(&text, STATUS_INVALID, "timeout is -1, below 0");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server/kserve_request");
    TCase *all = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(all, setup, teardown);
    tcase_add_test(all, test_text);
    tcase_add_test(all, test_rows);
    tcase_add_test(all, test_bad_text);
    tcase_add_test(all, test_bad_tensors);
    tcase_add_test(all, test_both);
    tcase_add_test(all, test_outputs);
    tcase_add_test(all, test_sampling);
    tcase_add_test(all, test_bad_sampling);
    tcase_add_test(all, test_sequence);
    tcase_add_test(all, test_schedule);
    suite_add_tcase(suite, all);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
