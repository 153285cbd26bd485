/* Filters: what stands behind '|'. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agents/lm/jinja/parts.h"
#include "base/real.h"

struct filter {
    struct jinja_run *r;
    const char *name;
    struct jinja_value v;
    struct jinja_args *args;
    struct jinja_value *out;
};

static bool filter_flag(const struct filter *f, size_t i, const char *name, bool missing)
{
    const struct jinja_value *v = jinja_arg(f->args, i, name);

    return v == NULL ? missing : jinja_is_true(*v);
}

static bool filter_length(struct filter *f)
{
    const struct jinja_value v = f->v;

    if (v.kind == JINJA_TEXT) {
        *f->out = jinja_int((int64_t)jinja_n_characters(v.as.text));
        return jinja_charge(f->r, v.as.text->len);
    }
    if (v.kind != JINJA_LIST && v.kind != JINJA_MAP && v.kind != JINJA_UNDEFINED)
        return jinja_fail(f->r, "a %s has no length", jinja_kind_name(v));
    *f->out = jinja_int(v.kind == JINJA_LIST  ? (int64_t)v.as.list->n
                        : v.kind == JINJA_MAP ? (int64_t)v.as.map->n
                                              : 0);
    return true;
}

static bool filter_trim(struct filter *f)
{
    struct jinja_value text;
    const struct jinja_text *set;
    size_t from = 0, to;

    if (!jinja_str(f->r, f->v, &text) || !jinja_text_arg(f->r, f->args, 0, "chars", &set))
        return false;
    to = text.as.text->len;
    jinja_strip_left(text.as.text->data, &from, to, set);
    jinja_strip_right(text.as.text->data, from, &to, set);
    return jinja_charge(f->r, text.as.text->len - (to - from)) &&
           jinja_part(f->r, text.as.text, from, to, f->out);
}

static bool filter_string(struct filter *f)
{
    return jinja_str(f->r, f->v, f->out);
}

static bool filter_default(struct filter *f)
{
    const struct jinja_value *other = jinja_arg(f->args, 0, "default_value");
    const bool is_missing = f->v.kind == JINJA_UNDEFINED ||
                            (filter_flag(f, 1, "boolean", false) && !jinja_is_true(f->v));

    *f->out = f->v;
    if (is_missing && other != NULL)
        *f->out = *other;
    return !is_missing || other != NULL || jinja_string(f->r, "", 0, JINJA_OF_TEMPLATE, f->out);
}

/* The value at a path of attributes, "a.b.0". */
static bool at_path(struct filter *f, struct jinja_value v, struct jinja_value path,
                    struct jinja_value *out)
{
    size_t at = 0;

    *out = v;
    if (path.kind != JINJA_TEXT)
        return jinja_get_item(f->r, v, path, out);
    while (at <= path.as.text->len) {
        const char *data = path.as.text->data + at;
        const size_t left = path.as.text->len - at;
        const char *dot = left == 0 ? NULL : memchr(data, '.', left);
        const size_t len = dot == NULL ? left : (size_t)(dot - data);
        struct jinja_value key;

        if (!jinja_part(f->r, path.as.text, at, at + len, &key))
            return false;
        if (len != 0 && len < 10 && data[0] >= '0' && data[0] <= '9')
            key = jinja_int(strtoll(data, NULL, 10));
        if (!jinja_get_item(f->r, *out, key, out))
            return false;
        at += len + 1;
    }
    return true;
}

static bool filter_join(struct filter *f)
{
    const struct jinja_value *attribute = jinja_arg(f->args, 1, "attribute");
    const struct jinja_value *between = jinja_arg(f->args, 0, "d");
    struct jinja_value items, list, text = {0};

    if (!jinja_iterate(f->r, f->v, &items) ||
        (between != NULL && !jinja_str(f->r, *between, &text)) || !jinja_list_new(f->r, 0, &list))
        return false;
    for (size_t i = 0; i < items.as.list->n; i++) {
        struct jinja_value v = items.as.list->items[i];

        if ((attribute != NULL && !at_path(f, v, *attribute, &v)) ||
            !jinja_list_push(f->r, list.as.list, v))
            return false;
    }
    return jinja_join(f->r, list, between == NULL ? NULL : text.as.text, f->out);
}

