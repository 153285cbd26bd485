#include "compute/model_hash.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A file that has just changed may change again without its times showing it. */
enum {
    SETTLED_S = 2,
    KEY_SIZE = 160,
    LINE_SIZE = KEY_SIZE + MODEL_HASH_SIZE + 1,
    PATH_SIZE = 4096
};

enum status model_hash(char out[MODEL_HASH_SIZE], const void *bytes, size_t n, struct error *err)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned len = 0;

    if (EVP_Digest(bytes, n, hash, &len, EVP_sha256(), NULL) != 1)
        return error_set(err, STATUS_INTERNAL, "libcrypto cannot compute a sha256");
    assert(len * 2 == MODEL_HASH_SIZE - 1);
    for (unsigned i = 0; i < len; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[MODEL_HASH_SIZE - 1] = '\0';
    return STATUS_OK;
}

/* What tells one state of a file from another. */
static void key_of(char key[KEY_SIZE], const struct stat *st)
{
    (void)snprintf(key, KEY_SIZE, "%jx %jx %jx %jx.%lx %jx.%lx ", (uintmax_t)st->st_dev,
                   (uintmax_t)st->st_ino, (uintmax_t)st->st_size, (uintmax_t)st->st_mtim.tv_sec,
                   st->st_mtim.tv_nsec, (uintmax_t)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
}

/* The cache folder, made where need be, or the entry of the file there. */
static bool entry_path(char path[PATH_SIZE], const struct stat *st)
{
    const char *root = getenv("XDG_CACHE_HOME"), *below = "";
    int len;

    if (root == NULL || root[0] != '/') { /* as the specification has it */
        root = getenv("HOME");
        below = "/.cache";
    }
    if (root == NULL || root[0] != '/')
        return false;
    len = snprintf(path, PATH_SIZE, "%s%s", root, below);
    if (len < 0 || len > PATH_SIZE - 96)
        return false;
    (void)mkdir(path, 0700); /* is there, or the next one fails */
    (void)snprintf(path + len, PATH_SIZE - (size_t)len, "/parley");
    if (mkdir(path, 0700) != 0 && access(path, W_OK) != 0)
        return false;
    (void)snprintf(path + len, PATH_SIZE - (size_t)len, "/parley/sha256-%jx-%jx",
                   (uintmax_t)st->st_dev, (uintmax_t)st->st_ino);
    return true;
}

static bool recall(char out[MODEL_HASH_SIZE], const char *entry, const char *key)
{
    char line[LINE_SIZE] = "";
    FILE *in = fopen(entry, "re");
    size_t n = in != NULL ? fread(line, 1, sizeof line - 1, in) : 0, n_key = strlen(key);

    if (in != NULL)
        (void)fclose(in);
    if (n != n_key + MODEL_HASH_SIZE || memcmp(line, key, n_key) != 0 || line[n - 1] != '\n' ||
        strspn(line + n_key, "0123456789abcdef") != MODEL_HASH_SIZE - 1)
        return false;
    memcpy(out, line + n_key, MODEL_HASH_SIZE - 1);
    out[MODEL_HASH_SIZE - 1] = '\0';
    return true;
}

/* Under another name first: a reader finds a whole entry or none. */
static void remember(const char *entry, const char *key, const char *hash)
{
    char other[PATH_SIZE + 16];
    bool is_written;
    FILE *to;

    (void)snprintf(other, sizeof other, "%s.%jx", entry, (uintmax_t)getpid());
    to = fopen(other, "we");
    if (to == NULL)
        return;
    is_written = fprintf(to, "%s%s\n", key, hash) > 0;
    is_written = fclose(to) == 0 && is_written;
    if (!is_written || rename(other, entry) != 0)
        (void)unlink(other);
}

enum status model_hash_file(char out[MODEL_HASH_SIZE], const char *path, const void *bytes,
                            size_t n, struct error *err)
{
    char key[KEY_SIZE], entry[PATH_SIZE];
    struct stat st;
    bool may_keep = stat(path, &st) == 0 && st.st_size >= 0 && (size_t)st.st_size == n &&
                    time(NULL) - st.st_ctim.tv_sec >= SETTLED_S && entry_path(entry, &st);
    enum status rc;

    if (!may_keep)
        return model_hash(out, bytes, n, err);
    key_of(key, &st);
    if (recall(out, entry, key))
        return STATUS_OK;
    rc = model_hash(out, bytes, n, err);
    if (rc == STATUS_OK)
        remember(entry, key, out);
    return rc;
}
