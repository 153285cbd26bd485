#include "proto/codec.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "parley/v1/act.pb-c.h"
#include "parley/v1/conversations.pb-c.h"
#include "tests/unit/base/suite.h"

typedef Parley__V1__TurnRequest turn_request;

#define TURN (&parley__v1__turn_request__descriptor)

static enum status decode(ProtobufCMessage **out, const void *data, size_t len, struct arena *a,
                          struct error *err)
{
    arena_init(a, 1 << 16);
    return codec_decode(out, TURN, data, len, 100, a, err);
}

static void expect_refused(const char *bytes, size_t len, const char *field)
{
    ProtobufCMessage *m = NULL;
    struct arena arena;
    struct error err = {0};

    ck_assert_int_eq(decode(&m, bytes, len, &arena, &err), STATUS_INVALID);
    ck_assert_ptr_null(m);
    ck_assert_str_eq(err.field, field);
    ck_assert_str_ne(err.text, "");
    arena_deinit(&arena);
}

/* What is encoded comes back equal, with texts of its own. */
START_TEST(round_trip)
{
    Parley__V1__Message said[2] = {PARLEY__V1__MESSAGE__INIT, PARLEY__V1__MESSAGE__INIT};
    Parley__V1__Message *messages[2] = {&said[0], &said[1]};
    Parley__V1__Sampling sampling = PARLEY__V1__SAMPLING__INIT;
    turn_request in = PARLEY__V1__TURN_REQUEST__INIT;
    const turn_request *out;
    ProtobufCMessage *m = NULL;
    struct arena arena;
    struct error err;
    uint8_t bytes[256];
    size_t len;

    said[0].role = (char[]){"user"};
    said[0].text = (char[]){"gr\xc3\xbc\xc3\x9f dich"};
    said[1].role = (char[]){"assistant"};
    sampling.has_temperature = 1;
    in.conversation = (char[]){"c"};
    in.turn = 7;
    in.messages = messages;
    in.n_messages = 2;
    in.sampling = &sampling;
    len = codec_size(&in.base);
    ck_assert_uint_le(len, sizeof(bytes));
    ck_assert_uint_eq(codec_encode(&in.base, bytes), len);

    ck_assert_int_eq(decode(&m, bytes, len, &arena, &err), STATUS_OK);
    memset(bytes, 0, sizeof(bytes));
    out = (const turn_request *)m;
    ck_assert_str_eq(out->conversation, "c");
    ck_assert_uint_eq(out->turn, 7);
    ck_assert_uint_eq(out->n_messages, 2);
    ck_assert_str_eq(out->messages[0]->text, said[0].text);
    ck_assert_str_eq(out->messages[1]->role, "assistant");
    ck_assert_str_eq(out->messages[1]->text, "");
    ck_assert(out->sampling->has_temperature && !out->sampling->has_seed);
    arena_deinit(&arena);
}
END_TEST

/* No bytes are an empty message, also when there is no pointer to them. */
START_TEST(empty_is_empty)
{
    ProtobufCMessage *m = NULL;
    struct arena arena;
    struct error err;

    ck_assert_int_eq(decode(&m, NULL, 0, &arena, &err), STATUS_OK);
    ck_assert_str_eq(((turn_request *)m)->text, "");
    arena_deinit(&arena);
}
END_TEST

/* Text that is not UTF-8, or that a C string could not hold, is refused by its path. */
START_TEST(text_is_checked)
{
    expect_refused("\x22\x01\xff", 3, "text");
    expect_refused("\x22\x02\xc3\x28", 4, "text");
    expect_refused("\x22\x03"
                   "a\0b",
                   5, "text");
    expect_refused("\x1a\x02\x0a\x00\x1a\x03\x12\x01\x80", 9, "messages[1].text");
    expect_refused("\x2a\x03\x52\x01\xc0", 5, "sampling.stop[0]");
    /* also where a later value would hide it */
    expect_refused("\x22\x01\xff\x22\x01x", 6, "text");
}
END_TEST

