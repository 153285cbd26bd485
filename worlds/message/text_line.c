/* Reads and writes ParlAI's text lines. The reader borrows from the line and copies only texts that
 * have an escape. */
#include "worlds/message/text_line.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char pipe_escape[] = "__PIPE__";
enum { PIPE_LEN = sizeof(pipe_escape) - 1 };

/* --- reading --------------------------------------------------------------------------------- */

static bool is_bar_list(enum act_key key)
{
    return key == ACT_LABELS || key == ACT_EVAL_LABELS || key == ACT_LABEL_CANDIDATES ||
           key == ACT_TEXT_CANDIDATES;
}

/* Replaces \t, \n and __PIPE__ by their characters. Borrows text without any of them. */
static enum status text_line_unescape(struct text *t, struct arena *arena, struct error *err)
{
    const char *p = t->text, *end = p + t->len;
    char *out, *to;

    if (memchr(p, '\\', t->len) == NULL && memmem(p, t->len, pipe_escape, PIPE_LEN) == NULL)
        return STATUS_OK;
    to = out = arena_alloc(arena, t->len + 1, 1);
    if (out == NULL)
        return error_no_memory(err, t->len, "a text");
    while (p < end) {
        if (*p == '\\' && p + 1 < end && (p[1] == 't' || p[1] == 'n')) {
            *to++ = p[1] == 't' ? '\t' : '\n';
            p += 2;
        } else if (*p == '_' && end - p >= PIPE_LEN && memcmp(p, pipe_escape, PIPE_LEN) == 0) {
            *to++ = '|';
            p += PIPE_LEN;
        } else {
            *to++ = *p++;
        }
    }
    *t = (struct text){out, (size_t)(to - out)};
    return STATUS_OK;
}

/* The parts between bars, at least one. */
static enum status split_bars(struct value *out, const char *text, size_t len, struct arena *arena,
                              struct error *err)
{
    size_t n = 1;
    struct text *items;

    for (const char *p = text; (p = memchr(p, '|', len - (size_t)(p - text))) != NULL; p++)
        n++;
    items = arena_alloc(arena, n, sizeof(*items));
    if (items == NULL)
        return error_no_memory(err, n * sizeof(*items), "a list");
    for (size_t i = 0; i < n; i++) {
        const char *bar = memchr(text, '|', len);
        size_t item = bar == NULL ? len : (size_t)(bar - text);

        items[i] = (struct text){text, item};
        if (text_line_unescape(&items[i], arena, err) != STATUS_OK)
            return err->status;
        text += item + (bar != NULL);
        len -= item + (bar != NULL);
    }
    *out = value_list(items, n);
    return STATUS_OK;
}

static bool is_one_of(const char *text, size_t len, const char *const *words)
{
    for (; *words != NULL; words++)
        if (strlen(*words) == len && memcmp(*words, text, len) == 0)
            return true;
    return false;
}

static enum status parse_bool(struct value *out, const char *text, size_t len,
                              struct text_line_oddities *oddities, struct error *err)
{
    static const char *const yes[] = {"True", "true", "1", NULL};
    static const char *const no[] = {"False", "false", "0", NULL};

    if (len > 1 && text[len - 1] == '\r')
        len--;
    if (is_one_of(text, len, yes)) {
        *out = value_bool(true);
    } else if (len == 0 || is_one_of(text, len, no)) {
        *out = value_bool(false);
        if (len > 0 && oddities != NULL)
            oddities->n_false++;
    } else {
        return error_set(err, STATUS_INVALID, "episode_done is '%.*s', it must be True or False",
                         (int)(len < 40 ? len : 40), text);
    }
    return STATUS_OK;
}

/* A number as Python's int() and float() read it: white space around, single underscores between
 * digits. Integers stay integers. */
static enum status text_line_parse_number(struct value *out, const char *text, size_t len,
                                          struct error *err)
{
    char digits[64];
    size_t n = 0, n_letters;
    bool is_integer = true;
    char *end;

