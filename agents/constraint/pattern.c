/* Reads a pattern character by character, and writes a regular expression over the JSON text of a
 * string. What has no such form is refused. */
#include "agents/constraint/pattern.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

enum {
    MAX_RANGES = 96,
    MAX_DEPTH = 32,
    MAX_REPEAT = 1000, /* of a character, in all groups around it together */
    LAST_CODE = 0x10FFFF,
};

struct code_range {
    uint32_t first, last;
};

struct code_set {
    struct code_range ranges[MAX_RANGES]; /* [n] */
    size_t n;
};

struct pattern {
    const char *at, *end;
    struct buf *out;
    unsigned depth;
    struct error *err;
};

static const char any_text[] = "[^\"\\\\\\x00-\\x1f]*";

static enum status pattern_refuse(struct pattern *p, const char *what)
{
    return error_set(p->err, STATUS_UNIMPLEMENTED, "%s", what);
}

static enum status pattern_put(struct pattern *p, const char *text)
{
    if (buf_append_text(p->out, text) == STATUS_OK)
        return STATUS_OK;
    return error_set(p->err, STATUS_UNIMPLEMENTED, "a pattern of this length");
}

/* --- sets of characters --- */

static bool set_add(struct code_set *s, uint32_t first, uint32_t last)
{
    if (s->n == MAX_RANGES)
        return false;
    s->ranges[s->n++] = (struct code_range){first, last};
    return true;
}

/* Everything that is not in s. Ranges need no order: each round finds the next code outside. */
static bool set_invert(struct code_set *s)
{
    struct code_set out = {.n = 0};
    uint32_t at = 0;

    while (at <= LAST_CODE) {
        uint32_t next = LAST_CODE + 1;
        bool is_inside = false;

        for (size_t i = 0; i < s->n; i++) {
            if (s->ranges[i].first <= at && at <= s->ranges[i].last) {
                at = s->ranges[i].last + 1;
                is_inside = true;
                break;
            }
            if (s->ranges[i].first > at && s->ranges[i].first < next)
                next = s->ranges[i].first;
        }
        if (is_inside)
            continue;
        if (!set_add(&out, at, next - 1))
            return false;
        at = next;
    }
    *s = out;
    return true;
}

/* Takes away what cannot stand raw in a JSON string, and surrogates, which are no characters. */
static bool set_keep_raw(struct code_set *s)
{
    return set_invert(s) && set_add(s, 0, 0x1F) && set_add(s, '"', '"') && set_add(s, '\\', '\\') &&
           set_add(s, 0x7F, 0x7F) && set_add(s, 0xD800, 0xDFFF) && set_invert(s);
}

static enum status put_code(struct pattern *p, uint32_t code)
{
    if (code >= 0x10000)
        return buf_printf(p->out, "\\u{%X}", code);
    return buf_printf(p->out, "\\u%04X", code);
}

static enum status put_set(struct pattern *p, struct code_set *s)
{
    enum status rc;

    if (!set_keep_raw(s))
        return pattern_refuse(p, "a character class with this many ranges");
    if (s->n == 0)
        return pattern_refuse(
            p, "a character class of only quotes, backslashes or control characters");
    rc = buf_append_text(p->out, "[");
    for (size_t i = 0; rc == STATUS_OK && i < s->n; i++) {
        rc = put_code(p, s->ranges[i].first);
        if (rc == STATUS_OK && s->ranges[i].last != s->ranges[i].first) {
            rc = buf_append_text(p->out, "-");
            if (rc == STATUS_OK)
                rc = put_code(p, s->ranges[i].last);
        }
    }
    if (rc == STATUS_OK)
        rc = buf_append_text(p->out, "]");
    return rc == STATUS_OK ? rc : pattern_refuse(p, "a pattern of this length");
}

/* A character by its escape in JSON where it needs one. */
static enum status put_literal(struct pattern *p, uint32_t code)
{
    static const char letters[] = "\b\f\n\r\t", names[] = "bfnrt";
    const char *letter = code != 0 && code < 0x20 ? strchr(letters, (int)code) : NULL;
    enum status rc;

