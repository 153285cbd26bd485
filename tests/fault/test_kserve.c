/* Requests of KServe's clients when memory fails: a request that cannot be read and a sequence that
 * cannot be made leave nothing behind. */
#include <string.h>

#include "base/alarm.h"
#include "server/api/kserve/request.h"
#include "server/api/kserve/sequences.h"
#include "server/conversation/reader.h"
#include "tests/fault/sweep.h"
#include "tests/support/fake_server.h"
#include "tests/unit/base/suite.h"

static enum status read_once(void *arg)
{
    static const char json[] = "{\"stop\": [\"a\", \"b\"], \"max_tokens\": 3}";
    const struct agent_info info = {.kind = "lm", .architecture = "", .backend = ""};
    Inference__ModelInferRequest r = INFERENCE__MODEL_INFER_REQUEST__INIT;
    Inference__ModelInferRequest__InferInputTensor inputs[2], *list[2];
    Inference__InferTensorContents contents[2];
    Inference__ModelInferRequest__ParametersEntry entry =
        INFERENCE__MODEL_INFER_REQUEST__PARAMETERS_ENTRY__INIT;
    Inference__ModelInferRequest__ParametersEntry *entries = &entry;
    Inference__InferParameter id = INFERENCE__INFER_PARAMETER__INIT;
    ProtobufCBinaryData data[2] = {{.data = (uint8_t *)"hello", .len = 5},
                                   {.data = (uint8_t *)json, .len = sizeof(json) - 1}};
    int64_t dim = 1;
    struct kserve_signature sig;
    struct kserve_request out;
    struct arena arena;
    struct error err = {0};
    enum status rc;

    for (size_t i = 0; i < 2; i++) {
        inference__model_infer_request__infer_input_tensor__init(&inputs[i]);
        inference__infer_tensor_contents__init(&contents[i]);
        contents[i].bytes_contents = &data[i];
        contents[i].n_bytes_contents = 1;
        inputs[i].name = (char *)(i == 0 ? "text_input" : "sampling_parameters");
        inputs[i].datatype = (char *)"BYTES";
        inputs[i].shape = &dim;
        inputs[i].n_shape = 1;
        inputs[i].contents = &contents[i];
        list[i] = &inputs[i];
    }
    id.parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    id.string_param = (char *)"seven";
    entry.key = (char *)"sequence_id";
    entry.value = &id;
    r.inputs = list;
    r.n_inputs = 2;
    r.parameters = &entries;
    r.n_parameters = 1;
    kserve_signature(&sig, &info);
    arena_init(&arena, 1 << 16);
    rc = kserve_request_read(&out, &r, &sig, "m", &arena, &err);
    if (rc == STATUS_OK) {
        ck_assert_str_eq(out.text.text, "hello");
        ck_assert_str_eq(out.sequence, "\"seven\"");
        ck_assert_uint_eq(out.overrides->values.n_stops, 2);
    }
    arena_deinit(&arena);
    return rc;
}

START_TEST(test_read)
{
    ck_assert_int_gt(sweep(read_once, NULL), 0);
}
END_TEST

static void notify(void *arg)
{
}

static void begin(struct sequence_slot *item)
{
}

/* Opens a sequence, runs a turn in it, and closes it. */
static enum status sequence_once(void *arg)
{
    static const struct message said = {.role = ROLE_USER, .text = "say 2", .len = 5};
    const struct turn_request r = {.messages = &said, .n_messages = 1};
    struct fake_server *s = arg;
    struct alarm never = {0};
    const struct sequences_config config = {
        .env = &s->env, .conversations = &s->all, .alarm = &never};
    struct sequence_slot item = {.begin = begin};
    struct turn_event e = {0};
    struct turn_reader reader;
    struct sequences all;
    struct error err = {0};
    enum status rc;

    sequences_init(&all, &config);
    reader_init(&reader, notify, NULL);
    rc = sequences_enter(&all, 0, &s->model, "1", true, true, &item, &err);
    if (rc == STATUS_OK)
        rc = sequence_turn(&item, &r, 0, &reader, &err);
    fake_server_run(s);
    while (rc == STATUS_OK && reader_next(&reader, &e))
        rc = e.kind == EVENT_FAILED ? e.err->status : STATUS_OK;
    if (rc == STATUS_OK)
        ck_assert_int_eq(e.kind, EVENT_DONE);
    reader_close(&reader, STATUS_CANCELLED);
    sequence_leave(&item);
    fake_server_run(s);
    ck_assert_uint_eq(all.limit.held, 0);
    ck_assert_uint_eq(s->all.n, 0);
    sequences_deinit(&all);
    return rc;
}

START_TEST(test_sequence)
{
    struct fake_server s;

    fake_server_open(&s, "fake", 0, NULL);
    ck_assert_int_gt(sweep(sequence_once, &s), 0);
    ck_assert_uint_eq(s.model.statistics.n_open, 0);
    fake_server_close(&s);
}
END_TEST

SUITE_MAIN("fault/kserve", test_read, test_sequence)
