/* A message is read twice. The first pass, ours, walks the bytes by the descriptor and checks what
 * protobuf-c does not: that text is UTF-8 and free of NULs (protobuf-c hands text on as a C string,
 * whose end a NUL would silently become), that nesting is bounded (protobuf-c recurses as deep as
 * the peer likes) and that there are not too many fields (protobuf-c allocates for each). The
 * second is protobuf-c's own, into the arena. The first must be at least as strict as the second
 * about where a field begins, or text could escape the check. */
#include "proto/codec.h"

#include <assert.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

struct codec_reader {
    const uint8_t *at, *end;
};

/* The walk's state in one message, which is inside a field of its parent. */
struct frame {
    const struct frame *parent;
    const ProtobufCMessageDescriptor *type;
    const uint8_t *data; /* of the message */
    const uint8_t *end;
    const uint8_t *field_at; /* where the current field begins */
    const ProtobufCFieldDescriptor *field;
};

struct tally {
    size_t n_fields, max_fields;
};

struct taker {
    ProtobufCAllocator allocator;
    struct arena *arena;
    bool is_exhausted, is_past_limit;
};

static bool codec_reader_read_varint(struct codec_reader *r, size_t max_bytes, uint64_t *ret)
{
    uint64_t value = 0;
    size_t n;

    for (n = 0; n < max_bytes && r->at < r->end; n++) {
        uint8_t byte = *r->at++;

        value |= (uint64_t)(byte & 0x7f) << (7 * n);
        if (byte < 0x80) {
            *ret = value;
            return true;
        }
    }
    return false;
}

/* Reads one field: its number, its wire type and, for length-prefixed ones, its bytes. False for
 * groups and all else that protobuf-c refuses. */
static bool read_field(struct codec_reader *r, uint32_t *ret_number, unsigned *ret_wire,
                       struct codec_reader *ret_bytes)
{
    uint64_t tag, n;

