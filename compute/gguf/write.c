/* Writes a file of the same format under a temporary name, from declared keys and tensors and then
 * their data in order. The last step syncs the file and gives it its name. */
#include "compute/gguf/write.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"

enum {
    ALIGNMENT = 32, /* GGUF's default */
    HEAD_MAX = 256 << 20,
    NAME_MAX_BYTES = 64, /* longer names are not for tensors */
    /* the format's numbers of types */
    TYPE_I32 = 5,
    TYPE_F32 = 6,
    TYPE_BOOL = 7,
    TYPE_TEXT = 8,
    TYPE_ARRAY = 9,
    TYPE_U64 = 10,
};

struct gguf_writer {
    char *path, *part; /* the final name, and the temporary one */
    int fd;
    struct error failed;    /* the first failure; STATUS_OK when there is none */
    struct buf keys, infos; /* held until the data begin */
    uint64_t n_keys, n_tensors;
    size_t *ends; /* [n_tensors] of each tensor's data, not aligned up */
    size_t cap_ends;
    size_t told_bytes;       /* of all tensors so far, aligned up */
    size_t next, done_bytes; /* the current tensor; data written, with padding */
    bool has_head, is_committed;
};

/* The status of errno, with the system's text. */
static enum status system_failure(struct error *err, const char *path, const char *what)
{
    int number = errno;
    enum status status = number == ENOENT || number == ENOTDIR                    ? STATUS_NOT_FOUND
                         : number == EACCES || number == EPERM || number == EROFS ? STATUS_DENIED
                         : number == ENOSPC || number == EDQUOT                   ? STATUS_EXHAUSTED
                                                                                  : STATUS_UNKNOWN;

    return error_set(err, status, "%.120s: %s: %s", path, what, strerror(number));
}

static void fail_no_memory(struct gguf_writer *w)
{
    if (w->failed.status == STATUS_OK)
        (void)error_no_memory(&w->failed, HEAD_MAX, "the head of a GGUF file");
}

enum status gguf_writer_open(struct gguf_writer **out, const char *path, struct error *err)
{
    static atomic_uint number; /* two writers of one path use different names */
    struct gguf_writer *w = xalloc(sizeof(*w));
    size_t room = strlen(path) + 40;

    w->path = xstrdup(path);
    w->part = xalloc(room);
    (void)snprintf(w->part, room, "%s.%ld.%u.part", path, (long)getpid(),
                   atomic_fetch_add(&number, 1));
    buf_init(&w->keys, HEAD_MAX);
    buf_init(&w->infos, HEAD_MAX);
    w->fd = open(w->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        (void)system_failure(err, path, "cannot be written");
        gguf_writer_close(w);
        return err->status;
    }
    *out = w;
    return STATUS_OK;
}

void gguf_writer_close(struct gguf_writer *w)
{
    if (w == NULL)
        return;
    if (w->fd >= 0) {
        (void)close(w->fd); /* committed data were synced before */
        if (!w->is_committed)
            (void)unlink(w->part); /* a failure cannot be handled */
    }
    buf_deinit(&w->keys);
    buf_deinit(&w->infos);
    free(w->ends);
    free(w->part);
    free(w->path);
    free(w);
}

static void gguf_writer_put(struct gguf_writer *w, struct buf *to, const void *bytes, size_t n)
{
    assert(!w->has_head);
    if (buf_append(to, bytes, n) != STATUS_OK)
        fail_no_memory(w);
}

/* Little endian, as all of the file. */
static void put_int(struct gguf_writer *w, struct buf *to, uint64_t v, size_t n_bytes)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < n_bytes; i++)
        bytes[i] = (uint8_t)(v >> 8 * i);
    gguf_writer_put(w, to, bytes, n_bytes);
}

static void gguf_writer_put_text(struct gguf_writer *w, struct buf *to, const char *text)
{
    put_int(w, to, strlen(text), 8);
    gguf_writer_put(w, to, text, strlen(text));
}

static void put_key(struct gguf_writer *w, const char *key, uint32_t type)
{
    gguf_writer_put_text(w, &w->keys, key);
    put_int(w, &w->keys, type, 4);
    w->n_keys++;
}

void gguf_write_text(struct gguf_writer *w, const char *key, const char *text)
{
    put_key(w, key, TYPE_TEXT);
    gguf_writer_put_text(w, &w->keys, text);
}

void gguf_write_texts(struct gguf_writer *w, const char *key, size_t n)
{
    put_key(w, key, TYPE_ARRAY);
    put_int(w, &w->keys, TYPE_TEXT, 4);
    put_int(w, &w->keys, n, 8);
}

void gguf_write_item(struct gguf_writer *w, const char *text, size_t len)
{
    put_int(w, &w->keys, len, 8);
    gguf_writer_put(w, &w->keys, text, len);
}

void gguf_write_ints(struct gguf_writer *w, const char *key, size_t n)
{
    put_key(w, key, TYPE_ARRAY);
    put_int(w, &w->keys, TYPE_I32, 4);
    put_int(w, &w->keys, n, 8);
}

