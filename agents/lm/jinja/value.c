/* The values of a template's program: made, compared, and written as Python writes them. Each value
 * counts in the program's budget of memory, and values lie in its arena. */
#include "agents/lm/jinja/parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

bool jinja_fail(struct jinja_run *r, const char *fmt, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)error_set(r->err, STATUS_INVALID, "chat template, line %u: %s", r->line, text);
    return false;
}

bool jinja_fail_undefined(struct jinja_run *r, struct jinja_value v)
{
    return jinja_fail(r, "'%.80s' is undefined", v.as.name == NULL ? "a value" : v.as.name);
}

bool jinja_charge(struct jinja_run *r, size_t n_bytes)
{
    const uint64_t n = 1 + n_bytes / 32;

    if (r->steps_left < n) {
        r->steps_left = 0;
        return jinja_fail(r, "the template takes too many steps");
    }
    r->steps_left -= n;
    return true;
}

void *jinja_take(struct jinja_run *r, size_t n, size_t size_bytes)
{
    void *p = arena_alloc(r->arena, n == 0 ? 1 : n, size_bytes);

    if (p == NULL)
        (void)jinja_fail(r, "the template needs more than %zu bytes of memory",
                         r->arena->limit_bytes);
    return p;
}

bool jinja_enter(struct jinja_run *r)
{
    if (r->depth >= JINJA_MAX_DEPTH)
        return jinja_fail(r, "the template is nested too deeply");
    r->depth++;
    return true;
}

struct jinja_value jinja_bool(bool flag)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .as.flag = flag};
}

struct jinja_value jinja_int(int64_t number)
{
    return (struct jinja_value){.kind = JINJA_INT, .as.number = number};
}

struct jinja_value jinja_float(double real)
{
    return (struct jinja_value){.kind = JINJA_FLOAT, .as.real = real};
}

struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.kind = JINJA_NONE};
}

struct jinja_value jinja_undefined(const char *name)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .as.name = name};
}

bool jinja_string(struct jinja_run *r, const char *data, size_t len, enum jinja_origin origin,
                  struct jinja_value *out)
{
    struct jinja_text *t = jinja_take(r, 1, sizeof(*t));

    if (t == NULL)
        return false;
    *t = (struct jinja_text){.data = data, .len = len, .origin = (uint8_t)origin};
    *out = (struct jinja_value){.kind = JINJA_TEXT, .as.text = t};
    return true;
}

bool jinja_part(struct jinja_run *r, const struct jinja_text *of, size_t from, size_t to,
                struct jinja_value *out)
{
    struct jinja_text *t = jinja_take(r, 1, sizeof(*t));

    if (t == NULL)
        return false;
    *t = (struct jinja_text){.data = of->data + from,
                             .origins = of->origins == NULL ? NULL : of->origins + from,
                             .len = to - from,
                             .origin = of->origin};
    *out = (struct jinja_value){.kind = JINJA_TEXT, .as.text = t};
    return true;
}

bool jinja_list_new(struct jinja_run *r, size_t cap, struct jinja_value *out)
{
    struct jinja_list *l = jinja_take(r, 1, sizeof(*l));

    if (l == NULL)
        return false;
    l->cap = cap;
    if (cap != 0 && (l->items = jinja_take(r, cap, sizeof(*l->items))) == NULL)
        return false;
    *out = (struct jinja_value){.kind = JINJA_LIST, .as.list = l};
    return true;
}

bool jinja_list_push(struct jinja_run *r, struct jinja_list *l, struct jinja_value v)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap == 0 ? 4 : 2 * l->cap;
        struct jinja_value *items = jinja_take(r, cap, sizeof(*items));

        if (items == NULL)
            return false;
        if (l->n != 0)
            memcpy(items, l->items, l->n * sizeof(*items));
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = v;
    return true;
}

bool jinja_map_new(struct jinja_run *r, size_t cap, struct jinja_value *out)
{
    struct jinja_map *m = jinja_take(r, 1, sizeof(*m));

    if (m == NULL)
        return false;
    m->cap = cap;
    if (cap != 0 && (m->pairs = jinja_take(r, cap, sizeof(*m->pairs))) == NULL)
        return false;
    *out = (struct jinja_value){.kind = JINJA_MAP, .as.map = m};
    return true;
}

