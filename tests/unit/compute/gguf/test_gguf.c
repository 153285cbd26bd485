#include "compute/gguf/gguf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"
#include "tests/unit/compute/gguf/gguf_maker.h"

static struct gguf_maker maker;
static struct error err;

static struct gguf *open_made(void)
{
    struct gguf *g = NULL;

    if (gguf_open_bytes(&g, maker.bytes, maker.len, "made", &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    return g;
}

/* Checks that the made file is refused with this status, and that the error's text begins with its
 * name and contains words. */
static void expect_refused(enum status status, const char *words)
{
    struct gguf *g = (struct gguf *)&maker;
    enum status rc = gguf_open_bytes(&g, maker.bytes, maker.len, "made", &err);

    ck_assert_ptr_eq(g, &maker); /* untouched */
    if (rc != status || strncmp(err.text, "made: ", 6) != 0 || strstr(err.text, words) == NULL)
        ck_abort_msg("status %d '%s' where %d '…%s…' was to come", rc, err.text, status, words);
}

/* Every scalar is read; integers of any width as u64, floats of both widths as f64. */
START_TEST(scalars_are_read)
{
    static const struct {
        const char *key;
        uint64_t want;
    } integers[] = {{"u8", 200},  {"u16", 60000}, {"u32", 4000000000},
                    {"i16", 300}, {"i32", 70000}, {"u64", UINT64_MAX}};
    struct gguf *g;
    uint64_t u;
    double d;
    bool b;
    const char *text;
    size_t len;

    make_good(&maker);
    g = open_made();
    for (size_t i = 0; i < sizeof(integers) / sizeof(integers[0]); i++) {
        ck_assert_int_eq(gguf_get_u64(g, integers[i].key, &u, &err), STATUS_OK);
        ck_assert_uint_eq(u, integers[i].want);
    }
    ck_assert_int_eq(gguf_get_f64(g, "f32", &d, &err), STATUS_OK);
    ck_assert(d == 1.5);
    ck_assert_int_eq(gguf_get_f64(g, "f64", &d, &err), STATUS_OK);
    ck_assert(d == -2.5);
    ck_assert_int_eq(gguf_get_bool(g, "yes", &b, &err), STATUS_OK);
    ck_assert(b);
    ck_assert_int_eq(gguf_get_bool(g, "no", &b, &err), STATUS_OK);
    ck_assert(!b);
    ck_assert_int_eq(gguf_get_text(g, "text", &text, &len, &err), STATUS_OK);
    ck_assert_uint_eq(len, 5);
    ck_assert_int_eq(memcmp(text, "words", 5), 0);
    ck_assert_int_eq(gguf_get_text(g, "none", &text, &len, &err), STATUS_OK);
    ck_assert_uint_eq(len, 0);
    gguf_close(g);
}
END_TEST

/* Each entry of an array is read, and its count also when it is empty or nested. */
START_TEST(arrays_are_read)
{
    static const char *const texts[] = {"one", "", "three"};
    static const int64_t shorts[] = {1, -2, 3};
    struct gguf *g;
    const char *text;
    size_t len;
    int64_t v;

    make_good(&maker);
    g = open_made();
    for (int round = 0; round < 2; round++) {
        for (size_t i = 3; i-- > 0;) {
            ck_assert_int_eq(gguf_array_text(g, "texts", i, &text, &len, &err), STATUS_OK);
            ck_assert_uint_eq(len, strlen(texts[i]));
            ck_assert_int_eq(memcmp(text, texts[i], len), 0);
            ck_assert_int_eq(gguf_array_i64(g, "shorts", i, &v, &err), STATUS_OK);
            ck_assert_int_eq(v, shorts[i]);
        }
    }
    ck_assert_int_eq(gguf_array_i64(g, "longs", 0, &v, &err), STATUS_OK);
    ck_assert_int_eq(v, INT64_MAX);
    ck_assert_int_eq(gguf_array_len(g, "texts", &len, &err), STATUS_OK);
    ck_assert_uint_eq(len, 3);
    ck_assert_int_eq(gguf_array_len(g, "nested", &len, &err), STATUS_OK);
    ck_assert_uint_eq(len, 2);
    ck_assert_int_eq(gguf_array_len(g, "empty", &len, &err), STATUS_OK);
    ck_assert_uint_eq(len, 0);
    gguf_close(g);
}
END_TEST

/* An absent key is NOT_FOUND, one of another type or without the entry DATA_LOSS; each text names
 * file and key, and the outputs are unchanged. */
START_TEST(wrong_questions_are_refused)
{
    struct gguf *g;
    const struct tensor *t = NULL;
    uint64_t u = 7;
    int64_t v = 7;
    double d = 7;
    bool b = true;
    const char *text = "seven";
    size_t len = 7;

    make_good(&maker);
    g = open_made();
#define EXPECT(call, want, words)           \
    do {                                    \
        err = (struct error){0};            \
        ck_assert_int_eq(call, want);       \
        ck_assert_int_eq(err.status, want); \
        ck_assert_str_eq(err.text, words);  \
    } while (0)
    EXPECT(gguf_get_u64(g, "gone", &u, &err), STATUS_NOT_FOUND, "made: key 'gone' is absent");
    EXPECT(gguf_get_f64(g, "gone", &d, &err), STATUS_NOT_FOUND, "made: key 'gone' is absent");
    EXPECT(gguf_get_bool(g, "gone", &b, &err), STATUS_NOT_FOUND, "made: key 'gone' is absent");
    EXPECT(gguf_get_text(g, "", &text, &len, &err), STATUS_NOT_FOUND, "made: key '' is absent");
    EXPECT(gguf_array_len(g, "gone", &len, &err), STATUS_NOT_FOUND, "made: key 'gone' is absent");
    EXPECT(gguf_tensor(g, "gone", &t, &err), STATUS_NOT_FOUND, "made: tensor 'gone' is absent");
    EXPECT(gguf_get_u64(g, "text", &u, &err), STATUS_DATA_LOSS,
           "made: key 'text' has the type text, it must be an integer");
    EXPECT(gguf_get_u64(g, "i8", &u, &err), STATUS_DATA_LOSS, "made: key 'i8' is negative");
    EXPECT(gguf_get_u64(g, "f32", &u, &err), STATUS_DATA_LOSS,
           "made: key 'f32' has the type f32, it must be an integer");
    EXPECT(gguf_get_f64(g, "u8", &d, &err), STATUS_DATA_LOSS,
           "made: key 'u8' has the type u8, it must be a float");
    EXPECT(gguf_get_bool(g, "u8", &b, &err), STATUS_DATA_LOSS,
           "made: key 'u8' has the type u8, it must be a bool");
    EXPECT(gguf_get_text(g, "texts", &text, &len, &err), STATUS_DATA_LOSS,
           "made: key 'texts' has the type array, it must be text");
    EXPECT(gguf_array_len(g, "text", &len, &err), STATUS_DATA_LOSS,
           "made: key 'text' has the type text, it must be an array");
    EXPECT(gguf_array_text(g, "shorts", 0, &text, &len, &err), STATUS_DATA_LOSS,
           "made: key 'shorts' has the type i16, it must be an array of text");
    EXPECT(gguf_array_i64(g, "texts", 0, &v, &err), STATUS_DATA_LOSS,
           "made: key 'texts' has the type text, it must be an array of integers");
    EXPECT(gguf_array_f64(g, "shorts", 0, &d, &err), STATUS_DATA_LOSS,
           "made: key 'shorts' has the type i16, it must be an array of floats");
    EXPECT(gguf_array_i64(g, "nested", 0, &v, &err), STATUS_DATA_LOSS,
           "made: key 'nested' has the type array, it must be an array of integers");
    EXPECT(gguf_array_text(g, "texts", 3, &text, &len, &err), STATUS_DATA_LOSS,
           "made: key 'texts' has 3 entries, so there is no entry 3");
    EXPECT(gguf_array_i64(g, "empty", 0, &v, &err), STATUS_DATA_LOSS,
           "made: key 'empty' has 0 entries, so there is no entry 0");
    EXPECT(gguf_array_i64(g, "longs", 1, &v, &err), STATUS_DATA_LOSS,
           "made: key 'longs': entry 1 is above 9223372036854775807");
#undef EXPECT
    ck_assert(t == NULL && u == 7 && v == 7 && d == 7.0 && b && len == 7);
    ck_assert_str_eq(text, "seven");
    gguf_close(g);
}
END_TEST

/* A tensor has its shape, its type, a NUL-ended name and its own bytes of the file. */
START_TEST(tensors_are_found)
{
    const struct tensor *t;
    struct gguf *g;
    float values[32];

    make_good(&maker);
    g = open_made();
    ck_assert_str_eq(gguf_path(g), "made");
    ck_assert_uint_eq(gguf_size_bytes(g), maker.len);
    ck_assert_uint_eq(gguf_n_tensors(g), 3);
    ck_assert_int_eq(gguf_tensor(g, "f32", &t, &err), STATUS_OK);
    ck_assert_ptr_eq(t, gguf_tensor_at(g, 0));
    ck_assert(t->n_rows == 2 && t->n_cols == 4 && t->type == DTYPE_F32 && t->size_bytes == 32);
    dtype_decode(t->type, t->data, 8, values);
    for (int i = 0; i < 8; i++)
        ck_assert(values[i] == (float)i);
    ck_assert_int_eq(gguf_tensor(g, "q8", &t, &err), STATUS_OK);
    ck_assert(t->n_rows == 1 && t->n_cols == 32 && t->type == DTYPE_Q8_0 && t->size_bytes == 34);
    dtype_decode(t->type, t->data, 32, values);
    for (int i = 0; i < 32; i++)
        ck_assert(values[i] == (float)i / 2);
    ck_assert_int_eq(gguf_tensor(g, "vector", &t, &err), STATUS_OK);
    ck_assert(t->n_rows == 1 && t->n_cols == 3 && t->type == DTYPE_F16 && t->size_bytes == 6);
    ck_assert_str_eq(t->name, "vector");
    gguf_close(g);
}
END_TEST

/* A file cut at any length is refused; after its magic the text says that bytes are missing, and
 * how many once the tensors are known. */
START_TEST(cuts_are_refused)
{
    size_t whole;

    make_good(&maker);
    whole = maker.len;
    for (size_t len = 0; len < whole; len++) {
        /* allocated separately, so that a sanitizer sees a read past the end */
        uint8_t *cut = malloc(len == 0 ? 1 : len);
        struct gguf *g = NULL;

        memcpy(cut, maker.bytes, len);
        ck_assert_int_eq(gguf_open_bytes(&g, cut, len, "cut", &err), STATUS_DATA_LOSS);
        ck_assert_ptr_null(g);
        ck_assert_ptr_nonnull(strstr(err.text, len == 0  ? "cut: the file is empty"
                                               : len < 4 ? "cut: not a GGUF file"
                                                         : "missing"));
        free(cut);
    }
    maker.len = whole - 5;
    expect_refused(STATUS_DATA_LOSS, "so 5 are missing");
    expect_refused(STATUS_DATA_LOSS, "tensor 'q8'");
}
END_TEST

/* The head is checked first: the error names another format or an unsupported version. */
START_TEST(heads_are_checked)
{
    make_head(&maker, 3, 0, 0);
    gguf_close(open_made());
    make_head(&maker, 2, 0, 0);
    gguf_close(open_made());
    make_head(&maker, 1, 0, 0);
    expect_refused(STATUS_UNIMPLEMENTED, "GGUF version 1, this program reads 2 to 3");
    make_head(&maker, 4, 0, 0);
    expect_refused(STATUS_UNIMPLEMENTED, "GGUF version 4,");
    make_head(&maker, 3u << 24, 0, 0);
    expect_refused(STATUS_UNIMPLEMENTED, "big-endian");
    make_head(&maker, 3, 0, 0);
    maker.bytes[3] = 'G';
    expect_refused(STATUS_DATA_LOSS, "not a GGUF file");
    make_head(&maker, 3, 0, UINT64_MAX);
    expect_refused(STATUS_UNIMPLEMENTED, "18446744073709551615 keys, there can be at most 65536");
    make_head(&maker, 3, 0, 65536);
    expect_refused(STATUS_DATA_LOSS, "its 65536 keys: truncated");
    make_head(&maker, 3, UINT64_MAX, 0);
    expect_refused(STATUS_UNIMPLEMENTED,
                   "18446744073709551615 tensors, there can be at most 65536");
    make_head(&maker, 3, 65536, 0);
    expect_refused(STATUS_DATA_LOSS, "its list of 65536 tensors: truncated");
}
END_TEST

static void make_nested(int depth)
{
    make_head(&maker, 3, 0, 1);
    make_key(&maker, "deep", GGUF_ARRAY);
    for (int i = 1; i < depth; i++) {
        make_int(&maker, GGUF_ARRAY, 4);
        make_int(&maker, 1, 8);
    }
    make_int(&maker, GGUF_U8, 4);
    make_int(&maker, 1, 8);
    make_int(&maker, 1, 1);
}

/* A key's name, type, lengths and nesting are checked; the text names the key. */
START_TEST(keys_are_checked)
{
    make_head(&maker, 3, 0, 2);
    make_key_int(&maker, "same", GGUF_U8, 1, 1);
    make_key_int(&maker, "same", GGUF_U16, 1, 2);
    expect_refused(STATUS_DATA_LOSS, "key 'same': is in the file twice");
    make_head(&maker, 3, 0, 1);
    make_key_int(&maker, "", GGUF_U32, 1, 4);
    expect_refused(STATUS_DATA_LOSS, "key '': has no name");
    make_head(&maker, 3, 0, 1);
    make_key_int(&maker, "k", 13, 1, 8);
    expect_refused(STATUS_DATA_LOSS, "key 'k': 13 is not a type of values");
    make_head(&maker, 3, 0, 1);
    make_key_int(&maker, "k", GGUF_BOOL, 2, 1);
    expect_refused(STATUS_DATA_LOSS, "key 'k': 2 is not a bool");
    make_head(&maker, 3, 0, 1);
    make_key_int(&maker, "k", GGUF_TEXT, UINT64_MAX, 8);
    expect_refused(STATUS_DATA_LOSS, "key 'k': truncated: 18446744073709551615 bytes are needed");
    make_head(&maker, 3, 0, 1);
    make_key_array(&maker, "k", GGUF_U64, UINT64_C(1) << 61); /* times 8 it is 0 again */
    expect_refused(STATUS_DATA_LOSS, "key 'k': truncated");
    make_head(&maker, 3, 0, 1);
    make_key_array(&maker, "k", GGUF_TEXT, UINT64_MAX);
    expect_refused(STATUS_DATA_LOSS, "key 'k': truncated");
    make_head(&maker, 3, 0, 1);
    make_key_array(&maker, "k", GGUF_BOOL, 2);
    make_int(&maker, 0x0301, 2);
    expect_refused(STATUS_DATA_LOSS, "key 'k': 3 is not a bool");
    make_head(&maker, 3, 0, 1);
    make_int(&maker, UINT64_MAX - 3, 8); /* the name's length */
    make_zeros(&maker, 16);
    expect_refused(STATUS_DATA_LOSS, "key 1 of 1: truncated");
    make_nested(4);
    gguf_close(open_made());
    make_nested(5);
    expect_refused(STATUS_DATA_LOSS, "key 'deep': arrays are nested more than 4 deep");
}
END_TEST

/* A name that is not UTF-8 gives an error of one line of text. */
START_TEST(names_are_shown_as_one_line)
{
    make_head(&maker, 3, 0, 1);
    make_key_int(&maker, "a\nb\x1b[31m\xff", 99, 1, 4);
    expect_refused(STATUS_DATA_LOSS, "key 'a?b?[31m?': 99");
}
END_TEST

/* Makes a file of one such tensor, with 4096 bytes of data. */
static void make_one(const char *name, uint32_t type, uint64_t n_cols, uint64_t n_rows,
                     uint64_t offset)
{
    make_head(&maker, 3, 1, 0);
    make_tensor(&maker, name, type, n_cols, n_rows, offset);
    make_padding(&maker, 32);
    make_zeros(&maker, 4096);
}

/* A tensor's name, type, shape and offset are checked, and no sum or product wraps. */
START_TEST(tensors_are_checked)
{
    make_one("t", DTYPE_F32, 32, 32, 0);
    gguf_close(open_made());
    make_one("t", DTYPE_F32, 32, 32, 32);
    expect_refused(STATUS_DATA_LOSS, "so 32 are missing");
    make_one("t", DTYPE_F32, 32, 1, 1 << 20);
    expect_refused(STATUS_DATA_LOSS, "tensor 't' ends at");
    make_one("t", DTYPE_F32, 32, 1, 16);
    expect_refused(STATUS_DATA_LOSS, "tensor 't' is at offset 16, which is not a multiple of 32");
    make_one("t", DTYPE_F32, 32, 1, UINT64_MAX - 31);
    expect_refused(STATUS_DATA_LOSS, "tensor 't' has an offset that no file can have");
    make_one("t", DTYPE_F32, 32, 1, UINT64_MAX - 127);
    expect_refused(STATUS_DATA_LOSS, "tensor 't' has an offset that no file can have");
    make_one("t", DTYPE_Q4_K, 128, 1, 0);
    expect_refused(
        STATUS_DATA_LOSS,
        "tensor 't': has rows of 128 values, not a multiple of the 256 in a block of Q4_K");
    make_one("t", DTYPE_F32, UINT64_C(1) << 62, 1, 0);
    expect_refused(STATUS_DATA_LOSS, "tensor 't': has a size that no file can have");
    make_one("t", DTYPE_F32, UINT64_C(1) << 32, UINT64_C(1) << 32, 0);
    expect_refused(STATUS_DATA_LOSS, "tensor 't': has a size that no file can have");
    make_one("t", DTYPE_Q8_0, UINT64_MAX - 31, 1, 0);
    expect_refused(STATUS_DATA_LOSS, "tensor 't': has a size that no file can have");
    make_one("t", DTYPE_F32, 0, 4, 0);
    expect_refused(STATUS_DATA_LOSS, "tensor 't': has no values");
    make_one("t", DTYPE_F32, 4, 0, 0);
    expect_refused(STATUS_DATA_LOSS, "tensor 't': has no values");
    make_one("t", 16, 256, 1, 0);
    expect_refused(STATUS_UNIMPLEMENTED, "tensor 't': is of type 16 (IQ2_XXS)");
    make_one("t", 4, 256, 1, 0);
    expect_refused(STATUS_UNIMPLEMENTED, "tensor 't': is of type 4 (unknown)");
    make_one("t", UINT32_MAX, 256, 1, 0);
    expect_refused(STATUS_UNIMPLEMENTED, "tensor 't': is of type 4294967295 (unknown)");
    make_one("", DTYPE_F32, 4, 1, 0);
    expect_refused(STATUS_DATA_LOSS, "tensor 1 of 1: its name of 0 bytes is empty");
    make_one("65 bytes are one more than the format allows for a tensor's name.", DTYPE_F32, 4, 1,
             0);
    expect_refused(STATUS_DATA_LOSS, "its name of 65 bytes is empty, longer than 64");
    make_one("a-b", DTYPE_F32, 4, 1, 0);
    *(uint8_t *)memchr(maker.bytes, '-', maker.len) = 0;
    expect_refused(STATUS_DATA_LOSS, "or holds a NUL");
    make_head(&maker, 3, 1, 0);
    make_text(&maker, "t");
    make_int(&maker, 5, 4);
    make_zeros(&maker, 100);
    expect_refused(STATUS_DATA_LOSS, "tensor 't': has 5 dimensions, more than 4");
}
END_TEST

static void make_two(const char *first, uint64_t first_offset, const char *second,
                     uint64_t second_offset)
{
    make_head(&maker, 3, 2, 0);
    make_tensor(&maker, first, DTYPE_F32, 16, 1, first_offset);
    make_tensor(&maker, second, DTYPE_F32, 16, 1, second_offset);
    make_padding(&maker, 32);
    make_zeros(&maker, 4096);
}

/* No two tensors share a name or a byte; their order and gaps are free. */
START_TEST(tensors_stand_apart)
{
    make_two("a", 64, "b", 0);
    gguf_close(open_made());
    make_two("a", 0, "b", 1024);
    gguf_close(open_made());
    make_two("a", 0, "a", 64);
    expect_refused(STATUS_DATA_LOSS, "tensor 'a': is in the file twice");
    make_two("a", 32, "b", 0);
    expect_refused(STATUS_DATA_LOSS, "tensor 'a' overlaps tensor 'b'");
    make_two("a", 64, "b", 64);
    expect_refused(STATUS_DATA_LOSS, "overlaps");
}
END_TEST

static void make_aligned(uint32_t type, uint64_t alignment, size_t n_bytes, size_t pad)
{
    make_head(&maker, 3, 1, 1);
    make_key_int(&maker, "general.alignment", type, alignment, n_bytes);
    make_tensor(&maker, "t", DTYPE_F32, 2, 1, 0);
    make_padding(&maker, pad);
    make_bytes(&maker, &(float){7}, 4);
    make_zeros(&maker, 4);
}

/* One of several files of a model is refused, with their number. */
START_TEST(parts_are_refused)
{
    for (uint64_t n = 0; n < 4; n++) {
        make_head(&maker, 3, 0, 1);
        make_key_int(&maker, "split.count", GGUF_U16, n, 2);
        if (n < 2)
            gguf_close(open_made());
        else
            expect_refused(STATUS_UNIMPLEMENTED, n == 2 ? "one of the 2 files of a model"
                                                        : "one of the 3 files of a model");
    }
    make_head(&maker, 3, 0, 1);
    make_key_text(&maker, "split.count", "three");
    expect_refused(STATUS_DATA_LOSS, "key 'split.count' is not a number of files");
}
END_TEST

/* The file's alignment decides where the data begin; an invalid one is refused. */
START_TEST(alignment_is_the_files)
{
    static const uint32_t good[] = {8, 16, 64, 4096};
    static const uint32_t bad[] = {0, 1, 4, 12, 24, 33, UINT32_MAX};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct gguf *g;
        float first;

        make_aligned(GGUF_U32, good[i], 4, good[i]);
        g = open_made();
        memcpy(&first, gguf_tensor_at(g, 0)->data, sizeof(first));
        ck_assert(first == 7.0F);
        gguf_close(g);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        make_aligned(GGUF_U32, bad[i], 4, 32);
        expect_refused(STATUS_DATA_LOSS,
                       "key 'general.alignment' is not a power of two of at least 8");
    }
    make_aligned(GGUF_F32, 32, 4, 32);
    expect_refused(STATUS_DATA_LOSS, "key 'general.alignment'");
    make_aligned(GGUF_U64, UINT64_C(1) << 63, 8, 32);
    expect_refused(STATUS_DATA_LOSS, "truncated");
}
END_TEST

/* Each of thousands of keys is found, and as many absent ones are not. */
START_TEST(names_are_found_among_many)
{
    enum { N = 2500 };
    struct gguf *g;
    char name[16];
    uint64_t v;

    make_head(&maker, 3, 0, N);
    for (uint64_t i = 0; i < N; i++) {
        (void)snprintf(name, sizeof(name), "key.%u", (unsigned)i);
        make_key_int(&maker, name, GGUF_U16, i, 2);
    }
    g = open_made();
    for (uint64_t i = 0; i < N; i++) {
        (void)snprintf(name, sizeof(name), "key.%u", (unsigned)i);
        ck_assert_int_eq(gguf_get_u64(g, name, &v, &err), STATUS_OK);
        ck_assert_uint_eq(v, i);
        (void)snprintf(name, sizeof(name), "kez.%u", (unsigned)i);
        ck_assert_int_eq(gguf_get_u64(g, name, &v, &err), STATUS_NOT_FOUND);
    }
    gguf_close(g);
}
END_TEST

/* Writes the made file to a new path, which the caller unlinks. */
static void write_made(char path[64])
{
    int fd;

    (void)snprintf(path, 64, "/tmp/parley-test-gguf-XXXXXX");
    fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, maker.bytes, maker.len), (ssize_t)maker.len);
    ck_assert_int_eq(close(fd), 0);
}

