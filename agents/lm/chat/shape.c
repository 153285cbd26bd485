/* Brings a template into a canonical text, without what its layout alone decides, and matches such
 * a text with a pattern. Parts of the pattern capture what differs between templates of one family.
 */
#include "agents/lm/chat/shape.h"

#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

/* The quote of strings in the canonical layout. */
static const char QUOTE = '\x01';

struct layout {
    struct buf *out;
    const char *text;
    size_t len, at;
    size_t string_end;    /* out->len just after the last string, 0 if there is none */
    bool is_after_trim;   /* the last tag ended in '-' */
    bool is_after_block;  /* the last tag was a block or a comment, and did not end in '+' */
    bool is_out_of_bytes; /* no memory */
};

static bool shape_is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static bool shape_is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static void layout_put(struct layout *l, const char *text, size_t len)
{
    if (buf_append(l->out, text, len) != STATUS_OK)
        l->is_out_of_bytes = true;
}

static bool is_at(const struct layout *l, size_t at, const char *what)
{
    size_t len = strlen(what);

    return len <= l->len - at && memcmp(l->text + at, what, len) == 0;
}

static bool is_tag(const struct layout *l, size_t at)
{
    return is_at(l, at, "{{") || is_at(l, at, "{%") || is_at(l, at, "{#");
}

/* Text between two tags, or before the first or after the last. */
static void put_data(struct layout *l)
{
    size_t from = l->at, to, at;
    bool is_end;

    while (l->at < l->len && !is_tag(l, l->at))
        l->at++;
    to = l->at;
    is_end = to == l->len;
    if (l->is_after_trim)
        while (from < to && shape_is_space(l->text[from]))
            from++;
    else if (l->is_after_block && from < to && l->text[from] == '\n')
        from++;
    if (is_end && from < to && l->text[to - 1] == '\n')
        to--;
    if (!is_end && is_at(l, to + 2, "-")) {
        while (to > from && shape_is_space(l->text[to - 1]))
            to--;
    } else if (!is_end && l->text[to + 1] != '{' && !is_at(l, to + 2, "+")) {
        for (at = to; at > from && (l->text[at - 1] == ' ' || l->text[at - 1] == '\t');)
            at--;
        if (at == 0 || l->text[at - 1] == '\n')
            to = at;
    }
    layout_put(l, l->text + from, to - from);
}

static bool skip_comment(struct layout *l)
{
    l->at += 2;
    if (is_at(l, l->at, "-") || is_at(l, l->at, "+"))
        l->at++; /* the sign belongs to "{#", even before "#}" */
    for (size_t first = l->at; l->at + 2 <= l->len; l->at++) {
        char before = l->at > first ? l->text[l->at - 1] : ' ';

        if (!is_at(l, l->at, "#}"))
            continue;
        l->is_after_trim = before == '-';
        l->is_after_block = before != '+';
        l->at += 2;
        return true;
    }
    return false;
}

/* Reads a number of at most n digits at l->at and moves l->at after them; false if there are fewer
 * than least. */
static bool take_digits(struct layout *l, uint32_t base, size_t least, size_t n, uint32_t *ret)
{
    size_t i = 0;

    for (*ret = 0; i < n && l->at < l->len; i++, l->at++) {
        char c = l->text[l->at];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                : base;

        if (digit >= base)
            break;
        *ret = *ret * base + digit;
    }
    return i >= least;
}

/* Appends a character by its number; false for characters that no prompt has: surrogates, and those
 * with a meaning in the canonical layout. */
static bool put_character(struct layout *l, uint32_t c)
{
    char bytes[4];

    if (c <= (uint32_t)SHAPE_ANY[0] || (c >= 0xD800 && c <= 0xDFFF) || c > 0x10FFFF)
        return false;
    layout_put(l, bytes, utf8_encode(c, bytes));
    return true;
}

/* Resolves the escape after a backslash as Python does in a string literal. An escape unknown to
 * Python is kept; false for one that Python refuses, or whose character put_character refuses. */
static bool put_escape(struct layout *l)
{
    static const char letters[] = "abfnrtv\\'\"", meanings[] = "\a\b\f\n\r\t\v\\'\"";
    const char c = l->text[l->at++];
    const char *letter = memchr(letters, c, sizeof(letters) - 1);
    uint32_t number;

    if (letter != NULL)
        return put_character(l, (unsigned char)meanings[letter - letters]);
    if (c >= '0' && c <= '7') {
        l->at--;
        return take_digits(l, 8, 1, 3, &number) && put_character(l, number);
    }
    switch (c) {
    case '\n':
        return true;
    case 'x':
        return take_digits(l, 16, 2, 2, &number) && put_character(l, number);
    case 'u':
        return take_digits(l, 16, 4, 4, &number) && put_character(l, number);
    case 'U':
        return take_digits(l, 16, 8, 8, &number) && put_character(l, number);
    case 'N': /* a character by its name */
        return false;
    default:
        layout_put(l, "\\", 1);
        layout_put(l, &c, 1);
        return (unsigned char)c <
               0x80; /* for characters beyond ASCII Jinja2 makes an escape of its own */
    }
}