    if (!codec_reader_read_varint(r, 5, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return false;
    *ret_number = (uint32_t)(tag >> 3);
    *ret_wire = tag & 7;
    switch (*ret_wire) {
    case PROTOBUF_C_WIRE_TYPE_VARINT:
        return codec_reader_read_varint(r, 10, &n);
    case PROTOBUF_C_WIRE_TYPE_64BIT:
        n = 8;
        break;
    case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
        if (!codec_reader_read_varint(r, 5, &n))
            return false;
        break;
    case PROTOBUF_C_WIRE_TYPE_32BIT:
        n = 4;
        break;
    default:
        return false;
    }
    if (n > (uint64_t)(r->end - r->at))
        return false;
    *ret_bytes = (struct codec_reader){r->at, r->at + n};
    r->at += n;
    return true;
}

/* The number of values of the frame's field before the current one. */
static size_t index_of(const struct frame *f)
{
    struct codec_reader r = {f->data, f->field_at}, bytes;
    uint32_t number;
    unsigned wire;
    size_t n = 0;

    while (r.at < r.end && read_field(&r, &number, &wire, &bytes))
        n += number == f->field->id;
    return n;
}

/* "messages[1].text", as much as fits: the outermost first. Returns the length so far. */
static size_t path_write(char *out, size_t size, const struct frame *f)
{
    size_t len = f->parent == NULL ? 0 : path_write(out, size, f->parent);
    int n;

    if (f->field->label == PROTOBUF_C_LABEL_REPEATED)
        n = snprintf(out + len, size - len, "%s%s[%zu]", len > 0 ? "." : "", f->field->name,
                     index_of(f));
    else
        n = snprintf(out + len, size - len, "%s%s", len > 0 ? "." : "", f->field->name);
    assert(n >= 0);
    return len + (size_t)n < size ? len + (size_t)n : size - 1;
}

static enum status fail_field(struct error *err, const struct frame *f, const char *what)
{
    char path[sizeof(err->field)];

    (void)path_write(path, sizeof(path), f);
    return error_field(err, path, "%s", what);
}

static enum status fail_bytes(struct error *err, const ProtobufCMessageDescriptor *type)
{
    return error_set(err, STATUS_INVALID, "bytes are no %s", type->name);
}

static enum status walk(const ProtobufCMessageDescriptor *type, const struct codec_reader *bytes,
                        const struct frame *parent, size_t depth, struct tally *tally,
                        struct error *err)
{
    struct frame f = {.parent = parent, .type = type, .data = bytes->at, .end = bytes->end};
    struct codec_reader r = *bytes, inner = {0};
    uint32_t number;
    unsigned wire;
    enum status rc;

    while (r.at < r.end) {
        f.field_at = r.at;
        if (tally->n_fields++ == tally->max_fields)
            return error_set(err, STATUS_INVALID, "the message has more than %zu fields",
                             tally->max_fields);
        if (!read_field(&r, &number, &wire, &inner))
            return fail_bytes(err, type);
        f.field = protobuf_c_message_descriptor_get_field(type, number);
        if (f.field == NULL ||
            (f.field->type != PROTOBUF_C_TYPE_STRING && f.field->type != PROTOBUF_C_TYPE_MESSAGE))
            continue;
        if (wire != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
            return fail_bytes(err, type);
        if (f.field->type == PROTOBUF_C_TYPE_STRING) {
            const char *text = (const char *)inner.at;
            size_t len = (size_t)(inner.end - inner.at);

            if (!utf8_is_valid(text, len))
                return fail_field(err, &f, "is not UTF-8");
            if (memchr(text, 0, len) != NULL)
                return fail_field(err, &f, "holds a NUL character");
        } else {
            if (depth == CODEC_DEPTH_MAX)
                return error_set(err, STATUS_INVALID, "messages are nested deeper than %d",
                                 CODEC_DEPTH_MAX);
            rc = walk(f.field->descriptor, &inner, &f, depth + 1, tally, err);
            if (rc != STATUS_OK)
                return rc;
        }
    }
    return STATUS_OK;
}

static void *codec_take(void *self, size_t size_bytes)
{
    struct taker *t = self;
    void *piece = arena_alloc(t->arena, 1, size_bytes);

    if (piece == NULL) {
        t->is_exhausted = true;
        t->is_past_limit =
            size_bytes + alignof(max_align_t) > t->arena->limit_bytes - t->arena->total_bytes;
    }
    return piece;
}

/* Does nothing: the arena is freed as a whole. */
static void codec_keep(void *self, void *piece)
{
}

enum status codec_decode(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type,
                         const void *data, size_t size_bytes, size_t max_fields,
                         struct arena *arena, struct error *err)
{
    static const uint8_t nothing;
    struct taker taker = {.arena = arena};
    struct codec_reader bytes;
    struct tally tally = {.max_fields = max_fields};
    ProtobufCMessage *m;
    enum status rc;

    /* An empty message at NULL gets an address, because pointers into it are compared. */
    bytes.at = data == NULL ? &nothing : data;
    bytes.end = bytes.at + (data == NULL ? 0 : size_bytes);
    rc = walk(type, &bytes, NULL, 0, &tally, err);
    if (rc != STATUS_OK)
        return rc;
    taker.allocator = (ProtobufCAllocator){codec_take, codec_keep, &taker};
    m = protobuf_c_message_unpack(type, &taker.allocator, (size_t)(bytes.end - bytes.at), bytes.at);
    if (m == NULL && taker.is_past_limit)
        return error_because(err, STATUS_INVALID, REASON_REQUEST_TOO_LARGE, NULL,
                             "message takes more than %zu bytes once decoded", arena->limit_bytes);
    if (m == NULL && taker.is_exhausted)
        return error_no_memory(err, 0, "a message");
    if (m == NULL)
        return fail_bytes(err, type);
    *out = m;
    return STATUS_OK;
}

size_t codec_size(const ProtobufCMessage *m)
{
    return protobuf_c_message_get_packed_size(m);
}

size_t codec_encode(const ProtobufCMessage *m, uint8_t *out)
{
    return protobuf_c_message_pack(m, out);
}
