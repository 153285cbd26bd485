#include <stdio.h>
#include <string.h>

#include "client/lib/parts.h"
#include "client/lib/reach.h"
#include "parley/v1/error.pb-c.h"
#include "proto/codec.h"

_Static_assert((int)PARLEY_UNAUTHENTICATED == (int)STATUS_UNAUTHENTICATED, "a cast maps");
_Static_assert((int)PARLEY_UNAVAILABLE == (int)GRPC_STATUS_UNAVAILABLE, "a cast maps");

static void outcome_copy(char *out, size_t size, const void *text, size_t len)
{
    len = len < size ? len : size - 1;
    memcpy(out, text, len);
    out[len] = '\0';
}

static void outcome_copy_texts(struct parley_error *out, const Parley__V1__ErrorDetail *detail)
{
    outcome_copy(out->field, sizeof(out->field), detail->field, strlen(detail->field));
    outcome_copy(out->text, sizeof(out->text), detail->message, strlen(detail->message));
    outcome_copy(out->reason, sizeof(out->reason), detail->reason, strlen(detail->reason));
}

void outcome_of_detail(struct parley_error *out, const Parley__V1__ErrorDetail *detail)
{
    bool is_code = detail->code > 0 && detail->code <= PARLEY_UNAUTHENTICATED;

    *out =
        (struct parley_error){.status = is_code ? (enum parley_status)detail->code : PARLEY_UNKNOWN,
                              .retry_after_ms = detail->retry_after_ms};
    outcome_copy_texts(out, detail);
}

static bool read_detail(struct parley_error *out, const grpc_slice *value)
{
    ProtobufCMessage *m = NULL;
    const Parley__V1__ErrorDetail *detail;
    struct arena arena;
    struct error ignored;
    bool is_there;

    arena_init(&arena, 1 << 16);
    is_there =
        codec_decode(&m, &parley__v1__error_detail__descriptor, GRPC_SLICE_START_PTR(*value),
                     GRPC_SLICE_LENGTH(*value), CODEC_ANY_FIELDS, &arena, &ignored) == STATUS_OK;
    if (is_there) {
        detail = (const Parley__V1__ErrorDetail *)m;
        out->retry_after_ms = detail->retry_after_ms;
        outcome_copy_texts(out, detail);
    }
    arena_deinit(&arena);
    return is_there;
}

void outcome_of_call(struct parley_error *out, const struct parley_call *call)
{
    bool is_from_parleyd = false;

    *out = (struct parley_error){.status = (enum parley_status)call->status};
    if (call->status == GRPC_STATUS_OK)
        return;
    outcome_copy(out->text, sizeof(out->text), GRPC_SLICE_START_PTR(call->details),
                 GRPC_SLICE_LENGTH(call->details));
    for (size_t i = 0; i < call->trailers.count && !is_from_parleyd; i++) {
        const grpc_metadata *md = &call->trailers.metadata[i];

        if (grpc_slice_str_cmp(md->key, "parley-error-bin") == 0)
            is_from_parleyd = read_detail(out, &md->value);
    }
    if (is_from_parleyd)
        return;
    if (call->channel->malformed.status != PARLEY_OK)
        *out = call->channel->malformed;
    else if (call->status == GRPC_STATUS_UNAVAILABLE ||
             strstr(out->text, "http2 header with status") != NULL)
        reach_explain(out, call->channel->address, call->channel->is_tls);
    else if (call->status == GRPC_STATUS_DEADLINE_EXCEEDED && call->how.deadline_ms > 0)
        (void)snprintf(out->text, sizeof(out->text), "the call did not end within %u ms",
                       call->how.deadline_ms);
    else if (call->status == GRPC_STATUS_CANCELLED)
        outcome_copy(out->text, sizeof(out->text), "cancelled", strlen("cancelled"));
}

void outcome_of_failure(struct parley_error *out, const struct error *err)
{
    *out = (struct parley_error){.status = (enum parley_status)err->status,
                                 .retry_after_ms = err->retry_after_ms};
    outcome_copy(out->field, sizeof(out->field), err->field, strlen(err->field));
    outcome_copy(out->text, sizeof(out->text), err->text, strlen(err->text));
    outcome_copy(out->reason, sizeof(out->reason), error_reason(err), strlen(error_reason(err)));
}

const char *parley_status_name(enum parley_status status)
{
    return status_name((enum status)status);
}
