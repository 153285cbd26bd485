#include "server/call/error_details.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "proto/codec.h"

#define DETAIL_MAX_BYTES ((size_t)64 << 10)

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

static enum reason reason_of_name(const char *name)
{
    for (int i = REASON_NONE + 1; i < N_REASONS; i++)
        if (strcmp(reason_name((enum reason)i), name) == 0)
            return (enum reason)i;
    return REASON_NONE;
}

bool error_details_read(struct error *out, const void *bytes, size_t size_bytes)
{
    const Parley__V1__ErrorDetail *detail;
    ProtobufCMessage *message = NULL;
    struct error ignored;
    struct arena arena;
    bool is_read;

    arena_init(&arena, DETAIL_MAX_BYTES);
    is_read = codec_decode(&message, &parley__v1__error_detail__descriptor, bytes, size_bytes,
                           CODEC_ANY_FIELDS, &arena, &ignored) == STATUS_OK;
    detail = (const Parley__V1__ErrorDetail *)message;
    is_read = is_read && detail->code > STATUS_OK && detail->code <= STATUS_UNAUTHENTICATED;
    if (is_read) {
        (void)error_because(out, (enum status)detail->code, reason_of_name(detail->reason),
                            detail->field[0] == '\0' ? NULL : detail->field, "%s", detail->message);
        out->retry_after_ms = detail->retry_after_ms;
        out->have_version = detail->have_version;
        out->want_version = detail->want_version;
    }
    arena_deinit(&arena);
    return is_read;
}

static void error_details_add(struct error_details *d, const ProtobufCMessage *detail)
{
    const size_t size = codec_size(detail);
    uint8_t *at = d->bytes + d->used;

    if (size > sizeof(d->bytes) - d->used)
        return;
    d->used += codec_encode(detail, at);
    d->list[d->n++] = (struct error_detail){detail->descriptor, at, size};
}

static void add_info(struct error_details *d, const struct error *err)
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
    error_details_add(d, &info.base);
}

static void add_field(struct error_details *d, const struct error *err)
{
    Google__Rpc__BadRequest__FieldViolation violation =
        GOOGLE__RPC__BAD_REQUEST__FIELD_VIOLATION__INIT;
    Google__Rpc__BadRequest__FieldViolation *list[] = {&violation};
    Google__Rpc__BadRequest bad = GOOGLE__RPC__BAD_REQUEST__INIT;

    violation.field = (char *)err->field;
    violation.description = (char *)err->text;
    bad.field_violations = list;
    bad.n_field_violations = 1;
    error_details_add(d, &bad.base);
}

static void add_retry(struct error_details *d, uint32_t retry_ms)
{
    Google__Protobuf__Duration delay = GOOGLE__PROTOBUF__DURATION__INIT;
    Google__Rpc__RetryInfo retry = GOOGLE__RPC__RETRY_INFO__INIT;

    delay.seconds = retry_ms / 1000;
    delay.nanos = (int32_t)(retry_ms % 1000) * 1000000;
    retry.retry_delay = &delay;
    error_details_add(d, &retry.base);
}

void error_details_pack(struct error_details *out, const struct error *err)
{
    out->n = out->used = 0;
    add_info(out, err);
    if (err->field[0] != '\0')
        add_field(out, err);
    if (error_retry_ms(err) > 0)
        add_retry(out, error_retry_ms(err));
}

size_t error_details_encode(uint8_t out[ERROR_DETAILS_MAX_BYTES], const struct error *err)
{
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    Google__Protobuf__Any any[ERROR_DETAILS_MAX], *list[ERROR_DETAILS_MAX];
    char urls[ERROR_DETAILS_MAX][64];
    struct error_details d;

    error_details_pack(&d, err);
    for (size_t i = 0; i < d.n; i++) {
        (void)snprintf(urls[i], sizeof(urls[i]), "type.googleapis.com/%s", d.list[i].type->name);
        google__protobuf__any__init(&any[i]);
        any[i].type_url = urls[i];
        any[i].value = (ProtobufCBinaryData){d.list[i].size_bytes, (uint8_t *)d.list[i].data};
        list[i] = &any[i];
    }
    status.code = (int32_t)err->status;
    status.message = (char *)err->text;
    status.details = list;
    status.n_details = d.n;
    if (codec_size(&status.base) > ERROR_DETAILS_MAX_BYTES)
        return 0;
    return codec_encode(&status.base, out);
}