static void make_fifo_path(char path[64])
{
    maker.len = 0;
    write_made(path);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
}

/* A file reads as its bytes do; it may be unlinked while open. */
START_TEST(files_are_read)
{
    struct gguf *g = NULL;
    const struct tensor *t;
    char path[64];
    float values[8] = {0};

    make_good(&maker);
    write_made(path);
    ck_assert_int_eq(gguf_open(&g, path, &err), STATUS_OK);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_str_eq(gguf_path(g), path);
    ck_assert_int_eq(gguf_tensor(g, "f32", &t, &err), STATUS_OK);
    ck_assert_int_eq(tensor_read(t, 0, 2, values, &err), STATUS_OK);
    ck_assert(values[0] == 0.0F && values[7] == 7.0F);
    ck_assert_int_eq(tensor_read(t, 1, 1, values, &err), STATUS_OK);
    ck_assert(values[0] == 4.0F && values[3] == 7.0F && values[7] == 7.0F);
    ck_assert_int_eq(gguf_check_unchanged(g, &err), STATUS_OK);
    gguf_close(g);
    gguf_close(NULL);
}
END_TEST

/* Sets the time of a file's last change to one that no change in this test has. */
static void make_old(const char *path)
{
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};

    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* A file that is truncated while open loses its weights, but not its metadata; one that is written
 * in place is detected as changed; a rename over it, or a link, changes nothing. */
