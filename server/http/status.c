#include "server/http/status.h"

#include <stddef.h>

int http_status_of(enum status status)
{
    switch (status) {
    case STATUS_OK:
        return 200;
    case STATUS_INVALID:
    case STATUS_RANGE:
    case STATUS_UNIMPLEMENTED: /* of a field: a changed request can succeed */
        return 400;
    case STATUS_UNAUTHENTICATED:
        return 401;
    case STATUS_DENIED:
        return 403;
    case STATUS_NOT_FOUND:
        return 404;
    case STATUS_ABORTED: /* by a concurrent change: a retry may succeed */
        return 409;
    case STATUS_EXISTS:
    case STATUS_PRECONDITION: /* a plain retry fails too; clients retry a 409 */
        return 422;
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

const char *http_reason(int http_status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {101, "Switching Protocols"},
        {200, "OK"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {426, "Upgrade Required"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].status == http_status)
            return reasons[i].reason;
    return "Internal Server Error";
}

unsigned http_retry_after_s(int http_status, const struct error *err)
{
    if (http_status != 429 && http_status != 503)
        return 0;
    return err->retry_after_ms <= 1000 ? 1 : (err->retry_after_ms + 999) / 1000;
}
