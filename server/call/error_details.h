/* An error as messages of the wire: our own ErrorDetail, and google.rpc.Status, which every gRPC
 * library reads. */
#ifndef SERVER_RPC_ERROR_DETAILS_H
#define SERVER_RPC_ERROR_DETAILS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "parley/v1/error.pb-c.h"

/* Whose reasons ErrorInfo has. */
#define ERROR_DETAILS_DOMAIN "parley"

/* A status with its trailers must fit in the 8 KiB that gRPC takes of metadata. */
enum { ERROR_DETAILS_MAX_BYTES = 2048 };

/* The texts stay err's. */
void error_details_fill(Parley__V1__ErrorDetail *out, const struct error *err);

/* The bytes of a google.rpc.Status with an ErrorInfo; with a BadRequest where a field is at fault,
 * and a RetryInfo where there is a hint. Allocates nothing. Returns the size; 0 if they do not fit:
 * the call's status is then sent without them. */
size_t error_details_encode(uint8_t out[ERROR_DETAILS_MAX_BYTES], const struct error *err);

#endif
