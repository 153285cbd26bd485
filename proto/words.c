#include "proto/words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static size_t prefix_len(const ProtobufCEnumDescriptor *type)
{
    const ProtobufCEnumValue *zero = protobuf_c_enum_descriptor_get_value(type, 0);
    const char *at = zero == NULL ? NULL : strstr(zero->name, "UNSPECIFIED");

    return at == NULL ? 0 : (size_t)(at - zero->name);
}

const char *enum_word(char out[WORD_CHARS], const ProtobufCEnumDescriptor *type, int value)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(type, value);
    size_t i;

    out[0] = '\0';
    if (v == NULL) {
        (void)snprintf(out, WORD_CHARS, "%d", value);
        return out;
    }
    if (value == 0)
        return out;
    (void)snprintf(out, WORD_CHARS, "%s", v->name + prefix_len(type));
    for (i = 0; out[i] != '\0'; i++)
        out[i] = (char)tolower((unsigned char)out[i]);
    return out;
}
