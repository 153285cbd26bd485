#include "server/rpc/failure.h"

#include <grpc/slice.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "proto/codec.h"
#include "server/call/error_details.h"

_Static_assert((int)STATUS_CANCELLED == (int)GRPC_STATUS_CANCELLED, "a cast maps");
_Static_assert((int)STATUS_INVALID == (int)GRPC_STATUS_INVALID_ARGUMENT, "a cast maps");
_Static_assert((int)STATUS_DEADLINE == (int)GRPC_STATUS_DEADLINE_EXCEEDED, "a cast maps");
_Static_assert((int)STATUS_NOT_FOUND == (int)GRPC_STATUS_NOT_FOUND, "a cast maps");
_Static_assert((int)STATUS_EXISTS == (int)GRPC_STATUS_ALREADY_EXISTS, "a cast maps");
_Static_assert((int)STATUS_DENIED == (int)GRPC_STATUS_PERMISSION_DENIED, "a cast maps");
_Static_assert((int)STATUS_EXHAUSTED == (int)GRPC_STATUS_RESOURCE_EXHAUSTED, "a cast maps");
_Static_assert((int)STATUS_PRECONDITION == (int)GRPC_STATUS_FAILED_PRECONDITION, "a cast maps");
_Static_assert((int)STATUS_ABORTED == (int)GRPC_STATUS_ABORTED, "a cast maps");
_Static_assert((int)STATUS_RANGE == (int)GRPC_STATUS_OUT_OF_RANGE, "a cast maps");
_Static_assert((int)STATUS_UNIMPLEMENTED == (int)GRPC_STATUS_UNIMPLEMENTED, "a cast maps");
_Static_assert((int)STATUS_INTERNAL == (int)GRPC_STATUS_INTERNAL, "a cast maps");
_Static_assert((int)STATUS_UNAVAILABLE == (int)GRPC_STATUS_UNAVAILABLE, "a cast maps");
_Static_assert((int)STATUS_DATA_LOSS == (int)GRPC_STATUS_DATA_LOSS, "a cast maps");
_Static_assert((int)STATUS_UNAUTHENTICATED == (int)GRPC_STATUS_UNAUTHENTICATED, "a cast maps");

void failure_free(struct failure *f)
{
    if (f == NULL)
        return;
    grpc_slice_unref(f->text);
    for (size_t i = 0; i < f->n_trailers; i++)
        grpc_slice_unref(f->trailers[i].value);
    free(f);
}

/* Takes the value. */
static void failure_add(struct failure *f, const char *name, grpc_slice value)
{
    f->trailers[f->n_trailers].key = grpc_slice_from_static_string(name);
    f->trailers[f->n_trailers++].value = value;
}

static void add_our_detail(struct failure *f, const struct error *err)
{
    Parley__V1__ErrorDetail detail;
    grpc_slice bytes;

    error_details_fill(&detail, err);
    bytes = grpc_slice_malloc(codec_size(&detail.base));
    (void)codec_encode(&detail.base, GRPC_SLICE_START_PTR(bytes));
    failure_add(f, "parley-error-bin", bytes);
}

static void add_status_details(struct failure *f, const struct error *err)
{
    uint8_t bytes[ERROR_DETAILS_MAX_BYTES];
    size_t size = error_details_encode(bytes, err);

    if (size > 0)
        failure_add(f, "grpc-status-details-bin",
                    grpc_slice_from_copied_buffer((const char *)bytes, size));
}

struct failure *failure_make(const struct error *err)
{
    struct failure *f = xalloc(sizeof(*f));
    char text[16];

    f->status = err->status;
    f->text = grpc_slice_from_copied_string(err->text);
    f->n_trailers = 0;
    add_our_detail(f, err);
    add_status_details(f, err);
    if (error_retry_ms(err) > 0) {
        (void)snprintf(text, sizeof(text), "%u", error_retry_ms(err));
        failure_add(f, "retry-after-ms", grpc_slice_from_copied_string(text));
    }
    return f;
}
