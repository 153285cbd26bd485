#include "server/api/openai/error.h"

#include <string.h>

#include "base/json_writer.h"
#include "server/api/context_counts.h"
#include "server/http/status.h"

static const struct kind {
    int status;
    const char *type, *code;
} kinds[] = {
    {400, "invalid_request_error", "invalid_value"},
    {401, "authentication_error", "invalid_api_key"},
    {403, "permission_error", "permission_denied"},
    {404, "not_found_error", "not_found"},
    {405, "invalid_request_error", "method_not_allowed"},
    {408, "invalid_request_error", "timeout"},
    {409, "conflict_error", "conflict"},
    {411, "invalid_request_error", "length_required"},
    {413, "invalid_request_error", "request_too_large"},
    {414, "invalid_request_error", "uri_too_long"},
    {415, "invalid_request_error", "unsupported_media_type"},
    {417, "invalid_request_error", "expectation_failed"},
    {422, "invalid_request_error", "conversation_mismatch"},
    {429, "rate_limit_error", "rate_limit_exceeded"},
    {431, "invalid_request_error", "headers_too_large"},
    {499, "server_error", "cancelled"},
    {500, "server_error", "internal_error"},
    {501, "invalid_request_error", "not_implemented"},
    {503, "server_error", "unavailable"},
    {504, "server_error", "timeout"},
    {505, "invalid_request_error", "http_version_not_supported"},
};

static const struct kind *error_kind_of(int status)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].status == status)
            return &kinds[i];
    }
    return error_kind_of(500);
}

/* Codes that programs read. */
static const char *code_of(int http_status, const struct error *err)
{
    if (err->status == STATUS_EXISTS)
        return strstr(err->field, "tool_call_id") != NULL ? "tool_result_given"
                                                          : "idempotency_key_reused";
    if (err->status == STATUS_RANGE && err->reason != REASON_CURSOR_NOT_FOUND)
        return "context_length_exceeded";
    if (err->reason == REASON_CONVERSATION_FULL)
        return "conversation_full";
    if (http_status == 404 && strcmp(err->field, "model") == 0)
        return "model_not_found";
    return error_kind_of(http_status)->code;
}

const char *openai_error_code(const struct error *err)
{
    return code_of(http_status_of(err->status), err);
}

void openai_write_message(struct json_writer *w, const struct error *err)
{
    struct context_counts counts;

    /* Programs look for these words, and make their history shorter. */
    if (context_counts_read(&counts, err))
        json_write_format(w, "message",
                          "This model's maximum context length is %llu tokens. However, your "
                          "messages resulted in %llu tokens. Please reduce the length of the "
                          "messages.",
                          (unsigned long long)counts.n_most, (unsigned long long)counts.n_tokens);
    else
        json_write_text(w, "message", err->text);
}

static enum status append_error(struct buf *out, int http_status, const struct error *err)
{
    struct json_writer w = json_writer_begin(out);

    json_begin_object(&w, NULL);
    json_begin_object(&w, "error");
    openai_write_message(&w, err);
    json_write_text(&w, "type", error_kind_of(http_status)->type);
    json_write_text(&w, "param", err->field[0] == '\0' ? NULL : err->field);
    json_write_text(&w, "code", code_of(http_status, err));
    json_end_object(&w);
    json_end_object(&w);
    return json_writer_end(&w);
}

const struct http_api openai_api = {
    .error_type = "application/json",
    .append_error = append_error,
};