    while (len > 0 && strchr(" \t\n\r\v\f", text[0]) != NULL && text[0] != '\0') {
        text++;
        len--;
    }
    while (len > 0 && strchr(" \t\n\r\v\f", text[len - 1]) != NULL && text[len - 1] != '\0')
        len--;
    for (size_t i = 0; i < len && n < sizeof(digits); i++) {
        bool between = i > 0 && i + 1 < len && text[i - 1] >= '0' && text[i - 1] <= '9' &&
                       text[i + 1] >= '0' && text[i + 1] <= '9';

        if (text[i] == '_' && between)
            continue;
        is_integer &= (text[i] >= '0' && text[i] <= '9') ||
                      (i == 0 && len > 1 && (text[i] == '-' || text[i] == '+'));
        digits[n++] = text[i];
    }
    /* strtod accepts more than Python: hexadecimal and nan(...) */
    n_letters = 0;
    for (size_t i = 0; i < n; i++)
        n_letters += strchr("xXpP(_", digits[i]) != NULL || digits[i] == '\0';
    if (n == 0 || n >= sizeof(digits) || n_letters > 0)
        goto bad;
    digits[n] = '\0';
    if (is_integer && n < 19) {
        *out = value_int(strtoll(digits, &end, 10));
    } else {
        *out = value_real(strtod(digits, &end));
    }
    if (*end == '\0')
        return STATUS_OK;
bad:
    return error_set(err, STATUS_INVALID, "reward is '%.*s', it must be a number",
                     (int)(len < 40 ? len : 40), text);
}

static enum status parse_field(struct act *a, const char *field, size_t len, struct arena *arena,
                               struct text_line_oddities *oddities, struct error *err)
{
    const char *colon = memchr(field, ':', len);
    size_t name_len = colon == NULL ? 0 : (size_t)(colon - field);
    enum act_key key;
    struct value v;
    const char *rest;

    if (colon == NULL && len > 0 && oddities != NULL)
        oddities->n_no_colon++;
    if (name_len == 0)
        return STATUS_OK; /* an empty field or name: nothing is lost */
    key = act_key_of(field, name_len);
    rest = colon + 1;
    len -= name_len + 1;
    if (is_bar_list(key)) {
        if (split_bars(&v, rest, len, arena, err) != STATUS_OK)
            return err->status;
    } else if (key == ACT_EPISODE_DONE) {
        if (parse_bool(&v, rest, len, oddities, err) != STATUS_OK)
            return err->status;
    } else if (key == ACT_REWARD) {
        if (text_line_parse_number(&v, rest, len, err) != STATUS_OK)
            return err->status;
    } else {
        v = value_text((struct text){rest, len});
        if (text_line_unescape(&v.text, arena, err) != STATUS_OK)
            return err->status;
    }
    return act_force_named(a, (struct text){field, name_len}, v, err);
}

enum status text_line_parse(struct act *a, const char *line, size_t len, struct arena *arena,
                            struct text_line_oddities *oddities, struct error *err)
{
    struct act built;

    act_init(&built, arena);
    if (oddities != NULL && len > 0 && line[len - 1] == '\r')
        oddities->n_returns++;
    for (size_t at = 0; at < len;) {
        const char *tab = memchr(line + at, '\t', len - at);
        size_t field = tab == NULL ? len - at : (size_t)(tab - line) - at;

        if (parse_field(&built, line + at, field, arena, oddities, err) != STATUS_OK)
            return err->status;
        at += field + 1;
    }
    if (len > 0 && !act_has(&built, ACT_EPISODE_DONE) &&
        act_set(&built, ACT_EPISODE_DONE, value_bool(false), err) != STATUS_OK)
        return err->status;
    *a = built;
    return STATUS_OK;
}

/* --- writing --------------------------------------------------------------------------------- */

static enum status append_escaped(struct buf *out, struct text t, struct error *err)
{
    enum status rc = STATUS_OK;
    size_t from = 0;

    for (size_t i = 0; i <= t.len && rc == STATUS_OK; i++) {
        const char *instead = i == t.len          ? ""
                              : t.text[i] == '\t' ? "\\t"
                              : t.text[i] == '\n' ? "\\n"
                              : t.text[i] == '|'  ? pipe_escape
                                                  : NULL;

        if (instead == NULL)
            continue;
        rc = buf_append(out, t.text + from, i - from);
        if (rc == STATUS_OK)
            rc = buf_append_text(out, instead);
        from = i + 1;
    }
    return rc == STATUS_OK ? rc : error_no_memory(err, t.len, "a line");
}

