/* What is written to the hub's cache, and removed from it. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fetch/hub_cache_remove.h"
#include "base/fetch/hub_cache_write.h"
#include "base/fetch/model_name.h"
#include "tests/unit/base/suite.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"

static char root[64], repository[128];
static struct error err;
static bool is_without_links;

/* In place of the C library's. */
int symlink(const char *target, const char *path)
{
    if (!is_without_links)
        return symlinkat(target, AT_FDCWD, path);
    errno = EPERM;
    return -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void make_cache(void)
{
    (void)snprintf(root, sizeof(root), "/tmp/parley-test-hub-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    ck_assert_int_eq(setenv("HF_HUB_CACHE", root, 1), 0);
    (void)snprintf(repository, sizeof(repository), "%s/models--o--r", root);
}

static void remove_cache(void)
{
    (void)nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void path_of(char out[256], const char *name)
{
    (void)snprintf(out, 256, "%s/%s", repository, name);
}

static void put(const char *name, const char *text)
{
    char path[256];
    FILE *file;

    path_of(path, name);
    ck_assert_int_eq(hub_cache_make_folders(path, &err), STATUS_OK);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static bool is_there(const char *name)
{
    char path[256];
    struct stat st;

    path_of(path, name);
    return lstat(path, &st) == 0;
}

static enum status remove_model(const char *text)
{
    struct model_name name;
    uint64_t n_bytes;

    ck_assert_int_eq(model_name_parse(&name, text, &err), STATUS_OK);
    return hub_cache_remove(&n_bytes, &name, &err);
}

/* A lock that another program holds leaves no descriptor, which the caller would close again. */
START_TEST(locks_are_held_once)
{
    int first, second, other;

    make_cache();
    ck_assert_int_eq(hub_cache_lock(&first, repository, "e", &err), STATUS_OK);
    ck_assert_int_eq(hub_cache_lock(&second, repository, "e", &err), STATUS_EXISTS);
    ck_assert_int_eq(second, -1);
    ck_assert_int_eq(hub_cache_lock(&other, repository, "f", &err), STATUS_OK);
    (void)close(first);
    ck_assert_int_eq(hub_cache_lock(&second, repository, "e", &err), STATUS_OK);
    (void)close(second);
    (void)close(other);
    remove_cache();
}
END_TEST

/* A cache may have files in place of links: those that were not named stay. */
START_TEST(files_without_links_stay)
{
    make_cache();
    ck_assert_int_eq(hub_cache_set_main(repository, COMMIT, &err), STATUS_OK);
    put("snapshots/" COMMIT "/m-Q8_0.gguf", "eight");
    put("snapshots/" COMMIT "/x/m-Q4_K_M.gguf", "four");
    ck_assert_int_eq(remove_model("hf:o/r:Q8_0"), STATUS_OK);
    ck_assert(!is_there("snapshots/" COMMIT "/m-Q8_0.gguf"));
    ck_assert(is_there("snapshots/" COMMIT "/x/m-Q4_K_M.gguf"));
    ck_assert(is_there("refs/main"));
    ck_assert_int_eq(remove_model("hf:o/r:Q4_K_M"), STATUS_OK);
    ck_assert(!is_there("refs/main"));
    remove_cache();
}
END_TEST

/* Where a disk has no links, the blob becomes the file; another file of the same bytes has then no
 * blob. */
START_TEST(disks_without_links_hold_files)
{
    make_cache();
    put("blobs/aa", "eight");
    is_without_links = true;
    ck_assert(!hub_cache_has_file(repository, COMMIT, "x/m-Q8_0.gguf", 5));
    ck_assert_int_eq(hub_cache_link(repository, COMMIT, "x/m-Q8_0.gguf", "aa", &err), STATUS_OK);
    ck_assert(hub_cache_has_file(repository, COMMIT, "x/m-Q8_0.gguf", 5));
    ck_assert(!hub_cache_has_file(repository, COMMIT, "x/m-Q8_0.gguf", 6));
    ck_assert(!is_there("blobs/aa"));
    ck_assert_int_eq(hub_cache_link(repository, COMMIT, "m-Q8_0.gguf", "aa", &err), STATUS_DENIED);
    is_without_links = false;
    put("blobs/bb", "eight");
    ck_assert_int_eq(hub_cache_link(repository, COMMIT, "m-Q8_0.gguf", "bb", &err), STATUS_OK);
    ck_assert(!hub_cache_has_file(repository, COMMIT, "m-Q8_0.gguf", 5)); /* a link */
    remove_cache();
}
END_TEST

/* A blob, and what was fetched of it in part, have one lock. */
START_TEST(blobs_go_with_their_links)
{
    int fd;

    make_cache();
    ck_assert_int_eq(hub_cache_set_main(repository, COMMIT, &err), STATUS_OK);
    put("blobs/aa", "eight");
    put("blobs/aa.parley", "ei");
    put("blobs/bb", "four");
    ck_assert_int_eq(hub_cache_link(repository, COMMIT, "m-Q8_0.gguf", "aa", &err), STATUS_OK);
    ck_assert_int_eq(hub_cache_link(repository, COMMIT, "m-Q4_K_M.gguf", "bb", &err), STATUS_OK);
    ck_assert_int_eq(hub_cache_lock(&fd, repository, "bb", &err), STATUS_OK);
    ck_assert_int_eq(remove_model("hf:o/r:Q8_0"), STATUS_UNAVAILABLE);
    (void)close(fd);
    ck_assert(is_there("blobs/aa"));
    ck_assert_msg(remove_model("hf:o/r:Q8_0") == STATUS_OK, "%s", err.text);
    ck_assert(!is_there("blobs/aa"));
    ck_assert(is_there("blobs/bb"));
    ck_assert_int_eq(hub_cache_lock(&fd, repository, "aa", &err), STATUS_OK); /* it is free again */
    (void)close(fd);
    ck_assert_int_eq(remove_model("hf:o/r:Q4_K_M"), STATUS_OK);
    ck_assert(!is_there("blobs"));
    remove_cache();
}
END_TEST

static int give_to_nobody(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return lchown(path, 65534, (gid_t)-1);
}

/* What cannot be listed may hold files that were not named: nothing but those goes. */
START_TEST(what_cannot_be_read_stays)
{
    const bool is_root = geteuid() == 0;
    char hidden[256];

    make_cache();
    ck_assert_int_eq(hub_cache_set_main(repository, COMMIT, &err), STATUS_OK);
    put("blobs/aa", "eight");
    put("snapshots/f" COMMIT "/m-Q4_K_M.gguf", "of another commit");
    ck_assert_int_eq(hub_cache_link(repository, COMMIT, "m-Q8_0.gguf", "aa", &err), STATUS_OK);
    path_of(hidden, "snapshots/f" COMMIT);
    ck_assert_int_eq(chmod(hidden, 0), 0);
    if (is_root) {
        ck_assert_int_eq(nftw(root, give_to_nobody, 8, FTW_PHYS), 0);
        ck_assert_int_eq(seteuid(65534), 0);
    }
    ck_assert_int_eq(remove_model("hf:o/r:Q8_0"), STATUS_DENIED);
    ck_assert_ptr_nonnull(strstr(err.text, "Permission denied"));
    ck_assert_int_eq(chmod(hidden, 0700), 0);
    ck_assert(is_there("snapshots/f" COMMIT "/m-Q4_K_M.gguf"));
    ck_assert(is_there("refs/main"));
    ck_assert(is_there("blobs/aa"));
    if (is_root)
        ck_assert_int_eq(seteuid(0), 0);
    remove_cache();
}
END_TEST

/* Removing holds few descriptors, however many blobs there are; hidden files go, too. */
START_TEST(many_blobs_need_few_descriptors)
{
    struct rlimit limit, low;
    char name[64], blob[64];

    make_cache();
    ck_assert_int_eq(hub_cache_set_main(repository, COMMIT, &err), STATUS_OK);
    for (int i = 0; i < 60; i++) {
        (void)snprintf(blob, sizeof(blob), "blobs/%02d", i);
        put(blob, "some");
        (void)snprintf(name, sizeof(name), "%sm-%02d.gguf", i % 2 == 0 ? "." : "x/y/", i);
        ck_assert_int_eq(hub_cache_link(repository, COMMIT, name, blob + 6, &err), STATUS_OK);
    }
    put("blobs/zz.incomplete", "so");
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = 24;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
    ck_assert_msg(remove_model("hf:o/r") == STATUS_OK, "%s", err.text);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert(!is_there("."));
    remove_cache();
}
END_TEST

SUITE_MAIN("base/fetch/hub_cache", locks_are_held_once, files_without_links_stay,
           disks_without_links_hold_files, blobs_go_with_their_links, what_cannot_be_read_stays,
           many_blobs_need_few_descriptors)
