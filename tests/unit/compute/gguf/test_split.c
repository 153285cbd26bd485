/* Models that are split into several GGUF files, and files that lie about being so. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/hash.h"
#include "tests/unit/base/suite.h"
#include "tests/unit/compute/gguf/gguf_maker.h"

enum { N_FILES = 3, WIDTH = 16 };

static struct gguf_maker maker;
static struct error err;
static char folder[64], paths[N_FILES][96];

/* What the keys of a file are to say. */
struct said {
    uint64_t number, n, n_tensors; /* n_tensors UINT64_MAX: no such key */
};

static void save(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, maker.bytes, maker.len), (ssize_t)maker.len);
    ck_assert_int_eq(close(fd), 0);
}

static void make_said(const struct said *s)
{
    make_key_int(&maker, "split.no", GGUF_U16, s->number, 2);
    make_key_int(&maker, "split.count", GGUF_U16, s->n, 2);
    if (s->n_tensors != UINT64_MAX)
        make_key_int(&maker, "split.tensors.count", GGUF_I32, s->n_tensors, 4);
}

static void make_values(float first)
{
    for (int i = 0; i < WIDTH; i++)
        make_bytes(&maker, &(float){first + (float)i}, 4);
}

/* File i of the model: the first has a key more and no tensor; file 1 holds 'b' and 'a', file 2
 * one more at an alignment of its own. */
static void save_file(int i, const struct said *s, const char *name)
{
    uint64_t n_keys = s->n_tensors == UINT64_MAX ? 3 : 4;

    make_head(&maker, 3, (uint64_t[]){0, 2, 1}[i], n_keys);
    make_said(s);
    if (i == 0)
        make_key_text(&maker, "text", "the first file's");
    else
        make_key_int(&maker, "general.alignment", GGUF_U32, i == 1 ? 32 : 64, 4);
    if (i == 1) {
        make_tensor(&maker, "b", 0, WIDTH, 1, 0);
        make_tensor(&maker, "a", 0, WIDTH, 1, 64);
    } else if (i == 2) {
        make_tensor(&maker, name, 0, WIDTH, 1, 0);
    }
    make_padding(&maker, i == 2 ? 64 : 32);
    if (i > 0)
        make_values(100.0F * (float)i);
    if (i == 1)
        make_values(500);
    save(paths[i]);
}

static void save_model(void)
{
    for (int i = 0; i < N_FILES; i++)
        save_file(i, &(struct said){(uint64_t)i, N_FILES, 3}, "c");
}

static void setup(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/parley-test-split-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int i = 0; i < N_FILES; i++)
        (void)snprintf(paths[i], sizeof(paths[i]), "%s/m-0000%d-of-0000%d.gguf", folder, i + 1,
                       N_FILES);
    save_model();
}

static void teardown(void)
{
    for (int i = 0; i < N_FILES; i++)
        (void)unlink(paths[i]); /* some test has removed it */
    ck_assert_int_eq(rmdir(folder), 0);
}

static void expect_first(struct gguf *g, const char *name, float want)
{
    const struct tensor *t;
    float values[WIDTH];

    ck_assert_int_eq(gguf_tensor(g, name, &t, &err), STATUS_OK);
    ck_assert_str_eq(t->name, name);
    ck_assert_int_eq(tensor_read(t, 0, 1, values, &err), STATUS_OK);
    ck_assert(values[0] == want && values[WIDTH - 1] == want + WIDTH - 1);
}

/* Checks that the model is refused with this status and these words. */
static void expect_refused(const char *path, enum status status, const char *words)
{
    struct gguf *g = NULL;
    enum status rc = gguf_open(&g, path, &err);

    ck_assert_ptr_null(g);
    if (rc != status || strstr(err.text, words) == NULL)
        ck_abort_msg("status %d '%s' where %d '…%s…' was to come", rc, err.text, status, words);
}

/* The files read as one: the first one's keys, all tensors. */
START_TEST(files_read_as_one)
{
    struct gguf *g, *again;
    const char *text;
    struct stat st;
    size_t len, n_bytes = 0;

    setup();
    ck_assert_int_eq(gguf_open(&g, paths[0], &err), STATUS_OK);
    ck_assert_uint_eq(gguf_n_tensors(g), 3);
    ck_assert_uint_eq(gguf_n_files(g), N_FILES);
    expect_first(g, "b", 100);
    expect_first(g, "a", 500);
    expect_first(g, "c", 200);
    ck_assert_int_eq(gguf_get_text(g, "text", &text, &len, &err), STATUS_OK);
    for (int i = 0; i < N_FILES; i++) {
        ck_assert_int_eq(stat(paths[i], &st), 0);
        n_bytes += (size_t)st.st_size;
    }
    ck_assert_uint_eq(gguf_size_bytes(g), n_bytes);
    ck_assert_int_eq(gguf_open(&again, paths[0], &err), STATUS_OK);
    ck_assert(gguf_is_same(g, again));
    gguf_close(again);
    gguf_close(g);
    teardown();
}
END_TEST

