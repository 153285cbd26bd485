/* Methods of strings, mappings and lists. */
#include <string.h>

#include "agents/lm/jinja/parts.h"
#include "base/utf8.h"

/* Letters of Latin, Greek and Cyrillic; other scripts with two cases stay as they are. */
static uint32_t lower_of(uint32_t c)
{
    if ((c >= 'A' && c <= 'Z') || (c >= 0xC0 && c <= 0xDE && c != 0xD7) ||
        (c >= 0x391 && c <= 0x3AB && c != 0x3A2) || (c >= 0x410 && c <= 0x42F))
        return c + 32;
    if (c >= 0x400 && c <= 0x40F)
        return c + 80;
    if ((c >= 0x100 && c <= 0x137 && c != 0x130) || (c >= 0x14A && c <= 0x177) ||
        (c >= 0x460 && c <= 0x481))
        return c | 1;
    return c;
}

static uint32_t upper_of(uint32_t c)
{
    if ((c >= 'a' && c <= 'z') || (c >= 0xE0 && c <= 0xFE && c != 0xF7) ||
        (c >= 0x3B1 && c <= 0x3CB && c != 0x3C2) || (c >= 0x430 && c <= 0x44F))
        return c - 32;
    if (c >= 0x450 && c <= 0x45F)
        return c - 80;
    if ((c >= 0x100 && c <= 0x137 && c != 0x131) || (c >= 0x14A && c <= 0x177) ||
        (c >= 0x460 && c <= 0x481))
        return c & ~1u;
    return c;
}

static bool has_case(uint32_t c)
{
    return lower_of(c) != c || upper_of(c) != c;
}

bool jinja_recase(struct jinja_run *r, const struct jinja_text *t, enum jinja_case how,
                  struct jinja_value *out)
{
    struct jinja_text_builder b = {0};
    bool is_inside = false; /* of a word, or of the string */

    for (size_t at = 0, n; at < t->len; at += n) {
        uint32_t c;
        char bytes[4];
        bool is_upper;

        n = utf8_next(t->data + at, t->len - at, &c);
        is_upper =
            how == JINJA_UPPER || ((how == JINJA_TITLE || how == JINJA_CAPITAL) && !is_inside);
        is_inside = how == JINJA_TITLE ? has_case(c) : true;
        if (!jinja_put(r, &b, bytes, utf8_encode(is_upper ? upper_of(c) : lower_of(c), bytes),
                       t->origins != NULL ? t->origins[at] : t->origin))
            return false;
    }
    return jinja_built(r, &b, out);
}

static const char *find_text(const struct jinja_text *t, size_t from, const struct jinja_text *what)
{
    return t->len - from < what->len ? NULL
                                     : memmem(t->data + from, t->len - from, what->data, what->len);
}

/* Puts [from, to) of t. */
static bool put_part(struct jinja_run *r, struct jinja_text_builder *b, const struct jinja_text *t,
                     size_t from, size_t to)
{
    const struct jinja_text part = {.data = t->data + from,
                                    .origins = t->origins == NULL ? NULL : t->origins + from,
                                    .len = to - from,
                                    .origin = t->origin};

    return jinja_put_text(r, b, &part);
}

/* Python puts the new text between all characters if the old one is empty. */
static bool replace_nothing(struct jinja_run *r, const struct jinja_text *t,
                            const struct jinja_text *to, int64_t most, struct jinja_value *out)
{
    struct jinja_text_builder b = {0};

    for (size_t at = 0, next; at <= t->len; at = next) {
        for (next = at + 1; next < t->len && ((unsigned char)t->data[next] & 0xC0) == 0x80;)
            next++;
        if (most-- != 0 && !jinja_put_text(r, &b, to))
            return false;
        if (at < t->len && !put_part(r, &b, t, at, next))
            return false;
    }
    return jinja_built(r, &b, out);
}