/* A field that the schema does not know may hold anything and is passed over. */
START_TEST(unknown_fields_pass)
{
    ProtobufCMessage *m = NULL;
    struct arena arena;
    struct error err;

    ck_assert_int_eq(decode(&m, "\xa2\x06\x01\xff\x10\x03", 6, &arena, &err), STATUS_OK);
    ck_assert_uint_eq(((turn_request *)m)->turn, 3);
    arena_deinit(&arena);
}
END_TEST

/* Bytes that are no message are refused: cut short, a wrong wire type, a group, field 0, a tag or a
 * length that runs on. */
START_TEST(damaged_bytes_are_refused)
{
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {
        {"\x22", 1},
        {"\x22\x05"
         "abc",
         5},
        {"\x20\x01", 2},
        {"\x1a\x7f", 2},
        {"\x23\x24", 2},
        {"\x00\x01", 2},
        {"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12},
        {"\x22\xff\xff\xff\xff\x0f", 6},
        {"\xff\xff\xff\xff\xff\xff\x01", 7},
        {"\x22\x80\x80\x80\x80\x80\x01x", 8},
        {"\x0d\x01\x02", 3},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        expect_refused(cases[i].bytes, cases[i].len, "");
}
END_TEST

/* A message that grows past the arena's limit is exhaustion, whatever its bytes' size. */
START_TEST(limit_holds)
{
    uint8_t bytes[2000];
    ProtobufCMessage *m = NULL;
    struct arena arena;
    struct error err;

    for (size_t i = 0; i < sizeof(bytes); i += 2) {
        bytes[i] = 0x1a; /* an empty message, 2 bytes on the wire */
        bytes[i + 1] = 0;
    }
    arena_init(&arena, 4000);
    ck_assert_int_eq(codec_decode(&m, TURN, bytes, sizeof(bytes), 1000, &arena, &err),
                     STATUS_INVALID); /* the same message again has no better luck */
    ck_assert_str_eq(error_reason(&err), "REQUEST_TOO_LARGE");
    arena_deinit(&arena);
    arena_init(&arena, 1 << 20);
    ck_assert_int_eq(codec_decode(&m, TURN, bytes, sizeof(bytes), 1000, &arena, &err), STATUS_OK);
    ck_assert_uint_eq(((turn_request *)m)->n_messages, sizeof(bytes) / 2);
    arena_deinit(&arena);
}
END_TEST

/* Memory that is not there at any point is exhaustion, never a crash. */
START_TEST(faults)
{
    static const char bytes[] = "\x0a\x01x\x1a\x06\x0a\x01u\x12\x01t\x2a\x03\x52\x01s";
    enum status rc = STATUS_EXHAUSTED;
    long n;

    for (n = 0; rc != STATUS_OK; n++) {
        ProtobufCMessage *m = NULL;
        struct arena arena;
        struct error err;

        arena_init(&arena, 1 << 16);
        fault_after = n;
        rc = codec_decode(&m, TURN, bytes, sizeof(bytes) - 1, 100, &arena, &err);
        fault_after = -1;
        ck_assert(rc == STATUS_OK || rc == STATUS_EXHAUSTED);
        arena_deinit(&arena);
    }
    ck_assert_int_gt(n, 1);
}
END_TEST

/* n times what is given. */
static uint8_t *repeat(const char *part, size_t len, size_t n)
{
    uint8_t *bytes = xalloc(n * len);

    for (size_t i = 0; i < n; i++)
        memcpy(bytes + i * len, part, len);
    return bytes;
}

/* A message is decoded with as many fields as it may have. With one more it is refused before any
 * memory is taken, and nothing behind that field is looked at: here come bytes that are no field.
 * Fields of messages inside count, and those that the schema does not know. */
START_TEST(fields_are_bounded)
{
    static const struct {
        const char *part;
        size_t len, n_fields;
    } cases[] = {
        {"\x1a\x00", 2, 1},                                  /* messages: {} */
        {"\x1a\x06\x0a\x01u\x12\x01t", 8, 3},                /* messages: {role, text} */
        {"\x2a\x03\x52\x01s", 5, 2},                         /* sampling: {stop} */
        {"\x2a\x09\x42\x07\x08\x05\x15\0\0\x80\x3f", 11, 4}, /* sampling: {logit_bias: {5: 1}} */
        {"\xa2\x06\x00", 3, 1},                              /* unknown */
    };
    const size_t n = 10000;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t len = n * cases[i].len;
        uint8_t *bytes = repeat(cases[i].part, cases[i].len, n + 1);
        ProtobufCMessage *m = NULL;
        struct arena arena;
        struct error err = {0};

        arena_init(&arena, SIZE_MAX);
        ck_assert_int_eq(codec_decode(&m, TURN, bytes, len, n * cases[i].n_fields, &arena, &err),
                         STATUS_OK);
        arena_deinit(&arena);

        memset(bytes + len, 0xff, cases[i].len);
        m = NULL;
        ck_assert_int_eq(codec_decode(&m, TURN, bytes, len + cases[i].len,
                                      n * cases[i].n_fields - 1, &arena, &err),
                         STATUS_INVALID);
        ck_assert_ptr_null(m);
        ck_assert_ptr_nonnull(strstr(err.text, "more than"));
        ck_assert_uint_eq(arena.total_bytes, 0);
        free(bytes);
    }
}
END_TEST

/* Numbers that are packed are one field, however many they are. */
START_TEST(packed_numbers_are_one_field)
{
    Parley__V1__ActEpisodeResult episode = PARLEY__V1__ACT_EPISODE_RESULT__INIT, *back;
    size_t n = 100000, len;
    ProtobufCMessage *m = NULL;
    struct arena arena;
    struct error err;
    uint8_t *bytes;

    episode.n_returns = n;
    episode.returns = xalloc(n * sizeof(float));
    len = codec_size(&episode.base);
    bytes = xalloc(len);
    (void)codec_encode(&episode.base, bytes);
    arena_init(&arena, SIZE_MAX);
    ck_assert_int_eq(codec_decode(&m, episode.base.descriptor, bytes, len, 2, &arena, &err),
                     STATUS_OK);
    back = (Parley__V1__ActEpisodeResult *)m;
    ck_assert_uint_eq(back->n_returns, n);
    arena_deinit(&arena);
    free(episode.returns);
    free(bytes);
}
END_TEST

/* A message type of our own that holds itself, as a foreign schema may. */
static const ProtobufCMessageDescriptor nest_type;
static const ProtobufCFieldDescriptor nest_fields[] = {
    {.name = "inner",
     .id = 1,
     .label = PROTOBUF_C_LABEL_OPTIONAL,
     .type = PROTOBUF_C_TYPE_MESSAGE,
     .offset = sizeof(ProtobufCMessage),
     .descriptor = &nest_type},
};
static const unsigned nest_by_name[] = {0};
static const ProtobufCIntRange nest_ranges[] = {{1, 0}, {0, 1}};
static const ProtobufCMessageDescriptor nest_type = {
    .magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
    .name = "Nest",
    .short_name = "Nest",
    .c_name = "Nest",
    .package_name = "",
    .sizeof_message = sizeof(ProtobufCMessage) + sizeof(void *),
    .n_fields = 1,
    .fields = nest_fields,
    .fields_sorted_by_name = nest_by_name,
    .n_field_ranges = 1,
    .field_ranges = nest_ranges,
};

static enum status decode_nest(size_t depth)
{
    uint8_t bytes[2 * 60];
    ProtobufCMessage *m = NULL;
    struct arena arena;
    struct error err;
    enum status rc;

    for (size_t i = 0; i < depth; i++) {
        bytes[2 * i] = 0x0a;
        bytes[2 * i + 1] = (uint8_t)(2 * (depth - 1 - i));
    }
    arena_init(&arena, 1 << 16);
    rc = codec_decode(&m, &nest_type, bytes, 2 * depth, 100, &arena, &err);
    arena_deinit(&arena);
    return rc;
}

/* Nesting is bounded, so that no peer can make the decoder recurse off its stack. */
START_TEST(depth_is_bounded)
{
    ck_assert_int_eq(decode_nest(CODEC_DEPTH_MAX), STATUS_OK);
    ck_assert_int_eq(decode_nest(CODEC_DEPTH_MAX + 1), STATUS_INVALID);
}
END_TEST

SUITE_MAIN("proto/codec", round_trip, empty_is_empty, text_is_checked, unknown_fields_pass,
           damaged_bytes_are_refused, limit_holds, faults, fields_are_bounded,
           packed_numbers_are_one_field, depth_is_bounded)
