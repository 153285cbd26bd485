#include "server/api/ollama/error.h"

#include <stdbool.h>

#include "base/json_writer.h"
#include "server/api/answer.h"

static enum status ollama_append_error(struct buf *out, int http_status, const struct error *err)
{
    struct json_writer w = json_writer_begin(out);
    /* Clients offer to pull a model where they read "not found". */
    bool is_model = http_status == 404 && err->reason == REASON_MODEL_NOT_FOUND;

    json_begin_object(&w, NULL);
    json_write_format(&w, "error", "%s%s%s%s", is_model ? "model not found: " : "",
                      answer_unsaid_field(err), answer_unsaid_field(err)[0] == '\0' ? "" : ": ",
                      err->text);
    json_end_object(&w);
    return json_writer_end(&w);
}

const struct http_api ollama_api = {
    .error_type = "application/json",
    .append_error = ollama_append_error,
};
