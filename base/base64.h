/* Base64 of RFC 4648 to bytes. json_write_base64 (base/json_writer.h) is the other direction. Any
 * thread. */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that a text of len characters decodes to, at most. */
static inline size_t base64_max_bytes(size_t len)
{
    return len / 4 * 3 + 3;
}

/* Takes both alphabets, with and without padding. out has room for base64_max_bytes(len). False: it
 * is no base64, and out is undefined. */
bool base64_decode(uint8_t *out, size_t *ret_len, const char *text, size_t len);

#endif