/* As Python prints a float: the fewest digits that read back the same. */
static void print_real(double x, char *out, size_t size)
{
    if (isnan(x) || isinf(x)) {
        (void)snprintf(out, size, "%s", isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(out, size, "%.*g", digits, x);
        if (strtod(out, NULL) == x)
            break;
    }
    if (fabs(x) < 1e16 && fabs(x) >= 1e-4 && strchr(out, 'e') != NULL)
        (void)snprintf(out, size, "%.0f", x); /* 1e+01 is 10 */
    if (strpbrk(out, ".e") == NULL && strlen(out) + 3 <= size)
        memcpy(out + strlen(out), ".0", 3);
}

static enum status text_line_append_value(struct buf *out, const struct value *v, struct error *err)
{
    char number[48];
    enum status rc = STATUS_OK;

    switch ((enum value_type)v->type) {
    case VALUE_TEXT:
    case VALUE_JSON:
        return append_escaped(out, v->text, err);
    case VALUE_LIST:
        for (size_t i = 0; i < v->list.n && rc == STATUS_OK; i++) {
            if (i > 0 && buf_append(out, "|", 1) != STATUS_OK)
                return error_no_memory(err, 1, "a line");
            rc = append_escaped(out, v->list.items[i], err);
        }
        return rc;
    case VALUE_NULL:
        rc = buf_append_text(out, "None");
        break;
    case VALUE_BOOL:
        rc = buf_append_text(out, v->boolean ? "True" : "False");
        break;
    case VALUE_INT:
        rc = buf_printf(out, "%lld", (long long)v->integer);
        break;
    case VALUE_REAL:
        print_real(v->real, number, sizeof(number));
        rc = buf_append_text(out, number);
        break;
    case VALUE_IDS:
        for (size_t i = 0; i < v->ids.n && rc == STATUS_OK; i++)
            rc = buf_printf(out, "%s%d", i > 0 ? "|" : "", v->ids.items[i]);
        break;
    case VALUE_METRICS:
        break;
    }
    return rc == STATUS_OK ? rc : error_no_memory(err, sizeof(number), "a line");
}

static enum status append_field(struct buf *out, size_t start, const struct field *f,
                                struct error *err)
{
    if ((out->len > start && buf_append(out, "\t", 1) != STATUS_OK) ||
        buf_append(out, f->name.text, f->name.len) != STATUS_OK ||
        buf_append(out, ":", 1) != STATUS_OK)
        return error_no_memory(err, f->name.len, "a line");
    return text_line_append_value(out, &f->value, err);
}

static const enum act_key first_keys[] = {ACT_ID,
                                          ACT_TEXT,
                                          ACT_LABELS,
                                          ACT_EVAL_LABELS,
                                          ACT_LABEL_CANDIDATES,
                                          ACT_TEXT_CANDIDATES,
                                          ACT_EPISODE_DONE,
                                          ACT_REWARD};

static bool is_first_key(enum act_key key)
{
    for (size_t i = 0; i < sizeof(first_keys) / sizeof(first_keys[0]); i++)
        if (first_keys[i] == key)
            return true;
    return false;
}

enum status text_line_format(const struct act *a, struct buf *out, struct error *err)
{
    size_t start = out->len;
    enum status rc = STATUS_OK;

    for (size_t k = 0; k < sizeof(first_keys) / sizeof(first_keys[0]) && rc == STATUS_OK; k++) {
        enum act_key key = first_keys[k];
        const struct value *v = act_get(a, key);

        if (v == NULL || ((key == ACT_EPISODE_DONE || key == ACT_REWARD) && !act_is(a, key) &&
                          v->type != VALUE_NULL))
            continue;
        rc = append_field(out, start, &(struct field){act_key_name(key), (uint8_t)key, *v}, err);
    }
    for (size_t i = 0; i < a->n && rc == STATUS_OK; i++)
        if (!is_first_key((enum act_key)a->fields[i].key) &&
            a->fields[i].value.type != VALUE_METRICS)
            rc = append_field(out, start, &a->fields[i], err);
    return rc;
}
