#include "server/api/anthropic/error.h"

#include "base/json_writer.h"

static const char *anthropic_error_type(int http_status)
{
    switch (http_status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    case 408:
    case 504:
        return "timeout_error";
    default:
        return http_status < 499 ? "invalid_request_error" : "api_error";
    }
}

static enum status anthropic_append_error(struct buf *out, int http_status, const struct error *err)
{
    struct json_writer w = json_writer_begin(out);

    json_begin_object(&w, NULL);
    json_write_text(&w, "type", "error");
    json_begin_object(&w, "error");
    json_write_text(&w, "type", anthropic_error_type(http_status));
    json_write_text(&w, "message", err->text);
    json_end_object(&w);
    json_end_object(&w);
    return json_writer_end(&w);
}

const struct http_api anthropic_api = {
    .error_type = "application/json",
    .append_error = anthropic_append_error,
    .id_header = "request-id",
};
