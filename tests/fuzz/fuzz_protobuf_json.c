/* The first byte chooses a method; the rest is its request as JSON, or a client's stream of such.
 * What is read as a message is written as JSON that is read as the same message. A stream's
 * messages lie inside it. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/json/protobuf_json.h"
#include "server/api/connect/envelope.h"
#include "server/api/services.h"
#include "server/json/fields.h"
#include "tests/fuzz/target.h"

enum { MAX_BYTES = 64 << 20, MESSAGE_BYTES = 1 << 20, ENVELOPES = 0x80, GZIP = 0x40 };

static const struct call_method *pick_method(uint8_t which)
{
    size_t n;
    const struct call_table *const *tables = services_tables(&n);
    const struct call_table *t = tables[which % n];

    return &t->rows[which / n % t->n];
}

static enum status read_message(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type,
                                const char *text, size_t len, struct arena *arena,
                                struct error *err)
{
    json_t *value;
    enum status rc = fields_parse_strict(&value, text, len, err);

    if (rc != STATUS_OK)
        return rc;
    rc = protobuf_json_read(out, type, value, CALL_MAX_FIELDS, arena, err);
    json_decref(value);
    return rc;
}

static void pack(struct buf *out, const ProtobufCMessage *m)
{
    assert(buf_reserve(out, codec_size(m)) == STATUS_OK);
    out->len = codec_encode(m, (uint8_t *)out->data);
}

static void check_message(const ProtobufCMessageDescriptor *type, const char *text, size_t len)
{
    ProtobufCMessage *m, *again;
    struct buf json, one, two;
    struct json_writer w;
    struct arena arena;
    struct error err;

    arena_init(&arena, MAX_BYTES);
    buf_init(&json, MAX_BYTES);
    buf_init(&one, MAX_BYTES);
    buf_init(&two, MAX_BYTES);
    if (read_message(&m, type, text, len, &arena, &err) == STATUS_OK) {
        w = json_writer_begin(&json);
        protobuf_json_write(&w, NULL, m);
        assert(json_writer_end(&w) == STATUS_OK);
        assert(read_message(&again, type, json.data, json.len, &arena, &err) == STATUS_OK);
        pack(&one, m);
        pack(&two, again);
        assert(one.len == two.len && (one.len == 0 || memcmp(one.data, two.data, one.len) == 0));
        assert(codec_decode(&again, type, one.data, one.len, CALL_MAX_FIELDS, &arena, &err) ==
               STATUS_OK);
    } else {
        assert(err.status == STATUS_INVALID && err.text[0] != '\0');
    }
    buf_deinit(&json);
    buf_deinit(&one);
    buf_deinit(&two);
    arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size_bytes)
{
    const size_t len = size_bytes < 2 ? 0 : size_bytes - 2;
    const ProtobufCMessageDescriptor *type;
    struct envelope_reader r;
    const char *message;
    struct error err;
    size_t n, total = 0;
    char *text;

    if (size_bytes < 2)
        return 0;
    type = pick_method(data[0])->request;
    text = malloc(len + 1); /* exactly len, and a NUL for the reader of text */
    if (text == NULL)
        abort();
    memcpy(text, data + 2, len);
    text[len] = '\0';
    if ((data[1] & ENVELOPES) == 0) {
        check_message(type, text, len);
    } else if (envelope_reader_init(&r, text, len, (data[1] & GZIP) != 0 ? "gzip" : NULL,
                                    MESSAGE_BYTES, &err) == STATUS_OK) {
        while (envelope_read(&message, &n, &r, &err) == STATUS_OK && message != NULL) {
            assert(n <= MESSAGE_BYTES || (message >= text && message + n <= text + len));
            total += n + ENVELOPE_HEAD_BYTES;
            check_message(type, message, n);
        }
        assert((data[1] & GZIP) != 0 || total <= len);
        envelope_reader_deinit(&r);
    }
    free(text);
    return 0;
}