/* a['b'] becomes a.b. The string was put last and begins at start. */
static void put_subscript(struct layout *l, size_t start)
{
    size_t at = l->at, len = l->out->len - start - 2;

    while (at < l->len && shape_is_space(l->text[at]))
        at++;
    if (start == 0 || l->out->data[start - 1] != '[' || at == l->len || l->text[at] != ']' ||
        len == 0)
        return;
    for (size_t i = 0; i < len; i++)
        if (!shape_is_word(l->out->data[start + 1 + i]))
            return;
    l->out->data[start - 1] = '.';
    memmove(l->out->data + start, l->out->data + start + 1, len);
    l->out->len = start + len;
    l->string_end = 0;
    l->at = at + 1;
}

static bool put_string(struct layout *l)
{
    char quote = l->text[l->at++];
    size_t start = l->out->len;
    bool is_joined = start > 1 && l->out->data[start - 1] == '+' && l->string_end == start - 1;

    if (is_joined)
        l->out->len -= 2; /* drops the plus and the end quote before it */
    else
        layout_put(l, &QUOTE, 1);
    while (l->at < l->len && l->text[l->at] != quote) {
        if (l->text[l->at] != '\\') {
            layout_put(l, l->text + l->at++, 1);
        } else {
            l->at++;
            if (l->at == l->len || !put_escape(l))
                return false;
        }
    }
    if (l->at == l->len)
        return false;
    l->at++;
    layout_put(l, &QUOTE, 1);
    l->string_end = l->out->len;
    if (!is_joined && !l->is_out_of_bytes)
        put_subscript(l, start);
    return true;
}

static bool put_tag(struct layout *l)
{
    const bool is_block = l->text[l->at + 1] == '%';
    const char *const end = is_block ? "%}" : "}}";
    bool is_apart = false;

    layout_put(l, is_block ? "{%" : "{{", 2);
    l->at += 2;
    if (l->at < l->len && (l->text[l->at] == '-' || l->text[l->at] == '+'))
        l->at++;
    while (l->at < l->len && !l->is_out_of_bytes) {
        char c = l->text[l->at];

        bool is_signed = (c == '-' || (c == '+' && is_block)) && is_at(l, l->at + 1, end);

        if (is_signed || is_at(l, l->at, end)) {
            layout_put(l, end, 2);
            l->at += is_signed ? 3 : 2;
            l->is_after_trim = is_signed && c == '-';
            l->is_after_block = is_block && !(is_signed && c == '+');
            return true;
        }
        if (shape_is_space(c)) {
            is_apart = true;
            l->at++;
        } else if (c == '\'' || c == '"') {
            if (!put_string(l))
                return false;
            is_apart = false;
        } else {
            if (is_apart && shape_is_word(c) && shape_is_word(l->out->data[l->out->len - 1]))
                layout_put(l, " ", 1);
            layout_put(l, &c, 1);
            is_apart = false;
            l->at++;
        }
    }
    return false;
}

enum status shape_canonical(struct buf *out, const char *text, size_t len, bool is_shape)
{
    struct layout l = {.out = out, .text = text, .len = len};
    bool is_good = true;

    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' && !shape_is_space(text[i]) &&
            !(is_shape && (text[i] == SHAPE_CAPTURE[0] || text[i] == SHAPE_ANY[0])))
            return STATUS_INVALID;
    put_data(&l);
    while (l.at < len && is_good) {
        is_good = text[l.at + 1] == '#' ? skip_comment(&l) : put_tag(&l);
        if (is_good)
            put_data(&l);
    }
    if (l.is_out_of_bytes)
        return STATUS_EXHAUSTED;
    return is_good ? STATUS_OK : STATUS_INVALID;
}

/* The end of the shape's part that begins at p: the next mark, or the end of the shape. */
static const char *part_end(const char *p, const char *end)
{
    while (p < end && *p != SHAPE_CAPTURE[0] && *p != SHAPE_ANY[0])
        p++;
    return p;
}

/* A mark matches as little as possible, the last one all that is left; there is no backtracking. */
bool shape_matches(const char *text, size_t len, const char *shape, size_t shape_len,
                   const char **ret_at, size_t *ret_len)
{
    const char *const end = text + len, *const shape_end = shape + shape_len;
    const char *part = shape, *next = part_end(part, shape_end), *captured = NULL;
    size_t part_len = (size_t)(next - part), captured_len = 0;

    if (part_len > len || memcmp(text, part, part_len) != 0)
        return false;
    text += part_len;
    while (next < shape_end) {
        const char mark = *next;
        const char *found;

        part = next + 1;
        next = part_end(part, shape_end);
        part_len = (size_t)(next - part);
        if ((size_t)(end - text) < part_len)
            return false;
        if (next == shape_end)
            found = memcmp(end - part_len, part, part_len) == 0 ? end - part_len : NULL;
        else
            found = memmem(text, (size_t)(end - text), part, part_len);
        if (found == NULL)
            return false;
        if (mark == SHAPE_CAPTURE[0]) {
            captured = text;
            captured_len = (size_t)(found - text);
            if (memchr(captured, QUOTE, captured_len) != NULL)
                return false;
        }
        text = found + part_len;
    }
    if (text != end)
        return false;
    if (captured != NULL) {
        *ret_at = captured;
        *ret_len = captured_len;
    }
    return true;
}