void gguf_write_int(struct gguf_writer *w, int32_t value)
{
    put_int(w, &w->keys, (uint32_t)value, 4);
}

void gguf_write_u64(struct gguf_writer *w, const char *key, uint64_t value)
{
    put_key(w, key, TYPE_U64);
    put_int(w, &w->keys, value, 8);
}

void gguf_write_f32(struct gguf_writer *w, const char *key, float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    put_key(w, key, TYPE_F32);
    put_int(w, &w->keys, bits, 4);
}

void gguf_write_bool(struct gguf_writer *w, const char *key, bool value)
{
    put_key(w, key, TYPE_BOOL);
    put_int(w, &w->keys, value, 1);
}

static size_t align_up(size_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

void gguf_write_tensor(struct gguf_writer *w, const char *name, size_t n_rows, size_t n_cols)
{
    size_t size_bytes, end;

    assert(strlen(name) < NAME_MAX_BYTES);
    if (__builtin_mul_overflow(n_rows, n_cols, &size_bytes) || size_bytes > SIZE_MAX / 8 ||
        __builtin_add_overflow(w->told_bytes, size_bytes * sizeof(float), &end)) {
        fail_no_memory(w);
        return;
    }
    if (w->n_tensors == w->cap_ends) {
        size_t cap = w->cap_ends == 0 ? 16 : 2 * w->cap_ends;
        size_t *more = try_realloc(w->ends, cap, sizeof(*more));

        if (more == NULL) {
            fail_no_memory(w);
            return;
        }
        w->ends = more;
        w->cap_ends = cap;
    }
    gguf_writer_put_text(w, &w->infos, name);
    put_int(w, &w->infos, n_rows == 1 ? 1 : 2, 4);
    put_int(w, &w->infos, n_cols, 8);
    if (n_rows != 1)
        put_int(w, &w->infos, n_rows, 8);
    put_int(w, &w->infos, 0, 4); /* f32 */
    put_int(w, &w->infos, w->told_bytes, 8);
    w->ends[w->n_tensors++] = end;
    w->told_bytes = align_up(end);
}

static void write_bytes(struct gguf_writer *w, const void *bytes, size_t n)
{
    const uint8_t *at = bytes;

    while (n > 0 && w->failed.status == STATUS_OK) {
        ssize_t done = fault_now() ? (errno = ENOSPC, -1) : write(w->fd, at, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) {
            (void)system_failure(&w->failed, w->path, "cannot be written");
            return;
        }
        at += done;
        n -= (size_t)done;
    }
}

static void write_zeros(struct gguf_writer *w, size_t n)
{
    static const uint8_t zeros[ALIGNMENT];

    assert(n < ALIGNMENT);
    write_bytes(w, zeros, n);
}

static void write_head(struct gguf_writer *w)
{
    struct buf start;
    size_t len;

    buf_init(&start, ALIGNMENT);
    gguf_writer_put(w, &start, "GGUF", 4);
    put_int(w, &start, 3, 4);
    put_int(w, &start, w->n_tensors, 8);
    put_int(w, &start, w->n_keys, 8);
    w->has_head = true;
    len = start.len + w->keys.len + w->infos.len;
    write_bytes(w, start.data, start.len);
    write_bytes(w, w->keys.data, w->keys.len);
    write_bytes(w, w->infos.data, w->infos.len);
    write_zeros(w, align_up(len) - len);
    buf_deinit(&start);
}

void gguf_write_data(struct gguf_writer *w, const float *data, size_t n)
{
    if (!w->has_head)
        write_head(w);
    while (n > 0 && w->failed.status == STATUS_OK) {
        size_t left;

        assert(w->next < w->n_tensors);
        left = (w->ends[w->next] - w->done_bytes) / sizeof(*data);
        if (left > n)
            left = n;
        write_bytes(w, data, left * sizeof(*data));
        w->done_bytes += left * sizeof(*data);
        data += left;
        n -= left;
        if (w->done_bytes == w->ends[w->next]) {
            write_zeros(w, align_up(w->done_bytes) - w->done_bytes);
            w->done_bytes = align_up(w->done_bytes);
            w->next++;
        }
    }
}

/* Syncs the folder, so that the file's name is on the disk. */
static void sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? xstrdup(".") : xstrdup(path);
    int fd;

    if (slash != NULL)
        folder[slash == path ? 1 : slash - path] = '\0';
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        (void)fsync(fd); /* may fail: not every file system can */
        (void)close(fd);
    }
    free(folder);
}

enum status gguf_writer_commit(struct gguf_writer *w, struct error *err)
{
    if (!w->has_head)
        write_head(w);
    if (w->failed.status != STATUS_OK) {
        *err = w->failed;
        return err->status;
    }
    assert(w->next == w->n_tensors && w->done_bytes == w->told_bytes);
    if (fsync(w->fd) != 0 || rename(w->part, w->path) != 0)
        return system_failure(err, w->path, "cannot be written");
    w->is_committed = true;
    sync_folder(w->path);
    return STATUS_OK;
}
