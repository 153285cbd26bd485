/* The bytes of a GGUF file. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "compute/gguf/gguf.h"
#include "compute/gguf/parts.h"

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "a file's sizes must fit a size_t");

enum {
    SHOWN_PATH_MAX = 80,
    METADATA_MAX_BYTES = 256 << 20,
    READ_BYTES = 1 << 20, /* at least, while metadata are read */
};

const char *gguf_shown_path(const char *path)
{
    size_t len = strlen(path);

    return len > SHOWN_PATH_MAX ? path + len - SHOWN_PATH_MAX : path;
}

static size_t gguf_page_up(size_t size_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    return (size_bytes + page - 1) / page * page;
}

/* Reserves addresses for the longest metadata that the file may have; they take memory only once
 * read. */
static enum status file_reserve(struct gguf *g, struct error *err)
{
    size_t n = g->size_bytes < METADATA_MAX_BYTES ? g->size_bytes : METADATA_MAX_BYTES;
    void *room;

    if (n == 0)
        return STATUS_OK;
    room = fault_now() ? MAP_FAILED
                       : mmap(NULL, gguf_page_up(n), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return error_no_memory(err, n, "the metadata of a model");
    g->data = g->room = room;
    g->room_bytes = gguf_page_up(n);
    return STATUS_OK;
}

enum status gguf_file_open(struct gguf *g, struct error *err)
{
    /* not blocking: a pipe is refused, not waited for */
    g->fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (g->fd < 0 || fstat(g->fd, &g->stat) != 0)
        return error_set(err,
                         errno == ENOENT || errno == ENOTDIR ? STATUS_NOT_FOUND
                         : errno == EACCES                   ? STATUS_DENIED
                                                             : STATUS_UNAVAILABLE,
                         "%s", strerror(errno));
    if (!S_ISREG(g->stat.st_mode))
        return error_set(err, STATUS_INVALID, "not a regular file");
    g->size_bytes = (size_t)g->stat.st_size;
    return file_reserve(g, err);
}

void gguf_file_trim(struct gguf *g)
{
    size_t used = gguf_page_up(g->n_read);

    if (used == g->room_bytes)
        return;
    (void)munmap(g->room + used, g->room_bytes - used); /* cannot fail on what mmap gave */
    g->room_bytes = used;
}

enum status gguf_copy(const struct gguf *g, uint64_t at, size_t n, void *to, struct error *err)
{
    uint8_t *next = to;

    while (n > 0) {
        ssize_t done = pread(g->fd, next, n, (off_t)at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return error_set(err, STATUS_UNAVAILABLE, "cannot be read: %s", strerror(errno));
        if (done == 0)
            return error_set(
                err, STATUS_DATA_LOSS,
                "truncated while it was read: it ends at byte %" PRIu64 ", %zu are missing", at, n);
        next += done;
        at += (uint64_t)done;
        n -= (size_t)done;
    }
    return STATUS_OK;
}

enum status gguf_read_on(struct gguf *g, size_t n, struct error *err)
{
    size_t left = g->size_bytes - g->n_read;
    enum status rc;

    if (n <= g->n_read)
        return STATUS_OK;
    if (n > METADATA_MAX_BYTES)
        return error_set(err, STATUS_UNIMPLEMENTED, "metadata of more than %d bytes",
                         METADATA_MAX_BYTES);
    n = n - g->n_read < READ_BYTES ? READ_BYTES : n - g->n_read;
    if (n > left)
        n = left;
    if (n > METADATA_MAX_BYTES - g->n_read)
        n = METADATA_MAX_BYTES - g->n_read;
    rc = gguf_copy(g, g->n_read, n, g->room + g->n_read, err);
    if (rc == STATUS_OK)
        g->n_read += n;
    return rc;
}

/* The inode's time of change (ctime) changes with every link and rename, so it is not compared. */
static bool has_state(const struct stat *st, const struct stat *other)
{
    return st->st_size == other->st_size && st->st_mtim.tv_sec == other->st_mtim.tv_sec &&
           st->st_mtim.tv_nsec == other->st_mtim.tv_nsec;
}

enum status gguf_check_unchanged(const struct gguf *g, struct error *err)
{
    struct stat now;
    enum status rc = STATUS_OK;

    if (g->fd >= 0 && (fstat(g->fd, &now) != 0 || !has_state(&now, &g->stat)))
        return error_set(err, STATUS_UNAVAILABLE,
                         "%s: the file has changed since it was opened; load the model again",
                         gguf_shown_path(g->path));
    for (size_t i = 0; i < g->n_others && rc == STATUS_OK; i++)
        rc = gguf_check_unchanged(g->others[i], err);
    return rc;
}

static bool is_same_file(const struct gguf *a, const struct gguf *b)
{
    if (a->fd < 0 || b->fd < 0)
        return a->fd == b->fd && a->size_bytes == b->size_bytes &&
               memcmp(a->data, b->data, a->size_bytes) == 0;
    return a->stat.st_dev == b->stat.st_dev && a->stat.st_ino == b->stat.st_ino &&
           has_state(&a->stat, &b->stat);
}

bool gguf_is_same(const struct gguf *a, const struct gguf *b)
{
    if (!is_same_file(a, b) || a->n_others != b->n_others)
        return false;
    for (size_t i = 0; i < a->n_others; i++)
        if (!is_same_file(a->others[i], b->others[i]))
            return false;
    return true;
}

void gguf_file_close(struct gguf *g)
{
    if (g->room_bytes > 0)
        (void)munmap(g->room, g->room_bytes); /* cannot fail on what mmap gave */
    if (g->fd >= 0)
        (void)close(g->fd); /* only read from */
}
