#include "worlds/teachers/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/checksum.h"

enum { BLOCK_BYTES = 256 << 10 };

enum status lines_open(struct lines *l, const char *path, size_t max_line_bytes, struct error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_DENIED, "%s: %s", path,
                         strerror(errno));
    if (fstat(fd, &st) != 0 || S_ISDIR(st.st_mode)) {
        (void)close(fd);
        return error_set(err, STATUS_INVALID, "%s: not a regular file", path);
    }
    *l = (struct lines){.fd = fd, .cap = BLOCK_BYTES, .max_line_bytes = max_line_bytes};
    l->block = try_alloc(l->cap, 1);
    if (l->block == NULL) {
        lines_close(l);
        return error_no_memory(err, BLOCK_BYTES, "reading a file");
    }
    return STATUS_OK;
}

void lines_close(struct lines *l)
{
    if (l->block != NULL || l->fd > 0)
        (void)close(l->fd); /* the file was only read */
    free(l->block);
    l->block = NULL;
    l->at = l->end = l->cap = 0;
    l->fd = -1;
}

/* Reads more bytes behind the buffered ones. */
static enum status lines_fill(struct lines *l, struct error *err)
{
    ssize_t n;

    if (l->at > 0) {
        memmove(l->block, l->block + l->at, l->end - l->at);
        l->end -= l->at;
        l->at = 0;
    }
    if (l->end == l->cap) {
        char *block = try_realloc(l->block, 2 * l->cap, 1);

        if (block == NULL)
            return error_no_memory(err, 2 * l->cap, "a long line");
        l->block = block;
        l->cap *= 2;
    }
    do
        n = read(l->fd, l->block + l->end, l->cap - l->end);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return error_set(err, STATUS_DATA_LOSS, "reading failed: %s", strerror(errno));
    l->is_at_end = n == 0;
    l->crc = crc32c(l->crc, l->block + l->end, (size_t)n);
    l->n_bytes += (uint64_t)n;
    l->end += (size_t)n;
    return STATUS_OK;
}

static enum status too_long(struct lines *l, struct error *err)
{
    l->number++;
    return error_set(err, STATUS_INVALID, "a line of more than %zu bytes", l->max_line_bytes);
}

/* Where the line that begins at from ends, NULL if that is not known yet; *ret_n_end is how many
 * bytes the end has. Nothing before `searched` ends it. */
static const char *find_end(const struct lines *l, const char *from, size_t searched, size_t len,
                            size_t *ret_n_end)
{
    const char *newline = len > searched ? memchr(from + searched, '\n', len - searched) : NULL;
    const size_t stop = newline != NULL ? (size_t)(newline - from) : len;
    const char *at = NULL;

    *ret_n_end = 1;
    if (l->ends_universally && stop > searched)
        at = memchr(from + searched, '\r', stop - searched);
    if (at == NULL)
        return newline;
    if (at + 1 == newline)
        *ret_n_end = 2;
    else if (at + 1 == from + len && !l->is_at_end)
        return NULL; /* a \n may follow */
    return at;
}

enum status lines_next(struct lines *l, const char **out, size_t *ret_len, struct error *err)
{
    size_t searched = 0;

    for (;;) {
        const char *from = l->block + l->at;
        size_t len = l->end - l->at;
        const size_t n_held = l->ends_universally && len > 0 && from[len - 1] == '\r';
        size_t n_end;
        const char *end = find_end(l, from, searched, len, &n_end);

        if (end != NULL || (l->is_at_end && (len > 0 || l->is_skipping))) {
            size_t n = end == NULL ? len : (size_t)(end - from);

            n_end = end == NULL ? 0 : n_end;
            l->at += n + n_end;
            if (l->is_skipping) { /* the rest of a line that was reported as too long */
                l->is_skipping = false;
                searched = 0;
                continue;
            }
            if (n > l->max_line_bytes)
                return too_long(l, err);
            l->number++;
            l->stop = l->n_bytes - (l->end - l->at);
            l->start = l->stop - n - n_end;
            *out = from;
            *ret_len = n;
            return STATUS_OK;
        }
        if (l->is_at_end) {
            *out = NULL;
            *ret_len = 0;
            return STATUS_OK;
        }
        if (l->is_skipping || len > l->max_line_bytes) {
            bool was_skipping = l->is_skipping;

            l->at = l->end - n_held;
            l->is_skipping = true;
            if (!was_skipping)
                return too_long(l, err);
            len = n_held;
        }
        searched = len - n_held;
        if (lines_fill(l, err) != STATUS_OK)
            return err->status;
    }
}
