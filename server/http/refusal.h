/* A failure as HTTP says it: a status, and a body in OpenAI's shape,
 * {"error": {"message", "type", "param", "code"}}. */
#ifndef SERVER_HTTP_REFUSAL_H
#define SERVER_HTTP_REFUSAL_H

#include "base/buf.h"
#include "base/status.h"

/* The HTTP status that stands for ours. */
int refusal_http_status(enum status status);

/* "Not Found"; "" for one that we never send. */
const char *refusal_reason(int http_status);

/* What Retry-After says, in seconds; 0: it is not sent. */
unsigned refusal_retry_after_s(int http_status, const struct error *err);

/* Appends the object, without a line end. */
enum status refusal_body(struct buf *out, int http_status, const struct error *err) MUST_CHECK;

#endif
