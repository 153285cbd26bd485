#include "server/http/gzip.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/buf.h"

enum {
    WINDOW_BITS = 15,
    WRITE_GZIP = 16, /* added to the window's bits: zlib's way to choose the form */
    READ_ANY = 32,
    LEVEL = 1, /* it runs on the loop: most of the gain for the least time */
    MEMORY_LEVEL = 8,
    PIECE_BYTES = 16 << 10,
};

struct gunzip {
    z_stream stream;
    bool is_done;
};

static void *zlib_take(void *arg, unsigned n, unsigned size)
{
    return try_alloc(n, size);
}

static void zlib_free(void *arg, void *at)
{
    free(at);
}

enum status gunzip_open(struct gunzip **out, struct error *err)
{
    struct gunzip *z = try_alloc(1, sizeof(*z));

    if (z == NULL)
        return error_no_memory(err, sizeof(*z), "a compressed body");
    z->stream = (z_stream){.zalloc = zlib_take, .zfree = zlib_free};
    if (inflateInit2(&z->stream, WINDOW_BITS + READ_ANY) != Z_OK) {
        free(z);
        return error_no_memory(err, sizeof(*z), "a compressed body");
    }
    *out = z;
    return STATUS_OK;
}

void gunzip_close(struct gunzip *z)
{
    if (z == NULL)
        return;
    (void)inflateEnd(&z->stream); /* fails for a stream that was not opened */
    free(z);
}

bool gunzip_is_done(const struct gunzip *z)
{
    return z->is_done;
}

/* One piece of what is pending. */
static enum status gunzip_step(struct gunzip *z, struct buf *out, struct error *err)
{
    char piece[PIECE_BYTES];
    int rc;

    z->stream.next_out = (unsigned char *)piece;
    z->stream.avail_out = sizeof(piece);
    rc = inflate(&z->stream, Z_NO_FLUSH);
    z->is_done = rc == Z_STREAM_END;
    if (rc == Z_MEM_ERROR)
        return error_no_memory(err, WINDOW_BITS, "a compressed body");
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return error_set(err, STATUS_INVALID, "the compressed body is damaged: %s",
                         z->stream.msg == NULL ? "the data are not gzip" : z->stream.msg);
    return buf_append(out, piece, sizeof(piece) - z->stream.avail_out) == STATUS_OK
               ? STATUS_OK
               : error_set(err, STATUS_EXHAUSTED, "the body is too large when inflated");
}

enum status gunzip_more(struct gunzip *z, struct buf *out, const char *data, size_t len,
                        struct error *err)
{
    enum status rc = STATUS_OK;

    if (z->is_done && len > 0)
        return error_set(err, STATUS_INVALID, "the compressed body has bytes behind its end");
    z->stream.next_in = (unsigned char *)data; /* zlib does not write there */
    z->stream.avail_in = (unsigned)len;
    do {
        rc = gunzip_step(z, out, err);
    } while (rc == STATUS_OK && !z->is_done &&
             (z->stream.avail_in > 0 || z->stream.avail_out == 0));
    if (rc == STATUS_OK && z->stream.avail_in > 0)
        return error_set(err, STATUS_INVALID, "the compressed body has bytes behind its end");
    return rc;
}

enum status gzip_append(struct buf *out, const char *data, size_t len)
{
    z_stream stream = {.zalloc = zlib_take, .zfree = zlib_free};
    size_t before = out->len;
    enum status rc = STATUS_OK;
    char piece[PIECE_BYTES];
    int done = Z_OK;

    if (len > UINT_MAX || deflateInit2(&stream, LEVEL, Z_DEFLATED, WINDOW_BITS + WRITE_GZIP,
                                       MEMORY_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK)
        return STATUS_EXHAUSTED;
    stream.next_in = (unsigned char *)data; /* zlib does not write there */
    stream.avail_in = (unsigned)len;
    while (rc == STATUS_OK && done == Z_OK) {
        stream.next_out = (unsigned char *)piece;
        stream.avail_out = sizeof(piece);
        done = deflate(&stream, Z_FINISH);
        rc = buf_append(out, piece, sizeof(piece) - stream.avail_out);
    }
    (void)deflateEnd(&stream); /* it tells only that output was left behind */
    if (rc != STATUS_OK)
        out->len = before;
    return rc;
}

/* q=0, q=0.0, …: not acceptable. */
static bool is_refused(const char *parameters, size_t len)
{
    const char *q = memmem(parameters, len, "q=", 2);
    size_t left = q == NULL ? 0 : len - (size_t)(q + 2 - parameters);

    return left > 0 && strspn(q + 2, "0.") >= strcspn(q + 2, ", ;\t");
}

bool gzip_is_accepted(const char *list)
{
    while (*list != '\0') {
        size_t skip = strspn(list, " \t,"), len = strcspn(list + skip, ","), name;

        list += skip;
        name = strcspn(list, ",; \t");
        if ((name == 4 && strncasecmp(list, "gzip", 4) == 0) || (name == 1 && list[0] == '*'))
            return !is_refused(list + name, len - name);
        list += len;
    }
    return false;
}
