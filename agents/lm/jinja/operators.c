/* The operators of expressions, on values: arithmetic, repetition, joining, formatting with a
 * percent sign, "in", and the list that a loop goes through. Numbers behave as Python's do, but for
 * an int beyond 64 bits, which fails. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agents/lm/jinja/parts.h"
#include "base/real.h"

static bool iterate_text(struct jinja_run *r, const struct jinja_text *t, struct jinja_value *out)
{
    if (!jinja_list_new(r, 0, out))
        return false;
    for (size_t at = 0, end; at < t->len; at = end) {
        struct jinja_value one;

        for (end = at + 1; end < t->len && ((unsigned char)t->data[end] & 0xC0) == 0x80;)
            end++;
        if (!jinja_charge(r, 0) || !jinja_part(r, t, at, end, &one) ||
            !jinja_list_push(r, out->as.list, one))
            return false;
    }
    return true;
}

bool jinja_iterate(struct jinja_run *r, struct jinja_value v, struct jinja_value *out)
{
    switch (v.kind) {
    case JINJA_LIST:
        *out = v;
        return true;
    case JINJA_UNDEFINED:
        return jinja_list_new(r, 0, out);
    case JINJA_TEXT:
        return iterate_text(r, v.as.text, out);
    case JINJA_MAP:
        if (!jinja_charge(r, 16 * v.as.map->n) || !jinja_list_new(r, v.as.map->n, out))
            return false;
        for (size_t i = 0; i < v.as.map->n; i++)
            out->as.list->items[out->as.list->n++] = v.as.map->pairs[i].key;
        return true;
    default:
        return jinja_fail(r, "a %s cannot be iterated over", jinja_kind_name(v));
    }
}

bool jinja_contains(struct jinja_run *r, struct jinja_value in, struct jinja_value what, bool *ret)
{
    struct jinja_value *found;

    *ret = false;
    if (in.kind == JINJA_MAP) {
        if (!jinja_map_get(r, in.as.map, what, &found))
            return false;
        *ret = found != NULL;
        return true;
    }
    if (in.kind == JINJA_TEXT) {
        if (what.kind != JINJA_TEXT)
            return jinja_fail(
                r, "the left side of 'in' is a %s, but a string can only contain a string",
                jinja_kind_name(what));
        *ret = what.as.text->len == 0 ||
               (in.as.text->len != 0 && memmem(in.as.text->data, in.as.text->len,
                                               what.as.text->data, what.as.text->len) != NULL);
        return jinja_charge(r, in.as.text->len);
    }
    if (in.kind == JINJA_UNDEFINED)
        return true;
    if (in.kind != JINJA_LIST)
        return jinja_fail(
            r, "the right side of 'in' is a %s, it must be a string, a list or a mapping",
            jinja_kind_name(in));
    for (size_t i = 0; i < in.as.list->n && !*ret; i++)
        if (!jinja_charge(r, 0) || !jinja_equal(r, in.as.list->items[i], what, ret))
            return false;
    return true;
}

static bool repeat_value(struct jinja_run *r, struct jinja_value v, int64_t n,
                         struct jinja_value *out)
{
    struct jinja_text_builder b = {0};

    if (v.kind == JINJA_TEXT) {
        for (int64_t i = 0; i < n; i++)
            if (!jinja_charge(r, 0) || !jinja_put_text(r, &b, v.as.text))
                return false;
        return jinja_built(r, &b, out);
    }
    if (!jinja_list_new(r, 0, out))
        return false;
    out->is_tuple = v.is_tuple;
    for (int64_t i = 0; i < n; i++) {
        if (!jinja_charge(r, 0))
            return false;
        for (size_t at = 0; at < v.as.list->n; at++)
            if (!jinja_charge(r, 0) || !jinja_list_push(r, out->as.list, v.as.list->items[at]))
                return false;
    }
    return true;
}

static bool add_sequences(struct jinja_run *r, struct jinja_value a, struct jinja_value b,
                          struct jinja_value *out)
{
    struct jinja_text_builder text = {0};

    if (a.kind == JINJA_TEXT) {
        if (a.as.text->len == 0 || b.as.text->len == 0) {
            *out = a.as.text->len == 0 ? b : a;
            return true;
        }
        return jinja_put_text(r, &text, a.as.text) && jinja_put_text(r, &text, b.as.text) &&
               jinja_built(r, &text, out);
    }
    if (!jinja_charge(r, 16 * (a.as.list->n + b.as.list->n)) ||
        !jinja_list_new(r, a.as.list->n + b.as.list->n, out))
        return false;
    out->is_tuple = a.is_tuple;
    for (size_t i = 0; i < a.as.list->n; i++)
        out->as.list->items[out->as.list->n++] = a.as.list->items[i];
    for (size_t i = 0; i < b.as.list->n; i++)
        out->as.list->items[out->as.list->n++] = b.as.list->items[i];
    return true;
}

static bool real_binary(struct jinja_run *r, int op, double a, double b, struct jinja_value *out)
{
    double result;

    if (b == 0 && (op == '/' || op == '%' || op == JINJA_OP('/', '/')))
        return jinja_fail(r, "division by zero");
    switch (op) {
    case '+':
        result = a + b;
        break;
    case '-':
        result = a - b;
        break;
    case '*':
        result = a * b;
        break;
    case '/':
        result = a / b;
        break;
    case '%':
        result = fmod(a, b);
        if (result != 0 && (result < 0) != (b < 0))
            result += b;
        break;
    case JINJA_OP('/', '/'):
        result = floor(a / b);
        break;
    default:
        result = real_pow(a, b);
        break;
    }
    *out = jinja_float(result);
    return true;
}

static bool int_power(struct jinja_run *r, int64_t a, int64_t b, struct jinja_value *out)
{
    int64_t result = 1;

    if (b < 0)
        return real_binary(r, JINJA_OP('*', '*'), (double)a, (double)b, out);
    if (b > 64 && a != 0 && a != 1 && a != -1)
        return jinja_fail(r, "a number is too large");
    for (int64_t i = 0; i < (b > 64 ? b % 2 + 2 : b); i++)
        if (__builtin_mul_overflow(result, a, &result))
            return jinja_fail(r, "a number is too large");
    *out = jinja_int(result);
    return true;
}

static bool int_binary(struct jinja_run *r, int op, int64_t a, int64_t b, struct jinja_value *out)
{
    int64_t result = 0;
    bool is_over = false;

    if (op == '/')
        return real_binary(r, op, (double)a, (double)b, out);
    if (op == JINJA_OP('*', '*'))
        return int_power(r, a, b, out);
    if (op == '%' || op == JINJA_OP('/', '/')) {
        if (b == 0)
            return jinja_fail(r, "division by zero");
        if (b == -1) { /* INT64_MIN / -1 does not exist */
            is_over = op != '%' && __builtin_sub_overflow(0, a, &result);
        } else {
            const bool is_rounded_down = a % b != 0 && (a < 0) != (b < 0);

            result = op == '%' ? a % b + (is_rounded_down ? b : 0) : a / b - is_rounded_down;
        }
    } else {
        is_over = op == '+'   ? __builtin_add_overflow(a, b, &result)
                  : op == '-' ? __builtin_sub_overflow(a, b, &result)
                              : __builtin_mul_overflow(a, b, &result);
    }
    *out = jinja_int(result);
    return !is_over || jinja_fail(r, "a number is too large");
}

