/* Messages from JSON by a schema that a fake server would hand over: our own descriptors, and
 * a file made here for the types that our wire does not have. */
#include "client/cli/bench/proto_json.h"

#include <stdio.h>
#include <string.h>

#include "inference/grpc_service.pb-c.h"
#include "parley/v1/conversations.pb-c.h"
#include "proto/codec.h"
#include "proto/descriptors.h"
#include "tests/unit/base/suite.h"

typedef Google__Protobuf__FieldDescriptorProto field_descriptor;

static struct proto_schema schema;
static struct error err;

/* All files of our wire. */
static void open_ours(void)
{
    proto_schema_init(&schema);
    for (size_t i = 0; i < descriptor_n_files; i++)
        ck_assert_int_eq(proto_schema_add(&schema, descriptor_files[i].bytes,
                                          descriptor_files[i].size_bytes, &err),
                         STATUS_OK);
}

/* Decodes what the JSON text became; NULL: it was refused, err says why. */
static ProtobufCMessage *through(const ProtobufCMessageDescriptor *type, const char *text)
{
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
    ProtobufCMessage *m = NULL;
    struct buf out;

    ck_assert_ptr_nonnull(json);
    buf_init(&out, 1 << 20);
    if (proto_json_encode(&out, &schema, type->name, json, &err) == STATUS_OK) {
        m = protobuf_c_message_unpack(type, NULL, out.len, (const uint8_t *)out.data);
        ck_assert_ptr_nonnull(m);
    }
    buf_deinit(&out);
    json_decref(json);
    return m;
}

/* Texts, numbers, nested and repeated messages, maps and enums arrive as they were said, under
 * either name of a field; null is as if it were not there. */
START_TEST(encodes)
{
    Parley__V1__TurnRequest *turn;
    Parley__V1__ConversationsOpenRequest *open;

    open_ours();
    turn = (Parley__V1__TurnRequest *)(void *)through(
        &parley__v1__turn_request__descriptor,
        "{\"conversation\": \"c\", \"turn\": 7, \"deadlineMs\": null, \"messages\": [{\"role\": "
        "\"user\", \"text\": \"Größe\"}, {\"text\": \"\"}], \"sampling\": {\"temperature\": 0.5, "
        "\"seed\": \"18446744073709551615\", \"logit_bias\": {\"-5\": 1.5}, \"stop\": [\"a\", "
        "\"b\"], \"ignoreEos\": true}}");
    ck_assert_ptr_nonnull(turn);
    ck_assert_str_eq(turn->conversation, "c");
    ck_assert_uint_eq(turn->turn, 7);
    ck_assert_uint_eq(turn->n_messages, 2);
    ck_assert_str_eq(turn->messages[0]->text, "Größe");
    ck_assert_uint_eq(turn->sampling->seed, UINT64_MAX);
    ck_assert(turn->sampling->temperature == 0.5F && turn->sampling->ignore_eos);
    ck_assert_uint_eq(turn->sampling->n_logit_bias, 1);
    ck_assert_int_eq(turn->sampling->logit_bias[0]->key, -5);
    ck_assert(turn->sampling->logit_bias[0]->value == 1.5F);
    ck_assert_str_eq(turn->sampling->stop[1], "b");
    protobuf_c_message_free_unpacked(&turn->base, NULL);
    open = (Parley__V1__ConversationsOpenRequest *)(void *)through(
        &parley__v1__conversations_open_request__descriptor,
        "{\"ttl_ms\": 9, \"metadata\": {\"a\": \"1\", \"b\": \"2\"}}");
    ck_assert_ptr_nonnull(open);
    ck_assert_uint_eq(open->n_metadata, 2);
    ck_assert_uint_eq(open->ttl_ms, 9);
    protobuf_c_message_free_unpacked(&open->base, NULL);
    proto_schema_deinit(&schema);
}
END_TEST

/* Repeated numbers lie packed, bytes come from base64 of either alphabet, nested types and oneofs
 * are found. */