static bool filter_items(struct filter *f)
{
    if (f->v.kind == JINJA_UNDEFINED)
        return jinja_list_new(f->r, 0, f->out);
    if (f->v.kind != JINJA_MAP)
        return jinja_fail(f->r, "a %s has no items", jinja_kind_name(f->v));
    return jinja_call_method(f->r, f->v, "items", f->args, f->out);
}

static bool filter_list(struct filter *f)
{
    struct jinja_value items;

    if (!jinja_iterate(f->r, f->v, &items) || !jinja_charge(f->r, 16 * items.as.list->n) ||
        !jinja_list_new(f->r, items.as.list->n, f->out))
        return false;
    if (items.as.list->n != 0)
        memcpy(f->out->as.list->items, items.as.list->items,
               items.as.list->n * sizeof(*items.as.list->items));
    f->out->as.list->n = items.as.list->n;
    return true;
}

static bool filter_case(struct filter *f)
{
    struct jinja_value text;

    return jinja_str(f->r, f->v, &text) && jinja_recase(f->r, text.as.text,
                                                        f->name[0] == 'l'   ? JINJA_LOWER
                                                        : f->name[0] == 'u' ? JINJA_UPPER
                                                        : f->name[0] == 't' ? JINJA_TITLE
                                                                            : JINJA_CAPITAL,
                                                        f->out);
}

static bool filter_replace(struct filter *f)
{
    const struct jinja_value *most = jinja_arg(f->args, 2, "count");
    struct jinja_value *from = jinja_arg(f->args, 0, "old"), *to = jinja_arg(f->args, 1, "new");
    struct jinja_value text, old, new;

    if (from == NULL || to == NULL)
        return jinja_fail(f->r, "replace takes two strings");
    return jinja_str(f->r, f->v, &text) && jinja_str(f->r, *from, &old) &&
           jinja_str(f->r, *to, &new) &&
           jinja_replace(f->r, text.as.text, old.as.text, new.as.text,
                         most != NULL && most->kind == JINJA_INT ? most->as.number : -1, f->out);
}

/* One level of tojson's indent: a number of spaces, or the text itself. */
static bool read_indent(struct filter *f, const char **ret)
{
    const struct jinja_value *v = jinja_arg(f->args, 1, "indent");
    size_t n;
    char *text;

    *ret = NULL;
    if (v == NULL || v->kind == JINJA_NONE)
        return true;
    if (v->kind != JINJA_INT && v->kind != JINJA_TEXT)
        return jinja_fail(f->r, "the width of indent must be a number or a string");
    n = v->kind == JINJA_TEXT                    ? v->as.text->len
        : v->as.number < 0 || v->as.number > 100 ? 0
                                                 : (size_t)v->as.number;
    text = jinja_take(f->r, n + 1, 1);
    if (text == NULL)
        return false;
    if (v->kind == JINJA_TEXT)
        memcpy(text, v->as.text->data, n);
    else
        memset(text, ' ', n);
    *ret = text;
    return true;
}

static bool separator_text(struct filter *f, struct jinja_value v, const char **ret)
{
    char *text;

    if (v.kind != JINJA_TEXT)
        return jinja_fail(f->r, "the separator must be a string");
    text = jinja_take(f->r, v.as.text->len + 1, 1);
    if (text == NULL)
        return false;
    memcpy(text, v.as.text->data, v.as.text->len);
    *ret = text;
    return true;
}

