/* Hashes a model's files on a thread of its own while the model loads. A hash is remembered in the
 * user's cache by the file's size and times, and is computed again where any of these differs. */
#include "compute/gguf/hash.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "compute/gguf/gguf.h"

/* A file that has just changed may change again with the same times. */
enum {
    SETTLED_S = 2,
    KEY_SIZE = 160,
    LINE_SIZE = KEY_SIZE + MODEL_HASH_SIZE + 1,
    PATH_SIZE = 4096,
    READ_BYTES = 256 << 10, /* stays in the L2 cache until it is hashed */
};

struct model_hasher {
    const struct gguf *g;
    pthread_t thread;
    bool has_thread;
    atomic_bool is_stopping;
    enum status rc;
    struct error err;
    char hash[MODEL_HASH_SIZE];
};

static enum status no_hash(struct error *err)
{
    return error_set(err, STATUS_INTERNAL, "libcrypto cannot compute a sha256");
}

/* A file that is hashed. */
struct hashed_file {
    int fd;
    const atomic_bool *is_stopping; /* or NULL */
};

static enum status update(EVP_MD_CTX *hash, const struct hashed_file *f, uint8_t *room,
                          struct error *err)
{
    ssize_t n;

    for (off_t at = 0; (n = pread(f->fd, room, READ_BYTES, at)) != 0;)
        if (f->is_stopping != NULL && atomic_load_explicit(f->is_stopping, memory_order_relaxed))
            return error_set(err, STATUS_CANCELLED, "the model is not loaded any more");
        else if (n > 0 && EVP_DigestUpdate(hash, room, (size_t)n) == 1)
            at += n;
        else if (n > 0)
            return no_hash(err);
        else if (errno != EINTR)
            return error_set(err, STATUS_UNAVAILABLE, "the model's file cannot be read: %s",
                             strerror(errno));
    return STATUS_OK;
}

/* Takes what is hashed: a file's bytes, or texts. */
typedef enum status (*hash_feed_fn)(EVP_MD_CTX *hash, const void *arg, struct error *err);

static enum status hash_all(char out[MODEL_HASH_SIZE], hash_feed_fn feed, const void *arg,
                            struct error *err)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    enum status rc;

    if (context == NULL || EVP_DigestInit_ex(context, EVP_sha256(), NULL) != 1)
        rc = no_hash(err);
    else
        rc = feed(context, arg, err);
    if (rc == STATUS_OK && EVP_DigestFinal_ex(context, hash, &len) != 1)
        rc = no_hash(err);
    EVP_MD_CTX_free(context);
    if (rc != STATUS_OK)
        return rc;
    assert(len * 2 == MODEL_HASH_SIZE - 1);
    for (unsigned i = 0; i < len; i++) {
        out[2 * i] = digits[hash[i] >> 4];
        out[2 * i + 1] = digits[hash[i] & 15];
    }
    out[MODEL_HASH_SIZE - 1] = '\0';
    return STATUS_OK;
}

static enum status feed_file(EVP_MD_CTX *hash, const void *arg, struct error *err)
{
    uint8_t *room = try_alloc(READ_BYTES, 1);
    enum status rc;

    if (room == NULL)
        return error_no_memory(err, READ_BYTES, "a sha256");
    rc = update(hash, arg, room, err);
    free(room);
    return rc;
}

enum status model_hash(char out[MODEL_HASH_SIZE], int fd, struct error *err)
{
    return hash_all(out, feed_file, &(struct hashed_file){.fd = fd}, err);
}

