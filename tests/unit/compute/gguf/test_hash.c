#include "compute/gguf/hash.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/base/suite.h"

/* Opens a new file in root with this text. */
static int open_young(const char *root, const char *text)
{
    char path[512];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/model", root);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

static void expect_hash(const char *text, const char *hash)
{
    char root[] = "/tmp/parley-hash-XXXXXX", is[MODEL_HASH_SIZE];
    struct error err;
    int fd;

    ck_assert_ptr_nonnull(mkdtemp(root));
    fd = open_young(root, text);
    ck_assert_int_eq(model_hash(is, fd, &err), STATUS_OK);
    ck_assert_str_eq(is, hash);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(rmdir(root), 0);
}

/* FIPS 180-2's own examples. */
START_TEST(hash_is_sha256)
{
    expect_hash("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_hash("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}
END_TEST

/* A file that has not changed for long. */
static const char old_file[] = "/bin/sh";

static int open_old(void)
{
    int fd = open(old_file, O_RDONLY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    return fd;
}

/* Finds the one entry of a cache folder; false: there is none. */
static bool entry_of(char *path, size_t size, const char *root)
{
    const struct dirent *e;
    bool found = false;
    DIR *d;

    (void)snprintf(path, size, "%s/parley", root);
    d = opendir(path);
    while (d != NULL && (e = readdir(d)) != NULL)
        if (e->d_name[0] != '.') {
            ck_assert(!found);
            (void)snprintf(path, size, "%s/parley/%s", root, e->d_name);
            found = true;
        }
    if (d != NULL)
        (void)closedir(d);
    return found;
}

static void write_entry(const char *path, const char *text)
{
    FILE *to = fopen(path, "we");

    ck_assert_ptr_nonnull(to);
    ck_assert_int_ge(fputs(text, to), 0);
    ck_assert_int_eq(fclose(to), 0);
}

static void read_entry(const char *path, char *text, size_t size)
{
    FILE *in = fopen(path, "re");

    ck_assert_ptr_nonnull(in);
    text[fread(text, 1, size - 1, in)] = '\0';
    (void)fclose(in);
}

/* The cached hash is used while the file is unchanged; an entry that is damaged, or of another
 * state, is ignored and replaced. */
START_TEST(a_hash_is_remembered)
{
    char root[] = "/tmp/parley-hash-XXXXXX", path[512], text[512], changed[512];
    char known[MODEL_HASH_SIZE], hash[MODEL_HASH_SIZE];
    struct error err;
    size_t n_text;
    int fd = open_old();

    ck_assert_ptr_nonnull(mkdtemp(root));
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", root, 1), 0);
    ck_assert_int_eq(model_hash(known, fd, &err), STATUS_OK);
    ck_assert_int_eq(model_hash_file(hash, fd, NULL, &err), STATUS_OK);
    ck_assert_str_eq(hash, known);
    ck_assert(entry_of(path, sizeof(path), root));
    read_entry(path, text, sizeof(text));
    n_text = strlen(text);

    memcpy(changed, text, n_text + 1); /* the last digit differs */
    changed[n_text - 2] = text[n_text - 2] == '0' ? '1' : '0';
    write_entry(path, changed);
    ck_assert_int_eq(model_hash_file(hash, fd, NULL, &err), STATUS_OK);
    ck_assert_mem_eq(hash, changed + n_text - MODEL_HASH_SIZE, MODEL_HASH_SIZE - 1);

    for (size_t i = 0; i < 3; i++) { /* another state; cut; no digits */
        memcpy(changed, text, n_text + 1);
        if (i == 0)
            changed[0] = changed[0] == '1' ? '2' : '1';
        else if (i == 1)
            changed[n_text / 2] = '\0';
        else
            changed[n_text - 9] = 'x';
        write_entry(path, changed);
        ck_assert_int_eq(model_hash_file(hash, fd, NULL, &err), STATUS_OK);
        ck_assert_str_eq(hash, known);
        read_entry(path, changed, sizeof(changed));
        ck_assert_str_eq(changed, text);
    }
    ck_assert_int_eq(unlink(path), 0);
    (void)snprintf(path, sizeof(path), "%s/parley", root);
    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(rmdir(root), 0);
    ck_assert_int_eq(close(fd), 0);
}
END_TEST

/* Where the cache cannot be written, and for a file that has just changed, the hash is computed. */
START_TEST(a_hash_need_not_be_remembered)
{
    const atomic_bool is_stopping = true;
    char root[] = "/tmp/parley-hash-XXXXXX", path[512];
    char known[MODEL_HASH_SIZE], hash[MODEL_HASH_SIZE];
    struct error err;
    int fd = open_old();

    ck_assert_int_eq(setenv("XDG_CACHE_HOME", "/proc/no/such/folder", 1), 0);
    ck_assert_int_eq(model_hash(known, fd, &err), STATUS_OK);
    ck_assert_int_eq(model_hash_file(hash, fd, NULL, &err), STATUS_OK);
    ck_assert_str_eq(hash, known);
    ck_assert_int_eq(close(fd), 0);

    ck_assert_ptr_nonnull(mkdtemp(root));
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", root, 1), 0);
    fd = open_young(root, "abc");
    ck_assert_int_eq(model_hash_file(hash, fd, &is_stopping, &err), STATUS_CANCELLED);
    ck_assert_int_eq(model_hash_file(hash, fd, NULL, &err), STATUS_OK);
    ck_assert_str_eq(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ck_assert(!entry_of(path, sizeof(path), root));
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(rmdir(root), 0);
}
END_TEST

SUITE_MAIN("compute/model_hash", hash_is_sha256, a_hash_is_remembered,
           a_hash_need_not_be_remembered)