bool jinja_replace(struct jinja_run *r, const struct jinja_text *t, const struct jinja_text *from,
                   const struct jinja_text *to, int64_t most, struct jinja_value *out)
{
    struct jinja_text_builder b = {0};
    size_t at = 0;
    const char *found;

    if (from->len == 0)
        return replace_nothing(r, t, to, most, out);
    while (most-- != 0 && (found = find_text(t, at, from)) != NULL) {
        const size_t place = (size_t)(found - t->data);

        if (!jinja_charge(r, 0) || !put_part(r, &b, t, at, place) || !jinja_put_text(r, &b, to))
            return false;
        at = place + from->len;
    }
    return put_part(r, &b, t, at, t->len) && jinja_built(r, &b, out);
}

bool jinja_join(struct jinja_run *r, struct jinja_value items, const struct jinja_text *between,
                struct jinja_value *out)
{
    struct jinja_text_builder b = {0};

    for (size_t i = 0; i < items.as.list->n; i++)
        if (!jinja_charge(r, 0) || (i != 0 && between != NULL && !jinja_put_text(r, &b, between)) ||
            !jinja_put_value(r, &b, items.as.list->items[i]))
            return false;
    return jinja_built(r, &b, out);
}

static bool push_part(struct jinja_run *r, struct jinja_list *l, const struct jinja_text *t,
                      size_t from, size_t to)
{
    struct jinja_value part;

    return jinja_charge(r, 0) && jinja_part(r, t, from, to, &part) && jinja_list_push(r, l, part);
}

static bool split_space(struct jinja_run *r, const struct jinja_text *t, int64_t most,
                        struct jinja_list *l)
{
    size_t at = 0, end;

    jinja_strip_left(t->data, &at, t->len, NULL);
    while (at < t->len) {
        uint32_t c = 'x';

        for (end = at; end < t->len && most != 0;) {
            const size_t n = utf8_next(t->data + end, t->len - end, &c);

            if (jinja_is_space(c))
                break;
            end += n;
        }
        if (most-- == 0) {
            end = t->len;
            jinja_strip_right(t->data, at, &end, NULL);
            return push_part(r, l, t, at, end);
        }
        if (!push_part(r, l, t, at, end))
            return false;
        at = end;
        jinja_strip_left(t->data, &at, t->len, NULL);
    }
    return true;
}

static bool split_by(struct jinja_run *r, const struct jinja_text *t, const struct jinja_text *by,
                     int64_t most, struct jinja_list *l)
{
    size_t at = 0;
    const char *found;

    while (most-- != 0 && (found = find_text(t, at, by)) != NULL) {
        const size_t place = (size_t)(found - t->data);

        if (!push_part(r, l, t, at, place))
            return false;
        at = place + by->len;
    }
    return push_part(r, l, t, at, t->len);
}

/* From the right: with a bound, what is left over is at the left. */
static bool rsplit_by(struct jinja_run *r, const struct jinja_text *t, const struct jinja_text *by,
                      int64_t most, struct jinja_list *l)
{
    size_t end = t->len;

    for (size_t at = t->len; most != 0 && at >= by->len && by->len != 0; at--) {
        if (memcmp(t->data + at - by->len, by->data, by->len) != 0 || at > end)
            continue;
        if (!push_part(r, l, t, at, end))
            return false;
        end = at - by->len;
        at = end + 1;
        most--;
    }
    if (!push_part(r, l, t, 0, end))
        return false;
    for (size_t i = 0; i < l->n / 2; i++) {
        const struct jinja_value v = l->items[i];

        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = v;
    }
    return true;
}

static bool method_split(struct jinja_run *r, struct jinja_value self, const char *name,
                         struct jinja_args *args, struct jinja_value *out)
{
    const struct jinja_value *most = jinja_arg(args, 1, "maxsplit");
    const int64_t n = most == NULL || most->kind != JINJA_INT ? -1 : most->as.number;
    const struct jinja_text *by;

