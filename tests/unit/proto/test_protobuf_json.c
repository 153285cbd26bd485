#include "proto/json/protobuf_json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "google/rpc/error_details.pb-c.h"
#include "inference/grpc_service.pb-c.h"
#include "parley/v1/act.pb-c.h"
#include "parley/v1/conversations.pb-c.h"
#include "parley/v1/env.pb-c.h"
#include "parley/v1/sampling.pb-c.h"
#include "parley/v1/tensor.pb-c.h"
#include "proto/codec.h"
#include "proto/descriptors.h"
#include "proto/json/message_layout.h"
#include "server/api/services.h"
#include "tests/unit/base/suite.h"

enum { MAX_FIELDS = 1000, MAX_BYTES = 1 << 20, TYPES_MAX = 512 };

#define OPEN &parley__v1__conversations_open_request__descriptor
#define TURN &parley__v1__turn_request__descriptor
#define EVENT &parley__v1__turn_event__descriptor
#define REWIND &parley__v1__conversations_rewind_request__descriptor
#define SAMPLING &parley__v1__sampling__descriptor
#define TENSOR &parley__v1__tensor__descriptor
#define RETRY &google__rpc__retry_info__descriptor
#define PARAMETER &inference__infer_parameter__descriptor
#define STEP &parley__v1__act_step_request__descriptor
#define CONVERSATION &parley__v1__conversation__descriptor

static enum status read_text(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type,
                             const char *text, size_t max_fields, struct arena *arena,
                             struct error *err)
{
    json_error_t why;
    json_t *value = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why);
    enum status rc;

    ck_assert_msg(value != NULL, "%s: %s", text, why.text);
    rc = protobuf_json_read(out, type, value, max_fields, arena, err);
    json_decref(value);
    return rc;
}

static void write_text(struct buf *out, const ProtobufCMessage *m)
{
    struct json_writer w = json_writer_begin(out);

    protobuf_json_write(&w, NULL, m);
    ck_assert_int_eq(json_writer_end(&w), STATUS_OK);
}

