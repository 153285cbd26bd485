/* HTTP statuses of failures. */
#ifndef SERVER_HTTP_STATUS_H
#define SERVER_HTTP_STATUS_H

#include "base/status.h"

/* Maps our status to HTTP's. */
int http_status_of(enum status status);

/* "Not Found"; for a status that we never send, the reason of 500. */
const char *http_reason(int http_status);

/* Value of Retry-After, in seconds; 0: not sent. */
unsigned http_retry_after_s(int http_status, const struct error *err);

#endif