    if (!jinja_text_arg(r, args, 0, "sep", &by) || !jinja_charge(r, self.as.text->len) ||
        !jinja_list_new(r, 0, out))
        return false;
    if (by == NULL)
        return split_space(r, self.as.text, n, out->as.list);
    if (by->len == 0)
        return jinja_fail(r, "a separator is empty");
    return name[0] == 'r' && n >= 0 ? rsplit_by(r, self.as.text, by, n, out->as.list)
                                    : split_by(r, self.as.text, by, n, out->as.list);
}

static bool method_splitlines(struct jinja_run *r, struct jinja_value self, const char *name,
                              struct jinja_args *args, struct jinja_value *out)
{
    const struct jinja_text *t = self.as.text;
    size_t at = 0;

    if (!jinja_list_new(r, 0, out))
        return false;
    for (size_t i = 0; i < t->len; i++) {
        if (t->data[i] != '\n' && t->data[i] != '\r')
            continue;
        if (!push_part(r, out->as.list, t, at, i))
            return false;
        i += t->data[i] == '\r' && i + 1 < t->len && t->data[i + 1] == '\n';
        at = i + 1;
    }
    return at == t->len || push_part(r, out->as.list, t, at, t->len);
}

static bool method_strip(struct jinja_run *r, struct jinja_value self, const char *name,
                         struct jinja_args *args, struct jinja_value *out)
{
    const struct jinja_text *t = self.as.text, *set;
    size_t from = 0, to = t->len;

    if (!jinja_text_arg(r, args, 0, "chars", &set) || !jinja_charge(r, 0))
        return false;
    if (name[0] != 'r')
        jinja_strip_left(t->data, &from, to, set);
    if (name[0] != 'l')
        jinja_strip_right(t->data, from, &to, set);
    return jinja_charge(r, t->len - (to - from)) && jinja_part(r, t, from, to, out);
}

static bool has_affix(const struct jinja_text *t, const struct jinja_text *affix, bool is_suffix)
{
    return affix->len <= t->len &&
           (affix->len == 0 || memcmp(is_suffix ? t->data + t->len - affix->len : t->data,
                                      affix->data, affix->len) == 0);
}

static bool method_affix(struct jinja_run *r, struct jinja_value self, const char *name,
                         struct jinja_args *args, struct jinja_value *out)
{
    struct jinja_value *one = args->n == 0 ? NULL : &args->values[0];
    const bool is_list = one != NULL && one->kind == JINJA_LIST;
    bool is_true = false;

    for (size_t i = 0; one != NULL && i < (is_list ? one->as.list->n : 1); i++) {
        const struct jinja_value affix = is_list ? one->as.list->items[i] : *one;

        if (affix.kind != JINJA_TEXT)
            return jinja_fail(r, "%s takes a string, not a %s", name, jinja_kind_name(affix));
        is_true = is_true || has_affix(self.as.text, affix.as.text, name[0] == 'e');
    }
    *out = jinja_bool(is_true);
    return one != NULL || jinja_fail(r, "%s takes a string", name);
}

static bool method_remove(struct jinja_run *r, struct jinja_value self, const char *name,
                          struct jinja_args *args, struct jinja_value *out)
{
    const bool is_suffix = name[6] == 's';
    const struct jinja_text *t = self.as.text, *affix;

    if (!jinja_text_arg(r, args, 0, "affix", &affix))
        return false;
    *out = self;
    if (affix == NULL || !has_affix(t, affix, is_suffix))
        return true;
    return is_suffix ? jinja_part(r, t, 0, t->len - affix->len, out)
                     : jinja_part(r, t, affix->len, t->len, out);
}

static bool method_replace(struct jinja_run *r, struct jinja_value self, const char *name,
                           struct jinja_args *args, struct jinja_value *out)
{
    const struct jinja_value *most = jinja_arg(args, 2, "count");
    const struct jinja_text *from, *to;

    if (!jinja_text_arg(r, args, 0, "old", &from) || !jinja_text_arg(r, args, 1, "new", &to))
        return false;
    if (from == NULL || to == NULL)
        return jinja_fail(r, "replace takes two strings");
    return jinja_replace(r, self.as.text, from, to,
                         most != NULL && most->kind == JINJA_INT ? most->as.number : -1, out);
}