/* What is written of a message, and what is read for it; out NULL: the same text. */
static const struct {
    const ProtobufCMessageDescriptor *type;
    const char *in, *out;
} taken[] = {
    {OPEN, "{}", NULL},
    {OPEN, "{\"model\":null,\"ttlMs\":null,\"metadata\":null,\"sampling\":null}", "{}"},
    {OPEN, "{\"model\":\"\",\"ttlMs\":\"0\",\"metadata\":{},\"limits\":{\"maxTurns\":0}}",
     "{\"limits\":{}}"},
    {OPEN, "{\"request_id\":\"a\",\"ttl_ms\":5}", "{\"ttlMs\":\"5\",\"requestId\":\"a\"}"},
    {OPEN, "{\"ttlMs\":\"18446744073709551615\"}", NULL},
    {OPEN, "{\"ttlMs\":1e3}", "{\"ttlMs\":\"1000\"}"},
    {OPEN, "{\"ttlMs\":\"5.0\"}", "{\"ttlMs\":\"5\"}"},
    {OPEN, "{\"limits\":{\"priority\":-100}}", NULL},
    {OPEN, "{\"limits\":{\"priority\":\"-2147483648\",\"maxTokens\":4294967295}}",
     "{\"limits\":{\"maxTokens\":4294967295,\"priority\":-2147483648}}"},
    {OPEN, "{\"metadata\":{\"a b\":\"\",\"\":\"\\u00e9\\\"\\n\\ud83d\\ude00\"}}",
     "{\"metadata\":{\"a b\":\"\",\"\":\"\xc3\xa9\\\"\\n\xf0\x9f\x98\x80\"}}"},
    {SAMPLING, "{\"temperature\":0,\"topK\":0,\"seed\":\"0\",\"ignoreEos\":false}",
     "{\"temperature\":0,\"topK\":0,\"seed\":\"0\",\"ignoreEos\":false}"},
    {SAMPLING, "{\"temperature\":0.1,\"topP\":\"0.9\",\"minP\":1e-45}",
     "{\"temperature\":0.1,\"topP\":0.9,\"minP\":1.4013e-45}"},
    {SAMPLING, "{\"temperature\":16777217,\"topP\":3.4028235e38}",
     "{\"temperature\":16777216,\"topP\":3.4028235e+38}"},
    {SAMPLING, "{\"temperature\":\"NaN\",\"topP\":\"Infinity\",\"minP\":\"-Infinity\"}", NULL},
    {SAMPLING, "{\"logitBias\":{\"-7\":1.5,\"0\":0},\"stop\":[\"\",\"b\"]}", NULL},
    {TENSOR,
     "{\"dtype\":\"DTYPE_I64\",\"shape\":[\"-9223372036854775808\",\"9223372036854775807\"]}",
     NULL},
    {TENSOR, "{\"dtype\":3}", "{\"dtype\":\"DTYPE_I32\"}"},
    {TENSOR, "{\"dtype\":77}", NULL},
    {TENSOR, "{\"data\":\"+/8=\"}", NULL},
    {TENSOR, "{\"data\":\"-_8\"}", "{\"data\":\"+/8=\"}"},
    {TENSOR, "{\"data\":\"\"}", "{}"},
    {REWIND, "{\"toTurn\":0}", NULL},
    {REWIND, "{\"toTurn\":null}", "{}"},
    {RETRY, "{\"retryDelay\":\"1.5s\"}", "{\"retryDelay\":\"1.500s\"}"},
    {RETRY, "{\"retryDelay\":\"0.0000010s\"}", "{\"retryDelay\":\"0.000001s\"}"},
    {RETRY, "{\"retryDelay\":\"7.000s\"}", "{\"retryDelay\":\"7s\"}"},
    {RETRY, "{\"retryDelay\":\"-0.000000001s\"}", NULL},
    {RETRY, "{\"retryDelay\":\"-315576000000s\"}", NULL},
    {PARAMETER, "{\"doubleParam\":1e308}", "{\"doubleParam\":1e+308}"},
    {PARAMETER, "{\"doubleParam\":0}", "{\"doubleParam\":0.0}"},
    {PARAMETER, "{\"boolParam\":false}", NULL},
    {PARAMETER, "{\"stringParam\":\"\"}", NULL},
    {STEP, "{\"runId\":\"18446744073709551615\",\"reward\":-0.5}", NULL},
    {EVENT, "{\"piece\":{\"text\":\"a\",\"tokenIds\":[0,-1]}}", NULL},
    {EVENT, "{\"done\":{}}", NULL},
    {TURN, "{\"messages\":[{\"role\":\"user\",\"text\":\"a\"},{}]}", NULL},
};

/* JSON becomes the message, and the message becomes the JSON, also by way of the wire. */
START_TEST(test_taken)
{
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        const char *want = taken[i].out != NULL ? taken[i].out : taken[i].in;
        ProtobufCMessage *m, *again;
        struct arena arena;
        struct error err;
        struct buf out, wire;

        arena_init(&arena, MAX_BYTES);
        buf_init(&out, MAX_BYTES);
        buf_init(&wire, MAX_BYTES);
        ck_assert_msg(read_text(&m, taken[i].type, taken[i].in, MAX_FIELDS, &arena, &err) ==
                          STATUS_OK,
                      "%s: %s", taken[i].in, err.text);
        write_text(&out, m);
        ck_assert_str_eq(out.data, want);
        buf_clear(&out);
        ck_assert_int_eq(buf_reserve(&wire, codec_size(m)), STATUS_OK);
        wire.len = codec_encode(m, (uint8_t *)wire.data);
        ck_assert_int_eq(
            codec_decode(&again, taken[i].type, wire.data, wire.len, MAX_FIELDS, &arena, &err),
            STATUS_OK);
        write_text(&out, again);
        ck_assert_str_eq(out.data, want);
        buf_deinit(&out);
        buf_deinit(&wire);
        arena_deinit(&arena);
    }
}
END_TEST