static bool filter_tojson(struct filter *f)
{
    const struct jinja_value *separators = jinja_arg(f->args, 2, "separators");
    struct jinja_text_builder b = {0};
    struct jinja_json_style style = {.key_separator = ": ",
                                     .is_ascii = filter_flag(f, 0, "ensure_ascii", false),
                                     .is_sorted = filter_flag(f, 3, "sort_keys", false)};

    if (!read_indent(f, &style.indent))
        return false;
    style.item_separator = style.indent == NULL ? ", " : ",";
    if (separators != NULL && separators->kind == JINJA_LIST && separators->as.list->n == 2 &&
        (!separator_text(f, separators->as.list->items[0], &style.item_separator) ||
         !separator_text(f, separators->as.list->items[1], &style.key_separator)))
        return false;
    return jinja_put_json(f->r, &b, f->v, &style) && jinja_built(f->r, &b, f->out);
}

static bool filter_from_json(struct filter *f)
{
    if (f->v.kind != JINJA_TEXT)
        return jinja_fail(f->r, "only a string can be parsed as JSON, not a %s",
                          jinja_kind_name(f->v));
    return jinja_parse_json(f->r, f->v.as.text->data, f->v.as.text->len, f->out);
}

static bool filter_number(struct filter *f)
{
    const struct jinja_value *other = jinja_arg(f->args, 0, "default");
    const bool is_int = f->name[0] == 'i';
    char text[64] = "", *end;
    double real = 0;
    bool is_good = jinja_is_number(f->v);

    if (is_good && is_int && f->v.kind != JINJA_FLOAT) {
        *f->out = jinja_int(f->v.kind == JINJA_BOOL ? f->v.as.flag : f->v.as.number);
        return true;
    }
    if (is_good) {
        real = jinja_as_real(f->v);
    } else if (f->v.kind == JINJA_TEXT && f->v.as.text->len != 0 &&
               f->v.as.text->len < sizeof(text)) {
        memcpy(text, f->v.as.text->data, f->v.as.text->len);
        real = strtod(text, &end);
        is_good = end != text && *end == '\0';
    }
    if (!is_good && other != NULL)
        *f->out = *other;
    else if (is_int)
        *f->out = jinja_int(is_good && fabs(real) < 9e18 ? (int64_t)real : 0);
    else
        *f->out = jinja_float(is_good ? real : 0);
    return true;
}

static bool filter_abs(struct filter *f)
{
    if (f->v.kind == JINJA_INT && f->v.as.number >= 0)
        *f->out = f->v;
    else if (f->v.kind == JINJA_INT)
        return jinja_binary(f->r, '-', jinja_int(0), f->v, f->out);
    else if (f->v.kind == JINJA_FLOAT)
        *f->out = jinja_float(fabs(f->v.as.real));
    else
        return jinja_fail(f->r, "a %s has no absolute value", jinja_kind_name(f->v));
    return true;
}

static bool filter_round(struct filter *f)
{
    const struct jinja_value *precision = jinja_arg(f->args, 0, "precision");
    const int64_t n = precision == NULL || precision->kind != JINJA_INT ? 0 : precision->as.number;
    const double scale = real_pow(10, (double)(n > 15 || n < 0 ? 0 : n));

    if (!jinja_is_number(f->v))
        return jinja_fail(f->r, "a %s cannot be rounded", jinja_kind_name(f->v));
    *f->out = jinja_float(nearbyint(jinja_as_real(f->v) * scale) / scale);
    return true;
}

static bool filter_ends(struct filter *f)
{
    struct jinja_value items;

    if (!jinja_iterate(f->r, f->v, &items))
        return false;
    *f->out = items.as.list->n == 0 ? jinja_undefined("an item of an empty list")
              : f->name[0] == 'f'   ? items.as.list->items[0]
                                    : items.as.list->items[items.as.list->n - 1];
    return true;
}