/* Makes the key that tells one state of a file from another. */
static void gguf_hash_key_of(char key[KEY_SIZE], const struct stat *st)
{
    (void)snprintf(key, KEY_SIZE, "%jx %jx %jx %jx.%lx %jx.%lx ", (uintmax_t)st->st_dev,
                   (uintmax_t)st->st_ino, (uintmax_t)st->st_size, (uintmax_t)st->st_mtim.tv_sec,
                   st->st_mtim.tv_nsec, (uintmax_t)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
}

/* Makes the path of the file's entry in the cache folder, which is created where it is missing. */
static bool entry_path(char path[PATH_SIZE], const struct stat *st)
{
    const char *root = getenv("XDG_CACHE_HOME"), *below = "";
    int len;

    if (root == NULL || root[0] != '/') { /* as the XDG specification requires */
        root = getenv("HOME");
        below = "/.cache";
    }
    if (root == NULL || root[0] != '/')
        return false;
    len = snprintf(path, PATH_SIZE, "%s%s", root, below);
    if (len < 0 || len > PATH_SIZE - 96)
        return false;
    (void)mkdir(path, 0700); /* exists, or the next one fails */
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
    size_t n = in != NULL ? fread(line, 1, sizeof(line) - 1, in) : 0, n_key = strlen(key);

    if (in != NULL)
        (void)fclose(in);
    if (n != n_key + MODEL_HASH_SIZE || memcmp(line, key, n_key) != 0 || line[n - 1] != '\n' ||
        strspn(line + n_key, "0123456789abcdef") != MODEL_HASH_SIZE - 1)
        return false;
    memcpy(out, line + n_key, MODEL_HASH_SIZE - 1);
    out[MODEL_HASH_SIZE - 1] = '\0';
    return true;
}

/* Writes under another name first, so that a reader finds a whole entry or none. */
static void gguf_hash_remember(const char *entry, const char *key, const char *hash)
{
    char other[PATH_SIZE + 16];
    bool is_written;
    FILE *to;

    (void)snprintf(other, sizeof(other), "%s.%jx", entry, (uintmax_t)getpid());
    to = fopen(other, "we");
    if (to == NULL)
        return;
    is_written = fprintf(to, "%s%s\n", key, hash) > 0;
    is_written = fclose(to) == 0 && is_written;
    if (!is_written || rename(other, entry) != 0)
        (void)unlink(other);
}

enum status model_hash_file(char out[MODEL_HASH_SIZE], int fd, const atomic_bool *is_stopping,
                            struct error *err)
{
    const struct hashed_file f = {fd, is_stopping};
    char key[KEY_SIZE], entry[PATH_SIZE];
    struct stat st;
    bool may_keep = fstat(fd, &st) == 0 && time(NULL) - st.st_ctim.tv_sec >= SETTLED_S &&
                    entry_path(entry, &st);
    enum status rc;

    if (!may_keep)
        return hash_all(out, feed_file, &f, err);
    gguf_hash_key_of(key, &st);
    if (recall(out, entry, key))
        return STATUS_OK;
    rc = hash_all(out, feed_file, &f, err);
    if (rc == STATUS_OK)
        gguf_hash_remember(entry, key, out);
    return rc;
}

struct hashed_model {
    const struct gguf *g;
    const atomic_bool *is_stopping; /* or NULL */
};

static enum status feed_hashes(EVP_MD_CTX *hash, const void *arg, struct error *err)
{
    const struct hashed_model *m = arg;

    for (size_t i = 0; i < gguf_n_files(m->g); i++) {
        char one[MODEL_HASH_SIZE];
        enum status rc = model_hash_file(one, gguf_fd(m->g, i), m->is_stopping, err);

        if (rc == STATUS_OK && EVP_DigestUpdate(hash, one, sizeof(one) - 1) != 1)
            rc = no_hash(err);
        if (rc != STATUS_OK)
            return rc;
    }
    return STATUS_OK;
}

static enum status hash_model(char out[MODEL_HASH_SIZE], const struct hashed_model *m,
                              struct error *err)
{
    if (gguf_n_files(m->g) == 1)
        return model_hash_file(out, gguf_fd(m->g, 0), m->is_stopping, err);
    return hash_all(out, feed_hashes, m, err);
}

enum status model_hash_gguf(char out[MODEL_HASH_SIZE], const struct gguf *g, struct error *err)
{
    return hash_model(out, &(struct hashed_model){.g = g}, err);
}

static void *hasher_work(void *arg)
{
    struct model_hasher *h = arg;

    (void)pthread_setname_np(pthread_self(), "parley-hasher"); /* for ps and top */
    h->rc = hash_model(h->hash, &(struct hashed_model){h->g, &h->is_stopping}, &h->err);
    return NULL;
}

struct model_hasher *model_hasher_open(const struct gguf *g)
{
    struct model_hasher *h = xalloc(sizeof(*h));

    h->g = g;
    h->has_thread = !fault_now() && pthread_create(&h->thread, NULL, hasher_work, h) == 0;
    return h;
}

static void hasher_join(struct model_hasher *h)
{
    if (h->has_thread)
        (void)pthread_join(h->thread, NULL); /* cannot fail for a thread that was started */
    h->has_thread = false;
}

enum status model_hasher_take(struct model_hasher *h, char out[MODEL_HASH_SIZE], struct error *err)
{
    if (!h->has_thread)
        return model_hash_gguf(out, h->g, err);
    hasher_join(h);
    if (h->rc == STATUS_OK)
        memcpy(out, h->hash, MODEL_HASH_SIZE);
    else
        *err = h->err;
    return h->rc;
}

void model_hasher_close(struct model_hasher *h)
{
    if (h == NULL)
        return;
    atomic_store(&h->is_stopping, true);
    hasher_join(h);
    free(h);
}