static const struct {
    const ProtobufCMessageDescriptor *type;
    const char *in, *field, *text;
} refused[] = {
    {OPEN, "[]", "", "the message must be an object"},
    {OPEN, "null", "", "the message must be an object"},
    {OPEN, "{\"modle\":1}", "modle", "did you mean model?"},
    {OPEN, "{\"limits\":{\"x\":1}}", "limits.x", "is no field of parley.v1.ConversationLimits"},
    {OPEN, "{\"\":1}", "", "is no field"},
    {OPEN, "{\"Model\":\"a\"}", "Model", "is no field"},
    {OPEN, "{\"requestId\":\"a\",\"request_id\":\"a\"}", "request_id", "is given twice"},
    {OPEN, "{\"requestId\":null,\"request_id\":\"a\"}", "request_id", "is given twice"},
    {OPEN, "{\"model\":1}", "model", "must be a string"},
    {OPEN, "{\"model\":{}}", "model", "must be a string"},
    {OPEN, "{\"ttlMs\":-1}", "ttl_ms", "from 0 to 2^64 - 1"},
    {OPEN, "{\"ttlMs\":\"18446744073709551616\"}", "ttl_ms", "from 0 to 2^64 - 1"},
    {OPEN, "{\"ttlMs\":1.5}", "ttl_ms", "a whole number"},
    {OPEN, "{\"ttlMs\":1e300}", "ttl_ms", "a whole number"},
    {OPEN, "{\"ttlMs\":\"\"}", "ttl_ms", "a whole number"},
    {OPEN, "{\"ttlMs\":\" 1\"}", "ttl_ms", "a whole number"},
    {OPEN, "{\"ttlMs\":\"+1\"}", "ttl_ms", "a whole number"},
    {OPEN, "{\"ttlMs\":\"01\"}", "ttl_ms", "a whole number"},
    {OPEN, "{\"ttlMs\":\"0x1\"}", "ttl_ms", "a whole number"},
    {OPEN, "{\"ttlMs\":true}", "ttl_ms", "a whole number"},
    {OPEN, "{\"limits\":{\"maxTokens\":4294967296}}", "limits.max_tokens", "to 4294967295"},
    {OPEN, "{\"limits\":{\"priority\":2147483648}}", "limits.priority", "of 32 bits"},
    {OPEN, "{\"limits\":{\"priority\":-2147483649}}", "limits.priority", "of 32 bits"},
    {OPEN, "{\"limits\":[]}", "limits", "must be an object"},
    {OPEN, "{\"limits\":\"a\"}", "limits", "must be an object"},
    {OPEN, "{\"metadata\":[]}", "metadata", "must be an object"},
    {OPEN, "{\"metadata\":{\"a\":1}}", "metadata.a.value", "must be a string"},
    {OPEN, "{\"metadata\":{\"a\":null}}", "metadata.a.value", "must be a string"},
    {SAMPLING, "{\"logitBias\":{\"x\":1}}", "logit_bias.x", "has a key of another type"},
    {SAMPLING, "{\"logitBias\":{\"2147483648\":1}}", "logit_bias.2147483648", "a key of another"},
    {SAMPLING, "{\"stop\":\"a\"}", "stop", "must be a list"},
    {SAMPLING, "{\"stop\":[\"a\",null]}", "stop[1]", "must be a string"},
    {SAMPLING, "{\"temperature\":1e39}", "temperature", "a number of 32 bits"},
    {SAMPLING, "{\"temperature\":\"nan\"}", "temperature", "a number of 32 bits"},
    {SAMPLING, "{\"temperature\":\"1 \"}", "temperature", "a number of 32 bits"},
    {SAMPLING, "{\"ignoreEos\":0}", "ignore_eos", "true or false"},
    {SAMPLING, "{\"ignoreEos\":\"true\"}", "ignore_eos", "true or false"},
    {TENSOR, "{\"dtype\":\"F32\"}", "dtype", "the name of a value"},
    {TENSOR, "{\"dtype\":1.5}", "dtype", "the name of a value"},
    {TENSOR, "{\"data\":\"a\"}", "data", "bytes in base64"},
    {TENSOR, "{\"data\":\"ab=\"}", "data", "bytes in base64"},
    {TENSOR, "{\"data\":\"ab=c\"}", "data", "bytes in base64"},
    {TENSOR, "{\"data\":\"====\"}", "data", "bytes in base64"},
    {TENSOR, "{\"data\":\"a b=\"}", "data", "bytes in base64"},
    {RETRY, "{\"retryDelay\":\"1\"}", "retry_delay", "a number of seconds"},
    {RETRY, "{\"retryDelay\":\"1.s\"}", "retry_delay", "a number of seconds"},
    {RETRY, "{\"retryDelay\":\"1.0000000001s\"}", "retry_delay", "a number of seconds"},
    {RETRY, "{\"retryDelay\":\"315576000000.1s\"}", "retry_delay", "a number of seconds"},
    {RETRY, "{\"retryDelay\":{\"seconds\":1}}", "retry_delay", "a number of seconds"},
    {PARAMETER, "{\"boolParam\":true,\"stringParam\":\"a\"}", "string_param", "only one may"},
    {PARAMETER, "{\"doubleParam\":[]}", "double_param", "a number"},
    {TURN, "{\"messages\":[{\"role\":\"user\"},{\"text\":7}]}", "messages[1].text", "a string"},
    {TURN, "{\"messages\":[[]]}", "messages[0]", "must be an object"},
};