static bool filter_reverse(struct filter *f)
{
    struct jinja_value items;
    struct jinja_text_builder b = {0};

    if (!jinja_iterate(f->r, f->v, &items) || !jinja_list_new(f->r, 0, f->out))
        return false;
    for (size_t i = items.as.list->n; i-- > 0;)
        if (!jinja_charge(f->r, 0) ||
            !jinja_list_push(f->r, f->out->as.list, items.as.list->items[i]))
            return false;
    if (f->v.kind != JINJA_TEXT)
        return true;
    for (size_t i = 0; i < f->out->as.list->n; i++)
        if (!jinja_put_text(f->r, &b, f->out->as.list->items[i].as.text))
            return false;
    return jinja_built(f->r, &b, f->out);
}

/* The key that an item is sorted or compared by: an attribute, and of strings the lower case. */
static bool sort_key(struct filter *f, struct jinja_value v, const struct jinja_value *attribute,
                     bool has_case, struct jinja_value *out)
{
    *out = v;
    if (attribute != NULL && attribute->kind != JINJA_NONE && !at_path(f, v, *attribute, out))
        return false;
    return has_case || out->kind != JINJA_TEXT ||
           jinja_recase(f->r, out->as.text, JINJA_LOWER, out);
}

/* Merge sort, stable: pairs of key and value. */
static bool sort_pairs(struct jinja_run *r, struct jinja_pair *pairs, struct jinja_pair *spare,
                       size_t n, int direction)
{
    const size_t half = n / 2;
    size_t a = 0, b = half, at = 0;

    if (n < 2)
        return true;
    if (!sort_pairs(r, pairs, spare, half, direction) ||
        !sort_pairs(r, pairs + half, spare, n - half, direction))
        return false;
    while (a < half && b < n) {
        int order;

        if (!jinja_charge(r, 0) || !jinja_compare(r, pairs[a].key, pairs[b].key, &order))
            return false;
        spare[at++] = order * direction <= 0 ? pairs[a++] : pairs[b++];
    }
    while (a < half)
        spare[at++] = pairs[a++];
    memcpy(pairs, spare, at * sizeof(*pairs));
    return true;
}

static bool sort_list(struct filter *f, const struct jinja_list *l,
                      const struct jinja_value *attribute, bool has_case, bool is_reverse)
{
    struct jinja_pair *pairs = jinja_take(f->r, l->n, sizeof(*pairs));
    struct jinja_pair *spare = pairs == NULL ? NULL : jinja_take(f->r, l->n, sizeof(*pairs));

    if (spare == NULL)
        return false;
    for (size_t i = 0; i < l->n; i++) {
        pairs[i].value = l->items[i];
        if (!sort_key(f, l->items[i], attribute, has_case, &pairs[i].key))
            return false;
    }
    if (!sort_pairs(f->r, pairs, spare, l->n, is_reverse ? -1 : 1) ||
        !jinja_list_new(f->r, l->n, f->out))
        return false;
    for (size_t i = 0; i < l->n; i++)
        f->out->as.list->items[f->out->as.list->n++] = pairs[i].value;
    return true;
}

static bool filter_sort(struct filter *f)
{
    struct jinja_value items;

    return jinja_iterate(f->r, f->v, &items) &&
           sort_list(f, items.as.list, jinja_arg(f->args, 2, "attribute"),
                     filter_flag(f, 1, "case_sensitive", false),
                     filter_flag(f, 0, "reverse", false));
}

static bool filter_dictsort(struct filter *f)
{
    const struct jinja_value *by = jinja_arg(f->args, 1, "by");
    const struct jinja_value place = jinja_int(by != NULL && jinja_is_text(*by, "value") ? 1 : 0);
    struct jinja_value items;
    struct jinja_args none = {0};

    if (f->v.kind != JINJA_MAP)
        return jinja_fail(f->r, "dictsort takes a mapping, not a %s", jinja_kind_name(f->v));
    return jinja_call_method(f->r, f->v, "items", &none, &items) &&
           sort_list(f, items.as.list, &place, filter_flag(f, 0, "case_sensitive", false),
                     filter_flag(f, 2, "reverse", false));
}

