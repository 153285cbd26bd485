/* A machine with a stack of open arrays and objects: a state says which characters may come next.
 * It stops at the first character that no JSON value has at that place. */
#include "agents/reply/json_scan.h"

#include <string.h>

enum expects {
    EXPECTS_VALUE,
    EXPECTS_FIRST_ITEM, /* a value, or the end of the list */
    EXPECTS_FIRST_KEY,  /* a key, or the end of the object */
    EXPECTS_KEY,
    EXPECTS_COLON,
    EXPECTS_COMMA, /* or the end of what it is in */
    IN_KEY,
    IN_STRING,
    IN_KEY_ESCAPE,
    IN_STRING_ESCAPE,
    IN_WORD,
    AFTER_SIGN,
    AFTER_ZERO,
    IN_DIGITS,
    AFTER_POINT,
    IN_FRACTION,
    AFTER_E,
    AFTER_E_SIGN,
    IN_EXPONENT,
    IS_OVER,
};

static enum json_scanned scan_expect(struct json_scan *s, enum expects next)
{
    s->expects = (uint8_t)next;
    return JSON_SCAN_MORE;
}

static bool scan_is_in_list(const struct json_scan *s)
{
    return (s->lists[(s->depth - 1) / 8] >> (s->depth - 1) % 8 & 1) != 0;
}

static enum json_scanned scan_open(struct json_scan *s, bool is_list)
{
    const uint32_t at = s->depth;

    if (at == JSON_SCAN_MAX_DEPTH)
        return JSON_SCAN_WRONG;
    s->depth++;
    s->lists[at / 8] =
        (uint8_t)((s->lists[at / 8] & ~(1u << at % 8)) | (unsigned)is_list << at % 8);
    return scan_expect(s, is_list ? EXPECTS_FIRST_ITEM : EXPECTS_FIRST_KEY);
}

static enum json_scanned scan_close(struct json_scan *s, bool is_list)
{
    if (s->depth == 0 || scan_is_in_list(s) != is_list)
        return JSON_SCAN_WRONG;
    s->depth--;
    (void)scan_expect(s, s->depth == 0 ? IS_OVER : EXPECTS_COMMA);
    return s->depth == 0 ? JSON_SCAN_WHOLE : JSON_SCAN_MORE;
}

static bool scan_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool scan_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static enum json_scanned scan_value(struct json_scan *s, char c)
{
    if (c == '{' || c == '[')
        return scan_open(s, c == '[');
    if (s->depth == 0)
        return JSON_SCAN_WRONG;
    if (c == '"')
        return scan_expect(s, IN_STRING);
    if (c == '-')
        return scan_expect(s, AFTER_SIGN);
    if (scan_is_digit(c))
        return scan_expect(s, c == '0' ? AFTER_ZERO : IN_DIGITS);
    s->word = c == 't' ? "rue" : c == 'f' ? "alse" : c == 'n' ? "ull" : NULL;
    return s->word != NULL ? scan_expect(s, IN_WORD) : JSON_SCAN_WRONG;
}

/* Behind a value, or a number that may go on. */
static enum json_scanned scan_after(struct json_scan *s, char c)
{
    if (c == ',')
        return scan_expect(s, scan_is_in_list(s) ? EXPECTS_VALUE : EXPECTS_KEY);
    return c == ']' || c == '}' ? scan_close(s, c == ']') : JSON_SCAN_WRONG;
}

static enum json_scanned scan_string(struct json_scan *s, char c)
{
    const bool is_key = s->expects == IN_KEY;

    if (c == '"')
        return scan_expect(s, is_key ? EXPECTS_COLON : EXPECTS_COMMA);
    if (c == '\\')
        return scan_expect(s, is_key ? IN_KEY_ESCAPE : IN_STRING_ESCAPE);
    return (unsigned char)c < ' ' ? JSON_SCAN_WRONG : JSON_SCAN_MORE;
}

