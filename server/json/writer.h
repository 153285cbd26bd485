/* Raw JSON through base/json_writer.h, for the files that still write fragments. */
#ifndef SERVER_JSON_WRITER_H
#define SERVER_JSON_WRITER_H

#include <string.h>

#include "base/json_writer.h"

static inline void json_write_bytes(struct json_writer *w, const char *data, size_t len)
{
    json_writer_fail(w, w->rc == STATUS_OK ? buf_append(w->out, data, len) : STATUS_OK);
}

static inline void json_write(struct json_writer *w, const char *text)
{
    json_write_bytes(w, text, strlen(text));
}

static inline void json_raw_string(struct json_writer *w, const char *text, size_t len)
{
    json_writer_fail(w, w->rc == STATUS_OK ? buf_append_json(w->out, text, len) : STATUS_OK);
}

/* Raw JSON in printf's format. */
#define json_writef(w, ...) \
    ((w)->rc == STATUS_OK ? (void)((w)->rc = buf_printf((w)->out, __VA_ARGS__)) : (void)0)

#endif