static bool filter_extreme(struct filter *f)
{
    const struct jinja_value *attribute = jinja_arg(f->args, 1, "attribute");
    const bool has_case = filter_flag(f, 0, "case_sensitive", false);
    struct jinja_value items, best, key;
    int order;

    if (!jinja_iterate(f->r, f->v, &items))
        return false;
    *f->out = jinja_undefined("an item of an empty list");
    for (size_t i = 0; i < items.as.list->n; i++) {
        if (!sort_key(f, items.as.list->items[i], attribute, has_case, &key) ||
            (i != 0 && !jinja_compare(f->r, key, best, &order)))
            return false;
        if (i != 0 && (f->name[1] == 'i' ? order >= 0 : order <= 0))
            continue;
        best = key;
        *f->out = items.as.list->items[i];
    }
    return true;
}

static bool filter_unique(struct filter *f)
{
    const struct jinja_value *attribute = jinja_arg(f->args, 1, "attribute");
    struct jinja_value items, keys, key;
    bool is_there;

    if (!jinja_iterate(f->r, f->v, &items) || !jinja_list_new(f->r, 0, &keys) ||
        !jinja_list_new(f->r, 0, f->out))
        return false;
    for (size_t i = 0; i < items.as.list->n; i++) {
        if (!sort_key(f, items.as.list->items[i], attribute,
                      filter_flag(f, 0, "case_sensitive", false), &key) ||
            !jinja_contains(f->r, keys, key, &is_there))
            return false;
        if (!is_there && (!jinja_list_push(f->r, keys.as.list, key) ||
                          !jinja_list_push(f->r, f->out->as.list, items.as.list->items[i])))
            return false;
    }
    return true;
}

static bool filter_sum(struct filter *f)
{
    const struct jinja_value *attribute = jinja_arg(f->args, 0, "attribute");
    const struct jinja_value *start = jinja_arg(f->args, 1, "start");
    struct jinja_value items, v;

    if (!jinja_iterate(f->r, f->v, &items))
        return false;
    *f->out = start == NULL ? jinja_int(0) : *start;
    for (size_t i = 0; i < items.as.list->n; i++) {
        v = items.as.list->items[i];
        if ((attribute != NULL && attribute->kind != JINJA_NONE &&
             !at_path(f, v, *attribute, &v)) ||
            !jinja_binary(f->r, '+', *f->out, v, f->out))
            return false;
    }
    return true;
}

/* The arguments behind the first n. */
static struct jinja_args rest_of(const struct jinja_args *args, size_t n)
{
    struct jinja_args rest = *args;

    rest.n = args->n < n ? 0 : args->n - n;
    for (size_t i = 0; i < rest.n; i++)
        rest.values[i] = args->values[i + n];
    return rest;
}

static bool filter_word(struct filter *f, struct jinja_value v, char *out, size_t size_bytes)
{
    if (v.kind != JINJA_TEXT || v.as.text->len >= size_bytes)
        return jinja_fail(f->r, "'%s' needs a name", f->name);
    memcpy(out, v.as.text->data, v.as.text->len);
    out[v.as.text->len] = '\0';
    return true;
}

/* The items that select and map go through; None and the like have none. */
static bool items_of(struct filter *f, struct jinja_value *ret_items)
{
    if (!jinja_is_true(f->v))
        return jinja_list_new(f->r, 0, ret_items);
    return jinja_iterate(f->r, f->v, ret_items);
}

