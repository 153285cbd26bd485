/* Protocol buffers to and from bytes. Decoding takes its memory from an arena, so that a message is
 * freed with its turn; it is bounded by the arena's limit. */
#ifndef PROTO_CODEC_H
#define PROTO_CODEC_H

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

/* Messages inside messages, the outermost not counted. */
enum { CODEC_DEPTH_MAX = 32 };

/* For bytes of a sender that is trusted to send few fields. */
#define CODEC_ANY_FIELDS SIZE_MAX

/* data is borrowed: the message holds none of it. A failure may leave some of the arena used.
 * STATUS_INVALID for bytes that are no such message, for text that is not UTF-8 or holds a NUL
 * (err->field is its path, "messages[1].text"), for messages nested too deep, and for more than
 * max_fields fields: those of the messages inside and unknown ones count, each value of a repeated
 * field is one, and packed numbers are one together. A field of two bytes on the wire takes a
 * hundred decoded, and as much time as one of any size; so fields are counted before memory is
 * allocated. STATUS_INVALID past the arena's limit, STATUS_EXHAUSTED without memory. */
enum status codec_decode(ProtobufCMessage **out, const ProtobufCMessageDescriptor *type,
                         const void *data, size_t size_bytes, size_t max_fields,
                         struct arena *arena, struct error *err) MUST_CHECK;

/* Encodes into out [codec_size(m)]; returns the size. */
size_t codec_size(const ProtobufCMessage *m);
size_t codec_encode(const ProtobufCMessage *m, uint8_t *out);

#endif