static bool scan_is_hex(char c)
{
    return scan_is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static enum json_scanned scan_escape(struct json_scan *s, char c)
{
    const enum expects back = s->expects == IN_KEY_ESCAPE ? IN_KEY : IN_STRING;

    if (s->n_hex > 0) {
        if (!scan_is_hex(c))
            return JSON_SCAN_WRONG;
        return --s->n_hex == 0 ? scan_expect(s, back) : JSON_SCAN_MORE;
    }
    if (c == 'u') {
        s->n_hex = 4;
        return JSON_SCAN_MORE;
    }
    return c != '\0' && strchr("\"\\/bfnrt", c) != NULL ? scan_expect(s, back) : JSON_SCAN_WRONG;
}

static enum json_scanned scan_number(struct json_scan *s, char c)
{
    const bool is_digit = scan_is_digit(c), is_space = scan_is_space(c);

    switch (s->expects) {
    case AFTER_SIGN:
        return is_digit ? scan_expect(s, c == '0' ? AFTER_ZERO : IN_DIGITS) : JSON_SCAN_WRONG;
    case AFTER_POINT:
        return is_digit ? scan_expect(s, IN_FRACTION) : JSON_SCAN_WRONG;
    case AFTER_E:
        if (c == '+' || c == '-')
            return scan_expect(s, AFTER_E_SIGN);
        return is_digit ? scan_expect(s, IN_EXPONENT) : JSON_SCAN_WRONG;
    case AFTER_E_SIGN:
        return is_digit ? scan_expect(s, IN_EXPONENT) : JSON_SCAN_WRONG;
    default:
        break;
    }
    if (is_digit)
        return s->expects == AFTER_ZERO ? JSON_SCAN_WRONG : JSON_SCAN_MORE;
    if (c == '.' && (s->expects == AFTER_ZERO || s->expects == IN_DIGITS))
        return scan_expect(s, AFTER_POINT);
    if ((c == 'e' || c == 'E') && s->expects != IN_EXPONENT)
        return scan_expect(s, AFTER_E);
    return is_space ? scan_expect(s, EXPECTS_COMMA) : scan_after(s, c);
}

/* Between the parts of a value. */
static enum json_scanned scan_between(struct json_scan *s, char c)
{
    if (scan_is_space(c))
        return JSON_SCAN_MORE;
    switch (s->expects) {
    case EXPECTS_FIRST_ITEM:
        return c == ']' ? scan_close(s, true) : scan_value(s, c);
    case EXPECTS_FIRST_KEY:
        if (c == '}')
            return scan_close(s, false);
        break;
    case EXPECTS_COLON:
        return c == ':' ? scan_expect(s, EXPECTS_VALUE) : JSON_SCAN_WRONG;
    case EXPECTS_COMMA:
        return scan_after(s, c);
    case EXPECTS_VALUE:
        return scan_value(s, c);
    default:
        break;
    }
    return c == '"' ? scan_expect(s, IN_KEY) : JSON_SCAN_WRONG;
}

enum json_scanned json_scan_add(struct json_scan *s, char c)
{
    switch (s->expects) {
    case IN_KEY:
    case IN_STRING:
        return scan_string(s, c);
    case IN_KEY_ESCAPE:
    case IN_STRING_ESCAPE:
        return scan_escape(s, c);
    case IN_WORD:
        if (c != *s->word)
            return JSON_SCAN_WRONG;
        return *++s->word == '\0' ? scan_expect(s, EXPECTS_COMMA) : JSON_SCAN_MORE;
    case IS_OVER:
        return JSON_SCAN_WRONG;
    default:
        return s->expects < IN_KEY ? scan_between(s, c) : scan_number(s, c);
    }
}

void json_scan_in_object(struct json_scan *s)
{
    *s = (struct json_scan){.expects = EXPECTS_COMMA, .depth = 1};
}

bool json_scan_is_object(const char *text, size_t len)
{
    enum json_scanned is = JSON_SCAN_MORE;
    struct json_scan s = {0};
    size_t i = 0;

    while (i < len && scan_is_space(text[i]))
        i++;
    if (i == len || text[i] != '{')
        return false;
    for (; i < len && is == JSON_SCAN_MORE; i++)
        is = json_scan_add(&s, text[i]);
    while (i < len && scan_is_space(text[i]))
        i++;
    return is == JSON_SCAN_WHOLE && i == len;
}
