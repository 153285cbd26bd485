#include "client/cli/bench/sse.h"

#include <string.h>

void sse_init(struct sse *s, size_t limit_bytes)
{
    *s = (struct sse){0};
    buf_init(&s->line, limit_bytes);
    buf_init(&s->data, limit_bytes);
}

void sse_deinit(struct sse *s)
{
    buf_deinit(&s->line);
    buf_deinit(&s->data);
}

void sse_clear(struct sse *s)
{
    buf_clear(&s->line);
    buf_clear(&s->data);
    s->has_data = s->was_cr = false;
}

static enum status sse_end_line(struct sse *s, sse_event_fn event, void *arg)
{
    static const char field[] = "data:";
    const char *line = s->line.len == 0 ? "" : s->line.data;
    size_t at = sizeof(field) - 1, len = s->line.len;
    enum status rc = STATUS_OK;

    if (len == 0) {
        if (s->has_data)
            event(arg, s->data.len == 0 ? "" : s->data.data, s->data.len);
        buf_clear(&s->data);
        s->has_data = false;
        return STATUS_OK;
    }
    if (strncmp(line, field, at) != 0) /* a comment, or another field */
        return STATUS_OK;
    at += at < len && line[at] == ' ';
    if (s->has_data)
        rc = buf_append(&s->data, "\n", 1);
    s->has_data = true;
    return rc != STATUS_OK ? rc : buf_append(&s->data, line + at, len - at);
}

enum status sse_feed(struct sse *s, const char *bytes, size_t len, sse_event_fn event, void *arg)
{
    enum status rc = STATUS_OK;

    for (size_t at = 0; rc == STATUS_OK && at < len;) {
        size_t n;

        if (s->was_cr && bytes[at] == '\n') {
            s->was_cr = false;
            at++;
            continue;
        }
        s->was_cr = false;
        for (n = 0; at + n < len && bytes[at + n] != '\n' && bytes[at + n] != '\r'; n++)
            ;
        rc = buf_append(&s->line, bytes + at, n);
        at += n;
        if (rc != STATUS_OK || at == len)
            break;
        s->was_cr = bytes[at++] == '\r';
        rc = sse_end_line(s, event, arg);
        buf_clear(&s->line);
    }
    return rc;
}