static bool method_case(struct jinja_run *r, struct jinja_value self, const char *name,
                        struct jinja_args *args, struct jinja_value *out)
{
    return jinja_recase(r, self.as.text,
                        name[0] == 'l'   ? JINJA_LOWER
                        : name[0] == 'u' ? JINJA_UPPER
                        : name[0] == 't' ? JINJA_TITLE
                                         : JINJA_CAPITAL,
                        out);
}

static bool method_join(struct jinja_run *r, struct jinja_value self, const char *name,
                        struct jinja_args *args, struct jinja_value *out)
{
    struct jinja_value items;

    if (args->n != 1)
        return jinja_fail(r, "join takes a list");
    return jinja_iterate(r, args->values[0], &items) && jinja_join(r, items, self.as.text, out);
}

/* find, rfind, index and count. */
static bool method_find(struct jinja_run *r, struct jinja_value self, const char *name,
                        struct jinja_args *args, struct jinja_value *out)
{
    const struct jinja_text *t = self.as.text, *what;
    int64_t n = 0, last = -1;
    const char *found;
    size_t at = 0;

    if (!jinja_text_arg(r, args, 0, "sub", &what) || !jinja_charge(r, t->len))
        return false;
    if (what == NULL || what->len == 0)
        return jinja_fail(r, "%s takes a string that is not empty", name);
    while ((found = find_text(t, at, what)) != NULL) {
        const struct jinja_text before = {.data = t->data, .len = (size_t)(found - t->data)};

        if (!jinja_charge(r, 0))
            return false;
        n++;
        at = before.len + (name[0] == 'c' ? what->len : 1);
        if (name[0] != 'c')
            last = (int64_t)before.len;
        if (name[0] == 'f' || name[0] == 'i')
            break;
    }
    if (last >= 0) {
        const struct jinja_text before = {.data = t->data, .len = (size_t)last};

        last = (int64_t)jinja_n_characters(&before);
    }
    *out = jinja_int(name[0] == 'c' ? n : last);
    return name[0] != 'i' || last >= 0 || jinja_fail(r, "index did not find the text");
}

static bool method_is(struct jinja_run *r, struct jinja_value self, const char *name,
                      struct jinja_args *args, struct jinja_value *out)
{
    const struct jinja_text *t = self.as.text;
    bool is_true = t->len != 0, is_cased = false;

    for (size_t at = 0, n; at < t->len; at += n) {
        uint32_t c;

        n = utf8_next(t->data + at, t->len - at, &c);
        is_cased = is_cased || has_case(c);
        if (strcmp(name, "isspace") == 0)
            is_true = is_true && jinja_is_space(c);
        else if (strcmp(name, "isdigit") == 0)
            is_true = is_true && c >= '0' && c <= '9';
        else if (strcmp(name, "isupper") == 0)
            is_true = is_true && lower_of(c) == lower_of(upper_of(c)) && upper_of(c) == c;
        else if (strcmp(name, "islower") == 0)
            is_true = is_true && lower_of(c) == c;
        else
            is_true = is_true && (has_case(c) || c >= 0x80 ||
                                  (strcmp(name, "isalnum") == 0 && c >= '0' && c <= '9'));
    }
    if (name[2] == 'u' || name[2] == 'l')
        is_true = is_true && is_cased;
    *out = jinja_bool(is_true);
    return jinja_charge(r, t->len);
}

/* {} and {0} and {name}, without formats. */
static bool method_format(struct jinja_run *r, struct jinja_value self, const char *name,
                          struct jinja_args *args, struct jinja_value *out)
{
    const struct jinja_text *t = self.as.text;
    struct jinja_text_builder b = {0};
    size_t n_used = 0;