    if (code == '"')
        return pattern_put(p, "\\\\\"");
    if (code == '\\')
        return pattern_put(p, "\\\\\\\\");
    if (letter != NULL)
        rc = buf_printf(p->out, "\\\\%c", names[letter - letters]);
    else if (code < 0x20)
        rc = buf_printf(p->out, "\\\\u%04x", code);
    else
        rc = put_code(p, code);
    return rc == STATUS_OK ? rc : pattern_refuse(p, "a pattern of this length");
}

/* --- reading --- */

static uint32_t pattern_take_code(struct pattern *p)
{
    const unsigned char *s = (const unsigned char *)p->at;
    size_t n = s[0] < 0x80 ? 1 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4; /* the text is UTF-8 */
    uint32_t code = n == 1 ? s[0] : s[0] & (0x7Fu >> n);

    for (size_t i = 1; i < n; i++)
        code = code << 6 | (s[i] & 0x3Fu);
    p->at += n;
    return code;
}

static bool take_hex(struct pattern *p, size_t n, uint32_t *out)
{
    uint32_t code = 0;

    if ((size_t)(p->end - p->at) < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        static const char digits[] = "0123456789abcdef";
        const char c = p->at[i] >= 'A' && p->at[i] <= 'F' ? (char)(p->at[i] + 32) : p->at[i];
        const char *digit = c != '\0' ? strchr(digits, c) : NULL;

        if (digit == NULL)
            return false;
        code = code << 4 | (uint32_t)(digit - digits);
    }
    p->at += n;
    *out = code;
    return true;
}

/* \d, \w, \s and their opposites. \s is the space alone: the others need an escape in JSON. */
static bool class_of(char letter, struct code_set *out)
{
    bool is_known = true;

    out->n = 0;
    switch (letter | 0x20) {
    case 'd':
        is_known = set_add(out, '0', '9');
        break;
    case 'w':
        is_known = set_add(out, '0', '9') && set_add(out, 'A', 'Z') && set_add(out, 'a', 'z') &&
                   set_add(out, '_', '_');
        break;
    case 's':
        is_known = set_add(out, '\t', '\r') && set_add(out, ' ', ' ') && set_add(out, 0xA0, 0xA0) &&
                   set_add(out, 0xFEFF, 0xFEFF) && set_add(out, 0x1680, 0x1680) &&
                   set_add(out, 0x2000, 0x200A) && set_add(out, 0x2028, 0x2029) &&
                   set_add(out, 0x202F, 0x202F) && set_add(out, 0x205F, 0x205F) &&
                   set_add(out, 0x3000, 0x3000);
        break;
    default:
        return false;
    }
    return is_known && ((letter & 0x20) != 0 || set_invert(out));
}

/* What follows a backslash and stands for one character. */
static bool take_escaped(struct pattern *p, uint32_t *out)
{
    static const char letters[] = "fnrtv", codes[] = "\f\n\r\t\v";
    const char c = *p->at;
    const char *letter = strchr(letters, c);

    if (letter != NULL && c != '\0') {
        p->at++;
        *out = (uint32_t)codes[letter - letters];
        return true;
    }
    if (c == 'x' || c == 'u') {
        p->at++;
        return take_hex(p, c == 'x' ? 2 : 4, out) && (*out < 0xD800 || *out > 0xDFFF);
    }
    if (strchr("^$\\.*+?()[]{}|/-\"'#@%&,:;=<>!~` _", c) == NULL || c == '\0')
        return false;
    p->at++;
    *out = (uint32_t)c;
    return true;
}

static enum status take_member(struct pattern *p, struct code_set *s, uint32_t *ret_code,
                               bool *ret_is_class)
{
    struct code_set class;

    *ret_is_class = false;
    if (*p->at != '\\') {
        *ret_code = pattern_take_code(p);
        return STATUS_OK;
    }
    if (++p->at == p->end)
        return pattern_refuse(p, "a backslash at the end");
    if (class_of(*p->at, &class)) {
        p->at++;
        *ret_is_class = true;
        for (size_t i = 0; i < class.n; i++)
            if (!set_add(s, class.ranges[i].first, class.ranges[i].last))
                return pattern_refuse(p, "a character class with this many ranges");
        return STATUS_OK;
    }
    return take_escaped(p, ret_code) ? STATUS_OK
                                     : pattern_refuse(p, "this escape in a character class");
}

