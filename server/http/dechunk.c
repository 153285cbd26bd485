#include "server/http/dechunk.h"

enum { MAX_DIGITS = 8, MAX_EXTRA_BYTES = 4096 };

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static enum status bad(struct error *err, const char *what)
{
    return error_set(err, STATUS_INVALID, "the body's chunks are damaged: %s", what);
}

static enum status take_size(struct dechunk *d, char c, struct error *err)
{
    int digit = hex_value(c);

    if (digit >= 0) {
        if (++d->n_digits > MAX_DIGITS)
            return bad(err, "a size is too long");
        d->left = d->left << 4 | (uint64_t)digit;
        return STATUS_OK;
    }
    if (d->n_digits == 0)
        return bad(err, "a size is missing");
    if (c == '\r')
        d->state = DECHUNK_SIZE_END;
    else if (c == ';' || c == ' ' || c == '\t')
        d->state = DECHUNK_EXTENSION;
    else
        return bad(err, "a size is no number");
    return STATUS_OK;
}

/* One byte of anything but data. */
static enum status take_byte(struct dechunk *d, char c, struct error *err)
{
    switch (d->state) {
    case DECHUNK_SIZE:
        return take_size(d, c, err);
    case DECHUNK_EXTENSION:
        if (++d->n_extra > MAX_EXTRA_BYTES)
            return bad(err, "an extension is too long");
        if (c == '\n')
            return bad(err, "a line has no carriage return");
        if (c == '\r')
            d->state = DECHUNK_SIZE_END;
        return STATUS_OK;
    case DECHUNK_SIZE_END:
        if (c != '\n')
            return bad(err, "a line does not end");
        d->state = d->left == 0 ? DECHUNK_TRAILER : DECHUNK_DATA;
        d->n_digits = 0;
        d->is_line_started = false;
        return STATUS_OK;
    case DECHUNK_DATA_CR:
        if (c != '\r')
            return bad(err, "data goes on behind its size");
        d->state = DECHUNK_DATA_LF;
        return STATUS_OK;
    case DECHUNK_DATA_LF:
        if (c != '\n')
            return bad(err, "data goes on behind its size");
        d->state = DECHUNK_SIZE;
        return STATUS_OK;
    case DECHUNK_TRAILER:
        if (++d->n_extra > MAX_EXTRA_BYTES)
            return bad(err, "trailers are too long");
        if (c == '\n')
            return bad(err, "a line has no carriage return");
        if (c == '\r')
            d->state = DECHUNK_TRAILER_LF;
        else
            d->is_line_started = true;
        return STATUS_OK;
    case DECHUNK_TRAILER_LF:
        if (c != '\n')
            return bad(err, "a line does not end");
        d->state = d->is_line_started ? DECHUNK_TRAILER : DECHUNK_DONE;
        d->is_line_started = false;
        return STATUS_OK;
    case DECHUNK_DATA:
    case DECHUNK_DONE:
        break;
    }
    return STATUS_OK;
}

enum status dechunk_feed(struct dechunk *d, const char *data, size_t len, struct buf *out,
                         size_t *ret_used, struct error *err)
{
    size_t at = 0;

    while (at < len && d->state != DECHUNK_DONE) {
        size_t n;
        enum status rc;

        if (d->state != DECHUNK_DATA) {
            rc = take_byte(d, data[at++], err);
            if (rc != STATUS_OK)
                return rc;
            continue;
        }
        n = len - at < d->left ? len - at : (size_t)d->left;
        if (buf_append(out, data + at, n) != STATUS_OK)
            return error_set(err, STATUS_EXHAUSTED, "the body is too large");
        at += n;
        d->left -= n;
        if (d->left == 0)
            d->state = DECHUNK_DATA_CR;
    }
    *ret_used = at;
    return STATUS_OK;
}