START_TEST(encodes_tensors)
{
    Inference__ModelInferRequest *infer;

    open_ours();
    infer = (Inference__ModelInferRequest *)(void *)through(
        &inference__model_infer_request__descriptor,
        "{\"model_name\": \"m\", \"inputs\": [{\"name\": \"x\", \"shape\": [1, \"-2\", 300], "
        "\"contents\": {\"fp32_contents\": [1, -0.5], \"int_contents\": [-1], \"bool_contents\": "
        "[true, false]}}], \"raw_input_contents\": [\"AAEC/w==\", \"AAEC_w\", \"\"], "
        "\"parameters\": {\"p\": {\"int64_param\": -3}}}");
    ck_assert_ptr_nonnull(infer);
    ck_assert_uint_eq(infer->inputs[0]->n_shape, 3);
    ck_assert_int_eq(infer->inputs[0]->shape[1], -2);
    ck_assert(infer->inputs[0]->contents->fp32_contents[1] == -0.5F);
    ck_assert_int_eq(infer->inputs[0]->contents->int_contents[0], -1);
    ck_assert(infer->inputs[0]->contents->bool_contents[0]);
    ck_assert_uint_eq(infer->n_raw_input_contents, 3);
    for (size_t i = 0; i < 2; i++) {
        ck_assert_uint_eq(infer->raw_input_contents[i].len, 4);
        ck_assert(memcmp(infer->raw_input_contents[i].data, "\0\1\2\377", 4) == 0);
    }
    ck_assert_uint_eq(infer->raw_input_contents[2].len, 0);
    ck_assert_int_eq(infer->parameters[0]->value->int64_param, -3);
    protobuf_c_message_free_unpacked(&infer->base, NULL);
    proto_schema_deinit(&schema);
}
END_TEST

/* What does not fit is refused, with the place that is wrong. */
START_TEST(refuses)
{
    static const struct {
        const char *json, *why;
    } cases[] = {
        {"[]", "the message must be an object"},
        {"{\"nobody\": 1}", "nobody is no field of parley.v1.TurnRequest"},
        {"{\"turn\": -1}", "turn must be a whole number from 0 to 4294967295"},
        {"{\"turn\": 4294967296}", "turn must be a whole number from 0 to 4294967295"},
        {"{\"turn\": 1.5}", "turn must be a whole number from 0 to 4294967295"},
        {"{\"turn\": \" 1\"}", "turn must be a whole number from 0 to 4294967295"},
        {"{\"turn\": \"\"}", "turn must be a whole number from 0 to 4294967295"},
        {"{\"conversation\": 1}", "conversation must be a string"},
        {"{\"messages\": {}}", "messages must be a list"},
        {"{\"messages\": [{}, {\"text\": []}]}", "messages[1].text must be a string"},
        {"{\"sampling\": {\"temperature\": 1e40}}", "sampling.temperature must be a number"},
        {"{\"sampling\": {\"temperature\": \"hot\"}}", "sampling.temperature must be a number"},
        {"{\"sampling\": {\"seed\": \"18446744073709551616\"}}",
         "sampling.seed must be a whole number"},
        {"{\"sampling\": {\"ignore_eos\": 1}}", "sampling.ignore_eos must be true or false"},
        {"{\"sampling\": {\"logit_bias\": {\"x\": 1}}}", "sampling.logit_bias.x has a key of"},
    };

    open_ours();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_ptr_null(through(&parley__v1__turn_request__descriptor, cases[i].json));
        ck_assert_msg(strncmp(err.text, cases[i].why, strlen(cases[i].why)) == 0, "%s: %s",
                      cases[i].json, err.text);
    }
    ck_assert_ptr_null(through(&inference__model_infer_request__descriptor,
                               "{\"raw_input_contents\": [\"AAE*\"]}"));
    ck_assert_ptr_null(
        through(&inference__model_infer_request__descriptor, "{\"raw_input_contents\": [\"A\"]}"));
    proto_schema_deinit(&schema);
}
END_TEST

/* Methods are found with their kinds, messages and enums also inside others; an unknown name is
 * nothing, and bytes that are no file are refused. */
START_TEST(finds)
{
    const Google__Protobuf__MethodDescriptorProto *m;

    open_ours();
    m = proto_schema_method(&schema, "parley.v1.Conversations", "Open");
    ck_assert_ptr_nonnull(m);
    ck_assert_str_eq(m->input_type, ".parley.v1.ConversationsOpenRequest");
    ck_assert(!m->client_streaming && !m->server_streaming);
    m = proto_schema_method(&schema, "parley.v1.Conversations", "Chat");
    ck_assert(m->client_streaming && m->server_streaming);
    ck_assert_ptr_null(proto_schema_method(&schema, "parley.v1.Conversations", "Opens"));
    ck_assert_ptr_null(proto_schema_method(&schema, "parley.v1.Conversation", "Open"));
    ck_assert_ptr_nonnull(
        proto_schema_message(&schema, ".inference.ModelInferRequest.InferInputTensor"));
    ck_assert_ptr_null(proto_schema_message(&schema, ".inference.ModelInferRequest.Infer"));
    ck_assert_ptr_null(proto_schema_message(&schema, ""));
    ck_assert_ptr_nonnull(
        proto_schema_enum(&schema, ".grpc.health.v1.HealthCheckResponse.ServingStatus"));
    ck_assert_ptr_nonnull(proto_schema_enum(&schema, "parley.v1.FinishReason"));
    ck_assert_ptr_null(proto_schema_enum(&schema, "parley.v1.Finish"));
    ck_assert_int_eq(proto_schema_add(&schema, "\x0a\xff", 2, &err), STATUS_INVALID);
    proto_schema_deinit(&schema);
}
END_TEST

