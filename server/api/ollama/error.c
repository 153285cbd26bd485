#include "server/api/ollama/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "server/json/writer.h"

static enum status ollama_append_error(struct buf *out, int http_status, const struct error *err)
{
    struct json_writer w = json_writer_begin(out);
    /* Clients offer to pull a model where they read "not found". */
    bool is_model = http_status == 404 && err->reason == REASON_MODEL_NOT_FOUND;
    char text[ERROR_TEXT_MAX + 32];

    (void)snprintf(text, sizeof(text), "%s%s", is_model ? "model not found: " : "", err->text);
    json_write(&w, "{\"error\":");
    json_write_string(&w, text, strlen(text));
    json_write(&w, "}");
    return json_writer_end(&w);
}

const struct http_api ollama_api = {
    .error_type = "application/json",
    .append_error = ollama_append_error,
};
