/* The head of a .safetensors file, good and broken. */
#include <stdio.h>
#include <string.h>

#include "compute/gguf/hf_parts.h"
#include "tests/unit/base/suite.h"

static struct error err;

/* Parses a header of a file that holds n_data bytes behind it. */
static enum status parse(struct hf_tensors *t, const char *header, uint64_t n_data)
{
    return hf_tensors_parse(t, header, strlen(header), 8 + strlen(header) + n_data, &err);
}

/* Tensors are listed by place, whatever their order in the header; metadata are none. A table of
 * integers is one that no weight can be. */
START_TEST(heads_are_read)
{
    static const char header[] =
        "{\"b\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[16,22]},"
        "\"__metadata__\":{\"format\":\"pt\"},"
        "\"c\":{\"dtype\":\"I64\",\"shape\":[1,2],\"data_offsets\":[22,38]},"
        "\"a\":{\"dtype\":\"F32\",\"shape\":[1,4],\"data_offsets\":[0,16]}}";
    struct hf_tensors t;

    ck_assert_int_eq(parse(&t, header, 38), STATUS_OK);
    ck_assert_uint_eq(t.n, 3);
    ck_assert(t.list[0].other_type == NULL && t.list[1].other_type == NULL);
    ck_assert_str_eq(t.list[2].other_type, "I64");
    ck_assert_str_eq(t.list[0].name, "a");
    ck_assert(t.list[0].n_dims == 2 && t.list[0].dims[1] == 4 && t.list[0].type == DTYPE_F32);
    ck_assert_uint_eq(t.list[0].begin, 8 + strlen(header));
    ck_assert(t.list[1].type == DTYPE_BF16 && t.list[1].size_bytes == 6);
    hf_tensors_close(&t);
}
END_TEST

/* What lies about sizes, types or places is refused, and says which tensor. */
START_TEST(broken_heads_are_refused)
{
    static const struct {
        const char *header;
        uint64_t n_data;
        enum status status;
        const char *words;
    } heads[] = {
        {"{", 0, STATUS_DATA_LOSS, "its header: not valid JSON"},
        {"[]", 0, STATUS_DATA_LOSS, "its header: not a JSON object"},
        {"{\"a\":7}", 0, STATUS_DATA_LOSS, "tensor 'a': is not described by an object"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8,
         STATUS_UNIMPLEMENTED, "tensor 'a': is of type 'F64'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 12, STATUS_DATA_LOSS,
         "so 4 are missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,16]}}", 16, STATUS_DATA_LOSS,
         "has 16 bytes where its shape asks for 12"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,16]}}",
         16, STATUS_DATA_LOSS, "has a size that no file can have"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, STATUS_DATA_LOSS,
         "not a number above 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
         STATUS_UNIMPLEMENTED, "has 5 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, STATUS_DATA_LOSS,
         "not a begin and an end"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, STATUS_DATA_LOSS,
         "tensor 'a' begins after a gap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, STATUS_DATA_LOSS, "tensor 'b' overlaps the tensor before it"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, STATUS_DATA_LOSS,
         "4 bytes behind its last tensor"},
    };

    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct hf_tensors t = {.n = 7};
        enum status rc = parse(&t, heads[i].header, heads[i].n_data);

        ck_assert_uint_eq(t.n, 7); /* untouched */
        if (rc != heads[i].status || strstr(err.text, heads[i].words) == NULL)
            ck_abort_msg("%zu: status %d '%s' where %d '…%s…' was to come", i, rc, err.text,
                         heads[i].status, heads[i].words);
    }
}
END_TEST

SUITE_MAIN("compute/hf_tensors", heads_are_read, broken_heads_are_refused)