    for (size_t i = 0; i < t->len; i++) {
        const struct jinja_value *v;
        char key[40] = "";
        size_t end = i + 1, n = 0;

        if ((t->data[i] != '{' && t->data[i] != '}') ||
            (i + 1 < t->len && t->data[i + 1] == t->data[i])) {
            if (!put_part(r, &b, t, i, i + 1))
                return false;
            i += t->data[i] == '{' || t->data[i] == '}';
            continue;
        }
        while (end < t->len && t->data[end] != '}' && n < sizeof(key) - 1)
            key[n++] = t->data[end++];
        if (n == 0)
            v = jinja_arg(args, n_used++, "");
        else if (key[0] >= '0' && key[0] <= '9' && n == 1)
            v = jinja_arg(args, (size_t)(key[0] - '0'), "");
        else
            v = jinja_arg(args, SIZE_MAX, key);
        if (v == NULL || end == t->len || t->data[end] != '}')
            return jinja_fail(r, "the format does not match its values");
        if (!jinja_put_value(r, &b, *v))
            return false;
        i = end;
    }
    return jinja_built(r, &b, out);
}

static bool method_items(struct jinja_run *r, struct jinja_value self, const char *name,
                         struct jinja_args *args, struct jinja_value *out)
{
    const struct jinja_map *m = self.as.map;

    if (!jinja_charge(r, 64 * m->n) || !jinja_list_new(r, m->n, out))
        return false;
    for (size_t i = 0; i < m->n; i++) {
        struct jinja_value v = name[0] == 'k' ? m->pairs[i].key : m->pairs[i].value;

        if (name[0] == 'i') {
            if (!jinja_list_new(r, 2, &v))
                return false;
            v.is_tuple = true;
            v.as.list->n = 2;
            v.as.list->items[0] = m->pairs[i].key;
            v.as.list->items[1] = m->pairs[i].value;
        }
        out->as.list->items[out->as.list->n++] = v;
    }
    return true;
}

static bool method_get(struct jinja_run *r, struct jinja_value self, const char *name,
                       struct jinja_args *args, struct jinja_value *out)
{
    struct jinja_value *found;
    const struct jinja_value *other = jinja_arg(args, 1, "default");

    if (args->n == 0)
        return jinja_fail(r, "get takes a key");
    if (!jinja_map_get(r, self.as.map, args->values[0], &found))
        return false;
    *out = found != NULL ? *found : other != NULL ? *other : jinja_none();
    return true;
}

static bool method_update(struct jinja_run *r, struct jinja_value self, const char *name,
                          struct jinja_args *args, struct jinja_value *out)
{
    *out = jinja_none();
    if (args->n > 0 && args->values[0].kind != JINJA_MAP)
        return jinja_fail(r, "update takes a mapping");
    for (size_t i = 0; args->n > 0 && i < args->values[0].as.map->n; i++)
        if (!jinja_map_set(r, self.as.map, args->values[0].as.map->pairs[i].key,
                           args->values[0].as.map->pairs[i].value))
            return false;
    return true;
}

static bool method_append(struct jinja_run *r, struct jinja_value self, const char *name,
                          struct jinja_args *args, struct jinja_value *out)
{
    *out = jinja_none();
    if (args->n != 1)
        return jinja_fail(r, "append takes a value");
    return jinja_list_push(r, self.as.list, args->values[0]);
}

static bool method_extend(struct jinja_run *r, struct jinja_value self, const char *name,
                          struct jinja_args *args, struct jinja_value *out)
{
    struct jinja_value items;

    *out = jinja_none();
    if (args->n != 1)
        return jinja_fail(r, "extend takes a list");
    if (!jinja_iterate(r, args->values[0], &items))
        return false;
    for (size_t i = 0, n = items.as.list->n; i < n; i++)
        if (!jinja_charge(r, 0) || !jinja_list_push(r, self.as.list, items.as.list->items[i]))
            return false;
    return true;
}

static bool method_pop(struct jinja_run *r, struct jinja_value self, const char *name,
                       struct jinja_args *args, struct jinja_value *out)
{
    struct jinja_list *l = self.as.list;
    int64_t i = args->n > 0 && args->values[0].kind == JINJA_INT ? args->values[0].as.number : -1;