static bool jinja_map_push(struct jinja_run *r, struct jinja_map *m, struct jinja_pair pair)
{
    if (m->n == m->cap) {
        const size_t cap = m->cap == 0 ? 4 : 2 * m->cap;
        struct jinja_pair *pairs = jinja_take(r, cap, sizeof(*pairs));

        if (pairs == NULL)
            return false;
        if (m->n != 0)
            memcpy(pairs, m->pairs, m->n * sizeof(*pairs));
        m->pairs = pairs;
        m->cap = cap;
    }
    m->pairs[m->n++] = pair;
    return true;
}

bool jinja_map_get(struct jinja_run *r, const struct jinja_map *m, struct jinja_value key,
                   struct jinja_value **ret)
{
    *ret = NULL;
    if (!jinja_charge(r, 8 * m->n))
        return false;
    for (size_t i = 0; i < m->n; i++) {
        bool is_equal;

        if (!jinja_equal(r, m->pairs[i].key, key, &is_equal))
            return false;
        if (is_equal) {
            *ret = &m->pairs[i].value;
            return true;
        }
    }
    return true;
}

struct jinja_value *jinja_map_find(const struct jinja_map *m, const char *key, size_t len)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct jinja_value *k = &m->pairs[i].key;

        if (k->kind == JINJA_TEXT && k->as.text->len == len &&
            memcmp(k->as.text->data, key, len) == 0)
            return &m->pairs[i].value;
    }
    return NULL;
}

bool jinja_map_set(struct jinja_run *r, struct jinja_map *m, struct jinja_value key,
                   struct jinja_value value)
{
    struct jinja_value *old;

    if (key.kind == JINJA_LIST ? !key.is_tuple : key.kind >= JINJA_MAP)
        return jinja_fail(r, "a %s cannot be a key", jinja_kind_name(key));
    if (!jinja_map_get(r, m, key, &old))
        return false;
    if (old == NULL)
        return jinja_map_push(r, m, (struct jinja_pair){key, value});
    *old = value;
    return true;
}

bool jinja_map_put(struct jinja_run *r, struct jinja_map *m, const char *key,
                   struct jinja_value value)
{
    struct jinja_value name;

    return jinja_string(r, key, strlen(key), JINJA_OF_TEMPLATE, &name) &&
           jinja_map_push(r, m, (struct jinja_pair){name, value});
}

bool jinja_is_true(struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v.as.flag;
    case JINJA_INT:
        return v.as.number != 0;
    case JINJA_FLOAT:
        return v.as.real != 0;
    case JINJA_TEXT:
        return v.as.text->len != 0;
    case JINJA_LIST:
        return v.as.list->n != 0;
    case JINJA_MAP:
        return v.as.map->n != 0;
    default:
        return true;
    }
}

bool jinja_is_text(struct jinja_value v, const char *text)
{
    return v.kind == JINJA_TEXT && v.as.text->len == strlen(text) &&
           memcmp(v.as.text->data, text, v.as.text->len) == 0;
}

bool jinja_is_number(struct jinja_value v)
{
    return v.kind == JINJA_INT || v.kind == JINJA_FLOAT || v.kind == JINJA_BOOL;
}

double jinja_as_real(struct jinja_value v)
{
    return v.kind == JINJA_FLOAT ? v.as.real
           : v.kind == JINJA_INT ? (double)v.as.number
                                 : (double)v.as.flag;
}

static bool lists_equal(struct jinja_run *r, const struct jinja_list *a, const struct jinja_list *b,
                        bool *ret)
{
    *ret = a->n == b->n;
    for (size_t i = 0; i < a->n && *ret; i++)
        if (!jinja_equal(r, a->items[i], b->items[i], ret))
            return false;
    return true;
}

