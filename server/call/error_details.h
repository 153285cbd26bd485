/* An error as messages of the wire: our own ErrorDetail, and google.rpc.Status, which every gRPC
 * library reads. */
#ifndef SERVER_RPC_ERROR_DETAILS_H
#define SERVER_RPC_ERROR_DETAILS_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "parley/v1/error.pb-c.h"

/* Whose reasons ErrorInfo has. */
#define ERROR_DETAILS_DOMAIN "parley"

/* A status with its trailers must fit in the 8 KiB that gRPC takes of metadata. */
enum { ERROR_DETAILS_MAX_BYTES = 2048 };
enum { ERROR_DETAILS_MAX = 3 };

/* google.rpc's messages about an error, as Any keeps them: an ErrorInfo, a BadRequest where a field
 * is at fault, and a RetryInfo where there is a hint. */
struct error_details {
    struct error_detail {
        const ProtobufCMessageDescriptor *type;
        const uint8_t *data; /* [size_bytes] in bytes */
        size_t size_bytes;
    } list[ERROR_DETAILS_MAX]; /* [n] */
    size_t n;
    uint8_t bytes[ERROR_DETAILS_MAX_BYTES]; /* one behind the other */
    size_t used;
};

/* The texts stay err's. */
void error_details_fill(Parley__V1__ErrorDetail *out, const struct error *err);

/* A detail that does not fit is left out. */
void error_details_pack(struct error_details *out, const struct error *err);

/* The bytes of a google.rpc.Status with these details. Allocates nothing. Returns the size; 0 if
 * they do not fit: the call's status is then sent without them. */
size_t error_details_encode(uint8_t out[ERROR_DETAILS_MAX_BYTES], const struct error *err);

#endif