/* Each kind of number on the wire, as protoc encodes it. */
START_TEST(encodes_numbers)
{
    static const struct {
        int type;
        const char *json, *bytes;
        size_t len;
    } cases[] = {
        {1, "1", "\x09\0\0\0\0\0\0\xf0\x3f", 9},                       /* double */
        {2, "\"-Infinity\"", "\x0d\0\0\x80\xff", 5},                   /* float */
        {3, "-1", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}, /* int64 */
        {4, "300", "\x08\xac\x02", 3},                                 /* uint64 */
        {6, "1", "\x09\1\0\0\0\0\0\0\0", 9},                           /* fixed64 */
        {7, "1", "\x0d\1\0\0\0", 5},                                   /* fixed32 */
        {15, "-2", "\x0d\xfe\xff\xff\xff", 5},                         /* sfixed32 */
        {16, "-2", "\x09\xfe\xff\xff\xff\xff\xff\xff\xff", 9},         /* sfixed64 */
        {17, "-1", "\x08\x01", 2},                                     /* sint32 */
        {18, "2147483648", "\x08\x80\x80\x80\x80\x10", 6},             /* sint64 */
        {14, "\"ON\"", "\x08\x03", 2},                                 /* enum */
        {14, "-1", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        Google__Protobuf__FileDescriptorProto file = GOOGLE__PROTOBUF__FILE_DESCRIPTOR_PROTO__INIT;
        Google__Protobuf__DescriptorProto message = GOOGLE__PROTOBUF__DESCRIPTOR_PROTO__INIT;
        Google__Protobuf__EnumDescriptorProto modes = GOOGLE__PROTOBUF__ENUM_DESCRIPTOR_PROTO__INIT;
        Google__Protobuf__EnumValueDescriptorProto on =
            GOOGLE__PROTOBUF__ENUM_VALUE_DESCRIPTOR_PROTO__INIT;
        field_descriptor field = GOOGLE__PROTOBUF__FIELD_DESCRIPTOR_PROTO__INIT;
        char m[] = "M", e[] = "E", value[] = "ON", name[] = "x", type[] = ".M.E";
        uint8_t bytes[256];
        json_t *json;
        struct buf out;

        on.name = value;
        on.number = 3;
        modes.name = e;
        modes.value = (Google__Protobuf__EnumValueDescriptorProto *[]){&on};
        modes.n_value = 1;
        field.name = name;
        field.number = 1;
        field.label = 1;
        field.type = cases[i].type;
        field.type_name = type;
        message.name = m;
        message.field = (field_descriptor *[]){&field};
        message.enum_type = (Google__Protobuf__EnumDescriptorProto *[]){&modes};
        message.n_field = message.n_enum_type = 1;
        file.message_type = (Google__Protobuf__DescriptorProto *[]){&message};
        file.n_message_type = 1;
        ck_assert_uint_le(codec_size(&file.base), sizeof(bytes));
        proto_schema_init(&schema);
        ck_assert_int_eq(proto_schema_add(&schema, bytes, codec_encode(&file.base, bytes), &err),
                         STATUS_OK);
        json = json_pack("{so}", "x", json_loads(cases[i].json, JSON_DECODE_ANY, NULL));
        buf_init(&out, 64);
        ck_assert_int_eq(proto_json_encode(&out, &schema, ".M", json, &err), STATUS_OK);
        ck_assert_msg(out.len == cases[i].len && memcmp(out.data, cases[i].bytes, out.len) == 0,
                      "type %d of %s: %zu bytes", cases[i].type, cases[i].json, out.len);
        buf_deinit(&out);
        json_decref(json);
        proto_schema_deinit(&schema);
    }
}
END_TEST

SUITE_MAIN("client/cli/bench/proto_json", encodes, encodes_tensors, refuses, finds, encodes_numbers)