static enum status take_class(struct pattern *p)
{
    struct code_set s = {.n = 0};
    bool is_inverted = p->at < p->end && *p->at == '^';

    p->at += is_inverted;
    while (p->at < p->end && *p->at != ']') {
        uint32_t first, last;
        bool is_class;

        if (take_member(p, &s, &first, &is_class) != STATUS_OK)
            return p->err->status;
        if (is_class)
            continue;
        last = first;
        if (p->end - p->at > 1 && p->at[0] == '-' && p->at[1] != ']') {
            p->at++;
            if (take_member(p, &s, &last, &is_class) != STATUS_OK)
                return p->err->status;
            if (is_class || last < first)
                return pattern_refuse(p, "this range in a character class");
        }
        if (!set_add(&s, first, last))
            return pattern_refuse(p, "a character class with this many ranges");
    }
    if (p->at == p->end)
        return pattern_refuse(p, "a character class without an end");
    p->at++;
    if (is_inverted && !set_invert(&s))
        return pattern_refuse(p, "a character class with this many ranges");
    return put_set(p, &s);
}

static enum status take_alternatives(struct pattern *p, bool is_outermost);

static enum status take_group(struct pattern *p)
{
    enum status rc;

    if (p->end - p->at > 1 && p->at[0] == '?') {
        if (p->at[1] != ':')
            return pattern_refuse(p, "look-around, or a group with a name or flags");
        p->at += 2;
    }
    if (++p->depth > MAX_DEPTH)
        return pattern_refuse(p, "groups nested this deeply");
    rc = pattern_put(p, "(");
    if (rc == STATUS_OK)
        rc = take_alternatives(p, false);
    if (rc != STATUS_OK)
        return rc;
    if (p->at == p->end)
        return pattern_refuse(p, "a group without an end");
    p->at++;
    p->depth--;
    return pattern_put(p, ")");
}

static enum status take_atom(struct pattern *p)
{
    struct code_set s = {.n = 0};
    uint32_t code;

    switch (*p->at) {
    case '(':
        p->at++;
        return take_group(p);
    case '[':
        p->at++;
        return take_class(p);
    case '.':
        p->at++;
        return set_invert(&s) ? put_set(p, &s) : p->err->status;
    case '^':
    case '$':
        return pattern_refuse(p, "an anchor that is not at the beginning or end of the pattern");
    case '*':
    case '+':
    case '?':
    case '{':
        return pattern_refuse(p, "a repetition of nothing");
    case '\\':
        if (++p->at == p->end)
            return pattern_refuse(p, "a backslash at the end");
        if (class_of(*p->at, &s)) {
            p->at++;
            return put_set(p, &s);
        }
        if (!take_escaped(p, &code))
            return pattern_refuse(p, "this escape: a boundary, a property or a back reference");
        return put_literal(p, code);
    default:
        return put_literal(p, pattern_take_code(p));
    }
}

static bool pattern_take_count(struct pattern *p, uint64_t *out)
{
    const char *start = p->at;

    *out = 0;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9' && *out <= MAX_REPEAT)
        *out = *out * 10 + (uint64_t)(*p->at++ - '0');
    return p->at > start;
}

/* {n}, {n,} or {n,m}; *ret_most counts an open end as n. */
static enum status take_braces(struct pattern *p, uint64_t *ret_most)
{
    uint64_t least, most;

    p->at++;
    if (!pattern_take_count(p, &least))
        return pattern_refuse(p, "a brace that is not a repetition");
    most = least;
    if (p->at < p->end && *p->at == ',') {
        p->at++;
        if (p->at < p->end && *p->at != '}' && (!pattern_take_count(p, &most) || most < least))
            return pattern_refuse(p, "a brace that is not a repetition");
    }
    if (p->at == p->end || *p->at != '}')
        return pattern_refuse(p, "a brace that is not a repetition");
    p->at++;
    *ret_most = most > 0 ? most : 1;
    return STATUS_OK;
}