static bool maps_equal(struct jinja_run *r, const struct jinja_map *a, const struct jinja_map *b,
                       bool *ret)
{
    *ret = a->n == b->n;
    for (size_t i = 0; i < a->n && *ret; i++) {
        struct jinja_value *other;

        if (!jinja_map_get(r, b, a->pairs[i].key, &other))
            return false;
        if (other == NULL)
            *ret = false;
        else if (!jinja_equal(r, a->pairs[i].value, *other, ret))
            return false;
    }
    return true;
}

static bool equal_same(struct jinja_run *r, struct jinja_value a, struct jinja_value b, bool *ret)
{
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        *ret = true;
        return true;
    case JINJA_TEXT:
        *ret = a.as.text->len == b.as.text->len;
        if (!*ret)
            return true;
        *ret = memcmp(a.as.text->data, b.as.text->data, a.as.text->len) == 0;
        return jinja_charge(r, a.as.text->len);
    case JINJA_LIST:
        *ret = false;
        return a.is_tuple != b.is_tuple || lists_equal(r, a.as.list, b.as.list, ret);
    case JINJA_MAP:
        return maps_equal(r, a.as.map, b.as.map, ret);
    case JINJA_FUNCTION:
        *ret = a.as.function == b.as.function;
        return true;
    default:
        *ret = a.as.map == b.as.map; /* the same object */
        return true;
    }
}

bool jinja_equal(struct jinja_run *r, struct jinja_value a, struct jinja_value b, bool *ret)
{
    bool is_good;

    *ret = false;
    if (jinja_is_number(a) && jinja_is_number(b)) {
        *ret = a.kind != JINJA_FLOAT && b.kind != JINJA_FLOAT
                   ? (a.kind == JINJA_BOOL ? a.as.flag : a.as.number) ==
                         (b.kind == JINJA_BOOL ? b.as.flag : b.as.number)
                   : jinja_as_real(a) == jinja_as_real(b);
        return true;
    }
    if (a.kind != b.kind)
        return true;
    if (!jinja_enter(r))
        return false;
    is_good = equal_same(r, a, b, ret);
    r->depth--;
    return is_good;
}

static int sign_of(size_t a, size_t b)
{
    return a < b ? -1 : a > b;
}

static bool compare_lists(struct jinja_run *r, const struct jinja_list *a,
                          const struct jinja_list *b, int *ret)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        if (!jinja_compare(r, a->items[i], b->items[i], ret))
            return false;
        if (*ret != 0)
            return true;
    }
    *ret = sign_of(a->n, b->n);
    return true;
}

bool jinja_compare(struct jinja_run *r, struct jinja_value a, struct jinja_value b, int *ret)
{
    bool is_good;

    if (jinja_is_number(a) && jinja_is_number(b)) {
        const double x = jinja_as_real(a), y = jinja_as_real(b);

        *ret = x < y ? -1 : x > y;
        return true;
    }
    if (a.kind == JINJA_TEXT && b.kind == JINJA_TEXT) {
        const struct jinja_text *x = a.as.text, *y = b.as.text;
        const size_t n = x->len < y->len ? x->len : y->len;

        *ret = n == 0 ? 0 : memcmp(x->data, y->data, n);
        if (*ret == 0)
            *ret = sign_of(x->len, y->len);
        return jinja_charge(r, n);
    }
    if (a.kind != JINJA_LIST || b.kind != JINJA_LIST)
        return jinja_fail(r, "a %s and a %s cannot be compared", jinja_kind_name(a),
                          jinja_kind_name(b));
    if (!jinja_enter(r))
        return false;
    is_good = compare_lists(r, a.as.list, b.as.list, ret);
    r->depth--;
    return is_good;
}

const char *jinja_kind_name(struct jinja_value v)
{
    static const char *const names[] = {"value that is undefined",
                                        "None",
                                        "bool",
                                        "int",
                                        "float",
                                        "string",
                                        "list",
                                        "mapping",
                                        "namespace",
                                        "loop",
                                        "macro",
                                        "method",
                                        "function"};

    return names[v.kind];
}

