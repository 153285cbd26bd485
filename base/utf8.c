#include "base/utf8.h"

#include <string.h>

enum { REPLACEMENT = 0xFFFD };

enum kind {
    WHOLE, /* a character */
    SHORT, /* the beginning of one: the bytes end too soon */
    WRONG, /* no more bytes can make it one */
};

/* Reads at most one character, len > 0. *ret_len is how many bytes belong together: the character,
 * or the longest run that could have begun one, at least 1 (Unicode's "maximal subpart"). */
static enum kind utf8_read_one(const char *text, size_t len, size_t *ret_len, uint32_t *ret_char)
{
    const unsigned char *p = (const unsigned char *)text;
    unsigned char low = 0x80, high = 0xBF; /* bounds of the second byte: RFC 3629, section 4 */
    uint32_t c = p[0];
    size_t n, i;

    *ret_len = 1;
    if (c < 0x80) {
        *ret_char = c;
        return WHOLE;
    }
    if (c >= 0xC2 && c <= 0xDF) {
        n = 2;
        c &= 0x1F;
    } else if (c >= 0xE0 && c <= 0xEF) {
        n = 3;
        low = c == 0xE0 ? 0xA0 : 0x80;  /* shortest form */
        high = c == 0xED ? 0x9F : 0xBF; /* no surrogates */
        c &= 0x0F;
    } else if (c >= 0xF0 && c <= 0xF4) {
        n = 4;
        low = c == 0xF0 ? 0x90 : 0x80;
        high = c == 0xF4 ? 0x8F : 0xBF; /* not above U+10FFFF */
        c &= 0x07;
    } else {
        return WRONG;
    }
    for (i = 1; i < n; i++) {
        *ret_len = i;
        if (i == len)
            return SHORT;
        if (p[i] < low || p[i] > high)
            return WRONG;
        c = c << 6 | (p[i] & 0x3Fu);
        low = 0x80;
        high = 0xBF;
    }
    *ret_len = n;
    *ret_char = c;
    return WHOLE;
}

bool utf8_is_valid(const char *text, size_t len)
{
    while (len > 0) {
        uint64_t eight;
        uint32_t c;
        size_t n;

        while (len >= sizeof(eight)) { /* most text is ASCII, eight bytes at once */
            memcpy(&eight, text, sizeof(eight));
            if ((eight & 0x8080808080808080u) != 0)
                break;
            text += sizeof(eight);
            len -= sizeof(eight);
        }
        if (len == 0)
            break;

        if (utf8_read_one(text, len, &n, &c) != WHOLE)
            return false;
        text += n;
        len -= n;
    }
    return true;
}

size_t utf8_complete_len(const char *text, size_t len)
{
    /* Only the last three bytes can be the beginning of a longer character. */
    for (size_t back = 1; back <= 3 && back <= len; back++) {
        unsigned char byte = (unsigned char)text[len - back];
        uint32_t c;
        size_t n;

        if ((byte & 0xC0) == 0x80)
            continue;
        return utf8_read_one(text + len - back, back, &n, &c) == SHORT ? len - back : len;
    }
    return len;
}

size_t utf8_decode(const char *text, size_t len, uint32_t *ret_char)
{
    size_t n;

    if (len == 0 || utf8_read_one(text, len, &n, ret_char) != WHOLE)
        return 0;
    return n;
}

size_t utf8_next(const char *text, size_t len, uint32_t *ret_char)
{
    size_t n;

    if (len == 0)
        return 0;
    if (utf8_read_one(text, len, &n, ret_char) != WHOLE)
        *ret_char = REPLACEMENT;
    return n;
}

size_t utf8_count(const char *text)
{
    size_t n = 0;

    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xC0) != 0x80;
    return n;
}

bool utf8_is_plain_line(const char *text)
{
    const size_t len = strlen(text);
    uint32_t c;

    for (size_t at = 0, n; at < len; at += n) {
        n = utf8_decode(text + at, len - at, &c);
        if (n == 0 || c < ' ' || (c >= 0x7f && c < 0xa0) || (c >= 0x2028 && c <= 0x202e) ||
            (c >= 0x2066 && c <= 0x2069))
            return false;
    }
    return true;
}

size_t utf8_encode(uint32_t character, char out[4])
{
    uint32_t c = character;

    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
        c = REPLACEMENT;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3F));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3F));
        out[2] = (char)(0x80 | (c & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3F));
    out[2] = (char)(0x80 | (c >> 6 & 0x3F));
    out[3] = (char)(0x80 | (c & 0x3F));
    return 4;
}
