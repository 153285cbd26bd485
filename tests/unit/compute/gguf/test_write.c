#include "compute/gguf/write.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "compute/gguf/gguf.h"
#include "tests/unit/base/suite.h"

static char folder[64];
static struct error err;

static const char *path_of(const char *name)
{
    static char path[128];

    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof(folder), "/tmp/gguf-write-XXXXXX");
        ck_assert_ptr_nonnull(mkdtemp(folder));
    }
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static size_t n_files(void)
{
    DIR *d = opendir(folder);
    size_t n = 0;

    ck_assert_ptr_nonnull(d);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        n += e->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static struct gguf_writer *open_writer(const char *name)
{
    struct gguf_writer *w = NULL;

    ck_assert_int_eq(gguf_writer_open(&w, path_of(name), &err), STATUS_OK);
    return w;
}

static const float numbers[] = {1.5f, -2.0f, 3.0f, 4.0f, 5.0f, 6.0f, -7.25f};

/* A vector of 1, a matrix [2][3], written in pieces that do not end at a tensor's end. */
static void write_good(struct gguf_writer *w)
{
    gguf_write_text(w, "general.architecture", "policy");
    gguf_write_u64(w, "whole", UINT64_MAX - 1);
    gguf_write_f32(w, "real", 0.625f);
    gguf_write_bool(w, "yes", true);
    gguf_write_bool(w, "no", false);
    gguf_write_tensor(w, "vector", 1, 1);
    gguf_write_tensor(w, "matrix", 2, 3);
    gguf_write_data(w, numbers, 3);
    gguf_write_data(w, numbers + 3, 0);
    gguf_write_data(w, numbers + 3, 4);
}

/* Written keys and numbers are read back. */
START_TEST(reads_back)
{
    struct gguf_writer *w = open_writer("a.gguf");
    const struct tensor *t = NULL;
    struct gguf *g = NULL;
    const char *text = NULL;
    size_t len = 0;
    uint64_t u = 0;
    double d = 0;
    float is[6];
    bool yes = false, no = true;

    write_good(w);
    ck_assert_uint_eq(n_files(), 1);
    ck_assert_int_eq(gguf_writer_commit(w, &err), STATUS_OK);
    gguf_writer_close(w);
    ck_assert_uint_eq(n_files(), 1);
    if (gguf_open(&g, path_of("a.gguf"), &err) != STATUS_OK)
        ck_abort_msg("%s", err.text);
    ck_assert_int_eq(gguf_get_text(g, "general.architecture", &text, &len, &err), STATUS_OK);
    ck_assert(len == 6 && memcmp(text, "policy", 6) == 0);
    ck_assert_int_eq(gguf_get_u64(g, "whole", &u, &err), STATUS_OK);
    ck_assert(u == UINT64_MAX - 1);
    ck_assert_int_eq(gguf_get_f64(g, "real", &d, &err), STATUS_OK);
    ck_assert(d == 0.625);
    ck_assert_int_eq(gguf_get_bool(g, "yes", &yes, &err), STATUS_OK);
    ck_assert_int_eq(gguf_get_bool(g, "no", &no, &err), STATUS_OK);
    ck_assert(yes && !no);
    ck_assert_uint_eq(gguf_n_tensors(g), 2);
    ck_assert_int_eq(gguf_tensor(g, "vector", &t, &err), STATUS_OK);
    ck_assert(t->n_rows == 1 && t->n_cols == 1 && t->type == DTYPE_F32);
    ck_assert_int_eq(tensor_read(t, 0, 1, is, &err), STATUS_OK);
    ck_assert_mem_eq(is, numbers, sizeof(numbers[0]));
    ck_assert_int_eq(gguf_tensor(g, "matrix", &t, &err), STATUS_OK);
    ck_assert(t->n_rows == 2 && t->n_cols == 3 && t->size_bytes == 6 * sizeof(float));
    ck_assert_int_eq(tensor_read(t, 0, 2, is, &err), STATUS_OK);
    ck_assert_mem_eq(is, numbers + 1, 6 * sizeof(float));
    gguf_close(g);
    ck_assert_int_eq(remove(path_of("a.gguf")), 0);
}
END_TEST

/* A writer that is closed early keeps the old file, and leaves no temporary one. */
START_TEST(old_file_stays_until_commit)
{
    FILE *old = fopen(path_of("b.gguf"), "w");
    struct gguf_writer *w;
    struct stat found;

    ck_assert(old != NULL && fputs("old", old) >= 0 && fclose(old) == 0);
    w = open_writer("b.gguf");
    write_good(w);
    gguf_writer_close(w);
    ck_assert_uint_eq(n_files(), 1);
    ck_assert_int_eq(stat(path_of("b.gguf"), &found), 0);
    ck_assert_int_eq(found.st_size, 3);
    w = open_writer("b.gguf");
    write_good(w);
    ck_assert_int_eq(gguf_writer_commit(w, &err), STATUS_OK);
    gguf_writer_close(w);
    ck_assert_int_eq(stat(path_of("b.gguf"), &found), 0);
    ck_assert_int_gt(found.st_size, 100);
    ck_assert_int_eq(remove(path_of("b.gguf")), 0);
}
END_TEST

/* Two writers of one name do not conflict: the file is that of the later commit, whole. */
START_TEST(two_writers)
{
    struct gguf_writer *a = open_writer("c.gguf"), *b = open_writer("c.gguf");
    struct gguf *g = NULL;

    write_good(a);
    write_good(b);
    ck_assert_int_eq(gguf_writer_commit(b, &err), STATUS_OK);
    ck_assert_int_eq(gguf_writer_commit(a, &err), STATUS_OK);
    gguf_writer_close(a);
    gguf_writer_close(b);
    ck_assert_uint_eq(n_files(), 1);
    ck_assert_int_eq(gguf_open(&g, path_of("c.gguf"), &err), STATUS_OK);
    gguf_close(g);
    ck_assert_int_eq(remove(path_of("c.gguf")), 0);
}
END_TEST

/* A missing folder is NOT_FOUND. */
START_TEST(no_folder)
{
    struct gguf_writer *w = NULL;

    ck_assert_int_eq(gguf_writer_open(&w, path_of("none/d.gguf"), &err), STATUS_NOT_FOUND);
    ck_assert_ptr_null(w);
    ck_assert_ptr_nonnull(strstr(err.text, "none/d.gguf"));
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

SUITE_MAIN("compute/gguf_write", reads_back, old_file_stays_until_commit, two_writers, no_folder)