/* A file that is missing is named; so is the first one where another is given. */
START_TEST(missing_files_are_named)
{
    setup();
    expect_refused(paths[1], STATUS_INVALID,
                   "is file 2 of 3 of a model; open the first file instead");
    ck_assert_ptr_nonnull(strstr(err.text, paths[0]));
    ck_assert_int_eq(unlink(paths[2]), 0);
    expect_refused(paths[0], STATUS_NOT_FOUND,
                   "missing: it must be in the folder of the first file");
    ck_assert_ptr_nonnull(strstr(err.text, paths[2]));
    ck_assert_ptr_nonnull(strstr(err.text, "file 3 of 3 of the model"));
    teardown();
}
END_TEST

/* Each lie about the split is refused by what it says. */
START_TEST(wrong_splits_are_refused)
{
    char other[80];

    setup();
    save_file(1, &(struct said){2, N_FILES, 3}, "c");
    expect_refused(paths[0], STATUS_DATA_LOSS, "say file 3 of 3");
    save_file(1, &(struct said){1, 4, 3}, "c");
    expect_refused(paths[0], STATUS_DATA_LOSS, "say file 2 of 4");
    save_model();
    save_file(2, &(struct said){2, N_FILES, 3}, "b");
    expect_refused(paths[0], STATUS_DATA_LOSS, "tensor 'b' is in two files");
    save_model();
    save_file(0, &(struct said){0, N_FILES, 4}, "c");
    expect_refused(paths[0], STATUS_DATA_LOSS,
                   "hold 3 tensors, but key 'split.tensors.count' is 4");
    save_file(0, &(struct said){0, N_FILES, UINT64_MAX}, "c");
    expect_refused(paths[0], STATUS_DATA_LOSS, "'split.tensors.count'");
    save_file(0, &(struct said){0, 2, 3}, "c");
    expect_refused(paths[0], STATUS_DATA_LOSS, "must be called NAME-00001-of-00002.gguf");
    save_file(0, &(struct said){0, 1000, 3}, "c");
    expect_refused(paths[0], STATUS_UNIMPLEMENTED, "a model of 1000 files");
    save_model();
    (void)snprintf(other, sizeof(other), "%s/m.gguf", folder);
    ck_assert_int_eq(rename(paths[0], other), 0);
    expect_refused(other, STATUS_DATA_LOSS, "must be called NAME-00001-of-00003.gguf");
    ck_assert_int_eq(unlink(other), 0);
    teardown();
}
END_TEST

/* A change of any of the files is noticed, and makes another model of it. */
START_TEST(changes_of_any_file_are_noticed)
{
    char before[MODEL_HASH_SIZE], after[MODEL_HASH_SIZE];
    struct gguf *g, *again;

    setup();
    ck_assert_int_eq(gguf_open(&g, paths[0], &err), STATUS_OK);
    ck_assert_int_eq(gguf_check_unchanged(g, &err), STATUS_OK);
    ck_assert_int_eq(model_hash_gguf(before, g, &err), STATUS_OK);
    ck_assert_int_eq(truncate(paths[2], 4096), 0);
    ck_assert_int_eq(gguf_check_unchanged(g, &err), STATUS_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(err.text, paths[2]));
    ck_assert_int_eq(gguf_open(&again, paths[0], &err), STATUS_OK);
    ck_assert(!gguf_is_same(g, again));
    ck_assert_int_eq(model_hash_gguf(after, again, &err), STATUS_OK);
    ck_assert_str_ne(before, after);
    gguf_close(again);
    gguf_close(g);
    teardown();
}
END_TEST

/* A hasher's hash is model_hash_gguf's, with a thread or without; it may be closed before it was
 * taken. */
START_TEST(a_hasher_hashes_beside_its_caller)
{
    char want[MODEL_HASH_SIZE];
    struct gguf *g;

    setup();
    ck_assert_int_eq(gguf_open(&g, paths[0], &err), STATUS_OK);
    ck_assert_int_eq(model_hash_gguf(want, g, &err), STATUS_OK);
    for (int has_thread = 0; has_thread < 2; has_thread++) {
        char got[MODEL_HASH_SIZE] = "";
        struct model_hasher *h;

        fault_after = has_thread ? -1 : 0;
        h = model_hasher_open(g);
        fault_after = -1;
        ck_assert_int_eq(model_hasher_take(h, got, &err), STATUS_OK);
        ck_assert_str_eq(got, want);
        model_hasher_close(h);
    }
    model_hasher_close(model_hasher_open(g));
    model_hasher_close(NULL);
    gguf_close(g);
    teardown();
}
END_TEST

SUITE_MAIN("compute/split", files_read_as_one, missing_files_are_named, wrong_splits_are_refused,
           changes_of_any_file_are_noticed, a_hasher_hashes_beside_its_caller)
