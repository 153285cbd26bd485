#include "server/api/connect/error.h"

#include <stddef.h>

#include "base/json_writer.h"
#include "proto/codec.h"
#include "proto/json/protobuf_json.h"
#include "server/call/error_details.h"

enum { DETAIL_FIELDS = 64, DETAIL_DECODED_BYTES = 64 << 10, DETAIL_BASE64_BYTES = 4096 };

static const struct code {
    const char *name;
    int http_status;
} codes[] = {
    [STATUS_CANCELLED] = {"canceled", 499},
    [STATUS_UNKNOWN] = {"unknown", 500},
    [STATUS_INVALID] = {"invalid_argument", 400},
    [STATUS_DEADLINE] = {"deadline_exceeded", 504},
    [STATUS_NOT_FOUND] = {"not_found", 404},
    [STATUS_EXISTS] = {"already_exists", 409},
    [STATUS_DENIED] = {"permission_denied", 403},
    [STATUS_EXHAUSTED] = {"resource_exhausted", 429},
    [STATUS_PRECONDITION] = {"failed_precondition", 400},
    [STATUS_ABORTED] = {"aborted", 409},
    [STATUS_RANGE] = {"out_of_range", 400},
    [STATUS_UNIMPLEMENTED] = {"unimplemented", 501},
    [STATUS_INTERNAL] = {"internal", 500},
    [STATUS_UNAVAILABLE] = {"unavailable", 503},
    [STATUS_DATA_LOSS] = {"data_loss", 500},
    [STATUS_UNAUTHENTICATED] = {"unauthenticated", 401},
};

static const struct code *code_of_status(enum status status)
{
    const size_t i = (size_t)status;

    return i < sizeof(codes) / sizeof(codes[0]) && codes[i].name != NULL ? &codes[i]
                                                                         : &codes[STATUS_UNKNOWN];
}

static int connect_http_status(enum status status)
{
    return code_of_status(status)->http_status;
}

/* The bytes in base64 without padding. */
static void write_detail_value(struct json_writer *w, const struct error_detail *d)
{
    struct json_writer padded;
    struct buf text;

    buf_init(&text, DETAIL_BASE64_BYTES);
    padded = json_writer_begin(&text);
    json_write_base64(&padded, NULL, d->data, d->size_bytes);
    json_writer_fail(w, json_writer_end(&padded));
    if (text.len >= 2) {
        size_t len = text.len - 2; /* without quotes */

        while (len > 0 && text.data[len] == '=')
            len--;
        json_write_string(w, "value", text.data + 1, len);
    }
    buf_deinit(&text);
}

/* What people read in place of the bytes; left out without memory. */
static void write_detail_debug(struct json_writer *w, const struct error_detail *d)
{
    ProtobufCMessage *message;
    struct arena arena;
    struct error ignored;

    arena_init(&arena, DETAIL_DECODED_BYTES);
    if (codec_decode(&message, d->type, d->data, d->size_bytes, DETAIL_FIELDS, &arena, &ignored) ==
        STATUS_OK)
        protobuf_json_write(w, "debug", message);
    arena_deinit(&arena);
}

void connect_error_write(struct json_writer *w, const char *name, const struct error *err)
{
    struct error_details details;

    error_details_pack(&details, err);
    json_begin_object(w, name);
    json_write_text(w, "code", code_of_status(err->status)->name);
    json_write_text(w, "message", err->text);
    json_begin_array(w, "details");
    for (size_t i = 0; i < details.n; i++) {
        json_begin_object(w, NULL);
        json_write_text(w, "type", details.list[i].type->name);
        write_detail_value(w, &details.list[i]);
        write_detail_debug(w, &details.list[i]);
        json_end_object(w);
    }
    json_end_array(w);
    json_end_object(w);
}

static enum status append_connect_error(struct buf *out, int http_status, const struct error *err)
{
    struct json_writer w = json_writer_begin(out);

    connect_error_write(&w, NULL, err);
    return json_writer_end(&w);
}

const struct http_api connect_api = {
    .error_type = "application/json",
    .append_error = append_connect_error,
    .status_of = connect_http_status,
};
