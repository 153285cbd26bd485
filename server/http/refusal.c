#include "server/http/refusal.h"

#include <string.h>

int refusal_http_status(enum status status)
{
    switch (status) {
    case STATUS_OK:
        return 200;
    case STATUS_INVALID:
    case STATUS_RANGE:
    case STATUS_UNIMPLEMENTED: /* of a field: the request can be made otherwise */
        return 400;
    case STATUS_UNAUTHENTICATED:
        return 401;
    case STATUS_DENIED:
        return 403;
    case STATUS_NOT_FOUND:
        return 404;
    case STATUS_EXISTS:
    case STATUS_ABORTED:
    case STATUS_PRECONDITION:
        return 409;
    case STATUS_EXHAUSTED:
        return 429;
    case STATUS_CANCELLED:
        return 499;
    case STATUS_UNAVAILABLE:
        return 503;
    case STATUS_DEADLINE:
        return 504;
    case STATUS_UNKNOWN:
    case STATUS_INTERNAL:
    case STATUS_DATA_LOSS:
        break;
    }
    return 500;
}

static const struct kind {
    int status;
    const char *reason, *type, *code;
} kinds[] = {
    {200, "OK", "", ""},
    {400, "Bad Request", "invalid_request_error", "invalid_value"},
    {401, "Unauthorized", "authentication_error", "invalid_api_key"},
    {403, "Forbidden", "permission_error", "permission_denied"},
    {404, "Not Found", "not_found_error", "not_found"},
    {405, "Method Not Allowed", "invalid_request_error", "method_not_allowed"},
    {408, "Request Timeout", "invalid_request_error", "timeout"},
    {409, "Conflict", "conflict_error", "conflict"},
    {411, "Length Required", "invalid_request_error", "length_required"},
    {413, "Content Too Large", "invalid_request_error", "request_too_large"},
    {429, "Too Many Requests", "rate_limit_error", "rate_limit_exceeded"},
    {499, "Client Closed Request", "server_error", "cancelled"},
    {500, "Internal Server Error", "server_error", "internal_error"},
    {503, "Service Unavailable", "server_error", "unavailable"},
    {504, "Gateway Timeout", "server_error", "timeout"},
};

static const struct kind *kind_of(int status)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].status == status)
            return &kinds[i];
    }
    return kind_of(500);
}

const char *refusal_reason(int http_status)
{
    return kind_of(http_status)->reason;
}

unsigned refusal_retry_after_s(int http_status, const struct error *err)
{
    if (http_status != 429 && http_status != 503)
        return 0;
    return err->retry_after_ms <= 1000 ? 1 : (err->retry_after_ms + 999) / 1000;
}

/* Codes that programs look at. */
static const char *code_of(int http_status, const struct error *err)
{
    if (err->status == STATUS_RANGE)
        return "context_length_exceeded";
    if (http_status == 404 && strcmp(err->field, "model") == 0)
        return "model_not_found";
    return kind_of(http_status)->code;
}

enum status refusal_body(struct buf *out, int http_status, const struct error *err)
{
    const struct kind *kind = kind_of(http_status);
    size_t before = out->len;

    if (buf_append_text(out, "{\"error\":{\"message\":") == STATUS_OK &&
        buf_append_json(out, err->text, strlen(err->text)) == STATUS_OK &&
        buf_printf(out, ",\"type\":\"%s\",\"param\":", kind->type) == STATUS_OK &&
        (err->field[0] == '\0'
             ? buf_append_text(out, "null")
             : buf_append_json(out, err->field, strlen(err->field))) == STATUS_OK &&
        buf_printf(out, ",\"code\":\"%s\"}}", code_of(http_status, err)) == STATUS_OK)
        return STATUS_OK;
    out->len = before;
    return STATUS_EXHAUSTED;
}
