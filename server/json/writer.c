#include "server/json/writer.h"

#include <stdint.h>
#include <time.h>

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

void json_write_base64(struct json_writer *w, const void *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *at = data;
    char out[4];

    json_write(w, "\"");
    for (size_t i = 0; i < len; i += 3) {
        const size_t n = len - i < 3 ? len - i : 3; /* bytes of this group */
        uint32_t bits = (uint32_t)at[i] << 16;

        bits |= n > 1 ? (uint32_t)at[i + 1] << 8 : 0;
        bits |= n > 2 ? at[i + 2] : 0;
        for (size_t k = 0; k < 4; k++)
            out[k] = k <= n ? digits[bits >> (18 - 6 * k) & 63] : '=';
        json_write_bytes(w, out, sizeof(out));
    }
    json_write(w, "\"");
}

void json_write_string(struct json_writer *w, const char *text, size_t len)
{
    if (w->rc == STATUS_OK)
        w->rc = buf_append_json(w->out, text, len);
}

void json_write_time(struct json_writer *w, uint64_t unix_ms)
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm t = {0};

    (void)gmtime_r(&seconds, &t);
    json_writef(w, "\"%04d-%02d-%02dT%02d:%02d:%02d.%03uZ\"", t.tm_year + 1900, t.tm_mon + 1,
                t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec, (unsigned)(unix_ms % 1000));
}