static bool builder_grow(struct jinja_run *r, struct jinja_text_builder *b, size_t more)
{
    size_t cap = b->cap == 0 ? 64 : b->cap;
    char *data;
    uint8_t *origins;

    if (more <= b->cap - b->len)
        return true;
    while (cap - b->len < more)
        cap *= 2;
    data = jinja_take(r, cap, 1);
    origins = data == NULL ? NULL : jinja_take(r, cap, 1);
    if (origins == NULL)
        return false;
    if (b->len != 0) {
        memcpy(data, b->data, b->len);
        memcpy(origins, b->origins, b->len);
    }
    b->data = data;
    b->origins = origins;
    b->cap = cap;
    return true;
}

bool jinja_put(struct jinja_run *r, struct jinja_text_builder *b, const char *data, size_t len,
               enum jinja_origin origin)
{
    if (len == 0)
        return true;
    if (!jinja_charge(r, len) || !builder_grow(r, b, len))
        return false;
    memcpy(b->data + b->len, data, len);
    memset(b->origins + b->len, (int)origin, len);
    b->len += len;
    return true;
}

bool jinja_put_text(struct jinja_run *r, struct jinja_text_builder *b, const struct jinja_text *t)
{
    const size_t at = b->len;

    if (!jinja_put(r, b, t->data, t->len, t->origin))
        return false;
    if (t->origins != NULL && t->len != 0)
        memcpy(b->origins + at, t->origins, t->len);
    return true;
}

bool jinja_built(struct jinja_run *r, const struct jinja_text_builder *b, struct jinja_value *out)
{
    struct jinja_text *t = jinja_take(r, 1, sizeof(*t));

    if (t == NULL)
        return false;
    *t = (struct jinja_text){.data = b->len == 0 ? "" : b->data,
                             .origins = b->len == 0 ? NULL : b->origins,
                             .len = b->len};
    *out = (struct jinja_value){.kind = JINJA_TEXT, .as.text = t};
    return true;
}