/* select, reject, selectattr, rejectattr. */
static bool filter_select(struct filter *f)
{
    const bool is_attribute = strlen(f->name) > 6, is_select = f->name[0] == 's';
    const size_t n_before = is_attribute ? 1 : 0;
    struct jinja_args rest = rest_of(f->args, n_before + 1);
    struct jinja_value items;
    char test[40] = "";

    if (is_attribute && f->args->n == 0)
        return jinja_fail(f->r, "%s needs the argument 'attribute'", f->name);
    if (f->args->n > n_before && !filter_word(f, f->args->values[n_before], test, sizeof(test)))
        return false;
    if (!items_of(f, &items) || !jinja_list_new(f->r, 0, f->out))
        return false;
    for (size_t i = 0; i < items.as.list->n; i++) {
        struct jinja_value v = items.as.list->items[i];
        bool is_true;

        if (is_attribute && !at_path(f, v, f->args->values[0], &v))
            return false;
        is_true = jinja_is_true(v);
        if (!jinja_charge(f->r, 0) ||
            (test[0] != '\0' && !jinja_test(f->r, test, v, &rest, &is_true)) ||
            (is_true == is_select &&
             !jinja_list_push(f->r, f->out->as.list, items.as.list->items[i])))
            return false;
    }
    return true;
}

static bool filter_map(struct filter *f)
{
    const struct jinja_value *attribute = jinja_arg(f->args, SIZE_MAX, "attribute");
    const struct jinja_value *other = jinja_arg(f->args, SIZE_MAX, "default");
    struct jinja_args rest = rest_of(f->args, 1);
    struct jinja_value items, v;
    char name[40] = "";

    if (attribute == NULL && f->args->n == 0)
        return jinja_fail(f->r, "map needs an attribute or a filter");
    if (attribute == NULL && !filter_word(f, f->args->values[0], name, sizeof(name)))
        return false;
    if (!items_of(f, &items) || !jinja_list_new(f->r, 0, f->out))
        return false;
    for (size_t i = 0; i < items.as.list->n; i++) {
        v = items.as.list->items[i];
        if (!jinja_charge(f->r, 0) || (attribute != NULL ? !at_path(f, v, *attribute, &v)
                                                         : !jinja_filter(f->r, name, v, &rest, &v)))
            return false;
        if (attribute != NULL && v.kind == JINJA_UNDEFINED && other != NULL)
            v = *other;
        if (!jinja_list_push(f->r, f->out->as.list, v))
            return false;
    }
    return true;
}

static bool indent_line(struct filter *f, struct jinja_text_builder *b,
                        const struct jinja_text *with, bool is_first, bool is_empty)
{
    if (is_first ? !filter_flag(f, 1, "first", false)
                 : is_empty && !filter_flag(f, 2, "blank", false))
        return true;
    return jinja_put_text(f->r, b, with);
}

static bool filter_indent(struct filter *f)
{
    const struct jinja_value *width = jinja_arg(f->args, 0, "width");
    static const char spaces[] = "                                                                ";
    struct jinja_text with = {.data = spaces, .len = 4};
    struct jinja_text_builder b = {0};
    struct jinja_value text, line;
    size_t at = 0;

    if (!jinja_str(f->r, f->v, &text))
        return false;
    if (width != NULL && width->kind == JINJA_TEXT)
        with = *width->as.text;
    else if (width != NULL && width->kind == JINJA_INT && width->as.number >= 0)
        with.len = (size_t)width->as.number < sizeof(spaces) ? (size_t)width->as.number : 64;
    while (at < text.as.text->len) {
        const char *data = text.as.text->data + at;
        const char *newline = memchr(data, '\n', text.as.text->len - at);
        const size_t n = newline == NULL ? text.as.text->len - at : (size_t)(newline - data) + 1;

        if (!indent_line(f, &b, &with, at == 0, n == 1 && newline != NULL) ||
            !jinja_part(f->r, text.as.text, at, at + n, &line) ||
            !jinja_put_text(f->r, &b, line.as.text))
            return false;
        at += n;
    }
    return jinja_built(f->r, &b, f->out);
}