    i = i < 0 ? i + (int64_t)l->n : i;
    if (i < 0 || (uint64_t)i >= l->n)
        return jinja_fail(r, "pop needs the index of an existing item");
    *out = l->items[i];
    memmove(l->items + i, l->items + i + 1, (l->n - (size_t)i - 1) * sizeof(*l->items));
    l->n--;
    return jinja_charge(r, 16 * l->n);
}

static bool method_list_count(struct jinja_run *r, struct jinja_value self, const char *name,
                              struct jinja_args *args, struct jinja_value *out)
{
    const struct jinja_list *l = self.as.list;
    int64_t n = 0;

    if (args->n != 1)
        return jinja_fail(r, "%s takes a value", name);
    for (size_t i = 0; i < l->n; i++) {
        bool is_equal;

        if (!jinja_charge(r, 0) || !jinja_equal(r, l->items[i], args->values[0], &is_equal))
            return false;
        n += is_equal;
        if (is_equal && name[0] == 'i') {
            *out = jinja_int((int64_t)i);
            return true;
        }
    }
    *out = jinja_int(n);
    return name[0] != 'i' || jinja_fail(r, "the value is not in the list");
}

static const struct {
    enum jinja_kind kind;
    const char *name;
    bool (*call)(struct jinja_run *r, struct jinja_value self, const char *name,
                 struct jinja_args *args, struct jinja_value *out);
} methods[] = {
    {JINJA_TEXT, "split", method_split},
    {JINJA_TEXT, "rsplit", method_split},
    {JINJA_TEXT, "splitlines", method_splitlines},
    {JINJA_TEXT, "strip", method_strip},
    {JINJA_TEXT, "lstrip", method_strip},
    {JINJA_TEXT, "rstrip", method_strip},
    {JINJA_TEXT, "startswith", method_affix},
    {JINJA_TEXT, "endswith", method_affix},
    {JINJA_TEXT, "removeprefix", method_remove},
    {JINJA_TEXT, "removesuffix", method_remove},
    {JINJA_TEXT, "replace", method_replace},
    {JINJA_TEXT, "lower", method_case},
    {JINJA_TEXT, "upper", method_case},
    {JINJA_TEXT, "title", method_case},
    {JINJA_TEXT, "capitalize", method_case},
    {JINJA_TEXT, "join", method_join},
    {JINJA_TEXT, "find", method_find},
    {JINJA_TEXT, "rfind", method_find},
    {JINJA_TEXT, "index", method_find},
    {JINJA_TEXT, "count", method_find},
    {JINJA_TEXT, "isspace", method_is},
    {JINJA_TEXT, "isdigit", method_is},
    {JINJA_TEXT, "isalpha", method_is},
    {JINJA_TEXT, "isalnum", method_is},
    {JINJA_TEXT, "isupper", method_is},
    {JINJA_TEXT, "islower", method_is},
    {JINJA_TEXT, "format", method_format},
    {JINJA_MAP, "items", method_items},
    {JINJA_MAP, "keys", method_items},
    {JINJA_MAP, "values", method_items},
    {JINJA_MAP, "get", method_get},
    {JINJA_MAP, "update", method_update},
    {JINJA_LIST, "append", method_append},
    {JINJA_LIST, "extend", method_extend},
    {JINJA_LIST, "pop", method_pop},
    {JINJA_LIST, "index", method_list_count},
    {JINJA_LIST, "count", method_list_count},
};

bool jinja_has_method(struct jinja_value self, const char *name)
{
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (methods[i].kind == self.kind && strcmp(methods[i].name, name) == 0)
            return true;
    return false;
}

bool jinja_call_method(struct jinja_run *r, struct jinja_value self, const char *name,
                       struct jinja_args *args, struct jinja_value *out)
{
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        if (methods[i].kind == self.kind && strcmp(methods[i].name, name) == 0)
            return methods[i].call(r, self, methods[i].name, args, out);
    return jinja_fail(r, "a %s has no method '%.80s'", jinja_kind_name(self), name);
}