static int64_t as_int(struct jinja_value v)
{
    return v.kind == JINJA_BOOL ? v.as.flag : v.as.number;
}

/* '%s' and '%d' alone. */
static bool format_percent(struct jinja_run *r, const struct jinja_text *t, struct jinja_value args,
                           struct jinja_value *out)
{
    struct jinja_text_builder b = {0};
    size_t used = 0;

    for (size_t i = 0; i < t->len; i++) {
        const char next = t->data[i] == '%' && i + 1 < t->len ? t->data[i + 1] : '\0';
        struct jinja_value piece;

        if (t->data[i] != '%' || next == '%') {
            if (!jinja_part(r, t, i, i + 1, &piece) || !jinja_put_text(r, &b, piece.as.text))
                return false;
            i += next == '%';
            continue;
        }
        if ((next != 's' && next != 'd') || (args.is_tuple && used == args.as.list->n) ||
            (!args.is_tuple && used == 1))
            return jinja_fail(r, "the format does not match its values");
        if (!jinja_put_value(r, &b, args.is_tuple ? args.as.list->items[used] : args))
            return false;
        used++;
        i++;
    }
    return jinja_built(r, &b, out);
}

bool jinja_binary(struct jinja_run *r, int op, struct jinja_value a, struct jinja_value b,
                  struct jinja_value *out)
{
    if (op == '~') {
        struct jinja_text_builder text = {0};

        return jinja_put_value(r, &text, a) && jinja_put_value(r, &text, b) &&
               jinja_built(r, &text, out);
    }
    if (a.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(r, a);
    if (b.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(r, b);
    if (jinja_is_number(a) && jinja_is_number(b))
        return a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT
                   ? real_binary(r, op, jinja_as_real(a), jinja_as_real(b), out)
                   : int_binary(r, op, as_int(a), as_int(b), out);
    if (op == '+' && a.kind == b.kind && a.is_tuple == b.is_tuple &&
        (a.kind == JINJA_TEXT || a.kind == JINJA_LIST))
        return add_sequences(r, a, b, out);
    if (op == '*' && (a.kind == JINJA_TEXT || a.kind == JINJA_LIST) &&
        (b.kind == JINJA_INT || b.kind == JINJA_BOOL))
        return repeat_value(r, a, as_int(b), out);
    if (op == '*' && (b.kind == JINJA_TEXT || b.kind == JINJA_LIST) &&
        (a.kind == JINJA_INT || a.kind == JINJA_BOOL))
        return repeat_value(r, b, as_int(a), out);
    if (op == '%' && a.kind == JINJA_TEXT)
        return format_percent(r, a.as.text, b, out);
    return jinja_fail(r, "the operator '%c' does not take a %s and a %s", op & 0x7F,
                      jinja_kind_name(a), jinja_kind_name(b));
}