/* As Python's str.center: of an odd number of blanks the last goes to the left of an odd width. */
static bool filter_center(struct filter *f)
{
    const struct jinja_value *width = jinja_arg(f->args, 0, "width");
    struct jinja_text_builder b = {0};
    struct jinja_value text;
    int64_t all = 80, left, right;

    if (width != NULL && width->kind != JINJA_INT)
        return jinja_fail(f->r, "the width of center must be a number");
    if (width != NULL)
        all = width->as.number;
    if (!jinja_str(f->r, f->v, &text))
        return false;
    right = all - (int64_t)jinja_n_characters(text.as.text);
    if (all <= 0 || right <= 0)
        right = 0;
    left = right / 2 + (right & all & 1);
    for (int64_t i = 0; i < left; i++)
        if (!jinja_put(f->r, &b, " ", 1, JINJA_OF_TEMPLATE))
            return false;
    if (!jinja_put_text(f->r, &b, text.as.text))
        return false;
    for (int64_t i = left; i < right; i++)
        if (!jinja_put(f->r, &b, " ", 1, JINJA_OF_TEMPLATE))
            return false;
    return jinja_built(f->r, &b, f->out);
}

/* What a value has itself: of a mapping its methods, not its keys. */
static bool filter_attr(struct filter *f)
{
    enum { NAME_BYTES = 80 };
    char *name = jinja_take(f->r, NAME_BYTES, 1); /* the value borrows it */

    if (name == NULL)
        return false;
    if (f->args->n == 0)
        return jinja_fail(f->r, "attr needs a name");
    if (!filter_word(f, f->args->values[0], name, NAME_BYTES))
        return false;
    if (f->v.kind == JINJA_MAP && !jinja_has_method(f->v, name)) {
        *f->out = jinja_undefined(NULL);
        return true;
    }
    return jinja_get_attribute(f->r, f->v, name, f->out);
}

static bool filter_same(struct filter *f)
{
    *f->out = f->v;
    return true;
}

static bool filter_escape(struct filter *f)
{
    static const char *const pairs[][2] = {
        {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
    struct jinja_value text;

    if (!jinja_str(f->r, f->v, &text))
        return false;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        const struct jinja_text from = {.data = pairs[i][0], .len = strlen(pairs[i][0])};
        const struct jinja_text to = {.data = pairs[i][1], .len = strlen(pairs[i][1])};

        if (!jinja_replace(f->r, text.as.text, &from, &to, -1, &text))
            return false;
    }
    *f->out = text;
    return true;
}

static bool filter_split(struct filter *f)
{
    struct jinja_value text;

    return jinja_str(f->r, f->v, &text) && jinja_call_method(f->r, text, "split", f->args, f->out);
}

static const struct {
    const char *name;
    bool (*run)(struct filter *f);
} filters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"capitalize", filter_case},
    {"center", filter_center},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"first", filter_ends},
    {"float", filter_number},
    {"from_json", filter_from_json},
    {"fromjson", filter_from_json},
    {"indent", filter_indent},
    {"int", filter_number},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_ends},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", filter_case},
    {"map", filter_map},
    {"max", filter_extreme},
    {"min", filter_extreme},
    {"reject", filter_select},
    {"rejectattr", filter_select},
    {"replace", filter_replace},
    {"reverse", filter_reverse},
    {"round", filter_round},
    {"safe", filter_same},
    {"select", filter_select},
    {"selectattr", filter_select},
    {"sort", filter_sort},
    {"split", filter_split},
    {"string", filter_string},
    {"sum", filter_sum},
    {"title", filter_case},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"unique", filter_unique},
    {"upper", filter_case},
};

bool jinja_filter(struct jinja_run *r, const char *name, struct jinja_value v,
                  struct jinja_args *args, struct jinja_value *out)
{
    struct filter f = {r, name, v, args, out};
    bool is_good;

    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++) {
        if (strcmp(filters[i].name, name) != 0)
            continue;
        if (!jinja_enter(r))
            return false;
        is_good = filters[i].run(&f);
        r->depth--;
        return is_good;
    }
    return jinja_fail(r, "unknown filter '%.80s'", name);
}
