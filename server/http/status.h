/* What HTTP says of a failure: the status, its reason, and when to come again. */
#ifndef SERVER_HTTP_STATUS_H
#define SERVER_HTTP_STATUS_H

#include "base/status.h"

/* Returns HTTP's status of a failure. */
int http_status_of(enum status status);

/* Returns the reason of a status, as "Not Found". A status that the daemon never sends has the
 * reason of 500. */
const char *http_reason(int http_status);

/* Returns the value of Retry-After in seconds, or 0 where the header is not sent. */
unsigned http_retry_after_s(int http_status, const struct error *err);

#endif
