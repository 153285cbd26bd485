/* An error as messages of the wire: our own ErrorDetail, and google.rpc.Status, which every gRPC
 * library reads. */
#ifndef SERVER_RPC_ERROR_DETAILS_H
#define SERVER_RPC_ERROR_DETAILS_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "parley/v1/error.pb-c.h"

/* The domain of an ErrorInfo: the reasons are Parley's own. */
#define ERROR_DETAILS_DOMAIN "parley"

/* The most bytes of details: a status with its trailers fits into the 8 KiB of metadata that gRPC
 * accepts. */
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

/* Fills in our own message. Its texts are err's, and live as long as err. */
void error_details_fill(Parley__V1__ErrorDetail *out, const struct error *err);

/* Reads an encoded ErrorDetail. Returns false, and changes nothing, if the bytes are none, or name
 * no failure. */
bool error_details_read(struct error *out, const void *bytes, size_t size_bytes);

/* Makes google.rpc's messages. A message that does not fit is left out. */
void error_details_pack(struct error_details *out, const struct error *err);

/* Writes the bytes of a google.rpc.Status with these messages and returns their number. Returns 0
 * if they do not fit: the call's status is then sent without details. Allocates nothing. */
size_t error_details_encode(uint8_t out[ERROR_DETAILS_MAX_BYTES], const struct error *err);

#endif
