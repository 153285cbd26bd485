/* Values of enums as people write them: FINISH_REASON_TOOL_CALLS is "tool_calls". */
#ifndef PROTO_WORDS_H
#define PROTO_WORDS_H

#include <protobuf-c/protobuf-c.h>

enum { WORD_CHARS = 32 };

/* The value's name without the prefix that all of its enum's share (that of UNSPECIFIED), in lower
 * case; "" for UNSPECIFIED, the number for a value that this program does not know. Returns out. */
const char *enum_word(char out[WORD_CHARS], const ProtobufCEnumDescriptor *type, int value);

#endif