START_TEST(files_change_while_open)
{
    struct gguf *g = NULL, *other = NULL;
    const struct tensor *t;
    char path[64], newer[64], linked[80];
    const char *text;
    float values[8];
    size_t len;

    make_good(&maker);
    write_made(path);
    make_old(path);
    ck_assert_int_eq(gguf_open(&g, path, &err), STATUS_OK);
    (void)snprintf(linked, sizeof(linked), "%s.linked", path);
    ck_assert_int_eq(link(path, linked), 0);
    write_made(newer);
    ck_assert_int_eq(rename(newer, path), 0);
    ck_assert_int_eq(gguf_check_unchanged(g, &err), STATUS_OK);
    ck_assert_int_eq(gguf_tensor(g, "f32", &t, &err), STATUS_OK);
    ck_assert_int_eq(tensor_read(t, 0, 2, values, &err), STATUS_OK);
    ck_assert_int_eq(gguf_open(&other, path, &err), STATUS_OK);
    ck_assert(gguf_is_same(g, g) && !gguf_is_same(g, other));
    gguf_close(other);
    ck_assert_int_eq(unlink(path), 0);

    ck_assert_int_eq(truncate(linked, 4096), 0); /* longer, and changed */
    ck_assert_int_eq(gguf_check_unchanged(g, &err), STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "has changed since it was opened"));
    ck_assert_int_eq(truncate(linked, 16), 0);
    ck_assert_int_eq(tensor_read(t, 0, 2, values, &err), STATUS_DATA_LOSS);
    ck_assert_ptr_nonnull(strstr(err.text, ": tensor 'f32': truncated while it was read"));
    ck_assert_int_eq(gguf_get_text(g, "text", &text, &len, &err), STATUS_OK);
    ck_assert(len == 5 && memcmp(text, "words", 5) == 0);
    gguf_close(g);
    ck_assert_int_eq(unlink(linked), 0);
}
END_TEST