static enum status take_piece(struct pattern *p)
{
    const char *mark;
    uint64_t most;
    enum status rc = take_atom(p);

    mark = p->at;
    if (rc != STATUS_OK || p->at == p->end || strchr("*+?{", *p->at) == NULL)
        return rc;
    if (*p->at == '{')
        rc = take_braces(p, &most);
    else
        p->at++;
    if (rc == STATUS_OK && buf_append(p->out, mark, (size_t)(p->at - mark)) != STATUS_OK)
        rc = pattern_refuse(p, "a pattern of this length");
    if (rc == STATUS_OK && p->at < p->end && *p->at == '?')
        p->at++; /* a lazy quantifier: it does not matter which match is found */
    return rc;
}

static bool is_at_end_anchor(const struct pattern *p)
{
    return *p->at == '$' && (p->at + 1 == p->end || p->at[1] == '|');
}

/* One alternative. Outermost ones may have anchors; where there is none, any text may stand. */
static enum status take_alternative(struct pattern *p, bool is_outermost)
{
    bool has_start = is_outermost && p->at < p->end && *p->at == '^', has_end = false;
    enum status rc = STATUS_OK;

    p->at += has_start;
    if (is_outermost && !has_start)
        rc = pattern_put(p, any_text);
    while (rc == STATUS_OK && p->at < p->end && *p->at != '|' && *p->at != ')') {
        if (is_outermost && is_at_end_anchor(p)) {
            p->at++;
            has_end = true;
            break;
        }
        rc = take_piece(p);
    }
    if (rc == STATUS_OK && is_outermost && !has_end)
        rc = pattern_put(p, any_text);
    return rc;
}

static enum status take_alternatives(struct pattern *p, bool is_outermost)
{
    enum status rc = take_alternative(p, is_outermost);

    while (rc == STATUS_OK && p->at < p->end && *p->at == '|') {
        p->at++;
        rc = pattern_put(p, "|");
        if (rc == STATUS_OK)
            rc = take_alternative(p, is_outermost);
    }
    return rc;
}

enum status pattern_to_json_text(struct buf *out, const char *pattern, size_t len,
                                 struct error *err)
{
    struct pattern p = {pattern, pattern + len, out, 0, err};
    enum status rc;

    if (!utf8_is_valid(pattern, len) || memchr(pattern, '\0', len) != NULL)
        return pattern_refuse(&p, "text that is not UTF-8");
    rc = pattern_check_bounds(pattern, len, err);
    if (rc == STATUS_OK)
        rc = take_alternatives(&p, true);
    if (rc == STATUS_OK && p.at < p.end)
        rc = pattern_refuse(&p, "a closing parenthesis without an opening one");
    return rc;
}

/* The upper end of the repetition at text; 1 where there is none. */
static uint64_t repeat_at(const char *text, const char *end)
{
    struct pattern p = {.at = text, .end = end};
    uint64_t count, most = 1;

    if (text == end || *text != '{')
        return 1;
    for (p.at++; pattern_take_count(&p, &count); p.at++) {
        most = count > most ? count : most;
        if (p.at == end || *p.at != ',')
            break;
    }
    return most;
}

enum status pattern_check_bounds(const char *pattern, size_t len, struct error *err)
{
    const char *const end = pattern + len;
    uint64_t inner[MAX_DEPTH + 1] = {
        1}; /* the most repetitions of a character in each open group */
    unsigned depth = 0;

    for (const char *at = pattern; at < end; at++) {
        uint64_t most = repeat_at(at, end);

        if (*at == '\\') {
            at++;
            continue;
        }
        if (*at == '(') {
            if (++depth > MAX_DEPTH)
                return error_set(err, STATUS_UNIMPLEMENTED, "groups nested this deeply");
            inner[depth] = 1;
        } else if (*at == ')' && depth > 0) {
            most = inner[depth--] * repeat_at(at + 1, end);
        }
        if (most > inner[depth])
            inner[depth] = most;
        if (inner[depth] > MAX_REPEAT)
            return error_set(err, STATUS_UNIMPLEMENTED, "repetitions that multiply to more than %d",
                             MAX_REPEAT);
    }
    return STATUS_OK;
}
