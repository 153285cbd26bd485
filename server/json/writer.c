#include "server/json/writer.h"

enum status json_writer_end(struct json_writer *w)
{
    if (w->rc != STATUS_OK) {
        w->out->len = w->start;
        if (w->out->data != NULL)
            w->out->data[w->start] = '\0';
    }
    return w->rc;
}

void json_write(struct json_writer *w, const char *text)
{
    if (w->rc == STATUS_OK)
        w->rc = buf_append_text(w->out, text);
}

void json_write_bytes(struct json_writer *w, const char *data, size_t len)
{
    if (w->rc == STATUS_OK)
        w->rc = buf_append(w->out, data, len);
}

void json_write_string(struct json_writer *w, const char *text, size_t len)
{
    if (w->rc == STATUS_OK)
        w->rc = buf_append_json(w->out, text, len);
}
