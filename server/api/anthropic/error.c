#include "server/api/anthropic/error.h"

#include "base/json_writer.h"
#include "server/api/answer.h"
#include "server/api/context_counts.h"

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
    struct context_counts counts;

    json_begin_object(&w, NULL);
    json_write_text(&w, "type", "error");
    json_begin_object(&w, "error");
    json_write_text(&w, "type", anthropic_error_type(http_status));
    /* Programs look for these words, and make their history shorter. */
    if (context_counts_read(&counts, err))
        json_write_format(&w, "message", "prompt is too long: %llu tokens > %llu maximum",
                          (unsigned long long)counts.n_tokens, (unsigned long long)counts.n_most);
    else
        json_write_format(&w, "message", "%s%s%s", answer_unsaid_field(err),
                          answer_unsaid_field(err)[0] == '\0' ? "" : ": ", err->text);
    json_end_object(&w);
    json_end_object(&w);
    return json_writer_end(&w);
}

const struct http_api anthropic_api = {
    .error_type = "application/json",
    .append_error = anthropic_append_error,
    .id_header = "request-id",
};