/* What is no such message is refused with its place. */
START_TEST(test_refused)
{
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        ProtobufCMessage *m;
        struct arena arena;
        struct error err = {0};

        arena_init(&arena, MAX_BYTES);
        ck_assert_msg(read_text(&m, refused[i].type, refused[i].in, MAX_FIELDS, &arena, &err) ==
                          STATUS_INVALID,
                      "%s", refused[i].in);
        ck_assert_str_eq(err.field, refused[i].field);
        ck_assert_msg(strstr(err.text, refused[i].text) != NULL, "%s: %s", refused[i].in, err.text);
        arena_deinit(&arena);
    }
}
END_TEST

/* Fields are bounded, and so is the memory. */
START_TEST(test_bounds)
{
    static const char stops[] = "{\"stop\":[\"aaaaaaaaaa\",\"b\",\"c\"],\"topK\":1}";
    ProtobufCMessage *m;
    struct arena arena;
    struct error err;

    arena_init(&arena, MAX_BYTES);
    ck_assert_int_eq(read_text(&m, SAMPLING, stops, 4, &arena, &err), STATUS_OK);
    ck_assert_int_eq(read_text(&m, SAMPLING, stops, 3, &arena, &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "the message has more than 3 fields");
    arena_deinit(&arena);
    arena_init(&arena, 64);
    ck_assert_int_eq(read_text(&m, SAMPLING, stops, 4, &arena, &err), STATUS_INVALID);
    ck_assert_int_eq(err.reason, REASON_REQUEST_TOO_LARGE);
    arena_deinit(&arena);
}
END_TEST

struct seen {
    const ProtobufCMessageDescriptor *types[TYPES_MAX];
    size_t n;
};

static void see(struct seen *all, const ProtobufCMessageDescriptor *type)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->types[i] == type)
            return;
    ck_assert_uint_lt(all->n, TYPES_MAX);
    all->types[all->n++] = type;
    for (unsigned i = 0; i < type->n_fields; i++)
        if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            see(all, type->fields[i].descriptor);
}

/* Of protobuf's well-known types, the messages of all methods hold those alone that have a form
 * here; maps are known as such; and no field's name is longer than it may be. */
START_TEST(test_served_types)
{
    struct seen all = {.n = 0};
    size_t n, n_maps = 0;
    const struct call_table *const *services = services_tables(&n);

    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < services[i]->n; k++) {
            see(&all, services[i]->rows[k].request);
            see(&all, services[i]->rows[k].response);
        }
    }
    for (size_t i = 0; i < all.n; i++) {
        const ProtobufCMessageDescriptor *type = all.types[i];

        ck_assert_msg(strncmp(type->name, "google.protobuf.", 16) != 0 || message_is_duration(type),
                      "%s", type->name);
        ck_assert_uint_le(type->n_fields, 256);
        for (unsigned f = 0; f < type->n_fields; f++) {
            ck_assert_uint_lt(strlen(type->fields[f].name), 96);
            n_maps += message_field_is_map(&type->fields[f]);
        }
    }
    ck_assert_uint_ge(n_maps, 10);
}
END_TEST

SUITE_MAIN("proto/protobuf_json", test_taken, test_refused, test_bounds, test_served_types)
