#include "base/base64.h"

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    if (c == '+' || c == '-')
        return 62;
    return c == '/' || c == '_' ? 63 : -1;
}

/* The length without padding; SIZE_MAX: the padding is wrong. */
static size_t base64_unpadded(const char *text, size_t len)
{
    size_t n = len;

    while (n > 0 && len - n < 2 && text[n - 1] == '=')
        n--;
    return n == len || len % 4 == 0 ? n : SIZE_MAX;
}

bool base64_decode(uint8_t *out, size_t *ret_len, const char *text, size_t len)
{
    const size_t n = base64_unpadded(text, len);
    uint32_t bits = 0;
    size_t n_out = 0;

    if (n == SIZE_MAX || n % 4 == 1)
        return false;
    for (size_t i = 0; i < n; i++) {
        int digit = base64_digit(text[i]);

        if (digit < 0)
            return false;
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 != 0)
            out[n_out++] = (uint8_t)(bits >> (6 - i % 4 * 2));
    }
    *ret_len = n_out;
    return true;
}
