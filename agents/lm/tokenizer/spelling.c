#include "agents/lm/tokenizer/spelling.h"

#include <assert.h>
#include <string.h>

#include "base/utf8.h"

static const char escaped_space[] = "\xE2\x96\x81"; /* U+2581 */

/* The byte alphabet of GPT-2: printable bytes of Latin-1 stand for themselves, the others for the
 * characters from U+0100 on, in order. */
static void fill_alphabet(int16_t byte_of[ALPHABET_END])
{
    int next = 256;

    for (int i = 0; i < ALPHABET_END; i++)
        byte_of[i] = -1;
    for (int b = 0; b < 256; b++) {
        bool is_printable =
            (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);

        byte_of[is_printable ? b : next++] = (int16_t)b;
    }
    assert(next == ALPHABET_END);
}

void spelling_init(struct spelling *s, bool is_alphabet)
{
    s->is_alphabet = is_alphabet;
    fill_alphabet(s->byte_of);
}

bool spelling_decode(const struct spelling *s, const char *text, size_t len, char *out,
                     size_t *ret_len)
{
    size_t n = 0;

    if (!s->is_alphabet) {
        *ret_len = spelling_unescape(text, len, out);
        return true;
    }
    while (len > 0) {
        uint32_t c;
        size_t n_bytes = utf8_decode(text, len, &c);

        if (n_bytes == 0 || c >= ALPHABET_END || s->byte_of[c] < 0)
            return false;
        out[n++] = (char)s->byte_of[c];
        text += n_bytes;
        len -= n_bytes;
    }
    *ret_len = n;
    return true;
}

size_t spelling_unescape(const char *text, size_t len, char *out)
{
    const size_t escape_len = sizeof(escaped_space) - 1;
    size_t n = 0;

    while (len > 0) {
        const char *next = memmem(text, len, escaped_space, escape_len);
        size_t before = next == NULL ? len : (size_t)(next - text);

        memmove(out + n, text, before);
        n += before;
        text += before;
        len -= before;
        if (len == 0)
            break;
        out[n++] = ' ';
        text += escape_len;
        len -= escape_len;
    }
    return n;
}

size_t spelling_unescape_first(const char *text, size_t len, char *out)
{
    const size_t escape_len = sizeof(escaped_space) - 1;
    const bool begins = len > escape_len && memcmp(text, escaped_space, escape_len) == 0;
    const size_t skip = begins ? escape_len : 0;

    memmove(out + begins, text + skip, len - skip);
    if (begins)
        out[0] = ' ';
    return len - skip + begins;
}

static int hex_value(char c)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *at = c == '\0' ? NULL : strchr(digits, c);

    return at == NULL ? -1 : (int)(at - digits);
}

int spelling_byte(const char *text, size_t len)
{
    int high, low;

    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    high = hex_value(text[3]);
    low = hex_value(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}