/* A file that is missing, empty, cut, or no file says so, and the end of a long path is shown. */
START_TEST(bad_files_are_refused)
{
    struct gguf *g = NULL;
    char path[64], long_path[512];

    ck_assert_int_eq(gguf_open(&g, "/nowhere/model.gguf", &err), STATUS_NOT_FOUND);
    ck_assert_str_eq(err.text, "/nowhere/model.gguf: No such file or directory");
    ck_assert_int_eq(gguf_open(&g, "/", &err), STATUS_NOT_FOUND);
    ck_assert_str_eq(
        err.text,
        "/: the folder holds no model: it has no config.json (a model is a .gguf file, or a "
        "folder with config.json, tokenizer.json and *.safetensors)");
    ck_assert_int_eq(gguf_open(&g, "/dev/null", &err), STATUS_INVALID);
    ck_assert_str_eq(err.text, "/dev/null: not a regular file");
    make_fifo_path(path);
    ck_assert_int_eq(gguf_open(&g, path, &err),
                     STATUS_INVALID); /* at once, without waiting for a writer */
    ck_assert_int_eq(unlink(path), 0);
    maker.len = 0;
    write_made(path);
    ck_assert_int_eq(gguf_open(&g, path, &err), STATUS_DATA_LOSS);
    ck_assert_ptr_nonnull(strstr(err.text, ": the file is empty"));
    ck_assert_int_eq(unlink(path), 0);
    make_good(&maker);
    maker.len -= 1;
    write_made(path);
    ck_assert_int_eq(gguf_open(&g, path, &err), STATUS_DATA_LOSS);
    ck_assert_ptr_nonnull(strstr(err.text, "so 1 are missing"));
    ck_assert_int_eq(unlink(path), 0);
    memset(long_path, '/', sizeof(long_path));
    memcpy(long_path + sizeof(long_path) - 12, "models/none", 12);
    ck_assert_int_eq(gguf_open(&g, long_path, &err), STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.text, "/models/none: No such file"));
    ck_assert_ptr_null(g);
}
END_TEST

SUITE_MAIN("compute/gguf", scalars_are_read, arrays_are_read, wrong_questions_are_refused,
           tensors_are_found, cuts_are_refused, heads_are_checked, keys_are_checked,
           names_are_shown_as_one_line, tensors_are_checked, tensors_stand_apart,
           alignment_is_the_files, names_are_found_among_many, parts_are_refused, files_are_read,
           files_change_while_open, bad_files_are_refused)
