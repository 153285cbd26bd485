/* What a value has: its attributes, and the item at a place or under a key. */
#include <string.h>

#include "agents/lm/jinja/parts.h"

static bool loop_attribute(struct jinja_run *r, struct jinja_value of, const char *name,
                           struct jinja_value *out)
{
    const struct jinja_loop *l = of.as.loop;
    const size_t i = l->index0, n = l->items->n;
    const struct {
        const char *name;
        struct jinja_value value;
    } attributes[] = {
        {"index", jinja_int((int64_t)i + 1)},
        {"index0", jinja_int((int64_t)i)},
        {"revindex", jinja_int((int64_t)(n - i))},
        {"revindex0", jinja_int((int64_t)(n - i) - 1)},
        {"first", jinja_bool(i == 0)},
        {"last", jinja_bool(i + 1 == n)},
        {"length", jinja_int((int64_t)n)},
        {"depth", jinja_int((int64_t)l->depth0 + 1)},
        {"depth0", jinja_int((int64_t)l->depth0)},
        {"previtem", i == 0 ? jinja_undefined("previtem") : l->items->items[i - 1]},
        {"nextitem", i + 1 == n ? jinja_undefined("nextitem") : l->items->items[i + 1]},
    };

    for (size_t at = 0; at < sizeof(attributes) / sizeof(attributes[0]); at++)
        if (strcmp(attributes[at].name, name) == 0) {
            *out = attributes[at].value;
            return true;
        }
    *out = jinja_undefined(name);
    return true;
}

static bool method_value(struct jinja_run *r, struct jinja_value self, const char *name,
                         struct jinja_value *out)
{
    struct jinja_method *m = jinja_take(r, 1, sizeof(*m));

    if (m == NULL)
        return false;
    *m = (struct jinja_method){self, name};
    *out = (struct jinja_value){.kind = JINJA_METHOD, .as.method = m};
    return true;
}

/* Methods come before keys, as in Python. */
bool jinja_get_attribute(struct jinja_run *r, struct jinja_value of, const char *name,
                         struct jinja_value *out)
{
    const struct jinja_value *found;

    if (of.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(r, of);
    if (jinja_has_method(of, name))
        return method_value(r, of, name, out);
    if (of.kind == JINJA_LOOP)
        return loop_attribute(r, of, name, out);
    *out = jinja_undefined(name);
    if (of.kind != JINJA_MAP && of.kind != JINJA_NAMESPACE)
        return true;
    found = jinja_map_find(of.as.map, name, strlen(name));
    if (found != NULL)
        *out = *found;
    return jinja_charge(r, 8 * of.as.map->n);
}

size_t jinja_byte_of(const struct jinja_text *t, size_t i)
{
    size_t at = 0;

    for (; at < t->len; at++)
        if (((unsigned char)t->data[at] & 0xC0) != 0x80 && i-- == 0)
            return at;
    return at;
}

static bool item_index(int64_t i, size_t n, size_t *ret)
{
    if (i < 0)
        i += (int64_t)n;
    *ret = (size_t)i;
    return i >= 0 && (uint64_t)i < n;
}

bool jinja_text_item(struct jinja_run *r, const struct jinja_text *t, int64_t i,
                     struct jinja_value *out)
{
    size_t at;

    if (!jinja_charge(r, t->len))
        return false;
    if (!item_index(i, jinja_n_characters(t), &at))
        return true;
    return jinja_part(r, t, jinja_byte_of(t, at), jinja_byte_of(t, at + 1), out);
}

bool jinja_get_item(struct jinja_run *r, struct jinja_value of, struct jinja_value key,
                    struct jinja_value *out)
{
    struct jinja_value *found;
    size_t at;

    if (of.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(r, of);
    *out = jinja_undefined(key.kind == JINJA_TEXT && key.as.text->origin == JINJA_OF_TEMPLATE &&
                                   key.as.text->origins == NULL
                               ? key.as.text->data
                               : NULL);
    if (of.kind == JINJA_MAP) {
        if (!jinja_map_get(r, of.as.map, key, &found))
            return false;
        if (found != NULL)
            *out = *found;
        return true;
    }
    if (key.kind == JINJA_TEXT && key.as.text->origins == NULL && key.as.text->len < 40) {
        char name[40];

        memcpy(name, key.as.text->data, key.as.text->len);
        name[key.as.text->len] = '\0';
        if (of.kind != JINJA_LOOP && of.kind != JINJA_NAMESPACE)
            return true;
        return jinja_get_attribute(r, of, name, out);
    }
    if (key.kind != JINJA_INT)
        return true;
    if (of.kind == JINJA_TEXT)
        return jinja_text_item(r, of.as.text, key.as.number, out);
    if (of.kind == JINJA_LIST && item_index(key.as.number, of.as.list->n, &at))
        *out = of.as.list->items[at];
    return true;
}
