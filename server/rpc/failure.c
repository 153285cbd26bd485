#include "server/rpc/failure.h"

#include <grpc/slice.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "parley/v1/error.pb-c.h"
#include "proto/codec.h"

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

struct failure *failure_make(const struct error *err)
{
    struct failure *f = xalloc(sizeof(*f));
    Parley__V1__ErrorDetail detail = PARLEY__V1__ERROR_DETAIL__INIT;
    struct error copy = *err;
    char text[16];

    f->status = err->status;
    f->text = grpc_slice_from_copied_string(err->text);
    detail.code = (uint32_t)err->status;
    detail.message = copy.text;
    detail.field = copy.field;
    detail.retry_after_ms = err->retry_after_ms;
    detail.have_version = err->have_version;
    detail.want_version = err->want_version;
    f->trailers[0].key = grpc_slice_from_static_string("parley-error-bin");
    f->trailers[0].value = grpc_slice_malloc(codec_size(&detail.base));
    (void)codec_encode(&detail.base, GRPC_SLICE_START_PTR(f->trailers[0].value));
    f->n_trailers = 1;
    if (err->retry_after_ms > 0) {
        (void)snprintf(text, sizeof(text), "%u", err->retry_after_ms);
        f->trailers[1].key = grpc_slice_from_static_string("retry-after-ms");
        f->trailers[1].value = grpc_slice_from_copied_string(text);
        f->n_trailers = 2;
    }
    return f;
}
