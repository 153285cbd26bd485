#include "server/call/error_details.h"

#include <inttypes.h>
#include <stdio.h>

#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "proto/codec.h"

enum { MAX_DETAILS = 3 };

/* Details are kept as bytes in Any: here they are, one behind the other. */
struct packed_details {
    uint8_t bytes[ERROR_DETAILS_MAX_BYTES];
    size_t used;
    Google__Protobuf__Any any[MAX_DETAILS];
    Google__Protobuf__Any *list[MAX_DETAILS];
    size_t n;
};

void error_details_fill(Parley__V1__ErrorDetail *out, const struct error *err)
{
    parley__v1__error_detail__init(out);
    out->code = (uint32_t)err->status;
    out->message = (char *)err->text;
    out->field = (char *)err->field;
    out->retry_after_ms = error_retry_ms(err);
    out->have_version = err->have_version;
    out->want_version = err->want_version;
    out->reason = (char *)error_reason(err);
}

/* One that does not fit is left out. */
static void packed_details_add(struct packed_details *p, const char *type_url,
                               const ProtobufCMessage *detail)
{
    size_t size = codec_size(detail);
    Google__Protobuf__Any *any = &p->any[p->n];

    if (size > sizeof(p->bytes) - p->used)
        return;
    google__protobuf__any__init(any);
    any->type_url = (char *)type_url;
    any->value.data = p->bytes + p->used;
    any->value.len = codec_encode(detail, any->value.data);
    p->used += size;
    p->list[p->n++] = any;
}

static void add_info(struct packed_details *p, const struct error *err)
{
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    Google__Rpc__ErrorInfo__MetadataEntry versions[2], *list[] = {&versions[0], &versions[1]};
    char have[24], want[24];

    (void)snprintf(have, sizeof(have), "%" PRIu64, err->have_version);
    (void)snprintf(want, sizeof(want), "%" PRIu64, err->want_version);
    google__rpc__error_info__metadata_entry__init(&versions[0]);
    google__rpc__error_info__metadata_entry__init(&versions[1]);
    versions[0].key = (char *)"have_version";
    versions[0].value = have;
    versions[1].key = (char *)"want_version";
    versions[1].value = want;
    info.reason = (char *)error_reason(err);
    info.domain = (char *)ERROR_DETAILS_DOMAIN;
    info.metadata = list;
    info.n_metadata = err->have_version == 0 && err->want_version == 0 ? 0 : 2;
    packed_details_add(p, "type.googleapis.com/google.rpc.ErrorInfo", &info.base);
}

static void add_field(struct packed_details *p, const struct error *err)
{
    Google__Rpc__BadRequest__FieldViolation violation =
        GOOGLE__RPC__BAD_REQUEST__FIELD_VIOLATION__INIT;
    Google__Rpc__BadRequest__FieldViolation *list[] = {&violation};
    Google__Rpc__BadRequest bad = GOOGLE__RPC__BAD_REQUEST__INIT;

    violation.field = (char *)err->field;
    violation.description = (char *)err->text;
    bad.field_violations = list;
    bad.n_field_violations = 1;
    packed_details_add(p, "type.googleapis.com/google.rpc.BadRequest", &bad.base);
}

static void add_retry(struct packed_details *p, uint32_t retry_ms)
{
    Google__Protobuf__Duration delay = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Rpc__RetryInfo retry = GOOGLE__RPC__RETRY_INFO__INIT;

    delay.seconds = retry_ms / 1000;
    delay.nanos = (int32_t)(retry_ms % 1000) * 1000000;
    retry.retry_delay = &delay;
    packed_details_add(p, "type.googleapis.com/google.rpc.RetryInfo", &retry.base);
}

size_t error_details_encode(uint8_t out[ERROR_DETAILS_MAX_BYTES], const struct error *err)
{
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    struct packed_details p = {.used = 0};

    add_info(&p, err);
    if (err->field[0] != '\0')
        add_field(&p, err);
    if (error_retry_ms(err) > 0)
        add_retry(&p, error_retry_ms(err));
    status.code = (int32_t)err->status;
    status.message = (char *)err->text;
    status.details = p.list;
    status.n_details = p.n;
    return codec_size(&status.base) <= ERROR_DETAILS_MAX_BYTES ? codec_encode(&status.base, out)
                                                               : 0;
}
