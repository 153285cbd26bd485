#include "server/api/connect/envelope.h"

#include <string.h>
#include <strings.h>

#include "server/http/gzip.h"

enum status envelope_reader_init(struct envelope_reader *r, const char *body, size_t len,
                                 const char *coding, size_t max_bytes, struct error *err)
{
    *r = (struct envelope_reader){.at = body, .end = body + len};
    buf_init(&r->inflated, max_bytes);
    if (coding == NULL || coding[0] == '\0' || strcasecmp(coding, "identity") == 0)
        return STATUS_OK;
    r->is_gzip = strcasecmp(coding, "gzip") == 0;
    if (r->is_gzip)
        return STATUS_OK;
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "messages of Connect-Content-Encoding '%.40s' are not read: gzip and identity "
                     "are",
                     coding);
}

void envelope_reader_deinit(struct envelope_reader *r)
{
    buf_deinit(&r->inflated);
}

enum status envelope_inflate(struct buf *out, const char *data, size_t len, struct error *err)
{
    struct gunzip *z;
    enum status rc;

    buf_clear(out);
    rc = gunzip_open(&z, err);
    if (rc != STATUS_OK)
        return rc;
    rc = gunzip_more(z, out, data, len, err);
    if (rc == STATUS_EXHAUSTED && out->is_full)
        rc = error_because(err, STATUS_INVALID, REASON_REQUEST_TOO_LARGE, NULL,
                           "a message is too large: at most %zu bytes are taken", out->limit_bytes);
    else if (rc == STATUS_EXHAUSTED)
        rc = error_no_memory(err, len, "a message");
    else if (rc == STATUS_OK && !gunzip_is_done(z))
        rc = error_set(err, STATUS_INVALID, "a compressed message is cut");
    gunzip_close(z);
    return rc;
}

static uint32_t envelope_length(const char *head)
{
    uint32_t length = 0;

    for (size_t i = 1; i < ENVELOPE_HEAD_BYTES; i++)
        length = length << 8 | (unsigned char)head[i];
    return length;
}

enum status envelope_read(const char **out, size_t *ret_len, struct envelope_reader *r,
                          struct error *err)
{
    const size_t left = (size_t)(r->end - r->at);
    unsigned flags;
    uint32_t length;

    *out = NULL;
    if (left == 0)
        return STATUS_OK;
    if (left < ENVELOPE_HEAD_BYTES || envelope_length(r->at) > left - ENVELOPE_HEAD_BYTES)
        return error_set(err, STATUS_INVALID, "the body ends inside a message");
    flags = (unsigned char)r->at[0];
    length = envelope_length(r->at);
    if ((flags & ~(unsigned)ENVELOPE_COMPRESSED) != 0)
        return error_set(err, STATUS_INVALID, "a message has flags %u, it may have 0 or 1", flags);
    if (flags != 0 && !r->is_gzip)
        return error_set(err, STATUS_INVALID,
                         "a message is compressed, and Connect-Content-Encoding does not say how");
    *out = r->at + ENVELOPE_HEAD_BYTES;
    *ret_len = length;
    r->at += ENVELOPE_HEAD_BYTES + length;
    if (flags == 0)
        return STATUS_OK;
    if (envelope_inflate(&r->inflated, *out, length, err) != STATUS_OK)
        return err->status;
    *out = r->inflated.len == 0 ? "" : r->inflated.data;
    *ret_len = r->inflated.len;
    return STATUS_OK;
}

enum status envelope_begin(struct buf *out, unsigned flags, size_t *ret_start)
{
    const char head[ENVELOPE_HEAD_BYTES] = {(char)flags};

    *ret_start = out->len;
    return buf_append(out, head, sizeof(head));
}

void envelope_end(struct buf *out, size_t start)
{
    const size_t length = out->len - start - ENVELOPE_HEAD_BYTES;

    for (size_t i = 1; i < ENVELOPE_HEAD_BYTES; i++)
        out->data[start + i] = (char)(length >> (8 * (ENVELOPE_HEAD_BYTES - 1 - i)));
}