void jinja_format_real(double real, char *out, size_t size_bytes)
{
    char digits[40], *e;
    int precision = 0, exponent;

    if (isnan(real) || isinf(real)) {
        (void)snprintf(out, size_bytes, "%s", isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    do /* the fewest digits that are read back as the same number */
        (void)snprintf(digits, sizeof(digits), "%.*e", precision, real);
    while (strtod(digits, NULL) != real && ++precision < 17);
    e = strchr(digits, 'e');
    exponent = (int)strtol(e + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) {
        const int n_after = precision - exponent;

        (void)snprintf(out, size_bytes, "%.*f", n_after > 1 ? n_after : 1, real);
    } else {
        (void)snprintf(out, size_bytes, "%.*se%c%02d", (int)(e - digits), digits,
                       exponent < 0 ? '-' : '+', abs(exponent));
    }
}

/* Python's repr: single quotes, unless only those are inside. */
static bool put_repr(struct jinja_run *r, struct jinja_text_builder *b, const struct jinja_text *t)
{
    static const char hex[] = "0123456789abcdef";
    const bool has_single = t->len != 0 && memchr(t->data, '\'', t->len) != NULL;
    const bool has_double = t->len != 0 && memchr(t->data, '"', t->len) != NULL;
    const char quote = has_single && !has_double ? '"' : '\'';

    if (!jinja_put(r, b, &quote, 1, JINJA_OF_CALLER))
        return false;
    for (size_t i = 0; i < t->len; i++) {
        const char c = t->data[i];
        char shown[5] = {c};
        size_t n = 1;

        if (c == '\\' || c == quote || c == '\n' || c == '\r' || c == '\t') {
            shown[0] = '\\';
            shown[1] = c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : c;
            n = 2;
        } else if ((unsigned char)c < 0x20 || c == 0x7F) {
            memcpy(shown, "\\x", 2);
            shown[2] = hex[(unsigned char)c >> 4];
            shown[3] = hex[c & 15];
            n = 4;
        }
        if (!jinja_put(r, b, shown, n, JINJA_OF_CALLER))
            return false;
    }
    return jinja_put(r, b, &quote, 1, JINJA_OF_CALLER);
}

static bool put_mark(struct jinja_run *r, struct jinja_text_builder *b, const char *mark)
{
    return jinja_put(r, b, mark, strlen(mark), JINJA_OF_CALLER);
}

static bool put_inner(struct jinja_run *r, struct jinja_text_builder *b, struct jinja_value v)
{
    return v.kind == JINJA_TEXT ? put_repr(r, b, v.as.text) : jinja_put_value(r, b, v);
}

static bool put_list(struct jinja_run *r, struct jinja_text_builder *b, struct jinja_value v)
{
    const struct jinja_list *l = v.as.list;

    if (!put_mark(r, b, v.is_tuple ? "(" : "["))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if ((i != 0 && !put_mark(r, b, ", ")) || !put_inner(r, b, l->items[i]))
            return false;
    if (v.is_tuple)
        return put_mark(r, b, l->n == 1 ? ",)" : ")");
    return put_mark(r, b, "]");
}

static bool put_map(struct jinja_run *r, struct jinja_text_builder *b, const struct jinja_map *m)
{
    if (!put_mark(r, b, "{"))
        return false;
    for (size_t i = 0; i < m->n; i++)
        if ((i != 0 && !put_mark(r, b, ", ")) || !put_inner(r, b, m->pairs[i].key) ||
            !put_mark(r, b, ": ") || !put_inner(r, b, m->pairs[i].value))
            return false;
    return put_mark(r, b, "}");
}

static bool put_number(struct jinja_run *r, struct jinja_text_builder *b, struct jinja_value v)
{
    char text[40];

    if (v.kind == JINJA_INT)
        (void)snprintf(text, sizeof(text), "%lld", (long long)v.as.number);
    else
        jinja_format_real(v.as.real, text, sizeof(text));
    return jinja_put(r, b, text, strlen(text), JINJA_OF_TEMPLATE);
}

static bool put_entered(struct jinja_run *r, struct jinja_text_builder *b, struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_UNDEFINED:
        return true;
    case JINJA_NONE:
        return put_mark(r, b, "None");
    case JINJA_BOOL:
        return put_mark(r, b, v.as.flag ? "True" : "False");
    case JINJA_INT:
    case JINJA_FLOAT:
        return put_number(r, b, v);
    case JINJA_TEXT:
        return jinja_put_text(r, b, v.as.text);
    case JINJA_LIST:
        return put_list(r, b, v);
    case JINJA_MAP:
        return put_map(r, b, v.as.map);
    default:
        return jinja_fail(r, "a %s cannot be written as text", jinja_kind_name(v));
    }
}

bool jinja_put_value(struct jinja_run *r, struct jinja_text_builder *b, struct jinja_value v)
{
    bool is_good;

    if (!jinja_enter(r))
        return false;
    is_good = put_entered(r, b, v);
    r->depth--;
    return is_good;
}

bool jinja_str(struct jinja_run *r, struct jinja_value v, struct jinja_value *out)
{
    struct jinja_text_builder b = {0};

    *out = v;
    return v.kind == JINJA_TEXT || (jinja_put_value(r, &b, v) && jinja_built(r, &b, out));
}

bool jinja_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool is_stripped(uint32_t c, const struct jinja_text *set)
{
    if (set == NULL)
        return jinja_is_space(c);
    for (size_t at = 0; at < set->len;) {
        uint32_t other;

        at += utf8_next(set->data + at, set->len - at, &other);
        if (other == c)
            return true;
    }
    return false;
}

void jinja_strip_left(const char *data, size_t *from, size_t to, const struct jinja_text *set)
{
    while (*from < to) {
        uint32_t c;
        const size_t n = utf8_next(data + *from, to - *from, &c);

        if (!is_stripped(c, set))
            return;
        *from += n;
    }
}

void jinja_strip_right(const char *data, size_t from, size_t *to, const struct jinja_text *set)
{
    while (*to > from) {
        size_t at = *to - 1;
        uint32_t c;

        while (at > from && *to - at < 4 && ((unsigned char)data[at] & 0xC0) == 0x80)
            at--;
        if (utf8_next(data + at, *to - at, &c) != *to - at || !is_stripped(c, set))
            return;
        *to = at;
    }
}

size_t jinja_n_characters(const struct jinja_text *t)
{
    size_t n = 0;

    for (size_t i = 0; i < t->len; i++)
        n += ((unsigned char)t->data[i] & 0xC0) != 0x80;
    return n;
}
